// Ours: the same workloads, awaited by tasks on a nowait runtime.
#pragma once

#include "baselines.hpp"
#include "workload.hpp"

namespace bench::queues {

enum class kind {
    shared_tree,
    shared_bitmap,
    local_tree,
    local_bitmap,
    shared_uncached, // the kernel's tree without its caches: no front bucket, no spare nodes
};

contender ours_pairs(kind which_queue, pattern which, std::size_t depth);
contender ours_ints(kind which_queue);
contender ours_fifo(bool shared);
contender ours_cross(bool two_cpus, std::shared_ptr<cpu_time> used);
published_line ours_line(kind which_queue, const fine_clock& clock);

} // namespace bench::queues
