#include "fork_watch.hpp"
#include "refusal.hpp"
#include "timer_wheel.hpp"

#include <nowait/detail/descriptor.hpp>
#include <nowait/detail/driver.hpp>
#include <nowait/detail/frame_pool.hpp>
#include <nowait/detail/loop.hpp>
#include <nowait/detail/promise.hpp>
#include <nowait/detail/worker_pool_use.hpp>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sched.h>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

driver::~driver() = default;

namespace {

thread_local loop* current_loop = nullptr;

unsigned fork_count = 0; // in this process's line of descent since watch_forks()

} // namespace

void watch_forks() noexcept {
    static const bool watching = [] {
        ::pthread_atfork(nullptr, nullptr, [] {
            ++fork_count;
            descriptor::forget_lock();
            if (current_loop != nullptr)
                current_loop->cut_off();
        });
        return true;
    }();
    (void)watching;
}

unsigned fork_generation() noexcept {
    return fork_count;
}

// --- mailbox -----------------------------------------------------------------------------------------------------------

mailbox::mailbox(driver& wakes, loop& of) noexcept
    : driver_(&wakes), of_(&of), fork_stamp_((watch_forks(), fork_count)) {}

bool mailbox::post(ready_node& node) noexcept {
    if (fork_stamp_ != fork_count) [[unlikely]]
        return false;
    // A hint for spin(), read by nobody else; written when it changes, for others read this cache line.
    if (const int cpu = ::sched_getcpu(); poster_cpu_.load(std::memory_order_relaxed) != cpu)
        poster_cpu_.store(cpu, std::memory_order_relaxed);
    switch (inbox_.push(node)) {
    case push_outcome::closed:
        return false;
    case push_outcome::delivered:
        return true;
    case push_outcome::wake_needed:
        break;
    }
    waking_.fetch_add(
        1); // seq_cst, with the exchange in close(): either it sees our count, or we see its null
    if (driver* d = driver_.load())
        d->wake();
    waking_.fetch_sub(1);
    return true;
}

void mailbox::request_stop() noexcept {
    if (fork_stamp_ != fork_count)
        return;
    stop_requested_.store(true);
    waking_.fetch_add(1);
    if (driver* d = driver_.load())
        d->wake();
    waking_.fetch_sub(1);
}

void mailbox::rewire(driver& wakes) noexcept {
    driver_.exchange(&wakes);
    await_wakers();
}

void mailbox::close() noexcept {
    driver_.exchange(nullptr);
    await_wakers();
}

void mailbox::await_wakers() const noexcept {
    if (fork_stamp_ != fork_count)
        return; // whoever was waking it stayed behind
    // A waker holds the count for one write to an eventfd.
    while (waking_.load() != 0) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
}

// --- sending across loops ------------------------------------------------------------------------------------------------

namespace {

void deliver(operation_base& chosen) noexcept {
    mailbox& to = chosen.home().remote();
    // Refused: the loop is being destroyed, and waits for arrived() before it takes the frame of this operation away.
    (void)to.post(chosen);
    to.arrived(); // the last touch
}

} // namespace

void loop::send(operation_base& chosen) noexcept {
    loop* const here = current_loop;
    if (here == &chosen.home()) {
        here->post(chosen);
    } else if (here != nullptr && !here->outside_) {
        chosen.next_ready = here->outbox_;
        here->outbox_ = &chosen;
    } else {
        deliver(chosen);
    }
}

void loop::flush_outbox() noexcept {
    ready_node* newest = std::exchange(outbox_, nullptr);
    ready_node* oldest = nullptr;
    while (newest != nullptr) {
        ready_node* const older = newest->next_ready;
        newest->next_ready = oldest;
        oldest = newest;
        newest = older;
    }
    while (oldest != nullptr) {
        ready_node* const following = oldest->next_ready;
        deliver(static_cast<operation_base&>(*oldest));
        oldest = following;
    }
}

// --- loop ----------------------------------------------------------------------------------------------------------------

struct loop_parts {
    timer_wheel timers;
    list<outside_holder> outside_holders;
    list<direction> unproved;
    std::vector<descriptor*> descriptors; // by number
};

loop::loop(system& calls, std::unique_ptr<driver> waits, int budget_per_turn)
    : budget_per_turn_(budget_per_turn), system_(&calls), driver_(std::move(waits)),
      counted_(&driver_->counters), mailbox_(new mailbox(*driver_, *this)), frames_(new frame_pool),
      parts_(new loop_parts) {
    driver_->home = this;
    watch_forks();
    fork_generation_ = fork_count;
}

loop* loop::current() noexcept {
    return current_loop;
}

bool loop::forked() const noexcept {
    return fork_generation_ != fork_count;
}

bool loop::on_own_thread() const noexcept {
    return !bound_ || thread_ == static_cast<unsigned long>(::pthread_self());
}

int loop::enter() noexcept {
    if (forked() || running_ || !on_own_thread())
        return EPERM;
    if (!bound_) {
        if (const int error = driver_->bind_to_thread();
            error != 0 && !(means_refused(error) && replace_driver("io_uring_setup", error)))
            return error;
        bound_ = true;
        thread_ = static_cast<unsigned long>(::pthread_self());
    }
    running_ = true;
    outer_frames_ = frame_pool::exchange_current(frames_);
    outer_loop_ = std::exchange(current_loop, this);
    return 0;
}

void loop::cut_off() noexcept {
    // Also of a loop whose task runs the inner one.
    for (loop* each = this; each != nullptr; each = each->outer_loop_) {
        each->ready_head_ = nullptr;
        each->ready_tail_ = &each->ready_head_;
        each->break_pass(); // what this turn still posts is not for the child to run
        each->budget =
            INT_MIN /
            2; // no attempt in what is left of this turn: what is awaited waits, and control comes back
    }
}

void loop::leave() noexcept {
    running_ = false;
    frame_pool::exchange_current(outer_frames_);
    current_loop = outer_loop_;
}

void loop::read_clock() noexcept {
    now_ = system_->now();
    clock_read_ = true;
}

void loop::add_timer(timer_node& node) noexcept {
    parts_->timers.insert(node);
    if (outside_)
        host_->loop_stirs();
}
void loop::remove_timer(timer_node& node) noexcept {
    parts_->timers.remove(node);
}

void loop::expire_timers() noexcept {
    if (parts_->timers.empty())
        return;
    read_clock();
    parts_->timers.advance(now_);
}

void loop::watch_unproved(direction& waiting) noexcept {
    waiting.unproved_passes =
        0; // also if it is still listed for an earlier wait, which an event has ended since
    if (!static_cast<list_node&>(waiting).linked())
        parts_->unproved.push_back(waiting);
}

void loop::prove(bool about_to_sleep) noexcept {
    // Passes are short; a handful of them bounds how long data may lie unseen behind a wrong prediction.
    constexpr std::uint8_t passes_max = 16;
    parts_->unproved.for_each([about_to_sleep](direction& waiting) {
        if (about_to_sleep || ++waiting.unproved_passes >= passes_max) {
            static_cast<list_node&>(waiting).unlink();
            waiting.prove();
        }
    });
}

void loop::take_inbox() noexcept {
    if (!mailbox_->inbox_.maybe_filled())
        return;
    ready_node* node = mailbox_->inbox_.take();
    while (node != nullptr) {
        ready_node* following = node->next_ready;
        post(*node);
        remote_posts_.add();
        node = following;
    }
}

void promise_base::run_frame(ready_node& node) noexcept {
    auto& frame = static_cast<promise_base&>(node);
    frame.home->next = &frame;
}

/// The one place that resumes coroutines. A chain of children that start and end goes round here, in constant stack.
inline void loop::run_transfers(promise_base* frame) noexcept {
    int left = transfers_per_turn;
    while (frame != nullptr) {
        if (--left < 0) [[unlikely]] {
            // A turn may not last for ever, even if it awaits nothing but children that end at once.
            frame->run = &promise_base::run_frame;
            post(*frame);
            return;
        }
        frame->self().resume();
        if (!finished) {
            frame = std::exchange(next, nullptr);
            continue;
        }
        finished = false;
        promise_base& ended = *frame; // nobody else has run: what suspends comes back here
        promise_base* const parent = ended.heir.first();
        if (parent != nullptr) {
            ended.self().destroy();
            parent->awaits.clear();
            frame = parent;
            continue;
        }
        frame_owner* const owner = ended.heir.second();
        static_cast<list_node&>(ended).unlink_for_good();
        --live;
        ended.self().destroy();
        owner->frame_ended(*owner);
        frame = std::exchange(next, nullptr);
    }
}

inline void loop::run_turn(ready_node& node) noexcept {
    budget = budget_per_turn_;
    clock_read_ = false;
    turns_.add();
    if (node.run == &promise_base::run_frame) { // a frame itself: without the way through `next`
        run_transfers(&static_cast<promise_base&>(node));
    } else {
        node.run(node);
        run_transfers(std::exchange(next, nullptr));
    }
    if (outbox_ != nullptr)
        flush_outbox();
}

/// Long turns: do not let 64 of them pass before looking outside. Reading the clock costs as much as a few yields, so while
/// turns are short it is read once a pass, and the oftener the longer they get. True: the pass, which began at `began`, has
/// lasted long enough.
bool loop::pass_is_long(clock::time_point& began) noexcept {
    constexpr auto long_enough = std::chrono::microseconds(100);
    read_clock();
    const auto before = std::exchange(last_look_, now_);
    if (before == clock::time_point{}) {
        began = now_;
        return false;
    }
    const auto stretch = now_ - before;
    if (stretch > long_enough / 2)
        stride_ = std::max(stride_ / 4, 1);
    else if (stretch < long_enough / 8)
        stride_ = std::min(stride_ * 2, resumptions_per_look);
    return now_ - began > long_enough;
}

void loop::run_ready() noexcept {
    // After a sleep nobody knows when the pass began: the first look at the clock is for that, and others have to follow.
    clock::time_point began = last_look_;
    const int stride_max = began == clock::time_point{} ? resumptions_per_look / 4 : resumptions_per_look;
    int pass_left = resumptions_per_look;
    const auto next_stretch = [&] {
        turns_left_ = std::min({stride_, stride_max, pass_left});
        pass_left -= turns_left_;
        return turns_left_ != 0;
    };
    (void)next_stretch();
    // The queue is taken as a whole, and what is posted meanwhile begins a new one: so the next node is known while one runs.
    ready_node* batch = nullptr;
    ready_node** batch_tail = nullptr;
    for (;;) {
        if (batch == nullptr) {
            if (ready_head_ == nullptr)
                return;
            batch = std::exchange(ready_head_, nullptr);
            batch_tail = std::exchange(ready_tail_, &ready_head_);
        }
        ready_node& node = *batch;
        batch = node.next_ready;
        run_turn(node);
        if (--turns_left_ > 0)
            continue;
        if (turns_left_ < 0 || pass_is_long(began) || !next_stretch())
            break;
    }
    if (batch == nullptr || forked()) // what the parent had ready is not for the child to run
        return;
    *batch_tail = ready_head_;
    if (ready_head_ == nullptr)
        ready_tail_ = batch_tail;
    ready_head_ = batch;
}

void loop::look_outside() noexcept {
    passes_.add();
    take_inbox();
    if (mailbox_->stop_requested_.load(std::memory_order_relaxed) && !root_stop_.stop_requested())
        [[unlikely]]
        root_stop_.request_stop();
    if (driver_->has_work())
        driver_->collect();
    expire_timers();
    prove(false);
}

/// Waking a CPU that has gone idle takes longer than most answers from another thread. So a loop that is about to sleep, and
/// whose last poster ran on another CPU, looks for about one wake-up's time first. On one CPU that would only keep the poster
/// from running; and where nothing comes, it gives up for twice as many sleeps each time.
bool loop::spin() noexcept {
    constexpr unsigned backoff_max = 256;
    if (spin_patience <= std::chrono::nanoseconds::zero())
        return false;
    const int poster = mailbox_->poster_cpu_.load(std::memory_order_relaxed);
    if (poster < 0 || poster == ::sched_getcpu() || !system_->real())
        return false;
    if (spins_to_skip_ != 0) {
        --spins_to_skip_;
        return false;
    }
    read_clock();
    const auto until = now_ + spin_patience;
    do {
        for (int i = 0; i < 32; ++i) {
            if (mailbox_->inbox_.maybe_filled() || driver_->signalled() ||
                mailbox_->stop_requested_.load(std::memory_order_relaxed)) {
                spin_backoff_ = 0;
                return true;
            }
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
        read_clock();
    } while (now_ < until);
    spin_backoff_ = spin_backoff_ == 0 ? 1 : std::min(spin_backoff_ * 2, backoff_max);
    spins_to_skip_ = spin_backoff_;
    return false;
}

/// The last looks before a sleep. False: there is something to do after all.
bool loop::may_sleep(clock::time_point& deadline) noexcept {
    // What the kernel has already reported costs little to look at, and often is just what a proof would look for.
    if (driver_->signalled()) {
        driver_->collect();
        if (ready_head_ != nullptr || (live == 0 && closing == 0)) // a close may have been all that was left
            return false;
    }
    prove(true);
    if (ready_head_ != nullptr || spin())
        return false;
    const auto timers = parts_->timers.next_look();
    if (timers < deadline)
        deadline = timers;
    // park() and a poster's push are one atomic word: a node that came before is seen here, a node that comes later wakes.
    // The stop flag is no node; its setter wakes always, and the driver keeps a wake that came early.
    if (!mailbox_->inbox_.park())
        return false;
    clock_read_ = false;
    return !mailbox_->stop_requested_.load() || root_stop_.stop_requested();
}

void loop::sleep(clock::time_point deadline) noexcept {
    if (!may_sleep(deadline))
        return;
    driver_->wait(deadline);
    clock_read_ = false;
    last_look_ = {};
}

void loop::run_until_idle(clock::time_point deadline) {
    if (forked()) [[unlikely]]
        return;
    if (host_ != nullptr) {
        host_->run_hosted(deadline);
        return;
    }
    run_deadline_ = deadline;
    last_look_ = {};
    // What was posted before the last frame ended still runs; what comes later waits for the next run.
    while (live != 0 || closing != 0 || ready_head_ != nullptr) {
        if (live != 0 || closing != 0)
            look_outside();
        run_ready();
        if (const int error = driver_->failure(); error != 0) [[unlikely]] {
            if (!means_refused(error) || !replace_driver("io_uring_enter", error))
                return; // it would spin
        }
        if (forked()) [[unlikely]]
            return; // a task has forked and this is the child: not one step near the ring
        if (ready_head_ == nullptr && (live != 0 || closing != 0))
            sleep(run_deadline_);
        if (run_deadline_ != clock::time_point::max()) {
            read_clock();
            if (now_ >= run_deadline_)
                return;
        }
    }
}

/// The ring is refused in mid-life: a sandbox was closed around the process. What waits goes on waiting elsewhere.
bool loop::replace_driver(const char* call, int error) noexcept {
    std::unique_ptr<driver> fresh;
    if (substitute == nullptr || substitute(*system_, fresh) != 0 || !driver_->surrender())
        return false;
    substitute = nullptr;
    fresh->home = this;
    try {
        reason = refusal(call, error);
    } catch (...) {
        reason.clear();
    }
    for (descriptor* block : parts_->descriptors) {
        if (block != nullptr) {
            block->in.move_to(*fresh);
            block->out.move_to(*fresh);
        }
    }
    const driver_counters& before = driver_->counters;
    fresh->counters.submissions.add(before.submissions.get());
    fresh->counters.enters.add(before.enters.get());
    fresh->counters.completions.add(before.completions.get());
    fresh->counters.wakes.add(before.wakes.get());
    mailbox_->rewire(
        *fresh); // a wake that the old one got is no loss: the loop looks at everything before it sleeps
    counted_.store(&fresh->counters, std::memory_order_release);
    retired_ = std::exchange(driver_, std::move(fresh));
    fallbacks.add();
    return true;
}

// --- steps -----------------------------------------------------------------------------------------------------------------

namespace {

/// Inside a loop, for the length of a step.
class visit {
public:
    explicit visit(loop& on) noexcept : loop_(on), entered_(on.enter() == 0) {
        assert(entered_ && "a step of a loop that runs, or on another thread");
    }
    ~visit() {
        if (entered_)
            loop_.leave();
    }
    visit(const visit&) = delete;
    visit& operator=(const visit&) = delete;

private:
    loop& loop_;
    bool entered_;
};

} // namespace

std::size_t loop_stepper::ready(std::size_t limit) const noexcept {
    std::size_t count = 0;
    for (const ready_node* node = loop_.ready_head_; node != nullptr && count < limit;
         node = node->next_ready)
        ++count;
    return count;
}

void loop_stepper::turn(std::size_t which) noexcept {
    const visit inside(loop_);
    ready_node** at = &loop_.ready_head_;
    for (; which != 0; --which)
        at = &(*at)->next_ready;
    if ((*at)->run == &run_posted) {
        at = &loop_.ready_head_;
        while ((*at)->run != &run_posted)
            at = &(*at)->next_ready;
    }
    ready_node& node = **at;
    *at = node.next_ready;
    if (*at == nullptr)
        loop_.ready_tail_ = at;
    loop_.run_turn(node);
}

void loop_stepper::look() noexcept {
    const visit inside(loop_);
    loop_.look_outside();
}

bool loop_stepper::may_sleep(clock::time_point& until) noexcept {
    const visit inside(loop_);
    return loop_.may_sleep(until);
}

// --- as the guest of another loop ---------------------------------------------------------------------------------------

int loop::be_hosted(loop_host* host) noexcept {
    if (host != nullptr && !driver_->be_watched())
        return ENOTSUP;
    host_ = host;
    outside_ = host != nullptr;
    return 0;
}

bool loop::pass() noexcept {
    outside_ = false;
    last_look_ = {}; // what the host has done since is not our stretch
    look_outside();
    run_ready();
    if (const int error = driver_->failure(); error != 0 && means_refused(error)) [[unlikely]] {
        if (replace_driver("io_uring_enter", error))
            (void)driver_->be_watched();
    }
    outside_ = host_ != nullptr;
    return ready_head_ != nullptr;
}

bool loop::rest(clock::time_point& until) noexcept {
    outside_ = false; // what comes up in here is reported by the result
    prove(true);
    const bool came = driver_->prepare_to_sleep() || ready_head_ != nullptr;
    outside_ = host_ != nullptr;
    if (came)
        return false;
    until = parts_->timers.next_look();
    // As in sleep(): what was posted before is seen here, what is posted later wakes the driver.
    if (!mailbox_->inbox_.park())
        return false;
    clock_read_ = false;
    return !mailbox_->stop_requested_.load() || root_stop_.stop_requested();
}

list<outside_holder>& loop::outside_holders() noexcept {
    return parts_->outside_holders;
}

void loop_visit::enter(loop& on) noexcept {
    on.budget = on.budget_per_turn_;
    on.clock_read_ = false;
    entered_ = true;
    outer_frames_ = frame_pool::exchange_current(on.frames_);
    outer_loop_ = std::exchange(current_loop, &on);
}

void loop_visit::leave() noexcept {
    frame_pool::exchange_current(outer_frames_);
    current_loop = outer_loop_;
}

// --- descriptors -----------------------------------------------------------------------------------------------------------

descriptor* loop::find_descriptor(int fd) const noexcept {
    const auto index = static_cast<std::size_t>(fd);
    return index < parts_->descriptors.size() ? parts_->descriptors[index] : nullptr;
}

void loop::add_descriptor(descriptor& block) {
    const auto index = static_cast<std::size_t>(block.fd);
    if (index >= parts_->descriptors.size())
        parts_->descriptors.resize(index + index / 2 + 16);
    parts_->descriptors[index] = &block;
}

void loop::remove_descriptor(descriptor& block) noexcept {
    const auto index = static_cast<std::size_t>(block.fd);
    if (index < parts_->descriptors.size() && parts_->descriptors[index] == &block)
        parts_->descriptors[index] = nullptr;
}

// --- the end ---------------------------------------------------------------------------------------------------------------

void loop::destroy_frames() noexcept {
    // Leaves first: a parent's locals may be borrowed by its child. Composed operations start their children later than the
    // frame that holds them, so the youngest root goes first.
    promise_base* root = nullptr;
    promise_base* leaf = nullptr;
    while (!roots.empty()) {
        // On from the parent of the last one, unless something was started meanwhile: a chain may be a hundred thousand deep.
        if (leaf == nullptr || root != &roots.back())
            leaf = root = &roots.back();
        while (leaf->awaits.second() != nullptr)
            leaf = leaf->awaits.second();
        promise_base* const parent = leaf->heir.first();
        frame_owner* owner = nullptr;
        if (parent != nullptr) {
            parent->awaits.clear();
        } else {
            static_cast<list_node&>(*leaf).unlink();
            owner = leaf->heir.second();
        }
        leaf->self().destroy();
        // What its destructors have posted never runs, and its node may be the next to go: nothing may be linked to it.
        ready_head_ = nullptr;
        ready_tail_ = &ready_head_;
        if (owner != nullptr && owner->frame_abandoned != nullptr)
            owner->frame_abandoned(*owner);
        leaf = parent;
    }
    live = 0;
    while (!parts_->outside_holders.empty()) {
        outside_holder& waiting = parts_->outside_holders.pop_front();
        waiting.abandon_one(waiting);
        ready_head_ = nullptr;
        ready_tail_ = &ready_head_;
    }
}

void run_posted(ready_node& node) noexcept {
    auto& posted = static_cast<posted_base&>(node);
    posted.invoke(posted);
}

/// Of what stands in the ready queue, only what other threads have posted: the rest belongs to frames that end unresumed.
void loop::run_posted_functions() noexcept {
    while (ready_head_ != nullptr) {
        ready_node& node = *ready_head_;
        ready_head_ = node.next_ready;
        if (ready_head_ == nullptr)
            ready_tail_ = &ready_head_;
        if (node.run == &run_posted)
            node.run(node);
        next = nullptr;
    }
    flush_outbox(); // no turn will do it
}

/// Before the end: tasks of this loop that are on another one have been asked to stop, and come home by a post. Their frames
/// point into frames here.
void loop::call_frames_home(bool foreign) noexcept {
    const auto deadline = system_->now() + destructor_wait;
    while (away != 0 && system_->now() < deadline) {
        take_inbox();
        run_posted_functions();
        if (away == 0)
            break;
        if (foreign)
            std::this_thread::yield();
        else if (mailbox_->inbox_.park())
            driver_->wait(deadline);
    }
#ifndef NDEBUG
    if (away != 0)
        std::fprintf(
            stderr,
            "nowait: a runtime has ended, and %zu of its tasks are on others that did not let them go: "
            "frames are left alone\n",
            away);
#endif
}

loop::~loop() {
    const bool is_child = forked();
    // Destroyed away from its thread: nothing can be submitted or reaped here, and nothing is in flight if that thread has
    // ended (the kernel cancels what a thread leaves behind). What ends now belongs to whoever destroys.
    const bool foreign = !is_child && !on_own_thread();
    thread_ = static_cast<unsigned long>(::pthread_self());
    outside_ = false;
    ending_ = true;
    if (is_child) {
        driver_->abandon();
        if (retired_ != nullptr)
            retired_->abandon();
    } else {
        root_stop_.request_stop();
    }
    // Last posts: functions from other threads run now, oldest first; operations among them only put themselves into the ready
    // queue. Nothing runs in a child after fork: it was posted to the parent.
    frame_pool* const outer = frame_pool::exchange_current(frames_);
    loop* const outer_loop = std::exchange(current_loop, this);
    if (!is_child) {
        run_posted_functions();
        call_frames_home(foreign);
    }
    for (ready_node* node = mailbox_->inbox_.close(); node != nullptr && !is_child;) {
        ready_node* following = node->next_ready;
        node->run(*node);
        next = nullptr;
        node = following;
    }
    flush_outbox();
    current_loop = outer_loop;
    mailbox_->close();
    if (current_loop != nullptr)
        current_loop
            ->flush_outbox(); // a task of that loop destroys this one: what it has chosen here is still with it
    // Waiters that other threads have chosen: acquire pairs with arrived().
    // In a child after fork whoever has chosen one stayed behind.
    while (!is_child && mailbox_->in_transit_.load(std::memory_order_acquire) != 0)
        std::this_thread::yield();

    // Memory in the kernel's hands first: frames may only go when every transfer has come back.
    const auto deadline = system_->now() + destructor_wait;
    auto in_flight = [this] {
        for (descriptor* block : parts_->descriptors) {
            if (block != nullptr &&
                ((block->in.work.pending && block->receiver == nullptr) || block->out.work.pending))
                return true;
        }
        return false;
    };
    while (!is_child && !foreign && (in_flight() || closing != 0) && driver_->failure() == 0 &&
           system_->now() < deadline)
        driver_->wait(deadline);

    for (descriptor* block : parts_->descriptors) {
        if (block != nullptr && block->receiver != nullptr && !is_child)
            block->receiver->finish();
    }
    bool work_left = false;
    if (!is_child)
        in_pool.for_each([&](work_in_pool& each) { work_left = !each.outwait(each, deadline) || work_left; });
    ready_head_ = nullptr;
    ready_tail_ = &ready_head_;
    // If some are away for good (or in the parent, and this is the child): what they point to stays, unreachable, rather than
    // to be used after its end. The same if the kernel has not given all memory back in time, or can no
    // longer say that it has, and if a worker is still at work.
    const bool lent = work_left || (!is_child && !foreign && in_flight());
    if (away == 0 && !lent)
        destroy_frames();
    while (!is_child && !foreign && closing != 0 && driver_->failure() == 0 && system_->now() < deadline)
        driver_->wait(deadline);
    ready_head_ = nullptr;
    ready_tail_ = &ready_head_;
    for (descriptor* block : parts_->descriptors) {
        if (block != nullptr)
            block->detach();
    }
    leave_pool(*this);
    driver_.reset();
    frame_pool::exchange_current(outer == frames_ ? nullptr : outer);
    frame_pool::retire(frames_);
    // A worker that has taken work of this loop, and that nobody could wait for, may be about to take its reference.
    if (!work_left)
        mailbox_->release();
}

runtime_stats loop::snapshot() const noexcept {
    runtime_stats s;
    for (std::size_t i = 0; i < operation_kinds; ++i) {
        const operation_counters& from = counters[i];
        operation_stats& to = s.operations[i];
        to.inline_completions = from.inline_completions.get();
        to.armed = from.armed.get();
        to.punted = from.punted.get();
        to.nowait_misses = from.nowait_misses.get();
        to.predictor_skips = from.predictor_skips.get();
        to.budget_yields = from.budget_yields.get();
    }
    s.turns = turns_.get();
    s.passes = passes_.get();
    const driver_counters& driven = *counted_.load(std::memory_order_acquire);
    s.submissions = driven.submissions.get();
    s.enters = driven.enters.get();
    s.completions = driven.completions.get();
    s.remote_posts = remote_posts_.get();
    s.remote_wakes = driven.wakes.get();
    s.driver_fallbacks = fallbacks.get();
    s.frames_allocated = frames_->allocated();
    s.frames_recycled = frames_->recycled();
    return s;
}

} // namespace detail
NOWAIT_END_NAMESPACE
