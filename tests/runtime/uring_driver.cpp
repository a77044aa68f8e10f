// The ring when it is small, flooded, interrupted, or on the wrong thread.
#include "runtime/uring_driver.hpp"

#include "catch.hpp"
#include "runs.hpp"

#include <nowait/pipe.hpp>
#include <nowait/sleep.hpp>
#include <nowait/timeout.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <ctime>
#include <deque>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

using nowait::driver_choice;
using nowait::runtime;
using nowait::runtime_options;
using nowait::task;
using nowait::detail::driver;
using nowait::detail::driver_target;
using nowait::detail::poll_source;
using nowait::detail::transfer;
using nowait_test::make_runtime;
using namespace std::chrono_literals;

namespace {

std::unique_ptr<driver> make_ring(unsigned entries, unsigned completions = 0) {
    std::unique_ptr<driver> made;
    REQUIRE(nowait::detail::make_uring_driver(nowait::detail::real_system(), {entries, completions}, made) ==
            0);
    REQUIRE(made->bind_to_thread() == 0);
    return made;
}

struct raw_pipe {
    raw_pipe() { REQUIRE(::pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0); }
    ~raw_pipe() {
        ::close(ends[0]);
        ::close(ends[1]);
    }
    raw_pipe(const raw_pipe&) = delete;
    raw_pipe& operator=(const raw_pipe&) = delete;
    int ends[2] = {-1, -1};
};

struct watched : poll_source {
    int events_seen = 0;
    int last_reports = 0;
    explicit watched(int number) {
        fd = number;
        events = POLLIN;
        on_event = [](driver_target& target, long result, bool more) noexcept {
            auto& self = static_cast<watched&>(target);
            self.events_seen += result >= 0;
            self.last_reports += !more;
            if (!more)
                self.armed = false;
        };
    }
};

runtime_options ring_of(unsigned entries, unsigned completions = 0) {
    runtime_options options;
    options.driver = driver_choice::uring;
    options.ring_entries = entries;
    options.completion_entries = completions;
    return options;
}

task<> reads_one(nowait::pipe_reader from, int& count) {
    std::array<std::byte, 8> buffer{};
    const auto got = co_await from.read(buffer);
    count += got.value_or(0) == 1;
}

/// `count` readers wait, then every pipe gets a byte at once.
void flood(const runtime_options& options, int count) {
    runtime runs = make_runtime(options);
    int completed = 0;
    REQUIRE(runs.run([](int many, int& seen) -> task<> {
                    std::vector<nowait::pipe_writer> writers;
                    std::vector<nowait::join_handle<void>> readers;
                    for (int i = 0; i < many; ++i) {
                        nowait::pipe_pair pipe = nowait::make_pipe().value();
                        readers.push_back(nowait::spawn(reads_one(std::move(pipe.reader), seen)));
                        writers.push_back(std::move(pipe.writer));
                    }
                    (void)co_await nowait::sleep_for(1ms); // all are armed by now
                    const auto armed = nowait::current_stats().of(nowait::operation_kind::read).armed;
                    CHECK(armed == static_cast<std::uint64_t>(many));
                    // By the system call: no turn of the loop in between, every completion stands in the kernel.
                    for (nowait::pipe_writer& writer : writers)
                        CHECK(::write(writer.native_handle(), "x", 1) == 1);
                    for (auto& reader : readers)
                        (void)co_await reader.join();
                }(count, completed))
                .has_value());
    CHECK(completed == count);
}

} // namespace

TEST_CASE("a submission queue of four entries serves a thousand waiters", "[ring]") {
    flood(ring_of(4), 1000);
}

TEST_CASE("five hundred completions at once go through a completion queue of eight", "[ring]") {
    flood(ring_of(8, 8), 500);
    flood(ring_of(1, 1), 100);
}

TEST_CASE("a thousand polls on a ring of four entries, by hand", "[ring]") {
    raw_pipe pipe;
    auto ring = make_ring(4);
    std::deque<watched> all;
    for (int i = 0; i < 1000; ++i) {
        all.emplace_back(pipe.ends[0]);
        ring->arm(all.back());
    }
    CHECK(ring->pending() == 1000);
    ring->collect();
    for (const watched& one : all)
        REQUIRE(one.events_seen == 0);
    REQUIRE(::write(pipe.ends[1], "x", 1) == 1);
    auto heard = [&] {
        std::size_t count = 0;
        for (const watched& one : all)
            count += one.events_seen > 0;
        return count;
    };
    while (heard() != all.size())
        ring->wait(driver::never);
    for (watched& one : all) {
        if (one.armed)
            ring->disarm(one);
    }
    while (ring->pending() != 0)
        ring->wait(driver::never);
    for (const watched& one : all)
        CHECK(one.last_reports == 1);
}

TEST_CASE("polls that are armed and removed before anything was submitted end once", "[ring]") {
    raw_pipe pipe;
    auto ring = make_ring(2);
    std::deque<watched> all;
    for (int i = 0; i < 50; ++i) {
        all.emplace_back(pipe.ends[0]);
        ring->arm(all.back());
        ring->disarm(all.back());
    }
    while (ring->pending() != 0)
        ring->wait(driver::never);
    for (const watched& one : all) {
        CHECK(one.last_reports == 1);
        CHECK(one.events_seen == 0);
    }
}

TEST_CASE("a transfer that is cancelled ends once, and its buffer is left alone afterwards", "[ring]") {
    struct read_work : transfer {
        std::unique_ptr<std::array<char, 16>> buffer = std::make_unique<std::array<char, 16>>();
        int ends = 0;
        long result = 1;
    };
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0); // blocking: the ring waits for it
    auto ring = make_ring(8);
    read_work work;
    work.fd = ends[0];
    work.data = work.buffer->data();
    work.size = work.buffer->size();
    work.on_event = [](driver_target& target, long result, bool) noexcept {
        auto& self = static_cast<read_work&>(target);
        ++self.ends;
        self.result = result;
    };
    ring->start(work);
    ring->collect();
    CHECK(work.ends == 0);
    ring->cancel(work);
    ring->cancel(work); // asked twice: one answer
    while (work.ends == 0)
        ring->wait(driver::never);
    CHECK(work.result == -ECANCELED);
    CHECK(ring->pending() == 0);
    work.buffer.reset(); // a late completion would write into freed memory
    REQUIRE(::write(ends[1], "abc", 3) == 3);
    ring->collect();
    char left[8];
    CHECK(::read(ends[0], left, sizeof left) == 3); // the cancelled read has swallowed nothing
    CHECK(work.ends == 1);
    ::close(ends[0]);
    ::close(ends[1]);
}

TEST_CASE("a wait with a deadline in the past delivers what is there", "[ring]") {
    raw_pipe pipe;
    auto ring = make_ring(8);
    watched one(pipe.ends[0]);
    REQUIRE(::write(pipe.ends[1], "x", 1) == 1);
    ring->arm(one);
    while (one.events_seen == 0)
        ring->wait(driver::time_point::min());
    CHECK(one.events_seen == 1);
    ring->disarm(one);
    while (ring->pending() != 0)
        ring->wait(driver::never);
}

TEST_CASE("a wake that comes before the wait is not lost", "[ring]") {
    auto ring = make_ring(8);
    ring->wake();
    ring->wait(driver::never);
    std::thread waker([&] { ring->wake(); });
    ring->wait(driver::never);
    waker.join();
    CHECK(ring->counters.wakes.get() >= 1);
}

namespace {

/// SIGALRM at 1 kHz without SA_RESTART, to this thread, for a scope.
class interrupting {
public:
    interrupting() {
        struct sigaction action{};
        action.sa_handler = [](int) { count = count + 1; };
        REQUIRE(::sigaction(SIGALRM, &action, &before_) == 0);
        sigevent event{};
        event.sigev_notify = SIGEV_SIGNAL;
        event.sigev_signo = SIGALRM;
        REQUIRE(::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0);
        const itimerspec every{{0, 1'000'000}, {0, 1'000'000}};
        REQUIRE(::timer_settime(timer_, 0, &every, nullptr) == 0);
    }
    ~interrupting() {
        ::timer_delete(timer_);
        ::sigaction(SIGALRM, &before_, nullptr);
    }
    interrupting(const interrupting&) = delete;
    interrupting& operator=(const interrupting&) = delete;
    static inline volatile sig_atomic_t count = 0;

private:
    timer_t timer_{};
    struct sigaction before_{};
};

} // namespace

TEST_CASE("a thousand signals a second disturb none of twenty thousand operations", "[ring]") {
    interrupting signals;
    runtime runs = make_runtime();
    struct tally {
        int reads = 0, writes = 0, sleeps = 0, errors = 0;
    } seen;
    REQUIRE(runs.run([](tally& to) -> task<> {
                    nowait::pipe_pair ping = nowait::make_pipe().value();
                    nowait::pipe_pair pong = nowait::make_pipe().value();
                    auto echo = nowait::spawn(
                        [](nowait::pipe_reader from, nowait::pipe_writer back, tally& t) -> task<> {
                            std::array<std::byte, 1> byte{};
                            for (;;) {
                                const auto got = co_await from.read(byte);
                                if (!got || *got == 0) {
                                    t.errors += !got;
                                    co_return;
                                }
                                ++t.reads;
                                const auto wrote = co_await back.write(byte);
                                t.errors += !wrote;
                                ++t.writes;
                            }
                        }(std::move(ping.reader), std::move(pong.writer), to));
                    std::array<std::byte, 1> byte{};
                    for (int i = 0; i < 5'000; ++i) {
                        const auto wrote = co_await ping.writer.write("x");
                        const auto got = co_await pong.reader.read(byte);
                        to.errors += !wrote || !got;
                        ++to.writes;
                        ++to.reads;
                        if (i % 50 == 0) {
                            const auto slept = co_await nowait::sleep_for(100us);
                            to.errors += !slept;
                            ++to.sleeps;
                        }
                    }
                    (void)ping.writer.close();
                    (void)co_await echo.join();
                }(seen))
                .has_value());
    CHECK(seen.errors == 0);
    CHECK(seen.reads == 10'000);
    CHECK(seen.writes == 10'000);
    CHECK(seen.sleeps == 100);
    CHECK(interrupting::count > 0);
}

TEST_CASE("no io-wq thread is started for pipes", "[ring]") {
    runtime runs = make_runtime(ring_of(64));
    int completed = 0;
    REQUIRE(runs.run([](int& seen) -> task<> {
                    std::vector<nowait::pipe_writer> writers;
                    std::vector<nowait::join_handle<void>> readers;
                    for (int i = 0; i < 50; ++i) {
                        nowait::pipe_pair pipe = nowait::make_pipe().value();
                        readers.push_back(nowait::spawn(reads_one(std::move(pipe.reader), seen)));
                        writers.push_back(std::move(pipe.writer));
                    }
                    (void)co_await nowait::sleep_for(1ms);
                    int workers = 0;
                    DIR* threads = ::opendir("/proc/self/task");
                    while (const dirent* entry = ::readdir(threads)) {
                        std::ifstream name(std::string("/proc/self/task/") + entry->d_name + "/comm");
                        std::string comm;
                        std::getline(name, comm);
                        workers += comm.rfind("iou-wrk", 0) == 0;
                    }
                    ::closedir(threads);
                    CHECK(workers == 0);
                    for (nowait::pipe_writer& writer : writers)
                        (void)co_await writer.write("x");
                    for (auto& reader : readers)
                        (void)co_await reader.join();
                }(completed))
                .has_value());
    CHECK(completed == 50);
}

TEST_CASE("an operation that one thread has started is not lost when that thread ends", "[ring]") {
    // The runtime stays with its thread: another one is told so at once, and what was in flight is closed with the runtime.
    auto runs = std::make_unique<runtime>(make_runtime(ring_of(8)));
    nowait::pipe_pair pipe = nowait::make_pipe().value();
    int completed = 0;
    auto handle = runs->spawn(reads_one(std::move(pipe.reader), completed));
    std::thread([&] { (void)runs->shutdown(0ns); }).join();
    const auto elsewhere = runs->run();
    CHECK(elsewhere.error() == std::errc::operation_not_permitted);
    runs.reset();
    CHECK(handle.done());
}

TEST_CASE("counters: a wait of the ring is one submission and one completion", "[ring]") {
    runtime runs = make_runtime(ring_of(64));
    REQUIRE(runs.run([]() -> task<> {
                    nowait::pipe_pair pipe = nowait::make_pipe().value();
                    int seen = 0;
                    auto reader = nowait::spawn(reads_one(std::move(pipe.reader), seen));
                    const auto before = nowait::current_stats();
                    (void)co_await nowait::sleep_for(1us);
                    (void)co_await nowait::sleep_for(1us);
                    const auto armed = nowait::current_stats();
                    CHECK(armed.submissions == before.submissions + 1);
                    CHECK(armed.of(nowait::operation_kind::read).nowait_misses == 1);
                    CHECK(armed.enters > before.enters);
                    (void)co_await pipe.writer.write("x");
                    (void)co_await reader.join();
                    CHECK(seen == 1);
                    CHECK(nowait::current_stats().completions >= armed.completions + 1);
                }())
                .has_value());
}
