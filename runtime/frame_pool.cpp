#include <nowait/detail/frame_pool.hpp>

#include <cstdlib>
#include <new>
#include <utility>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

namespace {

thread_local frame_pool* current_pool = nullptr;

} // namespace

// Blocks are never smaller than a header and never over-aligned: GCC 12 allocates frames with the plain operator new.

frame_pool* frame_pool::exchange_current(frame_pool* pool) noexcept {
    return std::exchange(current_pool, pool);
}

// The way of a frame that comes and goes: a leaf function, a dozen instructions.
inline void* frame_pool::allocate_from(frame_pool* pool, std::size_t size) {
    const std::size_t size_class = (size + sizeof(block) + grain - 1) / grain;
    if (pool == nullptr || size_class >= classes) [[unlikely]]
        return allocate_slowly(pool, size);
    block* const b = pool->lists_[size_class];
    if (b == nullptr) [[unlikely]]
        return allocate_slowly(pool, size);
    block* const following = b->next();
    __builtin_prefetch(following); // it may have come home from another CPU
    pool->lists_[size_class] = following;
    pool->cached_ -= size_class * grain;
    pool->recycled.add();
    return b + 1;
}

void* frame_pool::allocate(std::size_t size) {
    return allocate_from(current_pool, size);
}

void* frame_pool::allocate_on_any_thread(std::size_t size) {
    if (current_pool != nullptr)
        return allocate_from(current_pool, size);
    // Blocks come home through `remote_`, from whichever thread: a retired pool waits for them.
    static thread_local struct keeper {
        frame_pool* pool = nullptr;
        bool over = false;
        ~keeper() {
            over = true; // other thread-local objects may post after this one has gone
            if (pool != nullptr)
                retire(std::exchange(pool, nullptr));
        }
    } mine;
    if (mine.pool == nullptr && !mine.over)
        mine.pool = new frame_pool;
    return allocate_from(mine.pool, size);
}

void* frame_pool::allocate_slowly(frame_pool* pool, std::size_t size) {
    const std::size_t size_class = (size + sizeof(block) + grain - 1) / grain;
    const bool pooled = pool != nullptr && size_class < classes;
    if (pooled && pool->remote_.load(std::memory_order_relaxed) != nullptr) {
        pool->take_remote();
        if (pool->lists_[size_class] != nullptr)
            return allocate_from(pool, size);
    }
    // A block of one grain is mostly a posted function, which another CPU reads: one cache line, not parts of two.
    auto* const b = static_cast<block*>(pooled && size_class == 1 ? std::aligned_alloc(grain, grain)
                                        : pooled                  ? std::malloc(size_class * grain)
                                                                  : std::malloc(size + sizeof(block)));
    if (b == nullptr)
        throw std::bad_alloc();
    b->pool = pooled ? pool : nullptr;
    b->size_class = pooled ? size_class : 0;
    if (pool != nullptr)
        pool->allocated.add();
    if (pooled)
        ++pool->owned_;
    return b + 1;
}

void frame_pool::deallocate(void* frame) noexcept {
    block* const b = static_cast<block*>(frame) - 1;
    if (b->pool == nullptr) [[unlikely]]
        std::free(b);
    else if (b->pool == current_pool) [[likely]]
        b->pool->free_local(b);
    else
        free_remotely(b);
}

inline void frame_pool::free_local(block* b) noexcept {
    const std::size_t bytes = b->size_class * grain;
    if (cached_ + bytes > cached_bytes_max) [[unlikely]] {
        give_back(b);
        return;
    }
    cached_ += bytes;
    b->next() = lists_[b->size_class];
    lists_[b->size_class] = b;
}

void frame_pool::give_back(block* b) noexcept {
    --owned_;
    std::free(b);
}

namespace {

// Marks the word of a pool whose owner has gone.
alignas(16) char closed_storage[16];

} // namespace

void frame_pool::free_remotely(block* b) noexcept {
    frame_pool* const pool = b->pool;
    auto* const closed = reinterpret_cast<block*>(closed_storage);
    block* seen = pool->remote_.load(std::memory_order_acquire);
    for (;;) {
        if (seen == closed) {
            std::free(b);
            // acq_rel: whoever brings the count to zero has seen everybody else's last use of the pool.
            if (pool->orphans_.fetch_sub(1, std::memory_order_acq_rel) == 1)
                delete pool;
            return;
        }
        b->next() = seen;
        // Release pairs with the owner's exchange in take_remote(): it sees the link.
        if (pool->remote_.compare_exchange_strong(seen, b, std::memory_order_release,
                                                  std::memory_order_acquire))
            return;
    }
}

void frame_pool::take_remote() noexcept {
    block* b = remote_.exchange(nullptr, std::memory_order_acquire);
    while (b != nullptr) {
        block* const following = b->next();
        free_local(b);
        b = following;
    }
}

void frame_pool::trim() noexcept {
    take_remote();
    for (block*& head : lists_) {
        while (head != nullptr)
            give_back(std::exchange(head, head->next()));
    }
    cached_ = 0;
}

void frame_pool::retire(frame_pool* pool) noexcept {
    auto* const closed = reinterpret_cast<block*>(closed_storage);
    block* late = pool->remote_.exchange(closed, std::memory_order_acq_rel);
    while (late != nullptr)
        pool->give_back(std::exchange(late, late->next()));
    for (block*& head : pool->lists_) {
        while (head != nullptr)
            pool->give_back(std::exchange(head, head->next()));
    }
    const long out = static_cast<long>(pool->owned_);
    // Foreign threads may have counted down already; whoever sees the sum reach zero deletes.
    if (pool->orphans_.fetch_add(out, std::memory_order_acq_rel) + out == 0)
        delete pool;
}

} // namespace detail
NOWAIT_END_NAMESPACE
