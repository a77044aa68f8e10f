// The worker pool: queues, accounts, chains of keys, idle lists, growth and the end. Over the `sync` policy and a host, so
// that a test can walk through its interleavings and a simulation can step its workers.
//
// Each account has a lock of its own, held for a few words, never over a job. Invariants, under it:
//
//  1. `workers` counts from the decision to create one, so it never passes `maximum`.
//  2. If work stands in `ready`, then a worker is `waking` (woken or created, and has not looked yet), or every worker that may
//     exist is at work and looks again when it is through. Whoever takes a job and sees more work passes the wake on before
//     it runs the job: a job that blocks delays nobody.
//  3. Of the jobs of one key, one runs or stands in `ready`; the others wait in its line, in order. So nobody ever finds a job
//     that may not be run, and a worker is not woken for one.
//  4. Of rationed work, at most `ration` jobs run or stand in `ready`; the others wait in `beyond_ration`, in order. Who ends
//     one, or takes it back from `ready`, lets the next one in.
//  5. A job is taken under the lock or removed under the lock: it has run, or it never will.
//  6. A claimed worker (taken from the idle list by somebody who is about to wake it) does nothing before that wake has come: so
//     whoever wakes may touch it.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/list.hpp>
#include <nowait/detail/worker_host.hpp>
#include <nowait/detail/worker_pool_job.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>
#include <utility>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

struct worker_pool_limits {
    std::size_t bounded = 1;
    std::size_t unbounded = 1;
    std::chrono::nanoseconds idle_time = std::chrono::seconds(5);
    char name[8] = "nowait"; ///< of the threads: "nowait-b1", "nowait-u1", ...
};

struct worker_account_numbers {
    std::size_t workers = 0, idle = 0, queued = 0;
    std::uint64_t submitted = 0, taken = 0, cancelled = 0, failed = 0, refused = 0;
    std::uint64_t started = 0, not_started = 0, left = 0, exhausted = 0, interrupts = 0;
};

enum class job_removal {
    removed, ///< it will never run; the pool has let go of it
    running, ///< it runs, and has been interrupted if it can be
    over     ///< it has run, or has been told an error
};

template <class Sync>
class worker_pool_core {
public:
    using job = basic_pool_job<Sync>;
    using time_point = worker_host::time_point;
    static constexpr time_point never = time_point::max();

    worker_pool_core(worker_host& host, const worker_pool_limits& limits) noexcept
        : host_(host), limits_(limits) {
        accounts_[0].maximum = limits.bounded;
        accounts_[0].letter = 'b';
        accounts_[1].maximum = limits.unbounded;
        accounts_[1].letter = 'u';
        for (account& a : accounts_)
            a.ration = a.maximum > 1 ? a.maximum / 2 : 1;
    }
    worker_pool_core(const worker_pool_core&) = delete;
    worker_pool_core& operator=(const worker_pool_core&) = delete;
    virtual ~worker_pool_core() = default;

    void acquire() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept {
        // acq_rel: the last one sees what the others did.
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            delete this;
    }

    /// Any thread. 0: the pool has the job, which may have ended already. ECANCELED: the pool is shut down. EDEADLK: every worker
    /// of the account would wait for work that it has submitted itself, or the work for the one that submits it, by its key.
    /// Otherwise the job is still the caller's.
    [[nodiscard]] int submit(job& what) noexcept {
        account& a = of(what);
        orders next;
        std::size_t waiting = 0;
        {
            lock_scope held(a.lock);
            if (a.stopping) {
                a.refused.add();
                return ECANCELED;
            }
            worker* const from = current_ != nullptr && &current_->in == &a ? current_ : nullptr;
            if (from != nullptr) {
                const bool same_ration = what.rationed && from->rationed;
                if ((from->children == 0 && a.parents + 1 >= a.maximum) ||
                    (same_ration && from->rationed_children == 0 && a.rationed_parents + 1 >= a.ration) ||
                    (what.keyed && from->keyed && what.key == from->key)) {
                    a.refused.add();
                    return EDEADLK;
                }
                if (from->children++ == 0)
                    ++a.parents;
                if (same_ration && from->rationed_children++ == 0)
                    ++a.rationed_parents;
                from->has_submitted = true;
                what.submitter = from;
            }
            a.submitted.add();
            ++a.queued;
            what.at = job::stage::queued;
            if (what.keyed) {
                what.make_key_places();
                if (job* const first = a.find(what.key); first != nullptr) {
                    what.in_keys().in_line.link_before(first->in_keys().in_line); // the ring's end
                    return 0;
                }
                a.line_of(what.key).push_back(what.in_keys().in_table);
            }
            if (what.rationed && !enter_ration(a, what)) {
                waiting = newly_beyond_ration(a);
            } else {
                a.ready.push_back(what);
                next = choose(a, what.parallel);
                waiting = newly_exhausted(a, next);
            }
        }
        carry_out(a, next);
        tell_exhausted(a, waiting);
        return 0;
    }

    /// Any thread; the caller keeps the job's memory. Pending work never runs; running work is interrupted, if it can be: once
    /// for each call, because a signal that comes just before a system call is lost on it.
    [[nodiscard]] job_removal cancel(job& what) noexcept {
        account& a = of(what);
        worker* hit = nullptr;
        {
            lock_scope held(a.lock);
            if (what.at == job::stage::queued) {
                remove(a, what);
                what.at = job::stage::over;
                a.cancelled.add();
                return job_removal::removed;
            }
            if (what.at != job::stage::running)
                return job_removal::over;
            what.interrupted.store(true, std::memory_order_relaxed);
            hit = static_cast<worker*>(what.worker);
            if (hit != nullptr && !hit->region.begin_send())
                hit = nullptr;
            if (hit != nullptr)
                a.interrupts.add();
        }
        send_to(hit);
        return job_removal::running;
    }

    /// Tells the end of a job, unless somebody else has claimed that, and lets go of it.
    void tell(job& what, int error) noexcept {
        if (!what.abandonable || what.claim_end())
            what.functions->ended(what, error);
        if (what.functions->release(what)) [[unlikely]]
            host_.changed();
    }

    // --- the end --------------------------------------------------------------------------------------------------------

    /// Refuses new work, cancels the pending unbounded work, lets idle workers go.
    void stop() noexcept {
        for (account& a : accounts_) {
            list<job> dropped;
            {
                lock_scope held(a.lock);
                if (!a.stopping) {
                    a.stopping = true;
                    if (&a == &accounts_[1])
                        take_queued(a, dropped);
                }
            }
            fail(dropped, ECANCELED);
            for (;;) {
                orders next;
                {
                    lock_scope held(a.lock);
                    next.wake = claim_idle(a);
                }
                if (next.wake == nullptr)
                    break;
                host_.wake(*next.wake);
            }
        }
    }
    /// Sends the signal to what runs on the unbounded account and can be interrupted.
    void interrupt_unbounded() noexcept {
        account& a = accounts_[1];
        for (std::size_t index = 0;; ++index) {
            worker* hit = nullptr;
            {
                lock_scope held(a.lock);
                std::size_t at = 0;
                a.all.for_each([&](membership& each) {
                    if (at++ != index || each.of.running == nullptr || each.of.running->worker == nullptr)
                        return;
                    each.of.running->interrupted.store(true, std::memory_order_relaxed);
                    if (each.of.region.begin_send()) {
                        hit = &each.of;
                        a.interrupts.add();
                    }
                });
                if (at <= index)
                    return;
            }
            send_to(hit);
        }
    }
    /// Tells those who await abandonable work that runs that it is abandoned.
    void abandon(work_account which) noexcept {
        account& a = accounts_[static_cast<std::size_t>(which)];
        lock_scope held(a.lock);
        a.all.for_each([](membership& each) {
            // Told under the lock: the worker lets go of the job only after it has taken the lock once more.
            if (job* const what = each.of.running; what != nullptr && what->abandonable && what->claim_end())
                what->functions->ended(*what, ECANCELED);
        });
    }
    /// Work that nobody will run any more.
    void drop_queued() noexcept {
        for (account& a : accounts_) {
            list<job> dropped;
            {
                lock_scope held(a.lock);
                take_queued(a, dropped);
            }
            fail(dropped, ECANCELED);
        }
    }
    /// Workers whose threads have not ended, those about to start included.
    [[nodiscard]] std::size_t present() const noexcept { return present_.load(std::memory_order_acquire); }
    struct running_work {
        std::size_t all = 0;
        std::size_t abandoned = 0; ///< of these: nobody awaits it any more
    };
    [[nodiscard]] running_work running() noexcept {
        running_work count;
        for (account& a : accounts_) {
            lock_scope held(a.lock);
            a.all.for_each([&count](membership& each) {
                count.all += each.of.busy ? 1 : 0;
                count.abandoned += each.of.busy && each.of.running != nullptr &&
                                           each.of.running->abandonable && each.of.running->end_claimed()
                                       ? 1
                                       : 0;
            });
        }
        return count;
    }
    /// Waits for the threads of workers that have left. `for_good`: whoever leaves later is on its own.
    void reap(bool for_good) noexcept {
        list<worker> gone;
        {
            lock_scope held(ended_lock_);
            orphaned_ = orphaned_ || for_good;
            move_all(ended_, gone);
        }
        reap_all(gone);
    }
    /// The calling thread is a worker of this pool.
    [[nodiscard]] bool inside() const noexcept { return current_ != nullptr && &current_->of == this; }

    [[nodiscard]] worker_account_numbers numbers(work_account which) noexcept {
        account& a = accounts_[static_cast<std::size_t>(which)];
        lock_scope held(a.lock);
        worker_account_numbers n;
        n.workers = a.workers;
        a.idle.for_each([&n](worker&) { ++n.idle; });
        n.queued = a.queued;
        n.submitted = a.submitted.get();
        n.taken = a.taken.get();
        n.cancelled = a.cancelled.get();
        n.failed = a.failed.get();
        n.refused = a.refused.get();
        n.started = a.started.get();
        n.not_started = a.not_started.get();
        n.left = a.departed.get();
        n.exhausted = a.exhaustions.get();
        n.interrupts = a.interrupts.get();
        return n;
    }
    [[nodiscard]] worker_host& host() const noexcept { return host_; }
    [[nodiscard]] const worker_pool_limits& limits() const noexcept { return limits_; }

protected:
    /// Work waits, and every worker that the account, or the ration, may have is at work. Once for each time that it comes to
    /// this, on the thread that submitted or took work, under no lock.
    virtual void exhausted(work_account, std::size_t) noexcept {}

private:
    struct account;
    struct worker;
    struct membership : list_node {
        explicit membership(worker& self) noexcept : of(self) {}
        worker& of;
    };

    /// Invariants: the list link is its place among the idle; `children`, `busy`, `running` and the flags are
    /// under the account's lock; `rested` and `has_submitted` are its own thread's.
    struct worker final : worker_body, list_node {
        worker(worker_pool_core& pool, account& where) noexcept : of(pool), in(where) {}

        [[nodiscard]] worker_step step(bool woken) noexcept override { return of.step(*this, woken); }
        void left() noexcept override { of.left(*this); }

        worker_pool_core& of;
        account& in;
        membership member{*this};
        signal_region<Sync> region;
        job* running =
            nullptr; // only what can be signalled or abandoned: its end is announced under the lock
        time_point idle_until = never;
        std::size_t children = 0;          // submitted by its job, and not yet taken
        std::size_t rationed_children = 0; // of these, if its job is rationed, those that are, too
        std::uint64_t key = 0;             // of its job
        bool keyed = false;
        bool rationed = false;
        bool idle = false;
        bool claimed = false;
        bool waking = true; // a new one is about to look
        bool busy = false;
        bool rested = false;
        bool has_submitted = false;
    };

    struct account {
        typename Sync::mutex lock;
        list<job> ready;
        list<job> beyond_ration;
        list<worker> idle; // the last to become idle first
        list<membership> all;
        std::array<list<typename job::place>, 64> keys;
        std::size_t maximum = 0;
        std::size_t ration = 1;
        std::size_t in_ration = 0; // rationed jobs that run or stand in `ready`
        std::size_t workers = 0;
        std::size_t waking = 0;
        std::size_t queued = 0;
        std::size_t parents = 0;          // workers whose job has submitted work that still waits
        std::size_t rationed_parents = 0; // the same of rationed jobs and rationed work
        unsigned numbered = 0;
        unsigned refusals = 0; // of new threads, in a row
        time_point create_again{};
        bool stopping = false;
        bool exhausted = false;
        bool ration_exhausted = false;
        char letter = 'b';
        counter submitted, taken, cancelled, failed, refused, started, not_started, departed, exhaustions,
            interrupts;

        [[nodiscard]] list<typename job::place>& line_of(std::uint64_t key) noexcept {
            return keys[(key * 0x9e3779b97f4a7c15u) >> 58];
        }
        [[nodiscard]] job* find(std::uint64_t key) noexcept {
            job* found = nullptr;
            line_of(key).for_each([&](typename job::place& first) {
                if (first.job.key == key)
                    found = &first.job;
            });
            return found;
        }
    };

    /// What is to be done after the lock.
    struct orders {
        worker* wake = nullptr;
        bool create = false;
        explicit operator bool() const noexcept { return wake != nullptr || create; }
    };

    [[nodiscard]] account& of(const job& what) noexcept {
        return accounts_[static_cast<std::size_t>(what.account)];
    }

    // --- under the account's lock ------------------------------------------------------------------------------------

    [[nodiscard]] worker* claim_idle(account& a) noexcept {
        if (a.idle.empty())
            return nullptr;
        worker& chosen = a.idle.pop_front();
        chosen.idle = false;
        chosen.claimed = chosen.waking = true;
        ++a.waking;
        return &chosen;
    }

    /// Whom to wake for work that waits. One at a time, unless the work asks for a worker of its own at once: who takes a job and
    /// sees more passes the wake on.
    [[nodiscard]] orders choose(account& a, bool at_once) noexcept {
        orders next;
        if (!at_once && a.waking != 0)
            return next;
        next.wake = claim_idle(a);
        if (next.wake != nullptr || a.stopping || a.workers >= a.maximum)
            return next;
        // Patience only where somebody will look again: without a worker, this is the last who could have one made.
        if (a.refusals != 0 && a.workers != 0 && host_.now() < a.create_again)
            return next;
        next.create = true;
        ++a.workers;
        ++a.waking;
        present_.fetch_add(
            1, std::memory_order_relaxed); // before the end can be declared: stop() takes this lock
        return next;
    }

    /// How much work waits, if this is the moment from which there is nobody for it; otherwise 0.
    [[nodiscard]] static std::size_t newly_exhausted(account& a, const orders& next) noexcept {
        if (next || a.waking != 0 || a.exhausted)
            return 0;
        a.exhausted = true;
        a.exhaustions.add();
        return a.queued;
    }
    /// The same for the ration, when a job has joined the line before it. That its line is empty for a moment is no end of it:
    /// whoever waits there may try something else, and come again.
    [[nodiscard]] static std::size_t newly_beyond_ration(account& a) noexcept {
        if (std::exchange(a.ration_exhausted, true))
            return 0;
        a.exhaustions.add();
        return a.queued;
    }
    void tell_exhausted(account& a, std::size_t waiting) noexcept {
        if (waiting != 0)
            exhausted(&a == &accounts_[0] ? work_account::bounded : work_account::unbounded, waiting);
    }

    /// False: it waits in the line.
    [[nodiscard]] static bool enter_ration(account& a, job& what) noexcept {
        if (a.in_ration >= a.ration) {
            what.beyond_ration = true;
            a.beyond_ration.push_back(what);
            return false;
        }
        ++a.in_ration;
        return true;
    }
    /// A rationed job that ran or stood in `ready` does so no longer. Returns: the one that may now, or null.
    [[nodiscard]] static job* leave_ration(account& a) noexcept {
        if (a.beyond_ration.empty()) {
            --a.in_ration;
            a.ration_exhausted = false;
            return nullptr;
        }
        job& next = a.beyond_ration.pop_front();
        next.beyond_ration = false;
        return &next;
    }

    void no_child_any_more(account& a, job& what) noexcept {
        if (what.submitter == nullptr)
            return;
        auto& from = *static_cast<worker*>(std::exchange(what.submitter, nullptr));
        if (--from.children == 0)
            --a.parents;
        if (what.rationed && from.rationed && --from.rationed_children == 0)
            --a.rationed_parents;
    }

    /// Takes the first one of its key out of the table and gives its place there to the next. Returns: that one.
    [[nodiscard]] job* next_in_line(job& first) noexcept {
        job* next = nullptr;
        if (first.in_keys().in_line.linked()) {
            next = &static_cast<typename job::place&>(*first.in_keys().in_line.after).job;
            next->in_keys().in_table.link_before(first.in_keys().in_table);
            first.in_keys().in_line.unlink();
        }
        first.in_keys().in_table.unlink();
        return next;
    }

    void remove(account& a, job& what) noexcept {
        --a.queued;
        no_child_any_more(a, what);
        if (what.keyed && !what.in_keys().in_table.linked()) {
            what.in_keys().in_line.unlink(); // it waits behind another of its key
            return;
        }
        if (what.keyed) {
            if (job* const next = next_in_line(what); next != nullptr)
                static_cast<list_node&>(*next).link_before(what);
        }
        if (what.rationed && !what.beyond_ration) {
            if (job* const next = leave_ration(a); next != nullptr)
                static_cast<list_node&>(*next).link_before(what);
        }
        static_cast<list_node&>(what).unlink();
        if (a.ready.empty())
            a.exhausted = false;
    }

    void take_queued(account& a, list<job>& to) noexcept {
        for (auto& line : a.keys) {
            line.for_each([&](typename job::place& first) {
                while (first.job.in_keys().in_line.linked()) {
                    job& next = static_cast<typename job::place&>(*first.job.in_keys().in_line.after).job;
                    next.in_keys().in_line.unlink();
                    take_one(a, next, to);
                }
            });
        }
        while (!a.ready.empty()) {
            job& next = a.ready.pop_front();
            if (next.keyed)
                next.in_keys().in_table.unlink();
            if (next.rationed)
                --a.in_ration;
            take_one(a, next, to);
        }
        while (!a.beyond_ration.empty())
            take_one(a, a.beyond_ration.pop_front(), to);
        a.exhausted = a.ration_exhausted = false;
    }
    void take_one(account& a, job& what, list<job>& to) noexcept {
        --a.queued;
        no_child_any_more(a, what);
        what.at = job::stage::over;
        to.push_back(what);
        a.failed.add();
    }

    /// What a worker notes about the job before it runs it.
    void take(worker& w, job& what) noexcept {
        account& a = w.in;
        --a.queued;
        no_child_any_more(a, what);
        what.at = job::stage::running;
        a.taken.add();
        w.busy = true;
        w.keyed = what.keyed;
        w.rationed = what.rationed;
        w.key = what.key;
        if (what.interruptible || what.abandonable)
            w.running = &what;
        if (what.interruptible) {
            what.worker = &w;
            w.region.open();
        }
        if (a.ready.empty())
            a.exhausted = false;
    }

    /// After the job has run, if anybody could have reached it meanwhile, or waits behind it.
    void put_down(worker& w, job& what) noexcept {
        account& a = w.in;
        lock_scope held(a.lock);
        what.at = job::stage::over;
        what.worker = nullptr;
        w.running = nullptr;
        w.busy = false;
        if (what.keyed) {
            if (job* const next = next_in_line(what); next != nullptr)
                a.ready.push_back(*next); // this worker is about to look
        }
        if (what.rationed) {
            if (job* const next = leave_ration(a); next != nullptr)
                a.ready.push_back(*next);
        }
        if (w.children != 0) {
            // Its job has gone without waiting for them.
            forget_submitter(a, w);
            w.children = 0;
            --a.parents;
            if (std::exchange(w.rationed_children, 0) != 0)
                --a.rationed_parents;
        }
    }
    void forget_submitter(account& a, worker& w) noexcept {
        auto forget = [&w](job& what) {
            if (what.submitter == &w)
                what.submitter = nullptr;
        };
        a.ready.for_each(forget);
        a.beyond_ration.for_each(forget);
        for (auto& line : a.keys) {
            line.for_each([&](typename job::place& first) {
                for (list_node* at = first.job.in_keys().in_line.after; at != &first.job.in_keys().in_line;
                     at = at->after)
                    forget(static_cast<typename job::place&>(*at).job);
            });
        }
    }

    // --- under no lock ------------------------------------------------------------------------------------------------

    void carry_out(account& a, orders next) noexcept {
        while (next) {
            if (next.wake != nullptr) {
                host_.wake(*next.wake);
                return;
            }
            const int error = create(a);
            if (error == 0)
                return;
            // Whoever chose this one has counted on it: the work must find another way.
            list<job> failed;
            std::size_t waiting = 0;
            next = {};
            {
                lock_scope held(a.lock);
                --a.workers;
                --a.waking;
                a.not_started.add();
                constexpr unsigned patience_max = 100;
                a.refusals = a.refusals < patience_max ? a.refusals + 1 : patience_max;
                a.create_again = host_.now() + std::chrono::milliseconds(5) * a.refusals;
                if (!a.ready.empty() && a.workers != 0)
                    next = choose(a, false);
                if (!next && a.workers == 0)
                    take_queued(a, failed);
                else if (!a.ready.empty())
                    waiting = newly_exhausted(a, next); // the workers there are have to do
            }
            tell_exhausted(a, waiting);
            present_.fetch_sub(1, std::memory_order_acq_rel);
            host_.changed();
            fail(failed, error);
        }
    }

    [[nodiscard]] int create(account& a) noexcept {
        auto* const made = new (std::nothrow) worker(*this, a);
        if (made == nullptr)
            return ENOMEM;
        made->host = &host_;
        made->may_wait = &a == &accounts_[1];
        {
            lock_scope held(a.lock);
            std::snprintf(made->name, sizeof made->name, "%s-%c%u", limits_.name, a.letter,
                          ++a.numbered % 10000);
            a.all.push_back(made->member);
        }
        acquire();
        const int error = host_.start(*made);
        lock_scope held(a.lock);
        if (error == 0) {
            a.started.add();
            a.refusals = 0;
            return 0;
        }
        made->member.unlink();
        delete made;
        release(); // not the last one: the caller has one
        return -error;
    }

    void fail(list<job>& dropped, int error) noexcept {
        while (!dropped.empty())
            tell(dropped.pop_front(), error);
    }

    void send_to(worker* hit) noexcept {
        if (hit == nullptr)
            return;
        host_.interrupt(*hit);
        hit->region.end_send();
    }

    // --- a worker's life ---------------------------------------------------------------------------------------------

    [[nodiscard]] worker_step step(worker& w, bool woken) noexcept {
        using outcome = worker_step::outcome;
        account& a = w.in;
        const time_point now = w.rested ? host_.now() : time_point{};
        job* taken = nullptr;
        orders next;
        std::size_t waiting = 0;
        {
            lock_scope held(a.lock);
            if (w.claimed) {
                if (!woken)
                    return {outcome::idle, never}; // whoever took it from the list is about to wake it
                w.claimed = false;
            }
            if (w.waking) {
                w.waking = false;
                --a.waking;
            }
            w.busy = false;
            if (a.ready.empty()) {
                if (a.stopping || (w.idle && a.workers > 1 && now >= w.idle_until))
                    return depart(w);
                if (!w.idle)
                    rest(w);
                return {outcome::idle, a.workers > 1 ? w.idle_until : never};
            }
            if (w.idle) {
                static_cast<list_node&>(w).unlink();
                w.idle = false;
            }
            taken = &a.ready.pop_front();
            take(w, *taken);
            if (!a.ready.empty()) {
                next = choose(a, false);
                waiting = newly_exhausted(a, next);
            }
        }
        w.rested = false;
        carry_out(a, next);
        tell_exhausted(a, waiting);
        run(w, *taken);
        return {outcome::ran, {}};
    }

    void run(worker& w, job& what) noexcept {
        worker* const outer =
            std::exchange(current_, &w); // a simulation may step a worker inside another's job
        const bool interruptible = what.interruptible;
        if (interruptible)
            host_.admit_interrupts(true);
        what.functions->run(what);
        if (interruptible) {
            w.region.leave();
            host_.admit_interrupts(false);
        }
        current_ = outer;
        if (interruptible || what.abandonable || what.keyed || what.rationed ||
            std::exchange(w.has_submitted, false))
            put_down(w, what);
        tell(what, 0);
    }

    void rest(worker& w) noexcept {
        w.idle = true;
        w.rested = true;
        w.idle_until = host_.now() + limits_.idle_time;
        w.in.idle.push_front(w);
    }

    [[nodiscard]] worker_step depart(worker& w) noexcept {
        static_cast<list_node&>(w).unlink();
        w.member.unlink();
        w.idle = false;
        --w.in.workers;
        w.in.departed.add();
        return {worker_step::outcome::leave, {}};
    }

    void left(worker& w) noexcept {
        list<worker> before;
        bool on_its_own = false;
        {
            lock_scope held(ended_lock_);
            on_its_own = orphaned_;
            move_all(ended_, before);
            if (!on_its_own)
                ended_.push_back(w); // from here on the next one may reap it
        }
        if (on_its_own) {
            host_.forget(w);
            delete &w;
        }
        reap_all(before);
        present_.fetch_sub(1, std::memory_order_acq_rel);
        host_.changed();
        release();
    }

    static void move_all(list<worker>& from, list<worker>& to) noexcept {
        while (!from.empty())
            to.push_back(from.pop_front());
    }
    void reap_all(list<worker>& gone) noexcept {
        while (!gone.empty()) {
            worker& w = gone.pop_front();
            host_.reap(w);
            delete &w;
        }
    }

    static inline thread_local worker* current_ = nullptr;

    worker_host& host_;
    worker_pool_limits limits_;
    std::array<account, 2> accounts_;
    typename Sync::template atomic<std::size_t> present_{0};
    typename Sync::template atomic<unsigned> references_{1};
    typename Sync::mutex ended_lock_;
    list<worker> ended_;
    bool orphaned_ = false;
};

} // namespace detail
NOWAIT_END_NAMESPACE
