#include "baselines.hpp"
#include "bench/support/keep.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include <asio.hpp>
#include <asio/experimental/channel.hpp>
#include <fcntl.h>
#include <unistd.h>

namespace bench::pipes {
namespace {

// The concrete executor spares Asio the type-erased one in every operation.
using executor = asio::io_context::executor_type;
using token = asio::use_awaitable_t<executor>;
using reader = token::as_default_on_t<asio::basic_readable_pipe<executor>>;
using writer = token::as_default_on_t<asio::basic_writable_pipe<executor>>;
using coroutine = asio::awaitable<void, executor>;
using gate = asio::experimental::channel<executor, void(asio::error_code, std::size_t)>;

struct bed {
    explicit bed(std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            int ends[2];
            expect(::pipe2(ends, O_CLOEXEC), 0, "pipe2");
            readers.emplace_back(context, ends[0]);
            writers.emplace_back(context, ends[1]);
        }
    }

    // The hint says that one thread runs the context.
    asio::io_context context{1};
    std::deque<reader> readers;
    std::deque<writer> writers;
    gate all_read{context.get_executor(), 1};
    std::size_t reads = 0;
    stopwatch clock;
    std::chrono::nanoseconds elapsed{};
};

// Runs what was spawned to its end and returns what the coroutines noted down.
measurement run(bed& b, std::size_t operations) {
    b.context.restart();
    b.context.run();
    return {operations, b.elapsed};
}

coroutine ready(bed& b, std::size_t rounds) {
    char out = 'x';
    char in = 0;
    b.clock.start();
    for (std::size_t round = 0; round < rounds; ++round) {
        for (writer& each : b.writers) {
            expect(static_cast<long>(co_await each.async_write_some(asio::buffer(&out, 1))), 1, "write");
        }
        for (reader& each : b.readers) {
            expect(static_cast<long>(co_await each.async_read_some(asio::buffer(&in, 1))), 1, "read");
        }
    }
    keep(in);
    b.elapsed = b.clock.elapsed();
}

coroutine lockstep_reader(bed& b, reader& from, std::size_t rounds) {
    char in = 0;
    for (std::size_t round = 0; round < rounds; ++round) {
        expect(static_cast<long>(co_await from.async_read_some(asio::buffer(&in, 1))), 1, "read");
        if (++b.reads == b.readers.size()) {
            b.reads = 0;
            b.all_read.try_send(asio::error_code{},
                                b.readers.size()); // the writer runs after this reader waits again
        }
    }
}

coroutine lockstep_writer(bed& b, std::size_t rounds) {
    char out = 'x';
    b.clock.start();
    for (std::size_t round = 0; round < rounds; ++round) {
        for (writer& each : b.writers) {
            expect(static_cast<long>(co_await each.async_write_some(asio::buffer(&out, 1))), 1, "write");
        }
        co_await b.all_read.async_receive(token{});
    }
    b.elapsed = b.clock.elapsed();
}

coroutine free_reader(bed& b, reader& from, std::size_t rounds) {
    char in = 0;
    for (std::size_t round = 0; round < rounds; ++round) {
        expect(static_cast<long>(co_await from.async_read_some(asio::buffer(&in, 1))), 1, "read");
    }
    if (++b.reads == b.readers.size()) {
        b.elapsed = b.clock.elapsed();
    }
}

coroutine free_writer(writer& to, std::size_t rounds) {
    char out = 'x';
    for (std::size_t round = 0; round < rounds; ++round) {
        expect(static_cast<long>(co_await to.async_write_some(asio::buffer(&out, 1))), 1, "write");
    }
}

coroutine write_and_read_back(bed& b, std::size_t size, std::size_t rounds) {
    std::vector<char> out(size, 'x');
    std::vector<char> in(size);
    const auto wanted = static_cast<long>(size);
    b.clock.start();
    for (std::size_t round = 0; round < rounds; ++round) {
        expect(static_cast<long>(co_await b.writers[0].async_write_some(asio::buffer(out))), wanted, "write");
        expect(static_cast<long>(co_await b.readers[0].async_read_some(asio::buffer(in))), wanted, "read");
    }
    keep(in[0]);
    b.elapsed = b.clock.elapsed();
}

coroutine bulk_writer(bed& b, std::size_t bytes) {
    std::vector<char> out(bulk_size, 'x');
    b.clock.start();
    while (bytes > 0) {
        bytes -=
            co_await b.writers[0].async_write_some(asio::buffer(out.data(), std::min(bytes, out.size())));
    }
}

coroutine bulk_reader(bed& b, std::size_t bytes) {
    std::vector<char> in(bulk_size);
    while (bytes > 0) {
        bytes -= co_await b.readers[0].async_read_some(asio::buffer(in));
    }
    keep(in[0]);
    b.elapsed = b.clock.elapsed();
}

slice open_ready() {
    auto b = std::make_shared<bed>(pipe_count);
    return [b](std::size_t rounds) {
        asio::co_spawn(b->context, ready(*b, rounds), asio::detached);
        return run(*b, rounds * pipe_count * 2);
    };
}

slice open_lockstep() {
    auto b = std::make_shared<bed>(pipe_count);
    return [b](std::size_t rounds) {
        b->reads = 0;
        for (reader& each : b->readers) {
            asio::co_spawn(b->context, lockstep_reader(*b, each, rounds), asio::detached);
        }
        asio::co_spawn(b->context, lockstep_writer(*b, rounds), asio::detached);
        return run(*b, rounds * pipe_count * 2);
    };
}

slice open_free() {
    auto b = std::make_shared<bed>(pipe_count);
    return [b](std::size_t rounds) {
        b->reads = 0;
        for (reader& each : b->readers) {
            asio::co_spawn(b->context, free_reader(*b, each, rounds), asio::detached);
        }
        for (writer& each : b->writers) {
            asio::co_spawn(b->context, free_writer(each, rounds), asio::detached);
        }
        b->clock.start();
        return run(*b, rounds * pipe_count * 2);
    };
}

slice open_write_and_read_back(std::size_t size) {
    auto b = std::make_shared<bed>(1);
    return [b, size](std::size_t rounds) {
        asio::co_spawn(b->context, write_and_read_back(*b, size, rounds), asio::detached);
        return run(*b, rounds * 2);
    };
}

slice open_bulk() {
    auto b = std::make_shared<bed>(1);
    return [b](std::size_t rounds) {
        asio::co_spawn(b->context, bulk_reader(*b, rounds * bulk_round), asio::detached);
        asio::co_spawn(b->context, bulk_writer(*b, rounds * bulk_round), asio::detached);
        return run(*b, rounds * (bulk_round / bulk_size) * 2);
    };
}

} // namespace

contender asio_ready() {
    return {"Asio, coroutines on epoll", open_ready};
}
contender asio_lockstep() {
    return {"Asio, coroutines on epoll", open_lockstep};
}
contender asio_free() {
    return {"Asio, coroutines on epoll", open_free};
}
contender asio_pingpong() {
    return {"Asio, coroutines on epoll", [] { return open_write_and_read_back(1); }};
}
contender asio_loop() {
    return {"Asio, coroutines on epoll", [] { return open_write_and_read_back(loop_size); }};
}
contender asio_bulk() {
    return {"Asio, coroutines on epoll", open_bulk};
}

} // namespace bench::pipes
