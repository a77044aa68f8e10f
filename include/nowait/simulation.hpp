// A world of its own for coroutines: kernel, clock and scheduler in memory, from one seed.
//
//     nowait::simulation sim({.seed = 7});
//     sim.faults().set(nowait::fault::short_transfer, 0.2);
//     auto r = sim.run(my_task());              // an hour of time-outs takes milliseconds
//
// Inside, everything of the library works as it does on Linux: pipes, files, POSIX queues, timers, channels, several runtimes.
// What differs is that nothing happens by itself: which task runs next, when a completion arrives and what goes wrong is drawn
// from the seed, and time passes only when nothing else can happen. The same seed gives the same run, byte for byte.
//
// This is not part of <nowait/nowait.hpp>. docs/simulation.md says what is simulated and how faithfully.
#pragma once

#include <nowait/config.hpp>
#include <nowait/result.hpp>
#include <nowait/runtime.hpp>
#include <nowait/task.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

NOWAIT_BEGIN_NAMESPACE

namespace detail {
class simulated_world;
}

/// What can go wrong. Each kind is something that Linux does, and does no more than Linux may: see docs/simulation.md.
enum class fault : std::uint8_t {
    again,          ///< an attempt finds nothing, or no room; what it looked for arrives right after it
    interrupted,    ///< EINTR: calls that are made again, transfers that come back, sleeps that end early
    short_transfer, ///< fewer bytes than there were (or room for fewer); the rest arrives right after it
    late_event,     ///< a completion takes its time, up to simulation_options::delay_max
    cancel_race,    ///< a cancel or a removal meets the event on its way
    overflow,       ///< the completion queue is full: completions come later, and polls that stay armed end
    refused_ring,   ///< no ring for a new runtime: it falls back to readiness
    broken_pipe,    ///< the other side of a pipe dies: writers get EPIPE, readers the end after what is there
    no_memory,      ///< ENOMEM
    no_descriptor,  ///< EMFILE
    no_thread,      ///< EAGAIN from starting a thread
    not_in_cache,   ///< a file's bytes are not in memory: EAGAIN, and the driver has to read them
};
inline constexpr std::size_t fault_kinds = 12;

/// The name of a kind as it is printed: "again", "short_transfer", ...
[[nodiscard]] NOWAIT_API const char* to_string(fault kind) noexcept;

/// How often each fault happens, as a probability for every occasion: 0 is never, 1 always.
class fault_schedule {
public:
    [[nodiscard]] double of(fault kind) const noexcept { return rates_[static_cast<std::size_t>(kind)]; }
    fault_schedule& set(fault kind, double probability) noexcept {
        rates_[static_cast<std::size_t>(kind)] = probability;
        return *this;
    }
    /// Everything that a correct program does not even notice (all up to refused_ring, and not_in_cache), at one rate.
    [[nodiscard]] static fault_schedule unnoticed(double probability) noexcept {
        fault_schedule all;
        for (fault kind : {fault::again, fault::interrupted, fault::short_transfer, fault::late_event,
                           fault::cancel_race, fault::overflow, fault::refused_ring, fault::not_in_cache})
            all.set(kind, probability);
        return all;
    }

private:
    std::array<double, fault_kinds> rates_{};
};

struct simulation_options {
    /// Everything that is not said by the program is drawn from it.
    std::uint64_t seed = 1;
    /// At the start; faults() changes them.
    fault_schedule faults{};
    /// True: any of the tasks that can run is next. False: in the order of a real loop. The library promises no order between
    /// tasks, except for yield() and functions that one thread posts; only the latter is kept here.
    bool any_order = true;
    /// What a turn costs in virtual time. Not 0: a loop that polls the clock would never end.
    std::chrono::nanoseconds turn_time = std::chrono::microseconds(1);
    /// How late a late event is at most.
    std::chrono::nanoseconds delay_max = std::chrono::milliseconds(2);
    /// run() gives up after so many steps: something goes round in circles. 0: never.
    std::uint64_t steps_max = 50'000'000;
    /// A deadlock and a run out of steps are explained on standard error.
    bool explain = true;
    /// Units a turn may spend on operations that finish at once: runtime_options::budget.
    int budget = 128;
};

/// One simulated machine, and one process on it. Used on one thread, and by one program: pipes, tasks and channels made in it
/// end before it does. Everything happens inside run() (and what it calls); between runs time stands still.
class NOWAIT_API simulation {
public:
    /// Throws: std::bad_alloc.
    explicit simulation(simulation_options options = {});
    simulation(const simulation&) = delete;
    simulation& operator=(const simulation&) = delete;
    /// Destroys the runtimes, and with them what has not ended.
    ~simulation();

    /// Runs `root` on the first runtime until it, everything it has spawned, and every other runtime have come to their end.
    /// Returns: the root's value; throws what it threw. Errors: resource_deadlock_would_occur: nothing can happen any more, and
    /// something still waits (waiting() says what); timed_out: more than steps_max steps.
    /// What has not ended then waits on: another run() goes on with it.
    template <class T>
    result<T> run(task<T> root) {
        auto* state = new detail::join_state<T>;
        detail::loop& on = first_runtime().get_loop();
        join_handle<T> joined = detail::spawn_on(on, std::move(root), state);
        if (auto ran = run(); !ran)
            return fail(ran.error());
        if (!joined.done())
            return fail(std::errc::state_not_recoverable);
        if constexpr (std::is_void_v<T>) {
            state->value.take();
            return {};
        } else {
            return state->value.take();
        }
    }
    /// Runs what was spawned on the runtimes, likewise.
    result<void> run();

    /// Destroys the runtimes, and with them what has not ended, where it waits: for tasks that borrow from what dies before the
    /// simulation. Descriptors can still be closed after that; nothing can be run.
    void end() noexcept;

    /// The runtime that run(task) uses, and others on the same simulated machine, as if each had a thread of its own.
    [[nodiscard]] runtime& first_runtime() noexcept;
    runtime& add_runtime();
    [[nodiscard]] std::size_t runtimes() const noexcept;

    /// Virtual time. It starts at an hour, and passes when nothing else can happen; a turn takes turn_time of it.
    [[nodiscard]] std::chrono::steady_clock::time_point now() const noexcept;
    /// Since the start.
    [[nodiscard]] std::chrono::nanoseconds elapsed() const noexcept;
    /// Has `what` happen at that time, outside of all tasks: another process, a signal handler, a user.
    void after(std::chrono::nanoseconds span, std::function<void()> what);
    /// Calls `what` whenever only time can change anything: nothing is ready, nothing under way. The place to check
    /// invariants such as "nobody waits for what is there".
    void when_quiet(std::function<void()> what);

    [[nodiscard]] fault_schedule& faults() noexcept;
    /// How many of a kind have happened.
    [[nodiscard]] std::uint64_t happened(fault kind) const noexcept;

    [[nodiscard]] std::uint64_t seed() const noexcept;
    /// A number below `bound` (0 if that is 0), drawn from the seed, for the program's own choices.
    [[nodiscard]] std::uint64_t random(std::uint64_t bound) noexcept;
    /// Turns, looks and outside events so far.
    [[nodiscard]] std::uint64_t steps() const noexcept;
    /// Everything that the trace hash covers: steps, calls and their results, completions, what note() was told.
    [[nodiscard]] std::uint64_t events() const noexcept;
    /// Equal for equal runs.
    [[nodiscard]] std::uint64_t trace_hash() const noexcept;
    /// Adds something of the program's own to the trace.
    void note(std::uint64_t word) noexcept;
    /// The last `lines` events (256 at most are kept), oldest first.
    [[nodiscard]] std::string trace(std::size_t lines = 256) const;
    /// One line for each task that has not ended: its runtime, and the chain of awaits down to what it waits for.
    [[nodiscard]] std::string waiting() const;

    /// Descriptors that are open in the simulated process.
    [[nodiscard]] std::size_t open_descriptors() const noexcept;
    /// The simulated kernel, for what has no name above. Descriptors start at 1000.
    [[nodiscard]] detail::system& system() noexcept;
    /// For runtime::create: a runtime that its owner runs by itself. Then it runs alone, in the order of a real loop.
    [[nodiscard]] runtime_options options();

    /// For the library's own tests.
    [[nodiscard]] detail::simulated_world& world() noexcept { return *world_; }

private:
    std::unique_ptr<detail::simulated_world> world_;
};

/// Runs `passes` in a simulation for each of `count` seeds, from options.seed on, until it returns false or throws. Then the
/// seed is printed on standard error, with the line that runs it again: NOWAIT_SIMULATION_SEED=n in the environment makes this
/// function run that seed alone. Returns: the seed that failed; nothing if all passed. Throws: what `passes` threw.
[[nodiscard]] NOWAIT_API std::optional<std::uint64_t> first_failing_seed(
    std::uint64_t count, simulation_options options, const std::function<bool(simulation&)>& passes);

NOWAIT_END_NAMESPACE
