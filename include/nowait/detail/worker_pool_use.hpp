// What operations need of a worker pool, without its insides.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/worker_pool_job.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

class loop;
class worker_pool_state;

/// The pool of a loop: the one that its runtime was given, the common one, or one of its own over a simulated system. Null: there
/// is no memory for it.
[[nodiscard]] NOWAIT_API worker_pool_state* pool_of(loop& home) noexcept;
/// The loop goes away.
void leave_pool(loop& home) noexcept;
NOWAIT_API void acquire_pool(worker_pool_state& pool) noexcept;
void release_pool(worker_pool_state& pool) noexcept;

/// 0, and the pool has the job; or a positive errno value: ECANCELED (shut down), EPERM (a child after fork), EDEADLK (see
/// worker_pool_core), EBUSY (interruptible, and the signal has another user).
[[nodiscard]] NOWAIT_API int submit_job(worker_pool_state& pool, pool_job& job) noexcept;
/// True: the job will never run, and the pool has let go of it. False: it runs (and was interrupted, if it can be), or is over.
[[nodiscard]] NOWAIT_API bool cancel_job(worker_pool_state& pool, pool_job& job) noexcept;
/// Waits until the pool has let go of the job, and interrupts it meanwhile. `await_release` says "I wait", and false if there is
/// nothing to wait for any more; the job's release() then says that somebody waits. False: not by the deadline.
[[nodiscard]] NOWAIT_API bool outwait_job(worker_pool_state& pool, pool_job& job,
                                          bool (*await_release)(pool_job&) noexcept,
                                          std::chrono::steady_clock::time_point deadline) noexcept;

/// How long the canceller waits before it sends the signal again: one millisecond, then twice as long each time.
class interrupt_backoff {
public:
    [[nodiscard]] std::chrono::milliseconds next() noexcept {
        const std::chrono::milliseconds now = span_;
        if (span_ < std::chrono::milliseconds(64))
            span_ *= 2;
        return now;
    }

private:
    std::chrono::milliseconds span_{1};
};

} // namespace detail
NOWAIT_END_NAMESPACE
