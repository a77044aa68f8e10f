// What the in-process pipes are measured against: the kernel's pipe, and memory itself.
#pragma once

#include "workload.hpp"

namespace bench::channels {

contender kernel_loop(); // libc write + read, 512 bytes, one thread
contender kernel_bulk(); // one thread: fills a chunk, writes it, reads it, scans it
contender memcpy_bulk(); // fills a chunk, copies it into a place of its size and out of it, scans it

// 64 threads on one pipe, spread over all CPUs that this process may use.
token_program kernel_tokens();

} // namespace bench::channels
