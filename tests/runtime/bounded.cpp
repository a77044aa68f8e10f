// with_timeout, with_deadline, with_stop: when a stop is asked for, and what comes of it.
#include "fake_driver.hpp"
#include "runs.hpp"

#include <nowait/pipe.hpp>
#include <nowait/sleep.hpp>
#include <nowait/timeout.hpp>
#include <nowait/when_all.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <thread>

using nowait::runtime;
using nowait::task;
using nowait_test::fake_world;
using nowait_test::run_on_new;
using namespace std::chrono_literals;

namespace {

task<int> slow(std::chrono::nanoseconds span) {
    const auto slept = co_await nowait::sleep_for(span);
    co_return slept ? 1 : 2;
}

task<> slow_void(std::chrono::nanoseconds span) {
    (void)co_await nowait::sleep_for(span);
}

task<nowait::result<int>> slow_result(std::chrono::nanoseconds span) {
    const auto slept = co_await nowait::sleep_for(span);
    if (!slept)
        co_return nowait::fail(slept.error());
    co_return 5;
}

task<nowait::progress> slow_progress(std::chrono::nanoseconds span) {
    const auto slept = co_await nowait::sleep_for(span);
    co_return nowait::progress{17, slept ? std::error_code() : slept.error()};
}

} // namespace

TEST_CASE("a read that nobody answers times out, and consumed nothing") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([]() -> task<> {
                    nowait::pipe_pair pipe = nowait::make_pipe().value();
                    std::array<std::byte, 8> buffer{};
                    const auto timed = co_await nowait::with_timeout(pipe.reader.read(buffer), 5ms);
                    CHECK(timed.error() == std::errc::timed_out);
                    const auto wrote = co_await pipe.writer.write("abc");
                    CHECK(wrote.value() == 3);
                    const auto got = co_await nowait::with_timeout(pipe.reader.read(buffer), 5ms);
                    CHECK(got.value() == 3);
                }())
                .has_value());
}

TEST_CASE("with no time left there is one attempt, nowait first") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([]() -> task<> {
                    nowait::pipe_pair pipe = nowait::make_pipe().value();
                    std::array<std::byte, 8> buffer{};
                    for (auto span : {0ns, -1ns, std::chrono::nanoseconds::min()}) {
                        const auto timed = co_await nowait::with_timeout(pipe.reader.read(buffer), span);
                        CHECK(timed.error() == std::errc::timed_out);
                    }
                    (void)co_await pipe.writer.write("abc");
                    const auto got = co_await nowait::with_timeout(pipe.reader.read(buffer), -1h);
                    CHECK(got.value() == 3);
                    const auto late = co_await nowait::with_deadline(
                        pipe.reader.read(buffer), std::chrono::steady_clock::time_point::min());
                    CHECK(late.error() == std::errc::timed_out);
                }())
                .has_value());
}

TEST_CASE("an infinite time-out waits for ever") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([]() -> task<> {
                    const auto a =
                        co_await nowait::with_timeout(nowait::sleep_for(2000h), std::chrono::hours::max());
                    CHECK(a.has_value());
                    const auto b = co_await nowait::with_deadline(
                        nowait::sleep_for(2000h), std::chrono::steady_clock::time_point::max());
                    CHECK(b.has_value());
                    const auto c = co_await nowait::with_timeout(nowait::sleep_for(1ms),
                                                                 std::chrono::duration<double>(1e300));
                    CHECK(c.has_value());
                }())
                .has_value());
}

TEST_CASE("every kind of value has its bounded form") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([]() -> task<> {
                    // A value is not thrown away, even if it came after the stop.
                    const auto value = co_await nowait::with_timeout(slow(1h), 1ms);
                    CHECK(value.value() == 2);
                    const auto in_time = co_await nowait::with_timeout(slow(1ms), 1h);
                    CHECK(in_time.value() == 1);
                    const auto nothing = co_await nowait::with_timeout(slow_void(1h), 1ms);
                    CHECK(nothing.error() == std::errc::timed_out);
                    const auto done = co_await nowait::with_timeout(slow_void(1ms), 1h);
                    CHECK(done.has_value());
                    const auto result = co_await nowait::with_timeout(slow_result(1h), 1ms);
                    CHECK(result.error() == std::errc::timed_out);
                    const auto good = co_await nowait::with_timeout(slow_result(1ms), 1h);
                    CHECK(good.value() == 5);
                    const nowait::progress part = co_await nowait::with_timeout(slow_progress(1h), 1ms);
                    CHECK(part.bytes == 17);
                    CHECK(part.error == std::errc::timed_out);
                    const nowait::progress whole = co_await nowait::with_timeout(slow_progress(1ms), 1h);
                    CHECK(whole.ok());
                }())
                .has_value());
}

TEST_CASE("nested bounds: the inner one answers for itself, the outer one for the rest") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([](fake_world& w) -> task<> {
                    const auto began = w.calls.time;
                    auto inner_first = nowait::with_timeout(nowait::sleep_for(1h), 1ms);
                    const auto a = co_await nowait::with_timeout(std::move(inner_first), 1min);
                    CHECK(a.error() == std::errc::timed_out);
                    CHECK(w.calls.time - began < 1s);
                    auto outer_first = nowait::with_timeout(nowait::sleep_for(1h), 1min);
                    const auto b = co_await nowait::with_timeout(std::move(outer_first), 1ms);
                    CHECK(b.error() == std::errc::timed_out);
                    CHECK(w.calls.time - began < 1s);
                    // Three deep, with a stop source of the same runtime outside.
                    nowait::inplace_stop_source stop;
                    auto deep =
                        nowait::with_timeout(nowait::with_timeout(nowait::sleep_for(1h), 30min), 20min);
                    auto bounded = nowait::with_stop(std::move(deep), stop.get_token());
                    auto stopper = nowait::spawn([](nowait::inplace_stop_source& s) -> task<> {
                        (void)co_await nowait::sleep_for(1s);
                        s.request_stop();
                    }(stop));
                    const auto c = co_await std::move(bounded);
                    CHECK(c.error() == std::errc::operation_canceled);
                    (void)co_await stopper.join();
                }(world))
                .has_value());
}

TEST_CASE("the stop of the runtime reaches through every bound") {
    fake_world world;
    runtime runs = world.make();
    std::stop_source foreign;
    REQUIRE(runs.run([](runtime& of, std::stop_token token) -> task<> {
                    of.request_stop();
                    auto inner = nowait::with_timeout(slow_result(1h), 1h);
                    auto outer = nowait::with_stop(std::move(inner), token);
                    const auto ended = co_await std::move(outer);
                    CHECK(ended.error() == std::errc::operation_canceled);
                }(runs, foreign.get_token()))
                .has_value());
}

TEST_CASE("a token that was stopped before lets an attempt be made only where none is cancelled") {
    fake_world world;
    runtime runs = world.make();
    std::stop_source foreign;
    foreign.request_stop();
    REQUIRE(runs.run([](std::stop_token token) -> task<> {
                    nowait::pipe_pair pipe = nowait::make_pipe().value();
                    (void)co_await pipe.writer.write("abc");
                    std::array<std::byte, 8> buffer{};
                    const auto got = co_await nowait::with_stop(pipe.reader.read(buffer), token);
                    CHECK(got.error() == std::errc::operation_canceled);
                    CHECK(pipe.reader.available().value() == 3); // untouched
                    nowait::inplace_stop_source own;
                    own.request_stop();
                    const auto again = co_await nowait::with_stop(pipe.reader.read(buffer), own.get_token());
                    CHECK(again.error() == std::errc::operation_canceled);
                    CHECK(pipe.reader.available().value() == 3);
                }(foreign.get_token()))
                .has_value());
}

TEST_CASE("tokens that can never be stopped cost nothing and bound nothing") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([]() -> task<> {
                    const auto a = co_await nowait::with_stop(nowait::sleep_for(1ms), std::stop_token());
                    CHECK(a.has_value());
                    const auto b =
                        co_await nowait::with_stop(nowait::sleep_for(1ms), nowait::inplace_stop_token());
                    CHECK(b.has_value());
                }())
                .has_value());
}

TEST_CASE("one stop source stops many, in the order of their waiting") {
    fake_world world;
    runtime runs = world.make();
    nowait::inplace_stop_source stop;
    std::vector<int> order;
    for (int i = 0; i < 10; ++i) {
        runs.spawn([](int n, nowait::inplace_stop_token token, std::vector<int>& to) -> task<> {
                const auto ended = co_await nowait::with_stop(nowait::sleep_for(1h), token);
                if (!ended)
                    to.push_back(n);
            }(i, stop.get_token(), order))
            .detach();
    }
    runs.spawn([](nowait::inplace_stop_source& s) -> task<> {
            co_await nowait::yield();
            CHECK(s.request_stop());
            CHECK_FALSE(s.request_stop());
        }(stop))
        .detach();
    REQUIRE(runs.run().has_value());
    CHECK(order == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}

TEST_CASE("exceptions pass through bounds") {
    run_on_new([]() -> task<> {
        auto throws = []() -> task<int> {
            co_await nowait::yield();
            throw std::out_of_range("inside");
        };
        bool caught = false;
        try {
            (void)co_await nowait::with_timeout(nowait::with_timeout(throws(), 1h), 1h);
        } catch (const std::out_of_range&) {
            caught = true;
        }
        CHECK(caught);
    }());
}

namespace {

/// Another thread that requests a stop when told to, as close to the completion as two threads can be.
class stopping_thread {
public:
    stopping_thread() : thread_([this] { loop(); }) {}
    ~stopping_thread() {
        give(std::nullopt);
        thread_.join();
    }
    void give(std::optional<std::stop_source> source) {
        std::lock_guard guard(mutex_);
        work_ = std::move(source);
        given_ = true;
        signal_.notify_one();
    }

private:
    void loop() {
        for (;;) {
            std::unique_lock lock(mutex_);
            signal_.wait(lock, [this] { return given_; });
            given_ = false;
            if (!work_)
                return;
            std::stop_source source = std::move(*work_);
            lock.unlock();
            source.request_stop();
        }
    }
    std::mutex mutex_;
    std::condition_variable signal_;
    std::optional<std::stop_source> work_;
    bool given_ = false;
    std::thread thread_;
};

} // namespace

TEST_CASE("a stop from another thread races with completion: one end, no byte lost") {
    stopping_thread other;
    int completed = 0;
    int canceled = 0;
    run_on_new([](stopping_thread& stopper, int& ended, int& stopped) -> task<> {
        nowait::pipe_pair pipe = nowait::make_pipe().value();
        std::size_t written = 0;
        std::size_t read = 0;
        std::array<std::byte, 1> byte{};
        for (int i = 0; i < 10'000; ++i) {
            std::stop_source source;
            auto writer = nowait::spawn([](nowait::pipe_writer& to, int delay, std::size_t& count) -> task<> {
                for (int k = 0; k < delay; ++k)
                    co_await nowait::yield();
                const auto wrote = co_await to.write("x");
                count += wrote.value_or(0);
            }(pipe.writer, i % 7, written));
            stopper.give(source);
            const auto got = co_await nowait::with_stop(pipe.reader.read(byte), source.get_token());
            if (got) {
                read += *got;
                ++ended;
            } else {
                if (got.error() != std::errc::operation_canceled)
                    FAIL("unexpected " << got.error().message());
                ++stopped;
            }
            (void)co_await writer.join();
        }
        CHECK(written == 10'000);
        CHECK(read + pipe.reader.available().value() == written);
    }(other, completed, canceled));
    CHECK(completed + canceled == 10'000);
}

TEST_CASE("a stop from another thread races with the end of the task that it bounds") {
    stopping_thread other;
    run_on_new([](stopping_thread& stopper) -> task<> {
        for (int i = 0; i < 10'000; ++i) {
            std::stop_source source;
            auto work = [](int steps) -> task<int> {
                for (int k = 0; k < steps; ++k)
                    co_await nowait::yield();
                co_return steps;
            };
            stopper.give(source);
            const auto got = co_await nowait::with_stop(work(i % 5), source.get_token());
            if (got.value() != i % 5)
                FAIL("a value was lost");
        }
    }(other));
}
