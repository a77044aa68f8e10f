// Readiness that is reported once: what a reader leaves behind is not forgotten.
#include "drivers_support.hpp"
#include "runtime/poll_driver.hpp"
#include "runtime/uring_driver.hpp"

#include <memory>

#include <termios.h>

namespace drivers_tests {
namespace {

task<> ten_five_five(nowait::pipe_pair& pipe) {
    std::array<char, 5> room{};
    std::string all;
    outcome first;
    auto waiting = nowait::spawn([](const pipe_reader& from, outcome& out) -> task<> {
        std::array<char, 5> five{};
        const auto n = co_await from.read(room_in(five));
        out.text.assign(five.data(), n.value_or(0));
        out.done = true;
    }(pipe.reader, first));
    (void)co_await nowait::sleep_for(1ms); // it waits: the event is what brings the bytes
    auto n = co_await pipe.writer.write("0123456789");
    CHECK(n.value_or(0) == 10);
    (void)co_await waiting.join();
    all += first.text;
    n = co_await pipe.writer.write("abcde");
    CHECK(n.value_or(0) == 5);
    while (all.size() < 15) {
        n = co_await nowait::with_timeout(pipe.reader.read(room_in(room)), 10s);
        CHECK(n.has_value());
        if (!n)
            break;
        all.append(room.data(), *n);
    }
    CHECK(all == "0123456789abcde");
}

/// The same with reads that start after the event has come and gone, in every order of a few steps.
task<> left_behind(nowait::pipe_pair& pipe, int pause_before_read, int pause_before_write) {
    std::string all;
    outcome waiter;
    auto waiting = nowait::spawn(read_into(pipe.reader, waiter));
    (void)co_await nowait::sleep_for(100us);
    auto n = co_await pipe.writer.write("x");
    (void)co_await waiting.join();
    CHECK(waiter.text == "x");
    co_await settle(pause_before_write);
    n = co_await pipe.writer.write("0123456789"); // nobody waits: an event for nobody
    co_await settle(pause_before_read);
    for (int i = 0; i < 10; ++i) {
        std::array<char, 1> one{};
        n = co_await nowait::with_timeout(pipe.reader.read(room_in(one)), 10s);
        CHECK(n.value_or(0) == 1);
        all += one[0];
    }
    CHECK(all == "0123456789");
}

} // namespace

namespace {

using nowait::detail::driver;
using nowait::detail::driver_target;

struct watched : nowait::detail::poll_source {
    int last_reports = 0;
    explicit watched(int number) {
        fd = number;
        events = POLLIN;
        on_event = [](driver_target& target, long, bool more) noexcept {
            auto& self = static_cast<watched&>(target);
            self.armed = more;
            self.last_reports += !more;
        };
    }
};

} // namespace

TEST_CASE(
    "a poll that is removed while an event is on its way, for which nothing is left, ends all the same") {
    const bool on_ring = GENERATE(true, false);
    const int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    REQUIRE((master >= 0 && ::grantpt(master) == 0 && ::unlockpt(master) == 0));
    char name[64] = {};
    REQUIRE(::ptsname_r(master, name, sizeof name) == 0);
    const int slave = ::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    termios raw{};
    REQUIRE(::tcgetattr(slave, &raw) == 0);
    ::cfmakeraw(&raw);
    REQUIRE(::tcsetattr(slave, TCSANOW, &raw) == 0);
    std::unique_ptr<driver> waits;
    nowait::detail::system& calls = nowait::detail::real_system();
    REQUIRE((on_ring ? nowait::detail::make_uring_driver(calls, {64, 0}, waits)
                     : nowait::detail::make_poll_driver(calls, waits)) == 0);
    REQUIRE(waits->bind_to_thread() == 0);
    for (int i = 0; i < 500; ++i) {
        watched source(slave);
        waits->arm(source);
        waits->collect();
        char byte = 0;
        REQUIRE(::write(master, "x", 1) == 1);
        while (::read(slave, &byte, 1) != 1) { // a terminal takes its time
        }
        waits->disarm(source);
        for (int look = 0; source.last_reports == 0 && look < 1000; ++look)
            waits->wait(calls.now() + 10ms);
        REQUIRE(source.last_reports == 1);
    }
    waits.reset();
    ::close(slave);
    ::close(master);
}

TEST_CASE("ten bytes, five taken, five more written: all fifteen arrive") {
    runtime_options options;
    options.driver = GENERATE(driver_choice::uring, driver_choice::poll);
    nowait::pipe_pair pipe = nowait::make_pipe().value();
    nowait_test::run_on_new(ten_five_five(pipe), options);
}

TEST_CASE("bytes that were announced while nobody waited are found") {
    runtime_options options;
    options.driver = GENERATE(driver_choice::uring, driver_choice::poll);
    const int before_read = GENERATE(0, 1, 100);
    const int before_write = GENERATE(0, 1, 100);
    nowait::pipe_pair pipe = nowait::make_pipe().value();
    nowait_test::run_on_new(left_behind(pipe, before_read, before_write), options);
}

} // namespace drivers_tests
