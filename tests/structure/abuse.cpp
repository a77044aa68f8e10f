// What a careless or hostile program does to scopes, races and locks: it must neither leak, hang, nor be resumed twice.
#include "fake_driver.hpp"
#include "runs.hpp"
#include "stack_probe.hpp"
#include "structure_support.hpp"

#include <nowait/async_generator.hpp>
#include <nowait/async_mutex.hpp>
#include <nowait/channel.hpp>
#include <nowait/event.hpp>
#include <nowait/interval.hpp>
#include <nowait/latch.hpp>
#include <nowait/pipe.hpp>
#include <nowait/pipe_channel.hpp>
#include <nowait/resume_on.hpp>
#include <nowait/semaphore.hpp>
#include <nowait/sleep.hpp>
#include <nowait/task_scope.hpp>
#include <nowait/timeout.hpp>
#include <nowait/when_all.hpp>
#include <nowait/when_any.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using nowait::result;
using nowait::runtime;
using nowait::task;
using nowait::task_scope;
using nowait_test::fake_world;
using nowait_test::make_runtime;
using namespace std::chrono_literals;

namespace {

constexpr auto canceled = std::errc::operation_canceled;

/// Counts frames: one of these lives in each.
struct census {
    int born = 0;
    int died = 0;
    struct member {
        explicit member(census& of) : to(&of) { ++to->born; }
        member(const member& other) : to(other.to) { ++to->born; }
        member& operator=(const member&) = delete;
        ~member() { ++to->died; }
        census* to;
    };
};

void run(task<> what) {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run(std::move(what)).has_value());
}

task<> yields(int count) {
    for (int i = 0; i < count; ++i)
        co_await nowait::yield();
}

/// Runs the loop without stopping anything, until everything waits.
void let_wait(runtime& runs, std::chrono::milliseconds span = 1ms) {
    REQUIRE(runs.get_loop().enter() == 0);
    runs.get_loop().run_until_idle(std::chrono::steady_clock::now() + span);
    runs.get_loop().leave();
}

} // namespace

TEST_CASE("abuse: an exception passes ten thousand frames, and each is destroyed once") {
    census frames;
    struct recursive {
        static task<int> throws_at(int depth, census& to) {
            const census::member here(to);
            if (depth == 0)
                throw std::runtime_error("bottom");
            const int below = co_await throws_at(depth - 1, to);
            co_return below + 1;
        }
    };
    run([](census& to) -> task<> {
        std::string what;
        try {
            (void)co_await recursive::throws_at(10'000, to);
        } catch (const std::runtime_error& error) {
            what = error.what();
        }
        CHECK(what == "bottom");
    }(frames));
    CHECK(frames.born == 10'001);
    CHECK(frames.died == frames.born);
}

TEST_CASE("abuse: everything at once throws") {
    census frames;
    run([](census& to) -> task<> {
        auto throws = [](census& count, int after) -> task<> {
            const census::member here(count);
            co_await yields(after);
            throw std::runtime_error(std::to_string(after));
        };
        for (int round = 0; round < 20; ++round) {
            task_scope scope;
            for (int i = 0; i < 10; ++i)
                scope.spawn(throws(to, (i * 7 + round) % 5));
            bool thrown = false;
            try {
                auto all = nowait::when_all(throws(to, round % 3), throws(to, 1));
                auto any = nowait::when_any(std::move(all), throws(to, 2));
                auto first = co_await nowait::with_timeout(std::move(any), 1h);
                CHECK(first.has_value());
                (void)co_await scope.join();
            } catch (const std::runtime_error&) {
                thrown = true;
            }
            CHECK(thrown);
        }
    }(frames));
    CHECK(frames.born == 20 * 13);
    CHECK(frames.died == frames.born);
}

TEST_CASE("abuse: under a stop that was requested before, nothing is touched") {
    run([]() -> task<> {
        auto full = nowait::local_channel<int>::create(1).value();
        int one = 1;
        CHECK(full.try_send(one).has_value());
        auto inside = nowait::local_pipe_channel::create().value();
        CHECK(inside.writer.try_write("abc").has_value());
        nowait::pipe_pair pipe = nowait::make_pipe().value();
        nowait::local_semaphore permits(3);
        nowait::local_async_mutex mutex;
        nowait::local_event set(true);
        nowait::local_latch open(0);
        nowait::interval every(1ns);
        auto ran = std::make_shared<bool>(false);
        auto generator = [](std::shared_ptr<bool> flag) -> nowait::async_generator<int> {
            *flag = true;
            co_yield 1;
        }(ran);
        std::array<std::byte, 8> buffer{};
        int two = 2;

        nowait::inplace_stop_source stop;
        stop.request_stop();
        auto everything = nowait::when_all(
            full.receive(), full.send(two), inside.reader.read(buffer), inside.writer.write("x"),
            pipe.reader.read(buffer), pipe.writer.write("x"), permits.acquire(), mutex.lock(), set.wait(),
            open.wait(), every.tick(), nowait::sleep_for(0s), nowait::sleep_for(1h), generator.next());
        auto all = co_await nowait::with_stop(std::move(everything), stop.get_token());
        REQUIRE(all.has_value());
        std::apply([](const auto&... each) { CHECK(((each.error() == canceled) && ...)); }, *all);
        CHECK(full.size() == 1);
        CHECK(inside.reader.available().value() == 3);
        CHECK(permits.available() == 3);
        CHECK_FALSE(mutex.held());
        CHECK_FALSE(*ran);
        CHECK(two == 2);
    }());
}

namespace {

/// Producers, consumers, locks, races and scopes, whose sums must add up whenever they are stopped.
struct busy_place {
    nowait::local_channel<std::unique_ptr<int>> channel =
        nowait::local_channel<std::unique_ptr<int>>::create(2).value();
    nowait::local_semaphore permits{2};
    nowait::local_async_mutex mutex;
    nowait::local_event gate;
    census frames;
    int made = 0;
    int delivered = 0;
    int kept = 0;
    int inside = 0;

    task<> produces() {
        const census::member here(frames);
        for (int i = 0; i < 6; ++i) {
            auto value = std::make_unique<int>(i);
            ++made;
            auto sending = channel.send_owned(std::move(value));
            auto first = co_await nowait::when_any(std::move(sending), gate.wait());
            auto& sent = first.template get<0>();
            if (!sent) {
                CHECK(sent.error().value != nullptr);
                ++kept;
            }
        }
    }
    task<> consumes() {
        const census::member here(frames);
        for (;;) {
            auto got = co_await nowait::with_timeout(channel.receive(), 50us);
            if (!got && got.error() != std::errc::timed_out)
                co_return;
            if (got)
                ++delivered;
            else if (gate.is_set())
                co_return;
        }
    }
    task<> locks() {
        const census::member here(frames);
        for (int i = 0; i < 4; ++i) {
            auto permit = co_await permits.acquire();
            if (!permit)
                co_return;
            auto held = co_await mutex.lock();
            if (!held)
                co_return;
            CHECK(++inside == 1);
            co_await nowait::yield();
            CHECK(--inside == 0);
        }
    }
    task<result<void>> nests(int depth) {
        const census::member here(frames);
        auto ended = co_await nowait::with_scope([this, depth](task_scope& scope) -> task<> {
            const census::member inner(frames);
            if (depth > 0) {
                scope.spawn(nests(depth - 1));
                scope.spawn(locks());
            }
            (void)co_await nowait::sleep_for(100us);
        });
        co_return ended;
    }
};

} // namespace

TEST_CASE("abuse: a stop in every state, one step later each time") {
    int last_stopped = 0;
    for (int when = 0; when < 120; ++when) {
        fake_world world;
        runtime runs = world.make();
        busy_place place;
        REQUIRE(runs.run([](busy_place& at, int after, int& stopped_at) -> task<> {
                        task_scope scope;
                        for (int i = 0; i < 3; ++i) {
                            scope.spawn(at.produces());
                            scope.spawn(at.consumes());
                            scope.spawn(at.locks());
                        }
                        scope.spawn(at.nests(4));
                        co_await yields(after);
                        if (scope.active() != 0)
                            stopped_at = after;
                        scope.request_stop();
                        auto ended = co_await scope.join();
                        CHECK(ended.has_value());
                    }(place, when, last_stopped))
                    .has_value());
        const int left = static_cast<int>(place.channel.size());
        CHECK(place.made == place.delivered + place.kept + left);
        CHECK(place.permits.available() == 2);
        CHECK_FALSE(place.permits.contended());
        CHECK_FALSE(place.mutex.held());
        CHECK(place.frames.born == place.frames.died);
        CHECK(runs.get_loop().live == 0);
    }
    CHECK(last_stopped > 30); // the states were there
}

TEST_CASE("abuse: a stop from another thread, at any moment") {
    for (int round = 0; round < 60; ++round) {
        runtime runs = make_runtime();
        busy_place place;
        std::stop_source stop;
        std::atomic<int> steps{0};
        std::thread stops([&] {
            while (steps.load() < round)
                std::this_thread::yield();
            if (round % 2 == 0)
                stop.request_stop();
            else
                runs.request_stop();
        });
        REQUIRE(runs.run([](busy_place& at, std::stop_token token, std::atomic<int>& step) -> task<> {
                        auto all = [](busy_place& in, std::atomic<int>& count) -> task<> {
                            task_scope scope;
                            for (int i = 0; i < 3; ++i) {
                                scope.spawn(in.produces());
                                scope.spawn(in.consumes());
                                scope.spawn(in.locks());
                            }
                            scope.spawn(in.nests(4));
                            for (int i = 0; i < 200; ++i) {
                                count.fetch_add(1);
                                co_await nowait::yield();
                            }
                            (void)co_await scope.join();
                        };
                        // Consumers go on until a stop: so does everything.
                        (void)co_await nowait::with_stop(all(at, step), std::move(token));
                    }(place, stop.get_token(), steps))
                    .has_value());
        stops.join();
        const int left = static_cast<int>(place.channel.size());
        CHECK(place.made == place.delivered + place.kept + left);
        CHECK(place.permits.available() == 2);
        CHECK_FALSE(place.mutex.held());
        CHECK(place.frames.born == place.frames.died);
    }
}

TEST_CASE("abuse: a stop passes a hundred thousand nested scopes, in constant stack") {
    constexpr int depth = 100'000;
    census frames;
    struct nested {
        static task<result<void>> at(int left, census& to, int& bottom) {
            const census::member here(to);
            if (left == 0) {
                const auto slept = co_await nowait::sleep_for(1h);
                bottom += slept.has_value() ? 0 : 1;
                co_return result<void>();
            }
            task_scope scope;
            scope.spawn(at(left - 1, to, bottom));
            auto ended = co_await scope.join();
            co_return ended;
        }
    };
    int bottom = 0;
    run([](census& to, int& reached) -> task<> {
        task_scope outer;
        outer.spawn(nested::at(depth, to, reached));
        while (to.born <= depth)
            co_await nowait::yield();
        co_await nowait::yield();
        outer.request_stop();
        auto ended = co_await outer.join();
        CHECK(ended.has_value());
    }(frames, bottom));
    CHECK(bottom == 1);
    CHECK(frames.born == depth + 1);
    CHECK(frames.died == frames.born);
}

TEST_CASE("abuse: a runtime dies with a hundred thousand nested scopes, and with a chain as deep") {
    constexpr int depth = 100'000;
    census frames;
    struct nested {
        static task<> scopes(int left, census& to) {
            const census::member here(to);
            if (left == 0) {
                (void)co_await nowait::sleep_for(1h);
                co_return;
            }
            task_scope scope;
            scope.spawn(scopes(left - 1, to));
            (void)co_await scope.join();
        }
        static task<> chain(int left, census& to) {
            const census::member here(to);
            if (left == 0)
                (void)co_await nowait::sleep_for(1h);
            else
                co_await chain(left - 1, to);
        }
    };
    {
        runtime runs = make_runtime();
        runs.spawn(nested::scopes(depth, frames)).detach();
        runs.spawn(nested::chain(depth, frames)).detach();
        while (frames.born < 2 * (depth + 1))
            let_wait(runs);
    }
    CHECK(frames.born == 2 * (depth + 1));
    CHECK(frames.died == frames.born);
}

TEST_CASE("abuse: time-outs around time-outs, ten thousand tasks deep, stopped at the outside") {
    struct nested {
        static task<int> at(int left) {
            if (left == 0) {
                const auto slept = co_await nowait::sleep_for(1h);
                co_return slept ? 0 : 1;
            }
            auto below = co_await nowait::with_timeout(at(left - 1), 1h);
            co_return below ? *below : -1;
        }
    };
    run([]() -> task<> {
        auto all = co_await nowait::with_timeout(nested::at(10'000), 1ms);
        CHECK(all.value() == 1);
    }());
}

TEST_CASE("abuse: a task destroys its own scope") {
    for (int others = 0; others < 3; ++others) {
        census frames;
        run([](census& to, int count) -> task<> {
            auto scope = std::make_unique<task_scope>();
            int stopped = 0;
            auto waits = [](census& all, int& ends) -> task<> {
                const census::member here(all);
                const auto slept = co_await nowait::sleep_for(1h);
                ends += slept.has_value() ? 0 : 1;
            };
            auto destroys = [](census& all, std::unique_ptr<task_scope>& its) -> task<> {
                const census::member here(all);
                co_await nowait::yield();
                its.reset();
                const auto slept = co_await nowait::sleep_for(1h); // goes on, and hears the stop
                CHECK(slept.error() == canceled);
            };
            for (int i = 0; i < count; ++i)
                scope->spawn(waits(to, stopped));
            scope->spawn(destroys(to, scope));
            co_await yields(10);
            CHECK(scope == nullptr);
            CHECK(stopped == count);
        }(frames, others));
        CHECK(frames.born == others + 1);
        CHECK(frames.died == frames.born);
    }
}

TEST_CASE("abuse: a task destroys the scope that somebody joins") {
    census frames;
    run([](census& to) -> task<> {
        auto scope = std::make_unique<task_scope>();
        auto destroys = [](census& all, std::unique_ptr<task_scope>& its) -> task<> {
            const census::member here(all);
            co_await nowait::yield();
            its.reset();
            co_await nowait::yield();
            throw std::runtime_error("heard by whoever joins");
        };
        scope->spawn(destroys(to, scope));
        std::string what;
        try {
            (void)co_await scope->join();
        } catch (const std::runtime_error& error) {
            what = error.what();
        }
        CHECK(what == "heard by whoever joins");
    }(frames));
    CHECK(frames.died == frames.born);
}

TEST_CASE("abuse: tasks of a scope that end on another runtime, while others end here") {
    nowait_test::running_runtime other;
    census frames;
    nowait_test::run_on_new([](nowait::remote_runtime there, census& to) -> task<> {
        std::atomic<int> away{0};
        auto moves = [](nowait::remote_runtime where, std::atomic<int>& count) -> task<> {
            const auto moved = co_await nowait::resume_on(where);
            if (moved)
                count.fetch_add(1);
        };
        auto fails_there = [](nowait::remote_runtime where) -> task<result<void>> {
            const auto moved = co_await nowait::resume_on(where);
            static_cast<void>(moved);
            co_return nowait::fail(std::errc::no_space_on_device);
        };
        auto stays = [](census& all) -> task<> {
            const census::member here(all);
            co_await nowait::yield();
        };
        for (int round = 0; round < 200; ++round) {
            task_scope scope;
            for (int i = 0; i < 10; ++i) {
                scope.spawn(moves(there, away));
                scope.spawn(stays(to));
            }
            auto ended = co_await scope.join();
            if (!ended)
                FAIL("a task that moved has failed");
            task_scope failing;
            failing.spawn(fails_there(there));
            failing.spawn(stays(to));
            auto failed = co_await failing.join();
            if (failed || failed.error() != std::errc::no_space_on_device)
                FAIL("what failed elsewhere was not heard");
        }
        CHECK(away.load() == 2000);
    }(other.remote(), frames));
    CHECK(frames.born == frames.died);
}

TEST_CASE("abuse: a scope that is left by an exception lets its tasks go, stopped") {
    census frames;
    int stopped = 0;
    run([](census& to, int& ends) -> task<> {
        auto waits = [](census& all, int& count) -> task<> {
            const census::member here(all);
            const auto slept = co_await nowait::sleep_for(1h);
            count += slept.has_value() ? 0 : 1;
        };
        try {
            task_scope scope;
            scope.spawn(waits(to, ends));
            co_await nowait::yield();
            throw std::runtime_error("before join");
        } catch (const std::runtime_error&) {
        }
    }(frames, stopped)); // run() waits for it
    CHECK(stopped == 1);
    CHECK(frames.died == frames.born);
}

TEST_CASE("abuse: descriptions and tasks that nobody starts leave nothing behind") {
    census frames;
    const auto never = [](census::member) -> task<int> { co_return 1; };
    {
        auto one = nowait::when_any(never(census::member(frames)), nowait::sleep_for(1h));
        auto two = nowait::when_all(never(census::member(frames)), never(census::member(frames)));
        auto three = nowait::with_timeout(nowait::when_any(std::move(one), std::move(two)), 1h);
        std::vector<task<int>> many;
        for (int i = 0; i < 5; ++i)
            many.push_back(never(census::member(frames)));
        auto four = nowait::when_any(std::move(many));
        std::vector<decltype(four)> nested;
        nested.push_back(std::move(four));
        auto five = nowait::when_all(std::move(nested));
        task_scope unused;
    }
    CHECK(frames.born > 8);
    CHECK(frames.died == frames.born);
}

namespace {

/// Everything that can be in flight, one of each kind.
struct in_flight {
    nowait::channel<int> empty = nowait::channel<int>::create(1).value();
    nowait::local_channel<int> full = nowait::local_channel<int>::create(0).value();
    nowait::semaphore permits{0};
    nowait::async_mutex mutex;
    nowait::event gate;
    std::stop_source stop;
    census frames;
    static constexpr int kinds = 7;

    task<> waits(int kind) {
        const census::member here(frames);
        switch (kind) {
        case 0: {
            auto first = co_await nowait::when_any(empty.receive(), nowait::sleep_for(1h), gate.wait());
            (void)first;
            break;
        }
        case 1: {
            int value = 1;
            auto sent = co_await nowait::with_timeout(full.send(value), 1h);
            (void)sent;
            break;
        }
        case 2: {
            auto held = co_await mutex.lock();
            auto permit = co_await permits.acquire(); // holds one, waits for the other
            break;
        }
        case 3: {
            task_scope scope;
            scope.spawn(waits(0));
            scope.spawn(waits(2));
            (void)co_await scope.join();
            break;
        }
        case 4: {
            nowait::pipe_pair pipe = nowait::make_pipe().value();
            std::array<std::byte, 8> buffer{};
            auto got = co_await nowait::with_stop(pipe.reader.read(buffer), stop.get_token());
            (void)got;
            break;
        }
        case 5: {
            auto values = [](in_flight& of) -> nowait::async_generator<int> {
                const census::member inner(of.frames);
                for (;;) {
                    const auto waited = co_await of.gate.wait();
                    if (!waited)
                        co_return;
                    co_yield 1;
                }
            }(*this);
            while (auto each = co_await values.next()) {
            }
            break;
        }
        default: {
            auto handle = nowait::spawn(waits(0));
            auto joined = co_await handle.join();
            (void)joined;
        }
        }
    }
};

} // namespace

TEST_CASE("abuse: shutdown with everything in flight, in every order") {
    std::array<int, in_flight::kinds> order{};
    std::iota(order.begin(), order.end(), 0);
    int permutation = 0;
    do {
        // Every permutation of five, with the other two taking turns at the front: 5040 in all would be minutes.
        if (++permutation % 21 != 0)
            continue;
        in_flight all;
        {
            std::optional<runtime> runs(make_runtime({.driver = nowait::driver_choice::poll}));
            task_scope outside(*runs);
            for (const int kind : order) {
                if (kind % 2 == 0)
                    runs->spawn(all.waits(kind)).detach();
                else
                    outside.spawn(all.waits(kind));
            }
            let_wait(*runs, 0ms);
            switch (permutation % 4) {
            case 0:
                CHECK(runs->shutdown(10s).complete());
                CHECK(all.frames.born == all.frames.died);
                break;
            case 1:
                runs->request_stop();
                REQUIRE(runs->run().has_value());
                CHECK(all.frames.born == all.frames.died);
                break;
            case 2:
                all.stop.request_stop(); // a note that is under way when the loop goes
                all.permits.release();   // somebody is chosen, and never runs
                all.gate.set();
                break;
            default:
                break;
            }
            if (permutation % 3 == 0)
                runs.reset(); // before the scope; otherwise after it
        }
        CHECK(all.frames.born >= in_flight::kinds);
        if (all.frames.born != all.frames.died)
            FAIL("frames left: " << all.frames.born - all.frames.died);
        CHECK_FALSE(all.mutex.held());
        CHECK_FALSE(all.permits.contended());
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("abuse: a million coroutines wait at once, and all are let go") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    constexpr int count = 100'000;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    constexpr int count = 100'000;
#else
    constexpr int count = 1'000'000;
#endif
#else
    constexpr int count = 1'000'000;
#endif
    long sum = 0;
    nowait_test::run_on_new([](long& to) -> task<> {
        auto channel = nowait::local_channel<int>::create(16).value();
        auto waits = [](nowait::local_channel<int>& from, long& all) -> task<> {
            auto got = co_await from.receive();
            all += got ? *got : 0;
        };
        task_scope scope;
        for (int i = 0; i < count; ++i)
            scope.spawn(waits(channel, to));
        co_await nowait::yield();
        for (int i = 0; i < count; ++i) {
            int one = 1;
            auto sent = co_await channel.send(one);
            if (!sent)
                FAIL("send");
        }
        auto ended = co_await scope.join();
        CHECK(ended.has_value());
    }(sum));
    CHECK(sum == count);
}
