#include <nowait/detail/priority_memory.hpp>

#include <new>

NOWAIT_BEGIN_NAMESPACE
namespace detail {
namespace {

// The aligned forms go a longer way through the allocator.
constexpr bool is_ordinary(std::size_t alignment) noexcept {
    return alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__;
}

void* take_from_heap(block_source&, std::size_t bytes, std::size_t alignment) noexcept {
    if (is_ordinary(alignment))
        return ::operator new(bytes, std::nothrow);
    return ::operator new(bytes, std::align_val_t{alignment}, std::nothrow);
}

void give_to_heap(block_source&, void* block, std::size_t, std::size_t alignment) noexcept {
    if (is_ordinary(alignment))
        ::operator delete(block, std::nothrow);
    else
        ::operator delete(block, std::align_val_t{alignment}, std::nothrow);
}

constinit block_source heap{take_from_heap, give_to_heap};

} // namespace

block_source& heap_blocks() noexcept {
    return heap;
}

bool memory_block::buy(block_source& source, block_need need) noexcept {
    give_back();
    if (need.bytes == 0)
        return true;
    if (need.bytes == block_need::unobtainable)
        return false;
    data_ = source.take(source, need.bytes, need.alignment);
    source_ = &source;
    shape_ = need;
    return data_ != nullptr;
}

} // namespace detail
NOWAIT_END_NAMESPACE
