// The kernel's queue, awaited, beside the same calls by hand.
#pragma once

#include "workload.hpp"

namespace bench::queues {

// Send and receive, one after the other, on a queue that never makes anybody wait: ours, and a loop of the same calls with the same
// deadline through libc.
contender posix_ready_ours();
contender posix_ready_raw();

// A message there and one back between two processes, each asleep until its message comes. The other process is the same for
// both, a thread blocked in mq_receive; here it is a suspended coroutine, and a thread blocked in mq_receive.
contender posix_wait_ours();
contender posix_wait_thread();
// The same with suspended coroutines in both processes.
contender posix_wait_ours_both();

} // namespace bench::queues
