// Every descriptor that a person may have on standard input, output and error.
#include "standard_support.hpp"

#include <sched.h>

namespace standard_tests {
namespace {

/// Copies standard input to the other two, until the end; says what went wrong by its code.
task<int> echo() {
    auto in = nowait::standard_input();
    auto out = nowait::standard_output();
    auto err = nowait::standard_error();
    if (!in || !out || !err)
        co_return 10;
    std::array<char, 64> room{};
    for (;;) {
        const auto n = co_await in->read(room_in(room));
        if (!n)
            co_return 20 + n.error().value();
        if (*n == 0)
            co_return 0;
        const std::string_view text(room.data(), *n);
        const auto a = co_await nowait::write_all(*out, text);
        if (a.error)
            co_return 11;
        const auto b = co_await nowait::write_all(*err, text);
        if (b.error)
            co_return 12;
    }
}

/// A terminal and a socket have no end as long as our side is open.
bool ends_when_closed(kind k) {
    return k != kind::terminal && k != kind::nonblocking_terminal && k != kind::terminal_master;
}

} // namespace

TEST_CASE("whatever stands on the three numbers: read and written, waited for, flags "
          "untouched under SIGKILL") {
    const auto driver = any_driver();
    const kind k = any_kind();
    CAPTURE(name_of(k));
    scratch dir;
    ends in = open_pair(k, true, dir);
    ends out = open_pair(k, false, dir);
    ends err = open_pair(kind::pipe, false, dir);
    const int flags[3] = {status_flags(in.far.get()), status_flags(out.far.get()),
                          status_flags(err.far.get())};
    const auto unchanged = [&] {
        return status_flags(in.far.get()) == flags[0] && status_flags(out.far.get()) == flags[1] &&
               status_flags(err.far.get()) == flags[2];
    };
    const pid_t child =
        start({in.far.get(), out.far.get(), err.far.get()}, [&] { return run_root(driver, echo); });
    until_asleep(child); // it has found nothing, and waits without spinning
    CHECK(unchanged());
    put(in.near.get(), "first");
    CHECK(take(out.near.get(), 5) == "first");
    CHECK(take(err.near.get(), 5) == "first");
    CHECK(unchanged());
    until_asleep(child);
    put(in.near.get(), "second"); // after a wait that has had its event
    CHECK(take(out.near.get(), 6) == "second");
    CHECK(take(err.near.get(), 6) == "second");
    until_asleep(child);
    ::kill(child, SIGKILL); // while it waits
    CHECK(wait_for(child) == 1000 + SIGKILL);
    CHECK(unchanged());
    // Nothing was taken that nobody got: whoever reads it next, reads all of it, and waits if the flags say so.
    put(in.near.get(), "left for the next");
    pollfd look{in.far.get(), POLLIN, 0};
    CHECK(::poll(&look, 1, -1) == 1);
    CHECK(take(in.far.get(), 17) == "left for the next");
}

TEST_CASE("a program that reads one line and ends leaves a stream that cat can read") {
    const auto driver = any_driver();
    const kind k = GENERATE(kind::pipe, kind::fifo, kind::terminal, kind::socket);
    CAPTURE(name_of(k));
    scratch dir;
    ends in = open_pair(k, true, dir);
    ends out = open_pair(kind::pipe, false, dir);
    const int before = status_flags(in.far.get());
    const pid_t child = start({in.far.get(), out.far.get(), -1}, [&] {
        const int code = run_root(driver, []() -> task<int> {
            auto stream = nowait::standard_input();
            std::array<char, 5> room{};
            const auto n = co_await stream->read(room_in(room));
            co_return n.value_or(0) == 5 ? 0 : 1;
        });
        if (code != 0)
            return code;
        ::execlp("head", "head", "-n", "1", static_cast<char*>(nullptr));
        return 127;
    });
    until_asleep(child);
    put(in.near.get(), "line\n");
    until_asleep(child); // by now perhaps in the other program's read, which must wait as if nothing had been
    put(in.near.get(), "for the other program\n");
    CHECK(take(out.near.get(), 22) == "for the other program\n");
    CHECK(wait_for(child) == 0);
    CHECK(status_flags(in.far.get()) == before);
}

TEST_CASE("one terminal on all three numbers, as a shell gives it") {
    const auto driver = any_driver();
    scratch dir;
    ends screen = open_pair(kind::terminal, true, dir);
    const int all = screen.far.get();
    const int before = status_flags(all);
    const pid_t child = start({all, all, all}, [&] { return run_root(driver, echo); });
    for (int i = 0; i < 3; ++i) {
        until_asleep(child);
        put(screen.near.get(), "typed");
        CHECK(take(screen.near.get(), 10) == "typedtyped");
        CHECK(status_flags(all) == before);
    }
    ::kill(child, SIGKILL);
    CHECK(wait_for(child) == 1000 + SIGKILL);
    CHECK(status_flags(all) == before);
    termios settings{};
    CHECK(::tcgetattr(all, &settings) == 0);
}

TEST_CASE("the end of standard input is told, and a peer that has gone is EPIPE, without a signal") {
    const auto driver = any_driver();
    const kind k = any_kind();
    CAPTURE(name_of(k));
    scratch dir;
    ends in = open_pair(k, true, dir);
    ends out = open_pair(k, false, dir);
    if (ends_when_closed(k)) {
        const pid_t child =
            start({in.far.get(), out.far.get(), out.far.get()}, [&] { return run_root(driver, echo); });
        put(in.near.get(), "x");
        CHECK(take(out.near.get(), 2) == "xx");
        until_asleep(child);
        in.near.reset();
        CHECK(wait_for(child) == 0);
        const int gone = out.far.get();
        out.near.reset();
        const pid_t writer = start({-1, gone, -1}, [&] {
            std::signal(SIGPIPE, SIG_DFL);
            return run_root(driver, []() -> task<int> {
                auto stream = nowait::standard_output();
                const auto n = co_await stream->write("nobody");
                co_return error_of(n) == EPIPE ? 0 : 1;
            });
        });
        CHECK(wait_for(writer) == 0);
    } else if (k != kind::terminal_master) {
        // Whoever reads a terminal whose line has gone is told that, too: the end, or EIO.
        const pid_t child =
            start({in.far.get(), out.far.get(), out.far.get()}, [&] { return run_root(driver, echo); });
        until_asleep(child);
        in.near.reset();
        const int code = wait_for(child);
        CHECK((code == 0 || code == 20 + EIO));
    }
}

namespace {

/// What a read of standard input gives: bytes, or 100 + the error. The runtime does other work afterwards.
task<int> read_once() {
    int outcome = 0;
    if (auto in = nowait::standard_input(); !in) {
        outcome = 100 + in.error().value();
    } else {
        std::array<char, 64> room{};
        const auto n = co_await in->read(room_in(room));
        outcome = n ? static_cast<int>(*n) : 100 + n.error().value();
    }
    nowait::pipe_pair pipe = nowait::make_pipe().value();
    auto reader = nowait::spawn([](const pipe_reader& from) -> task<bool> {
        std::array<char, 4> room{};
        const auto n = co_await from.read(room_in(room));
        co_return n.value_or(0) == 1;
    }(pipe.reader));
    (void)co_await nowait::sleep_for(100us);
    (void)co_await pipe.writer.write("x");
    const auto works = co_await reader.join();
    co_return works.value_or(false) ? outcome : 250;
}

/// 0, or 100 + the error.
task<int> write_once() {
    auto out = nowait::standard_output();
    if (!out)
        co_return 100 + out.error().value();
    const auto n = co_await nowait::write_all(*out, std::string_view("text"));
    co_return n.error ? 100 + n.error.value() : 0;
}

} // namespace

TEST_CASE("standard input that nobody can poll: each gives its own result, and the runtime works on") {
    const auto driver = any_driver();
    scratch dir;
    const std::string path = dir.name("file");
    {
        const unique_fd made(::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        put(made.get(), "seven b");
    }
    struct input {
        const char* path;
        int flags;
        int expected;
    };
    for (const input one :
         {input{path.c_str(), O_RDONLY, 7}, input{"/dev/null", O_RDONLY, 0}, input{"/dev/zero", O_RDONLY, 64},
          input{"/", O_RDONLY | O_DIRECTORY, 100 + EISDIR}, input{"/dev/null", O_WRONLY, 100 + EBADF}}) {
        CAPTURE(one.path, one.flags);
        const unique_fd fd(::open(one.path, one.flags | O_CLOEXEC));
        REQUIRE(fd.get() >= 0);
        const int before = status_flags(fd.get());
        CHECK(wait_for(start({fd.get(), -1, -1}, [&] { return run_root(driver, read_once); })) ==
              one.expected);
        CHECK(status_flags(fd.get()) == before);
    }
    CHECK(wait_for(start({closed_stream, -1, -1}, [&] { return run_root(driver, read_once); })) ==
          100 + EBADF);
}

TEST_CASE("a file on standard input is read to its end, cached or not, and on from where it stands") {
    const auto driver = any_driver();
    scratch dir;
    const std::string path = dir.name("file");
    std::string text(300'000, '\0');
    for (std::size_t i = 0; i < text.size(); ++i)
        text[i] = static_cast<char>('a' + i % 23);
    {
        const unique_fd made(::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        put(made.get(), text);
        REQUIRE(::fsync(made.get()) == 0);
    }
    for (const bool cached : {true, false}) {
        const unique_fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        ends out = open_pair(kind::pipe, false, dir);
        ends err = open_pair(kind::socket, false, dir);
        if (!cached)
            REQUIRE(::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED) == 0);
        const unique_fd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
        REQUIRE(::lseek(fd.get(), 10, SEEK_SET) == 10);
        const pid_t child =
            start({fd.get(), out.far.get(), null.get()}, [&] { return run_root(driver, echo); });
        CHECK((take(out.near.get(), text.size() - 10) == text.substr(10)));
        CHECK(wait_for(child) == 0);
        CHECK(::lseek(fd.get(), 0, SEEK_CUR) ==
              static_cast<off_t>(text.size())); // shared with whoever gave it
    }
}

TEST_CASE("standard output that is a file, a device, a directory, or nothing") {
    const auto driver = any_driver();
    scratch dir;
    const std::string path = dir.name("file");
    struct output {
        const char* path;
        int flags;
        int expected;
    };
    for (const output one :
         {output{path.c_str(), O_CREAT | O_WRONLY, 0}, output{path.c_str(), O_WRONLY | O_APPEND, 0},
          output{"/dev/null", O_WRONLY, 0}, output{"/dev/zero", O_WRONLY, 0},
          output{"/dev/full", O_WRONLY, 100 + ENOSPC}, output{"/", O_RDONLY | O_DIRECTORY, 100 + EBADF},
          output{"/dev/null", O_RDONLY, 100 + EBADF}}) {
        CAPTURE(one.path, one.flags);
        const unique_fd fd(::open(one.path, one.flags | O_CLOEXEC, 0600));
        REQUIRE(fd.get() >= 0);
        const int before = status_flags(fd.get());
        CHECK(wait_for(start({-1, fd.get(), -1}, [&] { return run_root(driver, write_once); })) ==
              one.expected);
        CHECK(status_flags(fd.get()) == before);
    }
    CHECK(wait_for(start({-1, closed_stream, -1}, [&] { return run_root(driver, write_once); })) ==
          100 + EBADF);
    const unique_fd written(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    CHECK(take(written.get(), 100) == "texttext"); // the second one appended
}

TEST_CASE("a megabyte to a reader that comes late is complete at a normal end, whoever writes it") {
    const auto driver = any_driver();
    const kind k = GENERATE(kind::pipe, kind::fifo, kind::socket, kind::terminal, kind::terminal_master);
    const bool detached = GENERATE(false, true);
    CAPTURE(name_of(k), detached);
    scratch dir;
    ends out = open_pair(k, false, dir);
    static std::string text;
    text.assign(1 << 20, '\0');
    for (std::size_t i = 0; i < text.size(); ++i)
        text[i] = static_cast<char>('a' + i % 23);
    const pid_t child = start({-1, out.far.get(), -1}, [&] {
        return run_root(driver, [detached]() -> task<int> {
            struct writes {
                static task<int> all() {
                    auto stream = nowait::standard_output();
                    const auto n = co_await nowait::write_all(*stream, std::string_view(text));
                    co_return n.error ? 1 : 0;
                }
            };
            if (!detached)
                return writes::all();
            return []() -> task<int> {
                nowait::spawn(writes::all()).detach(); // run() returns when it has ended, too
                co_return 0;
            }();
        });
    });
    if (k != kind::terminal_master) // the line hangs up when its master goes, and what is in it is lost
        out.far.reset();
    until_asleep(child); // everything is full
    CHECK((take(out.near.get(), text.size()) == text));
    CHECK(wait_for(child) == 0);
}

TEST_CASE("a shutdown that cannot write everything says so") {
    const auto driver = any_driver();
    scratch dir;
    ends out = open_pair(kind::pipe, false, dir);
    const pid_t child = start({-1, out.far.get(), -1}, [&] {
        nowait::runtime_options options;
        options.driver = driver;
        auto made = nowait::runtime::create(options);
        nowait::progress written;
        const std::string text(1 << 20, 't');
        made->spawn([](std::string_view all, nowait::progress& to) -> task<> {
                auto stream = nowait::standard_output();
                to = co_await nowait::write_all(*stream, all);
            }(text, written))
            .detach();
        const auto ran = made->run([]() -> task<> {
            (void)co_await nowait::sleep_for(1ms);
            nowait::current_remote().request_stop();
        }());
        const auto report = made->shutdown(0ns);
        if (!ran || !report.complete())
            return 1;
        // The task has heard of it, with the exact number of bytes that went out.
        return written.error == std::errc::operation_canceled && written.bytes == 1 << 16 ? 0 : 2;
    });
    CHECK(wait_for(child) == 0);
    out.far.reset();
    CHECK(take(out.near.get(), 1 << 20).size() == 1 << 16);
}

TEST_CASE("a read that waits never delays the end of the process") {
    const auto driver = any_driver();
    const kind k = any_kind();
    const int how = GENERATE(0, 1, 2);
    CAPTURE(name_of(k), how);
    scratch dir;
    ends in = open_pair(k, true, dir);
    const int before = status_flags(in.far.get());
    const pid_t child = start({in.far.get(), -1, -1}, [&] {
        nowait::runtime_options options;
        options.driver = driver;
        auto made = nowait::runtime::create(options);
        if (!made)
            return 1;
        auto waits = []() -> task<int> {
            auto stream = nowait::standard_input();
            std::array<char, 16> room{};
            const auto n = co_await stream->read(room_in(room));
            co_return error_of(n);
        };
        if (how == 0) { // a time-out, and the orderly end
            const auto ran = made->run([]() -> task<int> {
                auto stream = nowait::standard_input();
                std::array<char, 16> room{};
                const auto n = co_await nowait::with_timeout(stream->read(room_in(room)), 5ms);
                co_return error_of(n);
            }());
            return ran.value_or(0) == ETIMEDOUT && made->shutdown(10s).complete() ? 0 : 2;
        }
        if (how == 1) { // the runtime is destroyed under it
            made->spawn(waits()).detach();
            (void)made->run([]() -> task<> {
                (void)co_await nowait::sleep_for(1ms);
                nowait::current_remote().request_stop();
            }());
            return 0;
        }
        made->spawn(waits()).detach(); // exit() in the middle of everything
        (void)made->run([]() -> task<> {
            (void)co_await nowait::sleep_for(1ms);
            std::exit(0);
        }());
        return 3;
    });
    CHECK(wait_for(child) == 0);
    CHECK(status_flags(in.far.get()) == before);
    put(in.near.get(), "kept");
    CHECK(take(in.far.get(), 4) == "kept");
}

TEST_CASE("standard input that was non-blocking and empty: waited for, without spinning") {
    const auto driver = any_driver();
    const kind k = GENERATE(kind::nonblocking_pipe, kind::nonblocking_terminal, kind::nonblocking_socket);
    CAPTURE(name_of(k));
    scratch dir;
    ends in = open_pair(k, true, dir);
    ends out = open_pair(kind::pipe, false, dir);
    const pid_t child = start({in.far.get(), out.far.get(), -1}, [&] {
        return run_root(driver, []() -> task<int> {
            auto stream = nowait::standard_input();
            auto answers = nowait::standard_output();
            int seen = 0;
            auto reader = nowait::spawn([](const pipe_reader& from, int& bytes) -> task<> {
                std::array<char, 16> room{};
                const auto n = co_await from.read(room_in(room));
                bytes = n ? static_cast<int>(*n) : -n.error().value();
            }(*stream, seen));
            (void)co_await nowait::sleep_for(1ms);
            const auto before = nowait::current_stats();
            (void)co_await nowait::sleep_for(20ms);
            const auto after = nowait::current_stats();
            if (seen != 0 || after.turns - before.turns > 20 || after.passes - before.passes > 20)
                co_return 1;
            (void)co_await answers->write("now");
            (void)co_await reader.join();
            co_return seen == 4 ? 0 : 2;
        });
    });
    CHECK(take(out.near.get(), 3) == "now");
    put(in.near.get(), "data");
    CHECK(wait_for(child) == 0);
    CHECK((status_flags(in.far.get()) & O_NONBLOCK) != 0);
}

TEST_CASE("standard_input() twice is one object: two readers of it queue up") {
    const auto driver = any_driver();
    const kind k = any_kind();
    CAPTURE(name_of(k));
    scratch dir;
    ends in = open_pair(k, true, dir);
    const pid_t child = start({in.far.get(), -1, -1}, [&] {
        return run_root(driver, []() -> task<int> {
            auto a = nowait::standard_input();
            auto b = nowait::standard_input();
            if (!a || !b)
                co_return 1;
            std::string order;
            const auto reads = [](const pipe_reader& from, char name, std::string& to) -> task<> {
                std::array<char, 3> room{};
                const auto n = co_await from.read(room_in(room));
                to += name;
                to.append(room.data(), n.value_or(0));
            };
            auto first = nowait::spawn(reads(*a, 'a', order));
            auto second = nowait::spawn(reads(*b, 'b', order));
            auto third = nowait::spawn(reads(*a, 'c', order));
            (void)co_await first.join();
            (void)co_await second.join();
            (void)co_await third.join();
            const auto c = nowait::standard_input();
            if (!c || c->block()->resolved() != a->block()->resolved() ||
                b->block()->resolved() != a->block()->resolved())
                co_return 2;
            co_return order == "aonebtwocsix" ? 0 : 3;
        });
    });
    until_asleep(child);
    for (const char* text : {"one", "two", "six"})
        put(in.near.get(), text);
    CHECK(wait_for(child) == 0);
}

} // namespace standard_tests
