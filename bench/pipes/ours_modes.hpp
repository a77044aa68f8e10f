// The tasks behind ours.hpp. Included by two sources, which see the library with and without its counters: everything
// lives in a namespace named after the library's own.
#pragma once

#include "bench/support/keep.hpp"
#include "workload.hpp"

#include <nowait/pipe.hpp>
#include <nowait/runtime.hpp>
#include <nowait/sleep.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace bench::pipes::NOWAIT_ABI {

using nowait::task;

template <class T>
T value_of(nowait::result<T> outcome, const char* what) {
    if (!outcome) [[unlikely]] {
        give_up(what, -outcome.error().value());
    }
    return std::move(*outcome);
}

inline void expect_moved(const nowait::result<std::size_t>& moved, std::size_t wanted, const char* what) {
    expect(moved ? static_cast<long>(*moved) : -static_cast<long>(moved.error().value()),
           static_cast<long>(wanted), what);
}

inline nowait::runtime make_runtime(nowait::driver_choice driver) {
    nowait::runtime_options options;
    options.driver = driver;
    return value_of(nowait::runtime::create(options), "runtime::create");
}

struct bed {
    explicit bed(std::size_t count, nowait::driver_choice driver = nowait::driver_choice::automatic)
        : loop(make_runtime(driver)) {
        for (std::size_t i = 0; i < count; ++i) {
            nowait::pipe_pair made = value_of(nowait::make_pipe(), "make_pipe");
            readers.push_back(std::move(made.reader));
            writers.push_back(std::move(made.writer));
        }
    }

    [[nodiscard]] std::uint64_t armed_reads() const noexcept {
        return loop.stats().of(nowait::operation_kind::read).armed;
    }

    nowait::runtime loop;
    std::vector<nowait::pipe_reader> readers;
    std::vector<nowait::pipe_writer> writers;
    std::size_t reads = 0;
    stopwatch clock;
    std::chrono::nanoseconds elapsed{};
};

// Runs everything spawned to the end and returns what the tasks noted down.
inline measurement run(bed& b, std::size_t operations) {
    const nowait::result<void> ran = b.loop.run();
    if (!ran) {
        give_up("runtime::run", -ran.error().value());
    }
    return {operations, b.elapsed};
}

inline task<> ready(bed& b, std::size_t rounds) {
    const std::byte out{'x'};
    std::byte in{};
    b.clock.start();
    for (std::size_t round = 0; round < rounds; ++round) {
        for (nowait::pipe_writer& each : b.writers) {
            expect_moved(co_await each.write(std::span(&out, 1)), 1, "write");
        }
        for (nowait::pipe_reader& each : b.readers) {
            expect_moved(co_await each.read(std::span(&in, 1)), 1, "read");
        }
    }
    keep(in);
    b.elapsed = b.clock.elapsed();
}

inline task<> counting_reader(bed& b, nowait::pipe_reader& from, std::size_t rounds) {
    std::byte in{};
    for (std::size_t round = 0; round < rounds; ++round) {
        expect_moved(co_await from.read(std::span(&in, 1)), 1, "read");
        ++b.reads;
    }
}

// Every read of the round waits before its first write: the counter says so. (The uncounted library runs the same tasks
// in the same order, and cannot say.)
inline task<> lockstep_writer(bed& b, std::size_t rounds) {
    const std::byte out{'x'};
    const std::size_t pipes = b.writers.size();
    const std::uint64_t armed_before = b.armed_reads() - (NOWAIT_COUNTERS != 0 ? pipes : 0);
    b.clock.start();
    for (std::size_t round = 1; round <= rounds; ++round) {
        if constexpr (NOWAIT_COUNTERS != 0) {
            expect(static_cast<long>(b.armed_reads() - armed_before), static_cast<long>(round * pipes),
                   "armed reads");
        }
        for (nowait::pipe_writer& each : b.writers) {
            expect_moved(co_await each.write(std::span(&out, 1)), 1, "write");
        }
        while (b.reads < round * pipes) {
            co_await nowait::yield();
        }
    }
    b.elapsed = b.clock.elapsed();
}

inline task<> free_reader(bed& b, nowait::pipe_reader& from, std::size_t rounds) {
    std::byte in{};
    for (std::size_t round = 0; round < rounds; ++round) {
        expect_moved(co_await from.read(std::span(&in, 1)), 1, "read");
    }
    if (++b.reads == b.readers.size()) {
        b.elapsed = b.clock.elapsed();
    }
}

inline task<> free_writer(nowait::pipe_writer& to, std::size_t rounds) {
    const std::byte out{'x'};
    for (std::size_t round = 0; round < rounds; ++round) {
        expect_moved(co_await to.write(std::span(&out, 1)), 1, "write");
    }
}

inline task<> write_and_read_back(bed& b, std::size_t size, std::size_t rounds) {
    const std::vector<std::byte> out(size, std::byte{'x'});
    std::vector<std::byte> in(size);
    nowait::pipe_writer& writer = b.writers[0];
    nowait::pipe_reader& reader = b.readers[0];
    b.clock.start();
    for (std::size_t round = 0; round < rounds; ++round) {
        expect_moved(co_await writer.write(out), size, "write");
        expect_moved(co_await reader.read(in), size, "read");
    }
    keep(in[0]);
    b.elapsed = b.clock.elapsed();
}

inline task<> bulk_writer(bed& b, std::size_t bytes) {
    const std::vector<std::byte> out(bulk_size, std::byte{'x'});
    b.clock.start();
    while (bytes > 0) {
        const std::span<const std::byte> piece = std::span(out).first(std::min(bytes, out.size()));
        bytes -= value_of(co_await b.writers[0].write(piece), "write");
    }
}

inline task<> bulk_reader(bed& b, std::size_t bytes) {
    std::vector<std::byte> in(bulk_size);
    while (bytes > 0) {
        bytes -= value_of(co_await b.readers[0].read(in), "read");
    }
    keep(in[0]);
    b.elapsed = b.clock.elapsed();
}

inline slice open_ready(nowait::driver_choice driver = nowait::driver_choice::automatic) {
    auto b = std::make_shared<bed>(pipe_count, driver);
    return [b](std::size_t rounds) {
        b->loop.spawn(ready(*b, rounds)).detach();
        return run(*b, rounds * pipe_count * 2);
    };
}

inline slice open_lockstep(nowait::driver_choice driver = nowait::driver_choice::automatic) {
    auto b = std::make_shared<bed>(pipe_count, driver);
    return [b](std::size_t rounds) {
        b->reads = 0;
        for (nowait::pipe_reader& each : b->readers) {
            b->loop.spawn(counting_reader(*b, each, rounds)).detach();
        }
        b->loop.spawn(lockstep_writer(*b, rounds)).detach(); // runs when all readers have run
        return run(*b, rounds * pipe_count * 2);
    };
}

inline slice open_free() {
    auto b = std::make_shared<bed>(pipe_count);
    return [b](std::size_t rounds) {
        b->reads = 0;
        for (nowait::pipe_reader& each : b->readers) {
            b->loop.spawn(free_reader(*b, each, rounds)).detach();
        }
        for (nowait::pipe_writer& each : b->writers) {
            b->loop.spawn(free_writer(each, rounds)).detach();
        }
        b->clock.start();
        return run(*b, rounds * pipe_count * 2);
    };
}

inline slice open_write_and_read_back(std::size_t size) {
    auto b = std::make_shared<bed>(1);
    return [b, size](std::size_t rounds) {
        b->loop.spawn(write_and_read_back(*b, size, rounds)).detach();
        return run(*b, rounds * 2);
    };
}

inline slice open_bulk() {
    auto b = std::make_shared<bed>(1);
    return [b](std::size_t rounds) {
        b->loop.spawn(bulk_reader(*b, rounds * bulk_round)).detach();
        b->loop.spawn(bulk_writer(*b, rounds * bulk_round)).detach();
        return run(*b, rounds * (bulk_round / bulk_size) * 2);
    };
}

} // namespace bench::pipes::NOWAIT_ABI
