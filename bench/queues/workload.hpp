// The published workload of the priority queues: send and receive in turn, on an empty queue or on a full one, with
// priorities that stay, rise, fall or jump about.
#pragma once

#include "bench/support/contender.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bench::queues {

inline constexpr std::size_t full_depth = 65'527;          // one less than the queue holds
inline constexpr std::size_t pairs_until_refill = 100'000; // as published; later the queue is a different one
inline constexpr unsigned priorities = 32'768;
inline constexpr std::size_t int_depth = 64;

// A message of the published size. Aligned to it, or the figures of every contender depend on whether its memory happens to lie
// so that a message crosses a cache line.
struct alignas(16) payload {
    std::uint64_t number = 0;
    std::uint64_t more = 0;
};

enum class pattern { constant, increasing, decreasing, random };
inline constexpr std::array every_pattern{pattern::constant, pattern::increasing, pattern::decreasing,
                                          pattern::random};

[[nodiscard]] constexpr std::string_view name_of(pattern which) noexcept {
    constexpr std::array<std::string_view, 4> names{"const", "inc", "dec", "random"};
    return names[static_cast<std::size_t>(which)];
}

// The priorities of a pattern, one after the other.
class priority_stream {
public:
    explicit priority_stream(pattern which) noexcept : which_(which) {}

    // Inlined everywhere, or the contenders pay differently for it.
    [[nodiscard, gnu::always_inline]] unsigned next() noexcept {
        switch (which_) {
        case pattern::constant:
            return 0;
        case pattern::increasing:
            return at_++ % priorities;
        case pattern::decreasing:
            return at_-- % priorities;
        case pattern::random:
            break;
        }
        at_ ^= at_ << 13;
        at_ ^= at_ >> 17;
        at_ ^= at_ << 5;
        return at_ % priorities;
    }

private:
    pattern which_;
    std::uint32_t at_ = 0x9e3779b9;
};

// Ends the benchmark with what went wrong: a baseline that quietly does nothing would be the fastest.
[[noreturn]] void give_up(std::string_view what);

inline void require(bool succeeded, std::string_view what) {
    if (!succeeded) [[unlikely]] {
        give_up(what);
    }
}

// What one line of the published tables says: nanoseconds a message, sending and receiving. Index 0 is the empty queue
// (constant priority), the others are the full queue by pattern.
struct published_line {
    std::string who;
    std::size_t depth = 0;
    std::array<double, 5> send{};
    std::array<double, 5> receive{};
    std::array<double, 4> fill{}; // per message
    std::array<double, 4> drain{};
};

// A clock that is cheap enough to be read in the middle of a pair of operations. It lets what came before finish first.
class fine_clock {
public:
    fine_clock();
    [[nodiscard]] static std::uint64_t read() noexcept;
    [[nodiscard]] double nanoseconds(double ticks) const noexcept { return ticks * nanoseconds_per_tick_; }
    [[nodiscard]] double cost() const noexcept { return cost_; } // ticks of one reading

private:
    double nanoseconds_per_tick_;
    double cost_;
};

// Both halves of many pairs. Medians over stretches: another process takes the CPU now and then.
class halves_of_pairs {
public:
    void add(std::uint64_t before, std::uint64_t between, std::uint64_t after);
    [[nodiscard]] double sending(const fine_clock& clock) const { return middle(sending_, clock); }
    [[nodiscard]] double receiving(const fine_clock& clock) const { return middle(receiving_, clock); }

private:
    static constexpr std::size_t stretch = 500;
    [[nodiscard]] static double middle(const std::vector<double>& of, const fine_clock& clock);

    std::uint64_t send_sum_ = 0;
    std::uint64_t receive_sum_ = 0;
    std::size_t count_ = 0;
    std::vector<double> sending_; // ticks per message, for each stretch
    std::vector<double> receiving_;
};

} // namespace bench::queues
