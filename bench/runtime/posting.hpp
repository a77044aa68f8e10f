// The program of both posting contenders: functions from this thread to a loop on another, which is busy all the time.
#pragma once

#include "bench/support/contender.hpp"
#include "contenders.hpp"

#include <atomic>
#include <cstddef>
#include <thread>

#include <sched.h>

namespace bench::runtime {

// The receiver has the last CPU but one, if there are two, and the poster the last.
inline void pin_to(int from_the_end) {
    cpu_set_t all;
    CPU_ZERO(&all);
    static const int count = static_cast<int>(std::thread::hardware_concurrency());
    const int cpu = count > from_the_end ? count - 1 - from_the_end : 0;
    CPU_SET(cpu, &all);
    require(::sched_setaffinity(0, sizeof all, &all) == 0, "sched_setaffinity");
}
inline void pin_receiver() {
    pin_to(1);
}

// Posts so many functions and waits until the last has run. Never more than a window of them is under way.
template <class Post>
measurement post_all(std::size_t rounds, const Post& post) {
    std::atomic<std::size_t> ran{0};
    const auto function = [&ran] {
        ran.store(ran.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    };
    const auto wait_until = [&ran](std::size_t count) {
        while (ran.load(std::memory_order_acquire) < count) {
        }
    };
    const stopwatch clock;
    for (std::size_t posted = 0; posted < rounds; ++posted) {
        if (posted % post_burst == 0 && posted > post_window) {
            wait_until(posted - post_window);
        }
        post(function);
    }
    wait_until(rounds);
    return {rounds, clock.elapsed()};
}

} // namespace bench::runtime
