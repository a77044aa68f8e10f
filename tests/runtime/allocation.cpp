// Once warm, nothing on the way of an operation asks the allocator.
#include "counting_new.hpp"
#include "runs.hpp"

#include <nowait/pipe.hpp>
#include <nowait/sleep.hpp>
#include <nowait/timeout.hpp>
#include <nowait/when_all.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <stop_token>

using nowait::task;
using nowait_test::allocations;
using nowait_test::run_on_new;
using namespace std::chrono_literals;

namespace {

struct usage {
    std::size_t by_new = 0;
    std::uint64_t frames = 0;
};

usage now() {
    return {allocations(), nowait::current_stats().frames_allocated};
}

/// Awaits `round(pipe)` a hundred times to warm up, then a hundred times more: the second hundred allocates nothing.
task<> stays_warm(task<> (*round)(nowait::pipe_pair&)) {
    nowait::pipe_pair pipe = nowait::make_pipe().value();
    for (int i = 0; i < 100; ++i)
        co_await round(pipe);
    const usage before = now();
    for (int i = 0; i < 100; ++i)
        co_await round(pipe);
    const usage after = now();
    CHECK(after.by_new == before.by_new);
    CHECK(after.frames == before.frames);
}

task<int> child(int n, int yields) {
    for (int i = 0; i < yields; ++i)
        co_await nowait::yield();
    co_return n;
}

} // namespace

TEST_CASE("no allocation: operations that are ready") {
    run_on_new(stays_warm([](nowait::pipe_pair& pipe) -> task<> {
        std::array<std::byte, 64> buffer{};
        (void)co_await pipe.writer.write("data");
        (void)co_await pipe.reader.read(buffer);
    }));
}

TEST_CASE("no allocation: operations that wait") {
    run_on_new(stays_warm([](nowait::pipe_pair& pipe) -> task<> {
        // The read is armed before the write is made.
        std::array<std::byte, 64> buffer{};
        auto writes = [](nowait::pipe_writer& to) -> task<> {
            co_await nowait::yield();
            (void)co_await to.write("data");
        };
        (void)co_await nowait::when_all(pipe.reader.read(buffer), writes(pipe.writer));
    }));
}

TEST_CASE("no allocation: children, yields") {
    run_on_new(stays_warm([](nowait::pipe_pair&) -> task<> {
        (void)co_await child(1, 0);
        (void)co_await child(2, 2);
        co_await nowait::yield();
    }));
}

TEST_CASE("no allocation: spawn and join") {
    run_on_new(stays_warm([](nowait::pipe_pair&) -> task<> {
        auto one = nowait::spawn(child(1, 1));
        auto two = nowait::spawn(child(2, 0));
        (void)co_await one.join();
        (void)co_await two.join();
        nowait::spawn(child(3, 0)).detach();
        co_await nowait::yield();
        co_await nowait::yield();
    }));
}

TEST_CASE("no allocation: sleeps and time-outs") {
    run_on_new(stays_warm([](nowait::pipe_pair& pipe) -> task<> {
        std::array<std::byte, 64> buffer{};
        (void)co_await nowait::sleep_for(1us);
        (void)co_await nowait::with_timeout(pipe.reader.read(buffer), 1us);
        (void)co_await nowait::with_timeout(nowait::with_timeout(child(1, 1), 1h), 2h);
        (void)co_await nowait::with_deadline(nowait::sleep_for(1us),
                                             std::chrono::steady_clock::time_point::max());
    }));
}

TEST_CASE("no allocation: stops") {
    run_on_new(stays_warm([](nowait::pipe_pair& pipe) -> task<> {
        std::array<std::byte, 64> buffer{};
        nowait::inplace_stop_source stop;
        auto stopper = [](nowait::inplace_stop_source& s) -> task<> {
            co_await nowait::yield();
            s.request_stop();
        };
        (void)co_await nowait::when_all(nowait::with_stop(pipe.reader.read(buffer), stop.get_token()),
                                        stopper(stop));
        (void)co_await nowait::with_stop(child(1, 1), std::stop_token());
    }));
}

TEST_CASE("no allocation: when_all of a tuple") {
    run_on_new(stays_warm([](nowait::pipe_pair& pipe) -> task<> {
        std::array<std::byte, 64> buffer{};
        (void)co_await nowait::when_all(child(1, 1), child(2, 2), pipe.writer.write("abc"),
                                        nowait::sleep_for(1us), pipe.reader.read(buffer));
    }));
}

TEST_CASE("the counter of allocations counts") {
    const std::size_t before = allocations();
    auto some = std::make_unique<int>(1);
    CHECK(*some == 1);
#if !defined(__SANITIZE_THREAD__)
#if defined(__has_feature)
#if !__has_feature(thread_sanitizer)
    CHECK(allocations() == before + 1);
#endif
#else
    CHECK(allocations() == before + 1);
#endif
#endif
    (void)before;
}
