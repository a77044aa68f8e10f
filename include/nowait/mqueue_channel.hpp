// mqueue_channel<T>: an awaitable in-process priority queue with the rules of a POSIX message queue.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/message_channel_handle.hpp>

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

NOWAIT_BEGIN_NAMESPACE

// Policies. The index finds the highest priority present: a balanced tree with one node for each, as the kernel has it, or a
// 64-ary tree of bitmaps, which is faster with many priorities and takes 4 KiB and 520 bytes for every 64 of them in use.
using detail::bitmap_index;
using detail::tree_index;
// The order: strict priority, or strict priority in which the longest waiting message has its turn now and then.
using detail::fair_order;
using detail::strict_order;

/// Priorities are 0 to 32767; the highest is received first.
inline constexpr unsigned priority_limit = detail::priority_levels;

/// Messages of type T, the highest priority first, first in first out inside a priority.
///
///     auto queue = mqueue_channel<job>::create({.capacity = 64});
///     co_await queue->send(urgent, 9);                  // moves from `urgent` if, and only if, it succeeds
///     auto next = co_await queue->receive();            // result<message<job>>: value and priority
///
/// A send to a full queue waits, and so does a receive from an empty one; waiters are served in the order of their coming
/// (see with_urgency), from hand to hand, and nobody overtakes them. Every operation is done or untouched: one that reports an
/// error has moved nothing.
///
/// T can be moved without throwing; moves of T run under the channel's lock. A handle is a reference: see
/// detail::message_channel_handle for copies, close(), abort() and the queries. Complexity of send and receive: O(1) while one
/// priority is in use or receivers keep up; else O(log p) for p priorities present (tree), O(1) (bitmap).
template <class T, class Sync, class Index, class Order, detail::front_cache Front = detail::front_cache::yes>
class basic_mqueue_channel
    : public detail::message_channel_handle<detail::message_core<T, Sync, Index, Order, Front>> {
    using core = detail::message_core<T, Sync, Index, Order, Front>;
    using base = detail::message_channel_handle<core>;
    friend base;
    using base::base;

public:
    using options = channel_options<T, Order>;

    /// Makes a queue. Errors: invalid_argument: a capacity of 0, or a limit out of its bounds; not_enough_memory.
    [[nodiscard]] static result<basic_mqueue_channel> create(const options& wanted = {}) noexcept {
        return base::template make<basic_mqueue_channel>(wanted, false);
    }

    /// Waits for room, and moves `value` in. Priorities from 0 to 32767.
    /// Errors, all of which leave `value` alone: invalid_argument: another priority; message_size: larger than message_bytes;
    /// broken_pipe: the queue is or was closed; operation_canceled; not_enough_memory; bad_file_descriptor: a moved-from
    /// handle; operation_not_permitted: see receive(). Borrows: `value`, until the end. Resumes: on the awaiter's runtime.
    template <std::integral P = unsigned>
    [[nodiscard]] detail::message_send_description<core> send(T& value, P priority = 0) const noexcept {
        return {this->core_, &value, checked(priority)};
    }
    template <std::integral P = unsigned>
    void send(T&& value, P priority = 0) const =
        delete; // a message that is not sent would be lost: send_owned() gives it back

    /// The same with the message inside the operation. Returns: nothing, or unsent<T>: the code and the message.
    template <std::integral P = unsigned>
    [[nodiscard]] detail::message_send_owned_description<core> send_owned(T value,
                                                                          P priority = 0) const noexcept {
        return {this->core_, std::move(value), checked(priority)};
    }

    /// Moves `value` in if there is room. Errors: resource_unavailable_try_again: no room; and those of send().
    template <std::integral P = unsigned>
    [[nodiscard]] result<void> try_send(T& value, P priority = 0) const noexcept {
        return this->try_to_send(value, checked(priority));
    }
    template <std::integral P = unsigned>
    void try_send(T&& value, P priority = 0) const = delete;

    /// Waits for room, and takes the place: get one first, then build the message. Returns: the reservation, whose send() neither
    /// waits nor needs memory. Errors: those of send(), but message_size. Borrows: nothing; it keeps the channel. Resumes: on the
    /// awaiter's runtime.
    template <std::integral P = unsigned>
    [[nodiscard]] detail::message_reserve_description<core> reserve(P priority = 0) const noexcept {
        return {this->core_, checked(priority)};
    }
    /// The same if there is room. Errors: resource_unavailable_try_again: none; and those of reserve().
    template <std::integral P = unsigned>
    [[nodiscard]] result<typename base::reservation> try_reserve(P priority = 0) const noexcept {
        return this->try_to_reserve(checked(priority));
    }

private:
    /// Any integer: what is no priority stays none.
    template <std::integral P>
    [[nodiscard]] static constexpr unsigned checked(P priority) noexcept {
        return std::in_range<unsigned>(priority) ? static_cast<unsigned>(priority) : priority_limit;
    }
};

/// Shared: any thread, any runtime.
template <class T, class Index = tree_index, class Order = strict_order>
using mqueue_channel = basic_mqueue_channel<T, detail::real_sync, Index, Order>;

/// For one runtime: the same without a lock.
template <class T, class Index = tree_index, class Order = strict_order>
using local_mqueue_channel = basic_mqueue_channel<T, detail::local_sync, Index, Order>;

NOWAIT_END_NAMESPACE
