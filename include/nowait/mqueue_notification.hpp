// One notification that a message has come to an empty POSIX queue.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/descriptor.hpp>
#include <nowait/detail/posix_queue_operations.hpp>
#include <nowait/posix_mqueue.hpp>
#include <nowait/result.hpp>

#include <memory>
#include <utility>

NOWAIT_BEGIN_NAMESPACE

/// A registration with the kernel, mq_notify: one for each queue in the whole system, for one message. It comes by a socket of
/// this object: no signal, no thread.
///
///     auto notice = queue->notify();                    // registered from here on
///     ...take out what is there: only a message that comes to the empty queue is news...
///     co_await notice->arrived();                       // result<void>
///     notice->renew();                                  // for the next one
///
/// Nothing comes while somebody is blocked in mq_receive: the message is theirs. For receiving, receive() is enough; this is
/// for being told and letting somebody else receive. Closing any descriptor of the queue in this process takes the
/// registration away: that is the kernel's rule, and arrived() says so.
///
/// Keeps the queue open. Movable, also while arrived() waits. The destructor takes the registration away.
class NOWAIT_API mqueue_notification {
public:
    mqueue_notification() = default;
    mqueue_notification(mqueue_notification&&) noexcept = default;
    mqueue_notification& operator=(mqueue_notification&& other) noexcept {
        if (this != &other) {
            cancel();
            queue_ = std::move(other.queue_);
            socket_ = std::move(other.socket_);
            registration_ = std::move(other.registration_);
        }
        return *this;
    }
    ~mqueue_notification() { cancel(); }

    /// Waits until the message has come, at once if it came before. Another process may have taken it since.
    /// Errors: identifier_removed: the registration was taken away, because this process closed a descriptor of the queue;
    /// operation_canceled: stopped (the registration stands); bad_file_descriptor: cancelled or moved from;
    /// operation_not_permitted: it belongs to another runtime. Borrows: this object. Resumes: on the awaiter's runtime.
    [[nodiscard]] detail::queue_notice_description arrived() const noexcept {
        return {socket_.get(), registration_.get()};
    }

    /// Registers again, after arrived(). Errors: device_or_resource_busy: somebody is registered, this object perhaps;
    /// bad_file_descriptor: the queue is closed.
    result<void> renew() noexcept;

    /// Takes the registration away; arrived() ends with operation_canceled.
    void cancel() noexcept;

private:
    friend class posix_mqueue;
    mqueue_notification(detail::descriptor* queue, detail::descriptor* socket,
                        std::unique_ptr<detail::queue_registration>&& registration) noexcept
        : queue_(queue), socket_(socket), registration_(std::move(registration)) {}

    detail::descriptor_handle queue_;
    detail::descriptor_handle socket_;
    std::unique_ptr<detail::queue_registration> registration_;
};

NOWAIT_END_NAMESPACE
