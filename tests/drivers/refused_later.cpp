// A sandbox that is closed after the start: io_uring_enter is refused while operations wait.
#include "drivers_support.hpp"

#include <thread>

namespace drivers_tests {
namespace {

/// Whatever the environment asks for, these are about the default.
int by_default(int (*body)(runtime&)) {
    ::unsetenv("NOWAIT_DRIVER");
    auto made = runtime::create();
    CHILD_REQUIRE(made && made->driver() == "uring");
    return body(*made);
}

struct waits {
    nowait::pipe_pair data = nowait::make_pipe().value();
    nowait::pipe_pair ended = nowait::make_pipe().value();
    nowait::pipe_pair closed = nowait::make_pipe().value();
    nowait::pipe_pair stopped = nowait::make_pipe().value();
    nowait::pipe_pair full = nowait::make_pipe().value();
};

task<> write_and_note(const pipe_writer& to, std::string_view text, bool& done) {
    const auto n = co_await to.write(text);
    done = n.value_or(0) == text.size();
}

/// Everything that can wait waits, the door is shut, and then everything is brought to its end.
task<int> shut_the_door(waits& w, runtime& self, int error) {
    outcome data;
    outcome ended;
    outcome closed;
    int timed_out = 0;
    bool written = false;
    std::string filler(1 << 16, 'f');
    const auto filled = co_await w.full.writer.write(filler);
    CHILD_CO_REQUIRE(filled.value_or(0) == filler.size());
    auto a = nowait::spawn(read_into(w.data.reader, data));
    auto b = nowait::spawn(read_into(w.ended.reader, ended));
    auto c = nowait::spawn(read_into(w.closed.reader, closed));
    auto d = nowait::spawn([](const pipe_reader& from, int& code) -> task<> {
        std::array<char, 8> room{};
        const auto n = co_await nowait::with_timeout(from.read(room_in(room)), 20ms);
        code = error_of(n);
    }(w.stopped.reader, timed_out));
    auto e = nowait::spawn(write_and_note(w.full.writer, "more", written));
    co_await settle();
    const auto before = nowait::current_stats();
    CHILD_CO_REQUIRE(refuse(SYS_io_uring_enter, error));

    // Another thread wakes the loop while it sleeps, before and after it has changed its driver.
    nowait::remote_runtime remote = nowait::current_remote();
    int posted = 0;
    std::thread poster([&] {
        for (int i = 0; i < 50; ++i) {
            if (!remote.post([&posted] { ++posted; }))
                return;
            std::this_thread::yield();
        }
    });
    CHILD_CO_REQUIRE(co_await nowait::sleep_for(5ms));
    auto n = co_await w.data.writer.write("late");
    CHILD_CO_REQUIRE(n.value_or(0) == 4);
    (void)co_await a.join();
    CHILD_CO_REQUIRE(data.text == "late");
    (void)w.ended.writer.close();
    (void)co_await b.join();
    CHILD_CO_REQUIRE(ended.text.empty()); // the end, not an error
    (void)w.closed.reader.close();
    (void)co_await c.join();
    CHILD_CO_REQUIRE(closed.text == "error " + std::to_string(ECANCELED));
    // The old ring does not keep the end alive: but what was armed in it the kernel lets go of by a worker of its own, in its own time.
    do
        n = co_await w.closed.writer.write("nobody");
    while (n);
    CHILD_CO_REQUIRE(error_of(n) == EPIPE);
    (void)co_await d.join();
    CHILD_CO_REQUIRE(timed_out == ETIMEDOUT);
    std::vector<std::byte> room(1 << 16);
    n = co_await w.full.reader.read(room);
    CHILD_CO_REQUIRE(n.value_or(0) == room.size());
    (void)co_await e.join();
    CHILD_CO_REQUIRE(written);
    poster.join();
    while (posted < 50)
        co_await nowait::yield();
    // Everything afterwards is as ever, too.
    for (int i = 0; i < 100; ++i) {
        outcome one;
        auto waiting = nowait::spawn(read_into(w.data.reader, one));
        co_await nowait::yield();
        n = co_await w.data.writer.write("again");
        CHILD_CO_REQUIRE(n.value_or(0) == 5);
        (void)co_await waiting.join();
        CHILD_CO_REQUIRE(one.text == "again");
    }
    const auto after = nowait::current_stats();
    CHILD_CO_REQUIRE(before.driver_fallbacks == 0 && after.driver_fallbacks == 1);
    CHILD_CO_REQUIRE(after.submissions > before.submissions && after.completions > before.completions);
    CHILD_CO_REQUIRE(self.driver() == "poll");
    co_return 0;
}

} // namespace

TEST_CASE(
    "io_uring_enter refused while operations wait: epoll takes over, nothing is lost, the reason is told") {
    const int error = GENERATE(EPERM, ENOSYS, EACCES);
    CAPTURE(error);
    static int refused_with = 0;
    refused_with = error;
    expect_success(in_child([] {
        return by_default([](runtime& self) {
            waits w;
            const auto ended = self.run(shut_the_door(w, self, refused_with));
            CHILD_REQUIRE(ended && *ended == 0);
            const char* name = refused_with == EPERM ? "EPERM" : refused_with == ENOSYS ? "ENOSYS" : "EACCES";
            CHILD_REQUIRE(self.driver_reason() == std::string("because io_uring_enter: ") + name);
            return 0;
        });
    }));
}

namespace {

task<int> one_wait(nowait::pipe_pair& pipe) {
    outcome one;
    auto waiting = nowait::spawn(read_into(pipe.reader, one));
    (void)co_await nowait::sleep_for(1ms);
    const auto n = co_await pipe.writer.write("x");
    (void)co_await waiting.join();
    co_return n&& one.text == "x" ? 0 : 1;
}

} // namespace

TEST_CASE("refused between two runs, and before the first one") {
    expect_success(in_child([] {
        return by_default([](runtime& self) {
            nowait::pipe_pair pipe = nowait::make_pipe().value();
            CHILD_REQUIRE(self.run(one_wait(pipe)).value_or(1) == 0);
            CHILD_REQUIRE(refuse(SYS_io_uring_enter, EPERM));
            CHILD_REQUIRE(self.run(one_wait(pipe)).value_or(1) == 0);
            CHILD_REQUIRE(self.driver() == "poll");
            return 0;
        });
    }));
    expect_success(in_child([] {
        return by_default([](runtime& self) {
            // Everything about rings: the one that was made cannot be enabled, and no other can be made.
            CHILD_REQUIRE(refuse(SYS_io_uring_enter, EPERM) && refuse(SYS_io_uring_register, EPERM) &&
                          refuse(SYS_io_uring_setup, EPERM));
            nowait::pipe_pair pipe = nowait::make_pipe().value();
            CHILD_REQUIRE(self.run(one_wait(pipe)).value_or(1) == 0);
            CHILD_REQUIRE(self.driver() == "poll");
            // Which call it was that could not be made depends on the ring's flags.
            CHILD_REQUIRE(self.driver_reason().starts_with("because io_uring_") &&
                          self.driver_reason().ends_with(": EPERM"));
            CHILD_REQUIRE(self.stats().driver_fallbacks == 1);
            return 0;
        });
    }));
}

TEST_CASE("refused while the ring reads for us: what it had not begun goes on, a run that cannot ends with "
          "the error") {
    // The master of a pseudo-terminal cannot be opened a second time: the ring reads it.
    expect_success(in_child([] {
        return by_default([](runtime& self) {
            const int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
            CHILD_REQUIRE(master >= 0 && ::grantpt(master) == 0 && ::unlockpt(master) == 0);
            auto reader = pipe_reader::borrow(master);
            CHILD_REQUIRE(reader);
            const auto ran = self.run([](const pipe_reader& from) -> task<int> {
                outcome one;
                auto waiting = nowait::spawn(read_into(from, one));
                co_await settle();
                CHILD_CO_REQUIRE(refuse(SYS_io_uring_enter, EPERM));
                (void)co_await waiting.join();
                co_return 1; // never: the read is in the kernel's hands, which nobody can ask any more
            }(*reader));
            // Either way it ends and says so; nothing hangs and nothing spins.
            CHILD_REQUIRE(!ran && ran.error() == std::errc::operation_not_permitted);
            return 0;
        });
    }));
}

TEST_CASE("a child after fork of a runtime that has changed its driver touches nothing of its parent's") {
    expect_success(in_child([] {
        return by_default([](runtime& self) {
            nowait::pipe_pair pipe = nowait::make_pipe().value();
            CHILD_REQUIRE(refuse(SYS_io_uring_enter, EPERM));
            CHILD_REQUIRE(self.run(one_wait(pipe)).value_or(1) == 0);
            const pid_t child = ::fork();
            CHILD_REQUIRE(child >= 0);
            if (child == 0) {
                const bool told = error_of(self.run()) == EPERM;
                {
                    const runtime gone = std::move(self);
                }
                ::_exit(told ? 0 : 1);
            }
            int status = 0;
            CHILD_REQUIRE(::waitpid(child, &status, 0) == child && WIFEXITED(status) &&
                          WEXITSTATUS(status) == 0);
            CHILD_REQUIRE(self.run(one_wait(pipe)).value_or(1) == 0);
            return 0;
        });
    }));
}

} // namespace drivers_tests
