// Values one after the other, and ticks.
#include "counting_new.hpp"
#include "fake_driver.hpp"
#include "runs.hpp"

#include <nowait/async_generator.hpp>
#include <nowait/channel.hpp>
#include <nowait/interval.hpp>
#include <nowait/sleep.hpp>
#include <nowait/timeout.hpp>
#include <nowait/when_any.hpp>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using nowait::async_generator;
using nowait::runtime;
using nowait::task;
using nowait_test::fake_world;
using namespace std::chrono_literals;

namespace {

constexpr auto canceled = std::errc::operation_canceled;

struct flag_on_destruction {
    explicit flag_on_destruction(bool& to) : flag(&to) {}
    flag_on_destruction(flag_on_destruction&& other) noexcept : flag(std::exchange(other.flag, nullptr)) {}
    flag_on_destruction& operator=(flag_on_destruction&&) = delete;
    ~flag_on_destruction() {
        if (flag != nullptr)
            *flag = true;
    }
    bool* flag;
};

async_generator<int> counts(int to) {
    for (int i = 0; i < to; ++i)
        co_yield i;
}

async_generator<std::unique_ptr<std::string>> words(flag_on_destruction) {
    co_yield std::make_unique<std::string>("one");
    (void)co_await nowait::sleep_for(1ms);
    co_yield std::make_unique<std::string>("two");
    auto three = std::make_unique<std::string>("three");
    co_yield std::move(three);
}

async_generator<int> throws_after(int count) {
    for (int i = 0; i < count; ++i)
        co_yield i;
    throw std::runtime_error("enough");
}

task<int> doubled(int n) {
    co_await nowait::yield();
    co_return 2 * n;
}

async_generator<int> with_children(int to) {
    for (int i = 0; i < to; ++i) {
        const int n = co_await doubled(i);
        co_yield n;
    }
}

async_generator<int> from_channel(nowait::local_channel<int> from) {
    for (;;) {
        auto got = co_await from.receive();
        if (!got)
            co_return;
        co_yield *got;
    }
}

void run(task<> what) {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run(std::move(what)).has_value());
}

} // namespace

TEST_CASE("generator: gives its values in order, then says that there are no more") {
    run([]() -> task<> {
        auto numbers = counts(5);
        std::vector<int> seen;
        while (auto n = co_await numbers.next())
            seen.push_back(*n);
        CHECK(seen == std::vector<int>{0, 1, 2, 3, 4});
        CHECK_FALSE(numbers.valid());
        auto after = co_await numbers.next();
        CHECK(after.error() == std::errc::broken_pipe);
        async_generator<int> empty;
        auto nothing = co_await empty.next();
        CHECK(nothing.error() == std::errc::bad_file_descriptor);
    }());
}

TEST_CASE("generator: nothing runs before the first next, and one that is dropped half way dies with its "
          "arguments") {
    run([]() -> task<> {
        bool died = false;
        {
            auto unused = words(flag_on_destruction(died));
        }
        CHECK(died);
        died = false;
        {
            auto some = words(flag_on_destruction(died));
            auto first = co_await some.next();
            CHECK(**first == "one");
            auto moved = std::move(some);
            auto second = co_await moved.next();
            CHECK(**second == "two");
            CHECK_FALSE(died);
        }
        CHECK(died);
        died = false;
        auto all = words(flag_on_destruction(died));
        int count = 0;
        while (auto each = co_await all.next())
            ++count;
        CHECK(count == 3);
        CHECK(died); // at its end, before the object goes
    }());
}

TEST_CASE("generator: what it throws arrives at next, and then it has ended") {
    run([]() -> task<> {
        auto numbers = throws_after(2);
        (void)co_await numbers.next();
        (void)co_await numbers.next();
        std::string what;
        try {
            (void)co_await numbers.next();
        } catch (const std::runtime_error& error) {
            what = error.what();
        }
        CHECK(what == "enough");
        auto after = co_await numbers.next();
        CHECK(after.error() == std::errc::broken_pipe);
    }());
}

TEST_CASE("generator: may await children and channels") {
    run([]() -> task<> {
        auto numbers = with_children(4);
        int sum = 0;
        while (auto n = co_await numbers.next())
            sum += *n;
        CHECK(sum == 12);

        auto channel = nowait::local_channel<int>::create(4).value();
        auto received = from_channel(channel);
        auto sends = [](nowait::local_channel<int> to) -> task<> {
            for (int i = 1; i <= 10; ++i) {
                auto sent = co_await to.send(i);
                CHECK(sent.has_value());
            }
            to.close();
        };
        auto handle = nowait::spawn(sends(channel));
        sum = 0;
        while (auto n = co_await received.next())
            sum += *n;
        CHECK(sum == 55);
        auto joined = co_await handle.join();
        CHECK(joined.has_value());
    }());
}

TEST_CASE("generator: next can be bounded, raced and refused") {
    run([]() -> task<> {
        auto channel = nowait::local_channel<int>::create(4).value();
        auto received = from_channel(channel);
        auto first = co_await nowait::when_any(received.next(), nowait::sleep_for(1ms));
        CHECK(first.index == 1);
        CHECK(first.get<0>().error() == std::errc::broken_pipe); // this one ends when it hears a stop

        auto again = from_channel(channel);
        nowait::inplace_stop_source stop;
        stop.request_stop();
        auto untouched = co_await nowait::with_stop(again.next(), stop.get_token());
        CHECK(untouched.error() == canceled);
        int five = 5;
        CHECK(channel.try_send(five).has_value());
        auto got = co_await again.next();
        CHECK(got.value() == 5);

        // Two at once: the second is refused.
        auto both = co_await nowait::when_any(nowait::biased, again.next(), again.next());
        CHECK(both.index == 1);
        CHECK(both.get<1>().error() == std::errc::device_or_resource_busy);
    }());
}

TEST_CASE("generator: a runtime dies while it waits inside, in a child, and between two values") {
    bool died[3] = {};
    {
        runtime dies = nowait_test::make_runtime();
        auto consumes = [](int kind, bool& flag) -> task<> {
            auto waits = [](bool& to) -> async_generator<int> {
                flag_on_destruction guard(to);
                co_yield 1;
                (void)co_await nowait::sleep_for(1h);
            };
            auto waits_in_child = [](bool& to) -> async_generator<int> {
                auto child = [](bool& mine) -> task<int> {
                    flag_on_destruction guard(mine);
                    (void)co_await nowait::sleep_for(1h);
                    co_return 1;
                };
                co_yield 1;
                const int n = co_await child(to);
                co_yield n;
            };
            auto values = kind == 1 ? waits_in_child(flag) : waits(flag);
            auto first = co_await values.next();
            CHECK(first.has_value());
            if (kind == 2)
                (void)co_await nowait::sleep_for(1h);
            else
                (void)co_await values.next();
        };
        for (int kind = 0; kind < 3; ++kind)
            dies.spawn(consumes(kind, died[kind])).detach();
        REQUIRE(dies.get_loop().enter() == 0);
        dies.get_loop().run_until_idle(std::chrono::steady_clock::now() + 1ms);
        dies.get_loop().leave();
        CHECK_FALSE((died[0] || died[1] || died[2]));
    }
    CHECK((died[0] && died[1] && died[2]));
}

TEST_CASE("generator: a value costs no allocation") {
    runtime runs = nowait_test::make_runtime();
    REQUIRE(runs.run([]() -> task<> {
                    auto numbers = counts(1000);
                    (void)co_await numbers.next();
                    const auto before = nowait_test::allocations();
                    int count = 1;
                    while (auto n = co_await numbers.next())
                        ++count;
                    const auto after = nowait_test::allocations();
                    CHECK(count == 1000);
                    CHECK(after == before);
                }())
                .has_value());
}

TEST_CASE("interval: keeps its pace whatever is done between the ticks") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([](fake_world& w) -> task<> {
                    const auto began = w.calls.time;
                    nowait::interval every(10ms);
                    for (int i = 1; i <= 5; ++i) {
                        auto ticks = co_await every.tick();
                        CHECK(ticks.value() == 1);
                        CHECK(w.calls.time - began >= i * 10ms);
                        CHECK(w.calls.time - began < i * 10ms + 1ms);
                        (void)co_await nowait::sleep_for(3ms);
                    }
                }(world))
                .has_value());
}

TEST_CASE("interval: ticks that were missed are counted, come at once, or are dropped") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([](fake_world& w) -> task<> {
                    nowait::interval skips(10ms);
                    nowait::interval bursts(10ms, nowait::missed_ticks::burst);
                    nowait::interval delays(10ms, nowait::missed_ticks::delay);
                    CHECK(skips.try_tick().error() == std::errc::resource_unavailable_try_again);
                    CHECK(bursts.try_tick().error() == std::errc::resource_unavailable_try_again);
                    CHECK(delays.try_tick().error() == std::errc::resource_unavailable_try_again);
                    const auto began = w.calls.time;
                    (void)co_await nowait::sleep_for(35ms);
                    co_await nowait::yield();
                    auto ticks = co_await skips.tick();
                    CHECK(ticks.value() == 3);
                    CHECK(skips.next() - began == 40ms);
                    for (int i = 0; i < 3; ++i)
                        CHECK(bursts.try_tick().value() == 1);
                    CHECK(bursts.try_tick().error() == std::errc::resource_unavailable_try_again);
                    CHECK(delays.try_tick().value() == 1);
                    CHECK(delays.next() - w.calls.time == 10ms);
                }(world))
                .has_value());
}

TEST_CASE("interval: a stop takes no tick, and the next wait is for the same one") {
    run([]() -> task<> {
        nowait::interval every(10ms);
        auto bounded = co_await nowait::with_timeout(every.tick(), 4ms);
        CHECK(bounded.error() == std::errc::timed_out);
        const auto due = every.next();
        auto ticks = co_await every.tick();
        CHECK(ticks.value() == 1);
        CHECK(every.next() == due + 10ms);
        auto both = co_await nowait::when_any(nowait::biased, every.tick(), every.tick());
        CHECK(both.get<1>().error() == std::errc::device_or_resource_busy);
        every.reset();
        CHECK(every.next() == nowait::interval::clock::time_point::max());
    }());
}

TEST_CASE("interval: periods of nothing, less than nothing and of for ever") {
    run([]() -> task<> {
        nowait::interval fast(0ms);
        CHECK(fast.period() == 1ns);
        nowait::interval wrong(-5s);
        CHECK(wrong.period() == 1ns);
        nowait::interval slow(std::chrono::hours::max());
        auto bounded = co_await nowait::with_timeout(slow.tick(), 1ms);
        CHECK(bounded.error() == std::errc::timed_out);
        CHECK(slow.try_tick().error() == std::errc::resource_unavailable_try_again);
    }());
}
