// Memory of the in-process queues: where blocks come from, and how they get into a structure that is under a
// lock.
//
// A structure never asks for memory while its owner holds a lock. It says how large a block it is short of
// (`block_need`); the owner lets go of the lock, buys the block (`memory_block::buy`), takes the lock again
// and lets the structure adopt it. What is no longer wanted by then stays in the `memory_block` and is given
// back after the lock:
//
//     lock      need = structure.shortage()
//     unlocked  block.buy(source, need)            the only step that can fail: ENOMEM, nothing has changed
//     lock      structure.adopt(block)             block now holds nothing, or what the structure let go of
//     unlocked  ~memory_block
#pragma once

#include <nowait/config.hpp>

#include <cstddef>
#include <utility>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// Where blocks come from. The library's own is the heap; a test passes one that fails at the n-th call.
/// Both functions may be called from any thread that uses the structure, and never throw.
struct block_source {
    /// Returns null when there is no memory.
    void* (*take)(block_source& self, std::size_t bytes, std::size_t alignment) noexcept;
    void (*give)(block_source& self, void* block, std::size_t bytes, std::size_t alignment) noexcept;
};

/// The heap: operator new that does not throw. Lives as long as the process.
[[nodiscard]] NOWAIT_API block_source& heap_blocks() noexcept;

/// What a structure is short of. No bytes: nothing. `unobtainable`: no block could help, the structure is at
/// its bounds.
struct block_need {
    static constexpr std::size_t unobtainable = static_cast<std::size_t>(-1);

    std::size_t bytes = 0;
    std::size_t alignment = alignof(std::max_align_t);
};

/// One block on its way between a source and a structure. Owns what it holds.
class memory_block {
public:
    memory_block() noexcept = default;
    memory_block(block_source& source, void* data, block_need shape) noexcept
        : source_(&source), data_(data), shape_(shape) {}
    memory_block(memory_block&& other) noexcept { swap(other); }
    memory_block& operator=(memory_block&& other) noexcept;
    ~memory_block() { give_back(); }

    /// Buys a block for `need`, after giving back the one held. Returns false, holding nothing, without
    /// memory. A need of no bytes is met by nothing.
    [[nodiscard]] NOWAIT_API bool buy(block_source& source, block_need need) noexcept;

    /// Leaves the block to the caller, who gives it back with `data()` and `shape()` as they were.
    void* release() noexcept { return std::exchange(data_, nullptr); }

    void swap(memory_block& other) noexcept;
    [[nodiscard]] void* data() const noexcept { return data_; }
    [[nodiscard]] block_need shape() const noexcept { return shape_; }
    explicit operator bool() const noexcept { return data_ != nullptr; }

private:
    void give_back() noexcept;

    block_source* source_ = nullptr; // set whenever data_ is
    void* data_ = nullptr;
    block_need shape_{};
};

inline void memory_block::swap(memory_block& other) noexcept {
    std::swap(source_, other.source_);
    std::swap(data_, other.data_);
    std::swap(shape_, other.shape_);
}

inline memory_block& memory_block::operator=(memory_block&& other) noexcept {
    memory_block(std::move(other)).swap(*this);
    return *this;
}

inline void memory_block::give_back() noexcept {
    if (data_ != nullptr)
        source_->give(*source_, std::exchange(data_, nullptr), shape_.bytes, shape_.alignment);
}

} // namespace detail
NOWAIT_END_NAMESPACE
