// What ours is compared with. A round is one message sent and one received.
#pragma once

#include "workload.hpp"

#include <chrono>
#include <cstddef>
#include <memory>

namespace bench::queues {

// Pairs of send and receive, with so many messages in the queue.
contender heap_local(pattern which,
                     std::size_t depth); // std::priority_queue, FIFO by a sequence number, no lock
contender heap_locked(pattern which, std::size_t depth); // the same under std::mutex
contender tbb_queue(pattern which, std::size_t depth);   // tbb::concurrent_priority_queue, the same order
contender kernel_queue(pattern which);                   // mq_send and mq_receive on an empty queue
contender boost_queue(pattern which, std::size_t depth); // boost::interprocess::message_queue

// Ints through 64 places between two coroutines; and between two threads, with their CPU time.
struct cpu_time {
    std::chrono::nanoseconds spent{};
    std::size_t messages = 0;
};
contender asio_ints();
contender asio_cross(bool two_cpus, std::shared_ptr<cpu_time> used);

// The same program, one line of the published tables each. The kernel's queue is as deep as its limits allow, and
// its limits are raised for it where that is allowed.
published_line heap_locked_line(const fine_clock& clock);
published_line tbb_line(const fine_clock& clock);
published_line boost_line(const fine_clock& clock);
published_line kernel_line(const fine_clock& clock);

} // namespace bench::queues
