#include "baselines.hpp"
#include "bench/support/keep.hpp"
#include "threads.hpp"

#include <memory>

#include <asio.hpp>
#include <asio/experimental/channel.hpp>
#include <asio/experimental/concurrent_channel.hpp>

namespace bench::queues {
namespace {

// The concrete executor spares Asio the type-erased one in every operation.
using executor = asio::io_context::executor_type;
using token = asio::use_awaitable_t<executor>;
using coroutine = asio::awaitable<void, executor>;
using ints = asio::experimental::channel<executor, void(asio::error_code, int)>;
using shared_ints = asio::experimental::concurrent_channel<executor, void(asio::error_code, int)>;

template <class Channel>
coroutine sends(Channel& to, std::size_t messages) {
    for (std::size_t i = 0; i < messages; ++i) {
        co_await to.async_send(asio::error_code{}, static_cast<int>(i), token{});
    }
}

template <class Channel>
coroutine receives(Channel& from, std::size_t messages) {
    for (std::size_t i = 0; i < messages; ++i) {
        keep(co_await from.async_receive(token{}));
    }
}

} // namespace

contender asio_ints() {
    struct bed {
        asio::io_context context{1};
        ints channel{context.get_executor(), int_depth};
    };
    return {"asio channel", [] {
                auto b = std::make_shared<bed>();
                return [b](std::size_t rounds) -> measurement {
                    const stopwatch clock;
                    asio::co_spawn(b->context, sends(b->channel, rounds), asio::detached);
                    asio::co_spawn(b->context, receives(b->channel, rounds), asio::detached);
                    b->context.restart();
                    b->context.run();
                    return {rounds, clock.elapsed()};
                };
            }};
}

contender asio_cross(bool two_cpus, std::shared_ptr<cpu_time> used) {
    return {"asio concurrent_channel", [=]() -> slice {
                return [=](std::size_t rounds) {
                    asio::io_context sending{1};
                    asio::io_context receiving{1};
                    shared_ints channel(receiving.get_executor(), int_depth);
                    asio::co_spawn(sending, sends(channel, rounds), asio::detached);
                    asio::co_spawn(receiving, receives(channel, rounds), asio::detached);
                    return on_two_threads(
                        two_cpus, rounds, *used, [&] { sending.run(); }, [&] { receiving.run(); });
                };
            }};
}

} // namespace bench::queues
