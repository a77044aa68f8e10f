// Room for a deep POSIX queue: the kernel's limits raised while this lives, where that is allowed, and put back afterwards.
#pragma once

#include <cstddef>
#include <string>

#include <sys/resource.h>

namespace bench::queues {

class raised_queue_limits {
public:
    // Enough for one queue of so many messages of so many bytes. What cannot be raised stays as it is.
    raised_queue_limits(std::size_t messages, std::size_t message_bytes);
    raised_queue_limits(const raised_queue_limits&) = delete;
    raised_queue_limits& operator=(const raised_queue_limits&) = delete;
    ~raised_queue_limits();

private:
    std::string depth_before_; // /proc/sys/fs/mqueue/msg_max; empty: not changed
    rlimit bytes_before_{};
    bool bytes_raised_ = false;
};

} // namespace bench::queues
