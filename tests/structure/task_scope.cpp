// The nursery: what it waits for, what stops it, who hears of failures.
#include "counting_new.hpp"
#include "fake_driver.hpp"
#include "runs.hpp"

#include <nowait/sleep.hpp>
#include <nowait/stop.hpp>
#include <nowait/task_scope.hpp>
#include <nowait/timeout.hpp>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using nowait::result;
using nowait::runtime;
using nowait::task;
using nowait::task_scope;
using nowait_test::fake_world;
using namespace std::chrono_literals;

namespace {

constexpr auto canceled = std::errc::operation_canceled;

struct tally {
    int started = 0;
    int ended = 0;
    int stopped = 0;
};

task<> steps(tally& to, int count) {
    ++to.started;
    for (int i = 0; i < count; ++i)
        co_await nowait::yield();
    ++to.ended;
}

task<> sleeps(tally& to) {
    ++to.started;
    const auto slept = co_await nowait::sleep_for(1h);
    if (!slept)
        ++to.stopped;
    ++to.ended;
}

task<result<void>> sleeps_with_result(tally& to) {
    ++to.started;
    auto slept = co_await nowait::sleep_for(1h);
    ++to.ended;
    co_return slept;
}

task<> throws(const char* what, int after) {
    for (int i = 0; i < after; ++i)
        co_await nowait::yield();
    throw std::runtime_error(what);
}

task<result<void>> fails(std::errc code, int after) {
    for (int i = 0; i < after; ++i)
        co_await nowait::yield();
    co_return nowait::fail(code);
}

void run(task<> what) {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run(std::move(what)).has_value());
}

} // namespace

TEST_CASE("scope: join waits for all, and an empty scope ends at once") {
    run([]() -> task<> {
        tally seen;
        task_scope scope;
        CHECK((co_await scope.join()).has_value());
        for (int i = 0; i < 20; ++i)
            scope.spawn(steps(seen, i));
        CHECK(scope.active() == 20);
        CHECK(seen.started == 0);
        CHECK((co_await scope.join()).has_value());
        CHECK(seen.ended == 20);
        CHECK(scope.active() == 0);
        // It may be used again.
        scope.spawn(steps(seen, 3));
        CHECK((co_await scope.join()).has_value());
        CHECK(seen.ended == 21);
    }());
}

TEST_CASE("scope: the first exception stops the others and is thrown by join, after all have ended") {
    run([]() -> task<> {
        tally seen;
        task_scope scope;
        for (int i = 0; i < 5; ++i)
            scope.spawn(sleeps(seen));
        scope.spawn(throws("first", 2));
        scope.spawn(throws("second", 4));
        std::string what;
        try {
            (void)co_await scope.join();
        } catch (const std::runtime_error& error) {
            what = error.what();
        }
        CHECK(what == "first");
        CHECK(seen.stopped == 5);
        CHECK(seen.ended == 5);
        CHECK(scope.stop_requested());
    }());
}

TEST_CASE(
    "scope: an error of a task with a result counts as a failure, a cancellation after the stop does not") {
    run([]() -> task<> {
        tally seen;
        task_scope scope;
        scope.spawn(sleeps_with_result(seen));
        scope.spawn(fails(std::errc::no_space_on_device, 3));
        const auto ended = co_await scope.join();
        CHECK(ended.error() == std::errc::no_space_on_device);
        CHECK(seen.ended == 1);

        task_scope quiet;
        quiet.spawn(sleeps_with_result(seen));
        quiet.request_stop();
        CHECK((co_await quiet.join()).has_value());
        CHECK(seen.ended == 2);

        // Before anybody was asked to stop it is an error like any other.
        task_scope other;
        other.spawn(fails(canceled, 0));
        const auto third = co_await other.join();
        CHECK(third.error() == canceled);
    }());
}

TEST_CASE("scope: an exception that says cancelled is no failure after a stop") {
    run([]() -> task<> {
        auto throws_canceled = []() -> task<> {
            const auto slept = co_await nowait::sleep_for(1h);
            if (!slept)
                throw std::system_error(slept.error());
        };
        task_scope scope;
        scope.spawn(throws_canceled());
        scope.spawn(throws_canceled());
        scope.request_stop();
        CHECK((co_await scope.join()).has_value());
    }());
}

TEST_CASE("scope: tasks may spawn into the scope that they are in") {
    run([]() -> task<> {
        tally seen;
        task_scope scope;
        auto spawns = [](task_scope& into, tally& to) -> task<> {
            for (int i = 0; i < 5; ++i) {
                into.spawn(steps(to, i));
                co_await nowait::yield();
            }
        };
        scope.spawn(spawns(scope, seen));
        CHECK((co_await scope.join()).has_value());
        CHECK(seen.ended == 5);
    }());
}

TEST_CASE("scope: what is spawned after a stop sees it at once") {
    run([]() -> task<> {
        tally seen;
        task_scope scope;
        scope.request_stop();
        scope.spawn(sleeps(seen));
        CHECK((co_await scope.join()).has_value());
        CHECK(seen.stopped == 1);
    }());
}

TEST_CASE("scope: a time-out around join stops the tasks and waits until they have ended") {
    run([]() -> task<> {
        tally seen;
        task_scope scope;
        scope.spawn(sleeps(seen));
        auto slow = [](tally& to) -> task<> {
            const auto slept = co_await nowait::sleep_for(1h);
            CHECK(slept.error() == canceled);
            for (int i = 0; i < 30; ++i)
                co_await nowait::yield();
            ++to.ended;
        };
        scope.spawn(slow(seen));
        const auto ended = co_await nowait::with_timeout(scope.join(), 1ms);
        CHECK(ended.error() == std::errc::timed_out);
        CHECK(seen.ended == 2);
    }());
}

TEST_CASE("scope: join by a second task is refused, and of an empty scope too") {
    run([]() -> task<> {
        tally seen;
        task_scope scope;
        scope.spawn(sleeps(seen));
        auto joins = [](task_scope& of) -> task<result<void>> {
            auto ended = co_await of.join();
            co_return ended;
        };
        auto first = nowait::spawn(joins(scope));
        co_await nowait::yield();
        const auto busy = co_await scope.join();
        CHECK(busy.error() == std::errc::device_or_resource_busy);
        scope.request_stop();
        const auto joined = co_await first.join();
        CHECK(joined.value().has_value());
        task_scope moved(std::move(scope));
        const auto empty = co_await scope.join();
        CHECK(empty.error() == std::errc::bad_file_descriptor);
        CHECK((co_await moved.join()).has_value());
    }());
}

TEST_CASE("scope: the runtime's stop reaches tasks that nobody joins") {
    fake_world world;
    runtime runs = world.make();
    tally seen;
    {
        task_scope scope(runs);
        for (int i = 0; i < 3; ++i)
            scope.spawn(sleeps(seen));
        runs.request_stop();
        REQUIRE(runs.run().has_value());
        CHECK(scope.active() == 0);
        scope.spawn(sleeps(seen));
        REQUIRE(runs.run().has_value());
    }
    CHECK(seen.stopped == 4);
}

TEST_CASE("scope: a callable is kept until its task has ended, and dies before anybody hears of the end") {
    run([]() -> task<> {
        auto token = std::make_shared<int>(3);
        std::weak_ptr<int> watched = token;
        int sum = 0;
        task_scope scope;
        scope.spawn([token = std::move(token), &sum]() -> task<> {
            co_await nowait::yield();
            sum += *token;
        });
        scope.spawn([]() -> task<result<void>> {
            co_await nowait::yield();
            co_return result<void>();
        });
        CHECK((co_await scope.join()).has_value());
        CHECK(sum == 3);
        CHECK(watched.expired());
    }());
}

TEST_CASE("scope: a callable that throws before there is a task leaves nothing behind") {
    run([]() -> task<> {
        task_scope scope;
        auto bad = []() -> task<> { return throw std::logic_error("no task"), task<>(); };
        CHECK_THROWS_AS(scope.spawn(bad), std::logic_error);
        CHECK(scope.active() == 0);
        CHECK((co_await scope.join()).has_value());
    }());
}

TEST_CASE("with_scope: leaves when the body and all tasks have ended") {
    run([]() -> task<> {
        std::vector<int> order;
        std::string local = "borrowed by the tasks";
        auto ended = co_await nowait::with_scope([&](task_scope& scope) -> task<> {
            for (int i = 0; i < 3; ++i) {
                scope.spawn([&order, &local, i]() -> task<> {
                    for (int left = 3 - i; left > 0; --left)
                        co_await nowait::yield();
                    CHECK(local.size() == 21);
                    order.push_back(i);
                });
            }
            co_await nowait::yield();
        });
        CHECK(ended.has_value());
        CHECK(order == std::vector<int>{2, 1, 0});
    }());
}

TEST_CASE("with_scope: an exception of the body stops the tasks, an exception of a task stops the body") {
    run([]() -> task<> {
        tally seen;
        std::string what;
        auto body_throws = [&seen](task_scope& scope) -> task<> {
            scope.spawn(sleeps(seen));
            co_await nowait::yield();
            throw std::runtime_error("body");
        };
        try {
            (void)co_await nowait::with_scope(body_throws);
        } catch (const std::runtime_error& error) {
            what = error.what();
        }
        CHECK(what == "body");
        CHECK(seen.stopped == 1);

        auto task_throws = [&seen](task_scope& scope) -> task<> {
            scope.spawn(throws("task", 2));
            const auto slept = co_await nowait::sleep_for(1h);
            CHECK(slept.error() == canceled);
            ++seen.ended;
        };
        try {
            (void)co_await nowait::with_scope(task_throws);
        } catch (const std::runtime_error& error) {
            what = error.what();
        }
        CHECK(what == "task");
        CHECK(seen.ended == 2);
    }());
}

TEST_CASE("scope: a task costs its frame and nothing beside") {
    nowait::runtime runs = nowait_test::make_runtime();
    REQUIRE(runs.run([]() -> task<> {
                    tally seen;
                    auto rounds = [](tally& to) -> task<> {
                        task_scope scope;
                        for (int i = 0; i < 10; ++i)
                            scope.spawn(steps(to, 1));
                        const auto joined = co_await scope.join();
                        if (!joined)
                            throw std::system_error(joined.error());
                    };
                    co_await rounds(seen);
                    const auto before = nowait_test::allocations();
                    const auto frames = nowait::current_stats().frames_allocated;
                    for (int i = 0; i < 10; ++i)
                        co_await rounds(seen);
                    const auto after = nowait_test::allocations();
                    CHECK(after == before);
                    CHECK(nowait::current_stats().frames_allocated == frames);
                    CHECK(seen.ended == 110);
                }())
                .has_value());
}
