#include <nowait/detail/priority_core.hpp>

#include <algorithm>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

std::errc settle(queue_limits& limits, bool rendezvous) noexcept {
    const bool depth_ok =
        limits.messages <= queue_limits::most_messages && (limits.messages > 0 || rendezvous);
    const bool size_ok = limits.message_bytes > 0 && limits.message_bytes <= queue_limits::most_message_bytes;
    const bool total_ok = limits.total_bytes == 0 || (limits.total_bytes >= limits.message_bytes &&
                                                      limits.total_bytes <= queue_limits::most_total_bytes);
    if (!depth_ok || !size_ok || !total_ok)
        return std::errc::invalid_argument;
    if (limits.total_bytes ==
        0) { // both factors were checked, so the product is known not to wrap where it is taken
        const bool huge = limits.messages > queue_limits::most_total_bytes / limits.message_bytes;
        limits.total_bytes = huge ? queue_limits::most_total_bytes
                                  : std::max(limits.messages, std::uint64_t{1}) * limits.message_bytes;
    }
    return std::errc{};
}

bool queue_supply::buy(block_source& source, const queue_need& need) noexcept {
    return slab.buy(source, need.slab) && index.buy(source, need.index);
}

template <class Index, class Order, front_cache Front>
priority_core<Index, Order, Front>::priority_core(queue_limits limits, node_layout layout,
                                                  block_source& source, Order order) noexcept
    : slab_(layout, static_cast<std::size_t>(limits.messages), source), index_(source), order_(order),
      limits_(limits), source_(&source) {}

template <class Index, class Order, front_cache Front>
queue_need priority_core<Index, Order, Front>::shortage(unsigned priority) const noexcept {
    queue_need need;
    if (slab_.available() <= promised_)
        need.slab = slab_.shortage();
    if (!index_.ready(priority, promised_))
        need.index = index_.shortage(priority);
    return need;
}

// Between shortage and adopt others may have brought the same: what is no longer needed is not taken.
template <class Index, class Order, front_cache Front>
void priority_core<Index, Order, Front>::adopt(unsigned priority, queue_supply& supply) noexcept {
    if (slab_.available() <= promised_)
        slab_.adopt(supply.slab);
    if (!index_.ready(priority, promised_))
        index_.adopt(priority, supply.index);
}

template <class Index, class Order, front_cache Front>
bool priority_core<Index, Order, Front>::reserve(unsigned priority) noexcept {
    while (!ready(priority)) {
        queue_supply supply;
        if (!supply.buy(*source_, shortage(priority)))
            return false;
        adopt(priority, supply);
    }
    return true;
}

template <class Index, class Order, front_cache Front>
void priority_core<Index, Order, Front>::insert_beside_front(message_ref message,
                                                             unsigned priority) noexcept {
    if constexpr (levels > 1) {
        if (has_front && priority > front_priority_) {
            index_.put(front_priority_, front_);
            front_ = {message.link, message.link};
            front_priority_ = priority;
        } else {
            index_.append(slab_, priority, message);
        }
    }
}

template <class Index, class Order, front_cache Front>
void priority_core<Index, Order, Front>::lift_front() noexcept {
    if constexpr (levels > 1)
        front_ = index_.take_highest(front_priority_);
}

template <class Index, class Order, front_cache Front>
message_ref priority_core<Index, Order, Front>::pop_longest_waiting() noexcept {
    if constexpr (Order::remembers_arrival) {
        const unsigned priority = slab_[order_.longest_waiting()].priority;
        if (!has_front || priority != front_priority_) {
            --size_;
            return index_.pop(slab_, priority); // the oldest of all is the first of its priority
        }
    }
    return pop_strict();
}

template <class Index, class Order, front_cache Front>
message_ref priority_core<Index, Order, Front>::front(std::uint64_t now) const noexcept {
    if (empty())
        return {};
    message_link next = front_.head;
    if constexpr (!has_front)
        next = index_.first(index_.highest());
    if constexpr (Order::remembers_arrival) {
        if (order_.is_its_turn(slab_, now))
            next = order_.longest_waiting();
    }
    static_cast<void>(now);
    return {next, &slab_[next]};
}

template <class Index, class Order, front_cache Front>
message_chain priority_core<Index, Order, Front>::drain() noexcept {
    message_chain all;
    if (front_.head != no_message)
        join(all, front_);
    if constexpr (levels > 1) {
        unsigned priority = 0;
        while (!index_.empty())
            join(all, index_.take_highest(priority));
    }
    all.count = size_;
    front_ = {};
    size_ = 0;
    bytes_ = 0;
    if constexpr (Order::remembers_arrival)
        order_.forget_all();
    return all;
}

template <class Index, class Order, front_cache Front>
void priority_core<Index, Order, Front>::join(message_chain& chain, message_bucket list) const noexcept {
    if (chain.head == no_message)
        chain.head = list.head;
    else
        slab_[chain.tail].next = list.head;
    chain.tail = list.tail;
}

template <class Index, class Order, front_cache Front>
bool priority_core<Index, Order, Front>::sound() const noexcept {
    if (!index_.sound(promised_) || slab_.available() < promised_ ||
        slab_.total() - slab_.available() < size_)
        return false;
    if constexpr (has_front) {
        if ((front_.head == no_message) != (size_ == 0) || (size_ == 0 && !index_.empty()))
            return false;
        std::size_t in_front = 0;
        for (message_link m = front_.head; m != no_message; m = slab_[m].next)
            in_front += slab_[m].priority == front_priority_ ? 1 : size_ + 1;
        if (in_front > size_)
            return false;
    }
    if constexpr (has_front && levels > 1)
        return index_.empty() || index_.highest() < front_priority_;
    return true;
}

template class priority_core<tree_index>;
template class priority_core<bitmap_index>;
template class priority_core<no_index>;
template class priority_core<tree_index, fair_order>;
template class priority_core<bitmap_index, fair_order>;
template class priority_core<uncached_tree_index, strict_order, front_cache::no>;
template class priority_core<bitmap_index, strict_order, front_cache::no>;

} // namespace detail
NOWAIT_END_NAMESPACE
