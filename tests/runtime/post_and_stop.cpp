// Other threads and signal handlers reach a runtime: posts in order, none lost, stops heard.
#include "runs.hpp"

#include <nowait/pipe.hpp>
#include <nowait/sleep.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <memory>
#include <thread>
#include <vector>

using nowait::runtime;
using nowait::task;
using nowait_test::make_runtime;

namespace {

task<> until_stopped() {
    (void)co_await nowait::sleep_for(std::chrono::hours::max());
}

} // namespace

TEST_CASE("posts of several threads arrive once, in each thread's order") {
    constexpr int threads = 4;
    constexpr int posts = 5'000;
    runtime runs = make_runtime();
    std::array<std::vector<int>, threads> seen;
    int left = threads * posts;
    std::vector<std::thread> posters;
    for (int t = 0; t < threads; ++t) {
        posters.emplace_back([&, t, to = runs.remote()] {
            for (int i = 0; i < posts; ++i) {
                to.post([&, t, i, to] {
                    seen[static_cast<std::size_t>(t)].push_back(i);
                    if (--left == 0)
                        to.request_stop();
                });
            }
        });
    }
    REQUIRE(runs.run(until_stopped()).has_value());
    for (std::thread& poster : posters)
        poster.join();
    for (const auto& of_one : seen) {
        REQUIRE(of_one.size() == posts);
        bool in_order = true;
        for (int i = 0; i < posts; ++i)
            in_order = in_order && of_one[static_cast<std::size_t>(i)] == i;
        CHECK(in_order);
    }
    CHECK(runs.stats().remote_posts == threads * posts);
}

TEST_CASE("a post wakes a loop that sleeps, every time") {
    // Ping-pong between two idle loops: a single lost wake would hang.
    constexpr int rounds = 5'000;
    struct side {
        nowait::remote_runtime* to = nullptr;
        int count = 0;
    };
    runtime left = make_runtime();
    std::promise<nowait::remote_runtime> made;
    std::promise<void> go;
    std::thread thread([&] {
        runtime right = make_runtime();
        made.set_value(right.remote());
        go.get_future().wait();
        (void)right.run(until_stopped());
    });
    nowait::remote_runtime right = made.get_future().get();
    nowait::remote_runtime back = left.remote();
    struct player {
        nowait::remote_runtime here, there;
        int left;
        static void play(std::shared_ptr<player> p) {
            if (--p->left == 0) {
                p->here.request_stop();
                p->there.request_stop();
                return;
            }
            std::swap(p->here, p->there);
            p->here.post([p] { play(p); });
        }
    };
    auto ball = std::make_shared<player>(player{back, right, rounds});
    left.post([ball] { player::play(ball); });
    go.set_value();
    REQUIRE(left.run(until_stopped()).has_value());
    thread.join();
    CHECK(ball->left == 0);
}

TEST_CASE("a post to a runtime that has gone is refused and its function destroyed") {
    auto kept = std::make_shared<int>(1);
    std::unique_ptr<nowait::remote_runtime> remote;
    {
        runtime runs = make_runtime();
        remote = std::make_unique<nowait::remote_runtime>(runs.remote());
    }
    bool ran = false;
    CHECK_FALSE(remote->post([kept, &ran] { ran = true; }));
    CHECK_FALSE(ran);
    CHECK(kept.use_count() == 1);
    remote->request_stop(); // harmless
}

TEST_CASE("posts that race with the end of the runtime are run or refused, never lost") {
    for (int round = 0; round < 200; ++round) {
        std::atomic<int> ran{0};
        std::atomic<int> refused{0};
        auto runs = std::make_unique<runtime>(make_runtime());
        std::thread poster([&, to = runs->remote()] {
            for (int i = 0; i < 50; ++i) {
                if (!to.post([&] { ran.fetch_add(1); }))
                    refused.fetch_add(1);
            }
        });
        (void)runs->run([]() -> task<> { co_await nowait::yield(); }());
        runs.reset();
        poster.join();
        REQUIRE(ran + refused == 50);
    }
}

TEST_CASE("what a post spawns is run") {
    runtime runs = make_runtime();
    bool ended = false;
    runs.post([&ended, back = runs.remote()] {
        nowait::spawn([](bool& seen, nowait::remote_runtime to) -> task<> {
            co_await nowait::yield();
            seen = true;
            to.request_stop();
        }(ended, back))
            .detach();
    });
    REQUIRE(runs.run(until_stopped()).has_value());
    CHECK(ended);
}

TEST_CASE("request_stop from another thread ends a loop that sleeps") {
    runtime runs = make_runtime();
    std::thread stopper([to = runs.remote()] { to.request_stop(); });
    CHECK(runs.run(until_stopped()).has_value());
    stopper.join();
}

namespace {

nowait::remote_runtime* stop_on_signal = nullptr;

} // namespace

TEST_CASE("request_stop from a signal handler ends a loop that sleeps") {
    runtime runs = make_runtime();
    nowait::remote_runtime remote = runs.remote();
    stop_on_signal = &remote;
    struct sigaction action{};
    action.sa_handler = [](int) { stop_on_signal->request_stop(); };
    struct sigaction before{};
    REQUIRE(::sigaction(SIGUSR1, &action, &before) == 0);
    const pthread_t here = ::pthread_self();
    // Raised by another thread when the loop says that it runs; it may hit the loop awake or asleep.
    std::promise<void> running;
    std::thread killer([&] {
        running.get_future().wait();
        ::pthread_kill(here, SIGUSR1);
    });
    const auto ran = runs.run([](std::promise<void>& tell) -> task<> {
        tell.set_value();
        co_await until_stopped();
    }(running));
    killer.join();
    CHECK(ran.has_value());
    ::sigaction(SIGUSR1, &before, nullptr);
    stop_on_signal = nullptr;
}

TEST_CASE("a stop before run makes every await end at once") {
    runtime runs = make_runtime();
    runs.request_stop();
    const auto ran = runs.run([]() -> task<int> {
        int canceled = 0;
        const auto slept = co_await nowait::sleep_for(std::chrono::hours(1));
        canceled += !slept && slept.error() == std::errc::operation_canceled;
        nowait::pipe_pair pipe = nowait::make_pipe().value();
        std::array<std::byte, 4> buffer{};
        const auto got = co_await pipe.reader.read(buffer);
        canceled += !got && got.error() == std::errc::operation_canceled;
        const auto wrote = co_await pipe.writer.write("abc");
        canceled += !wrote && wrote.error() == std::errc::operation_canceled;
        co_return canceled;
    }());
    CHECK(ran.value() == 3);
}
