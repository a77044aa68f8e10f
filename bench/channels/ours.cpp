#include "ours.hpp"

#include "bench/support/keep.hpp"

#include <nowait/pipe_channel.hpp>
#include <nowait/runtime.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace bench::channels {
namespace {

using nowait::task;

template <class T>
T value_of(nowait::result<T>&& outcome, const char* what) {
    if (!outcome) [[unlikely]] {
        give_up(what, -outcome.error().value());
    }
    return std::move(*outcome);
}

void expect_moved(const nowait::result<std::size_t>& moved, std::size_t wanted, const char* what) {
    expect(moved ? static_cast<long>(*moved) : -static_cast<long>(moved.error().value()),
           static_cast<long>(wanted), what);
}

template <class Channel>
struct bed {
    nowait::runtime loop = value_of(nowait::runtime::create(), "runtime::create");
    Channel channel = value_of(Channel::create(), "create");
    stopwatch clock;
    std::chrono::nanoseconds elapsed{};

    // Runs everything spawned to the end and returns what the tasks noted down.
    measurement run(std::size_t operations) {
        const nowait::result<void> ran = loop.run();
        if (!ran) {
            give_up("runtime::run", -ran.error().value());
        }
        return {operations, elapsed};
    }
};

template <class Channel>
task<> write_and_read_back(bed<Channel>& b, std::size_t rounds) {
    const std::size_t size = opaque(loop_size);
    const std::vector<std::byte> out(size, std::byte{'x'});
    std::vector<std::byte> in(size);
    b.clock.start();
    for (std::size_t round = 0; round < rounds; ++round) {
        expect_moved(co_await b.channel.writer.write(out), size, "write");
        expect_moved(co_await b.channel.reader.read(in), size, "read");
    }
    b.elapsed = b.clock.elapsed();
    keep(in[0]);
}

template <class Channel>
task<> bulk_writer(bed<Channel>& b, std::size_t rounds) {
    std::vector<std::byte> out(opaque(chunk_size));
    b.clock.start();
    for (std::size_t round = 0; round < rounds; ++round) {
        fill(out, round);
        for (std::span<const std::byte> left = out; !left.empty();) {
            left = left.subspan(value_of(co_await b.channel.writer.write(left), "write"));
        }
    }
}

template <class Channel>
task<> bulk_reader(bed<Channel>& b, std::size_t rounds) {
    std::vector<std::byte> in(opaque(chunk_size));
    for (std::size_t left = rounds * chunk_size; left > 0;) {
        const std::size_t n = value_of(co_await b.channel.reader.read(in), "read");
        scan(std::span(in).first(n));
        left -= n;
    }
    b.elapsed = b.clock.elapsed();
}

template <class Channel>
task<> in_place_writer(bed<Channel>& b, std::size_t rounds) {
    b.clock.start();
    for (std::size_t round = 0; round < rounds; ++round) {
        for (std::size_t left = chunk_size; left > 0;) {
            auto room = value_of(co_await b.channel.writer.reserve(left), "reserve");
            for (std::span<std::byte> part : room.parts()) {
                fill(part, round);
            }
            left -= value_of(room.commit(room.size()), "commit");
        }
    }
}

template <class Channel>
task<> in_place_reader(bed<Channel>& b, std::size_t rounds) {
    for (std::size_t left = rounds * chunk_size; left > 0;) {
        auto seen = value_of(co_await b.channel.reader.peek(), "peek");
        for (std::span<const std::byte> part : seen.parts()) {
            scan(part);
        }
        left -= value_of(seen.consume(seen.size()), "consume");
    }
    b.elapsed = b.clock.elapsed();
}

template <class Channel>
slice open_loop() {
    auto b = std::make_shared<bed<Channel>>();
    return [b](std::size_t rounds) {
        b->loop.spawn(write_and_read_back(*b, rounds)).detach();
        return b->run(rounds);
    };
}

template <class Channel>
slice open_bulk() {
    auto b = std::make_shared<bed<Channel>>();
    return [b](std::size_t rounds) {
        b->loop.spawn(bulk_reader(*b, rounds)).detach();
        b->loop.spawn(bulk_writer(*b, rounds)).detach();
        return b->run(rounds);
    };
}

template <class Channel>
slice open_in_place() {
    auto b = std::make_shared<bed<Channel>>();
    return [b](std::size_t rounds) {
        b->loop.spawn(in_place_reader(*b, rounds)).detach();
        b->loop.spawn(in_place_writer(*b, rounds)).detach();
        return b->run(rounds);
    };
}

template <class Channel>
struct token_game {
    bed<Channel> b;
    int limit = 0;
    std::uint64_t turns_before = 0;
    token_result result;
    std::vector<std::uint64_t> reads = std::vector<std::uint64_t>(token_tasks);
};

template <class Channel>
task<> pass_tokens(token_game<Channel>& game, std::uint64_t& reads) {
    Channel& channel = game.b.channel;
    for (;;) {
        int token = 0;
        const std::span<std::byte> room = std::as_writable_bytes(std::span(&token, 1));
        const std::size_t got = value_of(co_await channel.reader.read(room), "read");
        if (got == 0) {
            co_return;
        }
        expect(static_cast<long>(got), sizeof token, "read");
        ++reads;
        if (token < 0) {
            continue;
        }
        if (token >= game.limit) {
            game.result.elapsed = game.b.clock.elapsed();
            game.result.wakes = nowait::current_stats().turns - game.turns_before;
            (void)channel.writer.close(); // everybody sees the end
            co_return;
        }
        const next_tokens next(token);
        expect_moved(co_await channel.writer.write(next.bytes()), next.bytes().size(), "write");
    }
}

// Starts when everybody waits.
template <class Channel>
task<> bring_tokens(token_game<Channel>& game) {
    game.turns_before = nowait::current_stats().turns;
    game.b.clock.start();
    const std::span<const std::byte> tokens = std::as_bytes(std::span(first_tokens));
    expect_moved(co_await game.b.channel.writer.write(tokens), tokens.size(), "write");
}

template <class Channel>
token_result play(std::size_t increments) {
    token_game<Channel> game;
    game.limit = static_cast<int>(increments);
    for (std::uint64_t& mine : game.reads) {
        game.b.loop.spawn(pass_tokens(game, mine)).detach();
    }
    game.b.loop.spawn(bring_tokens(game)).detach();
    (void)game.b.run(increments);
    game.result.increments = increments;
    count_reads(game.result, game.reads);
    if (game.result.fairness < 0.9) {
        throw std::runtime_error("the slowest task read " + std::to_string(game.result.fairness) +
                                 " of what the fastest did");
    }
    return game.result;
}

std::string name_of(kind which, const char* what) {
    return std::string(which == kind::local ? "local_pipe_channel, " : "pipe_channel, ") + what;
}

} // namespace

contender ours_loop(kind which) {
    return {name_of(which, "512 B"),
            which == kind::local ? open_loop<nowait::local_pipe_channel> : open_loop<nowait::pipe_channel>};
}
contender ours_bulk(kind which) {
    return {name_of(which, "copied"),
            which == kind::local ? open_bulk<nowait::local_pipe_channel> : open_bulk<nowait::pipe_channel>};
}
contender ours_in_place(kind which) {
    return {name_of(which, "in place"), which == kind::local ? open_in_place<nowait::local_pipe_channel>
                                                             : open_in_place<nowait::pipe_channel>};
}
token_program ours_tokens(kind which) {
    return which == kind::local ? play<nowait::local_pipe_channel> : play<nowait::pipe_channel>;
}

} // namespace bench::channels
