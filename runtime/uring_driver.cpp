// The only file that knows liburing.
#include "uring_driver.hpp"

#include "fork_watch.hpp"
#include "punted_transfer.hpp"
#include "sigpipe_guard.hpp"
#include "standard_numbers.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <new>
#include <utility>

#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define NOWAIT_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NOWAIT_TSAN 1
#endif
#endif
#if defined(NOWAIT_TSAN)
extern "C" {
void __tsan_acquire(void*);
void __tsan_release(void*);
}
#endif

NOWAIT_BEGIN_NAMESPACE
namespace detail {

namespace {

// What is queued before a submission happens after it for whoever reaps: the sanitizer cannot see that through the kernel.
void hand_over(void* target) noexcept {
#if defined(NOWAIT_TSAN)
    __tsan_release(target);
#else
    (void)target;
#endif
}
void take_over(void* target) noexcept {
#if defined(NOWAIT_TSAN)
    __tsan_acquire(target);
#else
    (void)target;
#endif
}

// liburing maps and unmaps by its own system calls, which the sanitizer does not see either: to it a ring at the address of one
// that has gone is the old memory. What was done to any earlier ring happens before the next one is made.
char earlier_rings = 0;

// Names that liburing 2.3's headers lack; values are kernel ABI (6.15).
constexpr unsigned enter_no_iowait = 1u << 7;
constexpr unsigned feature_no_iowait = 1u << 17;

constexpr unsigned entries_min = 64;
constexpr unsigned entries_max = 32768;

class uring_driver final : public driver {
public:
    uring_driver(system& calls, io_uring ring, int wake_fd) noexcept
        : calls_(calls), ring_(ring), wake_fd_(wake_fd) {
        multishot_ = calls.has(feature::multishot_poll);
        number_entries();
        waker_.fd = wake_fd;
        waker_.events = POLLIN;
        waker_.on_event = [](driver_target& target, long, bool more) noexcept {
            static_cast<waker&>(target).armed = more;
        };
    }
    ~uring_driver() override {
        if (!abandoned_) {
            punted_.close();
            hand_over(&earlier_rings); // before the memory is somebody else's
            if (!surrendered_)
                io_uring_queue_exit(&ring_);
            ::close(wake_fd_);
        }
    }

    int bind_to_thread() noexcept override {
        if (bound_)
            return 0;
        // The ring was made disabled, so that the thread that enables it, not the one that made it, is its single issuer.
        if ((ring_.flags & IORING_SETUP_R_DISABLED) != 0 && !enable()) {
            // io_uring_register is refused (some sandboxes do only that): a new ring, enabled from the start, made here.
            io_uring_params parameters{};
            parameters.flags = ring_.flags & ~static_cast<unsigned>(IORING_SETUP_R_DISABLED);
            parameters.cq_entries = ring_.cq.ring_entries;
            parameters.flags |= IORING_SETUP_CQSIZE;
            const standard_numbers not_ours;
            io_uring fresh{};
            if (const int error = io_uring_queue_init_params(ring_.sq.ring_entries, &fresh, &parameters);
                error < 0)
                return -error;
            take_over(&earlier_rings);
            hand_over(&earlier_rings);
            io_uring_queue_exit(&ring_);
            ring_ = fresh;
            number_entries();
        }
        bound_ = true;
        if (!watched_)
            arm(waker_);
        return 0;
    }

    void arm(poll_source& source) noexcept override {
        source.armed = true;
        ++held_;
        io_uring_sqe* sqe = next_entry();
        if (sqe == nullptr) {
            backlog_.push_back(source);
            return;
        }
        prepare_poll(*sqe, source);
    }

    void disarm(poll_source& source) noexcept override {
        if (static_cast<list_node&>(source).linked()) {
            if (!source.removing) { // never left this process
                static_cast<list_node&>(source).unlink();
                dropped_.push_back(source);
                source.removing = true;
            } // else it has been asked for, or waits for an entry, or the source has been dropped
            return;
        }
        source.removing = true;
        io_uring_sqe* sqe = next_entry();
        if (sqe == nullptr)
            removals_.push_back(source);
        else
            prepare_removal(*sqe, source);
    }

    void start(transfer& work) noexcept override {
        ++held_;
        work.cancelling = false;
        if (!calls_.has(feature::ring_nonblocking) && would_answer(work)) {
            answers_.push_back(work);
            return;
        }
        // Where task work is not deferred, a write that has waited may end in any system call of this thread, and raise SIGPIPE there.
        if (may_raise(work) && (ring_.flags & IORING_SETUP_DEFER_TASKRUN) == 0 && punted_.punt(work, false))
            return;
        start_here(work);
    }

    void cancel(transfer& work) noexcept override {
        if (std::exchange(work.cancelling, true))
            return;
        if (punted_.cancel(work))
            return;
        if (static_cast<list_node&>(work).linked()) { // never left this process
            static_cast<list_node&>(work).unlink();
            dropped_transfers_.push_back(work);
            return;
        }
        io_uring_sqe* sqe = next_entry();
        if (sqe == nullptr) {
            cancels_.push_back(work);
            return;
        }
        io_uring_prep_cancel(sqe, &work, 0);
        finish(*sqe, nullptr);
    }

    [[nodiscard]] bool signalled() const noexcept override {
        return io_uring_cq_ready(&ring_) != 0 || punted_.filled() ||
               (flags() & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
    }

    [[nodiscard]] bool has_work() const noexcept override {
        return io_uring_sq_ready(&ring_) != 0 || io_uring_cq_ready(&ring_) != 0 || !backlog_empty() ||
               punted_.filled() || (flags() & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0 || must_ask();
    }

    void collect() noexcept override {
        if (io_uring_sq_ready(&ring_) != 0 || must_ask() ||
            (flags() & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0)
            submit();
        reap();
        drain_backlog();
        if (std::exchange(asked_again_, false)) { // whoever closes waits for these
            submit();
            reap();
            drain_backlog();
        }
    }

    // Where task work is deferred, a ring's own descriptor is no use to somebody else's epoll: it counts as readable while such
    // work waits, but nobody who sleeps on it is told (seen on 6.18). A registered eventfd is
    // told. It is the one that wake() writes to: so the other loop watches one descriptor, and wakes come without a detour.
    // The kernel writes to it only between prepare_to_sleep() and the next look: a busy loop does not pay.
    [[nodiscard]] bool be_watched() noexcept override {
        if (bound_ || io_uring_register_eventfd(&ring_, wake_fd_) != 0)
            return false;
        (void)io_uring_cq_eventfd_toggle(&ring_, false);
        watched_ = true;
        return true;
    }
    [[nodiscard]] int watchable() const noexcept override { return wake_fd_; }
    [[nodiscard]] bool prepare_to_sleep() noexcept override {
        if (std::exchange(announcing_, false)) {
            (void)io_uring_cq_eventfd_toggle(&ring_, false);
            take_wakes();
        }
        collect_before_wait();
        if (delivered_)
            return true;
        (void)io_uring_cq_eventfd_toggle(&ring_, true);
        announcing_ = true;
        // seq_cst, with the kernel's own order (it sets its flag, then looks at ours): either it sees that it shall write, or we
        // see what it has.
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        return signalled();
    }

    void wait(time_point deadline) noexcept override {
        punted_.hurry(deadline, calls_);
        delivered_ = false;
        reap();
        drain_backlog();
        if (delivered_)
            return;
        // What the kernel does not take now (it is short of memory, or its completion queue is full) it does not ask for later.
        const auto soon = [&] { return std::min(deadline, calls_.now() + std::chrono::milliseconds(1)); };
        // One call submits and waits; it does not wait if it takes less than everything.
        const unsigned queued = publish_entries();
        const int taken = enter_and_wait(queued, backlog_empty() ? deadline : soon());
        reap();
        drain_backlog();
        if (!delivered_ && taken < static_cast<int>(queued) && io_uring_sq_ready(&ring_) != 0) {
            (void)enter_and_wait(0, soon());
            reap();
            drain_backlog();
        }
    }

    void wake() noexcept override {
        const std::uint64_t one = 1;
        const int saved = errno; // may run in a signal handler
        (void)!::write(wake_fd_, &one, sizeof one);
        errno = saved;
    }

    void abandon() noexcept override {
        // After fork the ring's memory is shared with the parent: no index may move. The numbers are ours to close.
        abandoned_ = true;
        if (!surrendered_)
            ::close(ring_.ring_fd);
        ::close(wake_fd_);
    }

    [[nodiscard]] std::string_view name() const noexcept override { return "uring"; }
    [[nodiscard]] std::size_t pending() const noexcept override { return held_ - (waker_.armed ? 1 : 0); }

private:
    struct waker : poll_source {};

    /// Targets are objects: none has this address.
    static constexpr std::uint64_t removal_answer = 1;

    static std::uint64_t tag(driver_target& target) noexcept {
        return reinterpret_cast<std::uint64_t>(&target);
    }

    /// By the system call: liburing 2.3 declares a function for it and does not export it.
    [[nodiscard]] bool enable() noexcept {
        return ::syscall(SYS_io_uring_register, ring_.ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr, 0) == 0;
    }

    /// Only a call can tell whether something has come. Not for the waker alone: the loop sees for itself what was posted, and a
    /// wake is needed only by who sleeps.
    [[nodiscard]] bool must_ask() const noexcept { return !reports_taskrun_ && pending() != 0; }

    void take_wakes() noexcept {
        std::uint64_t count = 0;
        if (::read(wake_fd_, &count, sizeof count) > 0)
            counters.wakes.add();
    }

    [[nodiscard]] unsigned flags() const noexcept {
        return __atomic_load_n(ring_.sq.kflags, __ATOMIC_RELAXED);
    }

    [[nodiscard]] bool backlog_empty() const noexcept {
        return backlog_.empty() && backlog_transfers_.empty() && removals_.empty() && cancels_.empty() &&
               dropped_.empty() && dropped_transfers_.empty() && answers_.empty();
    }

    /// A free entry, submitting what is queued if there is none. nullptr: the kernel takes nothing now (EBUSY, EAGAIN).
    [[nodiscard]] io_uring_sqe* next_entry() noexcept {
        if (!bound_ || made_under_ != fork_generation())
            return nullptr; // in a child after fork the entries are the parent's
        io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
        if (sqe == nullptr) {
            submit();
            sqe = io_uring_get_sqe(&ring_);
        }
        return sqe;
    }

    void finish(io_uring_sqe& sqe, driver_target* target) noexcept {
        sqe.user_data = reinterpret_cast<std::uint64_t>(target);
        counters.submissions.add();
        if (target != nullptr)
            hand_over(target);
    }

    void prepare_poll(io_uring_sqe& sqe, poll_source& source) noexcept {
        io_uring_prep_poll_add(&sqe, source.fd, static_cast<unsigned>(source.events));
        if (multishot_ && !source.once)
            sqe.len |= IORING_POLL_ADD_MULTI;
        finish(sqe, &source);
    }

    /// Whether a kernel that does not wait for O_NONBLOCK files would answer EAGAIN.
    [[nodiscard]] bool would_answer(const transfer& work) noexcept {
        file_info info;
        return calls_.inspect(work.fd, info) == 0 && (info.flags & O_NONBLOCK) != 0 &&
               calls_.ready(work.fd, work.write ? POLLOUT : POLLIN) == 0;
    }

    /// The ring's own writes have a flag against SIGPIPE too, but not on every kernel, and not for every file.
    [[nodiscard]] bool may_raise(const transfer& work) const noexcept {
        return work.write && !work.is_file && (work.plain || !calls_.has(feature::nosignal));
    }

    /// What a write raises, it raises in the call that submits it or in the one that lets it go on.
    template <class Call>
    int without_sigpipe(Call call) noexcept {
        if (raising_ == 0)
            return call();
        sigpipe_guard guard;
        const int outcome = call();
        (void)guard.finish(-EPIPE);
        return outcome;
    }

    void prepare_removal(io_uring_sqe& sqe, poll_source& source) noexcept {
        io_uring_prep_poll_remove(&sqe, tag(source));
        finish(sqe, nullptr);
        sqe.user_data = removal_answer;
        removing_.push_back(source);
    }
    /// A removal that meets an event on its way is refused (EALREADY). That event need not be reported: where it turns out
    /// that nothing has happened to the source (a POSIX queue wakes its pollers at every operation) the poll just goes on.
    void remove_again(poll_source& source) noexcept {
        static_cast<list_node&>(source).unlink();
        removals_.push_back(source);
        asked_again_ = true;
    }

    void start_here(transfer& work) noexcept {
        io_uring_sqe* sqe = next_entry();
        if (sqe == nullptr)
            backlog_transfers_.push_back(work);
        else
            prepare_transfer(*sqe, work);
    }

    void prepare_transfer(io_uring_sqe& sqe, transfer& work) noexcept {
        // Offset -1: at the position, as read and write; the only one that streams have.
        const auto size = static_cast<unsigned>(work.size < (1u << 30) ? work.size : (1u << 30));
        if (work.write) {
            io_uring_prep_write(&sqe, work.fd, work.data, size, static_cast<std::uint64_t>(-1));
            if (may_raise(work))
                ++raising_;
            else if (!work.plain && calls_.has(feature::nosignal))
                sqe.rw_flags = 0x100; // RWF_NOSIGNAL
        } else {
            io_uring_prep_read(&sqe, work.fd, work.data, size, static_cast<std::uint64_t>(-1));
        }
        ++transfers_;
        finish(sqe, &work);
    }

    [[nodiscard]] int failure() const noexcept override { return failure_; }

    [[nodiscard]] bool surrender() noexcept override {
        reap();
        deliver_dropped();
        std::size_t begun = transfers_;
        const unsigned mask = *ring_.sq.kring_mask;
        for (unsigned at = __atomic_load_n(ring_.sq.khead, __ATOMIC_ACQUIRE); at != ring_.sq.sqe_tail; ++at) {
            const auto opcode = ring_.sq.sqes[at & mask].opcode;
            begun -= opcode == IORING_OP_READ || opcode == IORING_OP_WRITE; // not taken yet
        }
        if (begun != 0 || !punted_.empty())
            return false;
        for (list<poll_source>* waiting : {&backlog_, &removals_, &removing_}) {
            while (!waiting->empty())
                waiting->pop_front();
        }
        for (list<transfer>* waiting : {&backlog_transfers_, &cancels_}) {
            while (!waiting->empty())
                waiting->pop_front();
        }
        hand_over(&earlier_rings);
        io_uring_queue_exit(&ring_); // and the kernel forgets what was armed
        surrendered_ = true;
        waker_.armed = false;
        held_ = transfers_ = raising_ = 0;
        return true;
    }

    void note(int outcome) noexcept {
        if (outcome == -EPERM || outcome == -EACCES || outcome == -ENOSYS || outcome == -EBADF)
            failure_ = -outcome;
    }

    /// Entry i of the ring is number i in the kernel's array of them, for good: liburing's versions differ in when they write that.
    void number_entries() noexcept {
        for (unsigned i = 0; i < ring_.sq.ring_entries; ++i)
            ring_.sq.array[i] = i;
    }

    /// Lets the kernel see the entries that stand in the ring. Returns: how many it has not taken.
    unsigned publish_entries() noexcept {
        io_uring_sq& queue = ring_.sq;
        queue.sqe_head = queue.sqe_tail;
        __atomic_store_n(queue.ktail, queue.sqe_tail,
                         __ATOMIC_RELEASE); // the kernel reads the entries after it
        return queue.sqe_tail - __atomic_load_n(queue.khead, __ATOMIC_ACQUIRE);
    }

    /// Returns: entries taken, or a negative errno value. EINTR, ETIME, EAGAIN and EBUSY all mean the same here: look at what is
    /// there, and let the loop decide.
    int enter_and_wait(unsigned queued, time_point deadline) noexcept {
        __kernel_timespec relative{};
        io_uring_getevents_arg argument{};
        argument.sigmask_sz = _NSIG / 8;
        unsigned flags = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG;
        if ((ring_.features & feature_no_iowait) != 0)
            flags |= enter_no_iowait; // waiting for others is not waiting for a disk
        if (deadline != never) {
            const auto now = calls_.now();
            const auto left =
                deadline > now ? std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - now).count()
                               : 0;
            relative.tv_sec = left / 1'000'000'000;
            relative.tv_nsec = left % 1'000'000'000;
            argument.ts = reinterpret_cast<std::uint64_t>(&relative);
        }
        counters.enters.add();
        const int outcome = without_sigpipe([&] {
            return io_uring_enter2(static_cast<unsigned>(ring_.ring_fd), queued, 1, flags,
                                   reinterpret_cast<sigset_t*>(&argument), sizeof argument);
        });
        note(outcome);
        return outcome;
    }

    void submit() noexcept {
        counters.enters.add();
        // A short submit leaves the rest in the queue for the next time; EINTR, EAGAIN and EBUSY leave everything.
        note(without_sigpipe([this] { return io_uring_submit_and_get_events(&ring_); }));
    }

    void collect_before_wait() noexcept {
        delivered_ = false;
        reap();
        drain_backlog();
        for (unsigned left = io_uring_sq_ready(&ring_); !delivered_ && left != 0;) {
            submit();
            reap();
            const unsigned still = io_uring_sq_ready(&ring_);
            left = still < left ? still : 0; // as long as it takes some
        }
    }

    void reap() noexcept {
        io_uring_cqe* batch[32];
        // Only what is there: peeking at an empty queue would enter the kernel uncounted.
        while (io_uring_cq_ready(&ring_) != 0) {
            const unsigned n = io_uring_peek_batch_cqe(&ring_, batch, 32);
            delivered_ = true;
            for (unsigned i = 0; i < n; ++i) {
                if (batch[i]->user_data == removal_answer) {
                    // Which one was refused it does not say; a removal too many finds nothing and does no harm.
                    while (batch[i]->res == -EALREADY && !removing_.empty())
                        remove_again(removing_.front());
                    continue;
                }
                // Entries are given back after the batch. A target may submit meanwhile; what then finds no room the
                // kernel keeps for later.
                // NOLINTNEXTLINE(performance-no-int-to-ptr)
                auto* const target = reinterpret_cast<driver_target*>(batch[i]->user_data);
                deliver(target, batch[i]->res, batch[i]->flags);
            }
            io_uring_cq_advance(&ring_, n);
            counters.completions.add(n);
        }
    }

    void deliver(driver_target* target, int result, unsigned cqe_flags) noexcept {
        if (target == nullptr)
            return; // the answer to a cancel: its target answers for itself
        take_over(target);
        const bool more = (cqe_flags & IORING_CQE_F_MORE) != 0;
        if (target == &waker_) {
            // A poll that goes on reports every write, whatever the count says: reading it would be a system call for each wake. Who
            // arms it again, or lets somebody else watch, needs it to be 0.
            if (more && !watched_)
                counters.wakes.add();
            else
                take_wakes();
            if (!more) {
                --held_;
                if (result == -EINVAL)
                    multishot_ = false;
                arm(waker_);
            }
            return;
        }
        if (!more) {
            --held_;
            if (target->is_poll) {
                auto& source = static_cast<poll_source&>(*target);
                static_cast<list_node&>(source).unlink(); // nothing is left to be removed
                if (result == -EINVAL && multishot_) {
                    // A kernel without multishot: one downgrade, and the same again as one shot.
                    multishot_ = false;
                    arm(source);
                    return;
                }
                if (result == -EINVAL && !source.removing) {
                    arm(source); // refused before the downgrade was known
                    return;
                }
            } else {
                auto& work = static_cast<transfer&>(*target);
                --transfers_;
                if (may_raise(work)) {
                    --raising_;
                } else if (work.write && !work.plain && !work.cancelling &&
                           (result == -EOPNOTSUPP || result == -EINVAL)) {
                    work.plain = true; // this file knows no flags; others do
                    start(work);
                    return;
                }
            }
        }
        if (more && target->is_poll && static_cast<poll_source*>(target)->removing)
            remove_again(*static_cast<poll_source*>(target));
        target->on_event(*target, result, more);
    }

    void deliver_dropped() noexcept {
        punted_.deliver([this](transfer& work, long result) {
            if (result == -ENOSYS && !work.cancelling) {
                start_here(work); // a system without threads
                return;
            }
            --held_;
            delivered_ = true;
            work.on_event(work, result == -ENOSYS ? -ECANCELED : result, false);
        });
        // What was taken back before it was submitted: its last report, delivered here because nothing calls back from disarm().
        while (!dropped_.empty()) {
            poll_source& source = dropped_.pop_front();
            --held_;
            delivered_ = true;
            source.on_event(source, -ECANCELED, false);
        }
        while (!dropped_transfers_.empty()) {
            transfer& work = dropped_transfers_.pop_front();
            --held_;
            delivered_ = true;
            work.on_event(work, -ECANCELED, false);
        }
        // Only what stands there now: who is answered may start again.
        list<transfer> due;
        while (!answers_.empty())
            due.push_back(answers_.pop_front());
        while (!due.empty()) {
            transfer& work = due.pop_front();
            --held_;
            delivered_ = true;
            work.on_event(work, -EAGAIN, false);
        }
    }

    void drain_backlog() noexcept {
        deliver_dropped();
        if (backlog_empty() || !bound_)
            return;
        while (!backlog_empty()) {
            io_uring_sqe* sqe = next_entry();
            if (sqe == nullptr)
                return;
            // Order within a kind is kept; removals first, they make room.
            if (!removals_.empty()) {
                prepare_removal(*sqe, removals_.pop_front());
            } else if (!cancels_.empty()) {
                io_uring_prep_cancel(sqe, &cancels_.pop_front(), 0);
                finish(*sqe, nullptr);
            } else if (!backlog_.empty()) {
                prepare_poll(*sqe, backlog_.pop_front());
            } else {
                prepare_transfer(*sqe, backlog_transfers_.pop_front());
            }
        }
    }

public:
    bool reports_taskrun_ =
        true; ///< false: completions may wait in the kernel without a sign, enter each time

private:
    system& calls_;
    io_uring ring_;
    int wake_fd_;
    unsigned made_under_ = fork_generation();
    waker waker_;
    bool bound_ = false;
    bool multishot_ = true;
    bool abandoned_ = false;
    bool surrendered_ = false;
    bool watched_ = false;    // another loop waits on wake_fd_
    bool announcing_ = false; // the kernel writes to wake_fd_ when something comes
    int failure_ = 0;
    bool delivered_ = false;
    bool asked_again_ = false;
    std::size_t held_ = 0;
    std::size_t raising_ = 0;   // writes in the ring or the kernel's hands that may raise SIGPIPE
    std::size_t transfers_ = 0; // of these, the ones that stand in the ring or are in the kernel's hands
    list<poll_source> backlog_;
    list<poll_source> removals_; // to be asked for
    list<poll_source> removing_; // asked for, the source's last report is still to come
    list<transfer> backlog_transfers_;
    list<transfer> cancels_;
    list<poll_source> dropped_;
    list<transfer> dropped_transfers_;
    list<transfer> answers_;
    punted_transfers punted_{
        *this}; // writes that may raise SIGPIPE, on rings where that is nowhere else safe
};

unsigned rounded_up(unsigned n) noexcept {
    unsigned power = 1;
    while (power < n && power < entries_max)
        power *= 2;
    return power;
}

} // namespace

int make_uring_driver(system& calls, const uring_options& options, std::unique_ptr<driver>& made) {
    // From the best to the plainest; EINVAL means that the kernel does not know a flag.
    struct level {
        unsigned flags;
        bool reports_taskrun;
    };
    const unsigned disabled = IORING_SETUP_R_DISABLED;
    level levels[4];
    int count = 0;
    if (calls.has(feature::defer_taskrun)) {
        if (calls.has(feature::taskrun_flag))
            levels[count++] = {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                                   IORING_SETUP_TASKRUN_FLAG | disabled,
                               true};
        levels[count++] = {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | disabled, false};
    }
    if (calls.has(feature::taskrun_flag))
        levels[count++] = {IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG, true};
    levels[count++] = {0, true}; // task work interrupts the thread: completions appear by themselves

    const standard_numbers not_ours;
    const int wake_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd < 0)
        return errno;
    int error = EINVAL;
    unsigned entries = rounded_up(options.entries == 0 ? 1 : options.entries);
    for (int at = 0; at < count;) {
        io_uring ring{};
        io_uring_params parameters{};
        parameters.flags = levels[at].flags;
        if (options.completion_entries != 0) {
            parameters.flags |= IORING_SETUP_CQSIZE;
            parameters.cq_entries =
                rounded_up(options.completion_entries < entries ? entries : options.completion_entries);
        }
        // liburing answers with a negative errno value and leaves errno alone.
        const int outcome = io_uring_queue_init_params(entries, &ring, &parameters);
        take_over(&earlier_rings);
        if (outcome == 0) {
            if ((ring.features & IORING_FEAT_EXT_ARG) == 0) {
                io_uring_queue_exit(&ring);
                error = ENOSYS; // before 5.11: no timed wait
                break;
            }
            auto* created = new (std::nothrow) uring_driver(calls, ring, wake_fd);
            if (created == nullptr) {
                io_uring_queue_exit(&ring);
                error = ENOMEM;
                break;
            }
            created->reports_taskrun_ = levels[at].reports_taskrun;
            made.reset(created);
            return 0;
        }
        error = -outcome;
        if (error == ENOMEM && entries > entries_min)
            entries /= 2; // locked memory is counted per user on old kernels
        else if (error == EINVAL)
            ++at;
        else
            break;
    }
    ::close(wake_fd);
    return error;
}

} // namespace detail
NOWAIT_END_NAMESPACE
