#include <nowait/detail/priority_bitmap.hpp>

#include <algorithm>
#include <bit>
#include <iterator>
#include <new>

NOWAIT_BEGIN_NAMESPACE
namespace detail {
namespace {

constexpr std::uint64_t bit(unsigned index) noexcept {
    return std::uint64_t{1} << (index % 64);
}

// The highest bit set in a word that is not zero.
unsigned highest_bit(std::uint64_t word) noexcept {
    return 63u ^ static_cast<unsigned>(std::countl_zero(word));
}

} // namespace

bitmap_index::~bitmap_index() {
    for (leaf* const owned : leaves_)
        if (owned != nullptr)
            source_->give(*source_, owned, sizeof(leaf), alignof(leaf));
}

block_need bitmap_index::shortage(unsigned priority) const noexcept {
    return {leaves_[priority / 64] == nullptr ? sizeof(leaf) : 0, alignof(leaf)};
}

void bitmap_index::adopt(unsigned priority, memory_block& block) noexcept {
    if (block && leaves_[priority / 64] == nullptr)
        leaves_[priority / 64] = ::new (block.release()) leaf{};
}

void bitmap_index::append(message_slab& slab, unsigned priority, message_ref message) noexcept {
    leaf& home = *leaves_[priority / 64];
    message_bucket& list = home.lists[priority % 64];
    if ((home.present & bit(priority)) != 0) {
        slab[list.tail].next = message.link;
        list.tail = message.link;
    } else {
        list = {message.link, message.link};
        mark(priority);
    }
}

void bitmap_index::put(unsigned priority, message_bucket bucket) noexcept {
    leaves_[priority / 64]->lists[priority % 64] = bucket;
    mark(priority);
}

message_bucket bitmap_index::take_highest(unsigned& priority) noexcept {
    priority = highest();
    unmark(priority);
    return leaves_[priority / 64]->lists[priority % 64];
}

unsigned bitmap_index::highest() const noexcept {
    const unsigned group = highest_bit(top_);
    const unsigned leaf_number = 64 * group + highest_bit(middle_[group]);
    return 64 * leaf_number + highest_bit(leaves_[leaf_number]->present);
}

message_link bitmap_index::first(unsigned priority) const noexcept {
    return leaves_[priority / 64]->lists[priority % 64].head;
}

message_ref bitmap_index::pop(message_slab& slab, unsigned priority) noexcept {
    message_bucket& list = leaves_[priority / 64]->lists[priority % 64];
    const message_link link = list.head;
    message_node& node = slab[link];
    list.head = node.next;
    if (list.head == no_message)
        unmark(priority);
    return {link, &node};
}

void bitmap_index::mark(unsigned priority) noexcept {
    const unsigned leaf_number = priority / 64;
    const unsigned group = leaf_number / 64;
    leaves_[leaf_number]->present |= bit(priority);
    middle_[group] |= bit(leaf_number);
    top_ |= bit(group);
}

void bitmap_index::unmark(unsigned priority) noexcept {
    const unsigned leaf_number = priority / 64;
    const unsigned group = leaf_number / 64;
    leaves_[leaf_number]->present &= ~bit(priority);
    if (leaves_[leaf_number]->present != 0)
        return;
    middle_[group] &= ~bit(leaf_number);
    if (middle_[group] == 0)
        top_ &= ~bit(group);
}

bool bitmap_index::sound(std::size_t) const noexcept {
    std::uint64_t top = 0;
    std::uint64_t middle[8] = {};
    for (unsigned n = 0; n < priority_levels / 64; ++n) {
        if (leaves_[n] == nullptr)
            continue;
        const std::uint64_t present = leaves_[n]->present;
        middle[n / 64] |= present != 0 ? bit(n) : 0;
        top |= present != 0 ? bit(n / 64) : 0;
        for (unsigned b = 0; b < 64; ++b)
            if ((present & bit(b)) != 0 && leaves_[n]->lists[b].head == no_message)
                return false;
    }
    return top == top_ && std::equal(std::begin(middle), std::end(middle), std::begin(middle_));
}

} // namespace detail
NOWAIT_END_NAMESPACE
