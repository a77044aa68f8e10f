#include <nowait/detail/priority_tree.hpp>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

// --- spare_nodes -------------------------------------------------------------------------------------------

spare_nodes::~spare_nodes() {
    if (nodes_ != nullptr)
        source_->give(*source_, nodes_, size_ * sizeof(node), alignof(std::max_align_t));
}

// Element 0 is lost, so 64 elements are 63 nodes; the last array has one for every priority.
block_need spare_nodes::shortage() const noexcept {
    const std::uint32_t wanted = std::min(std::max(64u, 2 * size_), priority_levels + 1);
    return {wanted > size_ ? wanted * sizeof(node) : 0, alignof(std::max_align_t)};
}

void spare_nodes::adopt(memory_block& block) noexcept {
    if (!block || block.shape().bytes != shortage().bytes)
        return;
    const auto wanted = static_cast<std::uint32_t>(block.shape().bytes / sizeof(node));
    auto* const larger = static_cast<node*>(block.release());
    if (nodes_ != nullptr) {
        std::memcpy(static_cast<void*>(larger), nodes_, carved_ * sizeof(node));
        const block_need old{size_ * sizeof(node), alignof(std::max_align_t)};
        block = memory_block(*source_, nodes_, old); // given back by the caller, without its lock
    }
    spares_ += wanted - std::max(size_, 1u);
    nodes_ = larger;
    size_ = wanted;
}

inline spare_nodes::link spare_nodes::take() noexcept {
    assert(spares_ > 0);
    --spares_;
    if (free_ == none)
        return static_cast<link>(carved_++);
    const link taken = free_;
    free_ = nodes_[taken].child[0];
    return taken;
}

inline void spare_nodes::give(link freed) noexcept {
    ++spares_;
    nodes_[freed].child[0] = free_;
    free_ = freed;
}

// --- heap_nodes --------------------------------------------------------------------------------------------

heap_nodes::~heap_nodes() {
    while (free_ != none)
        give(take());
}

block_need heap_nodes::shortage() const noexcept {
    return {sizeof(heap_node), alignof(heap_node)};
}

void heap_nodes::adopt(memory_block& block) noexcept {
    if (!block)
        return;
    const link bought = ::new (block.release()) heap_node{};
    bought->child[0] = free_;
    free_ = bought;
    ++spares_;
}

inline heap_nodes::link heap_nodes::take() noexcept {
    assert(spares_ > 0);
    --spares_;
    const link taken = free_;
    free_ = taken->child[0];
    return taken;
}

inline void heap_nodes::give(link freed) noexcept {
    source_->give(*source_, freed, sizeof(heap_node), alignof(heap_node));
}

// --- the interface of an index -----------------------------------------------------------------------------

template <class Nodes>
priority_tree<Nodes>::~priority_tree() {
    while (!empty())
        erase(highest_);
}

template <class Nodes>
void priority_tree<Nodes>::append(message_slab& slab, unsigned priority, message_ref message) noexcept {
    const bool above_all = empty() || priority > highest();
    const place where = above_all ? beyond_highest() : find(priority);
    if (where.node == none) {
        finger_ = hang(where, priority, {message.link, message.link});
        return;
    }
    message_bucket& list = nodes_[where.node].list;
    slab[list.tail].next = message.link;
    list.tail = message.link;
    finger_ = where.node;
}

template <class Nodes>
void priority_tree<Nodes>::put(unsigned priority, message_bucket bucket) noexcept {
    const bool above_all = empty() || priority > highest();
    hang(above_all ? beyond_highest() : find(priority), priority, bucket);
}

template <class Nodes>
message_bucket priority_tree<Nodes>::take_highest(unsigned& priority) noexcept {
    priority = highest();
    const message_bucket list = nodes_[highest_].list;
    erase(highest_);
    return list;
}

template <class Nodes>
message_link priority_tree<Nodes>::first(unsigned priority) const noexcept {
    const link n = priority == highest() ? highest_ : find(priority).node;
    return nodes_[n].list.head;
}

template <class Nodes>
message_ref priority_tree<Nodes>::pop(message_slab& slab, unsigned priority) noexcept {
    const link n = priority == highest() ? highest_ : find(priority).node;
    message_bucket& list = nodes_[n].list;
    const message_link oldest = list.head;
    message_node& node = slab[oldest];
    list.head = node.next;
    if (list.head == no_message)
        erase(n);
    return {oldest, &node};
}

// --- search ------------------------------------------------------------------------------------------------

// The root of a subtree in which `priority` is, or would hang. Near the finger it is found by climbing until
// the bounds of the subtree hold the priority; far from it, climbing and descending again would cost twice
// the depth.
template <class Nodes>
typename priority_tree<Nodes>::link priority_tree<Nodes>::start_for(unsigned priority) const noexcept {
    constexpr int near = 64;
    if (!Nodes::has_finger || finger_ == none)
        return root_;
    const int step = static_cast<int>(priority) - static_cast<int>(priority_of(finger_));
    if (step == 0)
        return finger_;
    if (step < -near || step > near)
        return root_;
    // All that lies between `start` and the next ancestor on the wanted side hangs below `start`, on that
    // side.
    const unsigned wanted = step > 0;
    link start = finger_;
    for (link n = finger_; nodes_[n].parent != none; n = nodes_[n].parent) {
        const link parent = nodes_[n].parent;
        if (nodes_[parent].child[wanted] == n)
            continue; // the parent lies on the other side
        const unsigned bound = priority_of(parent);
        if (wanted != 0 ? priority < bound : priority > bound)
            return start;
        start = parent;
        if (priority == bound)
            return start;
    }
    return start;
}

template <class Nodes>
typename priority_tree<Nodes>::place priority_tree<Nodes>::find(unsigned priority) const noexcept {
    place where;
    for (link n = start_for(priority); n != none;) {
        const auto& node = nodes_[n];
        const unsigned here = node.key / 2u;
        if (here == priority) [[unlikely]] {
            where.node = n;
            break;
        }
        where.parent = n;
        where.side = here < priority;
        n = node.child[where.side];
    }
    return where;
}

// --- balance -----------------------------------------------------------------------------------------------

template <class Nodes>
void priority_tree<Nodes>::paint(link n, bool red) noexcept {
    nodes_[n].key = static_cast<std::uint16_t>((nodes_[n].key & ~1u) | (red ? 1u : 0u));
}

template <class Nodes>
typename priority_tree<Nodes>::link priority_tree<Nodes>::hang(place where, unsigned priority,
                                                               message_bucket list) noexcept {
    const link n = nodes_.take();
    auto& node = nodes_[n];
    node.child[0] = node.child[1] = none;
    node.parent = where.parent;
    node.key = static_cast<std::uint16_t>(2 * priority + 1); // red
    node.list = list;
    if (where.parent == none)
        root_ = n;
    else
        nodes_[where.parent].child[where.side] = n;
    if (highest_ == where.parent && (highest_ == none || where.side == 1))
        highest_ = n;
    rebalance_after_insertion(n);
    return n;
}

template <class Nodes>
void priority_tree<Nodes>::erase(link n) noexcept {
    auto& node = nodes_[n];
    if (node.child[0] != none && node.child[1] != none) {
        // The successor has no lower child: its contents move here, and its node goes instead.
        link next = node.child[1];
        while (nodes_[next].child[0] != none)
            next = nodes_[next].child[0];
        node.key = static_cast<std::uint16_t>((nodes_[next].key & ~1u) | (node.key & 1u));
        node.list = nodes_[next].list;
        erase(next); // if it was the highest, it was the child of n, and n becomes the highest
        return;
    }
    const link only = node.child[0] != none ? node.child[0] : node.child[1];
    const link parent = node.parent;
    const unsigned side = parent != none ? side_of(n) : 0;
    const link nearest = only != none ? only : parent;
    if (highest_ == n)
        highest_ = nearest; // the highest has no higher child, and an only child has none at all
    if (finger_ == n)
        finger_ = nearest;
    put_in_place_of(n, only);
    if (only != none)
        paint(only, false); // an only child is red and its parent black
    else if (parent != none && !is_red(n))
        rebalance_after_erasure(parent, side);
    nodes_.give(n);
}

// n is red and all is well, except that its parent may be red too.
template <class Nodes>
void priority_tree<Nodes>::rebalance_after_insertion(link n) noexcept {
    while (is_red(nodes_[n].parent)) { // so the parent is not the root, and there is a grandparent
        link parent = nodes_[n].parent;
        const link grandparent = nodes_[parent].parent;
        const unsigned side = side_of(parent);
        const link uncle = nodes_[grandparent].child[1 - side];
        if (is_red(uncle)) {
            paint(parent, false);
            paint(uncle, false);
            paint(grandparent, true);
            n = grandparent;
            if (n == root_)
                break;
            continue;
        }
        if (nodes_[parent].child[1 - side] == n) {
            rotate(parent, side);
            parent = n;
        }
        paint(parent, false);
        paint(grandparent, true);
        rotate(grandparent, 1 - side);
        break;
    }
    paint(root_, false);
}

// The subtree at child[side] of parent is one black node short; it may be empty.
template <class Nodes>
void priority_tree<Nodes>::rebalance_after_erasure(link parent, unsigned side) noexcept {
    for (;;) {
        link sibling = nodes_[parent].child[1 - side]; // never none: its side is not short
        if (is_red(sibling)) {
            paint(sibling, false);
            paint(parent, true);
            rotate(parent, side);
            sibling = nodes_[parent].child[1 - side];
        }
        const link inner = nodes_[sibling].child[side];
        const link outer = nodes_[sibling].child[1 - side];
        if (!is_red(inner) && !is_red(outer)) {
            paint(sibling, true); // both sides are short now, so the parent is
            if (is_red(parent) || parent == root_) {
                paint(parent, false);
                return;
            }
            side = side_of(parent);
            parent = nodes_[parent].parent;
            continue;
        }
        if (!is_red(outer)) {
            paint(inner, false);
            paint(sibling, true);
            rotate(sibling, 1 - side);
            sibling = inner;
        }
        paint(sibling, is_red(parent));
        paint(parent, false);
        paint(nodes_[sibling].child[1 - side], false);
        rotate(parent, side);
        return;
    }
}

// Moves n down to `side`; its child on the other side comes up.
template <class Nodes>
void priority_tree<Nodes>::rotate(link n, unsigned side) noexcept {
    const link rising = nodes_[n].child[1 - side];
    const link moved = nodes_[rising].child[side];
    put_in_place_of(n, rising);
    nodes_[n].child[1 - side] = moved;
    if (moved != none)
        nodes_[moved].parent = n;
    nodes_[rising].child[side] = n;
    nodes_[n].parent = rising;
}

// What hung from n's parent as n now is `with`.
template <class Nodes>
void priority_tree<Nodes>::put_in_place_of(link n, link with) noexcept {
    const link parent = nodes_[n].parent;
    if (parent == none)
        root_ = with;
    else
        nodes_[parent].child[side_of(n)] = with;
    if (with != none)
        nodes_[with].parent = parent;
}

// --- proof -------------------------------------------------------------------------------------------------

template <class Nodes>
bool priority_tree<Nodes>::sound(std::size_t promised) const noexcept {
    if (promised > 0 && !nodes_.ready(promised - 1))
        return false;
    if (root_ == none)
        return highest_ == none && finger_ == none;
    link rightmost = root_;
    while (nodes_[rightmost].child[1] != none)
        rightmost = nodes_[rightmost].child[1];
    return rightmost == highest_ && !is_red(root_) && sound_height(root_, none, -1, priority_levels) >= 0;
}

// The number of black nodes on every path below n, or -1 if something is wrong there.
template <class Nodes>
int priority_tree<Nodes>::sound_height(link n, link parent, int low, int high) const noexcept {
    if (n == none)
        return 0;
    const auto& node = nodes_[n];
    const int here = static_cast<int>(priority_of(n));
    const bool well_formed = node.parent == parent && low < here && here < high &&
                             node.list.head != no_message && !(is_red(n) && is_red(parent));
    if (!well_formed)
        return -1;
    const int below = sound_height(node.child[0], n, low, here);
    if (below < 0 || below != sound_height(node.child[1], n, here, high))
        return -1;
    return below + (is_red(n) ? 0 : 1);
}

template class priority_tree<spare_nodes>;
template class priority_tree<heap_nodes>;

} // namespace detail
NOWAIT_END_NAMESPACE
