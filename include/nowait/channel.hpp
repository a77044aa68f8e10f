// channel<T>: messages between tasks, first in first out.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/message_channel_handle.hpp>

#include <cstdint>
#include <utility>

NOWAIT_BEGIN_NAMESPACE

/// Messages of type T, first in first out, bounded. A capacity of 0 is a rendezvous: a send ends when a receiver has the
/// message.
///
///     auto jobs = channel<job>::create(64);
///     co_await jobs->send(next);                        // moves from `next` if, and only if, it succeeds
///     auto got = co_await jobs->receive();              // result<job>
///
/// Waiting, closing and the rest: as mqueue_channel, of which this is the case with one priority.
template <class T, class Sync>
class basic_channel : public detail::message_channel_handle<detail::message_core<T, Sync, detail::no_index>> {
    using core = detail::message_core<T, Sync, detail::no_index>;
    using base = detail::message_channel_handle<core>;
    friend base;
    using base::base;

public:
    using options = channel_options<T>;

    /// Makes a channel. Errors: invalid_argument: a limit out of its bounds; not_enough_memory.
    [[nodiscard]] static result<basic_channel> create(const options& wanted) noexcept {
        return base::template make<basic_channel>(wanted, true);
    }
    /// The same with a capacity alone, in messages.
    [[nodiscard]] static result<basic_channel> create(std::uint64_t capacity) noexcept {
        options wanted;
        wanted.capacity = capacity;
        return create(wanted);
    }

    /// Waits for room, and moves `value` in. Errors, all of which leave `value` alone: message_size: larger than
    /// message_bytes; broken_pipe: the channel is or was closed; operation_canceled; not_enough_memory; bad_file_descriptor:
    /// a moved-from handle; operation_not_permitted: see receive(). Borrows: `value`, until the end. Resumes: on the
    /// awaiter's runtime.
    [[nodiscard]] detail::message_send_description<core> send(T& value) const noexcept {
        return {this->core_, &value, 0};
    }
    void send(T&& value) const =
        delete; // a message that is not sent would be lost: send_owned() gives it back

    /// The same with the message inside the operation. Returns: nothing, or unsent<T>: the code and the message.
    [[nodiscard]] detail::message_send_owned_description<core> send_owned(T value) const noexcept {
        return {this->core_, std::move(value), 0};
    }

    /// Moves `value` in if there is room. Errors: resource_unavailable_try_again: no room; and those of send().
    [[nodiscard]] result<void> try_send(T& value) const noexcept { return this->try_to_send(value, 0); }
    void try_send(T&& value) const = delete;

    /// Waits for room, and takes the place: get one first, then build the message. Returns: the reservation, whose send() neither
    /// waits nor needs memory. Errors: those of send(), but message_size; operation_not_supported: a rendezvous has no places.
    /// Borrows: nothing; it keeps the channel. Resumes: on the awaiter's runtime.
    [[nodiscard]] detail::message_reserve_description<core> reserve() const noexcept {
        return {this->core_, 0};
    }
    /// The same if there is room. Errors: resource_unavailable_try_again: none; and those of reserve().
    [[nodiscard]] result<typename base::reservation> try_reserve() const noexcept {
        return this->try_to_reserve(0);
    }

    /// Has the memory of one message ready, so that the next send to the empty channel cannot fail for want of it.
    /// Errors: not_enough_memory; bad_file_descriptor.
    [[nodiscard]] result<void> reserve_memory() const noexcept {
        if (this->core_ == nullptr)
            return fail(std::errc::bad_file_descriptor);
        if (!this->core_->reserve(0))
            return fail(std::errc::not_enough_memory);
        return {};
    }
};

/// Shared: any thread, any runtime.
template <class T>
using channel = basic_channel<T, detail::real_sync>;

/// For one runtime: the same without a lock.
template <class T>
using local_channel = basic_channel<T, detail::local_sync>;

NOWAIT_END_NAMESPACE
