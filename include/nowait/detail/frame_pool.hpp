// Coroutine frames, recycled by size class.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/sync.hpp>

#include <cstddef>
#include <cstdint>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// Free lists of one runtime, 32 bytes apart. A block carries its pool in a header and goes back there, from whichever
/// thread it is freed: a foreign thread pushes it onto `remote_`, which the owner takes over when a list runs dry.
///
/// Invariants: `lists_`, `cached_` and `owned_` are touched by the owner's thread only. A pool outlives its runtime for
/// as long as one of its blocks is out: retire() closes `remote_`, and the last block to come home deletes the pool.
class NOWAIT_API frame_pool {
public:
    static constexpr std::size_t grain = 32;
    static constexpr std::size_t classes = 128;                   // frames up to 4 KiB are recycled
    static constexpr std::size_t cached_max = (1u << 22) / grain; // what the free lists may hold, in grains

    /// Stands for the pool on a thread that has none: always empty, so that the short ways need not ask.
    static frame_pool none;

    constexpr frame_pool() = default;
    frame_pool(const frame_pool&) = delete;
    frame_pool& operator=(const frame_pool&) = delete;

    /// From the calling thread's current pool, or the allocator if it has none. Throws std::bad_alloc.
    static void* allocate(std::size_t size) {
        // Of a frame the size is known here, so the class is a constant.
        const std::size_t size_class = class_of(size);
        return size_class < classes ? take(size_class) : allocate_slowly(none, size_class);
    }
    static void deallocate(void* frame) noexcept;
    /// The same, on a thread without a loop from a pool that the thread keeps: for what it posts again and again.
    static void* allocate_on_any_thread(std::size_t size);

    /// The pool of the loop that runs on this thread; nullptr outside.
    static frame_pool* exchange_current(frame_pool* pool) noexcept;

    /// Blocks that came from the allocator, and out of the lists. Any thread.
    [[nodiscard]] std::uint64_t allocated() const noexcept { return allocated_.get(); }
    [[nodiscard]] std::uint64_t recycled() const noexcept { return recycled_.get(); }

    /// Gives the cached blocks back to the allocator.
    void trim() noexcept;
    /// Ends the owner's use. Deletes the pool now or with its last block.
    static void retire(frame_pool* pool) noexcept;

private:
    struct block { // in front of every frame, written once; 16 bytes keep the frame aligned
        frame_pool* pool;
        std::size_t size_class;

        /// Of a free block: the next one, in the frame's first word.
        [[nodiscard]] block*& next() noexcept { return *reinterpret_cast<block**>(this + 1); }
    };
    static_assert(sizeof(block) == 16);

    ~frame_pool() = default;
    [[nodiscard]] static constexpr std::size_t class_of(std::size_t size) noexcept {
        return (size + sizeof(block) + grain - 1) / grain;
    }
    static void* take(std::size_t size_class);
    static void* take_from(frame_pool& pool, std::size_t size_class);
    [[gnu::noinline]] static void* allocate_slowly(frame_pool& pool, std::size_t size_class);
    [[gnu::noinline]] static void free_slowly(block* b) noexcept;
    static void free_remotely(block* b) noexcept;
    void give_back(block* b) noexcept;
    void free_local(block* b) noexcept;
    void take_remote() noexcept;

    block* lists_[classes] = {}; // first: the class alone gives the place
    counter allocated_, recycled_;
    std::size_t cached_ = 0; // in the lists, in grains
    std::size_t owned_ = 0;  // blocks, in the lists or out

    // Freed by other threads. `closed` once the owner has gone: then blocks are freed at once and counted in `orphans_`.
    // On a cache line of its own: the owner writes to the words before at every allocation.
    alignas(64) real_sync::atomic<block*> remote_{nullptr};
    real_sync::atomic<long> orphans_{0};
};

} // namespace detail
NOWAIT_END_NAMESPACE
