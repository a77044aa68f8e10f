// Waiting for signals: who receives what, and what is never lost.
#include "signals_support.hpp"

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

using namespace signals_test;

namespace {

/// Raises a signal in a turn of its own, later than whoever waits.
task<> raise_later(int number) {
    co_await nowait::yield();
    CHECK(::kill(::getpid(), number) == 0);
}

} // namespace

TEST_CASE("a signal wakes the task that awaits it") {
    signals usr = take({SIGUSR1, SIGUSR2});
    const auto got = run_on_new([](signals& from) -> task<std::array<int, 2>> {
        std::array<int, 2> seen{};
        nowait::spawn(raise_later(SIGUSR2)).detach();
        auto one = co_await from.next();
        seen[0] = one ? one->number : -1;
        nowait::spawn(raise_later(SIGUSR1)).detach();
        one = co_await from.next();
        seen[1] = one ? one->number : -1;
        co_return seen;
    }(usr));
    CHECK(got[0] == SIGUSR2);
    CHECK(got[1] == SIGUSR1);
}

TEST_CASE("a signal wakes a loop that sleeps, from another thread") {
    signals usr = take({SIGUSR1});
    std::thread sender([] {
        for (int i = 0; i < 20; ++i) {
            ::kill(::getpid(), SIGUSR1);
            std::this_thread::yield();
        }
    });
    const auto got = run_on_new(receive(usr));
    sender.join();
    REQUIRE(got.has_value());
    CHECK(got->number == SIGUSR1);
    CHECK(got->times >= 1);
}

TEST_CASE("signals that come before the first next are kept and counted") {
    signals usr = take({SIGUSR1, SIGUSR2});
    for (int i = 0; i < 3; ++i)
        ::raise(SIGUSR1);
    ::raise(SIGUSR2);
    runtime runs = make_runtime();
    const auto first = runs.run(receive(usr)).value().value();
    const auto second = runs.run(receive(usr)).value().value();
    CHECK(first.number == SIGUSR1);
    CHECK(first.times == 3);
    CHECK(second.number == SIGUSR2);
    CHECK(second.times == 1);
}

TEST_CASE("signals that come between two waits are kept") {
    signals usr = take({SIGUSR1});
    const int seen = run_on_new([](signals& from) -> task<int> {
        int count = 0;
        for (int i = 0; i < 1'000; ++i) {
            ::raise(SIGUSR1);
            const auto got = co_await from.next();
            count += got ? static_cast<int>(got->times) : 0;
        }
        co_return count;
    }(usr));
    CHECK(seen == 1'000);
}

TEST_CASE("a flood of one signal does not hide another") {
    signals both = take({SIGUSR1, SIGUSR2});
    const int waits = run_on_new([](signals& from) -> task<int> {
        ::raise(SIGUSR2);
        for (int i = 1;; ++i) {
            ::raise(SIGUSR1);
            const auto got = co_await from.next();
            if (!got || got->number == SIGUSR2)
                co_return i;
        }
    }(both));
    CHECK(waits <= 2);
}

TEST_CASE("every object that holds a signal receives it, on one runtime") {
    signals one = take({SIGUSR1});
    signals two = take({SIGUSR1, SIGUSR2});
    runtime runs = make_runtime();
    auto first = runs.spawn(receive(one));
    auto second = runs.spawn(receive(two));
    runs.spawn(raise_later(SIGUSR1)).detach();
    REQUIRE(runs.run().has_value());
    CHECK(runs.run([](auto& h) -> task<int> {
                  const auto got = co_await h.join();
                  co_return (*got)->number;
              }(first))
              .value() == SIGUSR1);
    CHECK(runs.run([](auto& h) -> task<int> {
                  const auto got = co_await h.join();
                  co_return (*got)->number;
              }(second))
              .value() == SIGUSR1);
}

TEST_CASE("several runtimes wait for the same signal, and each receives it") {
    constexpr std::size_t count = 3;
    std::atomic<std::size_t> waiting{0};
    std::array<int, count> seen{};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < count; ++i) {
        threads.emplace_back([&waiting, &seen, i] {
            auto usr = signals::create({SIGUSR1});
            auto runs = runtime::create();
            ++waiting;
            if (!usr || !runs)
                return;
            const auto got = runs->run(receive(*usr));
            seen[i] = got && *got ? (*got)->number : -1;
        });
    }
    while (waiting != count)
        std::this_thread::yield();
    ::kill(::getpid(), SIGUSR1);
    for (std::thread& thread : threads)
        thread.join();
    for (int number : seen)
        CHECK(number == SIGUSR1);
    CHECK(is_default(SIGUSR1));
}

TEST_CASE("waiters of one object are served first come first served, one for each signal") {
    signals both = take({SIGUSR1, SIGUSR2});
    std::vector<int> order;
    run_on_new([](signals& from, std::vector<int>& seen) -> task<> {
        auto waits = [](signals& s, std::vector<int>& out, int name) -> task<> {
            const auto got = co_await s.next();
            if (got)
                out.push_back(name);
        };
        auto first = nowait::spawn(waits(from, seen, 1));
        auto second = nowait::spawn(waits(from, seen, 2));
        co_await nowait::yield();
        ::raise(SIGUSR1);
        (void)co_await first.join();
        CHECK(seen.size() == 1);
        ::raise(SIGUSR2);
        (void)co_await second.join();
    }(both, order));
    CHECK(order == std::vector<int>{1, 2});
}

TEST_CASE("a wait for a signal is stop aware, and a stop loses no signal") {
    signals usr = take({SIGUSR1});
    run_on_new([](signals& from) -> task<> {
        auto got = co_await nowait::with_timeout(from.next(), 1ms);
        CHECK(got.error() == std::errc::timed_out);
        for (int i = 0; i < 50; ++i) {
            {
                nowait::inplace_stop_source stop;
                auto waits = nowait::spawn(
                    [](signals& s, nowait::inplace_stop_source& by) -> task<result<received_signal>> {
                        co_return co_await nowait::with_stop(s.next(), by.get_token());
                    }(from, stop));
                co_await nowait::yield();
                // Both at once: whatever the wait says, the signal is there for it or for the next one.
                ::raise(SIGUSR1);
                stop.request_stop();
                const auto first = co_await waits.join();
                if (!*first) {
                    CHECK(first->error() == std::errc::operation_canceled);
                    got = co_await nowait::with_timeout(from.next(), 10s);
                    CHECK(got->number == SIGUSR1);
                }
            }
        }
        got = co_await nowait::with_timeout(from.next(), 0ms);
        CHECK(got.error() == std::errc::timed_out); // and none came twice
    }(usr));
}

TEST_CASE("a runtime that stops ends the wait for a signal") {
    signals usr = take({SIGUSR1});
    runtime runs = make_runtime();
    auto waits = runs.spawn(receive(usr));
    CHECK(runs.shutdown(10s).complete());
    CHECK(waits.done());
}

TEST_CASE("an object that is closed ends its waits") {
    run_on_new([]() -> task<> {
        signals usr = take({SIGUSR1});
        auto waits = nowait::spawn(receive(usr));
        co_await nowait::yield();
        CHECK(usr.close().has_value());
        const auto got = co_await waits.join();
        CHECK(got->error() == std::errc::operation_canceled);
        const auto again = co_await usr.next();
        CHECK(again.error() == std::errc::bad_file_descriptor);
        CHECK(usr.close().error() == std::errc::bad_file_descriptor);
        CHECK(is_default(SIGUSR1));
    }());
}

TEST_CASE("an object that is destroyed ends its waits, and one that moves keeps them") {
    run_on_new([]() -> task<> {
        auto usr = std::make_unique<signals>(take({SIGUSR1}));
        auto waits = nowait::spawn(receive(*usr));
        co_await nowait::yield();
        auto moved = std::make_unique<signals>(std::move(*usr));
        usr.reset();
        ::raise(SIGUSR1);
        auto got = co_await waits.join();
        CHECK((*got)->number == SIGUSR1);
        auto last = nowait::spawn(receive(*moved));
        co_await nowait::yield();
        moved.reset();
        got = co_await last.join();
        CHECK(got->error() == std::errc::operation_canceled);
    }());
}

TEST_CASE("a description that outlives its object is refused") {
    run_on_new([]() -> task<> {
        signals usr = take({SIGUSR1});
        auto wait = usr.next();
        CHECK(usr.close().has_value());
        signals other = take({SIGUSR1}); // uses the same place again
        ::raise(SIGUSR1);
        const auto refused = co_await wait;
        CHECK(refused.error() == std::errc::bad_file_descriptor);
        const auto got = co_await other.next();
        CHECK(got->number == SIGUSR1);
    }());
}

TEST_CASE("the object belongs to the runtime of its first wait") {
    signals usr = take({SIGUSR1});
    ::raise(SIGUSR1);
    runtime one = make_runtime();
    runtime two = make_runtime();
    CHECK(one.run(receive(usr)).value()->number == SIGUSR1);
    CHECK(two.run(receive(usr)).value().error() == std::errc::operation_not_permitted);
    CHECK(usr.close().error() == std::errc::operation_not_permitted); // not on its runtime
    ::raise(SIGUSR1);
    CHECK(one.run(receive(usr)).value()->number == SIGUSR1);
}

TEST_CASE("a runtime may go before the signals that it waited for") {
    signals usr = take({SIGUSR1});
    {
        runtime runs = make_runtime();
        auto waits = runs.spawn(receive(usr));
        ::raise(SIGUSR1);
        REQUIRE(runs.run().has_value());
        auto waits_on = runs.spawn(receive(usr));
        (void)runs.shutdown(0s);
        ::raise(SIGUSR1); // to a loop that nobody runs any more
    }
    ::raise(SIGUSR1); // and to one that has gone
    for (int i = 0; i < 100; ++i) {
        signals other = take({SIGUSR1});
        ::raise(SIGUSR1);
        runtime runs = make_runtime();
        CHECK(runs.run(receive(other)).value()->number == SIGUSR1);
        ::raise(SIGUSR1); // the news of it still stands in the runtime's queue when both go
    }
}

TEST_CASE("queued signals are counted to the last one, while other objects come and go") {
    // Real-time signals are not merged by the kernel: each delivery must be found in somebody's count.
    const int number = SIGRTMIN + 5;
    constexpr int count = 5'000;
    signals counted = take({number});
    std::atomic<bool> over{false};
    std::thread comes_and_goes([&over, number] {
        auto runs = runtime::create();
        while (runs && !over) {
            auto passing = signals::create({number});
            if (passing) {
                (void)runs->run([](signals& from) -> task<> {
                    (void)co_await nowait::with_timeout(from.next(), 1ms);
                }(*passing));
            }
        }
    });
    std::atomic<bool> sent_all{false};
    std::thread sends([number, &sent_all] {
        for (int i = 0; i < count;) {
            if (::sigqueue(::getpid(), number, sigval{}) == 0)
                ++i;
            else
                std::this_thread::yield(); // too many pending
        }
        sent_all = true;
    });
    const int received = run_on_new([](signals& from, std::atomic<bool>& all) -> task<int> {
        int sum = 0;
        while (sum < count) {
            const bool last = all;
            const auto got = co_await nowait::with_timeout(from.next(), 100ms);
            if (got)
                sum += static_cast<int>(got->times);
            else if (last)
                break; // nothing more will come
        }
        co_return sum;
    }(counted, sent_all));
    sends.join();
    over = true;
    comes_and_goes.join();
    if (nowait_test::thread_sanitizer)
        CHECK(received > 0);
    else
        CHECK(received == count);
}

TEST_CASE("an object without waits may be destroyed on any thread") {
    for (int i = 0; i < 50; ++i) {
        auto usr = std::make_unique<signals>(take({SIGUSR1}));
        runtime runs = make_runtime();
        ::raise(SIGUSR1);
        REQUIRE(runs.run(receive(*usr)).value()->number == SIGUSR1);
        ::raise(SIGUSR1);
        std::thread([away = std::move(usr)]() mutable { away.reset(); }).join();
        REQUIRE(runs.run(raise_later(0)).has_value()); // runs what the signal has left in the queue
        CHECK(is_default(SIGUSR1));
    }
}
