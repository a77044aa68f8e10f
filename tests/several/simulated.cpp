// Moving tasks on a simulated machine: many orders of the same program, each of them again from its seed.
#include "several_support.hpp"

#include <nowait/simulation.hpp>

#include <cstdint>

using namespace several_test;

namespace {

/// Three runtimes, and tasks that wander over them, sleep here and there, and are stopped at some time.
struct wanderers {
    explicit wanderers(nowait::simulation& in) : world(in) {
        places = {&world.first_runtime(), &world.add_runtime(), &world.add_runtime()};
    }

    nowait::simulation& world;
    std::array<runtime*, 3> places{};
    int moves = 0;
    int refused = 0; ///< because of a stop
    int astray = 0;  ///< who went on somewhere else than he should
    int alive = 0;

    struct guard {
        explicit guard(int& of) : count(of) { ++count; }
        guard(const guard&) = delete;
        ~guard() { --count; }
        int& count;
    };

    void expect_at(const runtime& where) {
        if (nowait::detail::loop::current() != &where.get_loop())
            ++astray;
    }

    task<int> wander(int depth) {
        const guard counts(alive);
        int hops = 0;
        for (int i = 0; i < 6; ++i) {
            runtime& to = *places[world.random(places.size())];
            const auto moved = co_await resume_on(to);
            if (!moved) {
                ++refused; // asked to stop: only then, nobody goes away here
                break;
            }
            expect_at(to);
            ++moves;
            ++hops;
            const std::uint64_t next = world.random(4);
            if (next == 0) {
                co_await nowait::yield();
            } else if (next == 1) {
                // An hour ends only by a stop.
                const auto span =
                    std::chrono::microseconds(world.random(3) == 0 ? 3'600'000'000 : world.random(100));
                const auto slept = co_await nowait::sleep_for(span);
                if (!slept)
                    break;
            } else if (next == 2 && depth > 0) {
                const int more = co_await wander(depth - 1);
                hops += more;
            }
            expect_at(to);
        }
        co_return hops;
    }

    task<bool> one() {
        runtime& home = *places[0];
        const auto hops =
            co_await nowait::with_timeout(wander(2), std::chrono::microseconds(1 + world.random(300)));
        expect_at(home);
        co_return hops.has_value();
    }

    task<int> all() {
        std::vector<nowait::join_handle<bool>> handles;
        for (int i = 0; i < 4; ++i)
            handles.push_back(nowait::spawn(one()));
        int ended = 0;
        for (auto& handle : handles) {
            const auto joined = co_await handle.join();
            ended += joined.value_or(false) ? 1 : 0;
        }
        co_return ended;
    }
};

struct totals {
    int moves = 0;
    int refused = 0;
};

std::uint64_t run_seed(std::uint64_t seed, totals* sums = nullptr) {
    nowait::simulation_options options;
    options.seed = seed;
    nowait::simulation world(options);
    wanderers tasks(world);
    const auto ended = world.run(tasks.all());
    CAPTURE(seed);
    if (ended.value_or(-1) != 4 || world.elapsed() > 1s || tasks.astray != 0 || tasks.alive != 0)
        FAIL("seed " << seed << ": ended " << ended.value_or(-1) << ", astray " << tasks.astray << ", alive "
                     << tasks.alive << "\n"
                     << world.waiting());
    if (sums != nullptr) {
        sums->moves += tasks.moves;
        sums->refused += tasks.refused;
    }
    return world.trace_hash();
}

} // namespace

TEST_CASE("every wanderer comes home, in many orders") {
    totals sums;
    for (std::uint64_t seed = 1; seed <= 2'000; ++seed)
        (void)run_seed(seed, &sums);
    CHECK(sums.moves > 50'000); // it does happen
    CHECK(sums.refused > 1'000);
}

TEST_CASE("the same seed is the same journey") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed)
        CHECK(run_seed(seed) == run_seed(seed));
}
