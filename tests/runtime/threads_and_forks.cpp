// Whose runtime it is: of one thread, of one process.
#include "child_process.hpp"
#include "runs.hpp"

#include <nowait/pipe.hpp>
#include <nowait/sleep.hpp>
#include <nowait/timeout.hpp>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

using nowait::runtime;
using nowait::task;
using nowait_test::make_runtime;
using nowait_test::run_on_new;
using namespace std::chrono_literals;

namespace {

task<int> seven() {
    co_await nowait::yield();
    co_return 7;
}

/// A byte comes through a pipe that has to be waited for.
task<int> waits_for_a_byte(nowait::pipe_pair& pipe) {
    auto writer = nowait::spawn([](nowait::pipe_writer& to) -> task<> {
        co_await nowait::yield();
        co_await nowait::yield();
        (void)co_await to.write("z");
    }(pipe.writer));
    std::array<std::byte, 1> byte{};
    const auto got = co_await pipe.reader.read(byte);
    (void)co_await writer.join();
    co_return got ? static_cast<int>(byte[0]) : -1;
}

int wait_for(pid_t child) {
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

} // namespace

TEST_CASE("several runtimes run on several threads") {
    std::vector<std::thread> threads;
    std::array<int, 4> sums{};
    for (std::size_t t = 0; t < sums.size(); ++t) {
        threads.emplace_back([&sums, t] {
            auto runs = runtime::create();
            if (!runs)
                return;
            nowait::pipe_pair pipe = nowait::make_pipe().value();
            const auto sum = runs->run([](nowait::pipe_pair& p) -> task<int> {
                int total = 0;
                std::array<std::byte, 1> byte{};
                for (int i = 0; i < 2'000; ++i) {
                    const auto wrote = co_await p.writer.write("x");
                    const auto got = co_await p.reader.read(byte);
                    total += wrote && got ? 1 : 0;
                }
                co_return total;
            }(pipe));
            sums[t] = sum.value_or(-1);
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    for (int sum : sums)
        CHECK(sum == 2'000);
}

TEST_CASE("two runtimes take turns on one thread") {
    runtime one = make_runtime();
    runtime two = make_runtime();
    for (int i = 0; i < 10; ++i) {
        CHECK(one.run(seven()).value() == 7);
        CHECK(two.run(seven()).value() == 7);
    }
}

TEST_CASE("a runtime may be made on one thread and run on another, and stays there") {
    runtime runs = make_runtime();
    int first = 0;
    std::thread([&] { first = runs.run(seven()).value_or(-1); }).join();
    CHECK(first == 7);
    const auto here = runs.run(seven());
    CHECK(here.error() == std::errc::operation_not_permitted);
    CHECK(runs.shutdown(0ns).unfinished == 1); // the root that could not run
}

TEST_CASE("a runtime cannot be run from inside itself") {
    runtime runs = make_runtime();
    const auto inner = runs.run([](runtime& of) -> task<std::error_code> {
        const auto nested = of.run();
        co_return nested ? std::error_code() : nested.error();
    }(runs));
    CHECK(inner.value() == std::errc::operation_not_permitted);
}

TEST_CASE("a pipe end belongs to the runtime of its first operation") {
    nowait::pipe_pair pipe = nowait::make_pipe().value();
    runtime first = make_runtime();
    runtime second = make_runtime();
    auto writes = [](nowait::pipe_writer& to) -> task<nowait::result<std::size_t>> {
        co_return co_await to.write("a");
    };
    CHECK(first.run(writes(pipe.writer)).value().value() == 1);
    CHECK(second.run(writes(pipe.writer)).value().error() == std::errc::operation_not_permitted);
    CHECK(first.run(writes(pipe.writer)).value().value() == 1);
    // close() is for the owner's thread only
    std::error_code foreign;
    std::thread([&] {
        const auto closed = pipe.writer.close();
        if (!closed)
            foreign = closed.error();
    }).join();
    CHECK(foreign == std::errc::operation_not_permitted);
    CHECK(pipe.writer.is_open());
}

TEST_CASE("an end that is destroyed on a foreign thread is closed by its runtime") {
    runtime runs = make_runtime();
    auto pipe = std::make_unique<nowait::pipe_pair>(nowait::make_pipe().value());
    REQUIRE(runs.run([](nowait::pipe_pair& p) -> task<> {
                    const auto wrote = co_await p.writer.write("a");
                    CHECK(wrote.has_value());
                }(*pipe))
                .has_value());
    nowait::pipe_writer away = std::move(pipe->writer);
    const int number = away.native_handle();
    std::thread([w = std::move(away)]() mutable { nowait::pipe_writer last = std::move(w); }).join();
    REQUIRE(runs.run(seven()).has_value());
    CHECK(::fcntl(number, F_GETFD) == -1);
    CHECK(errno == EBADF);
}

TEST_CASE("a runtime made in main, with ends and tasks, runs on the thread that runs it first") {
    // The thread that submits is the thread that runs: what main spawned before has submitted nothing.
    runtime runs = make_runtime();
    nowait::pipe_pair pipe = nowait::make_pipe().value();
    auto handle = runs.spawn(waits_for_a_byte(pipe));
    bool ok = false;
    std::thread([&] { ok = runs.run().has_value(); }).join();
    CHECK(ok);
    CHECK(handle.done());
}

TEST_CASE("a child after fork gets an error, and its parent notices nothing") {
    runtime runs = make_runtime();
    nowait::pipe_pair pipe = nowait::make_pipe().value();
    REQUIRE(runs.run(waits_for_a_byte(pipe)).value() == 'z'); // bound, with a poll that stays armed
    const auto end = nowait_test::in_child([&] {
        const auto ran = runs.run(seven());
        if (ran || ran.error() != std::errc::operation_not_permitted)
            return 1;
        if (runs.run().has_value())
            return 2;
        (void)runs.shutdown(1s);
        return 0;
    });
    CHECK(end.exit_code == 0);
    for (int i = 0; i < 100; ++i)
        REQUIRE(runs.run(waits_for_a_byte(pipe)).value() == 'z');
}

TEST_CASE("fork inside a task: the child's run ends with an error, the parent goes on") {
    nowait::pipe_pair pipe = nowait::make_pipe().value();
    nowait::pipe_pair quiet = nowait::make_pipe().value();
    auto runs = std::make_unique<runtime>(make_runtime());
    const pid_t parent = ::getpid();
    pid_t child = 0;
    auto body = [](nowait::pipe_pair& p, nowait::pipe_pair& q, pid_t& forked) -> task<int> {
        auto waiting = nowait::spawn([](nowait::pipe_reader& from) -> task<int> {
            std::array<std::byte, 1> byte{};
            const auto got = co_await nowait::with_timeout(from.read(byte), 10s);
            co_return got ? static_cast<int>(*got) : -1;
        }(q.reader));
        (void)co_await waits_for_a_byte(p); // the other read is armed by now
        forked = ::fork();
        if (forked == 0) {
            // Goes on as if nothing were: the loop must not let the child near the ring.
            (void)co_await nowait::sleep_for(1ms);
            co_return 99;
        }
        const auto wrote = co_await q.writer.write("y");
        const auto joined = co_await waiting.join();
        co_return wrote ? joined.value() : -2;
    };
    const auto ran = runs->run(body(pipe, quiet, child));
    if (::getpid() != parent) {
        // The child returns from the function and destroys everything.
        const bool refused = !ran && ran.error() == std::errc::state_not_recoverable;
        runs.reset();
        pipe = {};
        quiet = {};
        ::_exit(refused ? 0 : 1);
    }
    CHECK(ran.value() == 1);
    CHECK(wait_for(child) == 0);
    CHECK(runs->run(waits_for_a_byte(pipe)).value() == 'z');
}

TEST_CASE("what is ready when a task forks runs in the parent only") {
    int shared[2];
    REQUIRE(::pipe(shared) == 0);
    runtime runs = make_runtime();
    const pid_t parent = ::getpid();
    pid_t child = -1;
    runs.spawn([](pid_t& forked) -> task<> {
            forked = ::fork();
            co_return;
        }(child))
        .detach();
    for (int i = 0; i < 5; ++i) {
        runs.spawn([](int to) -> task<> {
                CHECK(::write(to, "x", 1) == 1);
                co_return;
            }(shared[1]))
            .detach();
    }
    const auto ran = runs.run();
    if (::getpid() != parent)
        ::_exit(ran ? 1 : 0);
    CHECK(ran.has_value());
    CHECK(wait_for(child) == 0);
    char marks[16];
    CHECK(::read(shared[0], marks, sizeof marks) == 5);
    ::close(shared[0]);
    ::close(shared[1]);
}

TEST_CASE("a child may make a runtime of its own") {
    runtime runs = make_runtime();
    REQUIRE(runs.run(seven()).has_value());
    const auto end = nowait_test::in_child([] {
        auto own = runtime::create();
        if (!own)
            return 1;
        nowait::pipe_pair pipe = nowait::make_pipe().value();
        return own->run(waits_for_a_byte(pipe)).value_or(-1) == 'z' ? 0 : 2;
    });
    CHECK(end.exit_code == 0);
}

TEST_CASE("a process that became a daemon by forking twice is told so") {
    runtime runs = make_runtime();
    const auto end = nowait_test::in_child([&] {
        const pid_t second = ::fork();
        if (second == 0) {
            const auto ran = runs.run(seven());
            ::_exit(!ran && ran.error() == std::errc::operation_not_permitted ? 0 : 1);
        }
        return wait_for(second);
    });
    CHECK(end.exit_code == 0);
}

TEST_CASE("fork then exec beside a running loop is safe, and the child inherits nothing") {
    int checked = 0;
    run_on_new([](int& count) -> task<> {
        nowait::pipe_pair pipe = nowait::make_pipe().value();
        for (int i = 0; i < 20; ++i) {
            const pid_t child = ::fork();
            if (child == 0) {
                // Lists what it has open: beyond 0, 1, 2 and the listing itself nothing of ours may be there.
                ::execl("/bin/sh", "sh", "-c", "[ ! -e /proc/self/fd/$0 ]",
                        std::to_string(pipe.reader.native_handle()).c_str(), static_cast<char*>(nullptr));
                ::_exit(127);
            }
            const int byte = co_await waits_for_a_byte(pipe);
            CHECK(byte == 'z');
            CHECK(wait_for(child) == 0);
            ++count;
        }
    }(checked));
    CHECK(checked == 20);
}
