// POSIX queues as Asio objects.
#include "asio_support.hpp"
#include "catch.hpp"

#include <algorithm>
#include <string>

#include <unistd.h>

using tests::host_world;
using tests::own_world;

TEMPLATE_TEST_CASE("a POSIX queue with callbacks, coroutines and cancellation", "", own_world, host_world) {
    TestType world;
    const std::string name = "/nowait-asio-" + std::to_string(::getpid());
    nowait::posix_mqueue_options options;
    options.how = nowait::mqueue_open::replace;
    options.capacity = 2;
    options.message_bytes = 32;
    auto opened = nowait::posix_mqueue::open(name, options);
    if (!opened && opened.error() == std::errc::function_not_supported) {
        WARN("no POSIX queues here");
        return;
    }
    REQUIRE(opened.has_value());
    REQUIRE(nowait::posix_mqueue::unlink(name).has_value());
    nowait::asio_posix_mqueue queue(world.executor(), std::move(*opened));
    std::array<char, 32> space{};
    std::string order;
    auto user = [&]() -> net::awaitable<void> {
        co_await queue.async_send(net::buffer("low", 3), 1, net::use_awaitable);
        co_await queue.async_send(net::buffer("high", 4), 9u, net::use_awaitable);
        for (int i = 0; i < 2; ++i) {
            auto got = co_await queue.async_receive(net::buffer(space), net::use_awaitable);
            order += std::string(space.data(), std::get<0>(got)) + std::to_string(std::get<1>(got));
        }
    };
    net::co_spawn(world.executor(), user, [](std::exception_ptr error) {
        if (error)
            std::rethrow_exception(error);
    });
    world.run();
    CHECK(order == "high9low1");

    // A receive that waits: served, then cancelled, then closed.
    error_code outcome;
    std::size_t bytes = 0;
    auto note = [&](error_code error, std::size_t n, unsigned) {
        outcome = error;
        bytes = n;
    };
    queue.async_receive(net::buffer(space), note);
    net::post(world.executor(), [&] { queue.async_send(net::buffer("x", 1), 0, [](error_code) {}); });
    world.run();
    CHECK(!outcome);
    CHECK(bytes == 1);
    net::cancellation_signal signal;
    queue.async_receive(net::buffer(space), net::bind_cancellation_slot(signal.slot(), note));
    net::post(world.executor(), [&] { signal.emit(net::cancellation_type::total); });
    world.run();
    CHECK(outcome == net::error::operation_aborted);
    outcome = {};
    queue.async_receive(net::buffer(space), note);
    net::post(world.executor(), [&] { queue.close(); });
    world.run();
    CHECK(outcome == net::error::operation_aborted);
    queue.async_receive(net::buffer(space), note);
    world.run();
    CHECK(outcome == net::error::bad_descriptor);
}

TEST_CASE("what a POSIX queue refuses") {
    own_world world;
    const std::string name = "/nowait-asio-bad-" + std::to_string(::getpid());
    nowait::posix_mqueue_options options;
    options.how = nowait::mqueue_open::replace;
    options.message_bytes = 8;
    auto opened = nowait::posix_mqueue::open(name, options);
    if (!opened && opened.error() == std::errc::function_not_supported) {
        WARN("no POSIX queues here");
        return;
    }
    REQUIRE(opened.has_value());
    REQUIRE(nowait::posix_mqueue::unlink(name).has_value());
    nowait::asio_posix_mqueue queue(world.executor(), std::move(*opened));
    error_code outcome;
    auto note = [&](error_code error, auto...) { outcome = error; };
    queue.async_send(net::buffer("more than eight", 15), 0, note);
    world.run();
    CHECK(outcome == net::error::message_size);
    for (const int priority : {-1, 32768}) {
        outcome = {};
        queue.async_send(net::buffer("x", 1), priority, note);
        world.run();
        CHECK(outcome == net::error::invalid_argument);
    }
    std::array<char, 4> small{};
    queue.async_receive(net::buffer(small), note);
    world.run();
    CHECK(outcome == net::error::message_size);
    using wait = net::posix::descriptor_base;
    queue.async_wait(wait::wait_write, note);
    world.run();
    CHECK(!outcome);
}
