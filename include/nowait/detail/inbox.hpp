// The inbox: how other threads reach a loop.
//
// One word. It holds the newest of a chain of posted nodes, or one of three marks: empty (the loop is awake and will look),
// parked (the loop sleeps or is about to: whoever pushes must wake it), closed (there will be no further look). Because "is
// it asleep?" and "here is a node" are the same compare-and-exchange, no wake can be lost between them, and a push to a loop
// that is awake costs no system call.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/operation.hpp>
#include <nowait/detail/sync.hpp>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

enum class push_outcome { delivered, wake_needed, closed };

template <class Sync>
class inbox {
public:
    /// Any thread. After `closed` the node is still the caller's.
    push_outcome push(ready_node& node) noexcept {
        ready_node* seen = newest_.load(std::memory_order_relaxed);
        for (;;) {
            if (seen == closed_mark())
                return push_outcome::closed;
            const bool parked = seen == parked_mark();
            node.next_ready = parked ? nullptr : seen;
            // Release pairs with the acquire in take(): what the poster wrote before is seen by the loop.
            if (newest_.compare_exchange_strong(seen, &node, std::memory_order_release,
                                                std::memory_order_relaxed))
                return parked ? push_outcome::wake_needed : push_outcome::delivered;
        }
    }

    [[nodiscard]] bool maybe_filled() const noexcept {
        return newest_.load(std::memory_order_relaxed) != nullptr;
    }

    /// The owner: everything that was posted, oldest first. Also ends a park.
    [[nodiscard]] ready_node* take() noexcept {
        return reversed(newest_.exchange(nullptr, std::memory_order_acquire));
    }

    /// The owner, about to sleep. False: something is there, do not sleep.
    [[nodiscard]] bool park() noexcept {
        ready_node* expected = nullptr;
        return newest_.compare_exchange_strong(expected, parked_mark(), std::memory_order_acq_rel,
                                               std::memory_order_relaxed);
    }

    /// The owner: refuses further nodes and hands out the last ones.
    [[nodiscard]] ready_node* close() noexcept {
        return reversed(newest_.exchange(closed_mark(), std::memory_order_acq_rel));
    }

private:
    // Addresses that no posted node can have.
    [[nodiscard]] ready_node* parked_mark() noexcept { return &marks_[0]; }
    [[nodiscard]] ready_node* closed_mark() noexcept { return &marks_[1]; }

    [[nodiscard]] ready_node* reversed(ready_node* newest) noexcept {
        if (newest == parked_mark() || newest == closed_mark())
            return nullptr;
        ready_node* oldest = nullptr;
        while (newest != nullptr) {
            ready_node* older = newest->next_ready;
            newest->next_ready = oldest;
            oldest = newest;
            newest = older;
        }
        return oldest;
    }

    typename Sync::template atomic<ready_node*> newest_{nullptr};
    ready_node marks_[2];
};

} // namespace detail
NOWAIT_END_NAMESPACE
