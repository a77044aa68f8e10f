// The index that counts on priorities being few: a 64-ary tree of bitmaps over 32768 lists.
//
//      top_           bit g: middle_[g] is not zero                     8 groups of 4096 priorities
//      middle_[8]     bit l of word g: leaf 64 g + l has a message    512 leaves
//      leaves_[512]   pointers to leaves: a word and 64 lists each  32768 priorities
//                     bit b of the word: list b is not empty
//
// The highest priority present is three bit scans away, an insertion touches one list and, if the list was
// empty, up to three words. Nothing is balanced and nothing is searched.
//
// A leaf (520 bytes) is bought when a priority of its 64 is first promised, and stays: so `ready(p)`, once
// true, is true until the queue is gone, and promises to waiting senders need no bookkeeping here.
//
// Invariants: a bit is set exactly if what it stands for is not empty; a list's links are valid exactly if
// its bit is set.
#pragma once

#include <nowait/detail/priority_slab.hpp>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

class bitmap_index {
public:
    static constexpr unsigned levels = priority_levels;
    static constexpr bool keeps_spares = true;

    explicit bitmap_index(block_source& source) noexcept : source_(&source) {}
    bitmap_index(const bitmap_index&) = delete;
    bitmap_index& operator=(const bitmap_index&) = delete;
    NOWAIT_API ~bitmap_index();

    [[nodiscard]] bool empty() const noexcept { return top_ == 0; }

    /// True if a list for `priority` can be made now, beside the `promised` ones.
    [[nodiscard]] bool ready(unsigned priority, std::size_t) const noexcept {
        return leaves_[priority / 64] != nullptr;
    }

    /// The block that would make `ready` true.
    [[nodiscard]] NOWAIT_API block_need shortage(unsigned priority) const noexcept;

    /// Takes the block if it is still wanted.
    NOWAIT_API void adopt(unsigned priority, memory_block& block) noexcept;

    /// Puts a message at the tail of its priority's list. Requires ready(priority).
    NOWAIT_API void append(message_slab& slab, unsigned priority, message_ref message) noexcept;

    /// Puts a whole list in. Requires ready(priority), and that the priority is absent.
    NOWAIT_API void put(unsigned priority, message_bucket bucket) noexcept;

    /// Takes out the list of the highest priority, and says which that is. Requires !empty().
    NOWAIT_API message_bucket take_highest(unsigned& priority) noexcept;

    /// The highest priority present. Requires !empty().
    [[nodiscard]] NOWAIT_API unsigned highest() const noexcept;

    /// The first message of a priority that is present.
    [[nodiscard]] NOWAIT_API message_link first(unsigned priority) const noexcept;

    /// Takes out the first message of a priority that is present.
    NOWAIT_API message_ref pop(message_slab& slab, unsigned priority) noexcept;

    /// For tests: true if every invariant holds. Looks at all words.
    [[nodiscard]] NOWAIT_API bool sound(std::size_t promised) const noexcept;

private:
    struct leaf {
        std::uint64_t present;
        message_bucket lists[64];
    };

    void mark(unsigned priority) noexcept;
    void unmark(unsigned priority) noexcept;

    std::uint64_t top_ = 0;
    std::uint64_t middle_[8] = {};
    leaf* leaves_[priority_levels / 64] = {};
    block_source* source_;
};

} // namespace detail
NOWAIT_END_NAMESPACE
