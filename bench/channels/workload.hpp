// The published pipe programs: 512 bytes written and read back, chunks in bulk, and the token that 64 tasks pass on.
#pragma once

#include "bench/support/contender.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>

namespace bench::channels {

inline constexpr std::size_t loop_size = 512;       // UnixBench "Pipe Throughput"
inline constexpr double unixbench_reference = 1244; // its loops/s that make one index point
inline constexpr std::size_t chunk_size = 64 * 1024;
inline constexpr std::size_t token_tasks = 64;

// Ends the row with what went wrong: a side that quietly does nothing would be the fastest.
[[noreturn]] inline void give_up(const char* what, long result) {
    throw std::runtime_error(std::string(what) + " gave " + std::to_string(result));
}

inline void expect(long result, long wanted, const char* what) {
    if (result != wanted) [[unlikely]] {
        give_up(what, result);
    }
}

// A size that the compiler does not know: from constant ones it makes string instructions, which are slower than the
// library's copies.
inline std::size_t opaque(std::size_t size) noexcept {
    asm("" : "+r"(size));
    return size;
}

// What the writer of a bulk test does with its memory, and the reader with its own.
inline void fill(std::span<std::byte> chunk, std::size_t round) noexcept {
    std::memset(chunk.data(), static_cast<int>(round % 128), chunk.size());
}
inline void scan(std::span<const std::byte> chunk) {
    constexpr int never_written = 200;
    if (std::memchr(chunk.data(), never_written, chunk.size()) != nullptr) [[unlikely]] {
        give_up("a byte that nobody wrote", never_written);
    }
}

// --- the token program -----------------------------------------------------------------------------------------------
// Everybody reads a token; a negative one is ignored, another is written back one larger, and together with a negative
// one (which only wakes somebody up) if it has become odd. So there are three reads in every two increments.

struct token_result {
    std::uint64_t increments = 0;
    std::uint64_t reads = 0;    // of tokens of both kinds
    std::uint64_t wakes = 0;    // ours: how often a task was resumed
    std::uint64_t switches = 0; // threads: how often one of them left a CPU
    double fairness = 0;        // reads of the slowest task by those of the fastest
    std::chrono::nanoseconds elapsed{};
};

using token_program = std::function<token_result(std::size_t increments)>;

struct next_tokens {
    explicit next_tokens(int token) noexcept : values{token + 1, -1}, count((token + 1) % 2 != 0 ? 2 : 1) {}
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
        return std::as_bytes(std::span(values).first(count));
    }

    std::array<int, 2> values;
    std::size_t count;
};

inline constexpr std::array<int, 2> first_tokens{0, -1};

// Sums the tasks' reads up.
void count_reads(token_result& into, std::span<const std::uint64_t> reads_of_each);

// Slices of a token program: time per increment; or a count instead of nanoseconds, for rows that compare counts.
[[nodiscard]] contender token_time(std::string name, std::function<token_program()> open);
[[nodiscard]] contender token_count(std::string name, std::function<token_program()> open,
                                    std::uint64_t token_result::* count);

} // namespace bench::channels
