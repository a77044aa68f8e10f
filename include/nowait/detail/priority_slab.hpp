// Message nodes and the slab they live in.
//
// A queue's messages are nodes of one size: a header that the compiled code knows (`message_node`), then the
// payload that only the typed edge knows. Nodes lie in chunks, and are named by 32-bit links:
//
//      link     31      27 26                                   0
//              | chunk    | distance from its start, in 8 bytes   |
//
//      chunks_  [0] -> | head | node | node | node |                       one page
//               [1] -> | head | node | node | node |                       doubles what there is
//               [2] -> | head | node | node | node | node | node | node |  so too, up to the queue's limit
//
// A chunk begins with a head, so no node has the link 0: that is "none". A chunk is bought whole and never
// moves until the slab is destroyed: a node may be read and its payload destroyed without the lock by whoever
// took it out of the queue, while others grow the slab.
//
// Free nodes are in two places: a stack of used ones (the last one released is the next one claimed: its line
// is in the cache), and behind it the part of the chunks that was never carved. When the last node comes back
// after a deep use, the slab forgets the stack and carves again from the beginning, so that the next burst
// lies in memory in the order of its sending and not in the order the last one was received.
//
// Invariants: available() = nodes on the stack + nodes not carved = nodes bought - nodes claimed.
#pragma once

#include <nowait/detail/priority_memory.hpp>

#include <cstdint>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// Names a node of a slab. Half a pointer: a header with priority and length takes 16 bytes.
using message_link = std::uint32_t;
inline constexpr message_link no_message = 0;

/// Priorities are those of a POSIX message queue: 0 to 32767, the highest is received first.
inline constexpr unsigned priority_levels = 32768;

/// The header of a message. While it is free, only `next` means anything.
struct message_node {
    message_link next;      // behind it in its list or stack, or none
    std::uint16_t priority; // below priority_levels
    std::uint64_t bytes;    // what it counts against the limit by bytes
};

/// A FIFO list of the messages of one priority. An empty one has no head; its tail then means nothing.
struct message_bucket {
    message_link head = no_message;
    message_link tail = no_message;
};

/// Messages taken out of a queue, linked by `next`; their nodes are still claimed.
struct message_chain {
    message_link head = no_message;
    message_link tail = no_message;
    std::size_t count = 0;
};

/// A node's name and its place, so that neither is looked up twice.
struct message_ref {
    message_link link = no_message;
    message_node* node = nullptr;

    explicit operator bool() const noexcept { return node != nullptr; }
};

/// Size and alignment of a whole node: header, padding, payload. Alignment is a power of two.
struct node_layout {
    std::size_t bytes;
    std::size_t alignment;
};

class message_slab {
public:
    /// `expected` nodes are the most that the owner plans to use at once: chunks are cut to fit it, more is
    /// possible. Buys nothing yet. Borrows `source` for its life.
    NOWAIT_API message_slab(node_layout layout, std::size_t expected, block_source& source) noexcept;
    message_slab(const message_slab&) = delete;
    message_slab& operator=(const message_slab&) = delete;
    NOWAIT_API ~message_slab();

    /// The node of a link that was claimed here.
    [[nodiscard]] message_node& operator[](message_link link) const noexcept;

    /// Nodes that can be claimed before another chunk is needed.
    [[nodiscard]] std::size_t available() const noexcept { return available_; }

    /// Nodes bought.
    [[nodiscard]] std::size_t total() const noexcept { return total_; }

    /// Claims a node. Requires available() > 0. The payload is raw memory.
    [[nodiscard]] message_ref claim() noexcept;

    /// Takes back a node whose payload has been destroyed.
    void release(message_ref used) noexcept;

    /// Takes back a whole chain, in constant time.
    void release(message_chain used) noexcept;

    /// The chunk that would be bought next.
    [[nodiscard]] NOWAIT_API block_need shortage() const noexcept;

    /// Takes a block of the size that `shortage` asks for; leaves any other, bought for a shortage that has
    /// passed.
    NOWAIT_API void adopt(memory_block& block) noexcept;

private:
    static constexpr unsigned distance_bits = 27;
    static constexpr unsigned most_chunks = 1u << (32 - distance_bits);
    static constexpr std::size_t granule = 8;
    static constexpr std::size_t most_chunk_bytes = granule << distance_bits;
    static constexpr std::size_t first_chunk_bytes = 4096;
    static constexpr std::size_t worth_rewinding =
        64; // nodes; below this the order of the stack costs nothing

    [[nodiscard]] std::size_t next_chunk_nodes() const noexcept;
    [[nodiscard]] std::size_t head_bytes() const noexcept;
    NOWAIT_API void open_next_chunk() noexcept;
    NOWAIT_API void rewind() noexcept;

    std::byte* chunks_[most_chunks] = {}; // filled from the front
    message_link free_ = no_message;      // stack of used nodes
    message_link fresh_ = no_message;     // the next node to carve, in chunk opened_ - 1
    std::uint32_t fresh_left_ = 0;        // nodes to carve there; 0 also before the first chunk is opened
    std::uint32_t step_;                  // a node's size in granules
    std::size_t available_ = 0;
    std::size_t total_ = 0;
    std::size_t carved_ = 0; // since the last rewind
    unsigned opened_ = 0;    // chunks that carving has entered
    unsigned bought_ = 0;    // chunks there are
    std::size_t expected_;
    std::size_t alignment_;
    block_source* source_;
};

[[gnu::always_inline]] inline message_node& message_slab::operator[](message_link link) const noexcept {
    constexpr message_link distance_mask = (message_link{1} << distance_bits) - 1;
    // Walking a list is a chain of dependent loads. In a small queue, whose chunk is known, this is one less for each node.
    std::byte* chunk = chunks_[0];
    if (bought_ != 1) [[unlikely]]
        chunk = chunks_[link >> distance_bits];
    return *reinterpret_cast<message_node*>(chunk + granule * (link & distance_mask));
}

[[gnu::always_inline]] inline message_ref message_slab::claim() noexcept {
    --available_;
    if (free_ != no_message) [[likely]] {
        const message_link link = free_;
        message_node& node = (*this)[link];
        free_ = node.next;
        return {link, &node};
    }
    if (fresh_left_ == 0)
        open_next_chunk();
    const message_link link = fresh_;
    fresh_ += step_;
    --fresh_left_;
    ++carved_;
    return {link, &(*this)[link]};
}

[[gnu::always_inline]] inline void message_slab::release(message_ref used) noexcept {
    used.node->next = free_;
    free_ = used.link;
    if (++available_ == total_ && carved_ > worth_rewinding)
        rewind();
}

inline void message_slab::release(message_chain used) noexcept {
    if (used.count == 0)
        return;
    (*this)[used.tail].next = free_;
    free_ = used.head;
    available_ += used.count;
    if (available_ == total_ && carved_ > worth_rewinding)
        rewind();
}

} // namespace detail
NOWAIT_END_NAMESPACE
