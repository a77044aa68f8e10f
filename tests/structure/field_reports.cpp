// Failures that other libraries had in public: coroutines and tasks (CO), timers (TM), what is left of channels (CH).
#include "fake_driver.hpp"
#include "runs.hpp"
#include "stack_probe.hpp"
#include "structure_support.hpp"

#include <nowait/async_mutex.hpp>
#include <nowait/event.hpp>
#include <nowait/latch.hpp>
#include <nowait/oneshot.hpp>
#include <nowait/pipe.hpp>
#include <nowait/pipe_channel.hpp>
#include <nowait/pipe_in_place.hpp>
#include <nowait/semaphore.hpp>
#include <nowait/sleep.hpp>
#include <nowait/task_scope.hpp>
#include <nowait/timeout.hpp>
#include <nowait/when_any.hpp>

#include <array>
#include <chrono>
#include <exception>
#include <latch>
#include <limits>
#include <memory>
#include <optional>
#include <ratio>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

using nowait::runtime;
using nowait::task;
using nowait::task_scope;
using nowait_test::fake_world;
using nowait_test::make_runtime;
using nowait_test::running_runtime;
using nowait_test::stack_probe;
using namespace std::chrono_literals;

namespace {

constexpr auto canceled = std::errc::operation_canceled;

task<int> immediate(stack_probe& probe) {
    probe.touch();
    co_return 1;
}

task<int> chain(int depth, stack_probe& probe) {
    probe.touch();
    if (depth == 0)
        co_return 0;
    const int below = co_await chain(depth - 1, probe);
    co_return below + 1;
}

} // namespace

TEST_CASE("a million awaits of children that end at once, and a chain of a hundred thousand") {
    stack_probe probe;
    nowait_test::run_on_new([](stack_probe& seen) -> task<> {
        long sum = 0;
        for (int i = 0; i < 1'000'000; ++i)
            sum += co_await immediate(seen);
        CHECK(sum == 1'000'000);
        const int depth = co_await chain(100'000, seen);
        CHECK(depth == 100'000);
    }(probe));
    CHECK(probe.depth() < 4096);
}

TEST_CASE("a temporary lambda with captures lives until its task has ended, wherever it is given") {
    runtime runs = make_runtime();
    std::string out;
    const std::string text(100, 'x');
    auto of_runtime = runs.spawn([x = text, &out]() -> task<> {
        (void)co_await nowait::sleep_for(100us);
        out += x;
    });
    task_scope scope(runs);
    scope.spawn([x = text, &out]() -> task<> {
        (void)co_await nowait::sleep_for(100us);
        out += x;
    });
    REQUIRE(runs.run([](const std::string& from, std::string& to) -> task<> {
                    // g++ 12 destroys a lambda with captures twice if it is a temporary of a co_await expression (PR 100611).
                    auto body = [x = from, &to](task_scope& in) -> task<> {
                        (void)co_await nowait::sleep_for(100us);
                        in.spawn([x, &to]() -> task<> {
                            (void)co_await nowait::sleep_for(100us);
                            to += x;
                        });
                        to += x;
                    };
                    auto ended = co_await nowait::with_scope(std::move(body));
                    CHECK(ended.has_value());
                }(text, out))
                .has_value());
    CHECK(out == std::string(400, 'x'));
}

TEST_CASE("a task that never suspends, started on another runtime, gives its result here") {
    running_runtime other;
    runtime runs = make_runtime();
    REQUIRE(runs.run([](const nowait::remote_runtime& there) -> task<> {
                    const auto here = std::this_thread::get_id();
                    for (int i = 0; i < 5000; ++i) {
                        auto ends = nowait::make_oneshot<int>().value();
                        auto answers = [](nowait::oneshot_sender<int> to, int value) -> task<> {
                            static_cast<void>(to.send(value));
                            co_return;
                        };
                        auto sender = std::make_shared<nowait::oneshot_sender<int>>(std::move(ends.first));
                        CHECK(there.post([answers, sender, i] {
                            nowait::spawn(answers(std::move(*sender), i)).detach();
                        }));
                        auto got = co_await ends.second.receive();
                        if (!got || *got != i || std::this_thread::get_id() != here)
                            FAIL("round " << i);
                    }
                }(other.remote()))
                .has_value());
}

TEST_CASE("frames that end on their thread while another is still inside the call that woke them") {
    // The waker's release() must touch nothing of a frame that its post has let go.
    nowait::semaphore permits(0);
    constexpr int rounds = 20'000;
    std::thread wakes([&] {
        for (int i = 0; i < rounds; ++i)
            permits.release();
    });
    runtime runs = make_runtime();
    REQUIRE(runs.run([](nowait::semaphore& from) -> task<> {
                    auto takes_one = [](nowait::semaphore& of) -> task<> {
                        auto got = co_await of.acquire();
                        got->keep();
                    };
                    for (int i = 0; i < rounds; ++i)
                        co_await takes_one(from); // its frame is gone at once
                }(permits))
                .has_value());
    wakes.join();
    CHECK(permits.available() == 0);
}

TEST_CASE("a task that ends early, because a stop was requested, is destroyed by the loop and not by "
          "itself") {
    fake_world world;
    runtime runs = world.make();
    int destroyed = 0;
    struct counts {
        int* to;
        ~counts() { ++*to; }
    };
    REQUIRE(runs.run([](int& count) -> task<> {
                    auto exits = [](int& to) -> task<> {
                        const counts guard{&to};
                        const auto slept = co_await nowait::sleep_for(1h);
                        if (!slept)
                            co_return;
                        FAIL("it was to be stopped");
                    };
                    task_scope scope;
                    for (int i = 0; i < 1000; ++i)
                        scope.spawn(exits(count));
                    scope.request_stop(); // some before they have started
                    auto ended = co_await scope.join();
                    CHECK(ended.has_value());
                }(destroyed))
                .has_value());
    CHECK(destroyed == 1000);
}

TEST_CASE("a loop over a channel that always has data needs no stack, as a coroutine and by callbacks") {
    stack_probe probe;
    nowait_test::run_on_new([](stack_probe& seen) -> task<> {
        auto channel = nowait::local_pipe_channel::create().value();
        std::array<std::byte, 1> byte{};
        for (int i = 0; i < 500'000; ++i) {
            auto wrote = co_await channel.writer.write(byte);
            auto got = co_await channel.reader.read(byte);
            seen.touch();
            if (!wrote || !got)
                FAIL("channel");
        }
    }(probe));
    CHECK(probe.depth() < 4096);

    // Each end of a permit's wait asks for the next one: inline as long as there are some, later when the budget is spent.
    struct loops {
        using operation = nowait::detail::acquire_operation<nowait::detail::local_sync>;
        nowait::local_semaphore permits{1};
        nowait::inplace_stop_source never;
        std::optional<operation> one;
        stack_probe* probe = nullptr;
        nowait::detail::loop* on = nullptr;
        int left = 1'000'000;

        void go_on() {
            while (left-- > 0) {
                probe->touch();
                one.emplace(permits.acquire());
                one->bind(
                    *on, never,
                    [](nowait::detail::operation_base& ended) noexcept {
                        auto& self = *static_cast<loops*>(ended.context());
                        static_cast<void>(self.one->take_result());
                        self.go_on();
                        if (self.left < 0)
                            --self.on->live;
                    },
                    this);
                if (!one->start())
                    return;
                static_cast<void>(one->take_result()); // the permit goes back
            }
        }
    } by_callback;
    stack_probe second;
    runtime runs = make_runtime();
    by_callback.probe = &second;
    by_callback.on = &runs.get_loop();
    REQUIRE(runs.get_loop().enter() == 0);
    ++runs.get_loop().live;
    runs.get_loop().budget = 0; // the first waits for a turn
    by_callback.go_on();
    runs.get_loop().run_until_idle(std::chrono::steady_clock::time_point::max());
    runs.get_loop().leave();
    CHECK(by_callback.left < 0);
    CHECK(second.depth() < 4096);
}

TEST_CASE("a timer and its cancel in one tick give one result, in both orders, and nobody is called later") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([](fake_world& w) -> task<> {
                    for (const bool cancel_first : {true, false}) {
                        int results = 0;
                        {
                            nowait::inplace_stop_source stop;
                            auto sleeps = [](nowait::inplace_stop_token token, int& count) -> task<> {
                                const auto slept = co_await nowait::with_stop(nowait::sleep_for(1ms), token);
                                ++count;
                                CHECK((slept.has_value() || slept.error() == canceled));
                            };
                            auto handle = nowait::spawn(sleeps(stop.get_token(), results));
                            co_await nowait::yield();
                            if (cancel_first) {
                                stop.request_stop();
                                w.calls.time += 5ms;
                            } else {
                                w.calls.time += 5ms; // the loop sees it in its next pass
                                (void)co_await nowait::sleep_for(0s);
                                stop.request_stop();
                            }
                            auto joined = co_await handle.join();
                            CHECK(joined.has_value());
                        }
                        (void)co_await nowait::sleep_for(10ms);
                        CHECK(results == 1);
                    }
                    // A timer of no length ends at once: there is nothing left to cancel.
                    const auto slept = co_await nowait::with_timeout(nowait::sleep_for(0s), 0s);
                    CHECK(slept.has_value());
                }(world))
                .has_value());
}

TEST_CASE("the largest spans and points wait, negative ones do not, and nothing overflows") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([]() -> task<> {
                    using clock = std::chrono::steady_clock;
                    nowait::local_event never;
                    const auto a =
                        co_await nowait::with_timeout(nowait::sleep_for(clock::duration::max()), 1ms);
                    CHECK(a.error() == std::errc::timed_out);
                    const auto b =
                        co_await nowait::with_timeout(nowait::sleep_for(std::chrono::hours::max()), 1ms);
                    CHECK(b.error() == std::errc::timed_out);
                    const auto c =
                        co_await nowait::with_timeout(nowait::sleep_until(clock::time_point::max()), 1ms);
                    CHECK(c.error() == std::errc::timed_out);
                    const auto d = co_await nowait::sleep_for(clock::duration::min());
                    CHECK(d.has_value());
                    const auto e = co_await nowait::sleep_for(-std::chrono::hours::max());
                    CHECK(e.has_value());
                    // As limits of something else: the largest is none, a negative one is one attempt.
                    auto endless = nowait::with_timeout(never.wait(), std::chrono::hours::max());
                    auto first = co_await nowait::when_any(std::move(endless), nowait::sleep_for(1s));
                    CHECK(first.index == 1);
                    CHECK(first.get<0>().error() == canceled);
                    auto unlimited = nowait::with_deadline(never.wait(), clock::time_point::max());
                    auto second = co_await nowait::when_any(std::move(unlimited), nowait::sleep_for(1s));
                    CHECK(second.index == 1);
                    const auto f = co_await nowait::with_timeout(never.wait(), -1s);
                    CHECK(f.error() == std::errc::timed_out);
                    never.set();
                    const auto g = co_await nowait::with_timeout(never.wait(), clock::duration::min());
                    CHECK(g.has_value());
                }())
                .has_value());
}

TEST_CASE("spans of picoseconds, of floating-point seconds and of the largest hours") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([](fake_world& w) -> task<> {
                    const auto passed = [&w](auto from) { return w.calls.time - from; };
                    auto began = w.calls.time;
                    (void)co_await nowait::sleep_for(
                        std::chrono::duration<std::int64_t, std::pico>(1'000'000'000'000));
                    CHECK(passed(began) >= 1s);
                    CHECK(passed(began) < 1s + 1ms);
                    began = w.calls.time;
                    (void)co_await nowait::sleep_for(std::chrono::duration<double>(0.2));
                    CHECK(passed(began) >= 200ms - 1ns);
                    CHECK(passed(began) < 201ms);
                    const std::chrono::duration<int, std::ratio<3600>> longest(
                        std::numeric_limits<int>::max());
                    const auto slept = co_await nowait::with_timeout(nowait::sleep_for(longest), 1s);
                    CHECK(slept.error() == std::errc::timed_out);
                }(world))
                .has_value());
}

TEST_CASE("a reservation that is dropped after the close lets the waiting reader see the end") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([]() -> task<> {
                    auto channel = nowait::local_pipe_channel::create().value();
                    auto reserved = co_await channel.writer.reserve(16);
                    REQUIRE(reserved.has_value());
                    channel.writer.close();
                    auto reads = [](auto& from) -> task<std::size_t> {
                        std::array<std::byte, 8> buffer{};
                        auto got = co_await from.read(buffer);
                        co_return got ? *got : 99;
                    };
                    auto handle = nowait::spawn(reads(channel.reader));
                    co_await nowait::yield();
                    CHECK_FALSE(handle.done()); // the reservation is a writer
                    {
                        auto dropped = std::move(*reserved);
                    }
                    auto joined = co_await handle.join();
                    CHECK(joined.value() == 0);
                }())
                .has_value());
}

TEST_CASE("two tasks whose stop callbacks wake each other, stopped together, on two runtimes") {
    running_runtime one;
    running_runtime two;
    for (int round = 0; round < 2000; ++round) {
        nowait::event event_one;
        nowait::event event_two;
        std::stop_source stop_one;
        std::stop_source stop_two;
        std::latch waiting(2);
        std::latch ended(2);
        auto waits = [](nowait::event& mine, nowait::event& others, std::stop_token token, std::latch& ready,
                        std::latch& over) -> task<> {
            {
                std::stop_callback sets(token, [&others] { others.set(); });
                ready.count_down();
                auto waited = co_await nowait::with_stop(mine.wait(), token);
                static_cast<void>(waited); // woken by the other, or stopped
            }
            over.count_down();
        };
        one.remote().post([&] {
            nowait::spawn(waits(event_one, event_two, stop_one.get_token(), waiting, ended)).detach();
        });
        two.remote().post([&] {
            nowait::spawn(waits(event_two, event_one, stop_two.get_token(), waiting, ended)).detach();
        });
        waiting.wait();
        std::thread also([&] { stop_two.request_stop(); });
        stop_one.request_stop();
        also.join();
        ended.wait();
    }
    SUCCEED();
}
