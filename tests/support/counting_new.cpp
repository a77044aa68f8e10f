#include "counting_new.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> count{0};

[[maybe_unused]] void* counted(std::size_t size) {
    count.fetch_add(1, std::memory_order_relaxed);
    if (void* memory = std::malloc(size != 0 ? size : 1))
        return memory;
    throw std::bad_alloc();
}

[[maybe_unused]] void* counted_or_null(std::size_t size) noexcept {
    count.fetch_add(1, std::memory_order_relaxed);
    return std::malloc(size != 0 ? size : 1);
}

[[maybe_unused]] void* counted_aligned(std::size_t size, std::size_t alignment) {
    count.fetch_add(1, std::memory_order_relaxed);
    if (void* memory = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment))
        return memory;
    throw std::bad_alloc();
}

[[maybe_unused]] void* counted_aligned_or_null(std::size_t size, std::size_t alignment) noexcept {
    count.fetch_add(1, std::memory_order_relaxed);
    return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

} // namespace

namespace nowait_test {

std::size_t allocations() noexcept {
    return count.load(std::memory_order_relaxed);
}

} // namespace nowait_test

// The thread sanitizer brings its own and takes no others: there nothing is counted, and the other builds say what is true.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NOWAIT_NOT_COUNTED 1
#endif
#endif
#if !defined(NOWAIT_NOT_COUNTED) && !defined(__SANITIZE_THREAD__)

void* operator new(std::size_t size) {
    return counted(size);
}
void* operator new[](std::size_t size) {
    return counted(size);
}
// The library's own, and thus a sanitizer's, would be freed by ours below.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    return counted_or_null(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
    return counted_or_null(size);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
    return counted_aligned(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
    return counted_aligned(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    return counted_aligned_or_null(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    return counted_aligned_or_null(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete[](void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}

#endif
