// Ours: the same workloads as tasks on a nowait runtime. A round means what it means for the baselines.
#pragma once

#include "workload.hpp"

namespace bench::pipes {

contender ours_ready();
contender ours_lockstep(); // checks by the runtime's counters that every read waits before the first write
contender ours_free();
contender ours_pingpong();
contender ours_loop();
contender ours_bulk();

// On the epoll driver.
contender ours_poll_ready();
contender ours_poll_lockstep();

// The library with its counters compiled out.
contender uncounted_ready();
contender uncounted_lockstep();

} // namespace bench::pipes
