#include "baselines.hpp"
#include "bench/support/keep.hpp"

#include <memory>
#include <vector>

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

namespace bench::pipes {
namespace {

template <writing How>
inline ssize_t write_some(int descriptor, const iovec& from) {
    if constexpr (How == writing::plain) {
        return ::write(descriptor, from.iov_base, from.iov_len);
    } else {
        return ::pwritev2(descriptor, &from, 1, -1, rwf_nosignal);
    }
}

template <writing How>
slice open_ready(std::size_t count) {
    auto pipes = std::make_shared<pipe_set>(count, O_NONBLOCK);
    return [pipes](std::size_t rounds) {
        const std::size_t size = pipes->size();
        char out = 'x';
        char in = 0;
        const iovec from{&out, 1};
        stopwatch clock;
        for (std::size_t round = 0; round < rounds; ++round) {
            for (std::size_t i = 0; i < size; ++i) {
                expect(write_some<How>(pipes->writer(i), from), 1, "write");
            }
            for (std::size_t i = 0; i < size; ++i) {
                expect(::read(pipes->reader(i), &in, 1), 1, "read");
            }
        }
        keep(in);
        return measurement{rounds * size * 2, clock.elapsed()};
    };
}

template <writing How>
slice open_loop() {
    auto pipe = std::make_shared<pipe_set>(1, O_NONBLOCK);
    return [pipe](std::size_t rounds) {
        std::vector<char> out(loop_size, 'x');
        std::vector<char> in(loop_size);
        const iovec from{out.data(), out.size()};
        stopwatch clock;
        for (std::size_t round = 0; round < rounds; ++round) {
            expect(write_some<How>(pipe->writer(0), from), loop_size, "write");
            expect(::read(pipe->reader(0), in.data(), in.size()), loop_size, "read");
        }
        keep(in[0]);
        return measurement{rounds * 2, clock.elapsed()};
    };
}

slice open_bulk() {
    auto pipe = std::make_shared<pipe_set>(1, O_NONBLOCK);
    return [pipe](std::size_t rounds) {
        std::vector<char> out(bulk_size, 'x');
        std::vector<char> in(bulk_size);
        stopwatch clock;
        for (std::size_t piece = 0; piece < rounds * (bulk_round / bulk_size); ++piece) {
            expect(::write(pipe->writer(0), out.data(), out.size()), bulk_size, "write");
            expect(::read(pipe->reader(0), in.data(), in.size()), bulk_size, "read");
        }
        keep(in[0]);
        return measurement{rounds * (bulk_round / bulk_size) * 2, clock.elapsed()};
    };
}

} // namespace

contender raw_ready(writing how, std::size_t pipes) {
    if (how == writing::plain) {
        return {"libc read + write", [pipes] { return open_ready<writing::plain>(pipes); }};
    }
    return {"libc read + pwritev2(NOSIGNAL)", [pipes] { return open_ready<writing::nosignal>(pipes); }};
}

contender raw_loop(writing how) {
    if (how == writing::plain) {
        return {"libc read + write", [] { return open_loop<writing::plain>(); }};
    }
    return {"libc read + pwritev2(NOSIGNAL)", [] { return open_loop<writing::nosignal>(); }};
}

contender raw_bulk() {
    return {"libc read + write", open_bulk};
}

} // namespace bench::pipes
