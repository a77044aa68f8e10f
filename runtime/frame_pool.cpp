#include <nowait/detail/frame_pool.hpp>

#include <cstdlib>
#include <new>
#include <utility>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

namespace {

// Initial-exec: at every frame's birth and death it is read, and the general model of a shared library is a call. One word of the
// few that libraries loaded later may have so.
[[gnu::tls_model("initial-exec")]] thread_local frame_pool* current_pool = &frame_pool::none;

} // namespace

constinit frame_pool frame_pool::none;

// Blocks are never smaller than a header and never over-aligned: GCC 12 allocates frames with the plain operator new.

frame_pool* frame_pool::exchange_current(frame_pool* pool) noexcept {
    frame_pool* const before = std::exchange(current_pool, pool != nullptr ? pool : &none);
    return before != &none ? before : nullptr;
}

// The way of a frame that comes and goes: leaf functions, a dozen instructions each. The slow ways are tail calls.
inline void* frame_pool::take_from(frame_pool& pool, std::size_t size_class) {
    block* const b = pool.lists_[size_class];
    if (b == nullptr) [[unlikely]]
        return allocate_slowly(pool, size_class);
    pool.lists_[size_class] = b->next();
    pool.cached_ -= size_class;
    pool.recycled_.add();
    return b + 1;
}

void* frame_pool::take(std::size_t size_class) {
    return take_from(*current_pool, size_class);
}

void* frame_pool::allocate_on_any_thread(std::size_t size) {
    const std::size_t size_class = class_of(size);
    if (size_class >= classes)
        return allocate_slowly(none, size_class);
    if (current_pool != &none)
        return take(size_class);
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
    frame_pool& pool = mine.pool != nullptr ? *mine.pool : none;
    void* const taken = take_from(pool, size_class);
    // The next one has come home from another CPU. Not if there is none: of null it would be a walk through the page tables.
    if (block* const following = pool.lists_[size_class]; following != nullptr)
        __builtin_prefetch(following);
    return taken;
}

void* frame_pool::allocate_slowly(frame_pool& pool, std::size_t size_class) {
    const bool pooled = &pool != &none;
    if (pooled && pool.remote_.load(std::memory_order_relaxed) != nullptr) {
        pool.take_remote();
        if (pool.lists_[size_class] != nullptr)
            return take_from(pool, size_class);
    }
    // A block of this size is mostly a posted function, which another CPU reads: one cache line, not parts of two.
    constexpr std::size_t cache_line = 64;
    const std::size_t bytes = size_class * grain;
    auto* const b = static_cast<block*>(pooled && bytes == cache_line ? std::aligned_alloc(cache_line, bytes)
                                                                      : std::malloc(bytes));
    if (b == nullptr)
        throw std::bad_alloc();
    b->pool = pooled ? &pool : nullptr;
    b->size_class = size_class;
    if (pooled) {
        pool.allocated_.add();
        ++pool.owned_;
    } else if (current_pool != &none) {
        current_pool->allocated_.add(); // too large to be recycled
    }
    return b + 1;
}

void frame_pool::deallocate(void* frame) noexcept {
    block* const b = static_cast<block*>(frame) - 1;
    frame_pool* const pool = b->pool;
    if (pool != current_pool || pool->cached_ + b->size_class > cached_max) [[unlikely]]
        free_slowly(b);
    else
        pool->free_local(b);
}

inline void frame_pool::free_local(block* b) noexcept {
    cached_ += b->size_class;
    b->next() = lists_[b->size_class];
    lists_[b->size_class] = b;
}

void frame_pool::free_slowly(block* b) noexcept {
    if (b->pool == nullptr)
        std::free(b);
    else if (b->pool == current_pool)
        b->pool->give_back(b);
    else
        free_remotely(b);
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
        if (cached_ + b->size_class > cached_max)
            give_back(b);
        else
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
