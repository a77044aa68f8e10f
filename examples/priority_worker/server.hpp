// The server: takes jobs out of the queue, the urgent first, and writes results to a FIFO.
#pragma once

#include <nowait/nowait.hpp>

#include <cstddef>
#include <string>

namespace priority_worker {

struct settings {
    std::string queue;
    std::string results;
    std::size_t workers = 2;
    std::size_t count = 0; ///< jobs to do, 0: until it is stopped
    bool dedicated = false;
};

/// The queue as both sides open it, whoever comes first.
[[nodiscard]] nowait::posix_mqueue_options queue_options(nowait::mqueue_access access);

/// Returns: the program's exit status.
[[nodiscard]] nowait::task<int> serve(settings wanted);

/// Says what went wrong with `what`, and why. Returns: 1.
int complain(const std::string& what, std::error_code error, nowait::subject about);

} // namespace priority_worker
