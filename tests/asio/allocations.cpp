// Allocations per operation: no more than Asio's own objects make, with the default (recycling) allocator.
#include "asio_support.hpp"
#include "catch.hpp"
#include "counting_new.hpp"

#include <asio/experimental/channel.hpp>
#include <asio/readable_pipe.hpp>
#include <asio/writable_pipe.hpp>
#include <unistd.h>

using tests::host_world;
using tests::own_world;

namespace {

constexpr int rounds = 1'000;

/// A round is a receive that waits, the send that serves it, and a receive that finds what it wants.
template <class Objects>
struct rally {
    Objects& objects;
    int left;
    void receive_twice() {
        objects.receive([this](error_code, auto&&) {
            objects.send([this](error_code, auto...) {
                objects.receive([this](error_code, auto&&) {
                    if (--left > 0)
                        start();
                });
            });
        });
    }
    void start() {
        receive_twice();
        objects.send([](error_code, auto...) {});
    }
};

template <class Objects, class Run>
std::size_t cost(Objects& objects, Run run) {
    rally<Objects> warm{objects, rounds};
    warm.start();
    run();
    rally<Objects> counted{objects, rounds};
    const std::size_t before = nowait_test::allocations();
    counted.start();
    run();
    return nowait_test::allocations() - before;
}

struct asio_pipe : tests::stream_pair<net::readable_pipe, net::writable_pipe> {
    explicit asio_pipe(const net::any_io_executor& ex)
        : stream_pair{net::readable_pipe(ex), net::writable_pipe(ex)} {
        net::connect_pipe(in, out);
    }
};
struct asio_own_channel {
    net::experimental::channel<void(error_code, int)> channel;
    explicit asio_own_channel(const net::any_io_executor& ex) : channel(ex, 4) {}
    template <class Token>
    auto receive(Token&& token) {
        return channel.async_receive(std::forward<Token>(token));
    }
    template <class Token>
    auto send(Token&& token) {
        return channel.async_send(error_code(), 7, std::forward<Token>(token));
    }
};

template <class Objects>
std::size_t cost_in_asio() {
    net::io_context context{1};
    Objects objects(context.get_executor());
    return cost(objects, [&] {
        context.restart();
        context.run();
    });
}

} // namespace

TEMPLATE_TEST_CASE("no more allocations than Asio's own objects", "", own_world, host_world) {
    TestType world;
    auto run = [&] { world.run(); };
    tests::kernel_pipe pipe(world.executor());
    CHECK(cost(pipe, run) <= cost_in_asio<asio_pipe>() + 8); // what begins and ends a run
    tests::fifo_channel channel(world.executor());
    CHECK(cost(channel, run) <= cost_in_asio<asio_own_channel>() + 8);
    // In numbers: none for each operation.
    CHECK(cost(pipe, run) < rounds / 10);
    CHECK(cost(channel, run) < rounds / 10);
}
