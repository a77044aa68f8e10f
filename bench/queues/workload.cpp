#include "workload.hpp"

#include "bench/support/statistics.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace bench::queues {

void give_up(std::string_view what) {
    std::fprintf(stderr, "bench_queues: %.*s failed\n", static_cast<int>(what.size()), what.data());
    std::exit(EXIT_FAILURE);
}

std::uint64_t fine_clock::read() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_lfence();
    return __builtin_ia32_rdtsc();
#else
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

fine_clock::fine_clock() {
    constexpr int readings = 1000;
    std::vector<double> costs;
    const auto began = std::chrono::steady_clock::now();
    const std::uint64_t first = read();
    for (int round = 0; round < 100; ++round) {
        const std::uint64_t begin = read();
        for (int i = 1; i < readings; ++i) {
            (void)read();
        }
        costs.push_back(static_cast<double>(read() - begin) / readings);
    }
    cost_ = quantile(costs, 0.5);
    while (std::chrono::steady_clock::now() - began < std::chrono::milliseconds(20)) {
    }
    const std::uint64_t end = read();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - began;
    nanoseconds_per_tick_ = took.count() / static_cast<double>(end - first);
}

void halves_of_pairs::add(std::uint64_t before, std::uint64_t between, std::uint64_t after) {
    send_sum_ += between - before;
    receive_sum_ += after - between;
    if (++count_ == stretch) {
        sending_.push_back(static_cast<double>(std::exchange(send_sum_, 0)) / stretch);
        receiving_.push_back(static_cast<double>(std::exchange(receive_sum_, 0)) / stretch);
        count_ = 0;
    }
}

double halves_of_pairs::middle(const std::vector<double>& of, const fine_clock& clock) {
    return clock.nanoseconds(std::max(0.0, quantile(of, 0.5) - clock.cost()));
}

} // namespace bench::queues
