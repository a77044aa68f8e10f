// How pump waits, and how it is stopped.
#include "processes.hpp"

#include <string>

#include <sys/stat.h>

namespace pump_tests {

TEST_CASE("Ctrl-C: the exact count, a line of its own, status 130") {
    terminal screen;
    const int tty = screen.slave.get();
    ends out = make_pipe();
    pump child({tty, out.write.get(), tty, {"--interval", "0.01"}, true});
    put(screen.master.get(), "line\n");
    CHECK(take(out.read.get(), 5) == "line\n");
    put(screen.master.get(), "\x03");
    const std::string seen = screen.screen_until("/s\x1b[K\r\npump: interrupted: 5 bytes in ");
    CHECK(child.wait() == 130);
}

TEST_CASE("a signal ends a wait for data, for room and for the writer of a FIFO") {
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
        CAPTURE(number);
        ends in = make_pipe();
        ends out = make_pipe();
        ends err = make_pipe();
        SECTION("for data") {
            pump child({in.read.get(), out.write.get(), err.write.get(), {}});
            put(in.write.get(), "abc");
            CHECK(take(out.read.get(), 3) == "abc");
            child.signal(number);
            CHECK(child.wait() == 128 + number);
            err.write.reset();
            CHECK(take_all(err.read.get()).rfind("pump: interrupted: 3 bytes in ", 0) == 0);
        }
        SECTION("for room") {
            const unique_fd zero(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
            pump child({zero.get(), out.write.get(), err.write.get(), {"--no-enlarge"}});
            (void)take(out.read.get(), 1);
            child.until_asleep();
            child.signal(number);
            CHECK(child.wait() == 128 + number);
            out.write.reset();
            err.write.reset();
            // What it says it has written is what has arrived.
            const std::size_t arrived = 1 + take_all(out.read.get()).size();
            CHECK(take_all(err.read.get())
                      .rfind("pump: interrupted: " + std::to_string(arrived) + " bytes in ", 0) == 0);
        }
        SECTION("for a writer") {
            char folder[] = "/tmp/nowait-pump-XXXXXX";
            REQUIRE(::mkdtemp(folder) != nullptr);
            const std::string fifo = std::string(folder) + "/fifo";
            REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
            // The first input shows that the handlers stand.
            put(in.write.get(), "x");
            in.write.reset();
            pump child({in.read.get(), out.write.get(), err.write.get(), {"-", fifo}});
            CHECK(take(out.read.get(), 1) == "x");
            child.until_asleep();
            child.signal(number);
            CHECK(child.wait() == 128 + number);
            ::unlink(fifo.c_str());
            ::rmdir(folder);
        }
    }
}

TEST_CASE("a FIFO without a writer yet is not one that has ended") {
    char folder[] = "/tmp/nowait-pump-XXXXXX";
    REQUIRE(::mkdtemp(folder) != nullptr);
    const std::string fifo = std::string(folder) + "/fifo";
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    ends out = make_pipe();
    pump child({-1, out.write.get(), -1, {fifo}});
    out.write.reset();
    {
        const unique_fd writer(::open(fifo.c_str(), O_WRONLY | O_CLOEXEC)); // waits for pump
        child.until_asleep();
        put(writer.get(), "late");
    }
    CHECK(take_all(out.read.get()) == "late");
    CHECK(child.wait() == 0);
    ::unlink(fifo.c_str());
    ::rmdir(folder);
}

TEST_CASE("progress that nobody takes does not hold up the data") {
    ends in = make_pipe();
    ends out = make_pipe();
    ends err = make_pipe();
    REQUIRE(::fcntl(err.write.get(), F_SETPIPE_SZ, 4096) >= 4096);
    put(err.write.get(), std::string(4096, '.')); // full from the beginning
    pump child({in.read.get(), out.write.get(), err.write.get(), {"--progress", "--interval", "0.01"}});
    for (int i = 0; i < 200; ++i) {
        put(in.write.get(), "more");
        CHECK(take(out.read.get(), 4) == "more");
    }
    in.write.reset();
    out.write.reset();
    (void)take(err.read.get(), 4096);
    err.write.reset();
    CHECK(take_all(err.read.get()).find("pump: 800 bytes in ") != std::string::npos);
    CHECK(child.wait() == 0);
}

} // namespace pump_tests
