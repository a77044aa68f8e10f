// Pages, the unit in which a pipe ring holds bytes, and the pools that recycle them.
//
// A ring never allocates: its caller brings pages in a page_list, taken from the pool before the ring's lock,
// and carries released ones away in the same list, given back after the lock. Declared before the lock, a
// page_list does the second half by its destructor.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/sync.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

inline constexpr std::uint32_t page_size = 4096;

/// Bytes that slots of one or several rings refer to. The header has a cache line of its own, so that
/// counting references does not disturb the bytes.
///
/// Invariants: with one reference, the holder may do anything. With more, nobody writes bytes inside
/// anybody's visible range; bytes behind it belong to the one holder that may append (the slot with
/// can_merge, or a reservation).
struct alignas(64) page {
    real_sync::atomic<std::uint32_t> references{1};
    page* next = nullptr;       // while on a page_list
    page* next_batch = nullptr; // while in the depot
    alignas(64) std::byte data[page_size];

    /// One more holder. False when the count is exhausted: an endless tee must fail, not wrap.
    [[nodiscard]] bool share() noexcept {
        // Relaxed: the caller holds a reference, and hands the new one over under a lock.
        if (references.fetch_add(1, std::memory_order_relaxed) < references_max)
            return true;
        references.fetch_sub(1, std::memory_order_relaxed);
        return false;
    }
    /// True for the only holder. The acquire pairs with the release in drop(): what another holder did to the
    /// page before it let go has happened before it is used again.
    [[nodiscard]] bool exclusive() const noexcept { return references.load(std::memory_order_acquire) == 1; }
    /// Lets go. True if the caller was the last holder; then the page is its own, with one reference.
    [[nodiscard]] bool drop() noexcept {
        if (exclusive())
            return true;
        // Release pairs with exclusive() and with the acquire here, whichever of the others comes last.
        if (references.fetch_sub(1, std::memory_order_acq_rel) != 1)
            return false;
        references.store(1, std::memory_order_relaxed); // nobody else can see it
        return true;
    }

    static constexpr std::uint32_t references_max = std::uint32_t{1} << 30;
};

/// A FIFO of pages with one reference each, linked through the pages. What is left at the end goes to the
/// pool of the thread that destroys the list.
class page_list {
public:
    page_list() = default;
    page_list(page_list&& other) noexcept { append(other); }
    page_list& operator=(page_list&& other) = delete;
    ~page_list() {
        if (first_ != nullptr)
            give_back();
    }

    [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
    [[nodiscard]] std::uint32_t size() const noexcept { return size_; }

    void push_front(page& p) noexcept {
        p.next = first_;
        if (first_ == nullptr)
            last_ = &p;
        first_ = &p;
        ++size_;
    }
    void push_back(page& p) noexcept {
        p.next = nullptr;
        (first_ == nullptr ? first_ : last_->next) = &p;
        last_ = &p;
        ++size_;
    }
    /// nullptr when there is none.
    [[nodiscard]] page* pop_front() noexcept {
        page* p = first_;
        if (p != nullptr) {
            first_ = p->next;
            --size_;
        }
        return p;
    }
    /// Takes all pages of the other list to the end of this one.
    void append(page_list& other) noexcept {
        if (other.first_ == nullptr)
            return;
        (first_ == nullptr ? first_ : last_->next) = std::exchange(other.first_, nullptr);
        last_ = other.last_;
        size_ += std::exchange(other.size_, 0);
    }

private:
    NOWAIT_API void give_back() noexcept;

    page* first_ = nullptr;
    page* last_ = nullptr; // meaningful while first_ is not null
    std::uint32_t size_ = 0;
};

/// A thread's spare pages. Last in, first out, so that pages are warm; surplus travels in batches through one
/// depot to whichever thread runs dry (a pipe from one thread to another moves pages that way), or back to
/// the allocator.
///
/// Thread safety: an object is used by its own thread only. The depot is never waited for: when it is busy,
/// the allocator serves.
class NOWAIT_API page_pool {
public:
    static constexpr std::uint32_t cached_max = 64; // per thread: 256 KiB
    static constexpr std::uint32_t batch = 16;
    static constexpr std::uint32_t depot_batches_max = 64; // per process: 4 MiB

    /// Says no to make an allocation fail. For tests of what happens then.
    using gate = bool (*)(void* context) noexcept;

    [[nodiscard]] static page_pool& of_this_thread() noexcept;

    constexpr page_pool() noexcept = default;
    page_pool(const page_pool&) = delete;
    page_pool& operator=(const page_pool&) = delete;

    /// Adds `count` pages to the list. False, with fewer added, when memory ran out.
    [[nodiscard]] bool take(std::uint32_t count, page_list& into) noexcept;
    void give(page_list& pages) noexcept;

    /// Gives the spare pages of this thread, and those of the depot, back to the allocator.
    void trim() noexcept;

    /// Every allocation on this thread asks the gate first, pages from the cache included. Null: all are
    /// granted.
    void set_gate(gate g, void* context) noexcept {
        gate_ = g;
        gate_context_ = context;
    }
    [[nodiscard]] bool granted() const noexcept { return gate_ == nullptr || gate_(gate_context_); }

    [[nodiscard]] std::uint32_t cached() const noexcept { return cached_; }

    counter allocated, recycled;

private:
    struct at_thread_exit;

    bool begin() noexcept;
    page* take_one() noexcept;
    void shrink_to(std::uint32_t count) noexcept;

    page* first_ = nullptr;
    std::uint32_t cached_ = 0;
    std::uint32_t cached_limit_ = 0; // 0 before the first use of this thread, and again once it is ending
    bool ended_ = false;
    gate gate_ = nullptr;
    void* gate_context_ = nullptr;
};

} // namespace detail
NOWAIT_END_NAMESPACE
