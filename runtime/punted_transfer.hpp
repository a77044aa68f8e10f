// A read or write that may wait, performed by the worker pool for a driver that cannot do better.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/driver.hpp>
#include <nowait/detail/list.hpp>
#include <nowait/detail/sync.hpp>
#include <nowait/detail/system.hpp>
#include <nowait/detail/timer.hpp>
#include <nowait/detail/worker_pool_use.hpp>

#include <cstddef>
#include <utility>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

class loop;

/// Where the transfers of one driver come back. It stays valid when the driver has gone, and then drops them.
class transfer_returns {
public:
    explicit transfer_returns(driver& to) noexcept : to_(&to) {}

    /// Any thread; what is given is the owner's from now on.
    void give(class punted_transfer& done) noexcept;
    [[nodiscard]] bool filled() const noexcept { return newest_.load(std::memory_order_relaxed) != nullptr; }
    /// The owner: what has come back, linked by `next_returned`, oldest first.
    [[nodiscard]] punted_transfer* take() noexcept;
    /// The owner goes. Returns: what had come back and was not taken; what comes later is dropped.
    [[nodiscard]] punted_transfer* close() noexcept;

    void acquire() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept {
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            delete this;
    }

private:
    ~transfer_returns() = default;
    [[nodiscard]] punted_transfer* take_locked() noexcept;

    futex_lock lock_; // over the wake too: it writes to a descriptor that the driver closes
    driver* to_;      // null: closed
    real_sync::atomic<punted_transfer*> newest_{nullptr}; // written under the lock
    real_sync::atomic<unsigned> references_{1};
};

/// Two references: the driver's, until it has taken the outcome, and the pool's. `list_node`s: pool_job's own link is the
/// pool's, `out` is the driver's list of what is under way.
class punted_transfer final : public pool_job {
public:
    /// `bounded`: it ends by itself, and is not interrupted.
    punted_transfer(transfer& of, loop& home, transfer_returns& back, bool bounded) noexcept;

    /// Asks for its end, and again until it has come.
    void end_early() noexcept;
    /// Once more; what has not begun comes back at once.
    void interrupt() noexcept;
    void drop() noexcept {
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            delete this;
    }

    struct place : list_node {
        explicit place(punted_transfer& self) noexcept : of(self) {}
        punted_transfer& of;
    } out{*this};
    transfer* work; ///< the driver's
    punted_transfer* next_returned = nullptr;
    long result = 0;
    bool ending = false;
    worker_pool_state* pool = nullptr;

    /// Hands it to the pool; a refusal comes back as its result.
    void start() noexcept;
    /// The loop's timer is no longer ours.
    void stop_timer() noexcept;

private:
    ~punted_transfer();
    static void perform(pool_job& raw) noexcept;
    void give_back(long outcome) noexcept;

    struct embedded_timer : timer_node {
        punted_transfer* of = nullptr;
    } timer_;
    interrupt_backoff backoff_;
    loop& home_;
    transfer_returns& back_;
    system& calls_;
    // Copied: the transfer is the driver's.
    int fd_;
    bool write_;
    void* data_;
    std::size_t size_;
    real_sync::atomic<unsigned> references_{2};
};

/// What a driver has given to the pool. Used on the driver's thread.
class punted_transfers {
public:
    explicit punted_transfers(driver& of) noexcept : driver_(of) {}
    punted_transfers(const punted_transfers&) = delete;
    punted_transfers& operator=(const punted_transfers&) = delete;

    /// False: there is no memory for it.
    [[nodiscard]] bool punt(transfer& work, bool bounded) noexcept;
    /// True: it is out, and will come back soon.
    [[nodiscard]] bool cancel(const transfer& work) noexcept;
    [[nodiscard]] bool empty() const noexcept { return out_.empty(); }
    /// Something has come back.
    [[nodiscard]] bool filled() const noexcept { return returns_ != nullptr && returns_->filled(); }
    /// `each(transfer&, long result)` for what has.
    template <class F>
    void deliver(F each) noexcept {
        punted_transfer* back = returns_ != nullptr ? returns_->take() : nullptr;
        while (back != nullptr) {
            punted_transfer& done = *std::exchange(back, back->next_returned);
            transfer& work = *done.work;
            const long result = done.result;
            let_go(done);
            each(work, result);
        }
    }
    /// Before the driver waits until `deadline`. While something is asked to end, the loop's timers send the signal again; they rest
    /// while the loop is destroyed.
    void hurry(driver::time_point& deadline, system& calls) noexcept;
    /// The driver goes. What is still out is dropped when it comes back.
    void close() noexcept;

private:
    static void let_go(punted_transfer& done) noexcept;

    driver& driver_;
    list<punted_transfer::place> out_;    // away, or back and not delivered
    transfer_returns* returns_ = nullptr; // made with the first of them
};

} // namespace detail
NOWAIT_END_NAMESPACE
