// Workers without threads: the test steps them, and moves their clock.
#pragma once

#include <nowait/detail/worker_host.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace nowait_test {

class stepping_host final : public nowait::detail::worker_host {
public:
    using worker_body = nowait::detail::worker_body;
    using worker_step = nowait::detail::worker_step;

    time_point clock{std::chrono::hours(1)};
    int refuse = 0; ///< the next so many starts end with `refusal`
    int refusal = -EAGAIN;
    int claim = 0; ///< what claim_interrupts() says
    std::vector<std::string> started;
    std::size_t wakes = 0, interrupts = 0, reaped = 0, forgotten = 0;

    [[nodiscard]] std::size_t alive() const noexcept { return workers_.size(); }
    /// Workers that would step now: new, woken, through with a job, or whose time has come.
    [[nodiscard]] std::size_t able() const noexcept {
        return static_cast<std::size_t>(
            std::count_if(workers_.begin(), workers_.end(), [this](const entry& e) { return can(e); }));
    }

    /// One step of the first worker that is able, in order of their start. False: none is.
    bool step_one() {
        for (std::size_t i = 0; i < workers_.size(); ++i) {
            if (can(workers_[i])) {
                step(i);
                return true;
            }
        }
        return false;
    }
    /// Until nobody is able.
    void run() {
        while (step_one()) {
        }
    }
    /// Time passes, and whoever waited for it goes on.
    void advance(std::chrono::nanoseconds span) {
        clock += span;
        run();
    }
    /// A step that nobody has asked for.
    void step_for_nothing(std::size_t index) { step(index); }
    [[nodiscard]] std::string name(std::size_t index) const { return workers_[index].body->name; }

    time_point now() noexcept override { return clock; }
    int start(worker_body& body) noexcept override {
        if (refuse > 0) {
            --refuse;
            return refusal;
        }
        started.emplace_back(body.name);
        workers_.push_back({&body, true, false, false, time_point::max()});
        return 0;
    }
    void wake(worker_body& body) noexcept override {
        ++wakes;
        for (entry& e : workers_) {
            if (e.body == &body)
                e.woken = true;
        }
    }
    void reap(worker_body&) noexcept override { ++reaped; }
    void forget(worker_body&) noexcept override { ++forgotten; }
    int claim_interrupts() noexcept override { return claim; }
    void interrupt(worker_body&) noexcept override { ++interrupts; }
    std::uint32_t changes() noexcept override { return changes_; }
    void changed() noexcept override { ++changes_; }
    void await_change(std::uint32_t seen, time_point until) noexcept override {
        if (changes_ == seen && !step_one())
            clock = std::max(clock, until); // nobody has anything to do: time passes
    }

private:
    struct entry {
        worker_body* body;
        bool able;
        bool woken;
        bool stepping; // it is inside a job, which lets others step
        time_point until;
    };
    [[nodiscard]] bool can(const entry& e) const noexcept {
        return !e.stepping && (e.able || e.woken || e.until <= clock);
    }
    void step(std::size_t index) {
        worker_body& body = *workers_[index].body;
        workers_[index].stepping = true;
        workers_[index].able = false;
        const bool woken = std::exchange(workers_[index].woken, false);
        const worker_step did = body.step(woken);
        const auto at = std::find_if(workers_.begin(), workers_.end(),
                                     [&body](const entry& e) { return e.body == &body; });
        at->stepping = false;
        at->until = did.until;
        at->able = did.what == worker_step::outcome::ran;
        if (at->able)
            at->until = time_point::max();
        if (did.what == worker_step::outcome::leave) {
            workers_.erase(at);
            body.left();
        }
    }

    std::vector<entry> workers_;
    std::uint32_t changes_ = 0;
};

} // namespace nowait_test
