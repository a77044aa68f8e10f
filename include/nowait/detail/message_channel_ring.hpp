// The queue of a channel without priorities: a ring of cells, where the channel with priorities has lists in a slab.
//
//      store_    [ d | e |   |   | b | c ]        a power of two; first_ = 4, size_ = 4 counts from there, wrapping
//
// It starts small and doubles, up to the channel's capacity, when a message finds all cells taken; the old cells then move. All
// that a priority queue promises holds here too: memory is bought before, in steps that fail without a trace, and a sender that
// waits has been promised a cell.
//
// Invariant: the cells suffice for what is queued and what has been promised, or for as many as the limit allows.
#pragma once

#include <nowait/detail/priority_core.hpp>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

template <class T>
class message_ring {
    static_assert(std::is_nothrow_move_constructible_v<T> && std::is_nothrow_destructible_v<T>,
                  "a message changes hands under a lock and may not throw there");

    struct cell {
        std::uint64_t bytes;
        T value;
    };

public:
    static constexpr unsigned levels = 1;

    /// All messages of a ring, with their cells: for destruction without the lock.
    struct drained {
        memory_block store{};
        std::size_t first = 0;
        std::size_t count = 0;
        std::size_t mask = 0;
    };

    explicit message_ring(queue_limits limits, block_source& source, strict_order = {}) noexcept
        : limits_(limits), source_(&source) {}
    message_ring(const message_ring&) = delete;
    message_ring& operator=(const message_ring&) = delete;
    ~message_ring() { destroy(drain()); }

    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] const queue_limits& limits() const noexcept { return limits_; }
    [[nodiscard]] block_source& source() const noexcept { return *source_; }
    [[nodiscard]] std::size_t promised() const noexcept { return promised_; }
    [[nodiscard]] bool admits(std::uint64_t bytes) const noexcept {
        return size_ < limits_.messages && bytes <= limits_.total_bytes - bytes_;
    }

    [[nodiscard]] bool ready(unsigned) const noexcept {
        return size_ + promised_ < cells_ || (cells_ >= limits_.messages && cells_ != 0);
    }
    [[nodiscard]] queue_need shortage(unsigned) const noexcept {
        constexpr std::size_t first_cells = std::max<std::size_t>(std::bit_floor(4096 / sizeof(cell)), 4);
        const auto most = std::bit_ceil(std::max<std::size_t>(limits_.messages, 1));
        queue_need need;
        need.slab.bytes = std::min(std::max(cells_ * 2, first_cells), most) * sizeof(cell);
        need.slab.alignment = alignof(cell);
        return need;
    }
    /// Takes larger cells if they are still wanted; the old ones are then in `supply`.
    void adopt(unsigned, queue_supply& supply) noexcept {
        const std::size_t cells = supply.slab ? supply.slab.shape().bytes / sizeof(cell) : 0;
        if (ready(0) || cells <= cells_)
            return;
        for (std::size_t i = 0; i < size_; ++i) {
            cell& from = at(first_ + i);
            ::new (static_cast<std::byte*>(supply.slab.data()) + i * sizeof(cell))
                cell{from.bytes, std::move(from.value)};
            from.~cell();
        }
        store_.swap(supply.slab);
        base_ = static_cast<std::byte*>(store_.data());
        cells_ = cells;
        usable_ = std::min<std::size_t>(cells_, limits_.messages);
        first_ = 0;
    }
    void promise(unsigned) noexcept { ++promised_; }
    void retract() noexcept {
        assert(promised_ > 0);
        --promised_;
    }

    /// While nothing is promised: moves a message in if there is room and a cell. Returns whether it did.
    [[nodiscard, gnu::always_inline]] bool try_push(T& value, unsigned, std::uint64_t bytes,
                                                    std::uint64_t = 0) noexcept {
        if (size_ >= usable_ || bytes > limits_.total_bytes - bytes_) [[unlikely]]
            return false;
        push(std::move(value), 0, bytes);
        return true;
    }
    /// Requires ready() and admits(bytes).
    [[gnu::always_inline]] void push(T&& value, unsigned, std::uint64_t bytes, std::uint64_t = 0) noexcept {
        ::new (place(first_ + size_)) cell{bytes, std::move(value)};
        ++size_;
        bytes_ += bytes;
    }
    void push_promised(T&& value, unsigned, std::uint64_t bytes, std::uint64_t = 0) noexcept {
        retract();
        push(std::move(value), 0, bytes);
    }
    /// Takes the next message if there is one. Returns whether there was.
    template <class Give>
    [[nodiscard, gnu::always_inline]] bool try_pop_to(Give&& give, std::uint64_t = 0) noexcept {
        if (size_ == 0) [[unlikely]]
            return false;
        cell& taken = at(first_);
        first_ = (first_ + 1) & (cells_ - 1);
        --size_;
        bytes_ -= taken.bytes;
        give(std::move(taken.value), 0U);
        taken.~cell();
        return true;
    }

    [[nodiscard]] drained drain() noexcept {
        drained all{std::move(store_), first_, size_, cells_ - 1};
        base_ = nullptr;
        first_ = size_ = cells_ = usable_ = 0;
        bytes_ = 0;
        return all;
    }
    void destroy(const drained& all) const noexcept {
        auto* const cells = static_cast<std::byte*>(all.store.data());
        for (std::size_t i = 0; i < all.count; ++i)
            std::launder(reinterpret_cast<cell*>(cells + ((all.first + i) & all.mask) * sizeof(cell)))
                ->~cell();
    }
    void release(const drained&) noexcept {} // the cells go with `drained` itself, after the lock

    /// For tests, as priority_queue has it.
    [[nodiscard]] bool sound() const noexcept {
        return size_ <= cells_ && (size_ + promised_ <= cells_ || cells_ >= limits_.messages) &&
               size_ <= limits_.messages;
    }

private:
    [[nodiscard]] void* place(std::size_t index) const noexcept {
        return base_ + (index & (cells_ - 1)) * sizeof(cell);
    }
    [[nodiscard]] cell& at(std::size_t index) const noexcept {
        return *std::launder(static_cast<cell*>(place(index)));
    }

    std::byte* base_ = nullptr; // of store_
    std::size_t first_ = 0;
    std::size_t size_ = 0;
    std::size_t cells_ = 0;  // 0, or a power of two
    std::size_t usable_ = 0; // of them: as many as the limit allows
    std::size_t promised_ = 0;
    std::uint64_t bytes_ = 0;
    queue_limits limits_;
    block_source* source_;
    memory_block store_{};
};

} // namespace detail
NOWAIT_END_NAMESPACE
