// The priority queue itself: messages, limits and order. No waiting, no lock, no payload type.
//
//      front_priority_ = 31
//      front_    o -> [m] -> [m] -> [m]            the highest priority present, outside the index
//
//      index_    20 -> [m]                         all others: a tree, or a tree of bitmaps
//                 9 -> [m] -> [m]
//                 3 -> [m]
//
//      slab_     the nodes of all of them, and the free ones
//
// The list of the highest priority is kept in front of the index. While one priority is in use, or a receiver
// keeps up with its senders, the index is never touched: a send and a receive are a push and a pop on one
// list. The front is put into the index when a higher priority arrives, and the next one is lifted out when
// it has run empty. Without the front (`front_cache::no`) every message goes through the index: kept to
// measure what the front brings.
//
// **Insertion cannot fail.** All memory is obtained before, in steps that fail without a trace (see
// priority_memory.hpp):
//
//     while (!core.ready(p)) {
//         need = core.shortage(p);          then without the lock: supply.buy(source, need)
//         core.adopt(p, supply);
//     }
//     core.insert(core.claim(), p, ...);
//
// A sender that has to wait is promised its place: `promise(p)` sets aside what one insertion of priority p
// can need, so that whoever makes room later can insert the message on the spot. `retract()` gives the
// promise back, either because the sender went away or just before the insertion.
//
// Invariants:
//   1. size() = number of messages in front_ and index_; bytes() = sum of their bytes.
//   2. With a front: front_ empty <=> size() = 0; every priority in the index is lower than front_priority_.
//   3. slab_.available() >= promised_, and the index can make promised_ new lists.
//   4. Messages of one priority leave in the order in which they were inserted.
// A layer that hands messages directly to waiting receivers adds: receivers wait => size() = 0; senders wait
// => the message of the first of them is not admitted.
#pragma once

#include <nowait/detail/priority_bitmap.hpp>
#include <nowait/detail/priority_order.hpp>
#include <nowait/detail/priority_tree.hpp>

#include <cassert>
#include <system_error>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// The bounds of a queue.
struct queue_limits {
    std::uint64_t messages = 10;
    std::uint64_t message_bytes = 8192; // of one message
    std::uint64_t total_bytes =
        0; // of all messages together; 0: as many as `messages` of the largest size have

    static constexpr std::uint64_t most_messages = std::uint64_t{1} << 26;
    static constexpr std::uint64_t most_message_bytes = std::uint64_t{1} << 40;
    static constexpr std::uint64_t most_total_bytes = std::uint64_t{1} << 62;
};

/// Checks each limit by itself and fills in `total_bytes`.
/// Returns no error, or invalid_argument: no messages (unless `rendezvous`), no message_bytes, any limit
/// above its `most_...`, or a total below one message of the largest size.
[[nodiscard]] NOWAIT_API std::errc settle(queue_limits& limits, bool rendezvous = false) noexcept;

/// What a queue is short of, or the blocks for it.
struct queue_need {
    block_need slab{};
    block_need index{};
};
struct queue_supply {
    memory_block slab{};
    memory_block index{};

    /// Buys both, or returns false: ENOMEM.
    [[nodiscard]] NOWAIT_API bool buy(block_source& source, const queue_need& need) noexcept;
};

/// The index of a queue with one priority: there is none, the front is everything.
class no_index {
public:
    static constexpr unsigned levels = 1;
    static constexpr bool keeps_spares = true;

    explicit no_index(block_source&) noexcept {}
    [[nodiscard]] bool empty() const noexcept { return true; }
    [[nodiscard]] bool ready(unsigned, std::size_t) const noexcept { return true; }
    [[nodiscard]] block_need shortage(unsigned) const noexcept { return {}; }
    void adopt(unsigned, memory_block&) noexcept {}
    [[nodiscard]] bool sound(std::size_t) const noexcept { return true; }
};

enum class front_cache : bool { no, yes };

template <class Index, class Order = strict_order, front_cache Front = front_cache::yes>
class priority_core {
    static_assert(Index::levels > 1 || (Front == front_cache::yes && !Order::remembers_arrival),
                  "a queue without an index is its front, and strictly FIFO");

public:
    using header = typename Order::header;
    static constexpr unsigned levels = Index::levels;

    /// `limits` were settled. Buys nothing yet. Borrows `source` for its life.
    priority_core(queue_limits limits, node_layout layout, block_source& source, Order order = {}) noexcept;
    priority_core(const priority_core&) = delete;
    priority_core& operator=(const priority_core&) = delete;

    /// Requires that no message is left: only the owner knows how to destroy a payload.
    ~priority_core() { assert(empty()); }

    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard, gnu::always_inline]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] const queue_limits& limits() const noexcept { return limits_; }
    [[nodiscard]] block_source& source() const noexcept { return *source_; }

    /// Room for one more message of so many bytes. Requires bytes <= limits().message_bytes.
    [[nodiscard]] bool admits(std::uint64_t bytes) const noexcept;

    /// True if a message of that priority can be inserted now without memory, beside the promised ones.
    [[nodiscard]] bool ready(unsigned priority) const noexcept;

    /// What is missing for `ready`. One round of buy and adopt may not be enough.
    [[nodiscard]] queue_need shortage(unsigned priority) const noexcept;

    /// Takes the blocks that are still wanted; what then is in `supply` is for the caller to give back.
    void adopt(unsigned priority, queue_supply& supply) noexcept;

    /// For callers without a lock: all of the above until ready. Returns false: ENOMEM, nothing has changed
    /// but memory that is kept for later.
    [[nodiscard]] bool reserve(unsigned priority) noexcept;

    /// Sets aside what one insertion of that priority needs. Requires ready(priority).
    void promise(unsigned priority) noexcept;

    /// Takes back one promise.
    void retract() noexcept;
    [[nodiscard]] std::size_t promised() const noexcept { return promised_; }

    /// A node to construct a payload in. Requires ready() of the priority that it will be inserted with.
    [[nodiscard, gnu::always_inline]] message_ref claim() noexcept { return slab_.claim(); }

    /// Puts a claimed node, its payload constructed, behind the others of its priority. `now` is the clock of
    /// an order by time.
    void insert(message_ref message, unsigned priority, std::uint64_t bytes, std::uint64_t now = 0) noexcept;

    /// While nothing is promised: true if a message would join the list in front of the index, and there are room and a node
    /// for it. The common case, cheaply: the index is not looked at.
    [[nodiscard]] bool front_admits(unsigned priority, std::uint64_t bytes) const noexcept;

    /// The same as insert, for that case.
    void join_front(message_ref message, unsigned priority, std::uint64_t bytes) noexcept;

    /// The message that pop would return, or none.
    [[nodiscard]] message_ref front(std::uint64_t now = 0) const noexcept;

    /// Takes out the next message. Requires !empty(). The node stays claimed until it is released.
    [[nodiscard]] message_ref pop(std::uint64_t now = 0) noexcept;

    /// Takes back a node that was claimed and is in no list, its payload destroyed. The same for a whole
    /// chain.
    [[gnu::always_inline]] void release(message_ref used) noexcept { slab_.release(used); }
    void release(message_chain used) noexcept { slab_.release(used); }

    /// Takes out all messages, highest priority first, FIFO inside. Their payloads may be destroyed without a
    /// lock; then the chain is released. Takes time in proportion to the priorities present, not to the
    /// messages.
    [[nodiscard]] message_chain drain() noexcept;

    /// The node of a link: for walking a chain, also without a lock.
    [[nodiscard]] message_node& operator[](message_link link) const noexcept { return slab_[link]; }

    /// For tests: true if the invariants hold. Looks at everything that is queued.
    [[nodiscard]] bool sound() const noexcept;

private:
    static constexpr unsigned no_priority = priority_levels;
    static constexpr bool has_front = Front == front_cache::yes;

    message_ref pop_front() noexcept;
    message_ref pop_strict() noexcept;
    message_ref pop_longest_waiting() noexcept;
    void insert_beside_front(message_ref message, unsigned priority) noexcept;
    void lift_front() noexcept;
    void join(message_chain& chain, message_bucket list) const noexcept;

    message_bucket front_{};
    unsigned front_priority_ = no_priority; // of front_, or of the last message that was in it
    std::size_t size_ = 0;
    std::uint64_t bytes_ = 0;
    std::size_t promised_ = 0;
    message_slab slab_;
    Index index_;
    [[no_unique_address]] Order order_;
    queue_limits limits_;
    block_source* source_;
};

template <class Index, class Order, front_cache Front>
[[gnu::always_inline]] inline bool priority_core<Index, Order, Front>::admits(
    std::uint64_t bytes) const noexcept {
    return size_ < limits_.messages && bytes <= limits_.total_bytes - bytes_;
}

template <class Index, class Order, front_cache Front>
[[gnu::always_inline]] inline bool priority_core<Index, Order, Front>::ready(
    unsigned priority) const noexcept {
    return slab_.available() > promised_ && index_.ready(priority, promised_);
}

template <class Index, class Order, front_cache Front>
inline void priority_core<Index, Order, Front>::promise(unsigned priority) noexcept {
    assert(ready(priority));
    static_cast<void>(priority);
    ++promised_;
}

template <class Index, class Order, front_cache Front>
inline void priority_core<Index, Order, Front>::retract() noexcept {
    assert(promised_ > 0);
    --promised_;
}

template <class Index, class Order, front_cache Front>
[[gnu::always_inline]] inline void priority_core<Index, Order, Front>::insert(message_ref message,
                                                                              unsigned priority,
                                                                              std::uint64_t bytes,
                                                                              std::uint64_t now) noexcept {
    assert(priority < levels && admits(bytes));
    message.node->next = no_message;
    message.node->priority = static_cast<std::uint16_t>(priority);
    message.node->bytes = bytes;
    bytes_ += bytes;
    if constexpr (Order::remembers_arrival)
        order_.arrived(slab_, message, now);
    else
        static_cast<void>(now);
    if (has_front && size_ == 0) {
        front_ = {message.link, message.link};
        front_priority_ = priority;
    } else if (has_front && (levels == 1 || priority == front_priority_)) {
        slab_[front_.tail].next = message.link;
        front_.tail = message.link;
    } else {
        insert_beside_front(message, priority);
    }
    ++size_;
}

template <class Index, class Order, front_cache Front>
[[gnu::always_inline]] inline bool priority_core<Index, Order, Front>::front_admits(
    unsigned priority, std::uint64_t bytes) const noexcept {
    return has_front && !Order::remembers_arrival && priority == front_priority_ && size_ != 0 &&
           slab_.available() != 0 && admits(bytes);
}

template <class Index, class Order, front_cache Front>
[[gnu::always_inline]] inline void priority_core<Index, Order, Front>::join_front(
    message_ref message, unsigned priority, std::uint64_t bytes) noexcept {
    message.node->next = no_message;
    message.node->priority = static_cast<std::uint16_t>(priority);
    message.node->bytes = bytes;
    bytes_ += bytes;
    slab_[front_.tail].next = message.link;
    front_.tail = message.link;
    ++size_;
}

template <class Index, class Order, front_cache Front>
[[gnu::always_inline]] inline message_ref priority_core<Index, Order, Front>::pop(
    std::uint64_t now) noexcept {
    assert(size_ > 0);
    message_ref taken;
    if constexpr (Order::remembers_arrival) {
        taken = order_.is_its_turn(slab_, now) ? pop_longest_waiting() : pop_strict();
        order_.left(slab_, taken);
    } else {
        static_cast<void>(now);
        taken = pop_strict();
    }
    bytes_ -= taken.node->bytes;
    return taken;
}

template <class Index, class Order, front_cache Front>
[[gnu::always_inline]] inline message_ref priority_core<Index, Order, Front>::pop_strict() noexcept {
    if constexpr (has_front) {
        return pop_front();
    } else {
        --size_;
        return index_.pop(slab_, index_.highest());
    }
}

template <class Index, class Order, front_cache Front>
[[gnu::always_inline]] inline message_ref priority_core<Index, Order, Front>::pop_front() noexcept {
    const message_ref taken{front_.head, &slab_[front_.head]};
    front_.head = taken.node->next;
    --size_;
    if (levels > 1 && front_.head == no_message && size_ != 0)
        lift_front();
    return taken;
}

// The slow halves, compiled once for each kind of queue.
extern template class NOWAIT_API priority_core<tree_index>;
extern template class NOWAIT_API priority_core<bitmap_index>;
extern template class NOWAIT_API priority_core<no_index>;
extern template class NOWAIT_API priority_core<tree_index, fair_order>;
extern template class NOWAIT_API priority_core<bitmap_index, fair_order>;
extern template class NOWAIT_API priority_core<uncached_tree_index, strict_order, front_cache::no>;
extern template class NOWAIT_API priority_core<bitmap_index, strict_order, front_cache::no>;

} // namespace detail
NOWAIT_END_NAMESPACE
