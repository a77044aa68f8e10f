// A lock that is awaited: whole records on a stream that several tasks write to.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/list.hpp>
#include <nowait/detail/loop.hpp>
#include <nowait/detail/operation.hpp>
#include <nowait/result.hpp>

#include <utility>

NOWAIT_BEGIN_NAMESPACE

/// Mutual exclusion among the tasks of one runtime, first come first served.
///
///     auto turn = co_await lock.acquire();
///     if (turn)
///         co_await write_all(writer, record);
///
/// The lock is released by the guard's destructor; the next one in line then owns it, before it runs: nobody barges in.
/// A record whose write_all ends early (a stop, an error) is in the stream as far as its progress says.
///
/// Borrows: the lock outlives its guards and those who wait for it. For one runtime's thread.
class write_lock {
public:
    class guard;
    class acquire_operation;
    struct acquire_description {
        using operation = acquire_operation;
        using value_type = result<guard>;
        write_lock* of;
    };

    write_lock() = default;
    write_lock(const write_lock&) = delete;
    write_lock& operator=(const write_lock&) = delete;

    /// Waits for the lock. Returns: a guard that holds it. Errors: operation_canceled: it is not held, and the place in
    /// the line is given up. Borrows: the lock. Resumes: on the awaiter's runtime.
    [[nodiscard]] acquire_description acquire() noexcept { return {this}; }

    [[nodiscard]] bool held() const noexcept { return held_; }
    /// True if somebody waits.
    [[nodiscard]] bool contended() const noexcept { return !waiters_.empty(); }

private:
    inline void release() noexcept;

    // Invariant: if there are waiters, the lock is held: by a guard, or by an operation that has been given it.
    bool held_ = false;
    detail::list<acquire_operation> waiters_;
};

/// The right to write. Movable; an empty one holds nothing.
class [[nodiscard]] write_lock::guard {
public:
    guard() = default;
    guard(guard&& other) noexcept : lock_(std::exchange(other.lock_, nullptr)) {}
    guard& operator=(guard&& other) noexcept {
        if (this != &other) {
            release();
            lock_ = std::exchange(other.lock_, nullptr);
        }
        return *this;
    }
    ~guard() { release(); }

    [[nodiscard]] bool owns() const noexcept { return lock_ != nullptr; }
    /// Before the destructor does it.
    void release() noexcept {
        if (lock_ != nullptr)
            std::exchange(lock_, nullptr)->release();
    }

private:
    friend class acquire_operation;
    explicit guard(write_lock* lock) noexcept : lock_(lock) {}
    write_lock* lock_ = nullptr;
};

class write_lock::acquire_operation final : public detail::operation_base, public detail::list_node {
public:
    explicit acquire_operation(acquire_description what) noexcept : lock_(what.of) {}
    ~acquire_operation() {
        detail::list_node::unlink();
        if (granted_) // given, and never taken: the awaiting frame was destroyed
            lock_->release();
    }

    [[nodiscard]] bool start() noexcept {
        detail::operation_counters& counts = home().counters_of(operation_kind::other);
        if (stop_requested())
            return true;
        if (!lock_->held_) {
            lock_->held_ = granted_ = true;
            home().charge(0);
            if (home().budget >= 0) {
                counts.inline_completions.add();
                return true;
            }
            counts.budget_yields.add();
            complete_later();
            return false;
        }
        counts.armed.add();
        lock_->waiters_.push_back(*this);
        listen_for_stop([](detail::stop_hook& hook) noexcept {
            static_cast<acquire_operation&>(from_hook(hook)).cancel();
        });
        return false;
    }
    void cancel() noexcept {
        if (!detail::list_node::linked())
            return; // given already: the result stands
        detail::list_node::unlink();
        complete_later();
    }
    [[nodiscard]] result<guard> take_result() noexcept {
        if (!granted_)
            return fail(std::errc::operation_canceled);
        granted_ = false;
        return guard(lock_);
    }

private:
    friend class write_lock;
    void grant() noexcept {
        granted_ = true;
        complete_later();
    }

    write_lock* lock_;
    bool granted_ = false;
};

inline void write_lock::release() noexcept {
    if (waiters_.empty())
        held_ = false;
    else
        waiters_.pop_front().grant();
}

NOWAIT_END_NAMESPACE
