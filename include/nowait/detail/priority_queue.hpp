// The typed edge of the priority queue: constructs, moves and destroys payloads of type T in the nodes of a
// core.
//
// This is the whole queue as long as nobody waits: a pure data structure. The layer above holds its lock
// around each call, except `destroy` and the buying of memory, and adds the waiting.
//
// A message that finds the queue empty stays here, beside the core: where receivers keep up, a send and a
// receive are a move in and a move out, and touch neither node nor list. When a second one comes the first
// sinks into the core. Invariant: lone_ => core_ is empty, and nothing is promised (try_push, which makes it, is
// for times when nobody waits; promise() requires ready(), which sinks it).
//
//     sending                                      receiving
//       check priority and size                      empty?  -> wait, or try again later
//       try_push? done                               taken = pop()
//       a receiver waits? hand over, done            while the first waiting sender is admitted:
//       !admits(bytes), and the call may not wait?       push_promised(its message)
//                         -> try again later
//       !ready(priority)  -> buy without the lock,
//                            then all of this again
//       !admits(bytes)    -> promise, wait
//       push
#pragma once

#include <nowait/detail/priority_core.hpp>

#include <algorithm>
#include <new>
#include <optional>
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
    // Without a front everything is to go through the index, and an order by arrival keeps its book in the nodes.
    static constexpr bool has_lone = Front == front_cache::yes && !Order::remembers_arrival;

public:
    using value_type = T;
    static constexpr unsigned levels = core_type::levels;

    /// All messages of a queue, for destruction without the lock. The nodes are still claimed.
    struct drained {
        message_chain chain{};
        bool lone = false;
        std::size_t count = 0;
    };

    /// `limits` were settled. Buys nothing yet. Borrows `source` for its life.
    explicit priority_queue(queue_limits limits, block_source& source = heap_blocks(),
                            Order order = {}) noexcept
        : core_(limits, layout(), source, order) {}
    ~priority_queue();

    priority_queue(const priority_queue&) = delete;
    priority_queue& operator=(const priority_queue&) = delete;

    [[nodiscard]] std::size_t size() const noexcept { return lone_ ? 1 : core_.size(); }
    [[nodiscard]] bool empty() const noexcept { return !lone_ && core_.empty(); }
    [[nodiscard]] std::uint64_t bytes() const noexcept { return lone_ ? lone_bytes_ : core_.bytes(); }
    [[nodiscard]] const queue_limits& limits() const noexcept { return core_.limits(); }
    [[nodiscard, gnu::always_inline]] bool admits(std::uint64_t bytes) const noexcept;

    // Memory: see priority_core. Buying a queue_supply and destroying it need no lock.
    [[nodiscard, gnu::always_inline]] bool ready(unsigned priority) noexcept {
        return (!lone_ || sink_lone()) && core_.ready(priority);
    }
    [[nodiscard]] queue_need shortage(unsigned priority) const noexcept {
        return core_.shortage(lone_ ? lone_priority_ : priority);
    }
    void adopt(unsigned priority, queue_supply& supply) noexcept {
        core_.adopt(lone_ ? lone_priority_ : priority, supply);
    }
    [[nodiscard]] bool reserve(unsigned priority) noexcept;
    void promise(unsigned priority) noexcept { core_.promise(priority); }
    void retract() noexcept { core_.retract(); }
    [[nodiscard]] std::size_t promised() const noexcept { return core_.promised(); }
    [[nodiscard]] block_source& source() const noexcept { return core_.source(); }

    /// While nothing is promised: moves a message in if that needs neither room nor memory that is not there. Returns
    /// whether it did. Requires priority < levels, and bytes within the limit of one message.
    [[nodiscard]] bool try_push(T& value, unsigned priority, std::uint64_t bytes,
                                std::uint64_t now = 0) noexcept;

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

    /// The same if there is one, and `give(T&&, priority)` is where the message goes: no copy on the way. Returns
    /// whether there was one.
    template <class Give>
    [[nodiscard]] bool try_pop_to(Give&& give, std::uint64_t now = 0) noexcept;

    /// Takes all messages out, for destruction elsewhere. Nothing may be pushed before `destroy`.
    [[nodiscard]] drained drain() noexcept;

    /// Destroys drained messages, in order. No lock: they belong to the caller until `release`.
    void destroy(const drained& all) noexcept;

    /// Takes back the nodes of drained messages that were destroyed.
    void release(const drained& all) noexcept { core_.release(all.chain); }

    /// For tests, also of the layer above.
    [[nodiscard]] bool sound() const noexcept {
        return core_.sound() && (!lone_ || (core_.empty() && core_.promised() == 0));
    }

    [[nodiscard]] const core_type& core() const noexcept { return core_; }

private:
    static constexpr std::size_t payload_distance =
        (sizeof(header) + alignof(T) - 1) / alignof(T) * alignof(T);

    static constexpr node_layout layout() noexcept {
        return {payload_distance + sizeof(T), std::max(alignof(header), alignof(T))};
    }
    static void* place(message_node& node) noexcept;
    static T& payload(message_node& node) noexcept;
    [[nodiscard]] bool sink_lone() noexcept;
    [[nodiscard]] bool try_push_beside_front(T& value, unsigned priority, std::uint64_t bytes,
                                             std::uint64_t now) noexcept;

    bool lone_ = false; // lone_value_ lives
    unsigned lone_priority_ = 0;
    std::uint64_t lone_bytes_ = 0;
    union {
        T lone_value_;
    };
    core_type core_;
};

/// Messages of one kind, first in first out: the same queue with a single priority, 0.
template <class T>
using fifo_queue = priority_queue<T, no_index>;

template <class T, class Index, class Order, front_cache Front>
priority_queue<T, Index, Order, Front>::~priority_queue() {
    const drained all = drain();
    destroy(all);
    release(all);
}

template <class T, class Index, class Order, front_cache Front>
inline void* priority_queue<T, Index, Order, Front>::place(message_node& node) noexcept {
    return reinterpret_cast<std::byte*>(&node) + payload_distance;
}

template <class T, class Index, class Order, front_cache Front>
[[gnu::always_inline]] inline T& priority_queue<T, Index, Order, Front>::payload(
    message_node& node) noexcept {
    return *std::launder(static_cast<T*>(place(node)));
}

template <class T, class Index, class Order, front_cache Front>
inline bool priority_queue<T, Index, Order, Front>::admits(std::uint64_t bytes) const noexcept {
    if (lone_)
        return limits().messages > 1 && bytes <= limits().total_bytes - lone_bytes_;
    return core_.admits(bytes);
}

template <class T, class Index, class Order, front_cache Front>
bool priority_queue<T, Index, Order, Front>::reserve(unsigned priority) noexcept {
    while (!ready(priority)) {
        queue_supply supply;
        if (!supply.buy(source(), shortage(priority)))
            return false;
        adopt(priority, supply);
    }
    return true;
}

template <class T, class Index, class Order, front_cache Front>
[[gnu::always_inline]] inline bool priority_queue<T, Index, Order, Front>::try_push(
    T& value, unsigned priority, std::uint64_t bytes, std::uint64_t now) noexcept {
    if constexpr (has_lone) {
        if (!lone_ && core_.empty()) {
            ::new (static_cast<void*>(&lone_value_)) T(std::move(value));
            lone_priority_ = priority;
            lone_bytes_ = bytes;
            lone_ = true;
            return true;
        }
    }
    if (!core_.front_admits(priority, bytes))
        return try_push_beside_front(value, priority, bytes, now);
    const message_ref message = core_.claim();
    ::new (place(*message.node)) T(std::move(value));
    core_.join_front(message, priority, bytes);
    return true;
}

template <class T, class Index, class Order, front_cache Front>
[[gnu::noinline]] bool priority_queue<T, Index, Order, Front>::try_push_beside_front(
    T& value, unsigned priority, std::uint64_t bytes, std::uint64_t now) noexcept {
    if (!admits(bytes) || !ready(priority))
        return false;
    push(std::move(value), priority, bytes, now);
    return true;
}

template <class T, class Index, class Order, front_cache Front>
[[gnu::noinline]] bool priority_queue<T, Index, Order, Front>::sink_lone() noexcept {
    if (!core_.ready(lone_priority_))
        return false;
    lone_ = false;
    push(std::move(lone_value_), lone_priority_, lone_bytes_, 0);
    lone_value_.~T();
    return true;
}

template <class T, class Index, class Order, front_cache Front>
[[gnu::always_inline]] inline void priority_queue<T, Index, Order, Front>::push(T&& value, unsigned priority,
                                                                                std::uint64_t bytes,
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
    if (lone_)
        return const_cast<T*>(std::launder(&lone_value_));
    const message_ref next = core_.front(now);
    return next ? &payload(*next.node) : nullptr;
}

template <class T, class Index, class Order, front_cache Front>
inline unsigned priority_queue<T, Index, Order, Front>::front_priority(std::uint64_t now) const noexcept {
    return lone_ ? lone_priority_ : core_.front(now).node->priority;
}

template <class T, class Index, class Order, front_cache Front>
inline received<T> priority_queue<T, Index, Order, Front>::pop(std::uint64_t now) noexcept {
    const std::uint64_t before = bytes();
    std::optional<received<T>> out;
    static_cast<void>(try_pop_to(
        [&out](T&& value, unsigned priority) noexcept { out.emplace(std::move(value), priority, 0U); }, now));
    out->bytes = before - bytes();
    return std::move(*out);
}

template <class T, class Index, class Order, front_cache Front>
template <class Give>
[[gnu::always_inline]] inline bool priority_queue<T, Index, Order, Front>::try_pop_to(
    Give&& give, std::uint64_t now) noexcept {
    if constexpr (has_lone) {
        if (lone_) {
            lone_ = false;
            give(std::move(lone_value_), unsigned{lone_priority_});
            lone_value_.~T();
            return true;
        }
    }
    if (core_.empty()) [[unlikely]]
        return false;
    const message_ref taken = core_.pop(now);
    T& value = payload(*taken.node);
    give(std::move(value), unsigned{taken.node->priority});
    value.~T();
    core_.release(taken);
    return true;
}

template <class T, class Index, class Order, front_cache Front>
typename priority_queue<T, Index, Order, Front>::drained priority_queue<T, Index, Order,
                                                                        Front>::drain() noexcept {
    const std::size_t count = size();
    return {core_.drain(), std::exchange(lone_, false), count};
}

template <class T, class Index, class Order, front_cache Front>
void priority_queue<T, Index, Order, Front>::destroy(const drained& all) noexcept {
    if (all.lone)
        lone_value_.~T();
    message_link link = all.chain.head;
    for (std::size_t left = all.chain.count; left > 0; --left) {
        message_node& node = core_[link];
        link = node.next;
        payload(node).~T();
    }
}

} // namespace detail
NOWAIT_END_NAMESPACE
