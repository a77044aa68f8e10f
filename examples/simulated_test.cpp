// A test of one's own code in virtual time: a request that is sent again until it is answered, over a line that loses
// some, with an hour of patience. Two thousand runs, each with its own order of events, take less than a second.
//
//     build/release/examples/simulated_test
//     NOWAIT_SIMULATION_SEED=42 build/release/examples/simulated_test       one run, always the same
#include <nowait/nowait.hpp>
#include <nowait/simulation.hpp>

#include <chrono>
#include <cstdio>

using namespace std::chrono_literals;

// --- the code under test: it knows nothing of simulations ------------------------------------------------------------

struct line {
    nowait::channel<int> requests, answers;
};

/// Asks until there is an answer, with pauses that double. Returns: how often it asked; timed_out after an hour.
static nowait::task<nowait::result<int>> ask(const line& to) {
    const auto patience = nowait::now() + 1h;
    auto pause = 1s;
    for (int asked = 1;; ++asked) {
        if (auto sent = co_await to.requests.send_owned(asked); !sent)
            co_return nowait::fail(sent.error().code);
        const auto until = std::min(nowait::now() + pause, patience);
        auto answer = co_await nowait::with_deadline(to.answers.receive(), until);
        if (answer)
            co_return asked;
        if (answer.error() != std::errc::timed_out || until == patience)
            co_return nowait::fail(answer.error());
        pause *= 2;
    }
}

// --- the test --------------------------------------------------------------------------------------------------------

/// Answers, but not always, and not at once.
static nowait::task<void> other_side(const line& from, nowait::simulation& sim, std::uint64_t loses_of_ten) {
    for (;;) {
        auto request = co_await from.requests.receive();
        if (!request)
            co_return;
        (void)co_await nowait::sleep_for(std::chrono::milliseconds(sim.random(3000)));
        if (sim.random(10) >= loses_of_ten)
            (void)co_await from.answers.send_owned(*request);
    }
}

static nowait::task<nowait::result<int>> scenario(nowait::simulation& sim, std::uint64_t loses_of_ten) {
    const line between{*nowait::channel<int>::create(16), *nowait::channel<int>::create(16)};
    auto answering = nowait::spawn(other_side(between, sim, loses_of_ten));
    auto asked = co_await ask(between);
    between.requests.close();
    (void)co_await answering.join();
    co_return asked;
}

int main() {
    int asked_most = 0;
    auto virtual_time = 0ns;
    const auto failed = nowait::first_failing_seed(2000, {.seed = 1}, [&](nowait::simulation& sim) {
        const auto asked = sim.run(scenario(sim, 3));
        virtual_time += sim.elapsed();
        if (!asked || !*asked)
            return false; // with three of ten lost, an hour is patience enough for a dozen requests
        asked_most = std::max(asked_most, **asked);
        return true;
    });
    const auto dead_line = [] {
        nowait::simulation sim({.seed = 1});
        const auto asked = sim.run(scenario(sim, 10));
        return asked && !*asked && asked->error() == std::errc::timed_out && sim.elapsed() >= 1h;
    }();
    if (failed || !dead_line)
        return 1;
    std::printf(
        "2000 runs, %.1f days of virtual time; it asked %d times at most, and gives up after an hour\n",
        std::chrono::duration<double>(virtual_time).count() / 86400, asked_most);
    return 0;
}
