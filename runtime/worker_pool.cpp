// Worker pools on threads, and who uses which pool.
#include "fork_watch.hpp"
#include "worker_pool_state.hpp"

#include <nowait/detail/loop.hpp>
#include <nowait/detail/timer.hpp>
#include <nowait/detail/worker_pool_use.hpp>
#include <nowait/worker_pool.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include <pthread.h>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

worker_host::~worker_host() = default;
void worker_host::reap(worker_body&) noexcept {}
void worker_host::forget(worker_body&) noexcept {}
int worker_host::claim_interrupts() noexcept {
    return 0;
}
void worker_host::admit_interrupts(bool) noexcept {}
void worker_host::interrupt(worker_body&) noexcept {}

namespace {

/// Workers on threads of a system.
class thread_host final : public worker_host {
public:
    thread_host(system& calls, int signal, bool detached) noexcept
        : calls_(calls), signal_(signal), detached_(detached) {}

    [[nodiscard]] time_point now() noexcept override { return calls_.now(); }

    [[nodiscard]] int start(worker_body& body) noexcept override {
        thread_handle started = 0;
        return calls_.start_thread(body.name, &run, &body, started);
    }
    void wake(worker_body& body) noexcept override { body.spot.unpark(); }
    void reap(worker_body& body) noexcept override {
        if (!detached_)
            calls_.join_thread(body.thread);
    }
    void forget(worker_body& body) noexcept override {
        if (!detached_)
            calls_.detach_thread(body.thread);
    }

    [[nodiscard]] int claim_interrupts() noexcept override { return calls_.claim_signal(signal_); }
    void admit_interrupts(bool admitted) noexcept override { calls_.admit_signal(signal_, admitted); }
    void interrupt(worker_body& body) noexcept override { calls_.signal_thread(body.thread, signal_); }

    [[nodiscard]] std::uint32_t changes() noexcept override {
        return changes_.load(std::memory_order_acquire); // pairs with changed()
    }
    void changed() noexcept override {
        changes_.fetch_add(1, std::memory_order_release);
        if (waiting_.load() != 0) // seq_cst, with the waiter's: it sees the new number, or we see it wait
            futex_wake(changes_, 1 << 20);
    }
    void await_change(std::uint32_t seen, time_point until) noexcept override {
        waiting_.fetch_add(1);
        if (changes_.load() == seen)
            futex_wait_until(changes_, seen, until);
        waiting_.fetch_sub(1);
    }

private:
    static void run(void* raw) {
        auto& body = *static_cast<worker_body*>(raw);
        auto& self = static_cast<thread_host&>(*body.host);
        body.thread = static_cast<thread_handle>(::pthread_self()); // before anything that lets others see it
        if (self.detached_)
            self.calls_.detach_thread(body.thread);
        bool woken = false;
        for (;;) {
            const worker_step step = body.step(std::exchange(woken, false));
            if (step.what == worker_step::outcome::idle) {
                woken = body.spot.park(step.until);
            } else if (step.what == worker_step::outcome::leave) {
                body.left();
                return;
            }
        }
    }

    system& calls_;
    int signal_;
    bool detached_;
    real_sync::atomic<std::uint32_t> changes_{0};
    real_sync::atomic<std::uint32_t> waiting_{0};
};

std::size_t default_bounded() noexcept {
    return std::size_t{4} * std::max(1u, std::thread::hardware_concurrency());
}

} // namespace

// --- worker_pool_state ---------------------------------------------------------------------------------------------------

worker_pool_state::worker_pool_state(std::unique_ptr<worker_host> own, worker_host& host,
                                     const worker_pool_limits& limits, const worker_pool_options& options)
    : worker_pool_core(host, limits), own_host_(std::move(own)), on_exhausted_(options.on_exhausted),
      destructor_wait_(options.destructor_wait), fork_generation_(fork_generation()) {}

worker_pool_state* worker_pool_state::make(const worker_pool_options& options, system& calls, bool common) {
    watch_forks();
    constexpr std::size_t simulated_bounded = 8; // the same on every machine
    worker_pool_limits limits;
    if (options.bounded_max != worker_pool_options::four_per_cpu)
        limits.bounded = options.bounded_max;
    else
        limits.bounded = calls.real() ? default_bounded() : simulated_bounded;
    limits.unbounded = options.unbounded_max;
    limits.idle_time = options.idle_time;
    std::memset(limits.name, 0, sizeof limits.name);
    options.name.copy(limits.name, sizeof limits.name - 1);
    std::unique_ptr<worker_host> own;
    worker_host* host = options.host != nullptr ? options.host : calls.workers();
    if (host == nullptr) {
        own =
            std::make_unique<thread_host>(calls, options.signal != 0 ? options.signal : SIGRTMAX - 3, common);
        host = own.get();
    }
    return new worker_pool_state(std::move(own), *host, limits, options);
}

bool worker_pool_state::forked() const noexcept {
    return fork_generation_ != fork_generation();
}

int worker_pool_state::claim_interrupts() noexcept {
    if (interrupts_claimed_.load(std::memory_order_relaxed))
        return 0;
    const int error = host().claim_interrupts();
    if (error == 0)
        interrupts_claimed_.store(true, std::memory_order_relaxed);
    return -error;
}

void worker_pool_state::exhausted(work_account which, std::size_t queued) noexcept {
    if (on_exhausted_)
        on_exhausted_({which, numbers(which).workers, queued});
}

pool_shutdown_report worker_pool_state::shutdown(std::chrono::nanoseconds limit) noexcept {
    stop();
    const auto deadline = deadline_after(host().now(), limit);
    const std::size_t myself = inside() ? 1 : 0;
    auto queued = [this] {
        return numbers(work_account::bounded).queued + numbers(work_account::unbounded).queued;
    };
    abandon(work_account::unbounded);
    interrupt_backoff backoff;
    for (;;) {
        const std::uint32_t seen = host().changes();
        interrupt_unbounded();
        if (present() <= myself)
            break;
        // What has been abandoned is not waited for; but work that waits behind it is, as long as there is time.
        if (present() <= myself + running().abandoned && queued() == 0)
            break;
        const auto now = host().now();
        if (now >= deadline) {
            abandon(work_account::bounded);
            break;
        }
        host().await_change(seen, std::min(deadline, now + backoff.next()));
    }
    pool_shutdown_report report;
    report.dropped = queued();
    drop_queued();
    const running_work left = running();
    report.abandoned = left.abandoned;
    report.unfinished = left.all - std::min(left.all, left.abandoned + myself);
    reap(false);
    return report;
}

void worker_pool_state::close() noexcept {
    if (forked())
        return; // its locks may have been held, and its threads have stayed with the parent
    (void)shutdown(destructor_wait_);
    reap(true);
    release();
}

// --- for operations -------------------------------------------------------------------------------------------------------

worker_pool_state* pool_of(loop& home) noexcept {
    if (home.pool != nullptr)
        return home.pool;
    try {
        if (home.calls().real()) {
            worker_pool_state* const common = worker_pool::common().state();
            common->acquire();
            home.pool = common;
        } else {
            home.pool = worker_pool_state::make({}, home.calls(), false);
            home.owns_pool = true;
        }
    } catch (...) {
        return nullptr;
    }
    return home.pool;
}

void leave_pool(loop& home) noexcept {
    worker_pool_state* const pool = std::exchange(home.pool, nullptr);
    if (pool == nullptr)
        return;
    if (home.owns_pool)
        pool->close();
    else if (!pool->forked())
        pool->release();
}

void acquire_pool(worker_pool_state& pool) noexcept {
    pool.acquire();
}
void release_pool(worker_pool_state& pool) noexcept {
    if (!pool.forked())
        pool.release();
}

int submit_job(worker_pool_state& pool, pool_job& job) noexcept {
    if (pool.forked())
        return EPERM;
    if (job.interruptible) {
        if (const int error = pool.claim_interrupts(); error != 0)
            return error;
    }
    return pool.submit(job);
}

bool cancel_job(worker_pool_state& pool, pool_job& job) noexcept {
    return pool.cancel(job) == job_removal::removed;
}

bool outwait_job(worker_pool_state& pool, pool_job& job, bool (*await_release)(pool_job&) noexcept,
                 std::chrono::steady_clock::time_point deadline) noexcept {
    interrupt_backoff backoff;
    for (;;) {
        const std::uint32_t seen = pool.host().changes();
        if (!await_release(job))
            return true;
        (void)pool.cancel(job); // interrupts it
        const auto now = pool.host().now();
        if (now >= deadline)
            return false;
        pool.host().await_change(seen,
                                 job.interruptible ? std::min(deadline, now + backoff.next()) : deadline);
    }
}

} // namespace detail

// --- worker_pool -----------------------------------------------------------------------------------------------------------

result<worker_pool> worker_pool::create(const worker_pool_options& options) {
    constexpr std::size_t most = 32768;
    const auto possible = [](std::size_t maximum) { return maximum >= 1 && maximum <= most; };
    if ((!possible(options.bounded_max) && options.bounded_max != worker_pool_options::four_per_cpu) ||
        !possible(options.unbounded_max) || options.idle_time < std::chrono::nanoseconds::zero() ||
        options.name.size() > 7 ||
        (options.signal != 0 && (options.signal < SIGRTMIN || options.signal > SIGRTMAX)))
        return fail(std::errc::invalid_argument);
    try {
        return worker_pool(detail::worker_pool_state::make(options, detail::real_system(), false));
    } catch (const std::bad_alloc&) {
        return fail(std::errc::not_enough_memory);
    }
}

worker_pool& worker_pool::common() {
    // Never destroyed: its threads may be at work when the process ends. And not a local static: the child of a fork makes its
    // own, and whoever was making one stayed behind.
    static detail::real_sync::atomic<worker_pool*> made{nullptr};
    worker_pool* present = made.load(std::memory_order_acquire); // pairs with the exchange below
    while (present == nullptr || present->state_->forked()) {
        auto fresh = std::unique_ptr<worker_pool>(
            new worker_pool(detail::worker_pool_state::make({}, detail::real_system(), true)));
        if (made.compare_exchange_strong(present, fresh.get(), std::memory_order_acq_rel,
                                         std::memory_order_acquire))
            return *fresh.release();
    }
    return *present;
}

worker_pool::~worker_pool() {
    if (state_ != nullptr)
        state_->close();
}

pool_shutdown_report worker_pool::shutdown(std::chrono::nanoseconds limit) {
    if (state_ == nullptr || state_->forked())
        return {};
    return state_->shutdown(limit);
}

worker_pool_stats worker_pool::stats() const noexcept {
    worker_pool_stats all;
    if (state_ == nullptr || state_->forked())
        return all;
    for (const auto which : {work_account::bounded, work_account::unbounded}) {
        const detail::worker_account_numbers from = state_->numbers(which);
        const bool bounded = which == work_account::bounded;
        worker_account_stats& to = bounded ? all.bounded : all.unbounded;
        to.workers = from.workers;
        to.idle = from.idle;
        to.queued = from.queued;
        to.maximum = bounded ? state_->limits().bounded : state_->limits().unbounded;
        to.submitted = from.submitted;
        to.taken = from.taken;
        to.cancelled = from.cancelled;
        to.failed = from.failed;
        to.refused = from.refused;
        to.threads_started = from.started;
        to.threads_not_started = from.not_started;
        to.threads_left = from.left;
        to.exhausted = from.exhausted;
        to.interrupts = from.interrupts;
    }
    return all;
}

NOWAIT_END_NAMESPACE
