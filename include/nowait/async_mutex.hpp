// A lock that is awaited, and may be held across awaits.
#pragma once

#include <nowait/config.hpp>
#include <nowait/semaphore.hpp>

NOWAIT_BEGIN_NAMESPACE

/// Mutual exclusion, first come first served.
///
///     auto held = co_await mutex.lock();
///     if (held)
///         ...                                 // until `held` goes, also over awaits
///
/// The next in line owns the lock before it runs: nobody barges in, and it may be held by a task whose turn is still to come.
/// It is not recursive: a task that locks it twice waits for itself.
///
/// `async_mutex` is for any threads and runtimes, `local_async_mutex` for one runtime, without an atomic instruction.
/// Borrows: the mutex outlives its guards and those who wait for it.
template <class Sync>
class basic_async_mutex {
public:
    using guard = basic_permit<Sync>;

    basic_async_mutex() noexcept : core_(1) {}
    basic_async_mutex(const basic_async_mutex&) = delete;
    basic_async_mutex& operator=(const basic_async_mutex&) = delete;

    /// Waits for the lock. Returns: a guard that holds it. Errors: operation_canceled: it is not held, and the place in the
    /// line is given up; operation_not_permitted: a local one, and another runtime's tasks wait for it.
    /// Resumes: on the awaiter's runtime.
    [[nodiscard]] detail::acquire_description<Sync> lock() noexcept { return {&core_}; }
    /// The same without waiting. Errors: resource_unavailable_try_again: it is held.
    [[nodiscard]] result<guard> try_lock() noexcept {
        if (const int code = core_.try_take(1); code != 0)
            return fail_errno(code);
        return guard(core_, 1);
    }
    /// For a lock whose guard was told to keep() it. Errors: operation_not_permitted: it is not held.
    result<void> unlock() noexcept {
        if (core_.give(1, 1) != 0)
            return fail(std::errc::operation_not_permitted);
        return {};
    }

    [[nodiscard]] bool held() const noexcept { return core_.available() == 0; }
    /// True if somebody waits.
    [[nodiscard]] bool contended() const noexcept { return core_.contended(); }

private:
    detail::permit_core<Sync> core_;
};

using async_mutex = basic_async_mutex<detail::real_sync>;
using local_async_mutex = basic_async_mutex<detail::local_sync>;

NOWAIT_END_NAMESPACE
