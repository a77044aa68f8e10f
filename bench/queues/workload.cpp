#include "workload.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace bench::queues {

void give_up(std::string_view what) {
    std::fprintf(stderr, "bench_queues: %.*s failed\n", static_cast<int>(what.size()), what.data());
    std::exit(EXIT_FAILURE);
}

std::uint64_t fine_clock::read() noexcept {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

fine_clock::fine_clock() {
    const auto began = std::chrono::steady_clock::now();
    const std::uint64_t first = read();
    constexpr int readings = 200'000;
    for (int i = 0; i < readings; ++i) {
        (void)read();
    }
    const std::uint64_t last = read();
    cost_ = static_cast<double>(last - first) / readings;
    while (std::chrono::steady_clock::now() - began < std::chrono::milliseconds(20)) {
    }
    const std::uint64_t end = read();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - began;
    nanoseconds_per_tick_ = took.count() / static_cast<double>(end - first);
}

double fine_clock::per_message(std::uint64_t ticks, std::size_t messages) const noexcept {
    const double each = static_cast<double>(ticks) / static_cast<double>(messages) - cost_;
    return std::max(0.0, each * nanoseconds_per_tick_);
}

} // namespace bench::queues
