// The process is a guest's house: what is refused, what is put back, what children and other handlers see.
#include "signals_support.hpp"

#include <nowait/fifo.hpp>
#include <nowait/pipe.hpp>
#include <nowait/posix_mqueue.hpp>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>

using namespace signals_test;

namespace {

std::atomic<int> handled{0};
void count_handled(int) {
    ++handled;
}

/// The lines SigBlk, SigIgn and SigCgt of a process that was started by `start`, which gets the numbers of its output.
template <class Start>
std::string signal_state_of_child(Start start) {
    int out[2];
    REQUIRE(::pipe2(out, O_CLOEXEC) == 0);
    const pid_t child = start(out[1]);
    ::close(out[1]);
    std::string text;
    char block[512];
    for (ssize_t n = 0; (n = ::read(out[0], block, sizeof block)) > 0;)
        text.append(block, static_cast<std::size_t>(n));
    ::close(out[0]);
    CHECK(wait_for(child) == 0);
    return text;
}

constexpr const char* program[] = {"grep", "-E", "^Sig(Blk|Ign|Cgt):", "/proc/self/status", nullptr};

pid_t by_fork(int out) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::dup2(out, 1);
        ::execvp(program[0], const_cast<char* const*>(program));
        ::_exit(127);
    }
    return child;
}

pid_t by_posix_spawn(int out) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    pid_t child = -1;
    CHECK(::posix_spawnp(&child, program[0], &actions, nullptr, const_cast<char* const*>(program), environ) ==
          0);
    posix_spawn_file_actions_destroy(&actions);
    return child;
}

} // namespace

TEST_CASE("what cannot be awaited is an error value, and nothing is taken") {
    for (const int number : {0, -1, 65, 1'000, SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, 32, 33}) {
        CAPTURE(number);
        CHECK(signals::create({number}).error() == std::errc::invalid_argument);
        CHECK(signals::create({SIGUSR1, number}).error() == std::errc::invalid_argument);
        CHECK(is_default(SIGUSR1));
    }
    CHECK(signals::create({}).error() == std::errc::invalid_argument);
}

TEST_CASE("the disposition comes back when the last object goes") {
    {
        signals one = take({SIGUSR1, SIGUSR1, SIGHUP});
        CHECK_FALSE(is_default(SIGUSR1));
        CHECK_FALSE(is_default(SIGHUP));
        {
            signals two = take({SIGUSR1});
        }
        CHECK_FALSE(is_default(SIGUSR1));
        signals three = take({SIGUSR1});
        CHECK(run_on_new([](signals& s) -> task<bool> {
            auto closed = s.close();
            co_return closed.has_value();
        }(one)));
        CHECK(is_default(SIGHUP));
        CHECK_FALSE(is_default(SIGUSR1));
    }
    CHECK(is_default(SIGUSR1));
}

TEST_CASE("a signal that somebody handles stays his") {
    const disposition_scope theirs(SIGUSR2, &count_handled);
    handled = 0;
    const auto refused = signals::create({SIGUSR1, SIGUSR2});
    CHECK(refused.error() == std::errc::device_or_resource_busy);
    CHECK(is_default(SIGUSR1)); // what had been taken is given back
    CHECK(disposition_of(SIGUSR2).sa_handler == &count_handled);
    ::raise(SIGUSR2);
    CHECK(handled == 1);
}

TEST_CASE("a handler that is set while we hold the signal is never replaced") {
    signals usr = take({SIGUSR1});
    {
        const disposition_scope theirs(SIGUSR1, &count_handled);
        handled = 0;
        CHECK(signals::create({SIGUSR1}).error() == std::errc::device_or_resource_busy);
        ::raise(SIGUSR1);
        CHECK(handled == 1);
        signals gone = std::move(usr); // the last object goes
    }
    // Whoever set it has put back what it had found: ours, which nobody holds. The next object takes it over.
    signals again = take({SIGUSR1});
    ::raise(SIGUSR1);
    CHECK(run_on_new(receive(again))->number == SIGUSR1);
    {
        const signals last = std::move(again);
    }
    CHECK(is_default(SIGUSR1));
}

TEST_CASE("a handler that was set meanwhile stays when the last object goes") {
    struct sigaction with{};
    with.sa_handler = &count_handled;
    {
        signals usr = take({SIGUSR1});
        ::sigaction(SIGUSR1, &with, nullptr);
    }
    CHECK(disposition_of(SIGUSR1).sa_handler == &count_handled);
    ::signal(SIGUSR1, SIG_DFL);
}

TEST_CASE("an ignored signal stays ignored unless it is asked for expressly") {
    const disposition_scope ignored(SIGHUP, SIG_IGN);
    CHECK(signals::create({SIGHUP}).error() == std::errc::operation_not_permitted);
    {
        signals hup = take({SIGHUP}, {.even_if_ignored = true});
        ::raise(SIGHUP);
        CHECK(run_on_new(receive(hup))->number == SIGHUP);
        // The child's own exec would make it the default, which nohup was meant to prevent.
        const int status = wait_for([] {
            const pid_t child = ::fork();
            if (child == 0)
                ::_exit(disposition_of(SIGHUP).sa_handler == SIG_IGN ? 0 : 1);
            return child;
        }());
        CHECK(status == 0);
    }
    CHECK(disposition_of(SIGHUP).sa_handler == SIG_IGN);
}

TEST_CASE("a child after fork has the default action, and the parent receives nothing of it") {
    signals usr = take({SIGUSR1});
    const auto end = in_child([] {
        if (!is_default(SIGUSR1))
            return 1;
        ::raise(SIGUSR1);
        return 2;
    });
    CHECK(end.signal == SIGUSR1);
    const auto none = run_on_new([](signals& from) -> task<std::error_code> {
        const auto got = co_await nowait::with_timeout(from.next(), 0ms);
        co_return got ? std::error_code() : got.error();
    }(usr));
    CHECK(none == std::errc::timed_out);
    CHECK_FALSE(is_default(SIGUSR1));
}

TEST_CASE("a child may take signals of its own, and its copies of the parent's are dead") {
    signals usr = take({SIGUSR1});
    runtime runs = make_runtime();
    ::raise(SIGUSR1);
    REQUIRE(runs.run(receive(usr)).value()->number == SIGUSR1);
    const auto end = in_child([&usr] {
        signals own = take({SIGUSR1});
        runtime here = make_runtime();
        ::raise(SIGUSR1);
        if (here.run(receive(own)).value()->number != SIGUSR1)
            return 1;
        const auto dead = here.run(receive(usr)).value();
        if (dead || dead.error() != std::errc::operation_not_permitted)
            return 2;
        {
            const signals copy = std::move(usr);
        }
        if (is_default(SIGUSR1))
            return 3; // it has taken the child's own away
        {
            const signals last = std::move(own);
        }
        return is_default(SIGUSR1) ? 0 : 4;
    });
    CHECK(end.exit_code == 0);
    ::raise(SIGUSR1);
    CHECK(runs.run(receive(usr)).value()->number == SIGUSR1);
}

TEST_CASE("children start with the mask and the dispositions that the process had") {
    const std::string before = signal_state_of_child(&by_fork);
    const std::string spawned_before =
        signal_state_of_child(&by_posix_spawn); // the C library ignores two of its own there
    REQUIRE(before.find("SigCgt") != std::string::npos);
    signals held = take({SIGUSR1, SIGUSR2, SIGHUP, SIGCHLD, SIGRTMIN + 1});
    CHECK(signal_state_of_child(&by_fork) == before);
    CHECK(signal_state_of_child(&by_posix_spawn) == spawned_before);
    // Also one that a task starts.
    const bool same = run_on_new([](signals& s, const std::string& expected) -> task<bool> {
        (void)co_await nowait::with_timeout(s.next(), 1ms);
        co_return signal_state_of_child(&by_fork) == expected;
    }(held, before));
    CHECK(same);
}

TEST_CASE("many threads fork while signals come, and no child dies of our handler nor keeps it") {
    signals usr = take({SIGUSR1});
    std::atomic<bool> over{false};
    std::thread sends([&over] {
        while (!over) {
            ::kill(::getpid(), SIGUSR1);
            std::this_thread::yield();
        }
    });
    std::array<int, 2> bad{};
    std::vector<std::thread> threads;
    for (int& failures : bad) {
        threads.emplace_back([&failures] {
            for (int i = 0; i < 50; ++i) {
                const pid_t child = ::fork();
                if (child == 0)
                    ::_exit(is_default(SIGUSR1) ? 0 : 1);
                if (wait_for(child) != 0)
                    ++failures;
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    over = true;
    sends.join();
    CHECK(bad[0] == 0);
    CHECK(bad[1] == 0);
}

TEST_CASE("the handler leaves errno and blocking calls alone") {
    signals usr = take({SIGUSR1});
    errno = 123;
    ::raise(SIGUSR1);
    CHECK(errno == 123);
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    std::atomic<bool> reads{false};
    ssize_t got = -2;
    std::thread blocked([&] {
        char byte = 0;
        reads = true;
        got = ::read(ends[0], &byte, 1);
    });
    while (!reads)
        std::this_thread::yield();
    for (int i = 0; i < 100; ++i)
        pthread_kill(blocked.native_handle(), SIGUSR1);
    CHECK(::write(ends[1], "x", 1) == 1);
    blocked.join();
    CHECK(got == 1);
    ::close(ends[0]);
    ::close(ends[1]);
}

TEST_CASE("interrupt and terminate: the first asks, the second acts by default") {
    for (const int number : {SIGINT, SIGTERM}) {
        const auto end = in_child([number] {
            ::signal(number, SIG_DFL); // Catch's handler is not the child's
            runtime runs = make_runtime();
            std::atomic<bool> waits{false};
            std::thread user([&waits, number] {
                while (!waits)
                    std::this_thread::yield();
                ::kill(::getpid(), number);
            });
            nowait::inplace_stop_source stop;
            auto work = runs.spawn([](nowait::inplace_stop_source& by) -> task<bool> {
                const auto slept = co_await nowait::with_stop(nowait::sleep_for(1h), by.get_token());
                co_return !slept; // asked to stop
            }(stop));
            const auto asked = runs.run(
                [](int which, std::atomic<bool>& ready, nowait::inplace_stop_source& by) -> task<bool> {
                    auto quit = signals::create({which});
                    if (!quit)
                        co_return false;
                    ready = true;
                    const auto got = co_await quit->next();
                    by.request_stop();
                    co_return got && got->number == which;
                }(number, waits, stop));
            user.join();
            if (!asked || !*asked || !work.done())
                return 1;
            ::raise(number); // nobody holds it any more
            return 2;
        });
        CHECK(end.signal == number);
    }
}

TEST_CASE("children are reaped on SIGCHLD") {
    signals chld = take({SIGCHLD});
    const int reaped = run_on_new([](signals& from) -> task<int> {
        constexpr int count = 10;
        std::vector<pid_t> children;
        for (int i = 0; i < count; ++i) {
            const pid_t child = ::fork();
            if (child == 0)
                ::_exit(i);
            children.push_back(child);
        }
        int sum = 0;
        while (sum < count) {
            const auto got = co_await nowait::with_timeout(from.next(), 20s);
            if (!got)
                break;
            // Signals merge: each says "at least one".
            for (pid_t& child : children) {
                if (child != 0 && ::waitpid(child, nullptr, WNOHANG) == child) {
                    child = 0;
                    ++sum;
                }
            }
        }
        co_return sum;
    }(chld));
    CHECK(reaped == 10);
}

TEST_CASE("the application's SIGCHLD handler is never replaced, and waits go on to work") {
    auto ends_of_children = []() -> task<int> {
        int seen = 0;
        for (int i = 0; i < 5; ++i) {
            auto pipe = nowait::make_pipe().value();
            const pid_t child = ::fork();
            while (child == 0)
                ::pause();
            (void)pipe.writer.close();
            auto process = nowait::pipe_reader::adopt(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
            if (!process)
                co_return -1;
            ::kill(child, SIGKILL); // its copy of the write end goes with it
            const auto ended = co_await process->readable();
            std::array<std::byte, 1> byte{};
            const auto got = co_await pipe.reader.read(byte);
            seen += ended && got && *got == 0 ? 1 : 0;
            (void)::waitpid(child, nullptr, 0); // with SIG_IGN there is nothing left to wait for
        }
        co_return seen;
    };
    SECTION("installed before the library starts") {
        const disposition_scope theirs(SIGCHLD, &count_handled, SA_RESTART);
        handled = 0;
        CHECK(run_on_new(ends_of_children()) == 5);
        CHECK(signals::create({SIGCHLD}).error() == std::errc::device_or_resource_busy);
        CHECK(handled >= 1);
        CHECK(disposition_of(SIGCHLD).sa_handler == &count_handled);
    }
    SECTION("installed after the library has started") {
        runtime runs = make_runtime();
        CHECK(runs.run(ends_of_children()).value() == 5);
        const disposition_scope theirs(SIGCHLD, &count_handled, SA_RESTART);
        handled = 0;
        CHECK(runs.run(ends_of_children()).value() == 5);
        CHECK(handled >= 1);
        CHECK(disposition_of(SIGCHLD).sa_handler == &count_handled);
    }
    SECTION("ignored") {
        const disposition_scope ignored(SIGCHLD, SIG_IGN);
        CHECK(run_on_new(ends_of_children()) == 5);
        CHECK(signals::create({SIGCHLD}).error() == std::errc::operation_not_permitted);
        CHECK(disposition_of(SIGCHLD).sa_handler == SIG_IGN);
    }
}

TEST_CASE("nothing fails with EINTR while a profiler ticks") {
    const disposition_scope profiler(SIGPROF, &count_handled); // without SA_RESTART
    const std::string path = "/tmp/nowait-signals-" + std::to_string(::getpid());
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    const itimerval ticks{{0, 1'000}, {0, 1'000}};
    const itimerval none{};
    handled = 0;
    ::setitimer(ITIMER_PROF, &ticks, nullptr);
    int failures = 0;
    for (int round = 0; round < 100'000 && handled < 50; ++round) {
        auto runs = runtime::create();
        auto held = signals::create({SIGUSR1});
        if (!runs || !held) {
            ++failures;
            continue;
        }
        const auto ran = runs->run([](const std::string& fifo) -> task<int> {
            int bad = 0;
            for (int i = 0; i < 20; ++i) {
                auto joined = nowait::spawn([]() -> task<int> {
                    const auto slept = co_await nowait::sleep_for(10us);
                    co_return slept ? 0 : 1;
                }());
                auto pipe = nowait::make_pipe();
                if (!pipe) {
                    ++bad;
                    continue;
                }
                std::array<std::byte, 4> bytes{};
                const auto wrote = co_await pipe->writer.write("abcd");
                const auto got = co_await pipe->reader.read(bytes);
                bad += wrote && got ? 0 : 1;
                auto queue = nowait::posix_mqueue::open("/" + fifo.substr(fifo.rfind('/') + 1),
                                                        {.how = nowait::mqueue_open::replace});
                bad += queue ? 0 : 1;
                auto reader = nowait::open_reader(fifo);
                bad += reader ? 0 : 1;
                const auto ended = co_await joined.join();
                bad += ended.value_or(1);
                bad += pipe->writer.close() && pipe->reader.close() ? 0 : 1;
            }
            co_return bad;
        }(path));
        failures += ran.value_or(1);
    }
    ::setitimer(ITIMER_PROF, &none, nullptr);
    ::unlink(path.c_str());
    CHECK(nowait::posix_mqueue::unlink("/" + path.substr(path.rfind('/') + 1)).has_value());
    CHECK(handled >= 50);
    CHECK(failures == 0);
}
