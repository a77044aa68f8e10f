// Whole programs that copy standard input to standard output, measured from their start to the end of their output.
#pragma once

#include "workload.hpp"

#include <string>
#include <vector>

namespace bench::pipes {

enum class feed {
    pipe, // another process writes zeros into a pipe
    file, // a file in memory (/dev/shm)
};

// A round is 1 MiB. The reader at the end is this process; it counts every byte. Standard error goes to /dev/null.
contender filter(std::string name, std::vector<std::string> command, feed from);

// The candidate that moves `rounds` MiB fastest, by the median of a few interleaved runs.
contender faster_of(const std::vector<contender>& candidates, std::size_t rounds);

} // namespace bench::pipes
