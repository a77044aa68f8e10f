// oneshot<T>: one value, from one place to another, once.
#pragma once

#include <nowait/channel.hpp>
#include <nowait/config.hpp>
#include <nowait/result.hpp>

#include <utility>

NOWAIT_BEGIN_NAMESPACE

template <class T, class Sync>
class basic_oneshot_sender;
template <class T, class Sync>
class basic_oneshot_receiver;

namespace detail {

template <class T, class Sync>
using oneshot_ends = std::pair<basic_oneshot_sender<T, Sync>, basic_oneshot_receiver<T, Sync>>;
template <class T, class Sync>
[[nodiscard]] result<oneshot_ends<T, Sync>> make_oneshot_over() noexcept;

} // namespace detail

/// The end that gives the value. Dropped before it has, the receiver ends with broken_pipe. Any thread, any runtime.
template <class T, class Sync>
class basic_oneshot_sender {
public:
    basic_oneshot_sender(basic_oneshot_sender&&) noexcept = default;
    basic_oneshot_sender& operator=(basic_oneshot_sender&& other) noexcept {
        basic_oneshot_sender old(std::move(*this)); // its receiver hears of it
        through_ = std::move(other.through_);
        return *this;
    }
    ~basic_oneshot_sender() { through_.close(); }

    /// Gives the value; never waits. Errors, with `value` left alone: broken_pipe: it was given before, or the receiver has
    /// gone; bad_file_descriptor: a moved-from sender.
    result<void> send(T& value) const noexcept {
        auto sent = through_.try_send(value);
        if (sent)
            through_.close(); // after the value, the end
        return sent;
    }
    result<void> send(T&& value) const noexcept { return send(value); }

    /// True if nobody will receive it: the receiver has gone, or the value was given.
    [[nodiscard]] bool closed() const noexcept { return through_.closed(); }

private:
    template <class U, class S>
    friend result<detail::oneshot_ends<U, S>> detail::make_oneshot_over() noexcept;
    explicit basic_oneshot_sender(basic_channel<T, Sync> through) noexcept : through_(std::move(through)) {}

    basic_channel<T, Sync> through_;
};

/// The end that waits for the value.
template <class T, class Sync>
class basic_oneshot_receiver {
public:
    basic_oneshot_receiver(basic_oneshot_receiver&&) noexcept = default;
    basic_oneshot_receiver& operator=(basic_oneshot_receiver&& other) noexcept {
        basic_oneshot_receiver old(std::move(*this));
        through_ = std::move(other.through_);
        return *this;
    }
    /// Whoever gives the value from now on is told that nobody has it; a value that waits here is destroyed.
    ~basic_oneshot_receiver() { through_.abort(); }

    /// Waits for the value. Returns: it. Errors: broken_pipe: the sender has gone without giving it, or it was received
    /// before; operation_canceled: the value is still to be had; bad_file_descriptor: a moved-from receiver.
    /// Borrows: nothing. Resumes: on the awaiter's runtime.
    [[nodiscard]] auto receive() const noexcept { return through_.receive(); }

    /// The value if it is there. Errors: resource_unavailable_try_again: not yet; and those of receive().
    [[nodiscard]] result<T> try_receive() const noexcept { return through_.try_receive(); }

private:
    template <class U, class S>
    friend result<detail::oneshot_ends<U, S>> detail::make_oneshot_over() noexcept;
    explicit basic_oneshot_receiver(basic_channel<T, Sync> through) noexcept : through_(std::move(through)) {}

    basic_channel<T, Sync> through_;
};

template <class T>
using oneshot_sender = basic_oneshot_sender<T, detail::real_sync>;
template <class T>
using oneshot_receiver = basic_oneshot_receiver<T, detail::real_sync>;

template <class T, class Sync>
result<detail::oneshot_ends<T, Sync>> detail::make_oneshot_over() noexcept {
    auto made = basic_channel<T, Sync>::create(1);
    if (!made)
        return fail(made.error());
    if (auto reserved = made->reserve_memory(); !reserved)
        return fail(reserved.error());
    basic_oneshot_sender<T, Sync> sender(*made);
    basic_oneshot_receiver<T, Sync> receiver(std::move(*made));
    return std::pair(std::move(sender), std::move(receiver));
}

/// Makes both ends. Errors: not_enough_memory: all the memory that the value needs is had here.
template <class T>
[[nodiscard]] result<std::pair<oneshot_sender<T>, oneshot_receiver<T>>> make_oneshot() noexcept {
    return detail::make_oneshot_over<T, detail::real_sync>();
}

NOWAIT_END_NAMESPACE
