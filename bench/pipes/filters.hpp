// Whole programs that copy standard input to standard output, measured from their start to the end of their output.
#pragma once

#include "workload.hpp"

#include <string>
#include <vector>

namespace bench::pipes {

enum class feed {
    pipe, // another process fills a pipe with zeros
    file, // a file in memory (/dev/shm)
};

// A round is 1 MiB. So that the filter is measured and not its neighbours, these copy nothing: the producer lends the
// same pages of zeros again and again (vmsplice), this process throws away what it gets (splice to /dev/null) and counts
// it. Standard error goes to /dev/null.
contender filter(std::string name, std::vector<std::string> command, feed from);

// The candidate that moves `rounds` MiB fastest, by the median of a few interleaved runs.
contender faster_of(const std::vector<contender>& candidates, std::size_t rounds);

} // namespace bench::pipes
