#include "punted_transfer.hpp"

#include <nowait/detail/loop.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <utility>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

// --- transfer_returns ----------------------------------------------------------------------------------------------------

void transfer_returns::give(punted_transfer& done) noexcept {
    {
        lock_scope held(lock_);
        if (to_ != nullptr) {
            punted_transfer* const older = newest_.load(std::memory_order_relaxed);
            done.next_returned = older;
            newest_.store(&done, std::memory_order_relaxed);
            if (older == nullptr)
                to_->wake();
            return;
        }
    }
    done.drop(); // for the driver that is no more
}

punted_transfer* transfer_returns::take_locked() noexcept {
    punted_transfer* newest = newest_.exchange(nullptr, std::memory_order_relaxed);
    punted_transfer* oldest = nullptr;
    while (newest != nullptr) {
        punted_transfer* const older = newest->next_returned;
        newest->next_returned = oldest;
        oldest = newest;
        newest = older;
    }
    return oldest;
}

punted_transfer* transfer_returns::take() noexcept {
    lock_scope held(lock_);
    return take_locked();
}

punted_transfer* transfer_returns::close() noexcept {
    lock_scope held(lock_);
    to_ = nullptr;
    return take_locked();
}

// --- punted_transfer -------------------------------------------------------------------------------------------------------

punted_transfer::punted_transfer(transfer& of, loop& home, transfer_returns& back, bool bounded) noexcept
    : work(&of), home_(home), back_(back), calls_(home.calls()), fd_(of.fd), write_(of.write), data_(of.data),
      size_(of.size) {
    back_.acquire();
    account = bounded ? work_account::bounded : work_account::unbounded;
    interruptible = !bounded;
    static constexpr pool_job_functions mine{&perform,
                                             [](pool_job& raw, int error) noexcept {
                                                 auto& self = static_cast<punted_transfer&>(raw);
                                                 self.give_back(error != 0 ? -error : self.result);
                                             },
                                             [](pool_job& raw) noexcept {
                                                 static_cast<punted_transfer&>(raw).drop();
                                                 return false; // nobody waits for it
                                             }};
    functions = &mine;
    timer_.of = this;
    timer_.on_expiry = [](timer_node& node) noexcept {
        punted_transfer& self = *static_cast<embedded_timer&>(node).of;
        self.ending = false;
        self.end_early();
    };
}

punted_transfer::~punted_transfer() {
    back_.release();
}

void punted_transfer::perform(pool_job& raw) noexcept {
    auto& self = static_cast<punted_transfer&>(raw);
    do
        self.result = self.write_ ? self.calls_.write_waiting(self.fd_, self.data_, self.size_)
                                  : self.calls_.read_waiting(self.fd_, self.data_, self.size_);
    while (self.result == -EINTR && !self.interrupted.load(std::memory_order_relaxed));
}

void punted_transfer::give_back(long outcome) noexcept {
    result = outcome;
    back_.give(*this);
}

void punted_transfer::start() noexcept {
    home_.counters_of(write_ ? operation_kind::write : operation_kind::read).punted.add();
    pool = pool_of(home_);
    const int error = pool != nullptr ? submit_job(*pool, *this) : ENOMEM;
    if (error == 0)
        return;
    give_back(-error);
    drop(); // the pool's reference
}

void punted_transfer::interrupt() noexcept {
    if (pool == nullptr || !cancel_job(*pool, *this))
        return;
    give_back(-ECANCELED);
    drop();
}

void punted_transfer::end_early() noexcept {
    if (std::exchange(ending, true))
        return;
    if (interruptible) {
        timer_.deadline = home_.calls().now() + backoff_.next();
        home_.add_timer(timer_);
    }
    interrupt();
}

void punted_transfer::stop_timer() noexcept {
    if (std::exchange(ending, false) && interruptible)
        home_.remove_timer(timer_);
}

// --- punted_transfers ------------------------------------------------------------------------------------------------------

bool punted_transfers::punt(transfer& work, bool bounded) noexcept {
    if (returns_ == nullptr)
        returns_ = new (std::nothrow) transfer_returns(driver_);
    punted_transfer* const away =
        returns_ != nullptr ? new (std::nothrow) punted_transfer(work, *driver_.home, *returns_, bounded)
                            : nullptr;
    if (away == nullptr)
        return false;
    out_.push_back(away->out);
    away->start();
    return true;
}

bool punted_transfers::cancel(const transfer& work) noexcept {
    punted_transfer* found = nullptr;
    out_.for_each([&](punted_transfer::place& each) {
        if (each.of.work == &work)
            found = &each.of;
    });
    if (found != nullptr)
        found->end_early();
    return found != nullptr;
}

void punted_transfers::let_go(punted_transfer& done) noexcept {
    done.stop_timer();
    done.out.unlink();
    done.drop();
}

void punted_transfers::hurry(driver::time_point& deadline, system& calls) noexcept {
    bool any = false;
    out_.for_each([&any](punted_transfer::place& each) {
        if (each.of.ending && each.of.interruptible) {
            any = true;
            each.of.interrupt();
        }
    });
    if (any)
        deadline = std::min(deadline, calls.now() + std::chrono::milliseconds(5));
}

void punted_transfers::close() noexcept {
    if (returns_ == nullptr)
        return;
    out_.for_each([](punted_transfer::place& each) { each.of.stop_timer(); });
    punted_transfer* back = returns_->close();
    while (back != nullptr)
        let_go(*std::exchange(back, back->next_returned));
    // Links of what is still out are not ours to touch from now on.
    std::exchange(returns_, nullptr)->release();
}

} // namespace detail
NOWAIT_END_NAMESPACE
