// The dedicated receiver of a POSIX queue: a worker that is blocked in mq_receive.
//
// The kernel hands a message to whoever is blocked in mq_receive, past every poll. So a queue that is shared with processes that
// block is won by blocking, too. One worker at a time, for the first of those who wait; a stop interrupts it, and the
// operation ends when the worker says how it ended: with the message, if one was faster than the signal.
#include <nowait/blocking.hpp>
#include <nowait/detail/posix_queue_operations.hpp>

#include <cerrno>
#include <new>
#include <optional>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

performer::~performer() = default;

namespace {

/// What the worker does.
struct wait_for_message {
    system* calls;
    int queue;
    void* data;
    std::size_t size;
    unsigned* priority;

    long operator()() const noexcept { return calls->queue_receive_waiting(queue, data, size, *priority); }
};

class queue_receiver final : public performer {
    using waiting = blocking_operation<wait_for_message>;

public:
    explicit queue_receiver(descriptor& queue) noexcept : queue_(queue) {
        late_.of = this;
        late_.run = [](ready_node& node) noexcept { static_cast<late_end&>(node).of->report(); };
    }

    void start(transfer& work) noexcept override {
        loop& home = *queue_.owner;
        work_ = &work;
        stop_.emplace();
        operation_.emplace(blocking(
            interruptible, wait_for_message{queue_.calls, work.fd, work.data, work.size, work.priority}));
        operation_->bind(
            home, *stop_,
            [](operation_base& ended) noexcept { static_cast<queue_receiver*>(ended.context())->report(); },
            this);
        home.counters_of(operation_kind::queue_receive).punted.add();
        if (operation_->start())
            home.post(late_); // refused, and nothing is called back from start()
    }
    void cancel(transfer&) noexcept override {
        if (stop_)
            stop_->request_stop();
    }
    void finish() noexcept override {
        if (!operation_)
            return;
        operation_.reset(); // waits for the worker
        work_->on_event(*work_, -ECANCELED, false);
    }

private:
    struct late_end : ready_node {
        queue_receiver* of = nullptr;
    };

    void report() noexcept {
        const result<long> got = operation_->take_result();
        // Without a worker, it waits as others do: by a poll.
        const long outcome = got ? *got : -EAGAIN;
        operation_.reset();
        stop_.reset();
        work_->on_event(*work_, outcome, false);
    }

    descriptor& queue_;
    transfer* work_ = nullptr;
    std::optional<inplace_stop_source> stop_;
    std::optional<waiting> operation_;
    late_end late_;
};

} // namespace

std::unique_ptr<performer> make_queue_receiver(descriptor& queue) {
    return std::unique_ptr<performer>(new (std::nothrow) queue_receiver(queue));
}

} // namespace detail
NOWAIT_END_NAMESPACE
