// Which message is received next: strict priority, or strict priority with a way out for the low ones.
//
// Strict order starves: while messages of a high priority keep coming, a lower one waits for ever.
// `fair_order` is the opt-in remedy. It remembers the order of arrival across all priorities, and now and
// then gives the turn to the message that has waited longest:
//   - by ratio: every n-th message received is the longest waiting one;
//   - by age: the longest waiting one goes next once it has waited more than a limit, counted in messages
//     received meanwhile, or in the caller's unit of time.
// With a ratio of n, a message with k older ones before it is received after at most (k + 1) * n receives,
// whatever is sent. FIFO inside a priority always holds: the oldest of all is also the oldest of its own
// priority.
//
// The arrival list is doubly linked through the nodes, because strict order takes messages out of its middle.
// It costs 16 bytes a message and a few instructions; strict order has neither.
#pragma once

#include <nowait/detail/priority_slab.hpp>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// Highest priority first, FIFO inside a priority, as POSIX says.
struct strict_order {
    using header = message_node;
    static constexpr bool remembers_arrival = false;
};

/// The header of a message whose arrival is remembered.
struct arrival_node : message_node {
    message_link older;  // the message that came just before it, or none
    message_link newer;  // the message that came just after it, or none
    std::uint64_t stamp; // when it came: messages received by then, or the caller's clock
};

/// Strict order, except that the longest waiting message has its turn by ratio or by age. Zero switches a
/// rule off.
class fair_order {
public:
    using header = arrival_node;
    static constexpr bool remembers_arrival = true;

    enum class age_unit : std::uint8_t { messages, callers_clock };

    fair_order() noexcept = default;

    /// Every n-th message received is the longest waiting one. n = 1 is plain FIFO.
    [[nodiscard]] static fair_order one_in(std::uint32_t n) noexcept;

    /// A message goes next once more than `limit` messages were received while it waited.
    [[nodiscard]] static fair_order after_messages(std::uint64_t limit) noexcept;

    /// A message goes next once it has waited more than `limit` of the clock that insert and pop are given.
    [[nodiscard]] static fair_order after_time(std::uint64_t limit) noexcept;

    /// True if the turn is the longest waiting message's. Requires that there is one.
    [[nodiscard]] bool is_its_turn(const message_slab& slab, std::uint64_t now) const noexcept;

    [[nodiscard]] message_link longest_waiting() const noexcept { return oldest_; }

    void arrived(const message_slab& slab, message_ref message, std::uint64_t now) noexcept;
    void left(const message_slab& slab, message_ref message) noexcept;
    void forget_all() noexcept { oldest_ = newest_ = no_message; }

private:
    static arrival_node& at(const message_slab& slab, message_link link) noexcept;
    [[nodiscard]] std::uint64_t clock(std::uint64_t now) const noexcept;

    message_link oldest_ = no_message;
    message_link newest_ = no_message;
    std::uint64_t received_ = 0;     // messages, ever
    std::uint64_t age_limit_ = 0;    // 0: no rule by age
    std::uint32_t ratio_ = 0;        // 0: no rule by ratio
    std::uint32_t since_oldest_ = 0; // messages received since the longest waiting one last was
    age_unit unit_ = age_unit::messages;
};

inline fair_order fair_order::one_in(std::uint32_t n) noexcept {
    fair_order order;
    order.ratio_ = n;
    return order;
}

inline fair_order fair_order::after_messages(std::uint64_t limit) noexcept {
    fair_order order;
    order.age_limit_ = limit;
    return order;
}

inline fair_order fair_order::after_time(std::uint64_t limit) noexcept {
    fair_order order;
    order.age_limit_ = limit;
    order.unit_ = age_unit::callers_clock;
    return order;
}

inline arrival_node& fair_order::at(const message_slab& slab, message_link link) noexcept {
    return static_cast<arrival_node&>(slab[link]);
}

inline std::uint64_t fair_order::clock(std::uint64_t now) const noexcept {
    return unit_ == age_unit::messages ? received_ : now;
}

inline bool fair_order::is_its_turn(const message_slab& slab, std::uint64_t now) const noexcept {
    if (ratio_ != 0 && since_oldest_ + 1 >= ratio_)
        return true;
    const std::uint64_t come = at(slab, oldest_).stamp;
    const std::uint64_t here = clock(now);
    return age_limit_ != 0 && here > come && here - come > age_limit_;
}

inline void fair_order::arrived(const message_slab& slab, message_ref message, std::uint64_t now) noexcept {
    auto& node = static_cast<arrival_node&>(*message.node);
    node.older = newest_;
    node.newer = no_message;
    node.stamp = clock(now);
    if (newest_ == no_message)
        oldest_ = message.link;
    else
        at(slab, newest_).newer = message.link;
    newest_ = message.link;
}

inline void fair_order::left(const message_slab& slab, message_ref message) noexcept {
    const auto& node = static_cast<const arrival_node&>(*message.node);
    since_oldest_ = node.older == no_message ? 0 : since_oldest_ + 1;
    ++received_;
    (node.older == no_message ? oldest_ : at(slab, node.older).newer) = node.newer;
    (node.newer == no_message ? newest_ : at(slab, node.newer).older) = node.older;
}

} // namespace detail
NOWAIT_END_NAMESPACE
