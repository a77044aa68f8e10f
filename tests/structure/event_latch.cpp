// What opens for everybody: events and latches.
#include "fake_driver.hpp"
#include "runs.hpp"

#include <nowait/event.hpp>
#include <nowait/latch.hpp>
#include <nowait/sleep.hpp>
#include <nowait/task_scope.hpp>
#include <nowait/timeout.hpp>
#include <nowait/wait.hpp>

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

constexpr auto not_now = std::errc::resource_unavailable_try_again;

void run(task<> what) {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run(std::move(what)).has_value());
}

template <class Gate>
task<> passes(Gate& through, int name, std::vector<int>& order) {
    const auto waited = co_await through.wait();
    order.push_back(waited ? name : -name);
}

} // namespace

TEMPLATE_TEST_CASE("event: wakes all in their order, and stays set until it is reset", "", nowait::event,
                   nowait::local_event) {
    run([]() -> task<> {
        TestType happened;
        std::vector<int> order;
        task_scope scope;
        for (int i = 1; i <= 4; ++i)
            scope.spawn(passes(happened, i, order));
        co_await nowait::yield();
        CHECK(happened.try_wait().error() == not_now);
        happened.set();
        happened.reset(); // they have seen it
        auto joined = co_await scope.join();
        CHECK(joined.has_value());
        CHECK(order == std::vector<int>{1, 2, 3, 4});
        CHECK_FALSE(happened.is_set());

        happened.set();
        CHECK(happened.try_wait().has_value());
        const auto turns = nowait::current_stats().turns;
        const auto waited = co_await happened.wait();
        CHECK(waited.has_value());
        CHECK(nowait::current_stats().turns == turns);
        TestType born_set(true);
        CHECK(born_set.is_set());
    }());
}

TEMPLATE_TEST_CASE("event: a waiter that is stopped leaves, one that was chosen has waited", "",
                   nowait::event, nowait::local_event) {
    run([]() -> task<> {
        TestType happened;
        const auto timed = co_await nowait::with_timeout(happened.wait(), 1ms);
        CHECK(timed.error() == std::errc::timed_out);
        std::vector<int> order;
        task_scope scope;
        scope.spawn(passes(happened, 1, order));
        co_await nowait::yield();
        happened.set();
        scope.request_stop();
        auto joined = co_await scope.join();
        CHECK(joined.has_value());
        CHECK(order == std::vector<int>{1});
        happened.reset();
        task_scope other;
        other.spawn(passes(happened, 2, order));
        co_await nowait::yield();
        other.request_stop();
        auto ended = co_await other.join();
        CHECK(ended.has_value());
        CHECK(order == std::vector<int>{1, -2});
    }());
}

TEMPLATE_TEST_CASE("latch: opens when the count has fallen to zero, once", "", nowait::latch,
                   nowait::local_latch) {
    run([]() -> task<> {
        TestType done(3);
        std::vector<int> order;
        task_scope scope;
        scope.spawn(passes(done, 1, order));
        scope.spawn(passes(done, 2, order));
        co_await nowait::yield();
        CHECK(done.count_down(4).error() == std::errc::invalid_argument);
        CHECK(done.count() == 3);
        CHECK(done.count_down(2).has_value());
        CHECK(done.try_wait().error() == not_now);
        co_await nowait::yield();
        CHECK(order.empty());
        CHECK(done.count_down().has_value());
        auto joined = co_await scope.join();
        CHECK(joined.has_value());
        CHECK(order == std::vector<int>{1, 2});
        CHECK(done.try_wait().has_value());
        CHECK(done.count_down().error() == std::errc::invalid_argument);
        TestType nothing(0);
        CHECK(nothing.try_wait().has_value());
    }());
}

TEST_CASE("event: set on another thread, waited for by runtimes and a plain thread") {
    for (int round = 0; round < 50; ++round) {
        nowait::event happened;
        nowait::latch arrived(3);
        auto waits = [](nowait::event& e, nowait::latch& l) -> task<> {
            const auto waited = co_await e.wait();
            if (waited)
                static_cast<void>(l.count_down());
        };
        std::thread one([&] {
            auto runs = nowait::runtime::create();
            if (!runs || !runs->run(waits(happened, arrived)))
                std::terminate();
        });
        std::thread two([&] {
            if (auto waited = nowait::wait(happened.wait()); waited)
                static_cast<void>(arrived.count_down());
        });
        std::thread sets([&] { happened.set(); });
        runtime runs = nowait_test::make_runtime();
        REQUIRE(runs.run(waits(happened, arrived)).has_value());
        std::vector<int> order;
        REQUIRE(runs.run(passes(arrived, 1, order)).has_value());
        CHECK(arrived.count() == 0);
        one.join();
        two.join();
        sets.join();
    }
}

TEST_CASE("event: a runtime dies while its tasks wait") {
    nowait::event happened;
    std::vector<int> order;
    {
        runtime dies = nowait_test::make_runtime();
        for (int i = 0; i < 10; ++i)
            dies.spawn(passes(happened, i, order)).detach();
        REQUIRE(dies.get_loop().enter() == 0);
        dies.get_loop().run_until_idle(std::chrono::steady_clock::now());
        dies.get_loop().leave();
    }
    happened.set(); // nobody is left in its list
    CHECK(order.empty());
}
