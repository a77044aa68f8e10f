// Two threads, pinned to two CPUs or to one, that begin together.
#pragma once

#include "baselines.hpp"

#include <functional>

namespace bench::queues {

// The time from the common beginning to the later end, and the CPU time of the whole process meanwhile.
[[nodiscard]] measurement on_two_threads(bool two_cpus, std::size_t messages, cpu_time& used,
                                         const std::function<void()>& first,
                                         const std::function<void()>& second);

} // namespace bench::queues
