// The published workload: open 128 pipes, do 256 rounds of reading and writing each of them. The messages here are one
// byte long, so that nothing but the cost of an operation shows.
#pragma once

#include "bench/support/contender.hpp"

#include <cstddef>
#include <vector>

namespace bench::pipes {

inline constexpr std::size_t pipe_count = 128;
inline constexpr std::size_t published_rounds = 256;

inline constexpr std::size_t loop_size = 512;       // UnixBench "Pipe Throughput"
inline constexpr std::size_t bulk_size = 64 * 1024; // one transfer of the bulk test
inline constexpr std::size_t bulk_round = 1024 * 1024;

// RWF_NOSIGNAL is younger than the distribution's headers.
inline constexpr int rwf_nosignal = 0x100;

// Plain pipes, closed at the end.
class pipe_set {
public:
    pipe_set(std::size_t count, int flags);
    pipe_set(const pipe_set&) = delete;
    pipe_set& operator=(const pipe_set&) = delete;
    ~pipe_set();

    [[nodiscard]] std::size_t size() const noexcept { return ends_.size(); }
    [[nodiscard]] int reader(std::size_t i) const noexcept { return ends_[i].reader; }
    [[nodiscard]] int writer(std::size_t i) const noexcept { return ends_[i].writer; }
    void close_reader(std::size_t i) noexcept;
    void close_writer(std::size_t i) noexcept;

private:
    struct pair {
        int reader;
        int writer;
    };
    std::vector<pair> ends_;
};

// Ends the benchmark with what went wrong: a baseline that quietly does nothing would be the fastest.
[[noreturn]] void give_up(const char* what, long result);

inline void expect(long result, long wanted, const char* what) {
    if (result != wanted) [[unlikely]] {
        give_up(what, result);
    }
}

} // namespace bench::pipes
