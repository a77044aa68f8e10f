// Splice and tee: byte-exact, waiting on either side, closed on either side; and no SIGPIPE on any path.
#include "child_process.hpp"
#include "pipes_support.hpp"

#include <sys/socket.h>

namespace pipes {
namespace {

task<> splice_all(const nowait::pipe_reader& from, const nowait::pipe_writer& to, std::size_t step,
                  std::size_t& moved, std::error_code& error) {
    for (;;) {
        auto n = co_await nowait::splice(from, to, step);
        if (!n) {
            error = n.error();
            co_return;
        }
        if (*n == 0)
            co_return;
        moved += *n;
    }
}

task<> send_and_close(nowait::pipe_writer writer, std::string_view text) {
    auto error = co_await write_whole(writer, text);
    CHECK_FALSE(error);
}
task<> splice_and_close(const nowait::pipe_reader& from, nowait::pipe_writer to, std::size_t step,
                        std::size_t& moved, std::error_code& error) {
    co_await splice_all(from, to, step, moved, error);
}

task<> through_two_pipes(std::size_t first_capacity, std::size_t second_capacity, std::size_t step) {
    auto a = make_pipe({.capacity = first_capacity});
    auto b = make_pipe({.capacity = second_capacity});
    const std::string text = pattern(300'000);
    std::string got;
    std::size_t moved = 0;
    std::error_code error;
    auto sending = nowait::spawn(send_and_close(std::move(a.writer), text));
    auto moving = nowait::spawn(splice_and_close(a.reader, std::move(b.writer), step, moved, error));
    auto end = co_await read_to_end(b.reader, got, 10'000);
    CHECK_FALSE(end);
    (void)co_await sending.join();
    (void)co_await moving.join();
    CHECK_FALSE(error);
    CHECK(moved == text.size());
    CHECK((got == text));
}

struct moved_bytes {
    bool done = false;
    result<std::size_t> value = nowait::fail(std::errc::operation_in_progress);
};

task<> splice_once(const nowait::pipe_reader& from, const nowait::pipe_writer& to, std::size_t size,
                   bool copy, moved_bytes& out) {
    if (copy)
        out.value = co_await nowait::tee(from, to, size);
    else
        out.value = co_await nowait::splice(from, to, size);
    out.done = true;
}

task<> fill(const nowait::pipe_writer& writer) {
    const std::string block(4096, 'f');
    const auto capacity = writer.capacity().value();
    for (std::size_t done = 0; done < capacity; done += block.size())
        (void)co_await writer.write(block);
}

// Waits for data at the one end, then for room at the other, then moves.
task<> migrates(bool copy) {
    auto a = make_pipe();
    auto b = make_pipe({.capacity = 4096});
    co_await fill(b.writer);
    moved_bytes out;
    auto moving = nowait::spawn(splice_once(a.reader, b.writer, 100, copy, out));
    co_await settle();
    CHECK_FALSE(out.done);
    (void)co_await a.writer.write("across");
    co_await settle();
    CHECK_FALSE(out.done); // data now, but no room
    std::string room(4096, '\0');
    auto n = co_await b.reader.read(room_in(room));
    CHECK(n.value_or(0) == 4096);
    (void)co_await moving.join();
    CHECK(out.value.value_or(0) == 6);
    n = co_await b.reader.read(room_in(room));
    CHECK(n.value_or(0) == 6);
    CHECK(room.substr(0, 6) == "across");
    CHECK(a.reader.available().value() == (copy ? 6u : 0u));
}

enum class ending { from, to, from_handle, to_handle, source, sink };

task<> ended_under_a_wait(ending how, bool full, bool copy) {
    auto a = make_pipe();
    auto b = make_pipe({.capacity = 4096});
    if (full) {
        co_await fill(b.writer);
        (void)co_await a.writer.write("data");
    }
    moved_bytes out;
    auto moving = nowait::spawn(splice_once(a.reader, b.writer, 100, copy, out));
    co_await settle();
    CHECK_FALSE(out.done);
    int expected = ECANCELED;
    switch (how) {
    case ending::from:
        CHECK(a.reader.close().has_value());
        break;
    case ending::to:
        CHECK(b.writer.close().has_value());
        break;
    case ending::from_handle:
        a.reader = {};
        break;
    case ending::to_handle:
        b.writer = {};
        break;
    case ending::source: // the end of the stream, if there is no data to be moved before
        a.writer = {};
        expected = 0;
        break;
    case ending::sink:
        b.reader = {};
        expected = EPIPE;
        break;
    }
    if (how == ending::source && full) {
        co_await settle();
        CHECK_FALSE(out.done);
        std::string room(4096, '\0');
        (void)co_await b.reader.read(room_in(room));
        (void)co_await moving.join();
        CHECK(out.value.value_or(0) == 4);
        co_return;
    }
    if (how == ending::sink && !full) {
        co_await settle();
        (void)co_await a.writer.write("x"); // it looks when data comes
    }
    (void)co_await moving.join();
    CHECK(error_of(out.value) == expected);
    if (out.value)
        CHECK(*out.value == 0);
    if (full && how != ending::from && how != ending::from_handle)
        CHECK(a.reader.available().value() == 4);
}

task<> cancelled_under_a_wait(bool full) {
    auto a = make_pipe();
    auto b = make_pipe({.capacity = 4096});
    if (full) {
        co_await fill(b.writer);
        (void)co_await a.writer.write("data");
    }
    for (int i = 0; i < 5; ++i) {
        auto n = co_await nowait::with_timeout(nowait::splice(a.reader, b.writer, 10), 1ms);
        CHECK(error_of(n) == ETIMEDOUT);
        n = co_await nowait::with_timeout(nowait::tee(a.reader, b.writer, 10), 0ms);
        CHECK(error_of(n) == ETIMEDOUT);
    }
    CHECK(a.reader.available().value() == (full ? 4u : 0u));
    CHECK(b.reader.available().value() == (full ? 4096u : 0u));
}

task<> bad_ends() {
    auto a = make_pipe();
    auto b = make_pipe();
    result<std::size_t> n;
    (void)co_await a.writer.write("data");
    n = co_await nowait::splice(a.reader, a.writer, 4);
    CHECK(error_of(n) == EINVAL); // the same pipe
    n = co_await nowait::tee(a.reader, a.writer, 4);
    CHECK(error_of(n) == EINVAL);
    n = co_await nowait::splice(a.reader, b.writer, 0);
    CHECK(n.value_or(9) == 0);
    CHECK(a.reader.available().value() == 4);

    int ends[2];
    CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    auto no_pipe = nowait::pipe_reader::adopt(ends[0]).value();
    auto no_pipe_either = nowait::pipe_writer::adopt(ends[1]).value();
    n = co_await nowait::splice(no_pipe, no_pipe_either, 4);
    CHECK(error_of(n) == EINVAL);
    n = co_await nowait::tee(no_pipe, b.writer, 4);
    CHECK(error_of(n) == EINVAL);
    n = co_await nowait::splice(a.reader, no_pipe_either, 4); // one of them is enough
    CHECK(n.value_or(0) == 4);
    std::array<char, 8> room{};
    n = co_await no_pipe.read(room_in(room));
    CHECK(n.value_or(0) == 4);

    auto raw = make_raw_pipe();
    auto borrowed = nowait::pipe_reader::borrow(raw.read.get()).value();
    CHECK(::write(raw.write.get(), "lent", 4) == 4);
    n = co_await nowait::splice(borrowed, b.writer, 4);
    CHECK(error_of(n) == EPERM);
    n = co_await nowait::tee(borrowed, b.writer, 4); // takes nothing away from those who share it
    CHECK(n.value_or(0) == 4);
    n = co_await nowait::splice(borrowed, b.writer, 4, nowait::allow_splice::yes);
    CHECK(n.value_or(0) == 4);
    n = co_await b.reader.read(room_in(room));
    CHECK(n.value_or(0) == 8);
    CHECK(std::string_view(room.data(), 8) == "lentlent");
    CHECK(status_flags(raw.read.get()) == O_RDONLY);
}

task<> tee_then_write() {
    auto a = make_pipe();
    auto b = make_pipe();
    std::string room(64, '\0');
    (void)co_await a.writer.write("shared");
    auto n = co_await nowait::tee(a.reader, b.writer, 100);
    CHECK(n.value_or(0) == 6);
    // Both pipes hold the same page now. What is written to one may not appear in the other.
    (void)co_await a.writer.write("+a");
    (void)co_await b.writer.write("+b");
    n = co_await a.reader.read(room_in(room));
    CHECK(n.value_or(0) == 8);
    CHECK(room.substr(0, 8) == "shared+a");
    n = co_await b.reader.read(room_in(room));
    CHECK(n.value_or(0) == 8);
    CHECK(room.substr(0, 8) == "shared+b");
    a.writer = {};
    n = co_await nowait::tee(a.reader, b.writer, 100);
    CHECK(n.value_or(9) == 0); // the end
}

} // namespace

TEST_CASE("splice moves every byte, whatever the capacities and the step") {
    for (const std::size_t step : {std::size_t{1000}, std::size_t{65536}, std::size_t{1} << 30}) {
        REQUIRE(nowait::run(through_two_pipes(65536, 4096, step)));
        REQUIRE(nowait::run(through_two_pipes(4096, 65536, step)));
    }
}
TEST_CASE("splice and tee wait for data, then for room") {
    REQUIRE(nowait::run(migrates(false)));
    REQUIRE(nowait::run(migrates(true)));
}
TEST_CASE("either end of a splice or tee may go while it waits at either end") {
    const auto before = open_descriptors();
    for (const auto how :
         {ending::from, ending::to, ending::from_handle, ending::to_handle, ending::source, ending::sink})
        for (const bool full : {false, true})
            for (const bool copy : {false, true}) {
                CAPTURE(static_cast<int>(how), full, copy);
                REQUIRE(nowait::run(ended_under_a_wait(how, full, copy)));
            }
    CHECK(open_descriptors() == before);
}
TEST_CASE("a cancelled splice has moved nothing") {
    REQUIRE(nowait::run(cancelled_under_a_wait(false)));
    REQUIRE(nowait::run(cancelled_under_a_wait(true)));
}
TEST_CASE("splice between ends that do not allow it") {
    REQUIRE(nowait::run(bad_ends()));
}
TEST_CASE("what is written after a tee stays in its own pipe") {
    const no_new_workers watch;
    REQUIRE(nowait::run(tee_then_write()));
}

// --- splice against others who read and write the same pipes -----------------------------------------------------------------------

TEST_CASE("splice between pipes that another process drains and fills loses no wake") {
    auto in = make_raw_pipe();
    auto out = make_raw_pipe();
    ::fcntl(out.write.get(), F_SETPIPE_SZ, 4096);
    const std::string text = pattern(sanitized ? 200'000 : 2'000'000);
    std::fflush(nullptr);
    const pid_t source = ::fork();
    REQUIRE(source >= 0);
    if (source == 0) {
        std::size_t at = 0;
        while (at < text.size()) {
            const ssize_t n = ::write(in.write.get(), text.data() + at,
                                      std::min<std::size_t>(text.size() - at, 1 + at % 6000));
            if (n < 0)
                ::_exit(1);
            at += static_cast<std::size_t>(n);
        }
        ::_exit(0);
    }
    in.write.reset();
    const pid_t sink = ::fork();
    REQUIRE(sink >= 0);
    if (sink == 0) {
        out.write.reset();
        in.read.reset();
        std::string got;
        std::string room(3000, '\0');
        for (;;) {
            const ssize_t n = ::read(out.read.get(), room.data(), 1 + got.size() % room.size());
            if (n <= 0)
                break;
            got.append(room, 0, static_cast<std::size_t>(n));
        }
        ::_exit(got == text ? 0 : 1);
    }
    out.read.reset();
    {
        auto from = nowait::pipe_reader::adopt(in.read.release()).value();
        auto to = nowait::pipe_writer::adopt(out.write.release()).value();
        std::size_t moved = 0;
        std::error_code error;
        REQUIRE(nowait::run(splice_all(from, to, 1 << 16, moved, error)));
        CHECK_FALSE(error);
        CHECK(moved == text.size());
    }
    int status = 0;
    REQUIRE(::waitpid(source, &status, 0) == source);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
    REQUIRE(::waitpid(sink, &status, 0) == sink);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

// --- SIGPIPE ---------------------------------------------------------------------------------------------------------------------------

namespace {

task<int> write_to_nobody() {
    result<std::size_t> n;
    const std::array<iovec, 2> parts{iovec{const_cast<char*>("a"), 1}, iovec{const_cast<char*>("b"), 1}};
    { // ours: plain and vectored, splice and tee, and one that waits
        auto p = make_pipe({.capacity = 4096});
        co_await fill(p.writer);
        outcome out;
        auto waiting = nowait::spawn(write_from(p.writer, "never", out));
        co_await settle();
        p.reader = {};
        (void)co_await waiting.join();
        CHILD_CO_REQUIRE(error_of(out.value) == EPIPE);
        n = co_await p.writer.write("x");
        CHILD_CO_REQUIRE(error_of(n) == EPIPE);
        n = co_await p.writer.write(std::span(parts));
        CHILD_CO_REQUIRE(error_of(n) == EPIPE);
        auto source = make_pipe();
        (void)co_await source.writer.write("data");
        n = co_await nowait::splice(source.reader, p.writer, 4);
        CHILD_CO_REQUIRE(error_of(n) == EPIPE);
        n = co_await nowait::tee(source.reader, p.writer, 4);
        CHILD_CO_REQUIRE(error_of(n) == EPIPE);
        CHILD_CO_REQUIRE(source.reader.available().value() == 4);
    }
    { // borrowed, with and without RWF_NOWAIT
        auto raw = make_raw_pipe();
        raw.read.reset();
        auto writer = nowait::pipe_writer::borrow(raw.write.get()).value();
        n = co_await writer.write("x");
        CHILD_CO_REQUIRE(error_of(n) == EPIPE);
        auto source = make_pipe();
        (void)co_await source.writer.write("data");
        n = co_await nowait::splice(source.reader, writer, 4, nowait::allow_splice::yes);
        CHILD_CO_REQUIRE(error_of(n) == EPIPE);
        n = co_await writer.write("x");
        CHILD_CO_REQUIRE(error_of(n) == EPIPE);
    }
    { // a socket
        int ends[2];
        CHILD_CO_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
        auto writer = nowait::pipe_writer::adopt(ends[0]).value();
        ::close(ends[1]);
        n = co_await writer.write("x");
        CHILD_CO_REQUIRE(error_of(n) == EPIPE);
        n = co_await writer.write(std::span(parts));
        CHILD_CO_REQUIRE(error_of(n) == EPIPE);
    }
    co_return 0;
}

int sigpipe_child(bool pending_before) {
    ::signal(SIGPIPE, SIG_DFL); // a signal that came would end this
    sigset_t set;
    sigset_t before;
    sigset_t after;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    if (pending_before) {
        CHILD_REQUIRE(::pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
        CHILD_REQUIRE(::raise(SIGPIPE) == 0);
    }
    ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
    const auto got = nowait::run(write_to_nobody());
    CHILD_REQUIRE(got && *got == 0);
    struct sigaction action{};
    CHILD_REQUIRE(::sigaction(SIGPIPE, nullptr, &action) == 0);
    CHILD_REQUIRE(action.sa_handler == SIG_DFL);
    ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
    CHILD_REQUIRE(sigismember(&before, SIGPIPE) == sigismember(&after, SIGPIPE));
    CHILD_REQUIRE(sigismember(&after, SIGPIPE) == (pending_before ? 1 : 0));
    sigset_t pending;
    sigemptyset(&pending);
    ::sigpending(&pending);
    CHILD_REQUIRE(sigismember(&pending, SIGPIPE) == (pending_before ? 1 : 0));
    return 0;
}

} // namespace

TEST_CASE("no path raises SIGPIPE, and one that was pending stays pending", "[sigpipe]") {
    CHECK(in_child([] { return sigpipe_child(false); }) == 0);
    CHECK(in_child([] { return sigpipe_child(true); }) == 0);
}
TEST_CASE("the same on a kernel without RWF_NOSIGNAL") {
    for (const char* without : {"-nosignal", "-nosignal,-nowait"}) {
        const auto end = nowait_test::run_again({"[sigpipe]"}, {{"NOWAIT_FEATURES", without}});
        INFO(end.errors);
        CHECK(end.exit_code == 0);
    }
}

} // namespace pipes
