// Faults that others have had with their thread pools, one test each.
#include "child_process.hpp"
#include "pool_support.hpp"
#include "runs.hpp"

#include <nowait/pipe.hpp>
#include <nowait/timeout.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using nowait::blocking;
using nowait::result;
using nowait::runtime_options;
using nowait::task;
using nowait::worker_pool;
using nowait_test::blocking_pipe;
using nowait_test::gate;
using nowait_test::make_pool;
using nowait_test::make_runtime;
using nowait_test::read_byte;
using nowait_test::run_on_new;

namespace {

runtime_options on(worker_pool& pool) {
    runtime_options options;
    options.pool = &pool;
    return options;
}

template <class Description>
task<std::error_code> ending(Description what) {
    auto got = co_await std::move(what);
    co_return got ? std::error_code() : got.error();
}

template <class Description>
task<void> keep(std::error_code& to, Description what) {
    auto got = co_await std::move(what);
    to = got ? std::error_code() : got.error();
}

void wait_until(const auto& condition) {
    while (!condition())
        std::this_thread::yield();
}

} // namespace

TEST_CASE("slow work of the unbounded account does not stop bounded work") {
    std::mutex lock;
    std::vector<nowait::pool_exhaustion> told;
    auto pool = make_pool(
        {.bounded_max = 2, .unbounded_max = 8, .on_exhausted = [&](const nowait::pool_exhaustion& what) {
             std::lock_guard held(lock);
             told.push_back(what);
         }});
    gate go_on;
    auto slow = [&go_on] { go_on.pass(); };
    auto quick = [&go_on, &pool] {
        // All that may run of the slow ones do, the others wait; and this one runs.
        wait_until([&pool] { return pool.stats().unbounded.taken == 8; });
        const bool others_wait = pool.stats().unbounded.queued == 92;
        go_on.open();
        return others_wait;
    };
    auto runtime = make_runtime(on(pool));
    std::vector<nowait::join_handle<std::error_code>> waiting;
    for (int i = 0; i < 100; ++i)
        waiting.push_back(runtime.spawn(ending(blocking(slow).unbounded())));
    bool seen = false;
    REQUIRE(runtime.run([](auto& what, bool& to) -> task<void> {
        auto got = co_await blocking(what);
        to = got.value();
    }(quick, seen)));
    REQUIRE(seen);
    REQUIRE(pool.stats().unbounded.taken == 100);
    REQUIRE(pool.stats().unbounded.exhausted == told.size());
    REQUIRE(told.size() >= 1);
    REQUIRE(told.front().account == nowait::work_account::unbounded);
    REQUIRE(told.front().workers == 8);
    REQUIRE(told.front().queued >= 1);
}

TEST_CASE("four jobs of a pool of four that wait for children of theirs do not wait for ever") {
    auto pool = make_pool({.bounded_max = 4});
    gate all_there;
    auto parent = [&pool, &all_there] {
        wait_until([&pool] { return pool.stats().bounded.taken == 4; });
        all_there.open();
        auto child = [] {};
        return run_on_new(ending(blocking(child)), on(pool)).value();
    };
    auto runtime = make_runtime(on(pool));
    std::vector<int> outcomes(4, -1);
    for (int& outcome : outcomes) {
        (void)runtime.spawn([](int& to, auto what) -> task<void> {
            auto got = co_await blocking(what);
            to = got.value();
        }(outcome, parent));
    }
    REQUIRE(runtime.run());
    int refused = 0;
    for (const int outcome : outcomes) {
        REQUIRE((outcome == 0 || outcome == EDEADLK));
        refused += outcome == EDEADLK ? 1 : 0;
    }
    REQUIRE(refused == 1); // the last one, without which there is a worker for the others' children
    REQUIRE(pool.stats().bounded.refused == 1);
}

TEST_CASE("work may shut its pool down, and drop the last handle of it") {
    std::optional<worker_pool> pool(make_pool());
    auto runtime = make_runtime(on(*pool));
    nowait::pool_shutdown_report report;
    auto ends_it = [&] {
        report = pool->shutdown(1h);
        pool.reset();
    };
    REQUIRE(runtime.run(ending(blocking(ends_it))).value() == std::error_code());
    REQUIRE_FALSE(pool);
    REQUIRE(report.complete());
}

TEST_CASE("shutdown ends every timed wait, and nothing is posted to who has gone") {
    auto pool = make_pool({.unbounded_max = 8});
    blocking_pipe pipe;
    std::vector<std::error_code> ended(100);
    {
        auto runtime = make_runtime(on(pool));
        auto reads = [&pipe] { return read_byte(pipe.ends[0]); };
        for (std::error_code& to : ended) {
            auto timed = nowait::with_timeout(blocking(nowait::interruptible, reads), 1h);
            (void)runtime.spawn(keep(to, std::move(timed)));
        }
        std::jthread stopper([&pool] {
            wait_until([&pool] { return pool.stats().unbounded.submitted == 100; });
            REQUIRE_NOTHROW(pool.shutdown(1h));
        });
        REQUIRE(runtime.run());
    }
    for (const std::error_code& error : ended)
        REQUIRE(error == std::errc::operation_canceled);

    // The other way round: the work ends when its runtime is no more.
    auto second = make_pool();
    gate go_on;
    {
        auto runtime = make_runtime(on(second));
        gate begun;
        auto work = [&go_on, begun = &begun] {
            begun->open();
            go_on.pass();
        };
        auto spawned = runtime.spawn(ending(blocking(work).abandonable()));
        runtime.post([&] {
            begun.pass();
            runtime.request_stop();
        });
        REQUIRE(runtime.run());
    }
    go_on.open();
    wait_until([&second] { return second.shutdown(0s).complete(); });
}

TEST_CASE("shutdown returns by its limit and says what it left behind") {
    auto pool = make_pool({.destructor_wait = 0ns});
    blocking_pipe pipe;
    gate go_on;
    auto freed = std::make_shared<std::vector<int>>(1000, 1);
    std::size_t sum = 0;
    gate over;
    {
        auto runtime = make_runtime(on(pool));
        auto reads = [&pipe] { return read_byte(pipe.ends[0]); };
        auto endless = [&go_on, &over, &sum, mine = freed] {
            go_on.pass();
            for (const int one : *mine)
                sum += static_cast<std::size_t>(one);
            over.open();
        };
        auto a = runtime.spawn(ending(blocking(nowait::interruptible, reads)));
        auto b = runtime.spawn(ending(blocking(endless).abandonable().unbounded()));
        runtime.post([&] {
            wait_until([&pool] { return pool.stats().unbounded.taken == 2; });
            runtime.request_stop();
        });
        REQUIRE(runtime.run()); // both awaits end: one was interrupted, the other abandoned
    }
    freed.reset();
    const auto report = pool.shutdown(0s);
    REQUIRE(report.abandoned == 1);
    REQUIRE(report.unfinished == 0);
    {
        worker_pool gone = std::move(pool);
    } // not even this one waits
    go_on.open();
    over.pass();
    REQUIRE(sum == 1000);
}

TEST_CASE("500 reads that wait take no more threads than they may") {
    constexpr std::size_t reads = 500;
    auto pool = make_pool({.unbounded_max = 16});
    blocking_pipe pipe;
    auto runtime = make_runtime(on(pool));
    auto read = [&pipe] { return read_byte(pipe.ends[0]); };
    for (std::size_t i = 0; i < reads; ++i)
        (void)runtime.spawn(ending(blocking(nowait::interruptible, read)));
    std::jthread stopper([&] {
        wait_until([&pool] {
            const auto seen = pool.stats().unbounded;
            return seen.taken == 16 && seen.submitted == reads; // what begins under a stop is never submitted
        });
        runtime.request_stop();
    });
    REQUIRE(runtime.run());
    stopper.join();
    REQUIRE(pool.stats().unbounded.threads_started == 16);
    REQUIRE(pool.stats().unbounded.taken + pool.stats().unbounded.cancelled == reads);

    // And reads from pipes take none: they are polled, on both drivers.
    auto quiet = make_pool();
    auto options = on(quiet);
    options.driver = GENERATE(nowait::driver_choice::uring, nowait::driver_choice::poll);
    auto other = make_runtime(options);
    std::vector<nowait::pipe_pair> pipes;
    for (std::size_t i = 0; i < reads / 4; ++i) { // descriptors are limited
        auto made = nowait::make_pipe();
        REQUIRE(made);
        pipes.push_back(std::move(*made));
    }
    for (std::size_t i = 0; i < reads; ++i) {
        (void)other.spawn([](nowait::pipe_reader& from) -> task<void> {
            std::array<std::byte, 1> byte{};
            (void)co_await from.read(byte);
        }(pipes[i % pipes.size()].reader));
    }
    other.post([&other] { other.request_stop(); });
    REQUIRE(other.run());
    REQUIRE(other.stats().of(nowait::operation_kind::read).armed == reads);
    REQUIRE(quiet.stats().bounded.submitted + quiet.stats().unbounded.submitted == 0);
}

TEST_CASE("a file job is not behind blocked jobs of another kind") {
    auto pool = make_pool({.bounded_max = 1, .unbounded_max = 64});
    blocking_pipe pipe;
    auto runtime = make_runtime(on(pool));
    auto read = [&pipe] { return read_byte(pipe.ends[0]); };
    for (int i = 0; i < 64; ++i)
        (void)runtime.spawn(ending(blocking(nowait::interruptible, read)));
    auto file = [&runtime] {
        runtime.request_stop(); // all others still wait
        return 1;
    };
    std::jthread starter([&] {
        wait_until([&pool] { return pool.stats().unbounded.taken == 64; });
        runtime.post([&] { (void)runtime.spawn(ending(blocking(file))); });
    });
    REQUIRE(runtime.run());
    REQUIRE(pool.stats().bounded.taken == 1);
    REQUIRE(pool.stats().unbounded.exhausted == 0);
}

TEST_CASE("a fork inside a running task leaves the parent's pool as it was") {
    auto pool = make_pool();
    auto runtime = make_runtime(on(pool));
    auto work = [] { return 1; };
    int child = -1;
    REQUIRE(runtime.run([](auto& what, worker_pool& parents, int& exit_code) -> task<void> {
        auto before = co_await blocking(what);
        const auto end = nowait_test::in_child([&] {
            // The child's copy of the pool: asked, and destroyed.
            auto again = blocking(what).on(parents);
            const auto error = run_on_new(ending(std::move(again)));
            {
                worker_pool gone = std::move(parents);
            }
            return error == std::errc::operation_not_permitted ? 0 : 1;
        });
        exit_code = end.exit_code;
        auto after = co_await blocking(what);
        exit_code += before.value() + after.value() == 2 ? 0 : 10;
    }(work, pool, child)));
    REQUIRE(child == 0);
}
