// Processes, CPUs and threads as the benchmarks need them.
#pragma once

#include "contender.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace bench {

// Pins the calling process to the last CPU it may run on (the first one usually serves the interrupts).
// Returns that CPU. Threads and children made afterwards inherit it.
int pin_to_one_cpu();

// Lets the calling process run on every CPU it could use before it was pinned.
void unpin();

// How often another process took the CPU away from the calling thread.
[[nodiscard]] long involuntary_switches();

// How many io_uring worker threads ("iou-wrk-...") this process has just now.
[[nodiscard]] int count_io_workers();

// The directory this executable lies in, without a slash at the end.
[[nodiscard]] std::string executable_directory();
[[nodiscard]] std::string executable_path();

// A contender that lives in another process: `program --serve NAME`. Kernel worker threads it causes are not ours, and
// a program built in another way can be compared slice by slice.
[[nodiscard]] contender served(std::string shown_name, std::string program, std::string name);

// The other side of `served`: reads a number of rounds per line from standard input and answers with what was
// measured, until standard input ends. Returns the exit code for main.
int serve(const contender& what);

} // namespace bench
