// Worker pools: the threads that run what would block a loop.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/worker_pool_job.hpp>
#include <nowait/result.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

class loop;
class system;
class worker_host;
class worker_pool_state;

} // namespace detail

/// What `worker_pool_options::on_exhausted` is told.
struct pool_exhaustion {
    work_account account;
    /// The account's maximum, or fewer if no more threads are to be had, or if it is rationed work that waits.
    std::size_t workers;
    std::size_t queued; ///< work that waits
};

struct worker_pool_options {
    static constexpr std::size_t four_per_cpu = static_cast<std::size_t>(-1);
    /// Workers of the bounded account, at most.
    std::size_t bounded_max = four_per_cpu;
    /// Workers of the unbounded account, at most: so many things may be waited for at once.
    std::size_t unbounded_max = 64;
    /// How long a worker stays without work. The last one of an account stays for good.
    std::chrono::nanoseconds idle_time = std::chrono::seconds(5);
    /// Of the threads, up to seven characters: "nowait-b1" is the first of the bounded account, "nowait-u1" of the other.
    std::string name = "nowait";
    /// The signal that interrupts work; 0 is SIGRTMAX - 3. Used only by a program that asks for interruptible work, and only if its
    /// disposition is the default one.
    int signal = 0;
    /// How long the destructor waits for work that runs.
    std::chrono::nanoseconds destructor_wait = std::chrono::seconds(5);
    /// Called when work has to wait because every worker that its account may have is at work, or if it is rationed (the openings of
    /// FIFOs are) every one of the half that it may have. Once for each time that it comes to this, on the thread that submitted or on a worker. It must not throw.
    std::function<void(const pool_exhaustion&)> on_exhausted{};
    /// For tests and simulations: who runs the workers. Borrows: outlives the pool and its workers.
    detail::worker_host* host = nullptr;
};

/// A snapshot of one account.
struct worker_account_stats {
    std::size_t workers = 0; ///< threads, those about to start included
    std::size_t idle = 0;
    std::size_t queued = 0; ///< work that waits now
    std::size_t maximum = 0;
    std::uint64_t submitted = 0;
    std::uint64_t taken = 0;     ///< run
    std::uint64_t cancelled = 0; ///< taken back before it began
    std::uint64_t failed = 0;    ///< ended with an error before it began
    std::uint64_t refused = 0;   ///< not accepted: the pool was shut down, or would have waited for itself
    std::uint64_t threads_started = 0;
    std::uint64_t threads_not_started = 0; ///< the system refused
    std::uint64_t threads_left = 0;
    std::uint64_t exhausted =
        0; ///< times that work had to wait because all workers that it may have were busy
    std::uint64_t interrupts = 0; ///< signals sent
};

struct worker_pool_stats {
    worker_account_stats bounded, unbounded;
};

/// What worker_pool::shutdown() could not bring to an end.
struct pool_shutdown_report {
    std::size_t abandoned = 0;  ///< abandonable work that still runs
    std::size_t unfinished = 0; ///< other work that still runs
    std::size_t dropped = 0; ///< pending work that ended with operation_canceled because the limit had passed
    [[nodiscard]] bool complete() const noexcept { return abandoned == 0 && unfinished == 0 && dropped == 0; }
};

/// A pool of worker threads with two accounts. A runtime uses the one it was given, or the process's common one. Any number of
/// runtimes may share a pool; every function here is for any thread. No thread is started before there is work.
class NOWAIT_API worker_pool {
public:
    /// Errors: invalid_argument: a maximum of 0 or above 32768, a negative idle time, a name longer than seven
    /// characters, a signal that is none of the real-time ones; not_enough_memory.
    [[nodiscard]] static result<worker_pool> create(const worker_pool_options& options = {});
    /// The pool of runtimes that were not given one. It is made at first use and lasts as long as the process; its threads
    /// do not keep the process from ending. In a child after fork it is a new one.
    [[nodiscard]] static worker_pool& common();

    worker_pool(worker_pool&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
    worker_pool& operator=(worker_pool&& other) noexcept {
        std::swap(state_, other.state_);
        return *this;
    }
    /// shutdown(destructor_wait). What runs after that has only its own memory, and its thread ends after it.
    ~worker_pool();

    /// Refuses new work, cancels pending unbounded work, interrupts what can be interrupted on the unbounded account, finishes
    /// bounded work, and waits for the threads; at most for `limit`, and not for work that was abandoned. Safe on a worker of
    /// this pool, which does not wait for itself, and more than once.
    pool_shutdown_report shutdown(std::chrono::nanoseconds limit);

    [[nodiscard]] worker_pool_stats stats() const noexcept;

    /// For the library's own layers.
    [[nodiscard]] detail::worker_pool_state* state() const noexcept { return state_; }

private:
    explicit worker_pool(detail::worker_pool_state* state) noexcept : state_(state) {}

    detail::worker_pool_state* state_ = nullptr;
};

NOWAIT_END_NAMESPACE
