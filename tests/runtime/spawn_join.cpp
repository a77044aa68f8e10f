// Tasks of their own: joined on the same runtime, joined from another thread, left alone.
#include "child_process.hpp"
#include "runs.hpp"

#include <nowait/pipe.hpp>
#include <nowait/sleep.hpp>
#include <nowait/timeout.hpp>
#include <nowait/when_all.hpp>

#include <array>
#include <csignal>
#include <cstdio>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

using nowait::join_handle;
using nowait::runtime;
using nowait::task;
using nowait_test::make_runtime;
using nowait_test::run_on_new;

namespace {

task<int> number(int n, int suspensions) {
    for (int i = 0; i < suspensions; ++i)
        co_await nowait::yield();
    co_return n;
}

task<int> fails() {
    co_await nowait::yield();
    throw std::runtime_error("spawned");
}

task<int> never() {
    (void)co_await nowait::sleep_for(std::chrono::hours::max());
    co_return 1;
}

#if defined(__SANITIZE_THREAD__)
constexpr int rounds = 10'000;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr int rounds = 10'000;
#else
constexpr int rounds = 100'000;
#endif
#else
constexpr int rounds = 100'000;
#endif

} // namespace

TEST_CASE("join gives the value of a task that ends later, and of one that has ended") {
    run_on_new([]() -> task<> {
        auto later = nowait::spawn(number(5, 3));
        CHECK_FALSE(later.done());
        const auto first = co_await later.join();
        CHECK(first.value() == 5);
        CHECK(later.done());

        auto early = nowait::spawn(number(6, 0));
        co_await nowait::yield();
        co_await nowait::yield();
        CHECK(early.done());
        const auto second = co_await early.join();
        CHECK(second.value() == 6);
    }());
}

TEST_CASE("join throws what the task threw") {
    run_on_new([]() -> task<> {
        auto handle = nowait::spawn(fails());
        std::string seen;
        try {
            (void)co_await handle.join();
        } catch (const std::runtime_error& e) {
            seen = e.what();
        }
        CHECK(seen == "spawned");
    }());
}

TEST_CASE("an empty handle cannot be joined, and a task has one joiner at a time") {
    run_on_new([]() -> task<> {
        join_handle<int> empty;
        CHECK_FALSE(empty.valid());
        const auto nothing = co_await empty.join();
        CHECK(nothing.error() == std::errc::invalid_argument);

        auto handle = nowait::spawn(number(1, 5));
        const auto both = co_await nowait::when_all(handle.join(), handle.join());
        CHECK(std::get<0>(both).value() == 1);
        CHECK(std::get<1>(both).error() == std::errc::invalid_argument);
    }());
}

TEST_CASE("a cancelled join leaves the task running, and it can be joined again") {
    run_on_new([]() -> task<> {
        nowait::pipe_pair pipe = nowait::make_pipe().value();
        auto handle = nowait::spawn([](nowait::pipe_reader& from) -> task<int> {
            std::array<std::byte, 1> byte{};
            const auto got = co_await from.read(byte);
            co_return static_cast<int>(got.value());
        }(pipe.reader));
        const auto timed = co_await nowait::with_timeout(handle.join(), std::chrono::milliseconds(1));
        CHECK(timed.error() == std::errc::timed_out);
        CHECK_FALSE(handle.done());
        const auto wrote = co_await pipe.writer.write("x");
        CHECK(wrote.value() == 1);
        const auto joined = co_await handle.join();
        CHECK(joined.value() == 1);
    }());
}

TEST_CASE("a detached task runs to its end, and run waits for it") {
    bool ended = false;
    runtime runs = make_runtime();
    const auto ran = runs.run([](bool& seen) -> task<> {
        nowait::spawn([](bool& mine) -> task<> {
            for (int i = 0; i < 10; ++i)
                co_await nowait::yield();
            mine = true;
        }(seen))
            .detach();
        co_return;
    }(ended));
    CHECK(ran.has_value());
    CHECK(ended);
}

TEST_CASE("a task spawned before run runs in it") {
    runtime runs = make_runtime();
    auto handle = runs.spawn(number(9, 2));
    REQUIRE(runs.run().has_value());
    CHECK(handle.done());
    // and its value can be had in a later run
    const auto value = runs.run([](join_handle<int>& h) -> task<int> {
        const auto joined = co_await h.join();
        co_return joined.value();
    }(handle));
    CHECK(value.value() == 9);
}

TEST_CASE("a handle that is moved, assigned over and destroyed lets its tasks go on") {
    int ended = 0;
    runtime runs = make_runtime();
    auto counts = [](int& to) -> task<> {
        co_await nowait::yield();
        ++to;
    };
    {
        auto one = runs.spawn(counts(ended));
        auto two = runs.spawn(counts(ended));
        one = std::move(two);
        CHECK_FALSE(two.valid()); // NOLINT(bugprone-use-after-move)
    }
    REQUIRE(runs.run().has_value());
    CHECK(ended == 2);
}

TEST_CASE("spawn keeps the callable and its captures alive until the task has ended") {
    runtime runs = make_runtime();
    std::string seen;
    auto probe = std::make_shared<int>(1);
    auto handle = runs.spawn([text = std::string(100, 'c'), &seen, probe]() -> task<> {
        co_await nowait::sleep_for(std::chrono::microseconds(100));
        seen = text;
    });
    CHECK(probe.use_count() == 2);
    REQUIRE(runs.run().has_value());
    CHECK(seen == std::string(100, 'c'));
    CHECK(probe.use_count() == 1);
}

TEST_CASE("what a detached task throws reaches the hook, then the process ends") {
    const auto end = nowait_test::in_child([] {
        nowait::runtime_options options;
        options.unhandled = [](std::exception_ptr error) {
            try {
                std::rethrow_exception(error);
            } catch (const std::exception& e) {
                std::fprintf(stderr, "hook: %s\n", e.what());
            }
        };
        std::signal(SIGABRT, SIG_DFL);
        auto runs = runtime::create(options);
        runs->spawn(fails()).detach();
        (void)runs->run();
        return 0;
    });
    CHECK(end.signal == SIGABRT);
    CHECK(end.errors.find("hook: spawned") != std::string::npos);
}

TEST_CASE("an exception that somebody can still join does not end the process") {
    runtime runs = make_runtime();
    auto handle = runs.spawn(fails());
    REQUIRE(runs.run().has_value());
    CHECK(handle.done());
    // The handle goes with the exception unseen: that is the handle's owner's decision, as with std::future.
}

TEST_CASE("a task of another runtime is joined across threads") {
    // Rounds with a task that never suspends: its end races with the joiner's suspension.
    std::promise<nowait::remote_runtime> ready;
    std::promise<void> over;
    std::thread other([&] {
        runtime theirs = make_runtime();
        (void)theirs.run(
            [](std::promise<nowait::remote_runtime>& tell, runtime& of, std::future<void> until) -> task<> {
                tell.set_value(of.remote());
                // Alive until the other side is done: it stops this runtime.
                (void)co_await nowait::sleep_for(std::chrono::hours::max());
                until.wait();
            }(ready, theirs, over.get_future()));
    });
    const nowait::remote_runtime there = ready.get_future().get();
    int joined_rounds = 0;
    run_on_new([](nowait::remote_runtime to, int& count) -> task<> {
        for (int i = 0; i < rounds; ++i) {
            // Spawned over there by a posted function; the handle comes back through a post.
            struct exchange {
                nowait::remote_runtime back;
                join_handle<int> handle;
                bool arrived = false;
            };
            auto shared = std::make_shared<exchange>(exchange{nowait::current_remote(), {}, false});
            to.post([shared, i] {
                shared->handle = nowait::spawn(number(i, i % 3));
                shared->back.post([shared] { shared->arrived = true; });
            });
            while (!shared->arrived)
                co_await nowait::yield();
            const auto value = co_await shared->handle.join();
            if (!value || *value != i)
                break;
            ++count;
        }
    }(there, joined_rounds));
    CHECK(joined_rounds == rounds);
    over.set_value();
    there.request_stop();
    other.join();
}

TEST_CASE("a remote join that is cancelled leaves nothing behind") {
    std::promise<nowait::remote_runtime> ready;
    std::thread other([&] {
        runtime theirs = make_runtime();
        (void)theirs.run([](std::promise<nowait::remote_runtime>& tell, runtime& of) -> task<> {
            tell.set_value(of.remote());
            (void)co_await nowait::sleep_for(std::chrono::hours::max());
        }(ready, theirs));
    });
    const nowait::remote_runtime there = ready.get_future().get();
    auto handle = std::make_shared<join_handle<int>>();
    run_on_new([](nowait::remote_runtime to, std::shared_ptr<join_handle<int>> slot) -> task<> {
        auto arrived = std::make_shared<bool>(false);
        auto back = nowait::current_remote();
        to.post([slot, arrived, back] {
            *slot = nowait::spawn(never());
            back.post([arrived] { *arrived = true; });
        });
        while (!*arrived)
            co_await nowait::yield();
        const auto joined = co_await nowait::with_timeout(slot->join(), std::chrono::milliseconds(1));
        CHECK(joined.error() == std::errc::timed_out);
        CHECK_FALSE(slot->done());
    }(there, handle));
    there.request_stop();
    other.join();
    CHECK(handle->done());
}
