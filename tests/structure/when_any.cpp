// The first of several, and what the others had done.
#include "counting_new.hpp"
#include "fake_driver.hpp"
#include "runs.hpp"

#include <nowait/channel.hpp>
#include <nowait/mqueue_channel.hpp>
#include <nowait/pipe.hpp>
#include <nowait/pipe_channel.hpp>
#include <nowait/semaphore.hpp>
#include <nowait/sleep.hpp>
#include <nowait/task_scope.hpp>
#include <nowait/timeout.hpp>
#include <nowait/when_all.hpp>
#include <nowait/when_any.hpp>

#include <array>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

using nowait::runtime;
using nowait::task;
using nowait_test::fake_world;
using namespace std::chrono_literals;

namespace {

constexpr auto canceled = std::errc::operation_canceled;

task<int> number(int n, int steps) {
    for (int i = 0; i < steps; ++i)
        co_await nowait::yield();
    co_return n;
}

/// A number, unless it is stopped before.
task<int> late(int n, std::chrono::milliseconds span) {
    const auto slept = co_await nowait::sleep_for(span);
    co_return slept ? n : -n;
}

/// Runs until it is stopped, then throws what `how` says.
task<int> throws_when_stopped(std::exception_ptr how) {
    const auto slept = co_await nowait::sleep_for(1h);
    if (!slept)
        std::rethrow_exception(how);
    co_return 0;
}

task<> throws_at_once() {
    throw std::runtime_error("at once");
    co_return;
}

void run(task<> what) {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run(std::move(what)).has_value());
}

} // namespace

TEST_CASE("when_any: the first timer wins, the second is stopped at once") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([](fake_world& w) -> task<> {
                    const auto began = w.calls.time;
                    auto first = co_await nowait::when_any(nowait::sleep_for(1h), nowait::sleep_for(1ms));
                    CHECK(first.index == 1);
                    CHECK(first.get<1>().has_value());
                    CHECK(first.get<0>().error() == canceled);
                    CHECK(w.calls.time - began < 1s);
                }(world))
                .has_value());
}

TEST_CASE("when_any: what finishes at the first attempt wins without a suspension") {
    run([]() -> task<> {
        auto channel = nowait::local_channel<int>::create(4).value();
        int seven = 7;
        CHECK(channel.try_send(seven).has_value());
        const auto before = nowait::current_stats().turns;
        auto first = co_await nowait::when_any(nowait::sleep_for(0s), channel.receive());
        CHECK(nowait::current_stats().turns == before);
        // Which one is tried first is not fixed: the other is untouched.
        if (first.index == 0) {
            CHECK(first.get<1>().error() == canceled);
            CHECK(channel.try_receive().value() == 7);
        } else {
            CHECK(first.get<1>().value() == 7);
            CHECK(first.get<0>().error() == canceled);
        }
    }());
}

TEST_CASE("when_any: biased makes its attempts in order, fair gives each its share") {
    run([]() -> task<> {
        std::array<int, 3> fair{};
        std::array<int, 3> in_order{};
        for (int i = 0; i < 3000; ++i) {
            auto a = co_await nowait::when_any(nowait::sleep_for(0s), nowait::sleep_for(0s),
                                               nowait::sleep_for(0s));
            ++fair[a.index];
            auto b = co_await nowait::when_any(nowait::biased, nowait::sleep_for(0s), nowait::sleep_for(0s),
                                               nowait::sleep_for(0s));
            ++in_order[b.index];
            co_await nowait::yield(); // a new budget
        }
        CHECK(in_order[0] == 3000);
        for (const int share : fair)
            CHECK((share > 800 && share < 1200));
    }());
}

TEST_CASE("when_any: two loops that alternate are both treated fairly") {
    // A counter that both advance would always begin at the same part for each of them.
    run([]() -> task<> {
        std::array<std::array<int, 2>, 2> wins{};
        for (int i = 0; i < 2000; ++i) {
            for (auto& mine : wins) {
                auto first = co_await nowait::when_any(nowait::sleep_for(0s), nowait::sleep_for(0s));
                ++mine[first.index];
            }
            co_await nowait::yield();
        }
        for (const auto& mine : wins)
            CHECK((mine[0] > 800 && mine[0] < 1200));
    }());
}

TEST_CASE(
    "when_any: over a channel, a queue, a kernel pipe, an in-process pipe, a timer, a task, a semaphore") {
    run([]() -> task<> {
        auto channel = nowait::channel<int>::create(1).value();
        auto queue = nowait::mqueue_channel<int>::create({.capacity = 4}).value();
        nowait::pipe_pair pipe = nowait::make_pipe().value();
        auto inside = nowait::pipe_channel::create().value();
        nowait::semaphore permits(0);
        for (std::size_t winner = 0; winner < 7; ++winner) {
            std::array<std::byte, 8> bytes{};
            std::array<std::byte, 8> more{};
            auto helper = [](auto& ch, auto& q, auto& p, auto& in, auto& s, std::size_t who) -> task<> {
                for (int i = 0; i < 5; ++i)
                    co_await nowait::yield();
                int value = 5;
                if (who == 0)
                    CHECK(ch.try_send(value).has_value());
                if (who == 1)
                    CHECK(q.try_send(value, 3).has_value());
                if (who == 2) {
                    auto wrote = co_await p.writer.write("x");
                    CHECK(wrote.has_value());
                }
                if (who == 3)
                    CHECK(in.writer.try_write("y").has_value());
                if (who == 6)
                    CHECK(s.release().has_value());
            };
            auto helping = nowait::spawn(helper(channel, queue, pipe, inside, permits, winner));
            const auto span = winner == 4 ? 1ms : std::chrono::milliseconds(1h);
            auto first = co_await nowait::when_any(
                channel.receive(), queue.receive(), pipe.reader.read(bytes), inside.reader.read(more),
                nowait::sleep_for(span), late(9, winner == 5 ? 1ms : std::chrono::milliseconds(1h)),
                permits.acquire());
            CHECK(first.index == winner);
            CHECK(first.get<0>().has_value() == (winner == 0));
            CHECK(first.get<1>().has_value() == (winner == 1));
            CHECK(first.get<2>().has_value() == (winner == 2));
            CHECK(first.get<3>().has_value() == (winner == 3));
            CHECK(first.get<4>().has_value() == (winner == 4));
            CHECK(first.get<6>().has_value() == (winner == 6));
            auto joined = co_await helping.join();
            CHECK(joined.has_value());
            if (winner == 5)
                CHECK(first.get<5>() == 9);
            else
                CHECK(first.get<5>() == -9);
        }
    }());
}

TEST_CASE("when_any: a loser that had finished keeps its effect, and nothing is lost") {
    run([]() -> task<> {
        auto one = nowait::local_channel<int>::create(1).value();
        auto two = nowait::local_channel<int>::create(1).value();
        // Both are chosen in the same turn, before either has run.
        auto both = [](auto& a, auto& b) -> task<> {
            int x = 1;
            int y = 2;
            CHECK(a.try_send(x).has_value());
            CHECK(b.try_send(y).has_value());
            co_return;
        };
        auto helping = nowait::spawn(both(one, two));
        auto first = co_await nowait::when_any(one.receive(), two.receive());
        CHECK(first.index == 0);
        CHECK(first.get<0>().value() == 1);
        CHECK(first.get<1>().value() == 2);
        CHECK((co_await helping.join()).has_value());
    }());
}

TEST_CASE("when_any: an unsent message comes back, whether its send was waiting or not even tried") {
    run([]() -> task<> {
        auto full = nowait::local_channel<std::unique_ptr<int>>::create(1).value();
        auto filling = std::make_unique<int>(0);
        CHECK(full.try_send(filling).has_value());
        auto ready = nowait::local_channel<int>::create(1).value();
        int five = 5;
        CHECK(ready.try_send(five).has_value());
        // Not tried: the receive before it finishes at once.
        auto message = std::make_unique<int>(11);
        auto sending = full.send_owned(std::move(message));
        auto first = co_await nowait::when_any(nowait::biased, ready.receive(), std::move(sending));
        CHECK(first.index == 0);
        CHECK(first.get<0>().value() == 5);
        REQUIRE_FALSE(first.get<1>().has_value());
        CHECK(first.get<1>().error().code == canceled);
        CHECK(*first.get<1>().error().value == 11);
        // Waiting, and then stopped.
        auto again = full.send_owned(std::move(first.get<1>().error().value));
        auto second = co_await nowait::when_any(std::move(again), nowait::sleep_for(1ms));
        CHECK(second.index == 1);
        CHECK(*second.get<0>().error().value == 11);
        CHECK(*full.try_receive().value() == 0);
        CHECK(full.empty());
    }());
}

TEST_CASE("when_any: an exception is thrown where the part's value is asked for") {
    run([]() -> task<> {
        auto first = co_await nowait::when_any(throws_at_once(), nowait::sleep_for(1h));
        CHECK(first.index == 0);
        CHECK(std::get<0>(first.parts).threw());
        std::string seen;
        try {
            first.get<0>();
        } catch (const std::runtime_error& error) {
            seen = error.what();
        }
        CHECK(seen == "at once");
        CHECK(first.get<1>().error() == canceled);
    }());
}

TEST_CASE("when_any of ready and never, in both orders, and of ten of whom nine throw when stopped") {
    run([]() -> task<> {
        const auto stopped =
            std::make_exception_ptr(std::system_error(std::make_error_code(std::errc::operation_canceled)));
        auto a = co_await nowait::when_any(number(1, 0), throws_when_stopped(stopped));
        CHECK(a.index == 0);
        CHECK(a.get<0>() == 1);
        auto b = co_await nowait::when_any(throws_when_stopped(stopped), number(2, 0));
        CHECK(b.index == 1);
        CHECK(b.get<1>() == 2);

        std::vector<task<int>> ten;
        for (int i = 0; i < 10; ++i)
            ten.push_back(i == 6 ? number(7, 3) : throws_when_stopped(stopped));
        auto first = co_await nowait::when_any(std::move(ten));
        CHECK(first.index == 6);
        CHECK(first.parts[6].value() == 7);
        int threw = 0;
        for (const auto& each : first.parts)
            threw += each.threw() ? 1 : 0;
        CHECK(threw == 9);

        // What is no cancellation is there for whoever looks at the loser.
        auto c = co_await nowait::when_any(
            throws_when_stopped(std::make_exception_ptr(std::logic_error("other"))), number(3, 0));
        CHECK(c.get<1>() == 3);
        CHECK_THROWS_AS(c.get<0>(), std::logic_error);
    }());
}

TEST_CASE("when_any: of many operations, of many tasks, of none") {
    run([]() -> task<> {
        std::vector<nowait::detail::sleep_description> sleeps;
        for (int i = 0; i < 100; ++i)
            sleeps.push_back(nowait::sleep_for(std::chrono::milliseconds(100 - i)));
        auto first = co_await nowait::when_any(std::move(sleeps));
        CHECK(first.index == 99);
        CHECK(first.parts[99].value().has_value());
        CHECK(first.parts[0].value().error() == canceled);

        auto none = co_await nowait::when_any(std::vector<task<>>());
        CHECK(none.parts.empty());
        CHECK(none.index == static_cast<std::size_t>(-1));
    }());
}

TEST_CASE("when_any: the losers are awaited, also one that takes its time") {
    run([]() -> task<> {
        bool ended = false;
        auto slow = [](bool& over) -> task<> {
            const auto slept = co_await nowait::sleep_for(1h);
            CHECK(slept.error() == canceled);
            for (int i = 0; i < 50; ++i)
                co_await nowait::yield();
            over = true;
        };
        auto first = co_await nowait::when_any(slow(ended), nowait::sleep_for(1ms));
        CHECK(first.index == 1);
        CHECK(ended);
    }());
}

TEST_CASE("when_any: a stop from outside ends every part, before the start too") {
    run([]() -> task<> {
        auto channel = nowait::channel<int>::create(1).value();
        auto inner = nowait::when_any(channel.receive(), nowait::sleep_for(1h));
        auto outer = co_await nowait::with_timeout(std::move(inner), 1ms);
        REQUIRE(outer.has_value());
        CHECK(outer->get<0>().error() == canceled);
        CHECK(outer->get<1>().error() == canceled);

        nowait::inplace_stop_source stop;
        stop.request_stop();
        int value = 3;
        CHECK(channel.try_send(value).has_value());
        auto late = nowait::when_any(channel.receive(), nowait::sleep_for(0s));
        auto none = co_await nowait::with_stop(std::move(late), stop.get_token());
        CHECK(none->get<0>().error() == canceled);
        CHECK(none->get<1>().error() == canceled);
        CHECK(channel.try_receive().value() == 3);
    }());
}

TEST_CASE("when_any: nested in itself and in when_all") {
    run([]() -> task<> {
        auto pair = nowait::when_any(nowait::sleep_for(2h), nowait::sleep_for(1h));
        auto all = nowait::when_all(nowait::sleep_for(1ms), nowait::sleep_for(2ms));
        auto first = co_await nowait::when_any(std::move(pair), std::move(all));
        CHECK(first.index == 1);
        CHECK(std::get<1>(first.get<1>()).has_value());
        CHECK(first.get<0>().get<0>().error() == canceled);
    }());
}

TEST_CASE("when_any: plain operations cost no frame and no allocation") {
    nowait::runtime runs = nowait_test::make_runtime();
    REQUIRE(runs.run([]() -> task<> {
                    auto channel = nowait::channel<int>::create(1).value();
                    CHECK(channel.reserve_memory().has_value());
                    auto once = [](auto& ch) -> task<> {
                        auto first = co_await nowait::when_any(ch.receive(), nowait::sleep_for(100us));
                        CHECK(first.index == 1);
                    };
                    co_await once(channel); // the one frame, and what a wait sets up
                    const auto frames = nowait::current_stats().frames_allocated;
                    const auto before = nowait_test::allocations();
                    for (int i = 0; i < 10; ++i) {
                        auto first = co_await nowait::when_any(channel.receive(), nowait::sleep_for(100us));
                        if (first.index != 1)
                            FAIL("nobody has sent anything");
                    }
                    const auto after = nowait_test::allocations();
                    CHECK(nowait::current_stats().frames_allocated == frames);
                    CHECK(after == before);
                }())
                .has_value());
}

TEST_CASE("when_all_or_error: the first failure stops the others, and their results are there") {
    run([]() -> task<> {
        nowait::pipe_pair pipe = nowait::make_pipe().value();
        nowait::pipe_reader closed;
        auto channel = nowait::local_channel<int>::create(1).value();
        int four = 4;
        CHECK(channel.try_send(four).has_value());
        std::array<std::byte, 8> buffer{};
        auto all = co_await nowait::when_all_or_error(channel.receive(), nowait::sleep_for(1h),
                                                      closed.read(buffer), pipe.reader.read(buffer));
        CHECK_FALSE(all.ok());
        CHECK(all.failed == 2);
        CHECK(all.error == std::errc::bad_file_descriptor);
        CHECK(std::get<0>(all.values).value() == 4);
        CHECK(std::get<1>(all.values).error() == canceled);
        CHECK(std::get<3>(all.values).error() == canceled);

        auto fine = co_await nowait::when_all_or_error(number(1, 4), nowait::sleep_for(1ms), number(2, 2));
        CHECK(fine.ok());
        CHECK(std::get<0>(fine.values) == 1);
        CHECK(std::get<2>(fine.values) == 2);
    }());
}

TEST_CASE("when_all_or_error: an exception stops the others and is thrown when all have ended") {
    run([]() -> task<> {
        bool ended = false;
        auto waits = [](bool& over) -> task<> {
            const auto slept = co_await nowait::sleep_for(1h);
            CHECK(slept.error() == canceled);
            over = true;
        };
        std::string seen;
        try {
            (void)co_await nowait::when_all_or_error(waits(ended), throws_at_once());
        } catch (const std::runtime_error& error) {
            seen = error.what();
        }
        CHECK(seen == "at once");
        CHECK(ended);
    }());
}

TEST_CASE("when_all: of many operations that are no tasks") {
    run([]() -> task<> {
        std::vector<nowait::detail::sleep_description> sleeps;
        for (int i = 0; i < 10; ++i)
            sleeps.push_back(nowait::sleep_for(std::chrono::milliseconds(i)));
        const auto all = co_await nowait::when_all(std::move(sleeps));
        CHECK(all.size() == 10);
        CHECK(all[9].has_value());
    }());
}
