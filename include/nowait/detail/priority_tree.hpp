// The kernel's index: a balanced tree with one node for each priority present, and a FIFO list in each node.
//
//                      root_
//                   [ 9 | list ]
//                  /            \            .
//        [ 3 | list ]          [ 20 | list ]
//             \                       \      .
//            [ 5 | list ]           [ 31 | list ] <- highest_        finger_ -> where the last message went
//
// A red-black tree. A node is there exactly if its list is not empty. `highest_` is always known, so the next
// message to receive is never searched for; and it has no right child, so taking it out is the simple case of
// erasure. `finger_` serves senders whose priorities go up or down in small steps: the search starts there
// when the priority is near. Elsewhere it descends from the root: log2 of the number of priorities present.
//
// Nodes come from a store, of which there are two:
//   `spare_nodes`  one array, links of 16 bits, four nodes to a cache line; freed nodes are kept as spares.
//                  Growing doubles the array: at most 512 KiB are copied, at most ten times in a queue's life.
//   `heap_nodes`   a heap block for every node, given back as soon as it is free, and no finger. The tree as it
//                  was before it had caches, kept to measure what they bring.
//
// Promises. One insertion needs at most one new node: for its own priority, or for the list in front of the
// index when the newcomer overtakes it. So `ready` asks for one node more than were promised to waiting
// senders.
//
// Invariants: ordered by priority; root black; no red node has a red child; every path from a node down has
// the same number of black nodes; highest_ is the rightmost node, or none exactly if the tree is empty;
// finger_ is a node of the tree, or none.
#pragma once

#include <nowait/detail/priority_slab.hpp>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// A node of the tree, with links of either kind. The key is twice the priority, plus one if the node is red:
/// of two nodes with different priorities the greater key has the greater priority, whatever their colours.
template <class Link>
struct priority_tree_node {
    Link child[2]; // lower, higher priorities; child[0] of a spare node is the next spare
    Link parent;
    std::uint16_t key;
    message_bucket list;
};

class spare_nodes {
public:
    using link = std::uint16_t;
    using node = priority_tree_node<link>;
    static constexpr link none = 0; // element 0 of the array is never used
    static constexpr bool has_finger = true;
    static constexpr bool keeps_spares = true;

    explicit spare_nodes(block_source& source) noexcept : source_(&source) {}
    spare_nodes(const spare_nodes&) = delete;
    spare_nodes& operator=(const spare_nodes&) = delete;
    NOWAIT_API ~spare_nodes();

    [[nodiscard]] node& operator[](link which) const noexcept { return nodes_[which]; }
    [[nodiscard]] bool ready(std::size_t promised) const noexcept;
    [[nodiscard]] NOWAIT_API block_need shortage() const noexcept;
    NOWAIT_API void adopt(memory_block& block) noexcept;
    link take() noexcept;
    void give(link freed) noexcept;

private:
    node* nodes_ = nullptr;
    std::uint32_t size_ = 0;   // elements of the array, element 0 included
    std::uint32_t carved_ = 1; // elements that have been used
    std::uint32_t spares_ = 0; // nodes not in the tree
    link free_ = none;
    block_source* source_;
};

struct heap_node : priority_tree_node<heap_node*> {};

class heap_nodes {
public:
    using link = heap_node*;
    static constexpr link none = nullptr;
    static constexpr bool has_finger = false;
    static constexpr bool keeps_spares = false;

    explicit heap_nodes(block_source& source) noexcept : source_(&source) {}
    heap_nodes(const heap_nodes&) = delete;
    heap_nodes& operator=(const heap_nodes&) = delete;
    NOWAIT_API ~heap_nodes();

    [[nodiscard]] heap_node& operator[](link which) const noexcept { return *which; }
    [[nodiscard]] bool ready(std::size_t promised) const noexcept { return spares_ > promised; }
    [[nodiscard]] NOWAIT_API block_need shortage() const noexcept;
    NOWAIT_API void adopt(memory_block& block) noexcept;
    link take() noexcept;
    void give(link freed) noexcept;

private:
    link free_ = none;       // bought, not used yet
    std::size_t spares_ = 0; // how many
    block_source* source_;
};

template <class Nodes>
class priority_tree {
public:
    static constexpr unsigned levels = priority_levels;
    static constexpr bool keeps_spares = Nodes::keeps_spares;

    explicit priority_tree(block_source& source) noexcept : nodes_(source) {}
    priority_tree(const priority_tree&) = delete;
    priority_tree& operator=(const priority_tree&) = delete;
    ~priority_tree();

    // The meaning of these is the same for every index: see bitmap_index.
    [[nodiscard]] bool empty() const noexcept { return highest_ == Nodes::none; }
    [[nodiscard]] bool ready(unsigned, std::size_t promised) const noexcept { return nodes_.ready(promised); }
    [[nodiscard]] block_need shortage(unsigned) const noexcept { return nodes_.shortage(); }
    void adopt(unsigned, memory_block& block) noexcept { nodes_.adopt(block); }
    void append(message_slab& slab, unsigned priority, message_ref message) noexcept;
    void put(unsigned priority, message_bucket bucket) noexcept;
    message_bucket take_highest(unsigned& priority) noexcept;
    [[nodiscard]] unsigned highest() const noexcept { return priority_of(highest_); }
    [[nodiscard]] message_link first(unsigned priority) const noexcept;
    message_ref pop(message_slab& slab, unsigned priority) noexcept;

    /// For tests: true if every invariant of the tree holds, and the promises can be kept. Walks the whole
    /// tree.
    [[nodiscard]] bool sound(std::size_t promised) const noexcept;

private:
    using link = typename Nodes::link;
    static constexpr link none = Nodes::none;

    struct place { // where a priority is; or, if node is none, where it would hang
        link node = Nodes::none;
        link parent = Nodes::none;
        unsigned side = 0;
    };

    [[nodiscard]] unsigned priority_of(link n) const noexcept { return nodes_[n].key / 2u; }
    [[nodiscard]] bool is_red(link n) const noexcept { return n != none && (nodes_[n].key & 1u) != 0; }
    void paint(link n, bool red) noexcept;
    [[nodiscard]] unsigned side_of(link n) const noexcept { return nodes_[nodes_[n].parent].child[1] == n; }

    [[nodiscard]] link start_for(unsigned priority) const noexcept;
    [[nodiscard]] place find(unsigned priority) const noexcept;
    [[nodiscard]] place beyond_highest() const noexcept { return {none, highest_, 1}; }
    link hang(place where, unsigned priority, message_bucket list) noexcept;
    void erase(link n) noexcept;
    void rebalance_after_insertion(link n) noexcept;
    void rebalance_after_erasure(link parent, unsigned side) noexcept;
    void rotate(link n, unsigned side) noexcept;
    void put_in_place_of(link n, link with) noexcept;
    [[nodiscard]] int sound_height(link n, link parent, int low, int high) const noexcept;

    link root_ = Nodes::none;
    link highest_ = Nodes::none;
    link finger_ = Nodes::none;
    Nodes nodes_;
};

extern template class NOWAIT_API priority_tree<spare_nodes>;
extern template class NOWAIT_API priority_tree<heap_nodes>;

/// The kernel's tree with its caches: the default index.
using tree_index = priority_tree<spare_nodes>;

/// The kernel's tree before it had any.
using uncached_tree_index = priority_tree<heap_nodes>;

inline bool spare_nodes::ready(std::size_t promised) const noexcept {
    return spares_ > promised || size_ > priority_levels;
}

} // namespace detail
NOWAIT_END_NAMESPACE
