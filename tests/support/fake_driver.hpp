// The waiting half of the seam without a kernel: the test sees what is armed, and says what happens.
#pragma once

#include "fake_system.hpp"

#include <nowait/detail/driver.hpp>
#include <nowait/runtime.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

namespace nowait_test {

/// Reports the fake system's edges by itself (unless `automatic` is off) and whatever the test fires. Waiting costs no time:
/// wait() moves the clock to the deadline.
class fake_driver final : public nowait::detail::driver {
public:
    using poll_source = nowait::detail::poll_source;
    using transfer = nowait::detail::transfer;
    using target = nowait::detail::driver_target;

    explicit fake_driver(fake_system& calls) noexcept : calls_(calls) {}

    /// Events come from the fake system's pipes.
    bool automatic = true;
    /// False: every report of a poll is its last one, as from a kernel without multishot.
    bool multishot = true;
    /// The next so many reports of polls say that they are the last ones though they were to go on.
    int early_ends = 0;
    /// The next polls that are armed end at once with this (negative) result.
    std::deque<long> refusals;
    /// Last reports of removed polls and of cancelled transfers wait until let_go().
    bool hold_removals = false;
    bool hold_cancels = false;
    /// Called when the loop would sleep for ever. It must make something happen; without it the test has hung and aborts.
    std::function<void()> when_idle;

    // What is armed now, oldest first.
    std::vector<poll_source*> polls;
    std::vector<transfer*> transfers;
    [[nodiscard]] poll_source* poll_of(int fd) const noexcept;

    std::size_t arms = 0, disarms = 0, starts = 0, cancels = 0, waits = 0;

    /// Queues a report: delivered by the next collect() or wait().
    void fire(target& to, long result, bool more);
    void let_go();

    void arm(poll_source& source) noexcept override;
    void disarm(poll_source& source) noexcept override;
    void start(transfer& work) noexcept override;
    void cancel(transfer& work) noexcept override;
    [[nodiscard]] bool has_work() const noexcept override;
    void collect() noexcept override;
    void wait(time_point deadline) noexcept override;
    void wake() noexcept override { woken_ = true; }
    void abandon() noexcept override {}
    [[nodiscard]] std::string_view name() const noexcept override { return "fake"; }
    [[nodiscard]] std::size_t pending() const noexcept override { return polls.size() + transfers.size(); }

private:
    struct report {
        target* to;
        long result;
        bool more;
    };

    bool find_events() noexcept;
    bool deliver() noexcept;
    void forget(target& gone) noexcept;

    fake_system& calls_;
    std::deque<report> due_;
    std::deque<report> held_;
    std::map<poll_source*, std::uint64_t> seen_edges_;
    bool woken_ = false;
};

/// A runtime on the fakes. Make it first: pipes and tasks go before it.
struct fake_world {
    fake_system calls;
    fake_driver* driver = nullptr;

    [[nodiscard]] nowait::runtime make(nowait::runtime_options options = {});
};

} // namespace nowait_test
