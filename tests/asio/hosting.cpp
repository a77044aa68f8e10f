// The hook by which another event loop runs ours, without any Asio: what rest() promises, with each driver.
#include "catch.hpp"

#include <nowait/detail/driver.hpp>
#include <nowait/nowait.hpp>

#include <thread>

#include <poll.h>

namespace {

using nowait::driver_choice;
using time_point = nowait::detail::clock::time_point;

struct counting_host final : nowait::detail::loop_host {
    int stirs = 0;
    void loop_stirs() noexcept override { ++stirs; }
    void run_hosted(time_point) override {}
};

/// A runtime run by hand: passes until it is at rest.
struct hosted {
    nowait::runtime runtime;
    counting_host host;
    nowait::detail::loop& loop = runtime.get_loop();

    explicit hosted(driver_choice driver) : runtime(make(driver)) {
        REQUIRE(loop.be_hosted(&host) == 0);
        REQUIRE(loop.enter() == 0);
    }
    ~hosted() { loop.leave(); }
    static nowait::runtime make(driver_choice driver) {
        nowait::runtime_options options;
        options.driver = driver;
        auto made = nowait::runtime::create(options);
        REQUIRE(made.has_value());
        return std::move(*made);
    }
    /// Until when it rests.
    time_point settle() {
        time_point until{};
        int passes = 0;
        do {
            while (loop.pass())
                REQUIRE(++passes < 1000);
            REQUIRE(++passes < 1000);
        } while (!loop.rest(until));
        return until;
    }
    bool told(int milliseconds = 0) {
        pollfd watched{loop.waits().watchable(), POLLIN, 0};
        return ::poll(&watched, 1, milliseconds) == 1;
    }
};

nowait::task<void> read_once(const nowait::pipe_reader& from, int& got) {
    std::byte buffer[8];
    auto n = co_await from.read(buffer);
    got = n ? static_cast<int>(*n) : -n.error().value();
}

} // namespace

TEST_CASE("a loop at rest is told through its descriptor, every time") {
    const auto driver = GENERATE(driver_choice::uring, driver_choice::poll);
    hosted guest(driver);
    auto pipe = nowait::make_pipe();
    REQUIRE(pipe.has_value());
    (void)guest.settle();
    CHECK_FALSE(guest.told());
    for (int i = 0; i < 20; ++i) {
        int got = 0;
        auto reading = guest.runtime.spawn(read_once(pipe->reader, got));
        (void)guest.settle();
        REQUIRE_FALSE(guest.told()); // nothing is left over from the round before
        REQUIRE(got == 0);
        REQUIRE(nowait::detail::direct_write(pipe->writer.native_handle(), "x", 1) == 1);
        REQUIRE(guest.told(10'000));
        (void)guest.settle();
        REQUIRE(got == 1);
        REQUIRE(reading.done());
    }
}

TEST_CASE("a loop at rest is woken by a post and by a stop from another thread") {
    const auto driver = GENERATE(driver_choice::uring, driver_choice::poll);
    hosted guest(driver);
    (void)guest.settle();
    for (int i = 0; i < 20; ++i) {
        bool ran = false;
        auto remote = guest.runtime.remote();
        std::thread poster([&] { remote.post([&] { ran = true; }); });
        REQUIRE(guest.told(10'000));
        poster.join();
        (void)guest.settle();
        REQUIRE(ran);
        REQUIRE_FALSE(guest.told());
    }
    guest.runtime.request_stop();
    REQUIRE(guest.told(10'000));
    (void)guest.settle();
    CHECK(guest.loop.stopped());
}

TEST_CASE("what happens outside a pass stirs the host, and a timer bounds the rest") {
    hosted guest(driver_choice::automatic);
    CHECK(guest.settle() == time_point::max());
    const int before = guest.host.stirs;
    auto sleeping = guest.runtime.spawn(
        []() -> nowait::task<void> { co_await nowait::sleep_for(std::chrono::hours(1)); });
    CHECK(guest.host.stirs == before + 1);
    CHECK(guest.settle() <
          time_point::max());              // when the wheel wants a look, which is no later than the timer
    CHECK(guest.host.stirs == before + 1); // nothing in a pass does
    guest.runtime.request_stop();
    (void)guest.settle();
    CHECK(sleeping.done());
}

TEST_CASE("a runtime that has run by itself stays its own master with io_uring") {
    nowait::runtime_options options;
    options.driver = driver_choice::uring;
    auto made = nowait::runtime::create(options);
    REQUIRE(made.has_value());
    REQUIRE(made->run().has_value());
    counting_host host;
    CHECK(made->get_loop().be_hosted(&host) == ENOTSUP);
    CHECK(made->run().has_value());
}
