#include "pool.hpp"

#include <cstddef>
#include <memory>

#include <asio.hpp>
#include <unistd.h>

namespace bench::pool {
namespace {

/// An io_context that waits in its reactor, as in every program that does input and output, and a pool.
struct bed {
    asio::io_context context{1};
    asio::thread_pool pool{threads};
    asio::posix::stream_descriptor never{context};
    int ends[2] = {-1, -1};
    char byte = 0;
    bed() {
        if (::pipe(ends) == 0)
            never.assign(ends[0]);
        wait();
    }
    ~bed() {
        never.close();
        ::close(ends[1]);
        pool.join();
    }
    bed(const bed&) = delete;
    bed& operator=(const bed&) = delete;
    void wait() {
        never.async_read_some(asio::buffer(&byte, 1), [](asio::error_code, std::size_t) {});
    }

    std::size_t running = 0;
    void ended() {
        if (--running == 0)
            context.stop();
    }
    measurement run(std::size_t rounds, std::size_t in_flight) {
        const stopwatch clock;
        context.restart();
        context.run();
        return {rounds * in_flight, clock.elapsed()};
    }
};

/// One job after the other, by handlers.
struct chain {
    bed& on;
    std::size_t left;
    std::size_t done = 0;

    void next() {
        if (left-- == 0) {
            on.ended();
            return;
        }
        asio::post(on.pool, [this] {
            work(done);
            asio::post(on.context, [this] { next(); });
        });
    }
};

using executor = asio::io_context::executor_type;
using coroutine = asio::awaitable<void, executor>;

coroutine jobs(bed& on, std::size_t rounds) {
    std::size_t done = 0;
    const asio::use_awaitable_t<executor> token;
    for (std::size_t i = 0; i < rounds; ++i) {
        co_await asio::async_initiate<const asio::use_awaitable_t<executor>, void()>(
            [&on, &done](auto handler) {
                asio::post(on.pool, [&on, &done, handler = std::move(handler)]() mutable {
                    work(done);
                    asio::post(on.context, std::move(handler));
                });
            },
            token);
    }
    on.ended();
}

} // namespace

contender asio_handlers(std::size_t in_flight) {
    return {"Asio thread_pool, handlers", [in_flight]() -> slice {
                auto b = std::make_shared<bed>();
                return [b, in_flight](std::size_t rounds) -> measurement {
                    std::vector<chain> chains(in_flight, chain{*b, rounds});
                    b->running = in_flight;
                    for (chain& each : chains)
                        asio::post(b->context, [&each] { each.next(); });
                    return b->run(rounds, in_flight);
                };
            }};
}

contender asio_coroutines(std::size_t in_flight) {
    return {"Asio thread_pool, coroutines", [in_flight]() -> slice {
                auto b = std::make_shared<bed>();
                return [b, in_flight](std::size_t rounds) -> measurement {
                    b->running = in_flight;
                    for (std::size_t i = 0; i < in_flight; ++i)
                        asio::co_spawn(b->context, jobs(*b, rounds), asio::detached);
                    return b->run(rounds, in_flight);
                };
            }};
}

} // namespace bench::pool
