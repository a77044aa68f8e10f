// The ring of buffers inside a pipe_channel, as the kernel has it: a data structure without waiting and
// without a lock.
//
// A slot names a range of bytes in a page. A write first appends `size mod page` bytes to the newest slot if
// that may be appended to and they fit, then fills whole pages, one slot each; so a write of at most a page
// needs at most one slot and is atomic. Capacity is counted in slots, not bytes. A packet is a slot that one
// read consumes whole. Splice moves slots, tee shares their pages.
//
// How a layer above uses it
//   - One lock, if any, is held around every call; splice and tee take two rings, locked in address order.
//     Only indices(), empty(), full() and pages_hint() may be called outside: one load of the word each, good
//     for a hint.
//   - read_one and write_one are the inlined common case: one slot, no page comes or goes. When they decline,
//     nothing was done and the general call decides. While waiters exist the layer shuts them out with
//     hold_reads/hold_writes, so one test of one byte covers closed peers, reservations and queues.
//   - Pages: declare a page_list, lock, call, unlock, let the list go. Before a long write, fill it with
//     pages_hint(size) pages. A write that stops although the ring is not full wanted more: pages_needed()
//     says how many. Nothing is allocated or freed inside.
//   - A waiting reader's buffer can be filled straight from the write's `gather` before the rest is given to
//     write(). With an empty ring and no peek outstanding, neither order nor atomicity changes.
//   - A reservation shuts every other writer out until commit, a peek every other reader until consume;
//     neither is bound to a call, a thread or a lock hold, so it may be kept across awaits. Competing calls
//     see EAGAIN: "queue behind".
//   - Whom to wake follows from empty() and full() before and after a call, as in the kernel.
//
// Results are byte counts, or a negative errno value when nothing was done.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/page_pool.hpp>
#include <nowait/detail/sync.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include <sys/uio.h>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// Copies without letting the compiler see the size: a constant would become `rep movsq`, 34 ns for 512 bytes
/// against the C library's 13.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t size) noexcept {
    asm("" : "+r"(size));
    std::memcpy(to, from, size);
}

/// The bytes of a write, in one part or many; copying advances.
class gather {
public:
    explicit gather(std::span<const std::byte> whole) noexcept : current_(whole), left_(whole.size()) {}
    explicit gather(std::span<const std::span<const std::byte>> parts) noexcept : rest_(parts) {
        for (std::span<const std::byte> part : parts)
            left_ += part.size();
    }
    explicit gather(std::span<const iovec> parts) noexcept : vectors_(parts) {
        for (const iovec& part : parts)
            left_ += part.iov_len;
    }
    [[nodiscard]] std::size_t size() const noexcept { return left_; }
    /// Requires size <= size().
    NOWAIT_API void copy_to(std::byte* to, std::size_t size) noexcept;

private:
    void next_part() noexcept;

    std::span<const std::byte> current_;
    // What follows, as spans or as the system calls take it.
    std::span<const std::span<const std::byte>> rest_;
    std::span<const iovec> vectors_;
    std::size_t left_ = 0;
};

/// The room of a read, in one part or many; copying advances.
class scatter {
public:
    explicit scatter(std::span<std::byte> whole) noexcept : current_(whole), left_(whole.size()) {}
    explicit scatter(std::span<const std::span<std::byte>> parts) noexcept : rest_(parts) {
        for (std::span<std::byte> part : parts)
            left_ += part.size();
    }
    explicit scatter(std::span<const iovec> parts) noexcept : vectors_(parts) {
        for (const iovec& part : parts)
            left_ += part.iov_len;
    }
    [[nodiscard]] std::size_t size() const noexcept { return left_; }
    /// Requires size <= size().
    NOWAIT_API void copy_from(const std::byte* from, std::size_t size) noexcept;
    /// Takes the next run of contiguous room, at most `most` bytes. Requires 0 < most <= size().
    [[nodiscard]] NOWAIT_API std::span<std::byte> take(std::size_t most) noexcept;

private:
    void next_part() noexcept;

    std::span<std::byte> current_;
    std::span<const std::span<std::byte>> rest_;
    std::span<const iovec> vectors_;
    std::size_t left_ = 0;
};

struct pipe_slot {
    detail::page* page;
    std::uint16_t offset;
    std::uint16_t length; // never 0 between tail and head
    std::uint16_t flags;

    static constexpr std::uint16_t packet = 1; // one read consumes it whole
    static constexpr std::uint16_t can_merge =
        2; // a write may append; at most one slot of all that share a page
};

/// Storage for the slots of a ring, made before the lock that resize() needs and freed after it.
class NOWAIT_API slot_array {
public:
    slot_array() = default;
    slot_array(slot_array&& other) noexcept
        : slots_(std::exchange(other.slots_, nullptr)), count_(other.count_) {}
    slot_array& operator=(slot_array&& other) noexcept {
        std::swap(slots_, other.slots_);
        std::swap(count_, other.count_);
        return *this;
    }
    ~slot_array();

    /// `count` is a power of two. Null when memory ran out.
    [[nodiscard]] static slot_array create(std::uint32_t count) noexcept;
    explicit operator bool() const noexcept { return slots_ != nullptr; }
    [[nodiscard]] std::uint32_t count() const noexcept { return count_; }

private:
    friend class pipe_ring;
    pipe_slot* slots_ = nullptr;
    std::uint32_t count_ = 0;
};

class NOWAIT_API pipe_ring {
public:
    static constexpr std::uint32_t default_slots = 16;
    static constexpr std::size_t default_limit_bytes = std::size_t{1} << 20;
    static constexpr std::uint32_t default_spares = 2;
    /// Where head and tail begin: shortly before they wrap, so that every ring that is used at all crosses
    /// that point.
    static constexpr std::uint32_t first_index = ~std::uint32_t{0} - 255;

    /// Takes over `slots`, which must not be null. Starts with one reader and one writer. `limit_bytes` is
    /// what resize may grow to; `spares_max` is how many released pages stay with the ring.
    explicit pipe_ring(slot_array&& slots, std::size_t limit_bytes = default_limit_bytes,
                       std::uint32_t spares_max = default_spares) noexcept;
    pipe_ring(const pipe_ring&) = delete;
    pipe_ring& operator=(const pipe_ring&) = delete;
    ~pipe_ring();

    // -- One slot, inlined ----------------------------------------------------------------------------------

    /// Writes all bytes and returns true, or does nothing.
    [[nodiscard]] bool write_one(std::span<const std::byte> from, bool packet) noexcept;
    /// Reads at least one byte and returns how many, or does nothing and returns 0.
    [[nodiscard]] std::size_t read_one(std::span<std::byte> to) noexcept;

    // -- Bytes ----------------------------------------------------------------------------------------------

    /// Writes what there is room and pages for; at most a page of bytes is all or nothing.
    /// Errors: EPIPE no readers; EAGAIN full or reserved; ENOMEM no page. Zero bytes are 0, whatever the
    /// state.
    [[nodiscard]] std::ptrdiff_t write(gather& from, bool packet, page_list& pages) noexcept;
    /// Reads what is there, up to the end of the first packet. 0 is end of stream if room was given.
    /// Errors: EAGAIN empty with writers, or peeked. Zero room is 0, whatever the state.
    [[nodiscard]] std::ptrdiff_t read(scatter& to, page_list& pages) noexcept;

    // -- In place -------------------------------------------------------------------------------------------

    /// Sets aside the room that a write of `size` bytes would take, in at most out.size() parts (a part is at
    /// most a page; `size` of at most a page is one part) and returns the number of parts. Exclusive until
    /// commit.
    /// Errors: EINVAL nothing asked for; EPIPE; EAGAIN full or already reserved; ENOMEM no page.
    [[nodiscard]] std::ptrdiff_t reserve(std::size_t size, bool packet, std::span<std::span<std::byte>> out,
                                         page_list& pages) noexcept;
    /// Publishes the first `size` bytes of the reserved parts in their order and ends the reservation; 0
    /// drops it.
    /// Errors: EINVAL none outstanding, or more than reserved (it stays); EPIPE the readers have gone (it
    /// ends).
    [[nodiscard]] std::ptrdiff_t commit(std::size_t size, page_list& pages) noexcept;
    /// Shows what a read would take, in at most out.size() parts, and returns their number; 0 is end of
    /// stream. Exclusive among readers until consume; tee may still share what is seen.
    /// Errors: EINVAL no room in `out`; EAGAIN empty with writers, or already peeked.
    [[nodiscard]] std::ptrdiff_t peek(std::span<std::span<const std::byte>> out) noexcept;
    /// Ends the peek like a read of `size` bytes: of a packet, the rest is discarded. 0 leaves everything.
    /// Errors: EINVAL none outstanding, or more than peeked (it stays).
    [[nodiscard]] std::ptrdiff_t consume(std::size_t size, page_list& pages) noexcept;

    // -- Between rings --------------------------------------------------------------------------------------

    /// Moves up to `size` bytes; a part of a slot leaves both rings with the page. 0 is end of stream.
    /// Errors: EINVAL the same ring; EAGAIN nothing to move, or no room; EPIPE nobody reads `out`; ENOMEM too
    /// many references.
    [[nodiscard]] static std::ptrdiff_t splice(pipe_ring& in, pipe_ring& out, std::size_t size) noexcept;
    /// Shares up to `size` bytes with `out`; `in` keeps them. Errors as splice.
    [[nodiscard]] static std::ptrdiff_t tee(pipe_ring& in, pipe_ring& out, std::size_t size) noexcept;

    // -- Ends -----------------------------------------------------------------------------------------------

    void add_reader() noexcept { set(write_gate_, no_peer, ++readers_ == 0); }
    void add_writer() noexcept { ++writers_; }
    /// Return how many are left. With 0 the layer wakes everybody on both sides.
    std::uint32_t drop_reader() noexcept;
    std::uint32_t drop_writer() noexcept { return --writers_; }
    [[nodiscard]] std::uint32_t readers() const noexcept { return readers_; }
    [[nodiscard]] std::uint32_t writers() const noexcept { return writers_; }

    void hold_reads(bool on) noexcept { set(read_gate_, queued, on); }
    void hold_writes(bool on) noexcept { set(write_gate_, queued, on); }

    // -- Size -----------------------------------------------------------------------------------------------

    /// The number of slots for `bytes`, rounded up to a power of two pages, at least one.
    /// Errors: EINVAL beyond 2^31; EPERM growing beyond the limit.
    [[nodiscard]] std::ptrdiff_t plan_resize(std::size_t bytes) const noexcept;
    /// Returns 0 and leaves the old storage in `slots`. Errors: EBUSY more slots occupied than that, or a
    /// reservation or peek is outstanding.
    [[nodiscard]] int resize(slot_array& slots) noexcept;
    [[nodiscard]] std::size_t capacity_bytes() const noexcept { return std::size_t{max_usage()} * page_size; }
    [[nodiscard]] std::size_t bytes_available() const noexcept;
    /// How many pages a write of `size` bytes would take from the list.
    [[nodiscard]] std::uint32_t pages_needed(std::size_t size) const noexcept;

    struct readiness {
        bool readable, hangup; // not empty and not peeked; no writers
        bool writable, broken; // not full and not reserved; no readers
        friend bool operator==(const readiness&, const readiness&) = default;
    };
    [[nodiscard]] readiness poll() const noexcept;
    [[nodiscard]] bool peeked() const noexcept { return (read_gate_ & exclusive) != 0; }
    [[nodiscard]] bool reserved() const noexcept { return (write_gate_ & exclusive) != 0; }

    // -- Without the lock -----------------------------------------------------------------------------------

    struct index_pair {
        std::uint32_t head, tail;
        [[nodiscard]] std::uint32_t occupancy() const noexcept { return head - tail; }
    };
    /// Both in one load: read one after the other they can pass each other, and an empty ring looks full.
    [[nodiscard]] index_pair indices() const noexcept {
        // Relaxed: only the numbers are used; whoever acts on them takes the lock first.
        std::uint64_t word = head_tail_.load(std::memory_order_relaxed);
        return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
    }
    [[nodiscard]] bool empty() const noexcept { return indices().occupancy() == 0; }
    [[nodiscard]] bool full() const noexcept { return indices().occupancy() >= max_usage(); }
    [[nodiscard]] std::uint32_t max_usage() const noexcept {
        return max_usage_.load(std::memory_order_relaxed);
    }
    /// pages_needed, not counting what the ring itself has to spare.
    [[nodiscard]] std::uint32_t pages_hint(std::size_t size) const noexcept;

    // -- Housekeeping ---------------------------------------------------------------------------------------

    /// Releases all bytes, for when nobody will read them. Nothing may be reserved or peeked.
    void clear(page_list& pages) noexcept;
    /// Gives the spare pages away.
    void trim(page_list& pages) noexcept { pages.append(spares_); }
    /// The n-th slot from the tail, n < occupancy. For dumps and tests.
    [[nodiscard]] const pipe_slot& slot(std::uint32_t n) const noexcept { return at(indices().tail + n); }
    /// Whether the invariants below hold.
    [[nodiscard]] bool consistent() const noexcept;

private:
    // Bits of the gates. A gate other than 0 keeps the inlined calls out.
    static constexpr std::uint8_t no_peer = 1;   // write gate: no readers
    static constexpr std::uint8_t exclusive = 2; // reserved, or peeked
    static constexpr std::uint8_t queued = 4;    // the layer above has somebody waiting

    static void set(std::uint8_t& gate, std::uint8_t bit, bool on) noexcept {
        gate = static_cast<std::uint8_t>(on ? gate | bit : gate & ~bit);
    }
    [[nodiscard]] pipe_slot& at(std::uint32_t index) const noexcept {
        return slots_.slots_[index & (slots_.count_ - 1)];
    }
    void publish(index_pair now) noexcept {
        head_tail_.store(std::uint64_t{now.head} << 32 | now.tail,
                         std::memory_order_relaxed); // see indices()
    }
    // Every field of the slot is assigned: a flag left from its last use would let a write into somebody
    // else's page.
    void push(index_pair& now, const pipe_slot& slot) noexcept {
        at(now.head) = slot;
        publish({++now.head, now.tail});
    }
    [[nodiscard]] pipe_slot* mergeable(std::size_t size) const noexcept;
    page* take_page(bool room, page_list& pages, int& reason) noexcept;
    void release(page& p, page_list& pages) noexcept;
    template <class Copy>
    std::size_t advance(std::size_t size, page_list& pages, Copy&& copy) noexcept;
    std::size_t publish_tail(std::size_t size, page_list& pages) noexcept;
    static bool lend(const pipe_slot& from, pipe_ring& out, std::size_t size) noexcept;

    // Invariants, whenever no call is inside:
    //   - slots_.count_ is max_usage, a power of two; head - tail <= max_usage. Head and tail run free and
    //     are masked on use.
    //   - Slots from tail to head hold a page reference and at least one byte; others hold nothing.
    //   - Only the newest slot is ever appended to, and only with can_merge. Over all rings at most one slot
    //     or reservation may append to a page; a copy made by tee or a partial splice may not.
    //   - The write gate has `exclusive` from reserve to commit. Meanwhile head does not move, so the room
    //     counted then is there at commit, and a newest slot that is still there is the same one.
    //   - The read gate has `exclusive` from peek to consume. Meanwhile tail does not move.

    std::uint8_t read_gate_ = 0;
    std::uint8_t write_gate_ = 0;
    slot_array slots_;
    real_sync::atomic<std::uint64_t> head_tail_; // written under the lock only
    real_sync::atomic<std::uint32_t> max_usage_; // likewise
    std::uint32_t spares_max_;
    page_list spares_;

    std::uint32_t readers_ = 1;
    std::uint32_t writers_ = 1;
    std::size_t limit_bytes_;

    // The reservation: room behind the newest slot (its page held by a second reference, its can_merge taken
    // away), then pages of its own.
    page* tail_page_ = nullptr;
    std::uint16_t tail_offset_ = 0;
    std::uint16_t tail_size_ = 0;
    bool reserved_packet_ = false;
    page_list reserved_;
    std::size_t reserved_bytes_ = 0;

    std::size_t peeked_bytes_ = 0;
};

inline bool pipe_ring::write_one(std::span<const std::byte> from, bool packet) noexcept {
    if (write_gate_ != 0 || from.size() - 1 >= page_size) // 0 wraps and declines
        return false;
    auto size = static_cast<std::uint16_t>(from.size());
    index_pair now = indices();
    if (now.head != now.tail) {
        pipe_slot& newest = at(now.head - 1);
        std::uint32_t end = std::uint32_t{newest.offset} + newest.length;
        if ((newest.flags & pipe_slot::can_merge) != 0 && end + size <= page_size) {
            copy_bytes(newest.page->data + end, from.data(), from.size());
            newest.length = static_cast<std::uint16_t>(newest.length + size);
            return true;
        }
        if (now.occupancy() >= slots_.count_)
            return false;
    }
    page* p = spares_.pop_front();
    if (p == nullptr)
        return false;
    copy_bytes(p->data, from.data(), from.size());
    push(now, {p, 0, size, packet ? pipe_slot::packet : pipe_slot::can_merge});
    return true;
}

inline std::size_t pipe_ring::read_one(std::span<std::byte> to) noexcept {
    index_pair now = indices();
    if (read_gate_ != 0 || now.head == now.tail)
        return 0;
    pipe_slot& oldest = at(now.tail);
    std::size_t size = oldest.length;
    if (to.size() < size) {
        if (to.empty() || (oldest.flags & pipe_slot::packet) != 0)
            return 0;
        size = to.size();
        copy_bytes(to.data(), oldest.page->data + oldest.offset, size);
        oldest.offset = static_cast<std::uint16_t>(oldest.offset + size);
        oldest.length = static_cast<std::uint16_t>(oldest.length - size);
        return size;
    }
    bool more = to.size() > size && now.occupancy() > 1 && (oldest.flags & pipe_slot::packet) == 0;
    if (more || spares_.size() >= spares_max_ || !oldest.page->exclusive())
        return 0;
    copy_bytes(to.data(), oldest.page->data + oldest.offset, size);
    spares_.push_front(*oldest.page);
    publish({now.head, now.tail + 1});
    return size;
}

} // namespace detail
NOWAIT_END_NAMESPACE
