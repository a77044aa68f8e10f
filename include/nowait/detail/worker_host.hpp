// Who runs the workers of a pool: threads, or the tasks of a simulation.
//
// A worker is a step function. The host calls it again and again, from one place at a time; between two steps the worker holds
// no lock and has no stack. So a deterministic scheduler can interleave workers as it likes, and the pool's own clock is the
// host's.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/system.hpp>
#include <nowait/detail/worker_pool_job.hpp>

#include <chrono>
#include <cstdint>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

struct worker_step {
    enum class outcome : std::uint8_t {
        ran,  ///< a job: call again
        idle, ///< nothing to do: call again when woken, or at `until`
        leave ///< it has ended: call left(), and never again
    };
    outcome what = outcome::ran;
    std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max();
};

class worker_body {
public:
    worker_body() = default;
    worker_body(const worker_body&) = delete;
    worker_body& operator=(const worker_body&) = delete;

    /// `woken`: the host's wake() was called since the last step.
    [[nodiscard]] virtual worker_step step(bool woken) noexcept = 0;
    /// After step() has said `leave`; the body may be gone when it returns.
    virtual void left() noexcept = 0;

    char name[16] = {};
    bool may_wait = false; ///< it runs work that may wait for ever: of the unbounded account
    // For the host's use.
    worker_host* host = nullptr;
    parking<real_sync> spot;
    thread_handle thread = 0;

protected:
    ~worker_body() = default;
};

class NOWAIT_API worker_host {
public:
    using time_point = std::chrono::steady_clock::time_point;

    virtual ~worker_host();

    [[nodiscard]] virtual time_point now() noexcept = 0;
    /// Steps `body` from now on. 0, or a negative errno value: then it is not stepped. EAGAIN: no thread to be had.
    [[nodiscard]] virtual int start(worker_body& body) noexcept = 0;
    /// Any thread: the next step, soon, is a woken one. From then on the body may be gone.
    virtual void wake(worker_body& body) noexcept = 0;
    /// After left(): waits until nothing of the body's thread is left.
    virtual void reap(worker_body& body) noexcept;
    /// Instead of reap(): nobody will wait. Called by the body's own thread.
    virtual void forget(worker_body& body) noexcept;

    /// Before the first interruptible job: 0, or a negative errno value (EBUSY: the signal has another user).
    [[nodiscard]] virtual int claim_interrupts() noexcept;
    /// The worker that is stepped, around its interruptible job.
    virtual void admit_interrupts(bool admitted) noexcept;
    /// Any thread: ends a system call in which the body's job waits, if it is in one.
    virtual void interrupt(worker_body& body) noexcept;

    /// For threads that wait for workers: a number that changed() changes.
    [[nodiscard]] virtual std::uint32_t changes() noexcept = 0;
    virtual void changed() noexcept = 0;
    /// Waits while changes() is `seen`, at most until `until`; may return early. A simulation lets its workers go on.
    virtual void await_change(std::uint32_t seen, time_point until) noexcept = 0;
};

} // namespace detail
NOWAIT_END_NAMESPACE
