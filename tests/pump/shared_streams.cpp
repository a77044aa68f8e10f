// pump's standard streams are shared with its neighbours: nothing about them changes, however it ends.
#include "processes.hpp"

#include <string>

namespace pump_tests {

TEST_CASE("the flags of shared pipes never change, not even by SIGKILL") {
    for (const char* how : {"--progress", "--no-splice"}) {
        CAPTURE(how);
        ends in = make_pipe();
        ends out = make_pipe();
        ends err = make_pipe();
        pump child({in.read.get(), out.write.get(), err.write.get(), {how, "--interval", "0.01"}});
        const auto unchanged = [&] {
            return status_flags(in.read.get()) == O_RDONLY && status_flags(out.write.get()) == O_WRONLY &&
                   status_flags(err.write.get()) == O_WRONLY;
        };
        put(in.write.get(), "x");
        CHECK(take(out.read.get(), 1) == "x"); // it has used both
        CHECK(unchanged());
        child.until_asleep(); // and waits now
        CHECK(unchanged());
        child.signal(SIGKILL);
        CHECK(child.wait() == 1000 + SIGKILL);
        CHECK(unchanged());
    }
}

TEST_CASE("a terminal stays as it was: killed, and ended") {
    for (const int number : {SIGKILL, SIGINT}) {
        CAPTURE(number);
        terminal screen;
        const std::string before = screen.settings();
        const int all = screen.slave.get();
        const int flags = status_flags(all);
        REQUIRE((flags & O_NONBLOCK) == 0);
        pump child({all, all, all, {"--interval", "0.01"}});
        put(screen.master.get(), "typed\n");
        (void)screen.screen_until("typed\r\n");    // the echo
        (void)screen.screen_until("typed\r\n");    // the copy
        (void)screen.screen_until("6 B  0:00:00"); // the progress
        CHECK(status_flags(all) == flags);
        child.signal(number);
        CHECK(child.wait() == (number == SIGKILL ? 1000 + SIGKILL : 128 + SIGINT));
        CHECK(status_flags(all) == flags);
        CHECK(screen.settings() == before);
    }
}

TEST_CASE("an input that was non-blocking before is waited for") {
    ends in = make_pipe();
    REQUIRE(::fcntl(in.read.get(), F_SETFL, O_NONBLOCK) == 0);
    ends out = make_pipe();
    for (const char* how : {"--no-enlarge", "--no-splice"}) {
        CAPTURE(how);
        pump child({in.read.get(), out.write.get(), -1, {how, "--limit", "4"}});
        put(in.write.get(), "a");
        CHECK(take(out.read.get(), 1) == "a");
        child.until_asleep(); // it has found nothing, and does not spin
        put(in.write.get(), "bcd");
        CHECK(take(out.read.get(), 3) == "bcd");
        CHECK(child.wait() == 0);
        CHECK(status_flags(in.read.get()) == O_NONBLOCK);
    }
}

TEST_CASE("nothing is lost to a reader that comes late") {
    for (const char* how : {"--no-enlarge", "--no-splice"}) {
        CAPTURE(how);
        ends in = make_pipe();
        ends out = make_pipe();
        REQUIRE(::fcntl(in.write.get(), F_SETPIPE_SZ, 1 << 20) >= 1 << 20);
        std::string text(1 << 20, '\0');
        for (std::size_t i = 0; i < text.size(); ++i)
            text[i] = static_cast<char>('a' + i % 23);
        put(in.write.get(), text);
        in.write.reset();
        pump child({in.read.get(), out.write.get(), -1, {how, "--no-enlarge"}});
        out.write.reset();
        child.until_asleep(); // 64 KiB are in the pipe, and more does not fit
        CHECK(take_all(out.read.get()) == text);
        CHECK(child.wait() == 0);
    }
}

TEST_CASE("sockets on both sides") {
    int in[2];
    int out[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) == 0);
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, out) == 0);
    const unique_fd far_in(in[0]);
    unique_fd near_in(in[1]);
    const unique_fd far_out(out[0]);
    unique_fd near_out(out[1]);
    pump child({near_in.get(), near_out.get(), -1, {}});
    near_out.reset();
    put(far_in.get(), "through");
    CHECK(take(far_out.get(), 7) == "through");
    CHECK(status_flags(near_in.get()) == O_RDWR);
    REQUIRE(::shutdown(far_in.get(), SHUT_WR) == 0);
    CHECK(take_all(far_out.get()).empty());
    CHECK(child.wait() == 0);
}

} // namespace pump_tests
