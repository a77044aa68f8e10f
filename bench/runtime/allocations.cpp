#include "allocations.hpp"

#include <atomic>
#include <cstdlib>

// The C library lets a program replace these, and keeps its own under another name.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace bench::runtime {
namespace {

std::atomic<bool> counting{false};
std::atomic<std::size_t> count{0};

inline void note() noexcept {
    if (counting.load(std::memory_order_relaxed)) [[unlikely]] {
        count.fetch_add(1, std::memory_order_relaxed);
    }
}

} // namespace

void count_allocations() noexcept {
    count.store(0);
    counting.store(true);
}

std::size_t counted_allocations() noexcept {
    counting.store(false);
    return count.load();
}

} // namespace bench::runtime

extern "C" {

void* malloc(std::size_t size) {
    bench::runtime::note();
    return __libc_malloc(size);
}
void* calloc(std::size_t n, std::size_t size) {
    bench::runtime::note();
    return __libc_calloc(n, size);
}
void* realloc(void* old, std::size_t size) {
    bench::runtime::note();
    return __libc_realloc(old, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
    bench::runtime::note();
    return __libc_memalign(alignment, size);
}
int posix_memalign(void** made, std::size_t alignment, std::size_t size) {
    bench::runtime::note();
    *made = __libc_memalign(alignment, size);
    return *made != nullptr ? 0 : 12; // ENOMEM
}
}
