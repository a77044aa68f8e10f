// Every object with every completion token, on a runtime that owns its io_context and on one that is a guest.
#include "asio_support.hpp"
#include "catch.hpp"

#include <future>
#include <thread>

using namespace net::experimental::awaitable_operators;
using tests::every_object;

TEMPLATE_LIST_TEST_CASE("callbacks", "", every_object) {
    TestType f;
    auto& objects = f.objects;
    int sent = 0;
    int received = 0;
    // A receive that waits and is served, then one that finds what it wants at once, then the end.
    objects.receive([&](error_code error, auto got) {
        CHECK(!error);
        CHECK(objects.right(got));
        ++received;
        objects.send([&](error_code failed, auto...) {
            CHECK(!failed);
            ++sent;
            objects.receive([&](error_code again, auto second) {
                CHECK(!again);
                CHECK(objects.right(second));
                ++received;
                objects.end();
                objects.receive([&](error_code ended, auto) {
                    CHECK(ended == objects.ended());
                    ++received;
                });
                CHECK(received == 2); // never inside the initiation
            });
            CHECK(received == 1);
        });
        CHECK(sent <= 1);
    });
    objects.send([&](error_code error, auto...) {
        CHECK(!error);
        ++sent;
    });
    CHECK(sent == 0);
    f.world.run();
    CHECK(sent == 2);
    CHECK(received == 3);
}

TEMPLATE_LIST_TEST_CASE("use_future and detached, from another thread", "", every_object) {
    TestType f;
    bool right = false;
    auto keep = std::optional(net::make_work_guard(f.world.context()));
    std::thread user([&] {
        auto received = f.objects.receive(net::use_future);
        auto sent = f.objects.send(net::use_future);
        static_cast<void>(sent.get());
        right = f.objects.right(received.get());
        f.objects.send(net::detached);
        auto last = f.objects.receive(net::use_future);
        right = right && f.objects.right(last.get());
        keep.reset();
    });
    f.world.run();
    user.join();
    CHECK(right);
}

TEMPLATE_LIST_TEST_CASE("use_awaitable, as_tuple, deferred and the operators", "", every_object) {
    TestType f;
    auto& objects = f.objects;
    int rounds = 0;
    auto user = [&]() -> net::awaitable<void> {
        // One after the other.
        co_await objects.send(net::use_awaitable);
        auto first = co_await objects.receive(net::use_awaitable);
        CHECK(objects.right(first));
        ++rounds;
        // Both at once.
        auto receiving = objects.receive(net::use_awaitable);
        auto sending = objects.send(net::use_awaitable);
        auto both = co_await (std::move(receiving) && std::move(sending));
        (void)both;
        ++rounds;
        // Errors as values.
        objects.send(net::detached);
        auto tuple = co_await objects.receive(tests::as_tuple(net::use_awaitable));
        CHECK(!std::get<0>(tuple));
        CHECK(objects.right(std::get<1>(tuple)));
        ++rounds;
        // Described now, started by the await.
        auto later = objects.send(tests::deferred);
        auto waiting = objects.receive(tests::deferred);
        co_await std::move(later)(net::use_awaitable);
        auto third = co_await std::move(waiting)(net::use_awaitable);
        CHECK(objects.right(third));
        ++rounds;
        // The loser of a race has taken nothing.
        net::steady_timer timer(co_await net::this_coro::executor, std::chrono::milliseconds(1));
        auto nothing = objects.receive(net::use_awaitable);
        auto expiry = timer.async_wait(net::use_awaitable);
        auto winner = co_await (std::move(nothing) || std::move(expiry));
        CHECK(winner.index() == 1);
        co_await objects.send(net::use_awaitable);
        auto fourth = co_await objects.receive(net::use_awaitable);
        CHECK(objects.right(fourth));
        ++rounds;
        // An error as an exception.
        objects.end();
        try {
            auto none = co_await objects.receive(net::use_awaitable);
            (void)none;
            FAIL_CHECK("no error at the end");
        } catch (const nowait::asio_detail::system_error& error) {
            CHECK(error.code() == objects.ended());
            ++rounds;
        }
    };
    net::co_spawn(f.world.executor(), user, [](std::exception_ptr error) {
        if (error)
            std::rethrow_exception(error);
    });
    f.world.run();
    CHECK(rounds == 6);
}

TEMPLATE_LIST_TEST_CASE("a parallel group", "", every_object) {
    TestType f;
    auto& objects = f.objects;
    bool done = false;
    net::experimental::make_parallel_group(objects.receive(tests::deferred), objects.send(tests::deferred))
        .async_wait(net::experimental::wait_for_all(),
                    [&](auto, error_code a, auto got, error_code b, auto...) {
                        CHECK(!a);
                        CHECK(objects.right(got));
                        CHECK(!b);
                        done = true;
                    });
    f.world.run();
    CHECK(done);
}
