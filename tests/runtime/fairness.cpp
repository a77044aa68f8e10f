// One task that always finds something to do does not keep the others waiting.
#include "fake_driver.hpp"
#include "runs.hpp"
#include "stack_probe.hpp"

#include <nowait/pipe.hpp>
#include <nowait/sleep.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

using nowait::operation_kind;
using nowait::runtime;
using nowait::task;
using nowait_test::fake_world;
using nowait_test::make_runtime;
using namespace std::chrono_literals;

namespace {

struct traffic {
    bool over = false;
    std::uint64_t operations = 0;
    std::uint64_t longest_turn = 0; // operations between two turns of the loop
    nowait_test::stack_probe probe;
};

/// Writes and reads its own pipe: always data, always room.
task<> busy_pair(traffic& seen) {
    nowait::pipe_pair pipe = nowait::make_pipe().value();
    std::array<std::byte, 1> byte{};
    std::uint64_t turn = nowait::current_stats().turns;
    std::uint64_t in_turn = 0;
    while (!seen.over) {
        (void)co_await pipe.writer.write(byte);
        (void)co_await pipe.reader.read(byte);
        seen.operations += 2;
        seen.probe.touch();
        const std::uint64_t now = nowait::current_stats().turns;
        in_turn = now == turn ? in_turn + 2 : 0;
        turn = now;
        seen.longest_turn = std::max(seen.longest_turn, in_turn);
    }
}

task<> ticks(int count, int& seen) {
    for (int i = 0; i < count; ++i) {
        (void)co_await nowait::sleep_for(1ms);
        ++seen;
    }
}

/// Two tasks and a pipe that is empty each time the reader comes.
task<> sends(nowait::pipe_writer to, int count) {
    for (int i = 0; i < count; ++i) {
        (void)co_await to.write("x");
        co_await nowait::yield();
    }
}
task<> receives(nowait::pipe_reader from, int& seen) {
    std::array<std::byte, 1> byte{};
    for (;;) {
        const auto got = co_await from.read(byte);
        if (!got || *got == 0)
            co_return;
        ++seen;
    }
}

task<> all_of_it(traffic& seen, int& ticked, int& received) {
    nowait::pipe_pair pipe = nowait::make_pipe().value();
    auto busy = nowait::spawn(busy_pair(seen));
    auto timer = nowait::spawn(ticks(20, ticked));
    auto reader = nowait::spawn(receives(std::move(pipe.reader), received));
    auto writer = nowait::spawn(sends(std::move(pipe.writer), 200));
    (void)co_await timer.join();
    (void)co_await writer.join();
    (void)co_await reader.join();
    seen.over = true;
    (void)co_await busy.join();
}

task<> yields(int id, int rounds, std::vector<int>& order) {
    for (int i = 0; i < rounds; ++i) {
        order.push_back(id);
        co_await nowait::yield();
    }
}

task<int> immediate() {
    co_return 1;
}

} // namespace

TEST_CASE("beside a pair that always has data, a timer and another pipe make progress") {
    runtime runs = make_runtime();
    traffic seen;
    int ticked = 0;
    int received = 0;
    REQUIRE(runs.run(all_of_it(seen, ticked, received)).has_value());
    CHECK(ticked == 20);
    CHECK(received == 200);
    CHECK(seen.longest_turn <= 128);
    CHECK(seen.probe.depth() < 4096);
    const auto stats = runs.stats();
    const auto yielded =
        stats.of(operation_kind::read).budget_yields + stats.of(operation_kind::write).budget_yields;
    CHECK(yielded >= seen.operations / 128 - 1);
}

TEST_CASE("in virtual time a timer is late by no more than the turns between two looks") {
    fake_world world;
    world.calls.step = 50us; // between two looks at the clock
    runtime runs = world.make();
    traffic seen;
    int ticked = 0;
    int received = 0;
    const auto began = world.calls.time;
    REQUIRE(runs.run(all_of_it(seen, ticked, received)).has_value());
    CHECK(ticked == 20);
    CHECK(received == 200);
    CHECK(world.calls.time - began < 40ms);
    CHECK(seen.longest_turn <= 128);
}

namespace {

/// Turns in each look at the outside, of 200 tasks whose turns take that long, once the loop knows them.
double turns_per_pass(std::chrono::nanoseconds a_turn) {
    fake_world world;
    runtime runs = world.make();
    const auto steps = [](fake_world* in, std::chrono::nanoseconds takes, int count) -> task<> {
        for (int i = 0; i < count; ++i) {
            in->calls.time += takes;
            co_await nowait::yield();
        }
    };
    const auto all = [](auto step, fake_world* in, std::chrono::nanoseconds takes) -> task<> {
        for (int i = 0; i < 200; ++i) {
            auto one = step(in, takes, 20);
            (void)nowait::spawn(std::move(one));
        }
        co_return;
    };
    REQUIRE(runs.run(all(steps, &world, a_turn)).has_value());
    const auto stats = runs.stats();
    return static_cast<double>(stats.turns) / static_cast<double>(stats.passes);
}

} // namespace

TEST_CASE("the longer the turns, the fewer of them between two looks outside") {
    CHECK(turns_per_pass(100ns) > 60);
    CHECK(turns_per_pass(1us) > 60); // 64 of them take less than a look is worth
    CHECK(turns_per_pass(10us) < 20);
    CHECK(turns_per_pass(1ms) < 2);
}

TEST_CASE("a budget of one lets each turn do one thing, and everything ends") {
    fake_world world;
    nowait::runtime_options options;
    options.budget = 1;
    runtime runs = world.make(options);
    REQUIRE(runs.run([]() -> task<> {
                    nowait::pipe_pair pipe = nowait::make_pipe().value();
                    std::array<std::byte, 1> byte{};
                    for (int i = 0; i < 100; ++i) {
                        const auto wrote = co_await pipe.writer.write(byte);
                        const auto got = co_await pipe.reader.read(byte);
                        CHECK(wrote.value() == 1);
                        CHECK(got.value() == 1);
                    }
                }())
                .has_value());
    const auto stats = runs.stats();
    const auto& writes = stats.of(operation_kind::write);
    const auto& reads = stats.of(operation_kind::read);
    CHECK(writes.inline_completions + writes.budget_yields == 100);
    CHECK(reads.inline_completions + reads.budget_yields == 100);
    CHECK(writes.budget_yields + reads.budget_yields >= 99);
}

TEST_CASE("big transfers cost more: one unit for each 4 KiB") {
    fake_world world;
    nowait::runtime_options options;
    options.budget = 34;
    runtime runs = world.make(options);
    REQUIRE(runs.run([]() -> task<> {
                    nowait::pipe_pair pipe = nowait::make_pipe().value();
                    std::vector<std::byte> block(65536);
                    const std::uint64_t turn = nowait::current_stats().turns;
                    const auto wrote = co_await pipe.writer.write(block); // 1 + 16
                    const auto got = co_await pipe.reader.read(block);    // 1 + 16: the budget is spent
                    CHECK(wrote.value() == 65536);
                    CHECK(got.value() == 65536);
                    CHECK(nowait::current_stats().turns == turn);
                    const auto next = co_await pipe.writer.write("x");
                    CHECK(next.value() == 1);
                    CHECK(nowait::current_stats().turns > turn);
                    CHECK(nowait::current_stats().of(operation_kind::write).budget_yields == 1);
                }())
                .has_value());
}

TEST_CASE("those who yield take turns") {
    fake_world world;
    runtime runs = world.make();
    std::vector<int> order;
    for (int id = 0; id < 3; ++id)
        runs.spawn(yields(id, 4, order)).detach();
    REQUIRE(runs.run().has_value());
    CHECK(order == std::vector<int>{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2});
}

TEST_CASE("a task that awaits nothing but children that end at once lets others run") {
    fake_world world;
    runtime runs = world.make();
    bool over = false;
    runs.spawn([](bool& seen) -> task<> {
            while (!seen)
                (void)co_await immediate();
        }(over))
        .detach();
    runs.spawn([](bool& set) -> task<> {
            for (int i = 0; i < 10; ++i)
                co_await nowait::yield();
            set = true;
        }(over))
        .detach();
    CHECK(runs.run().has_value());
}

TEST_CASE("two tasks that wake each other for ever do not keep timers and pipes out") {
    fake_world world;
    world.calls.step = 50us;
    runtime runs = world.make();
    bool over = false;
    auto toss = [](bool& seen) -> task<> {
        while (!seen)
            co_await nowait::yield();
    };
    runs.spawn(toss(over)).detach();
    runs.spawn(toss(over)).detach();
    int received = 0;
    REQUIRE(runs.run([](bool& set, int& count) -> task<> {
                    nowait::pipe_pair pipe = nowait::make_pipe().value();
                    auto reader = nowait::spawn(receives(std::move(pipe.reader), count));
                    (void)co_await nowait::sleep_for(10ms);
                    (void)co_await pipe.writer.write("abc");
                    (void)pipe.writer.close();
                    (void)co_await reader.join();
                    set = true;
                }(over, received))
                .has_value());
    CHECK(received == 3);
}
