// Two threads, pinned to two CPUs or to one, that begin together.
#pragma once

#include "baselines.hpp"

#include <atomic>
#include <functional>
#include <thread>

namespace bench::queues {

// A thread that sleeps while this lives. In a process of one thread, our lock and the C library's mutex leave their atomic
// instructions out: rows about what a shared queue costs where it is shared are measured in company, ours and baseline alike.
class company {
public:
    company();
    company(const company&) = delete;
    company& operator=(const company&) = delete;
    ~company();

private:
    std::atomic<bool> over_ = false;
    std::thread sleeper_;
};

// The time from the common beginning to the later end, and the CPU time of the whole process meanwhile.
[[nodiscard]] measurement on_two_threads(bool two_cpus, std::size_t messages, cpu_time& used,
                                         const std::function<void()>& first,
                                         const std::function<void()>& second);

} // namespace bench::queues
