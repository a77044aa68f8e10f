// The loop of one runtime: ready queue, trampoline, budget, timers, inbox, driver.
//
// A loop is bound to the thread that first runs it. Everything here is for that thread unless it says "any thread". What is
// inlined into awaiting code stands first; the rest is in runtime/loop.cpp.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/inbox.hpp>
#include <nowait/detail/list.hpp>
#include <nowait/detail/operation.hpp>
#include <nowait/detail/sync.hpp>
#include <nowait/detail/system.hpp>
#include <nowait/detail/timer.hpp>
#include <nowait/stats.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

class descriptor;
class driver;
struct driver_counters;
class frame_pool;
class worker_pool_state;
struct direction;
struct loop_parts;
struct promise_base;

struct operation_counters {
    counter inline_completions, armed, punted, nowait_misses, predictor_skips, budget_yields;
};

/// What other threads hold of a loop: it stays valid when the loop has gone, and then refuses.
class NOWAIT_API mailbox {
public:
    mailbox(driver& wakes, loop& of) noexcept;

    /// Any thread. False: the loop is gone, the node is still the caller's. Otherwise the loop runs the node.
    [[nodiscard]] bool post(ready_node& node) noexcept;
    /// Any thread, signal handlers too: asks the loop to stop everything it runs.
    void request_stop() noexcept;
    /// Another driver does the waiting from now on; the old one is not woken any more when this returns.
    void rewire(driver& wakes) noexcept;

    /// A waiter of this loop has been chosen by another thread, under the lock of the object that it waits on, and will be
    /// posted. Until arrived() the loop's destructor leaves the waiter's frame alone.
    void expect() noexcept { in_transit_.fetch_add(1, std::memory_order_relaxed); }
    void arrived() noexcept {
        in_transit_.fetch_sub(1, std::memory_order_release);
    } // pairs with the destructor's acquire

    /// Whose it is: to compare addresses with. The loop may have gone.
    [[nodiscard]] loop* of() const noexcept { return of_; }

    void acquire() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept {
        // acq_rel: the last one sees everything that the others did before it deletes.
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            delete this;
    }

private:
    friend class loop;
    friend class loop_stepper;
    ~mailbox() = default;
    void close() noexcept;
    void await_wakers() const noexcept;

    inbox<real_sync> inbox_;
    real_sync::atomic<bool> stop_requested_{false};
    real_sync::atomic<driver*> driver_;
    // Users of driver_ at this moment; close() waits until there is none. Signal handlers cannot take a lock, so it is a count.
    real_sync::atomic<unsigned> waking_{0};
    real_sync::atomic<unsigned> in_transit_{0};
    real_sync::atomic<int> poster_cpu_{-1}; // where the last poster ran
    real_sync::atomic<unsigned> references_{1};
    loop* const of_;
    const unsigned fork_stamp_; // in a child after fork the loop is the parent's: not to be reached
};

/// A function that another thread has posted: told from other nodes by `run`, because it must not be lost with them.
struct posted_base : ready_node {
    void (*invoke)(posted_base&) noexcept = nullptr; ///< runs the function and releases the node
};
NOWAIT_API void run_posted(ready_node& node) noexcept;

/// A loop of somebody else's that runs ours from inside: it calls pass() when something may be there and rest() when nothing
/// is ready, and then waits for what rest() named.
class NOWAIT_API loop_host {
public:
    /// Something has become ready, or is to be waited for, by a call from outside a pass: a pass is wanted soon. On the
    /// loop's thread; called for each such thing, so it has to be cheap when it knows already.
    virtual void loop_stirs() noexcept = 0;
    /// What run_until_idle() is for a loop that has a host.
    virtual void run_hosted(clock::time_point deadline) = 0;

protected:
    ~loop_host() = default;
};

/// Whoever has operations whose memory is no frame's and no frame's member. While there are some it stands in the loop's list, and
/// the loop's destructor takes them away when it takes the frames.
struct outside_holder : list_node {
    /// Destroys one of them. Called, outside the list, until it has not put itself in again.
    void (*abandon_one)(outside_holder&) noexcept = nullptr;
};

/// An operation that waits for a worker. While the work runs, it may refer to the frames.
struct work_in_pool : list_node {
    /// The loop is being destroyed. False: the work still runs at the deadline.
    bool (*outwait)(work_in_pool&, clock::time_point deadline) noexcept = nullptr;
};

class NOWAIT_API loop {
public:
    static constexpr int resumptions_per_look = 64;
    static constexpr int transfers_per_turn = 1024;

    loop(system& calls, std::unique_ptr<driver> waits, int budget_per_turn);
    ~loop();
    loop(const loop&) = delete;
    loop& operator=(const loop&) = delete;

    // --- inlined into operations ---------------------------------------------------------------------------------------

    /// Units left in this turn: an operation that finishes inline takes one, and one more for each 4 KiB it moved.
    int budget = 0;
    /// The trampoline: what is resumed next, when the present coroutine has suspended. One place calls resume().
    promise_base* next = nullptr;
    /// The frame that was resumed has reached its final suspension: the loop destroys it, then goes on with its parent.
    bool finished = false;

    std::array<operation_counters, operation_kinds> counters;

    void charge(std::size_t bytes) noexcept { budget -= 1 + static_cast<int>(bytes >> 12); }

    operation_counters& counters_of(operation_kind kind) noexcept {
        return counters[static_cast<std::size_t>(kind)];
    }

    /// A number below `n`, another one each time: where a fair choice begins. Of this loop alone, so a run can be repeated.
    [[nodiscard]] std::size_t choose(std::size_t n) noexcept {
        choice_ = choice_ * 6364136223846793005u + 1442695040888963407u;
        return static_cast<std::size_t>(choice_ >> 33) % n;
    }

    /// To the tail of the ready queue.
    void post(ready_node& node) noexcept {
        node.next_ready = nullptr;
        *ready_tail_ = &node;
        ready_tail_ = &node.next_ready;
        if (outside_) [[unlikely]]
            host_->loop_stirs();
    }

    /// When this turn began to look at the clock: read at most once a turn.
    [[nodiscard]] clock::time_point now() noexcept {
        if (!clock_read_)
            read_clock();
        return now_;
    }

    /// Any thread: to the ready queue of the operation's own loop. Across loops it travels when the poster's turn ends, so
    /// that a turn that wakes many pays for few wake-ups. Across threads, expect() comes before, under the object's lock.
    static void send(operation_base& chosen) noexcept;
    /// What send() has collected goes out now. For code that computes on for long after it has woken somebody.
    void flush_outbox() noexcept;

    void add_timer(timer_node& node) noexcept;
    void remove_timer(timer_node& node) noexcept;

    // --- for descriptors and tasks -----------------------------------------------------------------------------------

    [[nodiscard]] driver& waits() noexcept { return *driver_; }
    [[nodiscard]] system& calls() noexcept { return *system_; }
    [[nodiscard]] mailbox& remote() noexcept { return *mailbox_; }
    [[nodiscard]] inplace_stop_source& root_stop() noexcept { return root_stop_; }
    [[nodiscard]] frame_pool& frames() noexcept { return *frames_; }

    /// A direction whose first waiter has parked without proof that nothing is there: it is tried before the loop sleeps,
    /// and after `unproved_passes` looks at the outside in any case.
    void watch_unproved(direction& waiting) noexcept;

    /// Started frames without a parent that awaits them directly: roots of the dump, and of destruction.
    list<promise_base> roots;

    /// The block of a descriptor number on this loop, or nullptr.
    [[nodiscard]] descriptor* find_descriptor(int fd) const noexcept;
    void add_descriptor(descriptor& block);
    void remove_descriptor(descriptor& block) noexcept;
    /// Closing that waits for the driver to let go counts as work: run() does not return before.
    int closing = 0;

    // --- life ------------------------------------------------------------------------------------------------------------

    /// Binds to the calling thread at first use. Returns 0, or EPERM on another thread, in a child after fork, or inside itself.
    [[nodiscard]] int enter() noexcept;
    void leave() noexcept;
    /// Runs until `live` (frames without parent) and `closing` are 0, or the deadline. Between enter() and leave(). Throws what a
    /// host's own work throws, otherwise nothing.
    void run_until_idle(clock::time_point deadline);
    /// For the run in progress: it ends at `when` at the latest.
    void end_run_by(clock::time_point when) noexcept {
        if (when < run_deadline_)
            run_deadline_ = when;
    }
    /// Frames without a parent that have not ended.
    std::size_t live = 0;
    /// Frames that belong to this loop's tasks and are on another one (see resume_on.hpp).
    std::size_t away = 0;

    [[nodiscard]] bool on_own_thread() const noexcept;
    [[nodiscard]] bool forked() const noexcept;
    /// In a child, when a task of this loop has forked: what is ready is the parent's to run, not once more here.
    void cut_off() noexcept;
    [[nodiscard]] bool running() const noexcept { return running_; }
    [[nodiscard]] bool stopped() const noexcept { return root_stop_.stop_requested(); }
    void stop_now() noexcept { root_stop_.request_stop(); }

    // --- as the guest of another loop ------------------------------------------------------------------------------------

    /// From now on this loop waits nowhere by itself: `host` runs it. Null: on its own again. Not inside a pass. Returns 0, or
    /// ENOTSUP if the driver has no descriptor that tells when it wants to be looked at.
    [[nodiscard]] int be_hosted(loop_host* host) noexcept;
    /// Looks outside and runs what is ready, up to 64 resumptions; never waits. True: there is more to run. The driver, and with
    /// it the descriptor to be watched, may be another one afterwards. Between enter() and leave().
    [[nodiscard]] bool pass() noexcept;
    /// For a host that has nothing ready: submits what is queued and gets ready to sleep. True: the loop sleeps; the next pass
    /// is due when the driver's watchable() descriptor is readable, at `until`, or at loop_stirs(). Other threads know that they
    /// have to wake it. False: something has come, pass() again.
    [[nodiscard]] bool rest(clock::time_point& until) noexcept;
    /// No further node runs in this pass.
    void break_pass() noexcept { turns_left_ = 0; }
    /// True while a host runs something else than a pass.
    [[nodiscard]] bool outside() const noexcept { return outside_; }
    /// It is being destroyed: what arrives now will not be run here.
    [[nodiscard]] bool ending() const noexcept { return ending_; }
    /// Operations that wait and are nobody's frame.
    list<outside_holder>& outside_holders() noexcept;

    [[nodiscard]] runtime_stats snapshot() const noexcept;

    /// The loop that runs on this thread, or nullptr. Never inlined: compilers keep the address of a thread-local over a
    /// suspension, and the coroutine may be elsewhere by then.
    [[nodiscard]] static loop* current() noexcept;

    /// How long the destructor waits for the driver to let go of memory that it works on.
    std::chrono::nanoseconds destructor_wait = std::chrono::seconds(5);
    /// How long a loop that is about to sleep looks first, if whoever posted last ran on another CPU.
    std::chrono::nanoseconds spin_patience = std::chrono::microseconds(50);
    /// Who runs what would block this loop; found when it is first needed (see pool_of). The loop holds a reference.
    worker_pool_state* pool = nullptr;
    bool owns_pool = false;
    list<work_in_pool> in_pool;
    /// Why this driver; and 1 if it is not the one that was preferred.
    std::string reason;
    counter fallbacks;
    /// Makes the driver that takes over if the present one is refused in mid-life. Null: a refusal ends the run.
    int (*substitute)(system&, std::unique_ptr<driver>&) = nullptr;
    /// Called with what a detached task threw, before std::terminate.
    void (*unhandled)(std::exception_ptr) = nullptr;

private:
    friend class mailbox;
    friend class loop_stepper;
    friend class loop_visit;

    void read_clock() noexcept;
    void take_inbox() noexcept;
    void run_ready() noexcept;
    void run_turn(ready_node& node) noexcept;
    void run_transfers(promise_base* frame) noexcept;
    [[nodiscard]] bool pass_is_long(clock::time_point& began) noexcept;
    void expire_timers() noexcept;
    void prove(bool about_to_sleep) noexcept;
    void look_outside() noexcept;
    [[nodiscard]] bool may_sleep(clock::time_point& deadline) noexcept;
    void sleep(clock::time_point deadline) noexcept;
    [[nodiscard]] bool spin() noexcept;
    void run_posted_functions() noexcept;
    void call_frames_home(bool foreign) noexcept;
    void destroy_frames() noexcept;
    [[nodiscard]] bool replace_driver(const char* call, int error) noexcept;

    ready_node* ready_head_ = nullptr;
    ready_node** ready_tail_ = &ready_head_;
    ready_node* outbox_ = nullptr; // newest first, linked by next_ready
    clock::time_point now_{};
    clock::time_point run_deadline_ = clock::time_point::max();
    bool clock_read_ = false;
    bool ending_ = false;
    bool outside_ = false; // there is a host, and it does not run a pass now
    bool running_ = false;
    bool bound_ = false;
    int turns_left_ = 0; // of the pass, until the clock is looked at; from 0 on it is broken off
    int stride_ = resumptions_per_look; // turns between two looks at the clock
    clock::time_point last_look_{};     // at the clock, in a pass; none: there was a sleep
    int budget_per_turn_;
    std::uint64_t choice_ = 0;
    unsigned fork_generation_ = 0;
    unsigned spins_to_skip_ = 0; // sleeps that go without a spin, after spins that found nothing
    unsigned spin_backoff_ = 0;
    unsigned long thread_ = 0;

    system* system_;
    std::unique_ptr<driver> driver_;
    std::unique_ptr<driver> retired_; // refused in mid-life: readers of its counters may still be about
    // The present driver's. Release, paired with the acquire of snapshot(), which any thread may call.
    real_sync::atomic<const driver_counters*> counted_;
    mailbox* mailbox_;
    frame_pool* frames_;
    frame_pool* outer_frames_ = nullptr;
    loop* outer_loop_ = nullptr;
    loop_host* host_ = nullptr;
    inplace_stop_source root_stop_;
    std::unique_ptr<loop_parts> parts_;
    counter turns_, passes_, remote_posts_;
};

/// Drives a loop from outside, a step at a time, for a scheduler that has several of them on one thread. The steps are those of
/// run_until_idle(), in an order of the caller's choice. Each enters the loop and leaves it again.
class NOWAIT_API loop_stepper {
public:
    explicit loop_stepper(loop& of) noexcept : loop_(of) {}

    /// How many nodes stand in the ready queue; at most `limit` are counted.
    [[nodiscard]] std::size_t ready(std::size_t limit) const noexcept;
    /// Posted by other loops or threads and not taken yet. Not while it is parked.
    [[nodiscard]] bool posted() const noexcept { return loop_.mailbox_->inbox_.maybe_filled(); }
    /// No frame is left, and nothing of it is under way.
    [[nodiscard]] bool idle() const noexcept {
        return loop_.live == 0 && loop_.closing == 0 && loop_.ready_head_ == nullptr;
    }

    /// One turn, of the `which`-th ready node. Posted functions keep their order: of those, it is the first.
    void turn(std::size_t which) noexcept;
    /// A look at the outside: inbox, driver, timers.
    void look() noexcept;
    /// Whatever a loop does before it sleeps. True: it would sleep now, and `until` says how long.
    [[nodiscard]] bool may_sleep(clock::time_point& until) noexcept;

private:
    loop& loop_;
};

/// Code of a host, on the loop's thread, that starts or cancels operations outside a pass: for its scope the loop is the
/// current one and has the budget of a turn.
class NOWAIT_API loop_visit {
public:
    explicit loop_visit(loop& on) noexcept {
        if (on.outside()) // in a pass the turn has its own budget
            enter(on);
    }
    ~loop_visit() {
        if (entered_)
            leave();
    }
    loop_visit(const loop_visit&) = delete;
    loop_visit& operator=(const loop_visit&) = delete;

private:
    void enter(loop& on) noexcept;
    void leave() noexcept;

    loop* outer_loop_ = nullptr;
    frame_pool* outer_frames_ = nullptr;
    bool entered_ = false;
};

inline void operation_base::complete_later() noexcept {
    stop_listening();
    run = [](ready_node& node) noexcept {
        auto& self = static_cast<operation_base&>(node);
        self.complete_(self);
    };
    home_->post(*this);
}

} // namespace detail
NOWAIT_END_NAMESPACE
