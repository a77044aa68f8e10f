// What is compared: the runtime's own machinery, without the kernel, beside Asio's.
#pragma once

#include "bench/support/contender.hpp"

#include <chrono>
#include <cstddef>
#include <string_view>

namespace bench::runtime {

inline constexpr std::size_t pending_timers = 1'000'000;
inline constexpr std::size_t timer_batch = 1'000;
inline constexpr std::size_t tasks_at_once = 1'000; // spawned before they are joined
inline constexpr std::size_t yielding_tasks = 64;
inline constexpr std::size_t post_window = 4'096; // posted and not run yet, at most
inline constexpr std::size_t post_burst = 256;    // between two looks at the window

// Ends the benchmark with what went wrong.
[[noreturn]] void give_up(std::string_view what);
inline void require(bool succeeded, std::string_view what) {
    if (!succeeded) [[unlikely]] {
        give_up(what);
    }
}

// A round is one of what the name says; of the timers, one cancelled and one set again.
enum class subject { spawn_join, spawn_join_one, yield, yield_alone, child_await, when_any, timer, post };
contender ours(subject what);
// As Asio's documentation writes it, or with what makes Asio faster.
contender asio_twin(subject what, bool tuned);

// Between one and two hours, scattered.
[[nodiscard]] inline std::chrono::microseconds timer_span(std::size_t i) {
    return std::chrono::hours(1) + std::chrono::microseconds((i * 7'919'777) % 3'600'000'000);
}

// Bytes of memory, a million of each at once where they can be many.
struct footprint {
    double task = 0;              // made, not started
    double waits_on_channel = 0;  // a suspended coroutine, everything that belongs to it
    double waits_on_timer = 0;    // the same in sleep_for
    std::size_t timer = 0;        // the operation alone
    std::size_t channel_wait = 0; // the operation alone
};
footprint measure_footprint(std::size_t how_many);

} // namespace bench::runtime
