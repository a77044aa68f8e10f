// blocking(): values, exceptions, stops and pools, on real threads.
#include "pool_support.hpp"
#include "runs.hpp"

#include <nowait/timeout.hpp>
#include <nowait/when_all.hpp>

#include <chrono>
#include <csignal>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>

using namespace std::chrono_literals;
using nowait::blocking;
using nowait::result;
using nowait::runtime_options;
using nowait::task;
using nowait_test::blocking_pipe;
using nowait_test::gate;
using nowait_test::make_pool;
using nowait_test::make_runtime;
using nowait_test::read_byte;
using nowait_test::run_on_new;

namespace {

task<int> answer_elsewhere(std::thread::id* where) {
    auto work = [where] {
        *where = std::this_thread::get_id();
        return 42;
    };
    auto got = co_await blocking(work);
    co_return got.value();
}

task<int> forms() {
    int score = 0;
    int touched = 0;
    auto nothing = [&touched] { ++touched; };
    static_assert(std::is_same_v<decltype(blocking(nothing))::value_type, result<void>>);
    if (auto done = co_await blocking(nothing); done && touched == 1)
        ++score;

    auto moved = [] { return std::make_unique<int>(7); };
    static_assert(std::is_same_v<decltype(blocking(moved))::value_type, result<std::unique_ptr<int>>>);
    if (auto got = co_await blocking(moved); got && **got == 7)
        ++score;

    auto refused = []() -> result<int> { return nowait::fail(std::errc::no_such_device); };
    static_assert(std::is_same_v<decltype(blocking(refused))::value_type, result<int>>);
    if (auto got = co_await blocking(refused); !got && got.error() == std::errc::no_such_device)
        ++score;

    std::string kept = "kept";
    auto by_reference = [&kept]() -> std::string& { return kept; };
    static_assert(std::is_same_v<decltype(blocking(by_reference))::value_type, result<std::string>>);
    if (auto got = co_await blocking(by_reference); got && *got == "kept")
        ++score;

    auto owner = [held = std::make_unique<int>(5)] { return *held; };
    auto stored = blocking(std::move(owner)); // a description can wait to be awaited
    if (auto got = co_await std::move(stored); got && *got == 5)
        ++score;
    co_return score;
}

task<std::string> what_it_throws() {
    auto throws = []() -> int { throw std::runtime_error("from the worker"); };
    try {
        (void)co_await blocking(throws);
    } catch (const std::runtime_error& error) {
        co_return error.what();
    }
    co_return "nothing";
}

/// Awaits `what` under a token, and tells how it ended.
template <class Description>
task<std::error_code> under(std::stop_token token, Description what) {
    auto bounded = nowait::with_stop(std::move(what), std::move(token));
    auto got = co_await std::move(bounded);
    co_return got ? std::error_code() : got.error();
}

runtime_options on(nowait::worker_pool& pool) {
    runtime_options options;
    options.pool = &pool;
    return options;
}

} // namespace

TEST_CASE("the value of blocking work comes back from another thread") {
    std::thread::id where;
    REQUIRE(run_on_new(answer_elsewhere(&where)) == 42);
    REQUIRE(where != std::thread::id());
    REQUIRE(where != std::this_thread::get_id());
}

TEST_CASE("void, move-only values, results and references travel back") {
    REQUIRE(run_on_new(forms()) == 5);
}

TEST_CASE("what blocking work throws arrives where it is awaited") {
    REQUIRE(run_on_new(what_it_throws()) == "from the worker");
}

TEST_CASE("what the function holds is let go of before the await ends") {
    auto held = std::make_shared<int>(1);
    std::weak_ptr<int> seen = held;
    run_on_new([](std::shared_ptr<int> what, std::weak_ptr<int>& gone) -> task<void> {
        auto work = [inner = std::move(what)] { return *inner; };
        auto job = blocking(std::move(work));
        (void)co_await std::move(job);
        REQUIRE(gone.expired());
    }(std::move(held), seen));
}

TEST_CASE("threads have names, and signals go to other threads") {
    auto pool = make_pool({.name = "seven"});
    std::string name;
    bool all_blocked = false;
    run_on_new(
        [](std::string& to, bool& blocked) -> task<void> {
            auto work = [&] {
                char text[16] = {};
                ::pthread_getname_np(::pthread_self(), text, sizeof text);
                to = text;
                sigset_t mask;
                ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
                blocked = ::sigismember(&mask, SIGINT) == 1 && ::sigismember(&mask, SIGCHLD) == 1;
            };
            (void)co_await blocking(work);
        }(name, all_blocked),
        on(pool));
    REQUIRE(name == "seven-b1");
    REQUIRE(all_blocked);
}

TEST_CASE("under a stop that came before, nothing is submitted") {
    auto pool = make_pool();
    std::stop_source source;
    source.request_stop();
    auto work = [] {};
    REQUIRE(run_on_new(under(source.get_token(), blocking(work)), on(pool)) == std::errc::operation_canceled);
    REQUIRE(pool.stats().bounded.submitted == 0);
}

TEST_CASE("a stop takes back work that has not begun") {
    auto pool = make_pool({.bounded_max = 1});
    gate begun;
    gate go_on;
    std::stop_source source;
    bool ran = false;
    auto runtime = make_runtime(on(pool));
    auto first = [&] {
        begun.open();
        go_on.pass();
    };
    auto second = [&] { ran = true; };
    auto holder = runtime.spawn([&]() -> task<void> { (void)co_await blocking(first); });
    auto waiter = runtime.spawn(under(source.get_token(), blocking(second)));
    std::jthread stopper([&] {
        begun.pass();
        while (pool.stats().bounded.queued == 0)
            std::this_thread::yield();
        source.request_stop();
        while (pool.stats().bounded.cancelled == 0)
            std::this_thread::yield();
        go_on.open();
    });
    REQUIRE(runtime.run());
    std::error_code ended;
    REQUIRE(runtime.run([](auto& from, std::error_code& to) -> task<void> {
        auto joined = co_await from.join();
        to = joined.value();
    }(waiter, ended)));
    REQUIRE(ended == std::errc::operation_canceled);
    REQUIRE_FALSE(ran);
    REQUIRE(holder.done());
}

TEST_CASE("a stop while the work runs waits for it and gives its result") {
    auto pool = make_pool();
    gate begun;
    gate go_on;
    std::stop_source source;
    auto work = [&] {
        begun.open();
        go_on.pass();
    };
    auto runtime = make_runtime(on(pool));
    std::jthread stopper([&] {
        begun.pass();
        source.request_stop();
        go_on.open();
    });
    auto ended = runtime.run(under(source.get_token(), blocking(work)));
    REQUIRE(ended.value() == std::error_code());
    REQUIRE(pool.stats().bounded.interrupts == 0);
}

TEST_CASE("a stop interrupts the system call of interruptible work") {
    auto pool = make_pool({.unbounded_max = 1}); // so the second piece of work is the same thread's
    blocking_pipe pipe;
    gate begun;
    std::stop_source source;
    auto work = [&] {
        begun.open();
        return read_byte(pipe.ends[0]);
    };
    auto runtime = make_runtime(on(pool));
    std::jthread stopper([&] {
        begun.pass();
        source.request_stop();
    });
    auto ended = runtime.run(under(source.get_token(), blocking(nowait::interruptible, work)));
    REQUIRE(ended.value() == std::errc::operation_canceled);
    REQUIRE(pool.stats().unbounded.interrupts >= 1);
    REQUIRE(pool.stats().bounded.submitted == 0);

    // And the thread's next work is not hit by what was sent to the last one.
    std::jthread writer([&] {
        while (pool.stats().unbounded.taken < 2)
            std::this_thread::yield();
        pipe.put('x');
    });
    auto got = runtime.run([](int fd) -> task<result<char>> {
        auto again = [fd] { return read_byte(fd); };
        co_return co_await blocking(nowait::interruptible, again);
    }(pipe.ends[0]));
    REQUIRE(got.value().value() == 'x');
    REQUIRE(pool.stats().unbounded.threads_started == 1);
}

TEST_CASE("work that calls again after EINTR asks whether it shall stop") {
    auto pool = make_pool();
    blocking_pipe pipe;
    gate begun;
    std::stop_source source;
    int interrupted = 0;
    auto work = [&](nowait::interruption asked) -> result<char> {
        begun.open();
        for (;;) {
            auto got = read_byte(pipe.ends[0]);
            if (got || got.error() != std::errc::interrupted)
                return got;
            ++interrupted;
            if (asked.requested())
                return nowait::fail(std::errc::operation_canceled);
        }
    };
    auto runtime = make_runtime(on(pool));
    std::jthread stopper([&] {
        begun.pass();
        source.request_stop();
    });
    auto ended = runtime.run(under(source.get_token(), blocking(nowait::interruptible, work)));
    REQUIRE(ended.value() == std::errc::operation_canceled);
    REQUIRE(interrupted == 1);
}

TEST_CASE("interruptible work that had a result gives it, stop or not") {
    auto pool = make_pool();
    gate begun;
    gate go_on;
    std::stop_source source;
    auto work = [&] { // asked to stop, and through with its job
        begun.open();
        go_on.pass();
        return 5;
    };
    auto runtime = make_runtime(on(pool));
    std::jthread stopper([&] {
        begun.pass();
        source.request_stop();
        while (pool.stats().unbounded.interrupts == 0)
            std::this_thread::yield();
        go_on.open();
    });
    auto got = runtime.run([](std::stop_token token, auto what) -> task<result<int>> {
        auto bounded = nowait::with_stop(std::move(what), std::move(token));
        co_return co_await std::move(bounded);
    }(source.get_token(), blocking(nowait::interruptible, work)));
    REQUIRE(got.value() == 5);
}

TEST_CASE("a signal that somebody else uses is refused, and left to them") {
    const int taken = SIGRTMIN + 7;
    struct sigaction theirs{};
    struct sigaction before{};
    theirs.sa_handler = SIG_IGN;
    REQUIRE(::sigaction(taken, &theirs, &before) == 0);
    auto pool = make_pool({.signal = taken});
    auto work = [] {};
    auto runtime = make_runtime(on(pool));
    REQUIRE(runtime.run(under({}, blocking(nowait::interruptible, work))).value() ==
            std::errc::device_or_resource_busy);
    REQUIRE(pool.stats().unbounded.submitted == 0);
    struct sigaction now{};
    REQUIRE(::sigaction(taken, &before, &now) == 0);
    REQUIRE(now.sa_handler == SIG_IGN);
    // Freed by them, it may be used; and other work never needed it.
    REQUIRE(runtime.run(under({}, blocking(nowait::interruptible, work))).value() == std::error_code());
    REQUIRE(runtime.run(under({}, blocking(work))).value() == std::error_code());
}

TEST_CASE("a stop ends the await of abandonable work, which goes on with memory of its own") {
    auto pool = make_pool();
    gate begun;
    gate go_on;
    gate over;
    std::stop_source source;
    auto shared = std::make_shared<int>(0);
    auto work = [&, shared] {
        begun.open();
        go_on.pass();
        *shared = 1;
        over.open();
        return std::string(100, 'x');
    };
    {
        auto runtime = make_runtime(on(pool));
        std::jthread stopper([&] {
            begun.pass();
            source.request_stop();
        });
        REQUIRE(runtime.run(under(source.get_token(), blocking(work).abandonable())).value() ==
                std::errc::operation_canceled);
    }
    const auto report = pool.shutdown(0ms);
    REQUIRE(report.abandoned == 1);
    REQUIRE(report.unfinished == 0);
    go_on.open();
    over.pass();
    REQUIRE(*shared == 1);
    while (!pool.shutdown(1h).complete()) // it does not wait for what was abandoned
        std::this_thread::yield();
    REQUIRE(pool.stats().unbounded.workers + pool.stats().bounded.workers == 0);
}

TEST_CASE("with_timeout bounds when the stop is requested") {
    auto pool = make_pool();
    blocking_pipe pipe;
    auto runtime = make_runtime(on(pool));
    auto ended = runtime.run([](int fd) -> task<std::error_code> {
        auto work = [fd] { return read_byte(fd); };
        auto bounded = nowait::with_timeout(blocking(nowait::interruptible, work), 1ms);
        auto got = co_await std::move(bounded);
        co_return got ? std::error_code() : got.error();
    }(pipe.ends[0]));
    REQUIRE(ended.value() == std::errc::timed_out);
}

TEST_CASE("blocking work is an operation like others") {
    auto pool = make_pool({.bounded_max = 2});
    gate first_runs;
    auto waits = [&] {
        first_runs.pass();
        return 1;
    };
    auto opens = [&] {
        first_runs.open();
        return 2;
    };
    auto both = run_on_new(
        [](auto& one, auto& two) -> task<int> {
            auto all = nowait::when_all(blocking(one), blocking(two));
            auto [a, b] = co_await std::move(all);
            co_return a.value() * 10 + b.value();
        }(waits, opens),
        on(pool));
    REQUIRE(both == 12);
}

TEST_CASE("several runtimes share a pool, and a description may name another one") {
    auto shared = make_pool({.bounded_max = 3});
    auto other = make_pool({.bounded_max = 1});
    constexpr int each = 200;
    std::vector<std::jthread> threads;
    std::vector<int> sums(4);
    for (int& sum : sums) {
        threads.emplace_back([&shared, &other, &sum] {
            sum = run_on_new(
                [](nowait::worker_pool& elsewhere) -> task<int> {
                    int total = 0;
                    for (int i = 0; i < each; ++i) {
                        auto work = [i] { return i; };
                        auto got = i % 2 == 0 ? blocking(work) : blocking(work).on(elsewhere);
                        auto done = co_await std::move(got);
                        total += done.value();
                    }
                    co_return total;
                }(other),
                on(shared));
        });
    }
    threads.clear();
    for (const int sum : sums)
        REQUIRE(sum == each * (each - 1) / 2);
    REQUIRE(shared.stats().bounded.taken == 4 * each / 2);
    REQUIRE(other.stats().bounded.taken == 4 * each / 2);
    REQUIRE(other.stats().bounded.workers <= 1);
}

TEST_CASE("bad maxima, names, times and signals are refused") {
    auto error = [](const nowait::worker_pool_options& options) {
        auto made = nowait::worker_pool::create(options);
        return made ? std::error_code() : made.error();
    };
    REQUIRE(error({.bounded_max = 0}) == std::errc::invalid_argument);
    REQUIRE(error({.unbounded_max = 0}) == std::errc::invalid_argument);
    REQUIRE(error({.bounded_max = 40000}) == std::errc::invalid_argument);
    REQUIRE(error({.unbounded_max = 40000}) == std::errc::invalid_argument);
    REQUIRE(error({.idle_time = -1ns}) == std::errc::invalid_argument);
    REQUIRE(error({.name = "eight888"}) == std::errc::invalid_argument);
    REQUIRE(error({.signal = SIGUSR1}) == std::errc::invalid_argument);
    REQUIRE(error({}) == std::error_code());
}

TEST_CASE("a pool that was shut down refuses") {
    auto pool = make_pool();
    REQUIRE(pool.shutdown(0s).complete());
    auto work = [] {};
    REQUIRE(run_on_new(under({}, blocking(work)), on(pool)) == std::errc::operation_canceled);
    REQUIRE(pool.stats().bounded.refused == 1);
    REQUIRE(pool.stats().bounded.threads_started == 0);
}

TEST_CASE("no thread is started before there is work") {
    auto pool = make_pool();
    auto runtime = make_runtime(on(pool));
    REQUIRE(runtime.run([]() -> task<void> { co_await nowait::yield(); }()));
    REQUIRE(pool.stats().bounded.threads_started == 0);
    REQUIRE(pool.stats().unbounded.threads_started == 0);
}
