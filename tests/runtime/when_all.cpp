// Several things in one await.
#include "fake_driver.hpp"
#include "runs.hpp"

#include <nowait/pipe.hpp>
#include <nowait/sleep.hpp>
#include <nowait/timeout.hpp>
#include <nowait/when_all.hpp>

#include <array>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

using nowait::runtime;
using nowait::task;
using nowait_test::fake_world;
using namespace std::chrono_literals;

namespace {

task<int> number(int n, int steps) {
    for (int i = 0; i < steps; ++i)
        co_await nowait::yield();
    co_return n;
}

task<> nothing() {
    co_return;
}

task<int> throws(const char* what, int steps, int& ended) {
    for (int i = 0; i < steps; ++i)
        co_await nowait::yield();
    ++ended;
    throw std::runtime_error(what);
}

} // namespace

TEST_CASE("when_all gives a tuple of what each part gives") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([]() -> task<> {
                    nowait::pipe_pair pipe = nowait::make_pipe().value();
                    std::array<std::byte, 8> buffer{};
                    auto boxed = []() -> task<std::unique_ptr<int>> { co_return std::make_unique<int>(8); };
                    auto all =
                        co_await nowait::when_all(pipe.reader.read(buffer), pipe.writer.write("abc"),
                                                  number(4, 2), nothing(), nowait::sleep_for(3ms), boxed());
                    CHECK(std::get<0>(all).value() == 3);
                    CHECK(std::get<1>(all).value() == 3);
                    CHECK(std::get<2>(all) == 4);
                    static_assert(std::is_same_v<std::tuple_element_t<3, decltype(all)>, std::monostate>);
                    CHECK(std::get<4>(all).has_value());
                    CHECK(*std::get<5>(all) == 8);
                }())
                .has_value());
}

TEST_CASE("when_all of things that all finish inline does not suspend") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([]() -> task<> {
                    nowait::pipe_pair pipe = nowait::make_pipe().value();
                    const auto before = nowait::current_stats().turns;
                    const auto all = co_await nowait::when_all(pipe.writer.write("a"), pipe.writer.write("b"),
                                                               nowait::sleep_for(0s));
                    CHECK(std::get<1>(all).value() == 1);
                    CHECK(nowait::current_stats().turns == before);
                }())
                .has_value());
}

TEST_CASE("errors of parts stay in their parts") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([]() -> task<> {
                    nowait::pipe_pair pipe = nowait::make_pipe().value();
                    nowait::pipe_reader closed;
                    std::array<std::byte, 8> buffer{};
                    auto bounded = nowait::with_timeout(pipe.reader.read(buffer), 1ms);
                    const auto all =
                        co_await nowait::when_all(closed.read(buffer), std::move(bounded), number(1, 1));
                    CHECK(std::get<0>(all).error() == std::errc::bad_file_descriptor);
                    CHECK(std::get<1>(all).error() == std::errc::timed_out);
                    CHECK(std::get<2>(all) == 1);
                }())
                .has_value());
}

TEST_CASE("the first exception in order is thrown, after all have ended") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([]() -> task<> {
                    int ended = 0;
                    std::string seen;
                    try {
                        (void)co_await nowait::when_all(number(1, 1), throws("slow first", 9, ended),
                                                        throws("quick", 1, ended));
                    } catch (const std::runtime_error& e) {
                        seen = e.what();
                    }
                    CHECK(seen == "slow first");
                    CHECK(ended == 2);
                }())
                .has_value());
}

TEST_CASE("when_all of many tasks keeps their order") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([]() -> task<> {
                    std::vector<task<int>> parts;
                    for (int i = 0; i < 1000; ++i)
                        parts.push_back(number(i, i % 17));
                    const auto values = co_await nowait::when_all(std::move(parts));
                    CHECK(values.size() == 1000);
                    bool in_order = true;
                    for (int i = 0; i < 1000; ++i)
                        in_order = in_order && values[static_cast<std::size_t>(i)] == i;
                    CHECK(in_order);
                }())
                .has_value());
}

TEST_CASE("when_all of no tasks ends at once") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([]() -> task<> {
                    const auto values = co_await nowait::when_all(std::vector<task<int>>());
                    CHECK(values.empty());
                    const auto units = co_await nowait::when_all(std::vector<task<>>());
                    CHECK(units.empty());
                }())
                .has_value());
}

TEST_CASE("an exception among many tasks is thrown after all have ended") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([]() -> task<> {
                    int ended = 0;
                    std::vector<task<int>> parts;
                    for (int i = 0; i < 10; ++i)
                        parts.push_back(throws(i == 0 ? "zero" : "other", 10 - i, ended));
                    std::string seen;
                    try {
                        (void)co_await nowait::when_all(std::move(parts));
                    } catch (const std::runtime_error& e) {
                        seen = e.what();
                    }
                    CHECK(seen == "zero");
                    CHECK(ended == 10);
                }())
                .has_value());
}

TEST_CASE("a stop reaches every part of when_all") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([](fake_world& w) -> task<> {
                    const auto began = w.calls.time;
                    nowait::pipe_pair pipe = nowait::make_pipe().value();
                    std::array<std::byte, 8> buffer{};
                    auto sleeps = []() -> task<int> {
                        const auto slept = co_await nowait::sleep_for(1h);
                        co_return slept ? 0 : 1;
                    };
                    std::vector<task<int>> parts;
                    parts.push_back(sleeps());
                    parts.push_back(sleeps());
                    auto all = nowait::when_all(pipe.reader.read(buffer), nowait::sleep_for(1h), sleeps(),
                                                nowait::when_all(std::move(parts)));
                    const auto bounded = co_await nowait::with_timeout(std::move(all), 1ms);
                    const auto& values = bounded.value();
                    CHECK(std::get<0>(values).error() == std::errc::operation_canceled);
                    CHECK(std::get<1>(values).error() == std::errc::operation_canceled);
                    CHECK(std::get<2>(values) == 1);
                    CHECK(std::get<3>(values) == std::vector<int>{1, 1});
                    CHECK(w.calls.time - began < 1s);
                }(world))
                .has_value());
}
