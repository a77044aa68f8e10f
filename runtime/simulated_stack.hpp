// A stack of its own for a simulated worker, so that a job may wait in the middle of a call. It is a real thread that runs in lock step: it
// runs only while whoever steps it waits for it. So one of all runs at a time, and a run can still be repeated.
#pragma once

#include <nowait/config.hpp>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

class simulated_stack {
public:
    using function = void (*)(void* context);

    /// `what(context)` is what each round runs. Throws std::system_error: no thread is to be had.
    simulated_stack(function what, void* context)
        : what_(what), context_(context), thread_([this] { live(); }) {}
    simulated_stack(const simulated_stack&) = delete;
    simulated_stack& operator=(const simulated_stack&) = delete;
    /// Not in the middle of a round.
    ~simulated_stack() {
        over_ = true;
        (void)go_on();
        thread_.join();
    }

    /// Begins a round, or goes on with one that was paused. True: it has come to its end.
    bool go_on() {
        std::unique_lock held(lock_);
        done_ = false;
        hand_to(held, side::worker);
        return done_;
    }

    /// On the stack: control goes back to whoever said go_on(), until the next time.
    void pause() {
        std::unique_lock held(lock_);
        hand_to(held, side::stepper);
    }

    /// The one that this code runs on, or null.
    [[nodiscard]] static simulated_stack* current() noexcept { return current_; }

private:
    enum class side : bool { stepper, worker };

    void hand_to(std::unique_lock<std::mutex>& held, side other) {
        const side self = turn_;
        turn_ = other;
        changed_.notify_all();
        changed_.wait(held, [this, self] { return turn_ == self; });
    }

    void live() {
        current_ = this;
        std::unique_lock held(lock_);
        changed_.wait(held, [this] { return turn_ == side::worker; });
        while (!over_) {
            held.unlock();
            what_(context_);
            held.lock();
            done_ = true;
            hand_to(held, side::stepper);
        }
        turn_ = side::stepper;
        changed_.notify_all();
    }

    static inline thread_local simulated_stack* current_ = nullptr;

    const function what_;
    void* const context_;
    std::mutex lock_;
    std::condition_variable changed_;
    side turn_ = side::stepper; // all of these under the lock, or by the side whose turn it is
    bool done_ = false;
    bool over_ = false;
    std::thread thread_; // the last: it uses the others
};

} // namespace detail
NOWAIT_END_NAMESPACE
