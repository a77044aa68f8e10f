// What a worker pool runs, and the two hand-shakes around it: who tells the end, and when a signal may be sent.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/list.hpp>
#include <nowait/detail/sync.hpp>

#include <chrono>
#include <cstdint>
#include <new>

NOWAIT_BEGIN_NAMESPACE

/// Which of a pool's two accounts work belongs to. They have workers of their own, so the second cannot starve the first.
enum class work_account : std::uint8_t {
    bounded,  ///< ends by itself in bounded time: regular files, look-ups, computing
    unbounded ///< may wait for ever: a terminal, the open of a FIFO, somebody else's lock
};

namespace detail {

/// Sleep and wake of one thread. A wake that comes early is kept.
template <class Sync>
class parking {
public:
    /// The owner. True: unpark() was called since the last time.
    bool park(std::chrono::steady_clock::time_point until) noexcept {
        // Acquire pairs with the release in unpark().
        if (word_.exchange(asleep, std::memory_order_acq_rel) == awake_with_permit) {
            word_.store(awake, std::memory_order_relaxed);
            return true;
        }
        Sync::wait(word_, asleep, until);
        return word_.exchange(awake, std::memory_order_acq_rel) == awake_with_permit;
    }
    /// Any thread. From the exchange on, the owner may be gone: what follows uses the address only.
    void unpark() noexcept {
        if (word_.exchange(awake_with_permit, std::memory_order_acq_rel) == asleep)
            Sync::wake(word_);
    }

private:
    static constexpr std::uint32_t awake = 0, awake_with_permit = 1, asleep = 2;
    typename Sync::template atomic<std::uint32_t> word_{awake};
};

/// The stretch of a worker's life in which a signal may be sent to it. It is left only when no send is in progress, so what the
/// thread does next is never hit.
template <class Sync>
class signal_region {
public:
    /// The worker; the region is closed.
    void open() noexcept { word_.store(1, std::memory_order_release); }

    /// The worker: nobody begins to send from now on, and whoever has begun is through.
    void leave() noexcept {
        std::uint32_t seen = word_.fetch_sub(1, std::memory_order_acq_rel) - 1;
        while (seen != 0) {
            Sync::wait(word_, seen, std::chrono::steady_clock::time_point::max());
            seen = word_.load(std::memory_order_acquire); // pairs with end_send(): the signal has been sent
        }
    }

    /// Any thread that knows the worker to be there. True: it stays in the region until end_send().
    [[nodiscard]] bool begin_send() noexcept {
        std::uint32_t seen = word_.load(std::memory_order_relaxed);
        do {
            if ((seen & 1) == 0)
                return false;
        } while (!word_.compare_exchange_strong(seen, seen + 2, std::memory_order_acq_rel,
                                                std::memory_order_relaxed));
        return true;
    }
    void end_send() noexcept {
        if (word_.fetch_sub(2, std::memory_order_acq_rel) == 2) // closed, and this was the last send
            Sync::wake(word_);
    }

private:
    typename Sync::template atomic<std::uint32_t> word_{0}; // bit 0: open; above it: sends in progress
};

template <class Sync>
struct basic_pool_job;

/// What a job does, and how its submitter hears of it.
template <class Sync>
struct basic_pool_job_functions {
    void (*run)(basic_pool_job<Sync>&) noexcept;              ///< on a worker, under no lock
    void (*ended)(basic_pool_job<Sync>&, int error) noexcept; ///< it has run (0), or never will
    /// The pool's last touch. True: a thread waits for it by the host's means.
    bool (*release)(basic_pool_job<Sync>&) noexcept;
};

/// What stands in a pool's queue. The submitter owns the memory; the pool uses it from a submit() that succeeded until
/// release(), and calls ended() exactly once in between, unless the submitter has claimed the end of abandonable work for itself.
template <class Sync>
struct basic_pool_job : list_node {
    /// Where the job stands. Under its account's lock.
    enum class stage : std::uint8_t { outside, queued, running, over };

    // Written by the submitter, before:
    const basic_pool_job_functions<Sync>* functions = nullptr;
    std::uint64_t key = 0;
    work_account account = work_account::bounded;
    bool keyed = false;
    bool parallel = false;
    bool interruptible = false;
    bool abandonable = false;
    bool rationed = false; ///< half of the account's workers at most are for such work; it has no key

    // The pool's own.
    stage at = stage::outside;
    bool beyond_ration = false; // stands in the line of those that are more than may run
    /// Somebody has asked the job to end early. Set before the first signal is sent; the job may look at it.
    typename Sync::template atomic<bool> interrupted{false};
    void* worker = nullptr;    // that runs it, if it can be signalled
    void* submitter = nullptr; // the worker whose own work has submitted it and waits

    /// Of abandonable work, the end is told by whoever claims it first: its worker, or who abandons it. Acquire and release: what
    /// was done before is seen by whoever comes second.
    [[nodiscard]] bool claim_end() noexcept { return !told_.exchange(true, std::memory_order_acq_rel); }
    [[nodiscard]] bool end_claimed() const noexcept { return told_.load(std::memory_order_relaxed); }

    struct place : list_node {
        explicit place(basic_pool_job& self) noexcept : job(self) {}
        basic_pool_job& job;
    };
    struct key_places {
        explicit key_places(basic_pool_job& self) noexcept : in_table(self), in_line(self) {}
        place in_table; // the first job of a key, in the table of keys
        place in_line;  // all jobs of a key, in a ring; the first one runs or stands in the ready queue
    };
    /// Of work with a key. Made when it is submitted: most work has none, and does not touch the memory.
    [[nodiscard]] key_places& in_keys() noexcept { return in_keys_; }
    void make_key_places() noexcept { ::new (static_cast<void*>(&in_keys_)) key_places(*this); }

    basic_pool_job() noexcept {}
    basic_pool_job(const basic_pool_job&) = delete;
    basic_pool_job& operator=(const basic_pool_job&) = delete;

private:
    typename Sync::template atomic<bool> told_{false};
    union {
        key_places in_keys_;
    };

protected:
    ~basic_pool_job() {} // the places are links only: whoever submitted it has seen it leave the pool
};

using pool_job = basic_pool_job<real_sync>;
using pool_job_functions = basic_pool_job_functions<real_sync>;

} // namespace detail
NOWAIT_END_NAMESPACE
