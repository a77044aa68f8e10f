// What the ends of an in-process pipe share: the ring, its lock, who waits, and who may go on when something changes.
//
// The ring (pipe_ring.hpp) knows bytes and slots; this file adds waiting. The rule that everything follows from:
//
//      A waiter is served by whoever changes the state, under the lock, in the waiter's own memory. A write copies into the
//      buffers of waiting readers, a read that makes room takes bytes out of the buffers of waiting writers, a close ends
//      whoever can no longer succeed. Whoever was served is unlinked, has its result, and is only told of it.
//
// So there is no moment in which a woken operation has been promised something that a faster one may take: one wake for each
// wait, FIFO, no barging, and a stop that comes after the choice finds a result to deliver. Splice and tee alone cannot be
// served so, because they need a second channel's lock: they are *called*, stay at the head of their queue (which keeps
// everybody else behind them), and try by themselves on their own loop.
//
// settle() is that step: called after every change, it serves both queues from the front until the front cannot go on.
//
// Life: an end block is held by its handle and by every operation that waits through it; the channel by its end blocks and
// by reservations and peeks. Closing an end first ends its waiters. So nothing waits in a channel that has no end.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/list.hpp>
#include <nowait/detail/pipe_ring.hpp>
#include <nowait/detail/sync.hpp>
#include <nowait/detail/waiter.hpp>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

template <class Sync>
class pipe_core;
template <class Sync>
class pipe_waiter;
template <class Sync>
struct pipe_guest;

/// One end of a channel, as its handle and the operations on it see it. Its address does not change when the handle moves.
template <class Sync>
struct pipe_end_block {
    pipe_end_block(pipe_core<Sync>& of, bool writes_to, bool part_of_core) noexcept
        : channel(&of), writes(writes_to), embedded(part_of_core) {}

    pipe_core<Sync>* channel;
    const bool writes;
    const bool embedded;
    bool closed = false;  // under the channel's lock
    bool packets = false; // likewise
    typename Sync::template atomic<std::uint32_t> references{1};

    void acquire() noexcept {
        // Relaxed: the caller holds a reference.
        references.fetch_add(1, std::memory_order_relaxed);
    }
    void release() noexcept {
        // acq_rel: the last one sees what the others did through this end.
        if (references.fetch_sub(1, std::memory_order_acq_rel) != 1)
            return;
        pipe_core<Sync>& core = *channel;
        if (!embedded)
            delete this;
        core.release();
    }
};

/// One visit to a channel: what is brought, and what is to be done when the lock is free again. Declared before locking; its
/// destructor sends the wakes, then gives the pages back.
struct pipe_turn {
    explicit pipe_turn(const loop* calling) noexcept : here(calling) {}

    const loop* here; ///< the loop of this thread, or nullptr
    std::uint32_t pages_wanted = 0;
    bool no_memory = false;      ///< the pool has refused: do with what is here
    bool ring_untouched = false; ///< the attempt went past the ring: nobody but those it served can go on
    page_list pages;
    wake_list wakes;

    /// Under the lock: `chosen` has been served and unlinked. To this thread's own loop it goes at once, which is a link in a
    /// list; to others after the lock.
    void wake(channel_waiter& chosen) noexcept {
        loop& home = chosen.home();
        if (&home == here)
            home.post(chosen);
        else
            wakes.add(chosen, here);
    }
};

/// How an attempt under the lock came out.
enum class pipe_attempt : std::uint8_t {
    blocked, ///< not now
    done,    ///< the waiter has its result
    pages,   ///< not without `pages_wanted` pages: fetch them outside the lock and try again
    called   ///< it will try by itself, and stays where it is until then
};

template <class Sync>
class NOWAIT_API pipe_core {
public:
    using end_block = pipe_end_block<Sync>;
    using waiter = pipe_waiter<Sync>;
    using queue = list<waiter>;

    /// The parts of a reservation or a peek: 64 KiB at a time.
    static constexpr std::size_t parts_max = 16;

    /// A channel with one reader and one writer; nullptr and a negative errno value if it cannot be.
    [[nodiscard]] static pipe_core* create(std::size_t bytes, std::size_t limit_bytes, long& error) noexcept;
    pipe_core(const pipe_core&) = delete;
    pipe_core& operator=(const pipe_core&) = delete;

    // Invariants, while the lock is free:
    //   - the front of each queue cannot go on in the present state, or has been called;
    //   - the ring's gates are shut while anybody waits, so that the inlined calls decline;
    //   - a queued waiter's end is open.
    // In between (settle() fetching pages, splice changing locks) the first may not hold; then somebody is about to settle.

    typename Sync::mutex mutex;
    pipe_ring ring;
    queue reading; // under the mutex, like everything below
    queue writing;
    list<pipe_guest<Sync>> guests; // splices and tees that use this channel and wait in the other one
    std::array<std::span<std::byte>, parts_max> reserved_parts;
    std::array<std::span<const std::byte>, parts_max> peeked_parts;

    end_block first_reader{*this, false, true};
    end_block first_writer{*this, true, true};

    /// Whether this runtime is the one that uses the channel. A local one belongs to one at a time.
    [[nodiscard]] bool belongs_to(const loop& home) const noexcept {
        if constexpr (std::is_same_v<Sync, local_sync>)
            return owner_ == &home;
        else
            return true;
    }
    /// The same; a local channel in which nobody waits changes hands.
    [[nodiscard]] bool claim(const loop& home) noexcept {
        if constexpr (std::is_same_v<Sync, local_sync>) {
            if (idle())
                owner_ = &home;
        }
        return belongs_to(home);
    }

    [[nodiscard]] queue& queue_of(const end_block& end) noexcept { return end.writes ? writing : reading; }
    [[nodiscard]] bool idle() const noexcept { return reading.empty() && writing.empty(); }

    // With the lock held:

    [[nodiscard]] bool anybody_waits() const noexcept { return gates_shut_; }
    /// Serves everybody who can go on. May release the lock to fetch pages, and takes it again.
    void settle(pipe_turn& turn) noexcept {
        if (!gates_shut_)
            return;
        if (turn.ring_untouched)
            shut_gates(!idle());
        else
            settle_waiters(turn);
    }
    /// Releases the lock, fetches turn.pages_wanted pages, takes it again.
    void fetch_pages(pipe_turn& turn) noexcept;
    /// To the end of its queue (or back to the head); the inlined calls are shut out from here on.
    void enqueue(waiter& w, const end_block& end, bool at_head) noexcept {
        at_head ? queue_of(end).push_front(w) : queue_of(end).push_back(w);
        shut_gates(true);
    }
    /// The common case of a write that finds readers waiting: one part, and the first of them take all of it. True if it was
    /// done, and then the ring is as it was; otherwise nothing was.
    [[nodiscard]] bool hand_over_whole(std::span<const std::byte> from, const loop& here) noexcept;
    /// How many bytes of a write would go straight to waiting readers.
    [[nodiscard]] std::size_t direct_room(std::size_t size) const noexcept;
    /// Moves bytes to waiting readers while both last. Requires direct_room().
    std::size_t hand_over(gather& from, pipe_turn& turn) noexcept;

    // Without the lock:

    /// One more end of the same kind; nullptr when memory ran out. `result`: 0 or an errno value.
    [[nodiscard]] end_block* duplicate(const end_block& end, int& error) noexcept;
    /// Ends the waiters of this end and takes it off the count. 0, or EBADF.
    int close(end_block& end) noexcept;
    int set_packets(end_block& end, bool on) noexcept;
    /// A negative errno value, or the new capacity.
    long resize(const end_block& end, std::size_t bytes) noexcept;
    long available(const end_block& end) noexcept;
    long commit(std::size_t size) noexcept;
    long consume(std::size_t size) noexcept;

    void acquire() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept {
        // acq_rel: the last one sees everything that was done here before it deletes.
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            delete this;
    }

private:
    pipe_core(slot_array&& slots, std::size_t limit_bytes) noexcept : ring(std::move(slots), limit_bytes) {}
    ~pipe_core() = default;

    void shut_gates(bool on) noexcept {
        gates_shut_ = on;
        ring.hold_reads(on);
        ring.hold_writes(on);
    }
    void settle_waiters(pipe_turn& turn) noexcept;
    bool serve(queue& waiters, pipe_turn& turn) noexcept;
    void discard_unread(pipe_turn& turn) noexcept;

    bool gates_shut_ = false;     // somebody waits, or did when settle() was last here
    const loop* owner_ = nullptr; // of a local channel
    typename Sync::template atomic<std::uint32_t> references_{2}; // the two ends
};

/// The lock of a channel, held for a scope. Declared after the pipe_turn.
template <class Sync>
class pipe_lock {
public:
    explicit pipe_lock(pipe_core<Sync>& core) noexcept : core_(core) { core_.mutex.lock(); }
    ~pipe_lock() { core_.mutex.unlock(); }
    pipe_lock(const pipe_lock&) = delete;
    pipe_lock& operator=(const pipe_lock&) = delete;

private:
    pipe_core<Sync>& core_;
};

/// An operation on one end: tries, and if it must wait stands in the queue of its side until it is served.
template <class Sync>
class NOWAIT_API pipe_waiter : public channel_waiter {
public:
    using channel_type = pipe_core<Sync>;
    using end_block = pipe_end_block<Sync>;

    void cancel() noexcept;

protected:
    friend class pipe_core<Sync>;

    /// Under the lock, by whoever holds it: one attempt on behalf of the waiter.
    using attempt_function = pipe_attempt (*)(pipe_waiter&, pipe_turn&) noexcept;

    pipe_waiter(end_block* end, attempt_function attempt) noexcept : end_(end), attempt_(attempt) {}
    ~pipe_waiter() {
        if (waits_ || pinned_) [[unlikely]]
            abandon();
    }

    /// Whether the inlined attempt may be made at all.
    [[nodiscard]] bool may_try() const noexcept {
        return end_ != nullptr && end_->channel->belongs_to(home()) && home().budget > 0 && !stop_requested();
    }
    /// Everything but the inlined attempt, without the lock. As operation's start().
    [[nodiscard]] bool start_slow() noexcept;
    /// The same with the lock held; it is released. Behind those who wait, whatever there is: no barging.
    [[nodiscard]] bool start_locked() noexcept {
        const bool our_turn = end_->channel->queue_of(*end_).empty() || end_->closed || asks_nothing_;
        return our_turn ? attempt_locked() : wait_here();
    }
    /// Not waiting, for plain threads: the attempt, or EAGAIN.
    void try_now() noexcept;

    bool end_with(long result) noexcept {
        result_ = result;
        return true;
    }
    void count_inline(std::size_t bytes) noexcept {
        home().charge(bytes);
        home().counters_of(operation_kind::channel).inline_completions.add();
    }
    /// The same where the attempt may have failed: that takes its unit of the turn, and counts as nothing.
    void settle_inline(std::size_t bytes) noexcept {
        if (result_ < 0) [[unlikely]]
            home().charge(0);
        else
            count_inline(bytes);
    }
    void pin() noexcept {
        if (!pinned_) {
            pinned_ = true;
            end_->acquire();
        }
    }
    /// Under the lock, by whoever has served and unlinked it. On its own loop it is done with the channel. From another
    /// thread it is pinned: a cancel may be on its way to the lock, and must find the channel there.
    void leave(const loop* here) noexcept {
        if (&home() == here)
            waits_ = false;
        else
            pin();
    }
    /// On its own loop, when it runs.
    void unpin() noexcept {
        waits_ = false;
        if (pinned_) {
            pinned_ = false;
            end_->release();
        }
    }

    end_block* end_;
    attempt_function attempt_;
    long result_ = -ECANCELED; // bytes, or a negative errno value; written by whoever serves
    bool waits_ = false; // queued or deferred, and nothing on its own loop has ended that yet; of that loop
    // Holds a reference to its end: deferred, cancelled, or served by another thread. While it is queued it needs none: its
    // end is open, so the handle has one. Under the lock while it waits.
    bool pinned_ = false;
    bool deferred_ = false;     // stands in the ready queue because the turn's budget was spent
    bool stopped_ = false;      // cancelled meanwhile
    bool two_sided_ = false;    // a splice or tee: called, not served
    bool takes_bytes_ = false;  // a read: a write may copy into its buffer
    bool moves_bytes_ = false;  // the result counts bytes that were copied
    bool asks_nothing_ = false; // an empty buffer: answered out of turn

private:
    [[nodiscard]] bool attempt_locked() noexcept;
    [[nodiscard]] bool wait_here() noexcept;
    void defer() noexcept;
    void abandon() noexcept;
    static void run_served(ready_node& node) noexcept;
    static void run_deferred(ready_node& node) noexcept;
};

} // namespace detail
NOWAIT_END_NAMESPACE
