// use_awaitable on channels: an operation that can go ahead at once does not suspend the awaiting coroutine. What that may not
// change: the stack, fairness, executors, errors, allocations.
#include "asio_support.hpp"
#include "catch.hpp"
#include "counting_new.hpp"
#include "stack_probe.hpp"

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

using tests::host_world;
using tests::own_world;

namespace {

void rethrow(const std::exception_ptr& error) {
    if (error)
        std::rethrow_exception(error);
}

} // namespace

TEMPLATE_TEST_CASE("a coroutine whose sends and receives need not wait goes on, but not for ever", "",
                   own_world, host_world) {
    TestType world;
    nowait::asio_channel<int> channel(world.executor(), 4);
    constexpr int rounds = 2'000;
    int done = 0;
    std::vector<int> seen; // by another handler, each time that it gets a turn
    auto user = [&]() -> net::awaitable<void> {
        for (; done < rounds; ++done) {
            co_await channel.async_send(done, net::use_awaitable);
            const int got = co_await channel.async_receive(net::use_awaitable);
            CHECK(got == done);
        }
    };
    std::function<void()> other = [&] {
        seen.push_back(done);
        if (done < rounds)
            net::post(nowait::asio_executor(nowait::asio_detail::core_of(world.context())), other);
    };
    net::co_spawn(world.executor(), user, rethrow);
    net::post(world.executor(), other);
    world.run();
    CHECK(done == rounds);
    int longest = 0;
    for (std::size_t i = 1; i < seen.size(); ++i)
        longest = std::max(longest, seen[i] - seen[i - 1]);
    CHECK(longest > 1);   // two awaits were not two turns
    CHECK(longest <= 65); // the budget of a turn is 128 operations
}

TEMPLATE_TEST_CASE("a million awaits that need not wait use constant stack", "", own_world, host_world) {
    TestType world;
    nowait::asio_mqueue_channel<int> channel(world.executor(), 4);
#if defined(NDEBUG)
    constexpr int rounds = 500'000; // of two awaits
#else
    constexpr int rounds = 20'000;
#endif
    nowait_test::stack_probe probe;
    auto user = [&]() -> net::awaitable<void> {
        for (int i = 0; i < rounds; ++i) {
            co_await channel.async_send(i, 3, net::use_awaitable);
            probe.touch();
            auto got = co_await channel.async_receive(net::use_awaitable);
            probe.touch();
            if (got.value != i || got.priority != 3)
                FAIL_CHECK("another message");
        }
    };
    net::co_spawn(world.executor(), user, rethrow);
    world.run();
    CHECK(probe.depth() < 16'384);
}

TEMPLATE_TEST_CASE("producer and consumer on strands: order, and each on its own", "", own_world,
                   host_world) {
    TestType world;
    for (const std::uint64_t capacity : {0u, 1u, 3u, 64u}) {
        nowait::asio_channel<std::unique_ptr<int>> channel(world.executor(), capacity);
        auto one = net::make_strand(world.executor());
        auto two = net::make_strand(world.executor());
        constexpr int messages = 1'000;
        int received = 0;
        int astray = 0;
        auto producer = [&]() -> net::awaitable<void> {
            for (int i = 0; i < messages; ++i) {
                auto owned = std::make_unique<int>(i);
                co_await channel.async_send(std::move(owned), net::use_awaitable);
                astray += !one.running_in_this_thread();
                if (i % 100 == 99) // the other one catches up
                    co_await net::post(net::use_awaitable);
            }
            channel.close();
        };
        auto consumer = [&]() -> net::awaitable<void> {
            for (;;) {
                std::unique_ptr<int> got;
                try {
                    got = co_await channel.async_receive(net::use_awaitable);
                } catch (const nowait::asio_detail::system_error& error) {
                    CHECK(error.code() == net::experimental::error::channel_closed);
                    break;
                }
                astray += !two.running_in_this_thread();
                CHECK(*got == received);
                ++received;
            }
            // An error that no attempt has to wait for.
            bool refused = false;
            try {
                co_await channel.async_send(nullptr, net::use_awaitable);
            } catch (const nowait::asio_detail::system_error& error) {
                refused = error.code() == net::experimental::error::channel_closed;
            }
            CHECK(refused);
        };
        net::co_spawn(two, consumer, rethrow);
        net::co_spawn(one, producer, rethrow);
        world.run();
        CHECK(received == messages);
        CHECK(astray == 0);
    }
}

TEMPLATE_TEST_CASE("awaits of both kinds allocate nothing once they are warm", "", own_world, host_world) {
    TestType world;
    nowait::asio_channel<int> channel(world.executor(), 8);
    constexpr int messages = 2'000;
    int got = 0;
    auto producer = [&]() -> net::awaitable<void> {
        for (int i = 0; i < messages; ++i)
            co_await channel.async_send(i, net::use_awaitable);
    };
    auto consumer = [&]() -> net::awaitable<void> {
        for (int i = 0; i < messages; ++i)
            got += co_await channel.async_receive(net::use_awaitable) == i;
    };
    auto run = [&] {
        net::co_spawn(world.executor(), consumer, rethrow);
        net::co_spawn(world.executor(), producer, rethrow);
        const std::size_t before = nowait_test::allocations();
        world.run();
        return nowait_test::allocations() - before;
    };
    static_cast<void>(run());
    CHECK(run() < messages / 10);
    CHECK(got == 2 * messages);
}

TEST_CASE("an awaitable that was made in a turn may be awaited on another thread") {
    own_world world;
    auto keep = std::optional(net::make_work_guard(world.context()));
    nowait::asio_channel<int> channel(world.executor(), 8);
    net::thread_pool pool(1);
    bool elsewhere = false;
    int got = 0;
    auto receive_there = [&](net::awaitable<int> receiving) -> net::awaitable<void> {
        got = co_await std::move(receiving);
        elsewhere = pool.get_executor().running_in_this_thread();
        keep.reset();
    };
    net::post(world.executor(), [&] {
        channel.async_send(5, net::detached);
        auto receiving = channel.async_receive(net::use_awaitable);
        net::co_spawn(pool, receive_there(std::move(receiving)), rethrow);
    });
    world.run();
    pool.join();
    CHECK(got == 5);
    CHECK(elsewhere);
}
