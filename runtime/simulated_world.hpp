// The simulated machine: chance, time, trace, and who does the next step. The kernel is in simulated_system, the waiting half of it in
// simulated_driver. Single-threaded, and nothing here depends on an address or on the real clock.
#pragma once

#include "simulated_stack.hpp"
#include "simulated_system.hpp"

#include <nowait/detail/loop.hpp>
#include <nowait/detail/worker_host.hpp>
#include <nowait/simulation.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

class simulated_driver;
class simulated_world;

/// What a trace line is about.
enum class trace_kind : std::uint8_t {
    turn,    // runtime, which of the ready nodes
    look,    // runtime
    sleep,   // runtime, until
    outside, // number of the event
    passage, // the new time
    call,    // which call, descriptor, result
    arm,     // descriptor, events
    disarm,  // descriptor
    start,   // descriptor, size
    cancel,  // descriptor
    report,  // descriptor, result, more
    wake,    // runtime
    worker,  // number, outcome
    fault,   // kind
    note,    // word
};

/// The workers of the pools: a step of one of them is a step of the simulation. A job runs whole in it, unless it waits in a call of
/// the simulated system: then the step ends there, and another one goes on with it when what it waits for has come. Work that may wait is
/// the unbounded account's, so its workers have stacks of their own.
class simulated_workers final : public worker_host {
public:
    explicit simulated_workers(simulated_world& in) noexcept : world_(in) {}
    /// No runtime is left: jobs that still wait in a call are interrupted, until they return.
    void end() noexcept;
    /// What a call says whose wait() was in vain. At the end a job that makes its call again after EINTR has to hear of another reason.
    [[nodiscard]] int why_not() const noexcept;

    [[nodiscard]] time_point now() noexcept override;
    [[nodiscard]] int start(worker_body& body) noexcept override;
    void wake(worker_body& body) noexcept override;
    [[nodiscard]] std::uint32_t changes() noexcept override { return changes_; }
    void changed() noexcept override { ++changes_; }
    void await_change(std::uint32_t seen, time_point until) noexcept override;
    void interrupt(worker_body& body) noexcept override;

    /// For calls that wait: returns when `over` says so. False: interrupted, or there is no stack to wait on.
    [[nodiscard]] bool wait(std::function<bool()> over) noexcept;

    /// How many have something to do now; which of them does a step.
    [[nodiscard]] std::size_t runnable() const noexcept;
    void step(std::size_t which) noexcept;
    /// When the next of those that have nothing to do wants to be called.
    [[nodiscard]] time_point next_call() const noexcept;
    /// As next_call(), of those that are about to start only.
    [[nodiscard]] bool starting() const noexcept;

private:
    struct entry {
        entry(worker_body* of, std::uint64_t n, time_point when) noexcept : body(of), number(n), at(when) {}

        worker_body* body;
        std::uint64_t number;
        bool starting = true;
        bool woken = false;
        time_point at;
        worker_step did; // in the last step
        std::unique_ptr<simulated_stack> stack;
        std::function<bool()> over; // it waits in a call, until then
        bool interrupted = false;
    };
    [[nodiscard]] bool can_step(const entry& e) const noexcept;
    [[nodiscard]] bool run_step(entry& e);

    simulated_world& world_;
    std::vector<std::unique_ptr<entry>> workers_;
    std::uint64_t started_ = 0;
    std::uint32_t changes_ = 0;
    bool ending_ = false;
};

class simulated_world {
public:
    using time_point = std::chrono::steady_clock::time_point;
    static constexpr time_point never = time_point::max();
    static constexpr time_point start_of_time{std::chrono::hours(1)};

    explicit simulated_world(const simulation_options& options);
    ~simulated_world();
    simulated_world(const simulated_world&) = delete;
    simulated_world& operator=(const simulated_world&) = delete;

    // --- chance, time, trace -------------------------------------------------------------------------------------------

    /// Below `bound`; 0 if that is 0.
    [[nodiscard]] std::uint64_t random(std::uint64_t bound) noexcept;
    /// Whether a fault happens on this occasion.
    [[nodiscard]] bool strikes(fault kind) noexcept;
    /// When something that is due now arrives.
    [[nodiscard]] time_point arrival() noexcept;

    void record(trace_kind kind, std::uint64_t a = 0, std::uint64_t b = 0, std::uint64_t c = 0) noexcept;

    simulation_options options;
    fault_schedule faults;
    std::array<std::uint64_t, fault_kinds> happened{};
    time_point now = start_of_time;
    std::uint64_t steps = 0;
    std::uint64_t events = 0;
    std::uint64_t hash = 0xcbf29ce484222325u;

    [[nodiscard]] std::string trace(std::size_t lines) const;
    [[nodiscard]] std::string waiting() const;

    // --- the machine ---------------------------------------------------------------------------------------------------

    simulated_system kernel{*this};
    simulated_workers workers{*this};

    void end() noexcept {
        while (!threads_.empty())
            threads_.pop_back();
    }
    runtime& add_runtime();
    [[nodiscard]] runtime& runtime_at(std::size_t index) noexcept { return *threads_[index]->runs; }
    [[nodiscard]] std::size_t runtimes() const noexcept { return threads_.size(); }
    [[nodiscard]] runtime_options options_for_runtime();

    void after(std::chrono::nanoseconds span, std::function<void()> what);
    void when_quiet(std::function<void()> what) { quiet_.push_back(std::move(what)); }

    /// Steps until every runtime is idle. 0, EDEADLK or ETIMEDOUT.
    [[nodiscard]] int run();
    /// For a driver whose loop waits by itself: lets time pass until `until`, or until outside events have happened. False: nothing
    /// will ever happen.
    [[nodiscard]] bool pass_time(time_point until);

    // Drivers come and go with their loops.
    void enlist(simulated_driver& driver) { drivers_.push_back(&driver); }
    void forget(simulated_driver& driver) noexcept;
    /// Something about the object has changed that whoever polls it for these directions may want to know.
    void edge(const simulated_object& object, int directions) noexcept;

private:
    /// A runtime and the thread that would run it.
    struct thread {
        std::unique_ptr<runtime> runs;
        simulated_driver* waits = nullptr;
        bool asleep = false;
        bool looked = false; // since its last turn
        int turns = 0;       // since its last look
        time_point until = never;
    };
    struct outside_event {
        time_point at;
        std::uint64_t number;
        std::function<void()> what;
    };
    struct line {
        trace_kind kind;
        std::uint64_t at_ns, a, b, c;
    };

    [[nodiscard]] bool all_idle() const noexcept;
    [[nodiscard]] bool awake(const thread& t) const noexcept;
    [[nodiscard]] bool step();
    void step_of(std::size_t index);
    void outside_step(std::size_t which);
    [[nodiscard]] bool advance_clock();
    [[nodiscard]] time_point next_arrival() const noexcept;

    std::uint64_t state_;
    std::vector<simulated_driver*> drivers_;
    std::vector<std::unique_ptr<thread>> threads_;
    std::vector<outside_event> outside_; // in the order of their time, then of their numbers
    std::uint64_t outside_count_ = 0;
    std::vector<std::function<void()>> quiet_;
    std::array<line, 256> lines_{};
    std::vector<std::size_t> candidates_;
    bool running_ = false;
};

} // namespace detail
NOWAIT_END_NAMESPACE
