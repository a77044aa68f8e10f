// The typed edge of the priority queue: constructs, moves and destroys payloads of type T in the nodes of a
// core.
//
// This is the whole queue as long as nobody waits: a pure data structure. The layer above holds its lock
// around each call, except `destroy` and the buying of memory, and adds the waiting.
//
//     sending                                      receiving
//       check priority and size                      empty?  -> wait, or try again later
//       a receiver waits? hand over, done            taken = pop()
//       !admits(bytes), and the call may not wait?   while the first waiting sender is admitted:
//                         -> try again later             push_promised(its message)
//       !ready(priority)  -> buy without the lock,
//                            then all of this again
//       !admits(bytes)    -> promise, wait
//       push
#pragma once

#include <nowait/detail/priority_core.hpp>

#include <algorithm>
#include <new>
#include <type_traits>
#include <utility>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// A message as it leaves the queue.
template <class T>
struct received {
    T value;
    unsigned priority;
    std::uint64_t bytes;
};

template <class T, class Index = tree_index, class Order = strict_order, front_cache Front = front_cache::yes>
class priority_queue {
    static_assert(std::is_nothrow_move_constructible_v<T> && std::is_nothrow_destructible_v<T>,
                  "a message changes hands under a lock and may not throw there");
    static_assert(sizeof(T) <= 1u << 20, "put large payloads behind a pointer");

    using core_type = priority_core<Index, Order, Front>;
    using header = typename core_type::header;

public:
    using value_type = T;
    static constexpr unsigned levels = core_type::levels;

    /// `limits` were settled. Buys nothing yet. Borrows `source` for its life.
    explicit priority_queue(queue_limits limits, block_source& source = heap_blocks(),
                            Order order = {}) noexcept
        : core_(limits, layout(), source, order) {}
    ~priority_queue();

    [[nodiscard]] std::size_t size() const noexcept { return core_.size(); }
    [[nodiscard]] bool empty() const noexcept { return core_.empty(); }
    [[nodiscard]] std::uint64_t bytes() const noexcept { return core_.bytes(); }
    [[nodiscard]] const queue_limits& limits() const noexcept { return core_.limits(); }
    [[nodiscard]] bool admits(std::uint64_t bytes) const noexcept { return core_.admits(bytes); }

    // Memory: see priority_core. Buying a queue_supply and destroying it need no lock.
    [[nodiscard]] bool ready(unsigned priority) const noexcept { return core_.ready(priority); }
    [[nodiscard]] queue_need shortage(unsigned priority) const noexcept { return core_.shortage(priority); }
    void adopt(unsigned priority, queue_supply& supply) noexcept { core_.adopt(priority, supply); }
    [[nodiscard]] bool reserve(unsigned priority) noexcept { return core_.reserve(priority); }
    void promise(unsigned priority) noexcept { core_.promise(priority); }
    void retract() noexcept { core_.retract(); }
    [[nodiscard]] block_source& source() const noexcept { return core_.source(); }

    /// Moves a message in. Requires ready(priority), admits(bytes), priority < levels.
    void push(T&& value, unsigned priority, std::uint64_t bytes, std::uint64_t now = 0) noexcept;

    /// The same with a promise that was made for that priority. Requires only admits(bytes).
    void push_promised(T&& value, unsigned priority, std::uint64_t bytes, std::uint64_t now = 0) noexcept;

    /// The message that pop would take, or null. Valid until the next call that is not const.
    [[nodiscard]] T* front(std::uint64_t now = 0) const noexcept;
    [[nodiscard]] unsigned front_priority(std::uint64_t now = 0) const noexcept;

    /// Takes the next message: highest priority first, FIFO inside. Requires !empty(). The destructor of the
    /// T that was moved from runs here.
    [[nodiscard]] received<T> pop(std::uint64_t now = 0) noexcept;

    /// The same, and `give(T&&, priority)` is where the message goes: no copy on the way.
    template <class Give>
    void pop_to(Give&& give, std::uint64_t now = 0);

    /// Takes all messages out, for destruction elsewhere.
    [[nodiscard]] message_chain drain() noexcept { return core_.drain(); }

    /// Destroys the payloads of drained messages, in order. No lock: the nodes belong to the caller until
    /// `release`.
    void destroy(const message_chain& drained) const noexcept;

    /// Takes back the nodes of drained messages whose payloads were destroyed.
    void release(message_chain drained) noexcept { core_.release(drained); }

    [[nodiscard]] const core_type& core() const noexcept { return core_; }

private:
    static constexpr std::size_t payload_distance =
        (sizeof(header) + alignof(T) - 1) / alignof(T) * alignof(T);

    static constexpr node_layout layout() noexcept {
        return {payload_distance + sizeof(T), std::max(alignof(header), alignof(T))};
    }
    static void* place(message_node& node) noexcept;
    static T& payload(message_node& node) noexcept;

    core_type core_;
};

/// Messages of one kind, first in first out: the same queue with a single priority, 0.
template <class T>
using fifo_queue = priority_queue<T, no_index>;

template <class T, class Index, class Order, front_cache Front>
priority_queue<T, Index, Order, Front>::~priority_queue() {
    destroy(drain());
}

template <class T, class Index, class Order, front_cache Front>
inline void* priority_queue<T, Index, Order, Front>::place(message_node& node) noexcept {
    return reinterpret_cast<std::byte*>(&node) + payload_distance;
}

template <class T, class Index, class Order, front_cache Front>
inline T& priority_queue<T, Index, Order, Front>::payload(message_node& node) noexcept {
    return *std::launder(static_cast<T*>(place(node)));
}

template <class T, class Index, class Order, front_cache Front>
inline void priority_queue<T, Index, Order, Front>::push(T&& value, unsigned priority, std::uint64_t bytes,
                                                         std::uint64_t now) noexcept {
    const message_ref message = core_.claim();
    ::new (place(*message.node)) T(std::move(value));
    core_.insert(message, priority, bytes, now);
}

template <class T, class Index, class Order, front_cache Front>
inline void priority_queue<T, Index, Order, Front>::push_promised(T&& value, unsigned priority,
                                                                  std::uint64_t bytes,
                                                                  std::uint64_t now) noexcept {
    core_.retract();
    push(std::move(value), priority, bytes, now);
}

template <class T, class Index, class Order, front_cache Front>
inline T* priority_queue<T, Index, Order, Front>::front(std::uint64_t now) const noexcept {
    const message_ref next = core_.front(now);
    return next ? &payload(*next.node) : nullptr;
}

template <class T, class Index, class Order, front_cache Front>
inline unsigned priority_queue<T, Index, Order, Front>::front_priority(std::uint64_t now) const noexcept {
    return core_.front(now).node->priority;
}

template <class T, class Index, class Order, front_cache Front>
inline received<T> priority_queue<T, Index, Order, Front>::pop(std::uint64_t now) noexcept {
    const message_ref taken = core_.pop(now);
    T& value = payload(*taken.node);
    received<T> out{std::move(value), taken.node->priority, taken.node->bytes};
    value.~T();
    core_.release(taken);
    return out;
}

template <class T, class Index, class Order, front_cache Front>
template <class Give>
inline void priority_queue<T, Index, Order, Front>::pop_to(Give&& give, std::uint64_t now) {
    const message_ref taken = core_.pop(now);
    T& value = payload(*taken.node);
    give(std::move(value), unsigned{taken.node->priority});
    value.~T();
    core_.release(taken);
}

template <class T, class Index, class Order, front_cache Front>
void priority_queue<T, Index, Order, Front>::destroy(const message_chain& drained) const noexcept {
    message_link link = drained.head;
    for (std::size_t left = drained.count; left > 0; --left) {
        message_node& node = core_[link];
        link = node.next;
        payload(node).~T();
    }
}

} // namespace detail
NOWAIT_END_NAMESPACE
