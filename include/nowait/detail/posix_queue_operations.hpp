// The operations of a POSIX queue, and the descriptions that make the first attempt before there is an operation.
//
// They wait as operations on descriptors do (descriptor.hpp): one poll for each direction of a queue, the waiters FIFO behind
// it, an attempt at each wake. Another process may be faster than a waiter that was woken; then it waits on, at its place. With
// a dedicated receiver the first waiter for a message is served by a worker that is blocked in mq_receive, instead of the poll.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/descriptor.hpp>
#include <nowait/message.hpp>
#include <nowait/result.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// The kernel's: priorities are below it.
inline constexpr unsigned queue_priorities = 32768;

class queue_send_operation;
class queue_receive_operation;

struct queue_send_description {
    using operation = queue_send_operation;
    using value_type = result<void>;

    descriptor* block;
    const void* data;
    std::size_t size;
    unsigned priority;

    /// As read_description::try_now.
    [[nodiscard]] bool try_now(loop& home, const inplace_stop_source& stop, long& outcome) const noexcept {
        if (block == nullptr || !block->out.fast || block->owner != &home || home.budget <= 0 ||
            stop.stop_requested()) [[unlikely]]
            return false;
        outcome = direct_queue_send(block->io_fd, data, size, priority);
        if (outcome < 0) [[unlikely]]
            return false;
        block->out.hit();
        home.charge(size);
        home.counters_of(operation_kind::queue_send).inline_completions.add();
        return true;
    }
    static value_type value_of(long) noexcept { return {}; }
};

class NOWAIT_API queue_send_operation final : public descriptor_operation {
public:
    explicit queue_send_operation(const queue_send_description& what) noexcept
        : descriptor_operation(what.block, operation_kind::queue_send), what_(what) {}

    [[nodiscard]] bool start() noexcept {
        long outcome = 0;
        if (what_.try_now(home(), stop_source(), outcome)) {
            result_ = outcome;
            return true;
        }
        return start_after(outcome);
    }
    [[nodiscard]] bool start_after(long outcome) noexcept;
    [[nodiscard]] result<void> take_result() const noexcept {
        if (result_ < 0) [[unlikely]]
            return fail_errno(static_cast<int>(-result_));
        return {};
    }

private:
    static long attempt(descriptor_operation& self) noexcept;

    queue_send_description what_;
};

/// How a first attempt to receive came out: a size, or a negative errno value, or 0 and no data if none was made.
struct queue_receive_outcome {
    long size = 0;
    std::byte* data = nullptr;
    unsigned priority = 0;
    bool tried = false;
};

struct queue_receive_description {
    using operation = queue_receive_operation;
    using value_type = result<message<std::span<std::byte>>>;
    using outcome = queue_receive_outcome;

    descriptor* block;
    std::byte* data;
    std::size_t size;

    [[nodiscard]] bool try_now(loop& home, const inplace_stop_source& stop, outcome& out) const noexcept {
        // No attempt with a null pointer: the kernel takes the message out before it finds that it cannot copy it.
        if (block == nullptr || !block->in.fast || block->owner != &home || home.budget <= 0 ||
            stop.stop_requested() || data == nullptr) [[unlikely]]
            return false;
        out.tried = true;
        out.size = direct_queue_receive(block->io_fd, data, size, out.priority);
        if (out.size < 0) [[unlikely]]
            return false;
        out.data = data;
        block->in.hit();
        home.charge(static_cast<std::size_t>(out.size));
        home.counters_of(operation_kind::queue_receive).inline_completions.add();
        return true;
    }
    static value_type value_of(const outcome& out) noexcept {
        return message<std::span<std::byte>>{{out.data, static_cast<std::size_t>(out.size)}, out.priority};
    }
};

/// What both ways of receiving have in common.
class NOWAIT_API queue_receive_base : public descriptor_operation {
protected:
    queue_receive_base(descriptor* block, std::byte* data, std::size_t size) noexcept
        : descriptor_operation(block, operation_kind::queue_receive), data_(data), size_(size) {}
    ~queue_receive_base() = default;

    /// The first attempt failed (a negative errno value), or (0) none was made.
    [[nodiscard]] bool go_on(long outcome) noexcept;
    /// Everything before the first attempt. 0, or why there is none.
    [[nodiscard]] int prepare() noexcept;
    [[nodiscard]] bool start_prepared() noexcept;

    std::byte* data_;
    std::size_t size_;
    unsigned priority_ = 0;

private:
    void set_up() noexcept;
    static long attempt(descriptor_operation& self) noexcept;
    static bool describe(descriptor_operation& self, transfer& work) noexcept;
};

/// A worker of the pool that is blocked in mq_receive for the first waiter of `queue`.
[[nodiscard]] std::unique_ptr<performer> make_queue_receiver(descriptor& queue);

/// Into the caller's buffer.
class queue_receive_operation final : public queue_receive_base {
public:
    explicit queue_receive_operation(const queue_receive_description& what) noexcept
        : queue_receive_base(what.block, what.data, what.size) {}

    [[nodiscard]] bool start() noexcept {
        queue_receive_outcome out;
        const queue_receive_description what{block_, data_, size_};
        if (what.try_now(home(), stop_source(), out)) {
            result_ = out.size;
            priority_ = out.priority;
            return true;
        }
        return start_after(out);
    }
    [[nodiscard]] bool start_after(const queue_receive_outcome& out) noexcept {
        return go_on(out.tried ? out.size : 0);
    }
    [[nodiscard]] queue_receive_description::value_type take_result() const noexcept {
        if (result_ < 0) [[unlikely]]
            return fail_errno(static_cast<int>(-result_));
        return message<std::span<std::byte>>{{data_, static_cast<std::size_t>(result_)}, priority_};
    }
};

/// Into memory of its own, as large as the queue's longest message.
struct queue_receive_owned_description {
    using operation = class queue_receive_owned_operation;
    using value_type = result<message<std::vector<std::byte>>>;
    descriptor* block;
};

class NOWAIT_API queue_receive_owned_operation final : public queue_receive_base {
public:
    explicit queue_receive_owned_operation(const queue_receive_owned_description& what) noexcept
        : queue_receive_base(what.block, nullptr, 0) {}

    [[nodiscard]] bool start() noexcept;
    [[nodiscard]] queue_receive_owned_description::value_type take_result() noexcept;

private:
    std::vector<std::byte> bytes_;
};

/// A registration for notifications. Its operation looks at it only while it waits, so it may go with its handle.
struct queue_registration {
    unsigned generation = 0; ///< what the cookie carries: notifications of older ones are dropped
    unsigned forks = 0;      ///< in a child of the process that registered it is another number
    bool standing = false;   ///< registered, and no notification has been seen
};

/// Waits for the notification that a registration has asked for; see mqueue_notification.
struct queue_notice_description {
    using operation = class queue_notice_operation;
    using value_type = result<void>;
    descriptor* socket;
    queue_registration* registration;
};

class NOWAIT_API queue_notice_operation final : public descriptor_operation {
public:
    explicit queue_notice_operation(const queue_notice_description& what) noexcept
        : descriptor_operation(what.socket, operation_kind::ready), registration_(what.registration) {}

    [[nodiscard]] bool start() noexcept;
    [[nodiscard]] result<void> take_result() const noexcept {
        if (result_ < 0)
            return fail_errno(static_cast<int>(-result_));
        return {};
    }

private:
    static long attempt(descriptor_operation& self) noexcept;

    queue_registration* registration_;
};

/// One look at the socket. 1: the notification is there; -EAGAIN; -EIDRM: the registration was taken away.
[[nodiscard]] long take_notice(descriptor& socket, queue_registration& registration) noexcept;

} // namespace detail
NOWAIT_END_NAMESPACE
