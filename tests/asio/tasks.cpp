// use_task: Asio's operations in nowait tasks.
#include "asio_support.hpp"
#include "catch.hpp"

#include <string_view>
#include <thread>

using tests::host_world;
using tests::own_world;
using namespace std::chrono_literals;

namespace {

nowait::task<int> echo_once(net::ip::tcp::acceptor& acceptor) {
    auto accepted = co_await acceptor.async_accept(nowait::use_task);
    if (!accepted)
        co_return -1;
    net::ip::tcp::socket peer = std::move(*accepted);
    std::array<char, 64> buffer{};
    int total = 0;
    for (;;) {
        auto got = co_await peer.async_read_some(net::buffer(buffer), nowait::use_task);
        if (!got)
            co_return -2;
        if (*got == 0)
            co_return total;
        total += static_cast<int>(*got);
        auto part = net::buffer(buffer.data(), *got);
        auto wrote = co_await net::async_write(peer, part, nowait::use_task_progress);
        if (!wrote.ok() || wrote.bytes != *got)
            co_return -3;
    }
}

nowait::task<std::string> ask(net::ip::tcp::endpoint where, net::any_io_executor executor) {
    net::ip::tcp::socket socket(executor);
    co_await socket.async_connect(where, nowait::use_task_exceptions);
    std::string_view question = "hello";
    co_await net::async_write(socket, net::buffer(question), nowait::use_task_exceptions);
    std::string answer(5, ' ');
    auto whole = co_await net::async_read(socket, net::buffer(answer), nowait::use_task);
    if (!whole)
        co_return "?";
    co_return answer;
}

net::ip::tcp::acceptor listener(const net::any_io_executor& executor) {
    return net::ip::tcp::acceptor(executor, net::ip::tcp::endpoint(net::ip::address_v4::loopback(), 0));
}

} // namespace

TEMPLATE_TEST_CASE("sockets in tasks", "", own_world, host_world) {
    TestType world;
    auto acceptor = listener(world.executor());
    auto server = world.runtime().spawn(echo_once(acceptor));
    auto client = world.runtime().spawn(ask(acceptor.local_endpoint(), world.executor()));
    int served = 0;
    std::string answer;
    auto watcher = world.runtime().spawn([&]() -> nowait::task<void> {
        auto n = co_await server.join();
        served = n.value();
        auto text = co_await client.join();
        answer = text.value();
    });
    world.run();
    CHECK(served == 5);
    CHECK(answer == "hello");
}

TEMPLATE_TEST_CASE("a stop cancels what is awaited, and a time-out too", "", own_world, host_world) {
    TestType world;
    auto acceptor = listener(world.executor());
    std::error_code bounded;
    std::error_code stopped;
    auto waiting = world.runtime().spawn([&]() -> nowait::task<void> {
        auto accepting = acceptor.async_accept(nowait::use_task);
        auto first = co_await nowait::with_timeout(std::move(accepting), 1ms);
        bounded = first ? std::error_code() : first.error();
        nowait::current_remote().request_stop();
        net::steady_timer timer(world.executor(), 1h);
        auto second = co_await timer.async_wait(nowait::use_task);
        stopped = second ? std::error_code() : second.error();
    });
    world.run();
    CHECK(bounded == std::errc::timed_out);
    CHECK(stopped == std::errc::operation_canceled);
}

TEST_CASE("a runtime of its own awaits the sockets of an io_context on another thread") {
    net::io_context context;
    auto guard = std::optional(net::make_work_guard(context));
    std::thread elsewhere([&] { context.run(); });
    auto acceptor = listener(context.get_executor());
    auto made = nowait::runtime::create();
    REQUIRE(made.has_value());
    const auto here = std::this_thread::get_id();
    bool at_home = true;
    int served = 0;
    auto server = made->spawn([&]() -> nowait::task<void> {
        served = co_await echo_once(acceptor);
        at_home = at_home && std::this_thread::get_id() == here;
    });
    auto answer = made->run(ask(acceptor.local_endpoint(), context.get_executor()));
    REQUIRE(answer.has_value());
    CHECK(*answer == "hello");
    CHECK(served == 5);
    // Stops, a thousand times: the emission goes to the other thread, and meets completions there.
    int canceled = 0;
    auto stopping = [&]() -> nowait::task<void> {
        for (int i = 0; i < 1000; ++i) {
            net::steady_timer timer(context, std::chrono::microseconds(i % 50));
            auto waits = timer.async_wait(nowait::use_task);
            auto outcome = co_await nowait::with_timeout(std::move(waits), std::chrono::microseconds(20));
            at_home = at_home && std::this_thread::get_id() == here;
            if (!outcome) {
                CHECK(outcome.error() == std::errc::timed_out);
                ++canceled;
            }
        }
    };
    REQUIRE(made->run(stopping()).has_value());
    CHECK(at_home);
    guard.reset();
    elsewhere.join();
}

TEST_CASE("tasks and Asio coroutines await each other through our objects") {
    own_world world;
    auto numbers = nowait::channel<int>::create(2).value();
    nowait::asio_channel<int> end(world.executor(), numbers);
    int sum = 0;
    net::co_spawn(
        world.executor(),
        [&]() -> net::awaitable<void> {
            for (int i = 1; i <= 100; ++i)
                co_await end.async_send(i, net::use_awaitable);
            end.close();
        },
        net::detached);
    auto consumer = world.runtime().spawn([&]() -> nowait::task<void> {
        for (;;) {
            auto got = co_await numbers.receive();
            if (!got)
                co_return;
            sum += *got;
        }
    });
    world.run();
    CHECK(sum == 5050);
}

TEST_CASE("an operation whose handler is destroyed uncalled ends with operation_canceled") {
    auto made = nowait::runtime::create();
    REQUIRE(made.has_value());
    auto drops = [](auto handler) { static_cast<void>(handler); };
    auto throws = [](auto) { throw std::runtime_error("no"); };
    std::error_code outcome;
    bool thrown = false;
    auto waiting = [&]() -> nowait::task<void> {
        auto dropped =
            net::async_initiate<const nowait::use_task_t<>, void(error_code)>(drops, nowait::use_task);
        auto got = co_await std::move(dropped);
        outcome = got ? std::error_code() : got.error();
        auto failing =
            net::async_initiate<const nowait::use_task_t<>, void(error_code)>(throws, nowait::use_task);
        try {
            auto never = co_await std::move(failing);
            static_cast<void>(never);
        } catch (const std::runtime_error&) {
            thrown = true;
        }
    };
    REQUIRE(made->run(waiting()).has_value());
    CHECK(outcome == std::errc::operation_canceled);
    CHECK(thrown);
}

TEST_CASE("what a completion carries decides what is awaited") {
    own_world world;
    auto user = [&]() -> nowait::task<void> {
        auto posted = net::post(world.executor(), nowait::use_task);
        static_assert(std::is_void_v<typename decltype(posted)::value_type>);
        co_await std::move(posted);
        auto pair = net::async_initiate<const nowait::use_task_t<>, void(error_code, int, std::string)>(
            [](auto handler) { std::move(handler)(error_code(), 3, "three"); }, nowait::use_task);
        auto both = co_await std::move(pair);
        CHECK(std::get<0>(*both) == 3);
        CHECK(std::get<1>(*both) == "three");
        auto awaited =
            net::co_spawn(world.executor(), []() -> net::awaitable<int> { co_return 5; }, nowait::use_task);
        const int value = co_await std::move(awaited);
        CHECK(value == 5);
        auto throwing = net::co_spawn(
            world.executor(),
            []() -> net::awaitable<int> {
                throw std::runtime_error("five");
                co_return 5;
            },
            nowait::use_task);
        bool thrown = false;
        try {
            const int none = co_await std::move(throwing);
            static_cast<void>(none);
        } catch (const std::runtime_error&) {
            thrown = true;
        }
        CHECK(thrown);
    };
    REQUIRE(world.both.run(user()).has_value());
}
