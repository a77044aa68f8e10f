// What a simulation promises: virtual time, the same run from the same seed, deadlocks found, faults that happen.
#include "catch.hpp"

#include <nowait/nowait.hpp>
#include <nowait/simulation.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <span>
#include <string>
#include <vector>

using namespace std::chrono_literals;
using nowait::fault;
using nowait::fault_schedule;
using nowait::result;
using nowait::simulation;
using nowait::task;

namespace {

std::span<std::byte> room(std::string& text) {
    return std::as_writable_bytes(std::span(text));
}

task<void> sleep_and_say(std::chrono::seconds span, int number, std::vector<int>& order) {
    (void)co_await nowait::sleep_for(span);
    order.push_back(number);
}

task<std::vector<int>> sleepers() {
    std::vector<int> order;
    std::vector<nowait::join_handle<void>> handles;
    for (int i = 0; i < 10; ++i)
        handles.push_back(nowait::spawn(sleep_and_say(std::chrono::hours(10 - i), i, order)));
    for (auto& handle : handles)
        (void)co_await handle.join();
    co_return order;
}

/// Writes `size` bytes of a pattern in odd pieces.
task<void> write_pattern(nowait::pipe_writer to, std::size_t size) {
    std::string piece;
    for (std::size_t at = 0; at < size;) {
        const std::size_t n = std::min<std::size_t>(size - at, 1 + at % 7001);
        piece.clear();
        for (std::size_t i = 0; i < n; ++i)
            piece.push_back(static_cast<char>((at + i) * 31 % 251));
        const std::span<const std::byte> bytes = std::as_bytes(std::span(piece));
        const auto written = co_await nowait::write_all(to, bytes);
        if (written.error)
            co_return;
        at += n;
    }
}

/// Reads to the end. Returns: the bytes, or nothing if one of them is wrong.
task<std::size_t> read_pattern(nowait::pipe_reader from) {
    std::string buffer(5000, '\0');
    std::size_t at = 0;
    for (;;) {
        const std::span<std::byte> into = room(buffer);
        const auto n = co_await from.read(into);
        if (!n || *n == 0)
            co_return n ? at : 0;
        for (std::size_t i = 0; i < *n; ++i, ++at) {
            if (buffer[i] != static_cast<char>(at * 31 % 251))
                co_return 0;
        }
    }
}

task<std::size_t> through_a_pipe(std::size_t size) {
    auto pipe = nowait::make_pipe();
    if (!pipe)
        co_return 0;
    auto writing = nowait::spawn(write_pattern(std::move(pipe->writer), size));
    auto reading = nowait::spawn(read_pattern(std::move(pipe->reader)));
    const auto got = co_await reading.join();
    (void)co_await writing.join();
    co_return got.value_or(0);
}

/// A bit of everything, for as long as it is told.
task<void> mixture(simulation& sim, nowait::channel<int> numbers, int rounds) {
    for (int i = 0; i < rounds; ++i) {
        switch (sim.random(4)) {
        case 0: {
            auto sent = co_await nowait::with_timeout(numbers.send_owned(i), 50us);
            sim.note(sent ? 1 : 0);
            break;
        }
        case 1: {
            auto got = co_await nowait::with_timeout(numbers.receive(), 70us);
            sim.note(got ? static_cast<std::uint64_t>(*got) : ~std::uint64_t{0});
            break;
        }
        case 2:
            (void)co_await nowait::sleep_for(std::chrono::microseconds(sim.random(100)));
            break;
        default:
            sim.note(co_await through_a_pipe(1 + sim.random(20000)));
        }
    }
}

task<void> many_mixtures(simulation& sim, int tasks, int rounds) {
    const auto numbers = *nowait::channel<int>::create(3);
    std::vector<nowait::join_handle<void>> handles;
    for (int i = 0; i < tasks; ++i)
        handles.push_back(nowait::spawn(mixture(sim, numbers, rounds)));
    for (auto& handle : handles)
        (void)co_await handle.join();
}

struct run_of_mixtures {
    std::uint64_t hash, events;
    bool operator==(const run_of_mixtures&) const = default;
};

run_of_mixtures run_mixtures(std::uint64_t seed, std::uint64_t events) {
    simulation sim({.seed = seed, .faults = fault_schedule::unnoticed(0.05)});
    (void)sim.add_runtime();
    while (sim.events() < events) {
        if (!sim.run(many_mixtures(sim, 8, 40)))
            return {};
    }
    return {sim.trace_hash(), sim.events()};
}

task<result<int>> wait_for_ever(nowait::channel<int> from) {
    co_return co_await from.receive();
}

} // namespace

TEST_CASE("hours of sleep take no time, and end in their order") {
    const auto before = std::chrono::steady_clock::now();
    simulation sim;
    const auto order = sim.run(sleepers());
    REQUIRE(order.has_value());
    CHECK(*order == std::vector<int>{9, 8, 7, 6, 5, 4, 3, 2, 1, 0});
    CHECK(sim.elapsed() >= 10h);
    CHECK(sim.elapsed() < 10h + 1ms);
    CHECK(std::chrono::steady_clock::now() - before < 10min); // or it has slept
}

TEST_CASE("the same seed gives the same trace over a million events, another seed another one") {
    const auto first = run_mixtures(7, 1'000'000);
    CHECK(first.events >= 1'000'000);
    CHECK(first == run_mixtures(7, 1'000'000));
    CHECK(run_mixtures(8, 10'000).hash != run_mixtures(9, 10'000).hash);
}

TEST_CASE("a deadlock is found and explained") {
    simulation sim({.seed = 3, .explain = false});
    const auto numbers = *nowait::channel<int>::create(1);
    const auto ended = sim.run(wait_for_ever(numbers));
    REQUIRE_FALSE(ended.has_value());
    CHECK(ended.error() == std::errc::resource_deadlock_would_occur);
    CHECK(sim.waiting().find("simulation_facts.cpp:") != std::string::npos);

    // What waits goes on when there is something to go on with.
    int number = 1;
    REQUIRE(numbers.try_send(number));
    CHECK(sim.run());
    CHECK(sim.waiting().empty());
}

TEST_CASE("what goes round in circles is stopped") {
    simulation sim({.seed = 3, .steps_max = 1000, .explain = false});
    const auto ended = sim.run([]() -> task<void> {
        for (;;)
            co_await nowait::yield();
    }());
    REQUIRE_FALSE(ended.has_value());
    CHECK(ended.error() == std::errc::timed_out);
}

TEST_CASE("polling the clock ends, because turns take time") {
    simulation sim;
    const auto ended = sim.run([]() -> task<void> {
        const auto until = nowait::now() + 5ms;
        while (nowait::now() < until)
            co_await nowait::yield();
    }());
    CHECK(ended.has_value());
    CHECK(sim.elapsed() >= 5ms);
}

TEST_CASE("bytes go through a pipe whole under every fault that is not to be noticed") {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        simulation sim(
            {.seed = seed, .faults = fault_schedule::unnoticed(0.1 * static_cast<double>(seed % 4))});
        const std::size_t size = 1 + sim.random(300'000);
        const auto got = sim.run(through_a_pipe(size));
        INFO("seed " << seed << '\n' << sim.trace(40));
        REQUIRE(got.has_value());
        REQUIRE(*got == size);
        REQUIRE(sim.open_descriptors() == 0);
    }
}

TEST_CASE("every kind of fault happens, and is counted") {
    const auto happens = [](fault kind, auto body) {
        fault_schedule faults;
        faults.set(kind, 0.5);
        std::uint64_t happened = 0;
        for (std::uint64_t seed = 1; seed <= 20 && happened == 0; ++seed) {
            simulation sim({.seed = seed, .faults = faults, .explain = false});
            (void)sim.add_runtime(); // a ring may be refused
            (void)sim.run(body(sim));
            happened = sim.happened(kind);
        }
        INFO(nowait::to_string(kind));
        CHECK(happened > 0);
    };
    const auto pipes = [](simulation& sim) { return many_mixtures(sim, 3, 10); };
    for (fault kind :
         {fault::again, fault::interrupted, fault::short_transfer, fault::late_event, fault::overflow,
          fault::refused_ring, fault::broken_pipe, fault::no_memory, fault::no_descriptor})
        happens(kind, pipes);
    const auto closes = [](simulation& sim) -> task<void> {
        // An end that is closed while its poll reports: the removal meets the event.
        for (int i = 0; i < 50; ++i) {
            auto pipe = *nowait::make_pipe();
            char byte = 0;
            const std::span<std::byte> into = std::as_writable_bytes(std::span(&byte, 1));
            auto waited = co_await nowait::with_timeout(pipe.reader.read(into), 10us);
            sim.note(waited ? 1 : 0);
            (void)co_await pipe.writer.write("x");
            (void)pipe.reader.close();
        }
    };
    happens(fault::cancel_race, closes);
}

TEST_CASE("outside events come at their time, and quiet is when only time can change anything") {
    simulation sim;
    const auto numbers = *nowait::channel<int>::create(1);
    int quiet = 0;
    sim.when_quiet([&] { ++quiet; });
    sim.after(2h, [&] {
        int number = 42;
        CHECK(numbers.try_send(number));
    });
    const auto got = sim.run(wait_for_ever(numbers));
    REQUIRE(got.has_value());
    CHECK(**got == 42);
    CHECK(quiet >= 1);
    CHECK(sim.elapsed() >= 2h);
}

TEST_CASE("several runtimes on one thread talk through channels") {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        simulation sim({.seed = seed});
        nowait::runtime& other = sim.add_runtime();
        const auto there = *nowait::channel<int>::create(0);
        const auto back = *nowait::channel<int>::create(2);
        auto echo = other.spawn([there, back]() -> task<void> {
            for (;;) {
                auto number = co_await there.receive();
                if (!number)
                    break;
                (void)co_await back.send_owned(*number + 1);
            }
            back.close();
        });
        const auto sum = sim.run([](auto to, auto from) -> task<int> {
            int total = 0;
            for (int i = 0; i < 10; ++i) {
                (void)co_await to.send_owned(i);
                auto answer = co_await from.receive();
                total += answer.value_or(-1000);
            }
            to.close();
            co_return total;
        }(there, back));
        INFO("seed " << seed);
        REQUIRE(sum.has_value());
        REQUIRE(*sum == 55);
        REQUIRE(echo.done());
    }
}

TEST_CASE("a stop from outside reaches a runtime") {
    simulation sim;
    sim.after(1h, [&] { sim.first_runtime().request_stop(); });
    const auto slept = sim.run([]() -> task<std::error_code> {
        auto slept_for = co_await nowait::sleep_for(100h);
        co_return slept_for ? std::error_code() : slept_for.error();
    }());
    REQUIRE(slept.has_value());
    CHECK(*slept == std::errc::operation_canceled);
    CHECK(sim.elapsed() < 2h);
}

TEST_CASE("a seed that fails is found, printed, and found again") {
    const auto passes = [](simulation& sim) { return sim.random(50) != 7; };
    const auto failing = nowait::first_failing_seed(1000, {.seed = 1}, passes);
    REQUIRE(failing.has_value());
    simulation again({.seed = *failing});
    CHECK_FALSE(passes(again));
    CHECK(nowait::first_failing_seed(1, {.seed = *failing}, passes) == failing);
    CHECK_FALSE(nowait::first_failing_seed(*failing - 1, {.seed = 1}, passes).has_value());
}

TEST_CASE("a runtime of its own runs on a simulation in the order of a real loop") {
    simulation sim;
    auto made = nowait::runtime::create(sim.options());
    REQUIRE(made.has_value());
    const auto got = made->run(through_a_pipe(200'000));
    REQUIRE(got.has_value());
    CHECK(*got == 200'000);
    const auto order = made->run(sleepers());
    REQUIRE(order.has_value());
    CHECK(sim.elapsed() >= 10h);
    CHECK(made->driver() == "simulated ring");
}
