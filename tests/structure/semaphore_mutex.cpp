// Permits and locks: order, stops, no barging, runtimes that die with waiters, threads.
#include "counting_new.hpp"
#include "fake_driver.hpp"
#include "runs.hpp"

#include <nowait/async_mutex.hpp>
#include <nowait/semaphore.hpp>
#include <nowait/sleep.hpp>
#include <nowait/task_scope.hpp>
#include <nowait/timeout.hpp>
#include <nowait/wait.hpp>
#include <nowait/when_any.hpp>

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

using nowait::runtime;
using nowait::task;
using nowait::task_scope;
using nowait_test::fake_world;
using namespace std::chrono_literals;

namespace {

constexpr auto canceled = std::errc::operation_canceled;
constexpr auto not_now = std::errc::resource_unavailable_try_again;

void run(task<> what) {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run(std::move(what)).has_value());
}

task<> yields(int count) {
    for (int i = 0; i < count; ++i)
        co_await nowait::yield();
}

template <class Semaphore>
task<> takes(Semaphore& from, std::size_t n, unsigned urgency, int name, std::vector<int>& order) {
    auto got = co_await from.acquire(n).with_urgency(urgency);
    if (got) {
        order.push_back(name);
        got->keep();
    } else {
        order.push_back(-name);
    }
}

} // namespace

TEMPLATE_TEST_CASE("semaphore: permits are taken, refused, given back", "", nowait::semaphore,
                   nowait::local_semaphore) {
    run([]() -> task<> {
        TestType permits(3);
        {
            auto two = permits.try_acquire(2);
            CHECK(two.has_value());
            CHECK(two->count() == 2);
            CHECK(permits.available() == 1);
            auto more = permits.try_acquire(2);
            CHECK(more.error() == not_now);
            auto one = co_await permits.acquire();
            CHECK(one.has_value());
            CHECK(permits.available() == 0);
            auto moved = std::move(*one);
            CHECK_FALSE(one->owns());
            moved.release();
            CHECK(permits.available() == 1);
        }
        CHECK(permits.available() == 3);
        auto none = permits.try_acquire(0);
        CHECK(none.error() == std::errc::invalid_argument);
        auto never = co_await permits.acquire(0);
        CHECK(never.error() == std::errc::invalid_argument);
        CHECK(permits.release(static_cast<std::size_t>(-1)).error() == std::errc::value_too_large);
        CHECK(permits.available() == 3);
    }());
}

TEMPLATE_TEST_CASE("semaphore: first come first served, also past one who wants more than there is", "",
                   nowait::semaphore, nowait::local_semaphore) {
    run([]() -> task<> {
        TestType permits(1);
        std::vector<int> order;
        task_scope scope;
        scope.spawn(takes(permits, 2, 0, 1, order));
        scope.spawn(takes(permits, 1, 0, 2, order));
        scope.spawn(takes(permits, 1, 0, 3, order));
        co_await yields(2);
        CHECK(order.empty()); // the first wants two: nobody passes it
        CHECK(permits.contended());
        auto barging = permits.try_acquire();
        CHECK(barging.error() == not_now);
        permits.release();
        co_await yields(2);
        CHECK(order == std::vector<int>{1});
        permits.release(5);
        auto joined = co_await scope.join();
        CHECK(joined.has_value());
        CHECK(order == std::vector<int>{1, 2, 3});
        CHECK(permits.available() == 3);
    }());
}

TEMPLATE_TEST_CASE("semaphore: the urgent come first, and in their order among themselves", "",
                   nowait::semaphore, nowait::local_semaphore) {
    run([]() -> task<> {
        TestType permits(0);
        std::vector<int> order;
        task_scope scope;
        const unsigned urgencies[] = {0, 2, 1, 2, 0, 3};
        int name = 0;
        for (const unsigned each : urgencies)
            scope.spawn(takes(permits, 1, each, ++name, order));
        co_await yields(2);
        for (int i = 0; i < 6; ++i) {
            permits.release();
            co_await yields(2);
        }
        auto joined = co_await scope.join();
        CHECK(joined.has_value());
        CHECK(order == std::vector<int>{6, 2, 4, 3, 1, 5});
    }());
}

TEMPLATE_TEST_CASE("semaphore: a waiter that is stopped leaves the line, and lets those behind it through",
                   "", nowait::semaphore, nowait::local_semaphore) {
    run([]() -> task<> {
        TestType permits(1);
        std::vector<int> order;
        task_scope first;
        task_scope others;
        first.spawn(takes(permits, 5, 0, 1, order));
        co_await yields(1);
        others.spawn(takes(permits, 1, 0, 2, order));
        co_await yields(2);
        CHECK(order.empty());
        first.request_stop();
        auto ended = co_await others.join();
        CHECK(ended.has_value());
        auto stopped = co_await first.join();
        CHECK(stopped.has_value());
        CHECK(order.size() == 2);
        CHECK(permits.available() == 0);
        CHECK_FALSE(permits.contended());
    }());
}

TEMPLATE_TEST_CASE(
    "semaphore: a waiter that is stopped after it was chosen has its permit, and gives it back", "",
    nowait::semaphore, nowait::local_semaphore) {
    run([]() -> task<> {
        TestType permits(0);
        bool had = false;
        auto holds = [](TestType& from, bool& got_it) -> task<> {
            auto got = co_await from.acquire();
            got_it = got.has_value();
        };
        std::vector<int> order;
        task_scope chosen;
        task_scope next;
        chosen.spawn(holds(permits, had));
        co_await yields(1);
        next.spawn(takes(permits, 1, 0, 2, order));
        co_await yields(1);
        permits.release(); // chosen now, runs later
        chosen.request_stop();
        auto joined = co_await next.join();
        CHECK(joined.has_value());
        CHECK(had);
        CHECK(order == std::vector<int>{2});
        auto all = co_await chosen.join();
        CHECK(all.has_value());
    }());
}

TEMPLATE_TEST_CASE("semaphore: under a stop nothing is taken, and a spent budget takes later", "",
                   nowait::semaphore, nowait::local_semaphore) {
    run([]() -> task<> {
        TestType permits(1000);
        nowait::inplace_stop_source stop;
        stop.request_stop();
        auto refused = co_await nowait::with_stop(permits.acquire(), stop.get_token());
        CHECK(refused.error() == canceled);
        CHECK(permits.available() == 1000);
        std::vector<typename TestType::permit> held;
        const auto turns = nowait::current_stats().turns;
        for (int i = 0; i < 1000; ++i) {
            auto got = co_await permits.acquire();
            held.push_back(std::move(*got));
        }
        CHECK(nowait::current_stats().turns > turns); // others had theirs
        CHECK(permits.available() == 0);
        held.clear();
        CHECK(permits.available() == 1000);
    }());
}

TEST_CASE("semaphore: when_any that loses the race gives its permit back with the result") {
    run([]() -> task<> {
        nowait::local_semaphore permits(0);
        {
            auto both = [](nowait::local_semaphore& of) -> task<> {
                of.release();
                co_return;
            };
            auto helping = nowait::spawn(both(permits));
            auto first = co_await nowait::when_any(permits.acquire(), nowait::sleep_for(1h));
            CHECK(first.index == 0);
            CHECK(permits.available() == 0);
            auto joined = co_await helping.join();
            CHECK(joined.has_value());
        }
        CHECK(permits.available() == 1);
    }());
}

TEMPLATE_TEST_CASE("mutex: one at a time, in order, also over awaits", "", nowait::async_mutex,
                   nowait::local_async_mutex) {
    run([]() -> task<> {
        TestType mutex;
        std::vector<int> order;
        int inside = 0;
        auto critical = [](TestType& m, int name, int& in, std::vector<int>& names) -> task<> {
            auto held = co_await m.lock();
            CHECK(held.has_value());
            CHECK(++in == 1);
            co_await yields(3);
            CHECK(--in == 0);
            names.push_back(name);
        };
        task_scope scope;
        for (int i = 0; i < 5; ++i)
            scope.spawn(critical(mutex, i, inside, order));
        co_await yields(1);
        auto busy = mutex.try_lock();
        CHECK(busy.error() == not_now);
        auto joined = co_await scope.join();
        CHECK(joined.has_value());
        CHECK(order == std::vector<int>{0, 1, 2, 3, 4});
        CHECK_FALSE(mutex.held());
        auto mine = mutex.try_lock();
        CHECK(mine.has_value());
        mine->keep();
        CHECK(mutex.held());
        CHECK(mutex.unlock().has_value());
        CHECK(mutex.unlock().error() == std::errc::operation_not_permitted);
        CHECK_FALSE(mutex.held());
    }());
}

TEST_CASE("local semaphore: another runtime's task is refused while somebody waits") {
    fake_world world;
    fake_world other_world;
    runtime runs = world.make();
    runtime other = other_world.make();
    nowait::local_semaphore permits(0);
    std::vector<int> order;
    runs.spawn(takes(permits, 1, 0, 1, order)).detach();
    REQUIRE(runs.get_loop().enter() == 0);
    runs.get_loop().run_until_idle(world.calls.time);
    runs.get_loop().leave();
    REQUIRE(other
                .run([](nowait::local_semaphore& of) -> task<> {
                    auto got = co_await of.acquire();
                    CHECK(got.error() == std::errc::operation_not_permitted);
                }(permits))
                .has_value());
    permits.release();
    REQUIRE(runs.run().has_value());
    CHECK(order == std::vector<int>{1});
}

TEST_CASE("semaphore: a runtime that dies with a chosen waiter passes the permit on") {
    nowait::semaphore permits(0);
    std::vector<int> order;
    runtime stays = nowait_test::make_runtime();
    {
        runtime dies = nowait_test::make_runtime();
        std::vector<int> nobody;
        dies.spawn(takes(permits, 1, 0, 7, nobody)).detach();
        dies.spawn(takes(permits, 1, 0, 8, nobody)).detach(); // linked until the end
        REQUIRE(dies.get_loop().enter() == 0);
        dies.get_loop().run_until_idle(std::chrono::steady_clock::now());
        dies.get_loop().leave();
        CHECK(permits.contended());
        stays.spawn(takes(permits, 1, 0, 9, order)).detach();
        REQUIRE(stays.get_loop().enter() == 0);
        stays.get_loop().run_until_idle(std::chrono::steady_clock::now());
        stays.get_loop().leave();
        permits.release(); // the first of the dying one is chosen, and never runs
        CHECK(nobody.empty());
    }
    REQUIRE(stays.run().has_value());
    CHECK(order == std::vector<int>{9});
    CHECK(permits.available() == 0);
    CHECK_FALSE(permits.contended());
}

TEST_CASE("mutex: a runtime that dies with a holder and waiters leaves it free") {
    nowait::async_mutex mutex;
    {
        runtime dies = nowait_test::make_runtime();
        auto holds = [](nowait::async_mutex& of) -> task<> {
            auto held = co_await of.lock();
            (void)co_await nowait::sleep_for(1h);
        };
        for (int i = 0; i < 5; ++i)
            dies.spawn(holds(mutex)).detach();
        REQUIRE(dies.get_loop().enter() == 0);
        dies.get_loop().run_until_idle(std::chrono::steady_clock::now());
        dies.get_loop().leave();
        CHECK(mutex.held());
    }
    CHECK_FALSE(mutex.held());
    CHECK_FALSE(mutex.contended());
}

TEST_CASE("mutex: a counter that runtimes on several threads and plain threads share") {
    nowait::async_mutex mutex;
    long counter = 0; // guarded by the mutex, and by nothing else
    constexpr int rounds = 2000;
    auto adds = [](nowait::async_mutex& of, long& to) -> task<> {
        for (int i = 0; i < rounds; ++i) {
            auto held = co_await of.lock();
            REQUIRE(held.has_value());
            ++to;
            if (i % 7 == 0)
                co_await nowait::yield();
        }
    };
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&] {
            auto runs = nowait::runtime::create();
            if (!runs)
                std::terminate();
            auto more = runs->spawn(adds(mutex, counter));
            if (!runs->run(adds(mutex, counter)))
                std::terminate();
        });
    }
    threads.emplace_back([&] {
        for (int i = 0; i < rounds; ++i) {
            auto held = nowait::wait(mutex.lock());
            if (!held)
                std::terminate();
            ++counter;
        }
    });
    for (std::thread& each : threads)
        each.join();
    CHECK(counter == 7L * rounds);
    CHECK_FALSE(mutex.held());
}

TEST_CASE("semaphore: stops from a time-out race with releases on another thread, and no permit is lost") {
    nowait::semaphore permits(0);
    constexpr int rounds = 3000;
    std::thread gives([&] {
        for (int i = 0; i < rounds; ++i) {
            permits.release();
            std::this_thread::yield();
        }
    });
    int taken = 0;
    runtime runs = nowait_test::make_runtime();
    REQUIRE(runs.run([](nowait::semaphore& from, int& count) -> task<> {
                    while (count < rounds) {
                        auto got = co_await nowait::with_timeout(from.acquire(), 20us);
                        if (got) {
                            ++count;
                            got->keep();
                        }
                    }
                }(permits, taken))
                .has_value());
    gives.join();
    CHECK(taken == rounds);
    CHECK(permits.available() == 0);
}

TEST_CASE("semaphore: waiting allocates nothing") {
    runtime runs = nowait_test::make_runtime();
    REQUIRE(runs.run([]() -> task<> {
                    nowait::semaphore permits(0);
                    auto gives = [](nowait::semaphore& to) -> task<> {
                        to.release();
                        co_return;
                    };
                    std::size_t before = 0;
                    for (int i = 0; i < 20; ++i) {
                        if (i == 10)
                            before = nowait_test::allocations();
                        auto handle = nowait::spawn(gives(permits));
                        auto got = co_await permits.acquire();
                        got->keep();
                        auto joined = co_await handle.join();
                        if (!joined)
                            FAIL("join");
                    }
                    const auto after = nowait_test::allocations();
                    CHECK(after == before);
                }())
                .has_value());
}
