// bench_asio: our objects and our executor against Asio's own, with the same tokens and the same code.
//
// `_own`: on asio_executor, against a plain io_context. `_host`: our runtime as the guest of an io_context, against that alone.
#include "bench/support/keep.hpp"
#include "bench/support/process.hpp"
#include "bench/support/suite.hpp"

#include <nowait/asio.hpp>
#include <nowait/nowait.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include <asio.hpp>
#include <asio/experimental/channel.hpp>
#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace {

using namespace bench;

constexpr std::size_t pipe_count = 128;
constexpr std::size_t channel_depth = 64;

void expect(std::size_t result, std::size_t wanted, const char* what) {
    if (result != wanted) {
        std::fprintf(stderr, "%s: %zu\n", what, result);
        std::abort();
    }
}

// The three worlds: an executor, its objects, and a way to run. Concrete executors everywhere: they spare everybody the
// type-erased one in each operation.
struct asio_world {
    using executor = asio::io_context::executor_type;
    using reader = asio::basic_readable_pipe<executor>;
    using writer = asio::basic_writable_pipe<executor>;
    using channel = asio::experimental::channel<executor, void(asio::error_code, int)>;

    asio::io_context context{1}; // the hint says that one thread runs it
    [[nodiscard]] executor get_executor() { return context.get_executor(); }
    void run() {
        context.restart();
        context.run();
    }
    void add_pipe(std::deque<reader>& readers, std::deque<writer>& writers) {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0)
            std::abort();
        readers.emplace_back(get_executor(), ends[0]);
        writers.emplace_back(get_executor(), ends[1]);
    }
    static auto send(channel& to, int value, auto&& token) {
        return to.async_send(asio::error_code(), value, std::forward<decltype(token)>(token));
    }
};
template <class Executor>
struct our_objects {
    using executor = Executor;
    using reader = nowait::basic_asio_readable_pipe<executor>;
    using writer = nowait::basic_asio_writable_pipe<executor>;
    using channel = nowait::asio_channel<int, executor>;

    static void add_pipe_to(const executor& where, std::deque<reader>& readers, std::deque<writer>& writers) {
        auto made = nowait::make_pipe();
        if (!made)
            std::abort();
        readers.emplace_back(where, std::move(made->reader));
        writers.emplace_back(where, std::move(made->writer));
    }
    static auto send(channel& to, int value, auto&& token) {
        return to.async_send(value, std::forward<decltype(token)>(token));
    }
};
struct own_world : our_objects<nowait::asio_executor> {
    nowait::asio_runtime both;
    [[nodiscard]] executor get_executor() { return both.get_executor(); }
    void run() {
        if (!both.run())
            std::abort();
    }
    void add_pipe(std::deque<reader>& readers, std::deque<writer>& writers) {
        add_pipe_to(get_executor(), readers, writers);
    }
};
struct host_world : our_objects<asio::io_context::executor_type> {
    asio::io_context context{1};
    nowait::asio_guest guest{context};
    [[nodiscard]] executor get_executor() { return context.get_executor(); }
    void run() {
        context.restart();
        context.run();
    }
    void add_pipe(std::deque<reader>& readers, std::deque<writer>& writers) {
        add_pipe_to(get_executor(), readers, writers);
    }
};

template <class World>
using coroutine = asio::awaitable<void, typename World::executor>;
template <class World>
inline constexpr asio::use_awaitable_t<typename World::executor> await{};

template <class World>
struct bed {
    explicit bed(std::size_t pipes) {
        for (std::size_t i = 0; i < pipes; ++i)
            world.add_pipe(readers, writers);
    }
    measurement run(std::size_t operations) {
        world.run();
        return {operations, elapsed};
    }

    World world;
    std::deque<typename World::reader> readers;
    std::deque<typename World::writer> writers;
    std::size_t arrived = 0;
    stopwatch clock;
    std::chrono::nanoseconds elapsed{};
};

// --- pipes, data ready: 128 are written to, then 128 are read ---------------------------------------------------------------

template <class World>
coroutine<World> ready(bed<World>& b, std::size_t rounds) {
    char out = 'x';
    char in = 0;
    b.clock.start();
    for (std::size_t round = 0; round < rounds; ++round) {
        for (auto& each : b.writers)
            expect(co_await each.async_write_some(asio::buffer(&out, 1), await<World>), 1, "write");
        for (auto& each : b.readers)
            expect(co_await each.async_read_some(asio::buffer(&in, 1), await<World>), 1, "read");
    }
    keep(in);
    b.elapsed = b.clock.elapsed();
}

template <class World>
contender pipe_ready_use_awaitable(const char* name) {
    return {name, [] {
                auto b = std::make_shared<bed<World>>(pipe_count);
                return [b](std::size_t rounds) {
                    asio::co_spawn(b->world.get_executor(), ready<World>(*b, rounds), asio::detached);
                    return b->run(rounds * pipe_count * 2);
                };
            }};
}

template <class World>
struct ready_chain {
    bed<World>& b;
    std::size_t rounds;
    std::size_t at = 0;
    char out = 'x';
    char in = 0;

    void step() {
        if (at == 2 * pipe_count) {
            at = 0;
            if (--rounds == 0) {
                b.elapsed = b.clock.elapsed();
                return;
            }
        }
        const std::size_t i = at++;
        auto next = [this](asio::error_code error, std::size_t n) {
            expect(error ? 0 : n, 1, "pipe");
            step();
        };
        if (i < pipe_count)
            b.writers[i].async_write_some(asio::buffer(&out, 1), next);
        else
            b.readers[i - pipe_count].async_read_some(asio::buffer(&in, 1), next);
    }
};

template <class World>
contender pipe_ready_callback(const char* name) {
    return {name, [] {
                auto b = std::make_shared<bed<World>>(pipe_count);
                return [b](std::size_t rounds) {
                    ready_chain<World> chain{*b, rounds};
                    asio::post(b->world.get_executor(), [&] {
                        b->clock.start();
                        chain.step();
                    });
                    return b->run(rounds * pipe_count * 2);
                };
            }};
}

// --- pipes, in lock step: 128 readers wait, one writes to each -----------------------------------------------------------

template <class World>
coroutine<World> lockstep_reader(bed<World>& b, typename World::reader& from,
                                 typename World::channel& all_read, std::size_t rounds) {
    char in = 0;
    for (std::size_t round = 0; round < rounds; ++round) {
        expect(co_await from.async_read_some(asio::buffer(&in, 1), await<World>), 1, "read");
        if (++b.arrived == b.readers.size()) {
            b.arrived = 0;
            World::send(all_read, 1, asio::detached); // the writer runs after this reader waits again
        }
    }
}

template <class World>
coroutine<World> lockstep_writer(bed<World>& b, typename World::channel& all_read, std::size_t rounds) {
    char out = 'x';
    b.clock.start();
    for (std::size_t round = 0; round < rounds; ++round) {
        for (auto& each : b.writers)
            expect(co_await each.async_write_some(asio::buffer(&out, 1), await<World>), 1, "write");
        co_await all_read.async_receive(await<World>);
    }
    b.elapsed = b.clock.elapsed();
}

template <class World>
contender pipe_lockstep_use_awaitable(const char* name) {
    return {name, [] {
                auto b = std::make_shared<bed<World>>(pipe_count);
                auto all_read = std::make_shared<typename World::channel>(b->world.get_executor(), 1);
                return [b, all_read](std::size_t rounds) {
                    b->arrived = 0;
                    for (auto& each : b->readers)
                        asio::co_spawn(b->world.get_executor(),
                                       lockstep_reader<World>(*b, each, *all_read, rounds), asio::detached);
                    asio::co_spawn(b->world.get_executor(), lockstep_writer<World>(*b, *all_read, rounds),
                                   asio::detached);
                    return b->run(rounds * pipe_count * 2);
                };
            }};
}

// --- a queue of ints, 64 deep: an operation is one message, sent and received ---------------------------------------------

template <class World>
coroutine<World> producer(typename World::channel& queue, std::size_t messages) {
    for (std::size_t i = 0; i < messages; ++i)
        co_await World::send(queue, static_cast<int>(i), await<World>);
}
template <class World>
coroutine<World> consumer(bed<World>& b, typename World::channel& queue, std::size_t messages) {
    b.clock.start();
    for (std::size_t i = 0; i < messages; ++i)
        expect(static_cast<std::size_t>(co_await queue.async_receive(await<World>)), i, "receive");
    b.elapsed = b.clock.elapsed();
}

template <class World>
contender channel_use_awaitable(const char* name) {
    return {
        name, [] {
            auto b = std::make_shared<bed<World>>(0);
            auto queue = std::make_shared<typename World::channel>(b->world.get_executor(), channel_depth);
            return [b, queue](std::size_t rounds) {
                const std::size_t messages = rounds * channel_depth;
                asio::co_spawn(b->world.get_executor(), consumer<World>(*b, *queue, messages),
                               asio::detached);
                asio::co_spawn(b->world.get_executor(), producer<World>(*queue, messages), asio::detached);
                return b->run(messages);
            };
        }};
}

// --- posts: 64 chains of small handlers ------------------------------------------------------------------------------------

template <class World>
struct post_chain {
    World& world;
    std::size_t left;
    void step() {
        if (left-- != 0)
            asio::post(world.get_executor(), [this] { step(); });
    }
};

template <class World>
contender post_executor(const char* name) {
    return {name, [] {
                auto b = std::make_shared<bed<World>>(0);
                return [b](std::size_t rounds) {
                    std::deque<post_chain<World>> chains;
                    for (int i = 0; i < 64; ++i)
                        chains.push_back({b->world, rounds});
                    for (auto& each : chains)
                        each.step();
                    b->clock.start();
                    b->world.run();
                    return measurement{rounds * 64, b->clock.elapsed()};
                };
            }};
}

// --- TCP echo, written in Asio: an operation is 64 bytes there and back ----------------------------------------------------

template <class Executor>
using socket_on = asio::basic_stream_socket<asio::ip::tcp, Executor>;

template <class World>
coroutine<World> echo_server(socket_on<typename World::executor>& peer, std::size_t rounds) {
    std::array<char, 64> buffer{};
    for (std::size_t i = 0; i < rounds; ++i) {
        const std::size_t n = co_await peer.async_read_some(asio::buffer(buffer), await<World>);
        co_await asio::async_write(peer, asio::buffer(buffer.data(), n), await<World>);
    }
}
template <class World>
coroutine<World> echo_client(bed<World>& b, socket_on<typename World::executor>& peer, std::size_t rounds) {
    std::array<char, 64> buffer{};
    b.clock.start();
    for (std::size_t i = 0; i < rounds; ++i) {
        co_await asio::async_write(peer, asio::buffer(buffer), await<World>);
        co_await asio::async_read(peer, asio::buffer(buffer), await<World>);
    }
    b.elapsed = b.clock.elapsed();
}

template <class World>
struct connection {
    bed<World> b{0};
    socket_on<typename World::executor> client{b.world.get_executor()};
    socket_on<typename World::executor> server{b.world.get_executor()};
    connection() {
        asio::basic_socket_acceptor<asio::ip::tcp, typename World::executor> acceptor(
            b.world.get_executor(), asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), 0));
        client.connect(acceptor.local_endpoint());
        acceptor.accept(server);
        client.set_option(asio::ip::tcp::no_delay(true));
        server.set_option(asio::ip::tcp::no_delay(true));
    }
};

template <class World>
contender echo_tcp(const char* name) {
    return {name, [] {
                auto c = std::make_shared<connection<World>>();
                return [c](std::size_t rounds) {
                    asio::co_spawn(c->b.world.get_executor(), echo_server<World>(c->server, rounds),
                                   asio::detached);
                    asio::co_spawn(c->b.world.get_executor(), echo_client<World>(c->b, c->client, rounds),
                                   asio::detached);
                    return c->b.run(rounds);
                };
            }};
}

void print_conditions(int cpu) {
    utsname system{};
    ::uname(&system);
    std::printf("Linux %s, compiler %s, Asio %d.%d.%d; one CPU (%d).\n", system.release, __VERSION__,
                ASIO_VERSION / 100000, ASIO_VERSION / 100 % 1000, ASIO_VERSION % 100, cpu);
}

} // namespace

int main(int argc, char** argv) {
    const options chosen = parse_options(argc, argv, "asio");
    suite run("asio", chosen);
    print_conditions(pin_to_one_cpu());

    const char* own = "ours on asio_executor";
    const char* host = "ours on an io_context";
    const char* theirs = "Asio on an io_context";
    run.section("ours against Asio's own objects, same token");
    run.compare({"pipe_ready_use_awaitable_own", pipe_ready_use_awaitable<own_world>(own),
                 pipe_ready_use_awaitable<asio_world>(theirs), 0.75});
    run.compare({"pipe_ready_use_awaitable_host", pipe_ready_use_awaitable<host_world>(host),
                 pipe_ready_use_awaitable<asio_world>(theirs), 0.92});
    run.compare({"pipe_ready_callback_own", pipe_ready_callback<own_world>(own),
                 pipe_ready_callback<asio_world>(theirs), 0.75});
    run.compare({"pipe_ready_callback_host", pipe_ready_callback<host_world>(host),
                 pipe_ready_callback<asio_world>(theirs), 0.80});
    run.compare({"pipe_lockstep_use_awaitable_own", pipe_lockstep_use_awaitable<own_world>(own),
                 pipe_lockstep_use_awaitable<asio_world>(theirs), 0.80});
    run.compare({"pipe_lockstep_use_awaitable_host", pipe_lockstep_use_awaitable<host_world>(host),
                 pipe_lockstep_use_awaitable<asio_world>(theirs), 0.85});
    run.compare({"channel_use_awaitable_own", channel_use_awaitable<own_world>(own),
                 channel_use_awaitable<asio_world>(theirs), 0.50});
    run.compare({"channel_use_awaitable_host", channel_use_awaitable<host_world>(host),
                 channel_use_awaitable<asio_world>(theirs), 1.0});
    run.compare(
        {"post_executor_own", post_executor<own_world>(own), post_executor<asio_world>(theirs), 0.70});
    run.compare(
        {"echo_tcp_own", echo_tcp<own_world>("Asio on asio_executor"), echo_tcp<asio_world>(theirs), 1.10});
    run.compare(
        {"echo_tcp_host", echo_tcp<host_world>("Asio beside a guest"), echo_tcp<asio_world>(theirs), 1.05});
    return run.finish();
}
