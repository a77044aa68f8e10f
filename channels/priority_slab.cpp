#include <nowait/detail/priority_slab.hpp>

#include <algorithm>
#include <cassert>
#include <new>

NOWAIT_BEGIN_NAMESPACE
namespace detail {
namespace {

// The head of a chunk; nodes follow at the next multiple of their alignment.
struct chunk_head {
    std::size_t bytes; // of the whole block, to give it back
    std::uint32_t nodes;
};

chunk_head& head_of(std::byte* chunk) noexcept {
    return *std::launder(reinterpret_cast<chunk_head*>(chunk));
}

constexpr std::size_t round_up(std::size_t bytes, std::size_t alignment) noexcept {
    return (bytes + alignment - 1) & ~(alignment - 1);
}

} // namespace

message_slab::message_slab(node_layout layout, std::size_t expected, block_source& source) noexcept
    : step_(0), expected_(expected), alignment_(std::max(layout.alignment, alignof(chunk_head))),
      source_(&source) {
    static_assert(alignof(chunk_head) >= granule);
    const std::size_t bytes = round_up(layout.bytes, alignment_);
    assert(bytes + head_bytes() <= most_chunk_bytes);
    step_ = static_cast<std::uint32_t>(bytes / granule);
}

message_slab::~message_slab() {
    for (unsigned i = 0; i < bought_; ++i)
        source_->give(*source_, chunks_[i], head_of(chunks_[i]).bytes, alignment_);
}

std::size_t message_slab::head_bytes() const noexcept {
    return round_up(sizeof(chunk_head), alignment_);
}

// Chunks double what there is, so that few are needed and no queue owns much more than twice what it has
// used. The last one before `expected_` is cut to it; beyond that point nodes are out with somebody (a
// drained chain, the promises made to waiting senders), and doubling starts again.
std::size_t message_slab::next_chunk_nodes() const noexcept {
    const std::size_t stride = granule * step_;
    std::size_t nodes =
        std::max(total_, std::max<std::size_t>(1, (first_chunk_bytes - head_bytes()) / stride));
    if (total_ < expected_)
        nodes = std::min(nodes, expected_ - total_);
    return std::min(nodes, (most_chunk_bytes - head_bytes()) / stride);
}

block_need message_slab::shortage() const noexcept {
    if (bought_ == most_chunks)
        return {block_need::unobtainable, alignment_};
    return {head_bytes() + next_chunk_nodes() * granule * step_, alignment_};
}

void message_slab::adopt(memory_block& block) noexcept {
    if (!block || block.shape().bytes != shortage().bytes)
        return;
    const std::size_t bytes = block.shape().bytes;
    const std::size_t nodes = next_chunk_nodes();
    auto* const chunk = static_cast<std::byte*>(block.release());
    ::new (static_cast<void*>(chunk)) chunk_head{bytes, static_cast<std::uint32_t>(nodes)};
    chunks_[bought_++] = chunk;
    total_ += nodes;
    available_ += nodes;
}

void message_slab::open_next_chunk() noexcept {
    assert(opened_ < bought_);
    const auto distance = static_cast<message_link>(head_bytes() / granule);
    fresh_ = (opened_ << distance_bits) | distance;
    fresh_left_ = head_of(chunks_[opened_]).nodes;
    ++opened_;
}

void message_slab::rewind() noexcept {
    free_ = no_message;
    fresh_left_ = 0;
    opened_ = 0;
    carved_ = 0;
}

} // namespace detail
NOWAIT_END_NAMESPACE
