// The control block of a descriptor: number, capabilities, predictor, and who waits in each direction.
//
// A handle (pipe_reader, pipe_writer) points to a block; operations pin the block, so handles may move while operations
// wait. A block belongs to one loop from its first operation on; there is one block per loop and descriptor number.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/driver.hpp>
#include <nowait/detail/loop.hpp>
#include <nowait/detail/operation.hpp>
#include <nowait/detail/sync.hpp>
#include <nowait/detail/system_call.hpp>
#include <nowait/result.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

#include <sys/uio.h>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

class descriptor;
struct direction;

/// An operation that waits in a direction's queue. `attempt` makes one nowait attempt: what it moved (0 <=), -EAGAIN, or the
/// error that ends the operation.
class NOWAIT_API descriptor_operation : public operation_base, public list_node {
public:
    explicit descriptor_operation(descriptor* block, operation_kind kind) noexcept
        : block_(block), kind_(kind) {}
    ~descriptor_operation() {
        if (list_node::linked()) [[unlikely]]
            abandon();
    }

    void cancel() noexcept;

protected:
    friend struct direction;
    friend class descriptor;

    /// Ends a waiting operation with operation_canceled, nothing tried.
    void leave() noexcept;

    /// Everything that is not "the first attempt succeeds". True: ended inline.
    [[nodiscard]] bool start_slow(direction& where) noexcept;
    /// The first attempt was made in place and failed with `result_`.
    [[nodiscard]] bool settle_first_attempt(direction& where) noexcept;
    /// The runtime's destructor takes the frame away while the operation waits.
    void abandon() noexcept;

    descriptor* block_;
    direction* at_ = nullptr; // where it waits; an attempt of a two-ended operation may change it
    long (*attempt_)(descriptor_operation&) noexcept = nullptr;
    // For operations that a ring can perform where nothing can be polled; null otherwise.
    bool (*describe_)(descriptor_operation&, transfer&) noexcept = nullptr;
    long result_ = -ECANCELED; // an outcome starts as an error, never as success
    std::size_t wanted_ = 0;   // bytes asked for: fewer moved means that the other end is drained (or full)
    operation_kind kind_;
    bool tried_ = false;      // an attempt has been made: until then nothing says that there is nothing
    bool cancelling_ = false; // asked to end while a transfer is in the kernel's hands
};

/// One direction of a descriptor.
///
/// Invariants:
///  - waiters are served from the front, one attempt a turn; a fresh operation finds `fast` false and queues behind them.
///  - if there are waiters, then the direction stands in the ready queue (`scheduled`), or its poll is armed, or a transfer
///    is in flight for the first one: something will come.
///  - `quiet`: the last attempt found nothing (or less than it asked for) and the armed poll has reported nothing since; so an
///    event will come when there is something. Not quiet and armed: something may be there without a further event.
struct NOWAIT_API direction final : ready_node, list_node { // the link: the loop's list of unproved waits
    explicit direction(descriptor& of, short poll_events) noexcept;

    /// The first attempt may be made in place: open, bound, nobody waits, the real kernel, an O_NONBLOCK description, and
    /// the predictor expects success.
    bool fast = false;
    bool scheduled = false;
    bool quiet = false;
    bool hung_up =
        false; // an event said that the other side has gone: then there is no further event, and never quiet
    bool proving = false;         // scheduled to find out whether a predicted wait was one
    std::uint8_t misses = 0;      // in a row, saturating: two of them switch attempts off
    std::uint8_t skipped = 0;     // since attempts are off: a probe every 32nd
    std::uint8_t idle_events = 0; // events in a row that nobody waited for: a few of them drop the poll
    std::uint8_t unproved_passes = 0;
    std::uint8_t false_alarms = 0; // events in a row behind which the attempt found nothing, saturating
    bool alarmed = false;          // an event has brought about the attempt that comes
    int poll_error = 0;
    bool unpollable = false; // a poll was refused: there is nothing to wait for

    list<descriptor_operation> waiters;

    struct embedded_poll : poll_source {
        direction* of = nullptr;
    } poll;
    struct embedded_transfer : transfer {
        direction* of = nullptr;
    } work;

    descriptor& block;

    static constexpr std::uint8_t misses_to_skip = 2;
    static constexpr std::uint8_t probe_every = 32;
    static constexpr std::uint8_t idle_events_max = 3;
    static constexpr std::uint8_t false_alarms_max = 3;

    /// After a first attempt that succeeded: one store, because the fast path pays for it. What an attempt after a wait finds
    /// says nothing about whether the next first attempt will find something.
    void hit() noexcept { misses = 0; }
    void miss() noexcept;
    [[nodiscard]] bool predicts_wait() noexcept;
    void update_fast() noexcept;

    void enqueue(descriptor_operation& waiter) noexcept;
    void schedule() noexcept;
    void serve() noexcept;
    void ensure_armed() noexcept;
    [[nodiscard]] bool is_false_alarm() const noexcept;
    void wait_for_event() noexcept;
    /// Waiting is a transfer: nothing can poll it, or it has a receiver of its own.
    [[nodiscard]] bool transfers(const descriptor_operation& waiter) const noexcept;
    [[nodiscard]] performer* apart() const noexcept;
    void start_transfer(descriptor_operation& first) noexcept;
    void cancel_transfer() noexcept;
    void on_poll(long result, bool more) noexcept;
    void on_transfer(long result) noexcept;
    void prove() noexcept;
    void cancel_waiters() noexcept;
    /// The driver that knew of this has surrendered: another one takes over.
    void move_to(driver& next) noexcept;
};

/// How attempts are made on a descriptor, from the best rung down.
enum class rung : std::uint8_t {
    plain,       ///< the description is O_NONBLOCK and ours (made by us, or reopened): read, pwritev2
    nowait_flag, ///< borrowed: preadv2 and pwritev2 with RWF_NOWAIT
    socket,      ///< borrowed socket: MSG_DONTWAIT
    ring         ///< no attempt: the driver performs the operation
};
[[nodiscard]] NOWAIT_API std::string_view to_string(rung r) noexcept;

/// The tie of an operation to a block in whose queues it may not be standing at the moment: it keeps the block alive, and the
/// block's close() ends the operation.
class NOWAIT_API block_tie : public list_node {
public:
    explicit block_tie(descriptor_operation& of) noexcept : operation_(of) {}
    ~block_tie();
    void tie(descriptor& to) noexcept;
    void cancel() noexcept { operation_.cancel(); }

private:
    descriptor_operation& operation_;
    descriptor* block_ = nullptr;
};

/// What the two ends of a pipe made here know of each other, wherever they are.
///
/// `reader_on` is the loop that the open read end belongs to, else null. It is written on that loop's thread only. So a
/// writer that finds its own loop there knows that the pipe has a reader, and that it keeps it for as long as nothing
/// else runs on this thread. Any other value may be stale, and means nothing: hence relaxed.
struct pipe_bond {
    real_sync::atomic<loop*> reader_on{nullptr};
    real_sync::atomic<unsigned> ends{2};

    void leave() noexcept {
        if (ends.fetch_sub(1, std::memory_order_acq_rel) ==
            1) // the last one deletes after the other's last access
            delete this;
    }
};

class NOWAIT_API descriptor {
public:
    descriptor(int fd, bool owned, system& calls) noexcept;
    ~descriptor();
    descriptor(const descriptor&) = delete;
    descriptor& operator=(const descriptor&) = delete;

    int io_fd;             ///< the number attempts are made on: `fd`, or its reopened twin
    loop* owner = nullptr; ///< set by the first operation
    direction in;
    direction out;
    list<block_tie> ties;

    int fd;
    bool owned;
    bool packets = false;         ///< a short read says nothing about what is left
    std::size_t message_size = 0; ///< of a POSIX queue: bytes of the longest message
    bool closed = false;
    pipe_bond* bond = nullptr;                ///< of a pipe made here; shared by its two ends
    bool reads = false;                       ///< of a bonded pipe: this is the read end
    rung how[2] = {rung::plain, rung::plain}; ///< of in, of out
    file_kind kind = file_kind::pipe;
    std::unique_ptr<performer> receiver; ///< who waits for what comes in, instead of a poll
    system* calls;

    [[nodiscard]] rung& rung_of(const direction& d) noexcept { return how[&d == &in ? 0 : 1]; }

    /// Binds to `home` at first use. 0, or EBADF (closed), or EPERM (it belongs to another runtime).
    [[nodiscard]] int bind(loop& home) noexcept;
    /// The block that stands for the same number on the same loop, if that is another one.
    [[nodiscard]] descriptor* resolved() noexcept { return forward_ != nullptr ? forward_ : this; }

    /// Of a write end: a write cannot meet EPIPE now, so it needs no protection against SIGPIPE (which costs 60 ns).
    [[nodiscard]] bool reader_is_ours() const noexcept {
        return bond != nullptr && owner != nullptr &&
               bond->reader_on.load(std::memory_order_relaxed) == owner;
    }

    /// One attempt on the present rung, going down rungs as they turn out not to be there.
    [[nodiscard]] long attempt_read(const iovec* parts, int count) noexcept;
    [[nodiscard]] long attempt_write(const iovec* parts, int count) noexcept;

    /// The poll events that stand now.
    [[nodiscard]] int readiness(int events) noexcept;
    /// What a read of `wanted` bytes that gave 0 means: 0: the end of the stream; -EAGAIN: a FIFO that nobody has opened for
    /// writing yet; -EINTR: something has come meanwhile.
    [[nodiscard]] long meaning_of_zero(std::size_t wanted) noexcept;

    /// Ends waiters with operation_canceled, refuses new operations, closes the number when the driver has let go.
    [[nodiscard]] int close() noexcept;

    void add_handle() noexcept { ++handles_; }
    /// The last one closes. Safe on any thread: away from the loop's own, it posts.
    void drop_handle() noexcept;
    void pin() noexcept { ++pins_; }
    void unpin() noexcept;

    /// The loop is going away: whoever still holds the block may use it elsewhere, or close it.
    void detach() noexcept;
    void released() noexcept; // the driver has let go of something

    /// In a child after fork: whoever held the lock stayed behind.
    static void forget_lock() noexcept;

private:
    [[nodiscard]] bool descend(direction& d) noexcept;
    void finish_close() noexcept;
    void maybe_delete() noexcept;

    void count_remote_drops() noexcept;

    struct drop_node : ready_node {
        descriptor* of = nullptr;
    } drop_node_;
    // Handles may die on any thread. Of a block that a loop uses, the loop's thread alone counts them and the pins: the others
    // leave a note and post, under a lock that is shared by all blocks (drop_handle). Of a block without a loop, the lock
    // guards the count. `remote_drops_` > 0: the node is on its way, or the loop is going and detach() counts.
    loop* counted_by_ = nullptr;                 // under the lock
    unsigned remote_drops_ = 0;                  // under the lock
    real_sync::atomic<unsigned long> thread_{0}; // counted_by_'s. Relaxed: each thread only looks for itself
    descriptor* forward_ = nullptr;
    unsigned handles_ = 0;
    unsigned pins_ = 0;
    bool closing_ = false;
};

/// A counted pointer from a handle to its block.
class descriptor_handle {
public:
    descriptor_handle() = default;
    explicit descriptor_handle(descriptor* block) noexcept : block_(block) {
        if (block_ != nullptr)
            block_->add_handle();
    }
    descriptor_handle(descriptor_handle&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
    descriptor_handle& operator=(descriptor_handle&& other) noexcept {
        if (this != &other) {
            reset();
            block_ = std::exchange(other.block_, nullptr);
        }
        return *this;
    }
    ~descriptor_handle() { reset(); }

    [[nodiscard]] descriptor* get() const noexcept { return block_; }
    void reset() noexcept {
        if (block_ != nullptr)
            std::exchange(block_, nullptr)->drop_handle();
    }

private:
    descriptor* block_ = nullptr;
};

/// What a read or write is made from: one part, or several if `parts` is set. An error that was found when the description
/// was made is reported when it is awaited.
struct transfer_parts {
    descriptor* block;
    iovec single;
    const iovec* parts;
    int count; ///< negative: minus the errno value of a bad argument
};

class read_operation;
class write_operation;

struct read_description : transfer_parts {
    using operation = read_operation;
    using value_type = result<std::size_t>;

    /// The nowait attempt, made in place by whoever awaits: nothing but these words has been touched when it succeeds.
    /// True: done, `outcome` bytes. False: `outcome` is the attempt's negative errno value, or 0 if none was made.
    [[nodiscard]] bool try_now(loop& home, const inplace_stop_source& stop, long& outcome) const noexcept {
        if (block == nullptr || !block->in.fast || parts != nullptr || block->owner != &home ||
            home.budget <= 0 || stop.stop_requested()) [[unlikely]]
            return false;
        outcome = direct_read(block->io_fd, single.iov_base, single.iov_len);
        if (outcome == 0) [[unlikely]]
            outcome = block->meaning_of_zero(single.iov_len);
        if (outcome < 0) [[unlikely]]
            return false;
        block->in.hit();
        home.charge(static_cast<std::size_t>(outcome));
        home.counters_of(operation_kind::read).inline_completions.add();
        return true;
    }
    static value_type value_of(long outcome) noexcept { return static_cast<std::size_t>(outcome); }
};

struct write_description : transfer_parts {
    using operation = write_operation;
    using value_type = result<std::size_t>;

    [[nodiscard]] bool try_now(loop& home, const inplace_stop_source& stop, long& outcome) const noexcept {
        if (block == nullptr || !block->out.fast || parts != nullptr || block->owner != &home ||
            home.budget <= 0 || stop.stop_requested()) [[unlikely]]
            return false;
        outcome = block->reader_is_ours() ? direct_write(block->io_fd, single.iov_base, single.iov_len)
                                          : direct_pwritev2(block->io_fd, &single, 1, rwf_nosignal);
        if (outcome < 0) [[unlikely]]
            return false;
        block->out.hit();
        home.charge(static_cast<std::size_t>(outcome));
        home.counters_of(operation_kind::write).inline_completions.add();
        return true;
    }
    static value_type value_of(long outcome) noexcept { return static_cast<std::size_t>(outcome); }
};

/// What reads and writes have in common. `Description` is one of the two above.
template <class Description>
class transfer_operation : public descriptor_operation {
public:
    [[nodiscard]] bool start() noexcept {
        long outcome = 0;
        if (what_.try_now(home(), stop_source(), outcome)) {
            result_ = outcome;
            return true;
        }
        return start_after(outcome);
    }
    /// start(), when try_now() was called before, and said no.
    [[nodiscard]] bool start_after(long outcome) noexcept {
        result_ = outcome;
        return outcome < 0 ? first_attempt_failed() : start_other();
    }
    [[nodiscard]] result<std::size_t> take_result() const noexcept {
        if (result_ < 0) [[unlikely]]
            return fail_errno(static_cast<int>(-result_));
        return static_cast<std::size_t>(result_);
    }

protected:
    transfer_operation(const Description& what, operation_kind kind) noexcept
        : descriptor_operation(what.block, kind), what_(what) {}
    ~transfer_operation() = default;

    Description what_;

private:
    static constexpr bool reads = std::is_same_v<Description, read_description>;
    [[nodiscard]] direction& where() noexcept { return reads ? block_->in : block_->out; }

    [[nodiscard]] NOWAIT_API bool first_attempt_failed() noexcept;
    [[nodiscard]] NOWAIT_API bool start_other() noexcept;
    static long attempt(descriptor_operation& self) noexcept;
    static bool describe(descriptor_operation& self, transfer& work) noexcept;
};

class read_operation final : public transfer_operation<read_description> {
public:
    explicit read_operation(const read_description& what) noexcept
        : transfer_operation(what, operation_kind::read) {}
};
class write_operation final : public transfer_operation<write_description> {
public:
    explicit write_operation(const write_description& what) noexcept
        : transfer_operation(what, operation_kind::write) {}
};

/// Moves (splice) or copies (tee) from one pipe to another inside the kernel.
struct pipe_to_pipe_description {
    using operation = class pipe_to_pipe_operation;
    using value_type = result<std::size_t>;
    descriptor* from;
    descriptor* to;
    std::size_t size;
    bool copies;  ///< tee
    bool allowed; ///< both ends are ours, or the caller allows it
};

class NOWAIT_API pipe_to_pipe_operation final : public descriptor_operation {
public:
    explicit pipe_to_pipe_operation(const pipe_to_pipe_description& what) noexcept
        : descriptor_operation(what.from, what.copies ? operation_kind::tee : operation_kind::splice),
          to_(what.to), size_(what.size), copies_(what.copies), allowed_(what.allowed) {}

    [[nodiscard]] bool start() noexcept;
    [[nodiscard]] result<std::size_t> take_result() const noexcept {
        if (result_ < 0)
            return fail_errno(static_cast<int>(-result_));
        return static_cast<std::size_t>(result_);
    }

private:
    static long attempt(descriptor_operation& self) noexcept;
    descriptor* to_;
    std::size_t size_;
    bool copies_;
    bool allowed_;
    // While it waits at one end, the other end may be closed and its handle destroyed.
    block_tie from_tie_{*this};
    block_tie to_tie_{*this};
};

/// Waits until an attempt is worth making. Ready at once where nothing can be polled.
struct ready_description {
    using operation = class ready_operation;
    using value_type = result<void>;
    descriptor* block;
    bool for_writing;
};

class NOWAIT_API ready_operation final : public descriptor_operation {
public:
    explicit ready_operation(const ready_description& what) noexcept
        : descriptor_operation(what.block, operation_kind::ready), for_writing_(what.for_writing) {}

    [[nodiscard]] bool start() noexcept;
    [[nodiscard]] result<void> take_result() const noexcept {
        if (result_ < 0)
            return fail_errno(static_cast<int>(-result_));
        return {};
    }

private:
    static long attempt(descriptor_operation& self) noexcept;

    bool for_writing_;
};

} // namespace detail
NOWAIT_END_NAMESPACE
