#include "timer_wheel.hpp"

#include <bit>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

std::uint64_t timer_wheel::tick_of_deadline(clock::time_point deadline) noexcept {
    const auto since_boot = deadline.time_since_epoch().count();
    if (since_boot <= 0)
        return 0;
    const auto whole = static_cast<std::uint64_t>(since_boot);
    return (whole + ((1u << tick_bits) - 1)) >> tick_bits;
}

void timer_wheel::insert(timer_node& node) noexcept {
    if (node.deadline == clock::time_point::max()) {
        node.place = nowhere;
        return;
    }
    ++count_;
    place(node, tick_of_deadline(node.deadline));
}

void timer_wheel::place(timer_node& node, std::uint64_t tick) noexcept {
    if (tick <= tick_) {
        node.place = due_place;
        due_.push_back(node);
        return;
    }
    const int level = static_cast<int>(std::bit_width(tick ^ tick_) - 1) / 6;
    const int slot = static_cast<int>((tick >> (6 * level)) & 63);
    node.place = static_cast<std::uint16_t>(level * 64 + slot);
    occupied_[static_cast<std::size_t>(level)] |= std::uint64_t{1} << slot;
    slots_[static_cast<std::size_t>(level)][static_cast<std::size_t>(slot)].push_back(node);
}

void timer_wheel::remove(timer_node& node) noexcept {
    if (!node.linked())
        return;
    node.unlink();
    --count_;
    if (node.place == due_place)
        return;
    const auto level = static_cast<std::size_t>(node.place / 64);
    const auto slot = static_cast<std::size_t>(node.place % 64);
    if (slots_[level][slot].empty())
        occupied_[level] &= ~(std::uint64_t{1} << slot);
}

bool timer_wheel::next_slot(int& level, int& slot, std::uint64_t& start) const noexcept {
    for (level = 0; level < levels; ++level) {
        const std::uint64_t bits = occupied_[static_cast<std::size_t>(level)];
        if (bits == 0)
            continue;
        // Slots of a level lie ahead of the present one: what is behind belongs to the next turn of a higher level.
        slot = std::countr_zero(bits);
        const int shift = 6 * level;
        const std::uint64_t above = shift + 6 >= 64 ? 0 : (tick_ >> (shift + 6)) << (shift + 6);
        start = above | (static_cast<std::uint64_t>(slot) << shift);
        return true;
    }
    return false;
}

clock::time_point timer_wheel::next_look() const noexcept {
    if (!due_.empty())
        return clock::time_point::min();
    int level = 0;
    int slot = 0;
    std::uint64_t start = 0;
    if (!next_slot(level, slot, start) || start > (std::uint64_t{1} << (62 - tick_bits)))
        return clock::time_point::max();
    return clock::time_point(clock::duration(static_cast<clock::rep>(start << tick_bits)));
}

void timer_wheel::advance(clock::time_point now) noexcept {
    const std::uint64_t target = static_cast<std::uint64_t>(now.time_since_epoch().count()) >> tick_bits;
    for (;;) {
        while (!due_.empty()) {
            timer_node& node = due_.pop_front();
            --count_;
            node.on_expiry(node);
        }
        int level = 0;
        int slot = 0;
        std::uint64_t start = 0;
        if (!next_slot(level, slot, start) || start > target) {
            if (target > tick_)
                tick_ = target;
            return;
        }
        tick_ = start;
        auto& from = slots_[static_cast<std::size_t>(level)][static_cast<std::size_t>(slot)];
        occupied_[static_cast<std::size_t>(level)] &= ~(std::uint64_t{1} << slot);
        while (!from.empty()) {
            timer_node& node = from.pop_front();
            place(node, tick_of_deadline(node.deadline)); // to a lower level, or due
        }
    }
}

} // namespace detail
NOWAIT_END_NAMESPACE
