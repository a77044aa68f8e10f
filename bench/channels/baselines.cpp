#include "baselines.hpp"

#include "bench/support/keep.hpp"
#include "bench/support/process.hpp"

#include <cerrno>
#include <exception>
#include <latch>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

namespace bench::channels {
namespace {

class kernel_pipe {
public:
    kernel_pipe() { expect(::pipe2(ends_.data(), O_CLOEXEC), 0, "pipe2"); }
    kernel_pipe(const kernel_pipe&) = delete;
    kernel_pipe& operator=(const kernel_pipe&) = delete;
    ~kernel_pipe() {
        ::close(ends_[0]);
        close_writer();
    }

    [[nodiscard]] int reader() const noexcept { return ends_[0]; }
    [[nodiscard]] int writer() const noexcept { return ends_[1]; }
    void close_writer() noexcept {
        if (ends_[1] >= 0) {
            ::close(std::exchange(ends_[1], -1));
        }
    }

private:
    std::array<int, 2> ends_{-1, -1};
};

std::uint64_t context_switches() {
    rusage usage{};
    expect(::getrusage(RUSAGE_SELF, &usage), 0, "getrusage");
    return static_cast<std::uint64_t>(usage.ru_nvcsw + usage.ru_nivcsw);
}

// One run of the token program, as its threads see it.
struct token_game {
    kernel_pipe pipe;
    int limit = 0;
    stopwatch clock;
    std::uint64_t switches_before = 0;
    token_result result;
    std::vector<std::uint64_t> reads = std::vector<std::uint64_t>(token_tasks);
    std::mutex mutex;
    std::exception_ptr failure; // under the mutex
};

void pass_tokens(token_game& game, std::uint64_t& reads) {
    for (;;) {
        int token = 0;
        const ssize_t got = ::read(game.pipe.reader(), &token, sizeof token);
        if (got == 0) {
            return;
        }
        expect(got, sizeof token, "read");
        ++reads;
        if (token < 0) {
            continue;
        }
        if (token >= game.limit) {
            game.result.elapsed = game.clock.elapsed();
            game.result.switches = context_switches() - game.switches_before;
            game.pipe.close_writer(); // nobody else has a token to write; everybody sees the end
            return;
        }
        const next_tokens next(token);
        const std::span<const std::byte> bytes = next.bytes();
        expect(::write(game.pipe.writer(), bytes.data(), bytes.size()), static_cast<long>(bytes.size()),
               "write");
    }
}

// The CPUs that the calling thread may use.
std::vector<int> usable_cpus() {
    cpu_set_t set;
    CPU_ZERO(&set);
    expect(::sched_getaffinity(0, sizeof set, &set), 0, "sched_getaffinity");
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(static_cast<std::size_t>(cpu), &set)) {
            cpus.push_back(cpu);
        }
    }
    return cpus;
}

void pin_this_thread(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(cpu), &set);
    expect(::sched_setaffinity(0, sizeof set, &set), 0, "sched_setaffinity");
}

// The threads are spread evenly over the CPUs. While all CPUs are free the figures are those of the threads left alone
// (within 5 %); on a busy machine the scheduler gathers them on one CPU, where each thread reads what it has just written:
// another program.
token_result play_on_threads(std::size_t increments) {
    token_game game;
    game.limit = static_cast<int>(increments);
    std::latch ready(token_tasks + 1);
    std::vector<std::thread> threads;
    unpin();
    const std::vector<int> cpus = usable_cpus();
    for (std::uint64_t& mine : game.reads) {
        const int cpu = cpus[threads.size() % cpus.size()];
        threads.emplace_back([&game, &ready, &mine, cpu] {
            ready.arrive_and_wait();
            try {
                pin_this_thread(cpu);
                pass_tokens(game, mine);
            } catch (...) {
                const std::lock_guard lock(game.mutex);
                game.failure = std::current_exception();
                game.pipe.close_writer();
            }
        });
    }
    ready.arrive_and_wait();
    game.switches_before = context_switches();
    game.clock.start();
    const long wrote = ::write(game.pipe.writer(), first_tokens.data(), sizeof first_tokens);
    for (std::thread& each : threads) {
        each.join();
    }
    (void)pin_to_one_cpu();
    expect(wrote, sizeof first_tokens, "write");
    if (game.failure) {
        std::rethrow_exception(game.failure);
    }
    game.result.increments = increments;
    count_reads(game.result, game.reads);
    return game.result;
}

slice open_loop() {
    auto pipe = std::make_shared<kernel_pipe>();
    return [pipe](std::size_t rounds) {
        const std::size_t size = opaque(loop_size);
        std::vector<std::byte> out(size, std::byte{'x'});
        std::vector<std::byte> in(size);
        const stopwatch clock;
        for (std::size_t round = 0; round < rounds; ++round) {
            expect(::write(pipe->writer(), out.data(), size), loop_size, "write");
            expect(::read(pipe->reader(), in.data(), size), loop_size, "read");
        }
        const std::chrono::nanoseconds elapsed = clock.elapsed();
        keep(in[0]);
        return measurement{rounds, elapsed};
    };
}

slice open_bulk() {
    auto pipe = std::make_shared<kernel_pipe>();
    return [pipe](std::size_t rounds) {
        std::vector<std::byte> out(opaque(chunk_size));
        std::vector<std::byte> in(out.size());
        const stopwatch clock;
        for (std::size_t round = 0; round < rounds; ++round) {
            fill(out, round);
            expect(::write(pipe->writer(), out.data(), out.size()), chunk_size, "write");
            expect(::read(pipe->reader(), in.data(), in.size()), chunk_size, "read");
            scan(in);
        }
        return measurement{rounds, clock.elapsed()};
    };
}

slice open_memcpy() {
    return [](std::size_t rounds) {
        std::vector<std::byte> out(opaque(chunk_size));
        std::vector<std::byte> between(out.size());
        std::vector<std::byte> in(out.size());
        const stopwatch clock;
        for (std::size_t round = 0; round < rounds; ++round) {
            fill(out, round);
            std::memcpy(between.data(), out.data(), out.size());
            keep(between[0]);
            std::memcpy(in.data(), between.data(), between.size());
            scan(in);
        }
        return measurement{rounds, clock.elapsed()};
    };
}

} // namespace

contender kernel_loop() {
    return {"kernel pipe, libc", open_loop};
}
contender kernel_bulk() {
    return {"kernel pipe, libc, one thread", open_bulk};
}
contender memcpy_bulk() {
    return {"memcpy in and out", open_memcpy};
}
token_program kernel_tokens() {
    return play_on_threads;
}

} // namespace bench::channels
