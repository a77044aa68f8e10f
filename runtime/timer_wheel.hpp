// A hierarchical timer wheel: insert and remove in constant time, for time-outs that are mostly cancelled.
#pragma once

#include <nowait/detail/timer.hpp>

#include <array>
#include <cstdint>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// Nine levels of 64 slots. A tick is 2^14 ns (16 us); level L holds what is due within 64^(L+1) ticks, in the slot of the
/// first six bits in which its tick differs from the present one. A slot of a higher level is dealt out to lower ones when
/// its time comes.
///
/// A timer never fires early (its tick is rounded up) and at most one tick late by the wheel's doing.
///
/// Invariants: bit s of `occupied_[l]` is set iff slot (l, s) holds a node; every node in a slot has a tick later than
/// `tick_`; those that are not stand in `due_`. Deadlines of "never" are in no list.
class timer_wheel {
public:
    static constexpr int tick_bits = 14;
    static constexpr int levels = 9;

    void insert(timer_node& node) noexcept;
    void remove(timer_node& node) noexcept;
    [[nodiscard]] bool empty() const noexcept { return count_ == 0; }

    /// The earliest moment at which advance() may have something to do.
    [[nodiscard]] clock::time_point next_look() const noexcept;

    /// Calls on_expiry of everything due at `now`, in order of ticks.
    void advance(clock::time_point now) noexcept;

private:
    static constexpr std::uint16_t nowhere = 0xffff;
    static constexpr std::uint16_t due_place = 0xfffe;

    static std::uint64_t tick_of_deadline(clock::time_point deadline) noexcept;
    void place(timer_node& node, std::uint64_t tick) noexcept;
    [[nodiscard]] bool next_slot(int& level, int& slot, std::uint64_t& start) const noexcept;

    std::uint64_t tick_ = 0;
    std::size_t count_ = 0;
    std::array<std::uint64_t, levels> occupied_{};
    list<timer_node> due_;
    std::array<std::array<list<timer_node>, 64>, levels> slots_;
};

} // namespace detail
NOWAIT_END_NAMESPACE
