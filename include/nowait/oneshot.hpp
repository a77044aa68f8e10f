// oneshot<T>: one value, from one place to another, once.
#pragma once

#include <nowait/channel.hpp>
#include <nowait/config.hpp>
#include <nowait/result.hpp>

#include <utility>

NOWAIT_BEGIN_NAMESPACE

template <class T>
class oneshot_receiver;

/// The end that gives the value. Dropped before it has, the receiver ends with broken_pipe. Any thread, any runtime.
template <class T>
class oneshot_sender {
public:
    oneshot_sender(oneshot_sender&&) noexcept = default;
    oneshot_sender& operator=(oneshot_sender&& other) noexcept {
        oneshot_sender old(std::move(*this)); // its receiver hears of it
        through_ = std::move(other.through_);
        return *this;
    }
    ~oneshot_sender() { through_.close(); }

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
    template <class U>
    friend result<std::pair<oneshot_sender<U>, oneshot_receiver<U>>> make_oneshot() noexcept;
    explicit oneshot_sender(channel<T> through) noexcept : through_(std::move(through)) {}

    channel<T> through_;
};

/// The end that waits for the value.
template <class T>
class oneshot_receiver {
public:
    oneshot_receiver(oneshot_receiver&&) noexcept = default;
    oneshot_receiver& operator=(oneshot_receiver&& other) noexcept {
        oneshot_receiver old(std::move(*this));
        through_ = std::move(other.through_);
        return *this;
    }
    /// Whoever gives the value from now on is told that nobody has it; a value that waits here is destroyed.
    ~oneshot_receiver() { through_.abort(); }

    /// Waits for the value. Returns: it. Errors: broken_pipe: the sender has gone without giving it, or it was received
    /// before; operation_canceled: the value is still to be had; bad_file_descriptor: a moved-from receiver.
    /// Borrows: nothing. Resumes: on the awaiter's runtime.
    [[nodiscard]] auto receive() const noexcept { return through_.receive(); }

    /// The value if it is there. Errors: resource_unavailable_try_again: not yet; and those of receive().
    [[nodiscard]] result<T> try_receive() const noexcept { return through_.try_receive(); }

private:
    template <class U>
    friend result<std::pair<oneshot_sender<U>, oneshot_receiver<U>>> make_oneshot() noexcept;
    explicit oneshot_receiver(channel<T> through) noexcept : through_(std::move(through)) {}

    channel<T> through_;
};

/// Makes both ends. Errors: not_enough_memory: all the memory that the value needs is had here.
template <class T>
[[nodiscard]] result<std::pair<oneshot_sender<T>, oneshot_receiver<T>>> make_oneshot() noexcept {
    auto made = channel<T>::create(1);
    if (!made)
        return fail(made.error());
    if (auto reserved = made->reserve_memory(); !reserved)
        return fail(reserved.error());
    oneshot_sender<T> sender(*made);
    oneshot_receiver<T> receiver(std::move(*made));
    return std::pair(std::move(sender), std::move(receiver));
}

NOWAIT_END_NAMESPACE
