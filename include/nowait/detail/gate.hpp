// Waiting in the small synchronisation objects: semaphore, mutex, event, latch.
//
// They follow the protocol of detail/waiter.hpp. A waiter that is chosen has been given what it waits for, in the same
// critical section: there is no "try again", so nobody can barge in between, and a stop that comes after the choice finds a
// result to deliver. What was given and can be delivered to nobody, because the awaiting frame is destroyed, is given back.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/list.hpp>
#include <nowait/detail/loop.hpp>
#include <nowait/detail/sync.hpp>
#include <nowait/detail/waiter.hpp>

#include <cerrno>
#include <cstddef>
#include <type_traits>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// What enter() of a core says when the waiter stands in its queue now.
inline constexpr int gate_waits = -1;

class gate_waiter : public channel_waiter {
public:
    int code = ECANCELED; ///< under the core's lock while the waiter is queued; then its own

protected:
    ~gate_waiter() = default;
};

/// The life of an operation on such an object. `Derived` has enter(), which gives 0, an error or gate_waits, and withdraw(),
/// which says whether the waiter was still queued.
template <class Derived, class Waiter>
class gate_operation : public Waiter {
public:
    [[nodiscard]] bool start() noexcept {
        if (this->stop_requested()) [[unlikely]]
            return true;
        if (this->home().budget > 0) [[likely]]
            return attempt();
        this->home().counters_of(operation_kind::other).budget_yields.add();
        deferred_ = true;
        this->run = &run_deferred;
        this->home().post(*this);
        return false;
    }
    void cancel() noexcept {
        if (deferred_) {
            cancelled_ = true; // it is about to run, and sees it
        } else if (armed_ && self().withdraw()) {
            this->code = ECANCELED;
            this->complete_later();
        }
    }

protected:
    template <class... Arguments>
    explicit gate_operation(Arguments... arguments) noexcept : Waiter(arguments...) {}
    ~gate_operation() = default;

    /// For destructors: true if it has been given something that nobody has taken.
    [[nodiscard]] bool abandoned_with_result() noexcept {
        if (armed_ && self().withdraw()) // still queued only if its runtime is being destroyed
            return false;
        return this->code == 0;
    }

    bool armed_ = false; // stands in the queue, or has stood there

private:
    [[nodiscard]] Derived& self() noexcept { return static_cast<Derived&>(*this); }

    [[nodiscard]] bool attempt() noexcept {
        operation_counters& counts = this->home().counters_of(operation_kind::other);
        const int entered = self().enter();
        if (entered == gate_waits) {
            // Another thread may have chosen it by now; its loop, which is this thread's, has not run it yet.
            armed_ = true;
            counts.armed.add();
            this->listen_for_stop([](stop_hook& hook) noexcept {
                static_cast<Derived&>(gate_operation::from_hook(hook)).cancel();
            });
            return false;
        }
        this->code = entered;
        this->home().charge(0);
        counts.inline_completions.add();
        return true;
    }
    static void run_deferred(ready_node& node) noexcept {
        auto& op = static_cast<gate_operation&>(node);
        op.deferred_ = false;
        op.run = [](ready_node& n) noexcept { static_cast<gate_operation&>(n).operation_base::complete(); };
        if (op.cancelled_ || op.stop_requested() || op.attempt())
            op.operation_base::complete();
    }

    bool deferred_ = false; // stands in the ready queue because the turn's budget was spent
    bool cancelled_ = false;
};

/// Under the lock, for a waiter that is unlinked and has its outcome.
template <class Sync>
void wake_chosen(channel_waiter& chosen, const loop* here, wake_list& elsewhere) noexcept {
    if (std::is_same_v<Sync, local_sync> || &chosen.home() == here)
        chosen.home().post(chosen);
    else
        elsewhere.add(chosen, here);
}

/// Waiters of a local object belong to one loop.
template <class Sync, class Waiter>
[[nodiscard]] bool waits_elsewhere(const list<Waiter>& waiting, const loop& here) noexcept {
    if constexpr (std::is_same_v<Sync, local_sync>)
        return !waiting.empty() && &waiting.front().home() != &here;
    else
        return false;
}

// --- counted permits: semaphore and mutex ------------------------------------------------------------------------------

struct permit_waiter : gate_waiter {
    permit_waiter(std::size_t how_many, unsigned how_urgent) noexcept
        : wanted(how_many), urgency(how_urgent) {}
    const std::size_t wanted;
    const unsigned urgency;

protected:
    ~permit_waiter() = default;
};

/// Invariant: the first waiter wants more than there is.
template <class Sync>
class permit_core {
public:
    explicit permit_core(std::size_t permits) noexcept : available_(permits) {}

    [[nodiscard]] int enter(permit_waiter& waiter) noexcept {
        const lock_scope scope(mutex_);
        if (waiter.wanted == 0)
            return EINVAL;
        if (waits_elsewhere<Sync>(waiting_, waiter.home())) [[unlikely]]
            return EPERM;
        const bool its_turn = waiting_.empty() || waiter.urgency > waiting_.front().urgency;
        if (its_turn && waiter.wanted <= available_) {
            available_ -= waiter.wanted;
            return 0;
        }
        place(waiter);
        return gate_waits;
    }
    [[nodiscard]] int try_take(std::size_t wanted) noexcept {
        const lock_scope scope(mutex_);
        if (wanted == 0)
            return EINVAL;
        if (!waiting_.empty() || wanted > available_)
            return EAGAIN;
        available_ -= wanted;
        return 0;
    }
    [[nodiscard]] bool withdraw(permit_waiter& waiter) noexcept {
        wake_list wakes; // sends after the lock
        const lock_scope scope(mutex_);
        if (!waiter.queued())
            return false;
        static_cast<list_node&>(waiter).unlink();
        serve(&waiter.home(), wakes); // the next one may want less
        return true;
    }
    [[nodiscard]] int give(std::size_t permits, std::size_t limit = static_cast<std::size_t>(-1)) noexcept {
        const loop* const here = std::is_same_v<Sync, local_sync> ? nullptr : loop::current();
        wake_list wakes;
        const lock_scope scope(mutex_);
        if (permits > limit - available_)
            return EOVERFLOW;
        available_ += permits;
        serve(here, wakes);
        return 0;
    }
    [[nodiscard]] std::size_t available() const noexcept {
        const lock_scope scope(mutex_);
        return available_;
    }
    [[nodiscard]] bool contended() const noexcept {
        const lock_scope scope(mutex_);
        return !waiting_.empty();
    }

private:
    void serve(const loop* here, wake_list& wakes) noexcept {
        while (!waiting_.empty() && waiting_.front().wanted <= available_) {
            permit_waiter& first = waiting_.pop_front();
            available_ -= first.wanted;
            first.code = 0;
            wake_chosen<Sync>(first, here, wakes);
        }
    }
    /// By urgency, then by arrival: from the tail, so that equals cost nothing.
    void place(permit_waiter& newcomer) noexcept {
        if (waiting_.empty() || waiting_.back().urgency >= newcomer.urgency) {
            waiting_.push_back(newcomer);
            return;
        }
        permit_waiter* behind = &waiting_.back();
        while (behind != &waiting_.front()) {
            auto* const ahead = static_cast<permit_waiter*>(static_cast<list_node&>(*behind).before);
            if (ahead->urgency >= newcomer.urgency)
                break;
            behind = ahead;
        }
        static_cast<list_node&>(newcomer).link_before(*behind);
    }

    mutable typename Sync::mutex mutex_;
    std::size_t available_;
    list<permit_waiter> waiting_;
};

// --- a gate that opens for everybody: event and latch ------------------------------------------------------------------------

/// Invariant: nobody waits while it is open. Open is a count of 0.
template <class Sync>
class gate_core {
public:
    explicit gate_core(std::size_t count) noexcept : count_(count) {}

    [[nodiscard]] int enter(gate_waiter& waiter) noexcept {
        const lock_scope scope(mutex_);
        if (count_ == 0)
            return 0;
        if (waits_elsewhere<Sync>(waiting_, waiter.home())) [[unlikely]]
            return EPERM;
        waiting_.push_back(waiter);
        return gate_waits;
    }
    [[nodiscard]] bool withdraw(gate_waiter& waiter) noexcept {
        const lock_scope scope(mutex_);
        if (!waiter.queued())
            return false;
        static_cast<list_node&>(waiter).unlink();
        return true;
    }
    /// Takes `n` from the count. Errors: EINVAL: there are fewer, and nothing has changed.
    [[nodiscard]] int lower(std::size_t n) noexcept {
        const loop* const here = std::is_same_v<Sync, local_sync> ? nullptr : loop::current();
        wake_list wakes;
        const lock_scope scope(mutex_);
        if (n > count_)
            return EINVAL;
        count_ -= n;
        if (count_ == 0)
            release_all(here, wakes);
        return 0;
    }
    void set_count(std::size_t count) noexcept {
        const loop* const here = std::is_same_v<Sync, local_sync> ? nullptr : loop::current();
        wake_list wakes;
        const lock_scope scope(mutex_);
        count_ = count;
        if (count_ == 0)
            release_all(here, wakes);
    }
    [[nodiscard]] std::size_t count() const noexcept {
        const lock_scope scope(mutex_);
        return count_;
    }

private:
    void release_all(const loop* here, wake_list& wakes) noexcept {
        while (!waiting_.empty()) {
            gate_waiter& first = waiting_.pop_front();
            first.code = 0;
            wake_chosen<Sync>(first, here, wakes);
        }
    }

    mutable typename Sync::mutex mutex_;
    std::size_t count_;
    list<gate_waiter> waiting_;
};

template <class Sync>
class gate_wait_operation;

template <class Sync>
struct gate_wait_description {
    using operation = gate_wait_operation<Sync>;
    using value_type = result<void>;
    gate_core<Sync>* of;
};

template <class Sync>
class gate_wait_operation final : public gate_operation<gate_wait_operation<Sync>, gate_waiter> {
public:
    explicit gate_wait_operation(gate_wait_description<Sync> what) noexcept : core_(what.of) {}
    ~gate_wait_operation() { static_cast<void>(this->abandoned_with_result()); }

    [[nodiscard]] int enter() noexcept { return core_->enter(*this); }
    [[nodiscard]] bool withdraw() noexcept { return core_->withdraw(*this); }
    [[nodiscard]] result<void> take_result() noexcept {
        this->armed_ = false;
        if (this->code != 0)
            return fail_errno(this->code);
        return {};
    }

private:
    gate_core<Sync>* core_;
};

} // namespace detail
NOWAIT_END_NAMESPACE
