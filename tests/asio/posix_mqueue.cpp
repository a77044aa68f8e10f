// POSIX queues as Asio objects.
#include "asio_support.hpp"
#include "catch.hpp"

#include <algorithm>
#include <string>
#include <thread>

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

TEMPLATE_TEST_CASE("a POSIX queue with the other tokens", "", own_world, host_world) {
    TestType world;
    const std::string name = "/nowait-asio-tokens-" + std::to_string(::getpid());
    nowait::posix_mqueue_options options;
    options.how = nowait::mqueue_open::replace;
    options.capacity = 4;
    options.message_bytes = 8;
    auto opened = nowait::posix_mqueue::open(name, options);
    if (!opened && opened.error() == std::errc::function_not_supported) {
        WARN("no POSIX queues here");
        return;
    }
    REQUIRE(opened.has_value());
    REQUIRE(nowait::posix_mqueue::unlink(name).has_value());
    nowait::asio_posix_mqueue queue(world.executor(), std::move(*opened));
    std::array<char, 8> space{};
    const auto room = net::buffer(space);
    const auto word = net::buffer("x", 1);
    int rounds = 0;

    SECTION("use_future and detached, from another thread") {
        auto keep = std::optional(net::make_work_guard(world.context()));
        std::thread user([&] {
            queue.async_send(word, 3, net::use_future).get();
            queue.async_send(word, 5, net::detached);
            auto urgent = queue.async_receive(room, net::use_future).get();
            auto other = queue.async_receive(room, net::use_future).get();
            rounds = std::get<0>(urgent) == 1 && std::get<1>(urgent) + std::get<1>(other) == 8 ? 1 : 0;
            keep.reset();
        });
        world.run();
        user.join();
        CHECK(rounds == 1);
    }
    SECTION("deferred, as_tuple and groups") {
        auto user = [&]() -> net::awaitable<void> {
            auto later = queue.async_send(word, 1, tests::deferred);
            co_await std::move(later)(net::use_awaitable);
            auto got = co_await queue.async_receive(room, tests::as_tuple(net::use_awaitable));
            CHECK(!std::get<0>(got));
            CHECK(std::get<1>(got) == 1);
            CHECK(std::get<2>(got) == 1);
            ++rounds;
            // (Asio 1.22 does not compile && with a completion of two values.)
            auto all = net::experimental::make_parallel_group(queue.async_receive(room, tests::deferred),
                                                              queue.async_send(word, 2, tests::deferred));
            auto both = co_await all.async_wait(net::experimental::wait_for_all(), net::use_awaitable);
            CHECK(std::get<3>(both) == 2);
            ++rounds;
            // The loser of a race has taken nothing.
            net::steady_timer timer(co_await net::this_coro::executor, std::chrono::milliseconds(1));
            auto group = net::experimental::make_parallel_group(queue.async_receive(room, tests::deferred),
                                                                timer.async_wait(tests::deferred));
            auto outcome = co_await group.async_wait(net::experimental::wait_for_one(), net::use_awaitable);
            CHECK(std::get<1>(outcome) == net::error::operation_aborted);
            co_await queue.async_send(word, 7, net::use_awaitable);
            auto left = co_await queue.async_receive(room, net::use_awaitable);
            CHECK(std::get<1>(left) == 7);
            ++rounds;
        };
        net::co_spawn(world.executor(), user, [](std::exception_ptr error) {
            if (error)
                std::rethrow_exception(error);
        });
        world.run();
        CHECK(rounds == 3);
    }
    SECTION("use_task") {
        auto user = [&]() -> nowait::task<void> {
            auto sent = co_await queue.async_send(word, 4, nowait::use_task);
            CHECK(sent.has_value());
            auto got = co_await queue.async_receive(room, nowait::use_task);
            CHECK(std::get<0>(got.value()) == 1);
            CHECK(std::get<1>(got.value()) == 4);
            auto waits = queue.async_receive(room, nowait::use_task);
            auto late = co_await nowait::with_timeout(std::move(waits), std::chrono::milliseconds(1));
            CHECK(late.error() == std::errc::timed_out);
            ++rounds;
        };
        auto running = world.runtime().spawn(user());
        world.run();
        CHECK(running.done());
        CHECK(rounds == 1);
    }
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
    queue.async_receive(net::mutable_buffer(nullptr, 8), note);
    world.run();
    CHECK(outcome == net::error::fault);
    outcome = {};
    queue.async_send(net::const_buffer(nullptr, 8), 0, note);
    world.run();
    CHECK(outcome == net::error::fault);
    using wait = net::posix::descriptor_base;
    queue.async_wait(wait::wait_write, note);
    world.run();
    CHECK(!outcome);
}
