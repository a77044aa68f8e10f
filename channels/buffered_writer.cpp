#include <nowait/buffered_writer.hpp>
#include <nowait/detail/sync.hpp>

NOWAIT_BEGIN_NAMESPACE

namespace {

// Buffered writers of all runtimes add to it; nothing is ordered by it.
constinit detail::real_sync::atomic<std::uint64_t> lost{0};

} // namespace

std::uint64_t bytes_lost_in_buffers() noexcept {
    return lost.load(std::memory_order_relaxed);
}

namespace detail {

void count_lost_bytes(std::size_t bytes) noexcept {
    if (bytes != 0)
        lost.fetch_add(bytes, std::memory_order_relaxed);
}

} // namespace detail
NOWAIT_END_NAMESPACE
