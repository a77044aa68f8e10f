// What bench_pool compares: work given to a thread and its end brought back, so many at a time.
#pragma once

#include "bench/support/contender.hpp"

#include <cstddef>

namespace bench::pool {

// Threads that either pool may have. The work is short: more of them would only take turns.
inline constexpr std::size_t threads = 4;

// The work: a function that nothing can leave out.
void work(std::size_t& counter) noexcept;

[[nodiscard]] contender ours(std::size_t in_flight);
[[nodiscard]] contender asio_handlers(std::size_t in_flight);
[[nodiscard]] contender asio_coroutines(std::size_t in_flight);

} // namespace bench::pool
