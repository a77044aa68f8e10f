// What can neither be asked not to wait nor be opened again: read and written by the ring, or by a worker where there is none.
#include "child_process.hpp"
#include "pool_support.hpp"
#include "runs.hpp"

#include <nowait/pipe.hpp>
#include <nowait/stop.hpp>
#include <nowait/timeout.hpp>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <termios.h>

using namespace std::chrono_literals;
using nowait::blocking;
using nowait::driver_choice;
using nowait::operation_kind;
using nowait::pipe_reader;
using nowait::pipe_writer;
using nowait::result;
using nowait::runtime_options;
using nowait::task;
using nowait_test::blocking_pipe;
using nowait_test::gate;
using nowait_test::make_pool;
using nowait_test::make_runtime;

namespace {

/// The master of a pseudo-terminal blocks, knows no RWF_NOWAIT, and opened again is another one.
struct terminal {
    int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    int slave = -1;
    terminal() {
        REQUIRE(master >= 0);
        REQUIRE(::grantpt(master) == 0);
        REQUIRE(::unlockpt(master) == 0);
        slave = ::open(::ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
        REQUIRE(slave >= 0);
        termios mode{};
        REQUIRE(::tcgetattr(slave, &mode) == 0);
        ::cfmakeraw(&mode);
        REQUIRE(::tcsetattr(slave, TCSANOW, &mode) == 0);
    }
    ~terminal() {
        ::close(slave);
        ::close(master);
    }
    terminal(const terminal&) = delete;
    terminal& operator=(const terminal&) = delete;
};

runtime_options on(nowait::worker_pool& pool, driver_choice driver) {
    runtime_options options;
    options.driver = driver;
    options.pool = &pool;
    return options;
}

std::uint64_t punted(operation_kind kind) {
    return nowait::current_stats().of(kind).punted;
}

task<void> read_some(const pipe_reader& from, std::string& to) {
    std::array<std::byte, 64> room{};
    auto n = co_await from.read(room);
    if (n)
        to.assign(reinterpret_cast<const char*>(room.data()), *n);
    else
        to = n.error().message();
}

task<void> read_under(const pipe_reader& from, nowait::inplace_stop_source& stop, std::error_code& to) {
    std::array<std::byte, 64> room{};
    auto bounded = nowait::with_stop(from.read(room), stop.get_token());
    auto n = co_await std::move(bounded);
    to = n ? std::error_code() : n.error();
}

/// Lets others run until something has come true.
task<void> until(const auto& condition) {
    while (!condition())
        co_await nowait::yield();
}

pipe_reader borrow_without_rungs(int fd) {
    auto reader = pipe_reader::borrow(fd);
    REQUIRE(reader);
    reader->block()->how[0] = nowait::detail::rung::ring;
    return std::move(*reader);
}
pipe_writer borrow_writer_without_rungs(int fd) {
    auto writer = pipe_writer::borrow(fd);
    REQUIRE(writer);
    writer->block()->how[1] = nowait::detail::rung::ring;
    return std::move(*writer);
}

} // namespace

TEST_CASE("last rung: a terminal that cannot be opened again, on both drivers") {
    const auto driver = GENERATE(driver_choice::uring, driver_choice::poll);
    auto pool = make_pool();
    auto runtime = make_runtime(on(pool, driver));
    terminal t;
    std::string got;
    REQUIRE(runtime.run([](terminal& both, std::string& to, nowait::worker_pool& workers) -> task<void> {
        auto reader = pipe_reader::borrow(both.master).value();
        auto reading = nowait::spawn(read_some(reader, to));
        for (int i = 0; i < 10; ++i)
            co_await nowait::yield();
        // It is polled first: no thread waits for a person.
        CHECK(workers.stats().unbounded.submitted == 0);
        CHECK(::write(both.slave, "typed", 5) == 5);
        (void)co_await reading.join();
    }(t, got, pool)));
    REQUIRE(got == "typed");
    const bool in_pool = driver == driver_choice::poll;
    REQUIRE(runtime.stats().of(operation_kind::read).punted == (in_pool ? 1 : 0));
    REQUIRE(pool.stats().unbounded.taken == (in_pool ? 1 : 0));
    REQUIRE((::fcntl(t.master, F_GETFL) & O_NONBLOCK) == 0);
}

TEST_CASE("last rung: somebody else is faster, and nothing but a worker waits") {
    auto pool = make_pool({.unbounded_max = 1});
    auto runtime = make_runtime(on(pool, driver_choice::poll));
    blocking_pipe pipe;
    gate go_on;
    std::error_code ended;
    REQUIRE(runtime.run([](blocking_pipe& shared, gate& opens, nowait::worker_pool& workers,
                           std::error_code& to) -> task<void> {
        // The one worker is busy: what is given to the pool stands in its queue.
        auto hold = [&opens] { opens.pass(); };
        auto holding =
            nowait::spawn([](auto what) -> task<void> { (void)co_await blocking(what).unbounded(); }(hold));
        co_await until([&workers] { return workers.stats().unbounded.taken == 1; });
        auto reader = borrow_without_rungs(shared.ends[0]);
        nowait::inplace_stop_source stop;
        auto reading = nowait::spawn(read_under(reader, stop, to));
        co_await until([] { return nowait::current_stats().of(operation_kind::read).armed == 1; });
        shared.put('a');
        co_await until([] { return punted(operation_kind::read) == 1; });
        CHECK(nowait_test::read_byte(shared.ends[0]).value() == 'a'); // the stranger
        opens.open();
        co_await until([&workers] { return workers.stats().unbounded.taken == 2; });
        // The worker waits in read(2); the loop runs on, and can take it back.
        stop.request_stop();
        (void)co_await reading.join();
        (void)co_await holding.join();
        CHECK(workers.stats().unbounded.interrupts >= 1);
        // Nothing has been consumed by it.
        std::string next;
        shared.put('b');
        co_await read_some(reader, next);
        CHECK(next == "b");
    }(pipe, go_on, pool, ended)));
    REQUIRE(ended == std::errc::operation_canceled);
}

TEST_CASE("last rung: a stop takes a read back that no worker has begun") {
    auto pool = make_pool({.unbounded_max = 1});
    auto runtime = make_runtime(on(pool, driver_choice::poll));
    blocking_pipe pipe;
    gate go_on;
    std::error_code ended;
    REQUIRE(runtime.run([](blocking_pipe& shared, gate& opens, nowait::worker_pool& workers,
                           std::error_code& to) -> task<void> {
        auto hold = [&opens] { opens.pass(); };
        auto holding =
            nowait::spawn([](auto what) -> task<void> { (void)co_await blocking(what).unbounded(); }(hold));
        co_await until([&workers] { return workers.stats().unbounded.taken == 1; });
        auto reader = borrow_without_rungs(shared.ends[0]);
        nowait::inplace_stop_source stop;
        shared.put('a');
        auto reading = nowait::spawn(read_under(reader, stop, to));
        co_await until([] { return punted(operation_kind::read) == 1; });
        stop.request_stop();
        (void)co_await reading.join();
        CHECK(workers.stats().unbounded.cancelled == 1);
        CHECK(nowait_test::read_byte(shared.ends[0]).value() == 'a');
        opens.open();
        (void)co_await holding.join();
    }(pipe, go_on, pool, ended)));
    REQUIRE(ended == std::errc::operation_canceled);
}

TEST_CASE("last rung: a large write to a full pipe keeps a worker waiting and not the loop") {
    const auto driver = GENERATE(driver_choice::uring, driver_choice::poll);
    auto pool = make_pool();
    auto runtime = make_runtime(on(pool, driver));
    blocking_pipe pipe;
    constexpr std::size_t size = 1 << 20;
    std::size_t written = 0;
    std::size_t read = 0;
    REQUIRE(runtime.run([](blocking_pipe& shared, std::size_t& out, std::size_t& in) -> task<void> {
        auto writer = borrow_writer_without_rungs(shared.ends[1]);
        auto reader = pipe_reader::borrow(shared.ends[0]).value();
        const std::string all(size, 'w');
        auto writing =
            nowait::spawn([](pipe_writer& to, const std::string& what, std::size_t& count) -> task<void> {
                while (count < what.size()) {
                    auto n = co_await to.write(std::string_view(what).substr(count));
                    if (!n)
                        break;
                    count += *n;
                }
            }(writer, all, out));
        std::array<std::byte, 4096> room{};
        while (in < size) { // on the same loop: would it block, nobody would read
            auto n = co_await reader.read(room);
            if (!n || *n == 0)
                break;
            in += *n;
        }
        (void)co_await writing.join();
    }(pipe, written, read)));
    REQUIRE(written == size);
    REQUIRE(read == size);
    REQUIRE((runtime.stats().of(operation_kind::write).punted != 0) == (driver == driver_choice::poll));
}

TEST_CASE("last rung: a runtime destroyed over a read that a worker waits in takes it back") {
    auto pool = make_pool({.unbounded_max = 1});
    blocking_pipe pipe;
    {
        gate go_on;
        auto runtime = make_runtime(on(pool, driver_choice::poll));
        bool there = false;
        (void)runtime.spawn(
            [](blocking_pipe& shared, gate& opens, nowait::worker_pool& workers, bool& done) -> task<void> {
                auto hold = [&opens] { opens.pass(); };
                auto holding = nowait::spawn(
                    [](auto what) -> task<void> { (void)co_await blocking(what).unbounded(); }(hold));
                co_await until([&workers] { return workers.stats().unbounded.taken == 1; });
                auto reader = borrow_without_rungs(shared.ends[0]);
                std::string nothing;
                auto reading = nowait::spawn(read_some(reader, nothing));
                shared.put('a');
                co_await until([] { return punted(operation_kind::read) == 1; });
                (void)nowait_test::read_byte(shared.ends[0]);
                opens.open();
                co_await until([&workers] { return workers.stats().unbounded.taken == 2; });
                done = true;
                (void)co_await reading.join();
            }(pipe, go_on, pool, there));
        nowait::detail::loop& loop = runtime.get_loop();
        REQUIRE(loop.enter() == 0);
        while (!there)
            loop.run_until_idle(nowait::detail::clock::time_point::min()); // one pass
        loop.leave();
    }
    REQUIRE(pool.shutdown(1h).complete()); // the worker is free
    REQUIRE(pool.stats().unbounded.interrupts >= 1);
}

TEST_CASE("last rung: without the signal a read that may wait is refused, clearly") {
    const int taken = SIGRTMIN + 8;
    struct sigaction theirs{};
    struct sigaction before{};
    theirs.sa_handler = SIG_IGN;
    REQUIRE(::sigaction(taken, &theirs, &before) == 0);
    auto pool = make_pool({.signal = taken});
    auto runtime = make_runtime(on(pool, driver_choice::poll));
    terminal t;
    std::string got;
    REQUIRE(::write(t.slave, "x", 1) == 1);
    REQUIRE(runtime.run([](terminal& both, std::string& to) -> task<void> {
        auto reader = pipe_reader::borrow(both.master).value();
        co_await read_some(reader, to);
    }(t, got)));
    REQUIRE(::sigaction(taken, &before, nullptr) == 0);
    REQUIRE(got == std::make_error_code(std::errc::device_or_resource_busy).message());
}

TEST_CASE("last rung: a file whose system knows no RWF_NOWAIT is read by a bounded worker",
          "[without_nowait]") {
    if (::secure_getenv("NOWAIT_FEATURES") == nullptr) {
        const auto end = nowait_test::run_again({"[without_nowait]"}, {{"NOWAIT_FEATURES", "-nowait"}});
        REQUIRE(end.exit_code == 0);
        return;
    }
    auto pool = make_pool();
    auto runtime = make_runtime(on(pool, driver_choice::poll));
    const int fd = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0);
    std::string got;
    REQUIRE(runtime.run([](int from, std::string& to) -> task<void> {
        auto reader = pipe_reader::borrow(from).value();
        co_await read_some(reader, to);
    }(fd, got)));
    ::close(fd);
    REQUIRE(got.substr(1, 3) == "ELF");
    REQUIRE(pool.stats().bounded.taken == 1);
    REQUIRE(pool.stats().unbounded.submitted == 0);
}

namespace {

task<void> write_some(const pipe_writer& to, std::string_view what, nowait::inplace_stop_token token,
                      result<std::size_t>& got) {
    auto bounded = nowait::with_stop(to.write(what), token);
    got = co_await std::move(bounded);
}

void fill(const blocking_pipe& pipe) {
    const std::string filler(1 << 16, 'f');
    REQUIRE(::write(pipe.ends[1], filler.data(), filler.size()) == 1 << 16);
}

// `how`: 0 the reader goes while the write waits, 1 it has gone before, 2 it reads, 3 the write is stopped.
task<void> a_write_that_waits(int how, nowait::worker_pool& pool) {
    blocking_pipe pipe;
    auto writer = borrow_writer_without_rungs(pipe.ends[1]);
    if (how == 1)
        ::close(std::exchange(pipe.ends[0], -1));
    else
        fill(pipe);
    const auto before = pool.stats().unbounded;
    nowait::inplace_stop_source stop;
    result<std::size_t> got = nowait::fail(std::errc::operation_in_progress);
    auto writing = nowait::spawn(write_some(writer, "more", stop.get_token(), got));
    co_await until([&] { return pool.stats().unbounded.taken > before.taken; });
    std::array<char, 1 << 16> room{};
    if (how == 0)
        ::close(std::exchange(pipe.ends[0], -1));
    else if (how == 2)
        REQUIRE(::read(pipe.ends[0], room.data(), room.size()) == 1 << 16);
    else if (how == 3)
        stop.request_stop();
    (void)co_await writing.join();
    if (how == 2)
        REQUIRE(got.value_or(0) == 4);
    else
        REQUIRE(got.error() == (how == 3 ? std::errc::operation_canceled : std::errc::broken_pipe));
}

} // namespace

TEST_CASE("last rung: where a ring could raise SIGPIPE outside our own calls a worker writes instead",
          "[without_nosignal]") {
    if (::secure_getenv("NOWAIT_FEATURES") == nullptr) {
        const auto end =
            nowait_test::run_again({"[without_nosignal]"}, {{"NOWAIT_FEATURES", "-nosignal,-defer_taskrun"}});
        INFO(end.errors);
        REQUIRE(end.signal == 0);
        REQUIRE(end.exit_code == 0);
        return;
    }
    std::signal(SIGPIPE, SIG_DFL);
    auto pool = make_pool();
    const int how = GENERATE(0, 1, 2, 3);
    CAPTURE(how);
    {
        auto runtime = make_runtime(on(pool, driver_choice::uring));
        for (int i = 0; i < 20; ++i)
            REQUIRE(runtime.run(a_write_that_waits(how, pool)));
        REQUIRE(runtime.stats().of(operation_kind::write).punted == 20);
    }
    sigset_t set;
    REQUIRE((::sigpending(&set) == 0 && sigismember(&set, SIGPIPE) == 0));
    REQUIRE((::sigprocmask(SIG_BLOCK, nullptr, &set) == 0 && sigismember(&set, SIGPIPE) == 0));
    // A runtime destroyed over such a write takes it back.
    blocking_pipe pipe;
    fill(pipe);
    auto writer = borrow_writer_without_rungs(pipe.ends[1]);
    result<std::size_t> got = nowait::fail(std::errc::operation_in_progress);
    const auto before = pool.stats().unbounded.taken;
    {
        auto runtime = make_runtime(on(pool, driver_choice::uring));
        (void)runtime.spawn(write_some(writer, "more", {}, got));
        nowait::detail::loop& loop = runtime.get_loop();
        REQUIRE(loop.enter() == 0);
        while (pool.stats().unbounded.taken == before)
            loop.run_until_idle(nowait::detail::clock::time_point::min()); // one pass
        loop.leave();
    }
    REQUIRE(pool.shutdown(1h).complete());
}
