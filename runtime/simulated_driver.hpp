// The waiting half of a kernel that does not exist: a ring of submissions and completions, where completions take their time.
#pragma once

#include "simulated_world.hpp"

#include <nowait/detail/driver.hpp>

#include <cstddef>
#include <deque>
#include <memory>
#include <string_view>
#include <vector>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// Submissions are queued until somebody collects or waits. An armed poll holds the description, as in the kernel: an end that is
/// polled has not gone. It tests the level when it is submitted, reports edges from then on, and is looked at again when it
/// reports: what an edge promised may be gone by then.
class simulated_driver final : public driver {
public:
    enum class flavour : std::uint8_t {
        ring,     ///< as io_uring
        readiness ///< as epoll, for where the ring is refused: what cannot be polled says EPERM
    };

    simulated_driver(simulated_world& in, flavour kind);
    ~simulated_driver() override;

    // --- for the world ---------------------------------------------------------------------------------------------------

    void edge(const simulated_object& object, int events) noexcept;
    /// When the next completion arrives; time_point::max() if nothing is under way.
    [[nodiscard]] time_point next_arrival() const noexcept;
    [[nodiscard]] bool woken() const noexcept { return woken_; }
    [[nodiscard]] bool take_wake() noexcept { return std::exchange(woken_, false); }
    /// The first half of a wait.
    void submit() noexcept;
    /// Whether a transfer that has not come back works on any of these bytes.
    [[nodiscard]] bool works_on(const void* data, std::size_t size) const noexcept;
    std::size_t index = 0; ///< of its runtime, for the trace

    // --- driver ----------------------------------------------------------------------------------------------------------

    void arm(poll_source& source) noexcept override;
    void disarm(poll_source& source) noexcept override;
    void start(class transfer& work) noexcept override;
    void cancel(class transfer& work) noexcept override;
    [[nodiscard]] bool has_work() const noexcept override { return !submissions_.empty() || signalled(); }
    [[nodiscard]] bool signalled() const noexcept override { return next_arrival() <= world_.now; }
    void collect() noexcept override;
    void wait(time_point deadline) noexcept override;
    void wake() noexcept override;
    [[nodiscard]] int failure() const noexcept override { return failure_; }
    void abandon() noexcept override {}
    [[nodiscard]] std::string_view name() const noexcept override {
        return flavour_ == flavour::ring ? "simulated ring" : "simulated readiness";
    }
    [[nodiscard]] std::size_t pending() const noexcept override { return held_; }

private:
    enum class request : std::uint8_t { arm, disarm, start, cancel };
    struct submission {
        request what;
        driver_target* target;
    };
    struct watch {
        poll_source* source;
        std::shared_ptr<simulated_description> of;
        time_point event_at;   // an edge has come, and is reported then
        time_point removal_at; // likewise for a removal
    };
    struct work_item {
        class transfer* work;
        std::shared_ptr<simulated_description> of;
        time_point look_at; // never: it waits for an edge
        time_point cancel_at;
    };
    struct report {
        driver_target* target;
        long result;
        bool more;
        time_point at;
    };

    void submit_one(const submission& what) noexcept;
    void say(driver_target& target, long result, bool more) noexcept;
    /// False: the watch has gone.
    [[nodiscard]] bool look(watch& w) noexcept;
    [[nodiscard]] bool look(work_item& w) noexcept;
    bool deliver() noexcept;
    [[nodiscard]] watch* watch_of(const driver_target& source) noexcept;
    [[nodiscard]] work_item* item_of(const driver_target& work) noexcept;

    simulated_world& world_;
    const flavour flavour_;
    std::deque<submission> submissions_;
    std::vector<watch> watches_;
    std::vector<work_item> items_;
    std::deque<report> reports_;
    std::size_t held_ = 0;
    bool woken_ = false;
    int failure_ = 0;
};

} // namespace detail
NOWAIT_END_NAMESPACE
