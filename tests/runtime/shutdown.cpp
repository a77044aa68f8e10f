// The end of a runtime: in order by shutdown, or at once by the destructor, with anything in flight.
#include "runs.hpp"

#include <nowait/pipe.hpp>
#include <nowait/sleep.hpp>
#include <nowait/timeout.hpp>
#include <nowait/when_all.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

using nowait::runtime;
using nowait::task;
using nowait_test::make_runtime;
using namespace std::chrono_literals;

namespace {

int open_descriptors() {
    DIR* folder = ::opendir("/proc/self/fd");
    REQUIRE(folder != nullptr);
    int count = 0;
    while (::readdir(folder) != nullptr)
        ++count;
    ::closedir(folder);
    return count;
}

/// A task that does not listen: it goes on whatever it is told, until `released`.
task<> stubborn(const bool& released) {
    while (!released)
        co_await nowait::yield();
}

struct tallies {
    int started = 0;
    int canceled = 0;
    int destroyed = 0;
};

struct on_destruction {
    explicit on_destruction(int& to) : counter(&to) {}
    on_destruction(on_destruction&& other) noexcept : counter(std::exchange(other.counter, nullptr)) {}
    on_destruction& operator=(on_destruction&&) = delete;
    ~on_destruction() {
        if (counter != nullptr)
            ++*counter;
    }
    int* counter;
};

task<> reads_for_ever(nowait::pipe_reader from, tallies& to) {
    on_destruction guard(to.destroyed);
    auto buffer = std::make_unique<std::array<std::byte, 64>>();
    ++to.started;
    const auto got = co_await from.read(*buffer);
    if (!got && got.error() == std::errc::operation_canceled)
        ++to.canceled;
}

task<> writes_until_full(nowait::pipe_writer to, tallies& count) {
    on_destruction guard(count.destroyed);
    std::vector<std::byte> block(4096);
    ++count.started;
    for (;;) {
        const auto wrote = co_await to.write(block);
        if (!wrote) {
            if (wrote.error() == std::errc::operation_canceled)
                ++count.canceled;
            co_return;
        }
    }
}

task<> sleeps_for_ever(tallies& to) {
    on_destruction guard(to.destroyed);
    ++to.started;
    const auto slept = co_await nowait::sleep_for(1h);
    if (!slept && slept.error() == std::errc::operation_canceled)
        ++to.canceled;
}

/// Everything that can wait, one of each, and what keeps it waiting.
struct everything {
    explicit everything(runtime& on) {
        pipes.reserve(64);
        for (int i = 0; i < 20; ++i) {
            nowait::pipe_pair pipe = nowait::make_pipe().value();
            on.spawn(reads_for_ever(std::move(pipe.reader), seen)).detach();
            writers.push_back(std::move(pipe.writer));
            nowait::pipe_pair full = nowait::make_pipe().value();
            on.spawn(writes_until_full(std::move(full.writer), seen)).detach();
            readers.push_back(std::move(full.reader));
        }
        for (int i = 0; i < 20; ++i) {
            int ends[2];
            REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
            on.spawn(reads_for_ever(nowait::pipe_reader::adopt(ends[0]).value(), seen)).detach();
            writers.push_back(nowait::pipe_writer::adopt(ends[1]).value());
            on.spawn(sleeps_for_ever(seen)).detach();
        }
    }
    static constexpr int tasks = 80;
    tallies seen;
    std::vector<nowait::pipe_writer> writers;
    std::vector<nowait::pipe_reader> readers;
    std::vector<nowait::pipe_pair> pipes;
};

/// Runs the loop until `condition()` without stopping anything.
template <class Condition>
void run_until(runtime& runs, Condition condition) {
    REQUIRE(runs.get_loop().enter() == 0);
    while (!condition())
        runs.get_loop().run_until_idle(std::chrono::steady_clock::now() + 1ms);
    runs.get_loop().leave();
}

task<> steps(int count) {
    for (int i = 0; i < count; ++i)
        co_await nowait::yield();
}

} // namespace

TEST_CASE("shutdown of a runtime that never ran reports nothing left") {
    runtime runs = make_runtime();
    const auto report = runs.shutdown(1s);
    CHECK(report.complete());
    CHECK(report.unfinished == 0);
}

TEST_CASE("shutdown ends everything that waits, and says so") {
    runtime runs = make_runtime();
    everything waiting(runs);
    // Run until they wait: shutdown with no time left asks for nothing but a pass, so use a root that yields.
    auto root = runs.spawn(steps(200));
    const auto report = runs.shutdown(10s);
    CHECK(report.complete());
    CHECK(root.done());
    CHECK(waiting.seen.started == everything::tasks);
    CHECK(waiting.seen.canceled == everything::tasks);
    CHECK(waiting.seen.destroyed == everything::tasks);
}

TEST_CASE("shutdown of tasks that wait in the kernel cancels them there") {
    runtime runs = make_runtime();
    everything waiting(runs);
    // All are armed when the root ends; only then comes the stop.
    REQUIRE(runs.run([](runtime& of, everything& all) -> task<> {
                    while (all.seen.started < everything::tasks)
                        co_await nowait::yield();
                    co_await steps(3000); // the predictor's attempts and the arming have their turns
                    of.request_stop();
                }(runs, waiting))
                .has_value());
    CHECK(waiting.seen.canceled == everything::tasks);
    CHECK(waiting.seen.destroyed == everything::tasks);
    CHECK(runs.shutdown(1s).complete());
}

TEST_CASE("shutdown reports a task that does not listen, and a later one finds it ended") {
    runtime runs = make_runtime();
    bool released = false;
    auto handle = runs.spawn(stubborn(released));
    const auto first = runs.shutdown(2ms);
    CHECK(first.unfinished == 1);
    CHECK_FALSE(first.complete());
    CHECK_FALSE(handle.done());
    released = true;
    const auto second = runs.shutdown(10s);
    CHECK(second.complete());
    CHECK(handle.done());
}

TEST_CASE("shutdown with no time or less returns at once") {
    runtime runs = make_runtime();
    bool released = false;
    auto handle = runs.spawn(stubborn(released));
    CHECK(runs.shutdown(0ns).unfinished == 1);
    CHECK(runs.shutdown(-1s).unfinished == 1);
    CHECK(runs.shutdown(std::chrono::nanoseconds::min()).unfinished == 1);
    released = true;
    CHECK(runs.shutdown(std::chrono::nanoseconds::max()).complete());
}

TEST_CASE("after shutdown every await of a library operation is cancelled at once") {
    runtime runs = make_runtime();
    nowait::pipe_pair pipe = nowait::make_pipe().value();
    nowait::pipe_pair other = nowait::make_pipe().value();
    auto running = runs.spawn(steps(2));
    REQUIRE(runs.shutdown(1s).complete());
    const auto before = runs.stats();
    const auto canceled = runs.run([](nowait::pipe_pair& a, nowait::pipe_pair& b) -> task<std::vector<bool>> {
        std::vector<bool> all;
        auto add = [&all](const auto& r) { all.push_back(!r && r.error() == std::errc::operation_canceled); };
        std::array<std::byte, 8> buffer{};
        const auto wrote = co_await a.writer.write("data");
        add(wrote);
        const auto got = co_await a.reader.read(buffer);
        add(got);
        const auto readable = co_await a.reader.readable();
        add(readable);
        const auto spliced = co_await nowait::splice(a.reader, b.writer, 10);
        add(spliced);
        const auto slept = co_await nowait::sleep_for(1h);
        add(slept);
        const auto timed = co_await nowait::with_timeout(a.reader.read(buffer), 1h);
        add(timed);
        const auto stopped = co_await nowait::with_stop(a.reader.read(buffer), std::stop_token());
        add(stopped);
        auto child = nowait::spawn(steps(1));
        const auto joined = co_await child.join();
        add(joined);
        co_return all;
    }(pipe, other));
    REQUIRE(canceled.has_value());
    for (std::size_t i = 0; i < canceled->size(); ++i) {
        CAPTURE(i);
        CHECK((*canceled)[i]);
    }
    CHECK(pipe.reader.available().value() == 0); // nothing was written
    const auto after = runs.stats();
    CHECK(after.submissions == before.submissions);
}

TEST_CASE("the destructor ends whatever is in flight and leaks nothing") {
    const int before = open_descriptors();
    {
        auto runs = std::make_unique<runtime>(make_runtime());
        everything waiting(*runs);
        bool released = false;
        auto handle = runs->spawn(stubborn(released));
        CHECK(runs->shutdown(0ns).unfinished > 0); // one pass: everything is started, some are cancelled
        runs.reset();
        CHECK(waiting.seen.destroyed == waiting.seen.started);
        CHECK(handle.done());
    }
    CHECK(open_descriptors() == before);
}

TEST_CASE("the destructor destroys hundreds of waiting reads and timers, frames and all") {
    const int before = open_descriptors();
    tallies seen;
    {
        std::vector<nowait::pipe_writer> writers;
        std::vector<nowait::join_handle<void>> handles;
        auto runs = std::make_unique<runtime>(make_runtime());
        for (int i = 0; i < 200; ++i) {
            nowait::pipe_pair pipe = nowait::make_pipe().value();
            handles.push_back(runs->spawn(reads_for_ever(std::move(pipe.reader), seen)));
            handles.push_back(runs->spawn(sleeps_for_ever(seen)));
            writers.push_back(std::move(pipe.writer));
        }
        // No stop has been asked for: they all wait when the loop is left, at its next deadline.
        run_until(*runs, [&] { return seen.started == 400; });
        CHECK(seen.destroyed == 0);
        runs.reset();
        CHECK(seen.destroyed == 400);
        CHECK(seen.canceled == 0); // no coroutine was resumed
        for (auto& handle : handles)
            CHECK(handle.done()); // gone with the runtime
    }
    CHECK(open_descriptors() == before);
}

TEST_CASE("the destructor takes composed operations apart from the leaves") {
    tallies seen;
    nowait::pipe_pair pipe = nowait::make_pipe().value();
    std::stop_source never_stopped;
    {
        runtime runs = make_runtime();
        auto borrows = [](tallies& to, const int& parents_local) -> task<> {
            on_destruction guard(to.destroyed);
            ++to.started;
            (void)co_await nowait::sleep_for(1h);
            (void)parents_local;
        };
        auto parent = [](auto make_child, tallies& to, int depth) -> task<> {
            on_destruction guard(to.destroyed);
            ++to.started;
            const int local = depth;
            task<> one = make_child(to, local);
            task<> two = make_child(to, local);
            (void)co_await nowait::when_all(std::move(one), std::move(two));
        };
        runs.spawn(parent(borrows, seen, 1)).detach();
        runs.spawn([](nowait::pipe_reader& from, tallies& to, std::stop_token token) -> task<> {
                on_destruction guard(to.destroyed);
                ++to.started;
                std::array<std::byte, 4> buffer{};
                auto inner = nowait::with_timeout(from.read(buffer), 1h);
                (void)co_await nowait::with_stop(std::move(inner), token);
            }(pipe.reader, seen, never_stopped.get_token()))
            .detach();
        auto joined = runs.spawn(sleeps_for_ever(seen));
        runs.spawn([](nowait::join_handle<void> of, tallies& to) -> task<> {
                on_destruction guard(to.destroyed);
                ++to.started;
                (void)co_await of.join();
            }(std::move(joined), seen))
            .detach();
        run_until(runs, [&] { return seen.started == 6; });
        CHECK(seen.destroyed == 0);
    }
    CHECK(seen.destroyed == 3 + 1 + 2);
}

TEST_CASE("functions posted before the end are run, not lost") {
    int ran = 0;
    {
        runtime runs = make_runtime();
        for (int i = 0; i < 1000; ++i)
            REQUIRE(runs.post([&ran] { ++ran; }));
        REQUIRE(runs.run(steps(1)).has_value());
    }
    CHECK(ran == 1000);
}

TEST_CASE("functions posted to a runtime that never runs are run by its destructor") {
    int ran = 0;
    int destroyed = 0;
    {
        runtime runs = make_runtime();
        REQUIRE(runs.post([&ran] { ++ran; }));
        REQUIRE(runs.post([&destroyed, &ran] {
            nowait::spawn([](int& to) -> task<> {
                on_destruction guard(to);
                co_await nowait::yield();
            }(destroyed))
                .detach();
            ++ran;
        }));
    }
    CHECK(ran == 2);
    CHECK(destroyed == 0); // it was never resumed, so it never made its local
}

TEST_CASE("joining a task that has gone with its runtime gives operation_canceled") {
    nowait::join_handle<int> handle;
    {
        runtime runs = make_runtime();
        handle = runs.spawn([]() -> task<int> {
            (void)co_await nowait::sleep_for(1h);
            co_return 1;
        }());
    }
    nowait_test::run_on_new([](nowait::join_handle<int>& of) -> task<> {
        const auto joined = co_await of.join();
        CHECK(joined.error() == std::errc::operation_canceled);
    }(handle));
}

TEST_CASE("a joiner on another thread is told when the task's runtime goes away") {
    auto theirs = std::make_unique<runtime>(make_runtime());
    auto handle = theirs->spawn([]() -> task<int> {
        (void)co_await nowait::sleep_for(1h);
        co_return 1;
    }());
    std::promise<void> waiting;
    std::error_code seen;
    std::thread joiner([&] {
        nowait_test::run_on_new(
            [](nowait::join_handle<int>& of, std::promise<void>& tell, std::error_code& to) -> task<> {
                auto both = [](nowait::join_handle<int>& h) -> task<std::error_code> {
                    const auto joined = co_await h.join();
                    co_return joined ? std::error_code() : joined.error();
                };
                auto child = nowait::spawn(both(of));
                co_await nowait::yield();
                co_await nowait::yield();
                tell.set_value(); // the join waits by now
                const auto code = co_await child.join();
                to = code.value();
            }(handle, waiting, seen));
    });
    waiting.get_future().wait();
    theirs.reset();
    joiner.join();
    CHECK(seen == std::errc::operation_canceled);
}

TEST_CASE("handles outlive their runtime") {
    nowait::pipe_pair pipe = nowait::make_pipe().value();
    nowait::join_handle<void> handle;
    {
        runtime runs = make_runtime();
        handle = runs.spawn([](nowait::pipe_reader& from) -> task<> {
            std::array<std::byte, 4> buffer{};
            (void)co_await from.read(buffer);
        }(pipe.reader));
        (void)runs.shutdown(0ns);
    }
    // The pipe goes on with another runtime.
    nowait_test::run_on_new([](nowait::pipe_pair& p) -> task<> {
        std::array<std::byte, 4> buffer{};
        const auto wrote = co_await p.writer.write("ab");
        CHECK(wrote.value() == 2);
        const auto got = co_await p.reader.read(buffer);
        CHECK(got.value() == 2);
    }(pipe));
}
