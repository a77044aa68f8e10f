// Cancellation: by slot, by object, by group, from the loop's thread and from others, before, after and during completion.
#include "asio_support.hpp"
#include "catch.hpp"

#include <atomic>
#include <thread>

using tests::every_object;
using tests::host_world;
using tests::own_world;

TEMPLATE_LIST_TEST_CASE("a slot cancels what waits, with each type, and only posts", "", every_object) {
    TestType f;
    for (const auto type : {net::cancellation_type::terminal, net::cancellation_type::partial,
                            net::cancellation_type::total, net::cancellation_type::all}) {
        net::cancellation_signal signal;
        error_code outcome;
        int called = 0;
        auto receive = net::bind_cancellation_slot(signal.slot(), [&](error_code error, auto&&) {
            outcome = error;
            ++called;
        });
        f.objects.receive(std::move(receive));
        net::post(f.world.executor(), [&] {
            signal.emit(net::cancellation_type::none); // asks for nothing
            signal.emit(type);
            signal.emit(type); // once is enough
            CHECK(called == 0);
        });
        f.world.run();
        CHECK(called == 1);
        CHECK(outcome == net::error::operation_aborted);
        signal.emit(type); // the slot keeps its handler: it knows that there is nothing left
    }
    // Nothing was taken, nothing is left behind.
    bool right = false;
    f.objects.send([](error_code, auto...) {});
    f.objects.receive([&](error_code error, auto got) { right = !error && f.objects.right(got); });
    f.world.run();
    CHECK(right);
}

TEMPLATE_LIST_TEST_CASE("a cancel that meets the completion, in both orders", "", every_object) {
    TestType f;
    net::cancellation_signal signal;
    error_code outcome;
    int called = 0;
    auto receive = [&] {
        f.objects.receive(net::bind_cancellation_slot(signal.slot(), [&](error_code error, auto&&) {
            outcome = error;
            ++called;
        }));
    };
    SECTION("completed, then cancelled before the handler has run") {
        f.objects.send([&](error_code, auto...) {
            receive(); // ends inline: there is something
            signal.emit(net::cancellation_type::terminal);
        });
        f.world.run();
        CHECK(called == 1);
        CHECK(!outcome);
    }
    SECTION("cancelled, then something comes before the cancel is looked at") {
        receive();
        net::post(f.world.executor(), [&] {
            net::post(f.world.executor(), [&] {
                signal.emit(net::cancellation_type::terminal);
                f.objects.send([](error_code, auto...) {});
            });
        });
        f.world.run();
        REQUIRE(called == 1);
        // Whichever was first: a receive that was aborted has taken nothing.
        if (outcome) {
            CHECK(outcome == net::error::operation_aborted);
            receive();
            f.world.run();
            CHECK(called == 2);
        }
        CHECK(!outcome);
    }
    SECTION("cancelled before it was begun") {
        receive();
        signal.emit(net::cancellation_type::total);
        f.world.run();
        CHECK(called == 1);
        CHECK(outcome == net::error::operation_aborted);
    }
    SECTION("the signal goes with the operation pending, and another one takes its place in the slot") {
        receive();
        error_code second;
        f.objects.receive(net::bind_cancellation_slot(signal.slot(), [&](error_code error, auto&&) {
            second = error;
            ++called;
        }));
        net::post(f.world.executor(), [&] {
            net::post(f.world.executor(), [&] {
                signal.emit(net::cancellation_type::terminal); // reaches the second one alone
                net::post(f.world.executor(), [&] { f.objects.send([](error_code, auto...) {}); });
            });
        });
        f.world.run();
        CHECK(called == 2);
        CHECK(!outcome);
        CHECK(second == net::error::operation_aborted);
    }
}

TEMPLATE_LIST_TEST_CASE("an object cancels what waits in it", "", every_object) {
    TestType f;
    f.objects.cancel(); // nothing pending: nothing happens
    int aborted = 0;
    auto count = [&](error_code error, auto&&) { aborted += error == net::error::operation_aborted ? 1 : 0; };
    f.objects.receive(count);
    f.objects.receive(count);
    SECTION("on the runtime's thread") {
        net::post(f.world.executor(), [&] { f.objects.cancel(); });
        f.world.run();
    }
    SECTION("from another thread") {
        std::thread elsewhere([&] { f.objects.cancel(); });
        elsewhere.join();
        f.world.run();
    }
    CHECK(aborted == 2);
}

TEMPLATE_LIST_TEST_CASE("cancellation from another strand against natural completion", "", every_object) {
    TestType f;
    constexpr int rounds = 20'000; // in five variants
    auto keep = std::optional(net::make_work_guard(f.world.context()));
    net::thread_pool pool(4);
    auto strand = net::make_strand(pool.get_executor());
    auto other = net::make_strand(pool.get_executor());
    int astray = 0;
    int received = 0;
    int aborted = 0;
    int sent = 0;
    // On its strand: a receive with a timer of another strand in one group; whichever is first cancels the other.
    net::co_spawn(
        strand,
        [&]() -> net::awaitable<void> {
            for (int i = 0; i < rounds; ++i) {
                if (i % 2 == 0) {
                    co_await f.objects.send(net::use_awaitable);
                    ++sent;
                }
                net::steady_timer timer(other, std::chrono::microseconds(i % 4));
                auto receive = f.objects.receive(tests::deferred);
                auto expire = timer.async_wait(net::bind_executor(other, tests::deferred));
                auto group = net::experimental::make_parallel_group(std::move(receive), std::move(expire));
                auto result =
                    co_await group.async_wait(net::experimental::wait_for_one(), net::use_awaitable);
                if (!strand.running_in_this_thread())
                    ++astray;
                if (std::get<1>(result)) {
                    ++aborted;
                } else {
                    ++received;
                }
            }
        },
        [&](std::exception_ptr error) {
            if (error)
                ++astray;
            keep.reset();
        });
    f.world.run();
    pool.join();
    CHECK(astray == 0);
    CHECK(received + aborted == rounds);
    CHECK(received <= sent);
    // What was not received is still there: an aborted receive has taken nothing.
    int left = 0;
    std::function<void()> drain = [&] {
        f.objects.receive([&](error_code error, auto&&) {
            if (!error) {
                ++left;
                drain();
            }
        });
    };
    net::post(f.world.executor(), [&] {
        drain();
        f.objects.end();
    });
    f.world.run();
    CHECK(received + left == sent);
}
