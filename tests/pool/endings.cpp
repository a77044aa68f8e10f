// Who goes first: the runtime, the pool, the work. And processes that fork.
#include "child_process.hpp"
#include "pool_support.hpp"
#include "runs.hpp"

#include <nowait/timeout.hpp>

#include <array>
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

void wait_until(const auto& condition) {
    while (!condition())
        std::this_thread::yield();
}

/// Lets a runtime run until something has come true, and then leaves it where it is.
void run_until(nowait::runtime& runtime, const auto& condition) {
    nowait::detail::loop& loop = runtime.get_loop();
    REQUIRE(loop.enter() == 0);
    while (!condition())
        loop.run_until_idle(nowait::detail::clock::time_point::min()); // one pass
    loop.leave();
}

/// A pool of one bounded worker, which is at work until the gate opens.
struct busy_pool {
    worker_pool pool = make_pool({.bounded_max = 1});
    gate go_on;
    std::jthread holder{[this] {
        auto hold = [this] { go_on.pass(); };
        (void)run_on_new(ending(blocking(hold)), on(pool));
    }};
    busy_pool() {
        wait_until([this] { return pool.stats().bounded.taken == 1; });
    }
};

} // namespace

TEST_CASE("a runtime that is destroyed takes its pending work back") {
    busy_pool busy;
    bool ran = false;
    auto held = std::make_shared<int>();
    {
        auto runtime = make_runtime(on(busy.pool));
        auto work = [&ran, held] { ran = true; };
        (void)runtime.spawn(ending(blocking(std::move(work))));
        run_until(runtime, [&busy] { return busy.pool.stats().bounded.queued == 1; });
    }
    REQUIRE(held.use_count() == 1);
    REQUIRE(busy.pool.stats().bounded.queued == 0);
    REQUIRE(busy.pool.stats().bounded.cancelled == 1);
    busy.go_on.open();
    REQUIRE_FALSE(ran);
}

TEST_CASE("a runtime that is destroyed waits for work that runs") {
    auto pool = make_pool();
    gate go_on;
    bool over = false;
    std::jthread opener;
    {
        auto runtime = make_runtime(on(pool));
        (void)runtime.spawn([&]() -> task<void> {
            int local = 1; // what the work refers to is there as long as it runs
            auto work = [&] {
                go_on.pass();
                over = local == 1;
            };
            (void)co_await blocking(work);
        });
        run_until(runtime, [&pool] { return pool.stats().bounded.taken == 1; });
        opener = std::jthread([&go_on] { go_on.open(); });
    }
    REQUIRE(over);
}

TEST_CASE("a runtime that is destroyed interrupts interruptible work until it ends") {
    auto pool = make_pool();
    blocking_pipe pipe;
    int interrupted = 0;
    {
        auto runtime = make_runtime(on(pool));
        auto stubborn = [&](nowait::interruption asked) -> result<char> {
            for (;;) {
                auto got = read_byte(pipe.ends[0]);
                if (got || (++interrupted == 3 && asked.requested()))
                    return got;
            }
        };
        (void)runtime.spawn(ending(blocking(nowait::interruptible, stubborn)));
        run_until(runtime, [&pool] { return pool.stats().unbounded.taken == 1; });
    }
    REQUIRE(interrupted == 3);
    REQUIRE(pool.shutdown(1h).complete());
}

TEST_CASE("a runtime that is destroyed leaves abandonable work alone") {
    auto pool = make_pool();
    gate go_on;
    auto state = std::make_shared<int>(0);
    {
        auto runtime = make_runtime(on(pool));
        auto work = [&go_on, state] {
            go_on.pass();
            *state = 1;
        };
        (void)runtime.spawn(ending(blocking(std::move(work)).abandonable()));
        run_until(runtime, [&pool] { return pool.stats().bounded.taken == 1; });
    }
    REQUIRE(*state == 0);
    REQUIRE(pool.shutdown(0s).abandoned == 1);
    go_on.open();
    wait_until([&pool] { return pool.shutdown(0s).complete(); });
    REQUIRE(*state == 1);
}

TEST_CASE("a runtime that is destroyed over work that does not end leaves the frames to it") {
    auto pool = make_pool({.destructor_wait = 0ns});
    gate go_on;
    gate over;
    struct noisy {
        bool* gone;
        ~noisy() { *gone = true; }
    };
    bool frame_gone = false;
    // Reachable until the process has ended, so that nobody takes what is left for lost by mistake.
    static auto& left_in_memory = *new std::vector<void*>;
    {
        runtime_options options = on(pool);
        options.destructor_wait = 0ns;
        auto runtime = make_runtime(options);
        (void)runtime.spawn([&]() -> task<void> {
            noisy local{&frame_gone};
            left_in_memory.push_back(&local);
            auto endless = [&] {
                go_on.pass();
                REQUIRE_FALSE(*local.gone);
                over.open();
            };
            (void)co_await blocking(endless);
        });
        run_until(runtime, [&pool] { return pool.stats().bounded.taken == 1; });
    }
    REQUIRE_FALSE(frame_gone);
    go_on.open();
    over.pass();
    REQUIRE_FALSE(frame_gone);
}

TEST_CASE("a runtime may be destroyed while the end of its work is under way") {
    auto pool = make_pool();
    for (int i = 0; i < 200; ++i) {
        auto runtime = make_runtime(on(pool));
        auto work = [] { return 1; };
        (void)runtime.spawn(ending(blocking(work)));
        const auto before = pool.stats().bounded.taken;
        run_until(runtime, [&] { return pool.stats().bounded.taken != before; });
    }
    REQUIRE(pool.shutdown(1h).complete());
    REQUIRE(pool.stats().bounded.taken == 200);
}

TEST_CASE("shutting down finishes bounded work, the pending one too, and cancels unbounded work") {
    auto pool = make_pool({.bounded_max = 1, .unbounded_max = 1});
    blocking_pipe pipe;
    gate go_on;
    std::array<std::error_code, 5> ended;
    auto runtime = make_runtime(on(pool));
    auto hold = [&go_on] { go_on.pass(); };
    auto quick = [] {};
    auto reads = [&pipe] { return read_byte(pipe.ends[0]); };
    auto keep = [](std::error_code& to, auto what) -> task<void> {
        auto got = co_await std::move(what);
        to = got ? std::error_code() : got.error();
    };
    auto a = runtime.spawn(keep(ended[0], blocking(hold)));
    auto b = runtime.spawn(keep(ended[1], blocking(quick)));
    auto c = runtime.spawn(keep(ended[2], blocking(nowait::interruptible, reads)));
    auto d = runtime.spawn(keep(ended[3], blocking(nowait::interruptible, reads)));
    nowait::pool_shutdown_report report;
    std::jthread stopper([&] {
        wait_until([&] {
            const auto seen = pool.stats();
            return seen.bounded.taken == 1 && seen.bounded.queued == 1 && seen.unbounded.taken == 1 &&
                   seen.unbounded.queued == 1;
        });
        std::jthread opener([&] {
            wait_until([&pool] { return pool.stats().unbounded.failed == 1; });
            go_on.open();
        });
        report = pool.shutdown(1h);
    });
    REQUIRE(runtime.run());
    stopper.join();
    REQUIRE(ended[0] == std::error_code());
    REQUIRE(ended[1] == std::error_code());
    REQUIRE(ended[2] ==
            std::errc::operation_canceled); // one of the two was interrupted, the other never began
    REQUIRE(ended[3] == std::errc::operation_canceled);
    REQUIRE(report.complete());
    const auto seen = pool.stats();
    REQUIRE(seen.bounded.workers + seen.unbounded.workers == 0);
    REQUIRE(seen.bounded.taken == 2);
    REQUIRE(seen.unbounded.failed == 1);
}

TEST_CASE("pending work that has no time left is told when a pool is shut down") {
    busy_pool busy;
    std::error_code ended;
    auto runtime = make_runtime(on(busy.pool));
    auto work = [] {};
    auto spawned = runtime.spawn([](std::error_code& to, auto what) -> task<void> {
        auto got = co_await std::move(what);
        to = got ? std::error_code() : got.error();
    }(ended, blocking(work)));
    nowait::pool_shutdown_report report;
    std::jthread stopper([&] {
        wait_until([&] { return busy.pool.stats().bounded.queued == 1; });
        report = busy.pool.shutdown(0s);
        busy.go_on.open();
    });
    REQUIRE(runtime.run());
    stopper.join();
    REQUIRE(ended == std::errc::operation_canceled);
    REQUIRE(report.dropped == 1);
    REQUIRE(report.unfinished == 1);
    REQUIRE(report.abandoned == 0);
}

TEST_CASE("a pool that goes first leaves its runtimes in order") {
    std::optional<worker_pool> pool(make_pool());
    auto runtime = make_runtime(on(*pool));
    auto work = [] { return 3; };
    REQUIRE(runtime.run(ending(blocking(work))).value() == std::error_code());
    pool.reset();
    REQUIRE(runtime.run(ending(blocking(work))).value() == std::errc::operation_canceled);
}

TEST_CASE("work may have a runtime of its own, on the common pool too") {
    auto nested = [] {
        auto inner = [] { return 20; };
        return run_on_new([](auto what) -> task<int> {
            auto got = co_await blocking(what);
            co_return got.value() + 1;
        }(inner));
    };
    auto sum = run_on_new([](auto what) -> task<int> {
        auto got = co_await blocking(what);
        co_return got.value() + 1;
    }(nested));
    REQUIRE(sum == 22);
    REQUIRE(worker_pool::common().stats().bounded.taken >= 2);
}

TEST_CASE("work that waits for work of its own key is refused") {
    auto pool = make_pool();
    auto nested = [&pool] {
        auto inner = [] {};
        return run_on_new(ending(blocking(inner).key(4).on(pool)));
    };
    auto outer = [](auto what) -> task<std::error_code> {
        auto got = co_await blocking(what).key(4);
        co_return got.value();
    };
    REQUIRE(run_on_new(outer(nested), on(pool)) == std::errc::resource_deadlock_would_occur);
}

// The thread sanitizer ends the child of a process with threads when it makes one.
#if defined(__SANITIZE_THREAD__)
#define POOL_TESTS_UNDER_TSAN
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define POOL_TESTS_UNDER_TSAN
#endif
#endif
#ifdef POOL_TESTS_UNDER_TSAN
static constexpr bool threads_after_fork = false;
#else
static constexpr bool threads_after_fork = true;
#endif

TEST_CASE("the child of a fork gets an error from its parent's pool, and has a common one of its own") {
    auto pool = make_pool();
    auto work = [] { return 5; };
    REQUIRE(run_on_new(ending(blocking(work)), on(pool)) == std::error_code());
    REQUIRE(run_on_new(ending(blocking(work))) == std::error_code());
    const auto end = nowait_test::in_child([&pool, &work] {
        if (run_on_new(ending(blocking(work)), on(pool)) != std::errc::operation_not_permitted)
            return 1;
        if (pool.stats().bounded.workers != 0)
            return 2;
        if (threads_after_fork && run_on_new(ending(blocking(work))) != std::error_code())
            return 3;
        {
            worker_pool gone = std::move(pool);
        }
        return 0;
    });
    INFO(end.errors);
    REQUIRE(end.exit_code == 0);
    REQUIRE(run_on_new(ending(blocking(work)), on(pool)) == std::error_code());
}
