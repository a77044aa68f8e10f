// Operations of in-process channels under the explorer: the channel's own code, with a lock and atomics that are points at
// which another thread may go on. Every loop has a driver that sleeps under the explorer's eyes, so that a wake that is lost
// is a deadlock that is found.
#pragma once

#include "interleavings.hpp"

#include <nowait/detail/driver.hpp>
#include <nowait/detail/loop.hpp>
#include <nowait/detail/system.hpp>
#include <nowait/stop.hpp>

#include <exception>
#include <memory>
#include <optional>
#include <utility>

namespace nowait_test::channels {

/// The policy whose steps the explorer orders.
struct stepping_sync {
    template <class T>
    class atomic {
    public:
        atomic(T value) noexcept : value_(value) {}
        void store(T value, std::memory_order) noexcept {
            explorer::point();
            value_ = value;
        }
        T exchange(T value, std::memory_order) noexcept {
            explorer::point();
            return std::exchange(value_, value);
        }
        T fetch_add(T n, std::memory_order) noexcept {
            explorer::point();
            return std::exchange(value_, static_cast<T>(value_ + n));
        }
        T fetch_sub(T n, std::memory_order) noexcept {
            explorer::point();
            return std::exchange(value_, static_cast<T>(value_ - n));
        }

    private:
        T value_;
    };
    class mutex {
    public:
        void lock() {
            if (explored())
                (void)explorer::wait_until([this] { return !held_; });
            held_ = true;
        }
        void unlock() noexcept { held_ = false; }

    private:
        bool held_ = false;
    };
    static inline thread_local bool inside = false; // a thread of the scenario
    static bool explored() noexcept { return inside; }
};

/// Sleeps where the explorer can see it.
class visible_driver final : public nowait::detail::driver {
public:
    void arm(nowait::detail::poll_source&) noexcept override {}
    void disarm(nowait::detail::poll_source&) noexcept override {}
    void start(nowait::detail::transfer&) noexcept override {}
    void cancel(nowait::detail::transfer&) noexcept override {}
    bool has_work() const noexcept override { return false; }
    void collect() noexcept override {}
    void wait(time_point) noexcept override {
        if (!explorer::wait_until([this] { return woken_; }))
            lost = true;
        woken_ = false;
    }
    void wake() noexcept override { woken_ = true; }
    void abandon() noexcept override {}
    std::string_view name() const noexcept override { return "visible"; }
    std::size_t pending() const noexcept override { return 0; }

    bool lost = false; // nobody would ever have woken it

private:
    bool woken_ = false;
};

/// One operation on a loop of its own: the body of a thread.
template <class Description>
class lone_operation {
public:
    using operation = typename Description::operation;

    explicit lone_operation(Description what) : operation_(std::move(what)) {}

    /// Starts it, perhaps asks it to stop at once, and runs the loop until it has ended. The body of a thread.
    void run(bool stop = false) {
        stepping_sync::inside = true;
        auto owned = std::make_unique<visible_driver>();
        visible_driver& driver = *owned;
        nowait::detail::loop loop(nowait::detail::real_system(), std::move(owned), 128);
        if (loop.enter() != 0)
            std::terminate();
        nowait::inplace_stop_source source;
        operation_.bind(
            loop, source, [](nowait::detail::operation_base& ended) noexcept { --ended.home().live; },
            nullptr);
        loop.budget = 128;
        if (!operation_.start()) {
            ++loop.live;
            waits = true;
            loop.flush_outbox();
            if (stop)
                source.request_stop();
            while (loop.live != 0 && !driver.lost)
                loop.run_until_idle(nowait::detail::clock::time_point::min()); // one pass at a time
        }
        loop.flush_outbox();
        loop.leave();
        lost = driver.lost;
        if (!lost)
            result.emplace(operation_.take_result());
        stepping_sync::inside = false;
    }

    /// For other threads: goes on when this one waits (or has ended).
    void until_it_waits() const {
        (void)explorer::wait_until([this] { return waits || result.has_value() || lost; });
    }

    std::optional<typename Description::value_type> result;
    bool waits = false;
    bool lost = false;

private:
    operation operation_;
};

template <class Body>
auto inside(Body body) {
    return [body = std::move(body)]() mutable {
        stepping_sync::inside = true;
        body();
        stepping_sync::inside = false;
    };
}

} // namespace nowait_test::channels
