// Time: never early, no overflow, one result.
#include "fake_driver.hpp"
#include "runs.hpp"

#include <nowait/sleep.hpp>
#include <nowait/timeout.hpp>
#include <nowait/when_all.hpp>

#include <chrono>
#include <cstdint>
#include <limits>
#include <ratio>
#include <vector>

using nowait::runtime;
using nowait::task;
using nowait_test::fake_world;
using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

namespace {

using hours32 = std::chrono::duration<int, std::ratio<3600>>;
using picoseconds = std::chrono::duration<std::int64_t, std::pico>;
using seconds_double = std::chrono::duration<double>;

/// How long `span` sleeps in virtual time; `bound` if it was still asleep then.
template <class Rep, class Period>
clock_type::duration slept(std::chrono::duration<Rep, Period> span, clock_type::duration bound = 1000h) {
    fake_world world;
    runtime runs = world.make();
    const auto before = world.calls.time;
    const auto ran = runs.run([](auto how_long, auto at_most) -> task<bool> {
        const auto ended = co_await nowait::with_timeout(nowait::sleep_for(how_long), at_most);
        co_return ended.has_value();
    }(span, bound));
    const auto passed = world.calls.time - before;
    if (!ran.value())
        return bound;
    return passed;
}

bool close_to(clock_type::duration seen, clock_type::duration wanted) {
    return seen >= wanted && seen <= wanted + 40us; // the wheel's tick is 16 us
}

} // namespace

TEST_CASE("a sleep lasts what was asked for, in virtual time") {
    CHECK(close_to(slept(1ns), 1ns));
    CHECK(close_to(slept(1us), 1us));
    CHECK(close_to(slept(16us), 16us));
    CHECK(close_to(slept(1ms), 1ms));
    CHECK(close_to(slept(250ms), 250ms));
    CHECK(close_to(slept(10h), 10h));
    CHECK(close_to(slept(10h + 1ns), 10h + 1ns));
    CHECK(close_to(slept(999h), 999h));
}

TEST_CASE("a sleep of nothing or less ends inline") {
    CHECK(slept(0ns) == 0ns);
    CHECK(slept(-1s) == 0ns);
    CHECK(slept(std::chrono::nanoseconds::min()) == 0ns);
    CHECK(slept(std::chrono::hours::min()) == 0ns);
    CHECK(slept(seconds_double(std::numeric_limits<double>::quiet_NaN())) == 0ns);
    CHECK(slept(seconds_double(-std::numeric_limits<double>::infinity())) == 0ns);
}

TEST_CASE("durations of any type are converted without loss that matters") {
    CHECK(close_to(slept(picoseconds(1'000'000'000'000)), 1s));
    CHECK(close_to(slept(picoseconds(1)), 1ns)); // rounded up: it is not nothing
    CHECK(close_to(slept(seconds_double(0.2)), 200ms));
    CHECK(close_to(slept(std::chrono::duration<float>(1.5F)), 1500ms));
    CHECK(close_to(slept(std::chrono::duration<std::int8_t>(5)), 5s));
    CHECK(close_to(slept(std::chrono::duration<std::uint64_t, std::milli>(3)), 3ms));
}

TEST_CASE("what does not fit the clock sleeps until it is stopped") {
    CHECK(slept(clock_type::duration::max()) == 1000h);
    CHECK(slept(std::chrono::hours::max()) == 1000h);
    CHECK(slept(hours32(std::numeric_limits<int>::max())) == 1000h);
    CHECK(slept(std::chrono::years(1'000'000)) == 1000h);
    // Thirds of a second: fewer than the clock's nanoseconds, and yet three of these times a billion are too many.
    using thirds = std::chrono::duration<std::int64_t, std::ratio<1, 3>>;
    CHECK(slept(thirds(9'480'000'000)) == 1000h);
    CHECK(close_to(slept(thirds(6)), 2s));
    CHECK(slept(seconds_double(1e300)) == 1000h);
    CHECK(slept(seconds_double(std::numeric_limits<double>::infinity())) == 1000h);
    CHECK(slept(std::chrono::duration<std::uint64_t>(std::numeric_limits<std::uint64_t>::max())) == 1000h);
}

TEST_CASE("sleep_until of the past, the future and never") {
    fake_world world;
    runtime runs = world.make();
    const auto began = world.calls.time;
    REQUIRE(runs.run([](clock_type::time_point now) -> task<> {
                    CHECK((co_await nowait::sleep_until(clock_type::time_point::min())).has_value());
                    CHECK((co_await nowait::sleep_until(clock_type::time_point{})).has_value());
                    CHECK((co_await nowait::sleep_until(now)).has_value());
                    CHECK((co_await nowait::sleep_until(now + 3s)).has_value());
                    const auto never =
                        co_await nowait::with_timeout(nowait::sleep_until(clock_type::time_point::max()), 2s);
                    CHECK(never.error() == std::errc::timed_out);
                }(began))
                .has_value());
    CHECK(close_to(world.calls.time - began, 5s));
}

TEST_CASE("sleepers wake in the order of their deadlines") {
    fake_world world;
    runtime runs = world.make();
    std::vector<int> order;
    for (int wait : {50, 10, 40, 20, 30, 1000, 999, 5000}) {
        runs.spawn([](int ms, std::vector<int>& to) -> task<> {
                (void)co_await nowait::sleep_for(std::chrono::milliseconds(ms));
                to.push_back(ms);
            }(wait, order))
            .detach();
    }
    REQUIRE(runs.run().has_value());
    CHECK(order == std::vector<int>{10, 20, 30, 40, 50, 999, 1000, 5000});
}

TEST_CASE("expiry and cancel in one tick: one result, whichever came first") {
    for (const bool cancel_first : {false, true}) {
        fake_world world;
        runtime runs = world.make();
        nowait::inplace_stop_source stop;
        int ends = 0;
        bool expired = false;
        auto sleeper = [](nowait::inplace_stop_source& s, int& count, bool& by_time) -> task<> {
            const auto ended = co_await nowait::with_stop(nowait::sleep_for(1ms), s.get_token());
            ++count;
            by_time = ended.has_value();
        };
        auto stopper = [](nowait::inplace_stop_source& s) -> task<> {
            (void)co_await nowait::sleep_for(1ms);
            s.request_stop();
        };
        if (cancel_first) {
            runs.spawn(stopper(stop)).detach();
            runs.spawn(sleeper(stop, ends, expired)).detach();
        } else {
            runs.spawn(sleeper(stop, ends, expired)).detach();
            runs.spawn(stopper(stop)).detach();
        }
        REQUIRE(runs.run().has_value());
        CHECK(ends == 1);
        // Both timers expire in the same pass, before either coroutine runs: the sleeper has ended by then, in either order.
        CHECK(expired);
    }
}

TEST_CASE("a cancelled sleep ends once, and its timer never fires") {
    fake_world world;
    runtime runs = world.make();
    const auto began = world.calls.time;
    REQUIRE(runs.run([]() -> task<> {
                    for (int i = 0; i < 1000; ++i) {
                        const auto ended = co_await nowait::with_timeout(nowait::sleep_for(1h), 1us);
                        CHECK(ended.error() == std::errc::timed_out);
                    }
                }())
                .has_value());
    CHECK(world.calls.time - began < 1s);
}

TEST_CASE("the real clock: never early") {
    nowait_test::run_on_new([]() -> task<> {
        for (auto span : {1ns, 1000ns, 16384ns, 20000ns, 300000ns}) {
            const auto before = clock_type::now();
            CHECK((co_await nowait::sleep_for(span)).has_value());
            CHECK(clock_type::now() - before >= span);
        }
    }());
}
