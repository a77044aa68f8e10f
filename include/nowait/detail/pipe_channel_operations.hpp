// The operations of an in-process pipe, and what they are made from. The common case of read and write is inlined into the
// awaiting code: one lock pair, one slot, one copy.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/pipe_channel_core.hpp>
#include <nowait/result.hpp>

#include <cerrno>
#include <cstddef>
#include <span>
#include <utility>

#include <sys/uio.h>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// A word that the compiler shall load by itself. Descriptions are stored word by word and copied at once into operations; a
/// vector load over words that have just been stored apart waits until they have reached the cache, 5 ns each time.
template <class Word>
[[nodiscard]] inline Word one_word(Word word) noexcept {
    asm("" : "+r"(word));
    return word;
}

/// The memory of a read or write, in two words: one part, or the vector of several.
class pipe_memory {
public:
    static pipe_memory one(const void* data, std::size_t size) noexcept { return {data, size}; }
    static pipe_memory many(std::span<const iovec> parts) noexcept {
        return {parts.data(), parts.size() | vector_mark};
    }
    pipe_memory(const pipe_memory& other) noexcept
        : data_(one_word(other.data_)), size_(one_word(other.size_)) {}
    pipe_memory& operator=(const pipe_memory&) = delete;

    [[nodiscard]] bool single() const noexcept { return (size_ & vector_mark) == 0; }
    /// One part, and not an empty one: fit for the inlined attempt.
    [[nodiscard]] bool plain() const noexcept {
        return size_ - 1 < vector_mark - 1 && data_ != nullptr; // 0 wraps
    }
    /// Of a single part:
    [[nodiscard]] std::byte* data() const noexcept {
        return const_cast<std::byte*>(static_cast<const std::byte*>(data_));
    }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// A bad argument. An empty buffer is left to the attempt, which also looks whether the end is open.
    [[nodiscard]] bool refused(long& result) const noexcept {
        constexpr std::size_t parts_max = 1024;
        if (single() ? data_ == nullptr && size_ != 0 : all().size() > parts_max) {
            result = single() ? -EFAULT : -EINVAL;
            return true;
        }
        return false;
    }
    [[nodiscard]] bool empty() const noexcept { return target().size() == 0; }

    [[nodiscard]] gather source() const noexcept {
        return single() ? gather(std::span<const std::byte>(data(), size_)) : gather(all());
    }
    [[nodiscard]] scatter target() const noexcept {
        return single() ? scatter(std::span(data(), size_)) : scatter(all());
    }

private:
    static constexpr std::size_t vector_mark = ~(~std::size_t{0} >> 1);

    pipe_memory(const void* data, std::size_t size) noexcept : data_(one_word(data)), size_(one_word(size)) {}
    [[nodiscard]] std::span<const iovec> all() const noexcept {
        return {static_cast<const iovec*>(data_), size_ & ~vector_mark};
    }

    const void* data_;
    std::size_t size_;
};

[[nodiscard]] inline result<std::size_t> bytes_or_error(long n) noexcept {
    if (n < 0) [[unlikely]]
        return fail_errno(static_cast<int>(-n));
    return static_cast<std::size_t>(n);
}

template <class Sync>
class pipe_read_operation;
template <class Sync>
class pipe_write_operation;

template <class Sync>
struct pipe_read_description {
    using operation = pipe_read_operation<Sync>;
    using value_type = result<std::size_t>;
    pipe_end_block<Sync>* end;
    pipe_memory memory;
};
template <class Sync>
struct pipe_write_description {
    using operation = pipe_write_operation<Sync>;
    using value_type = result<std::size_t>;
    pipe_end_block<Sync>* end;
    pipe_memory memory;
};

template <class Sync>
class NOWAIT_API pipe_read_operation final : public pipe_waiter<Sync> {
public:
    explicit pipe_read_operation(const pipe_read_description<Sync>& what) noexcept
        : pipe_waiter<Sync>(what.end, &attempt), memory_(what.memory) {
        this->takes_bytes_ = true;
        this->moves_bytes_ = true;
    }

    [[nodiscard]] bool start() noexcept {
        if (!this->may_try() || !memory_.plain()) [[unlikely]]
            return start_odd();
        pipe_core<Sync>& channel = *this->end_->channel;
        channel.mutex.lock();
        if (const std::size_t n = read_one()) [[likely]] {
            channel.mutex.unlock();
            this->count_inline(n);
            return this->end_with(static_cast<long>(n));
        }
        return this->start_locked();
    }
    /// For callers that do not wait.
    [[nodiscard]] result<std::size_t> try_once() noexcept {
        this->asks_nothing_ = memory_.empty();
        if (!memory_.refused(this->result_))
            this->try_now();
        return take_result();
    }
    [[nodiscard]] result<std::size_t> take_result() const noexcept { return bytes_or_error(this->result_); }

private:
    friend class pipe_core<Sync>;

    [[nodiscard]] bool start_odd() noexcept {
        this->asks_nothing_ = memory_.empty();
        return memory_.refused(this->result_) || this->start_slow();
    }
    [[nodiscard]] std::size_t read_one() noexcept {
        if (this->end_->closed) [[unlikely]]
            return 0;
        return this->end_->channel->ring.read_one({memory_.data(), memory_.size()});
    }
    static pipe_attempt attempt(pipe_waiter<Sync>& self, pipe_turn& turn) noexcept;

    pipe_memory memory_;
};

template <class Sync>
class NOWAIT_API pipe_write_operation final : public pipe_waiter<Sync> {
public:
    explicit pipe_write_operation(const pipe_write_description<Sync>& what) noexcept
        : pipe_waiter<Sync>(what.end, &attempt), memory_(what.memory) {
        this->moves_bytes_ = true;
    }

    [[nodiscard]] bool start() noexcept {
        if (!this->may_try() || !memory_.plain()) [[unlikely]]
            return start_odd();
        pipe_core<Sync>& channel = *this->end_->channel;
        channel.mutex.lock();
        if (write_one()) [[likely]] {
            channel.mutex.unlock();
            this->count_inline(memory_.size());
            return this->end_with(static_cast<long>(memory_.size()));
        }
        return this->start_locked();
    }
    [[nodiscard]] result<std::size_t> try_once() noexcept {
        this->asks_nothing_ = memory_.empty();
        if (!memory_.refused(this->result_))
            this->try_now();
        return take_result();
    }
    [[nodiscard]] result<std::size_t> take_result() const noexcept { return bytes_or_error(this->result_); }

private:
    [[nodiscard]] bool start_odd() noexcept {
        this->asks_nothing_ = memory_.empty();
        return memory_.refused(this->result_) || this->start_slow();
    }
    [[nodiscard]] bool write_one() noexcept {
        if (this->end_->closed) [[unlikely]]
            return false;
        pipe_core<Sync>& channel = *this->end_->channel;
        const std::span<const std::byte> data(memory_.data(), memory_.size());
        return channel.ring.write_one(data, this->end_->packets) ||
               (channel.anybody_waits() && !this->end_->packets &&
                channel.hand_over_whole(data, this->home()));
    }
    static pipe_attempt attempt(pipe_waiter<Sync>& self, pipe_turn& turn) noexcept;

    pipe_memory memory_;
};

/// Waits until an attempt is worth making: readable or writable, by the kind of the end.
template <class Sync>
class pipe_ready_operation;
template <class Sync>
struct pipe_ready_description {
    using operation = pipe_ready_operation<Sync>;
    using value_type = result<void>;
    pipe_end_block<Sync>* end;
};

template <class Sync>
class NOWAIT_API pipe_ready_operation final : public pipe_waiter<Sync> {
public:
    explicit pipe_ready_operation(const pipe_ready_description<Sync>& what) noexcept
        : pipe_waiter<Sync>(what.end, &attempt) {}

    [[nodiscard]] bool start() noexcept { return this->start_slow(); }
    [[nodiscard]] result<void> take_result() const noexcept {
        if (this->result_ < 0)
            return fail_errno(static_cast<int>(-this->result_));
        return {};
    }

private:
    static pipe_attempt attempt(pipe_waiter<Sync>& self, pipe_turn& turn) noexcept;
};

} // namespace detail

template <class Sync>
class basic_pipe_reservation;
template <class Sync>
class basic_pipe_peek;

namespace detail {

/// Sets room aside, or holds what is there: the two halves of working in place.
template <class Sync, class Held>
class pipe_hold_operation;

template <class Sync, class Held>
struct pipe_hold_description {
    using operation = pipe_hold_operation<Sync, Held>;
    using value_type = result<Held>;
    pipe_end_block<Sync>* end;
    std::size_t size; ///< of a reservation
};

template <class Sync, class Held>
class NOWAIT_API pipe_hold_operation final : public pipe_waiter<Sync> {
public:
    explicit pipe_hold_operation(const pipe_hold_description<Sync, Held>& what) noexcept
        : pipe_waiter<Sync>(what.end, &attempt), size_(what.size) {
        this->asks_nothing_ = std::is_same_v<Held, basic_pipe_reservation<Sync>> && size_ == 0;
    }
    /// What was granted and not taken is let go.
    ~pipe_hold_operation() {
        if (granted_ != nullptr) [[unlikely]]
            static_cast<void>(Held(*granted_, parts_));
    }

    [[nodiscard]] bool start() noexcept { return this->start_slow(); }
    [[nodiscard]] result<Held> try_once() noexcept {
        this->try_now();
        return take_result();
    }
    [[nodiscard]] result<Held> take_result() noexcept {
        if (this->result_ < 0)
            return fail_errno(static_cast<int>(-this->result_));
        if (granted_ == nullptr)
            return Held(); // the end of the stream
        return Held(*std::exchange(granted_, nullptr), parts_);
    }

private:
    static pipe_attempt attempt(pipe_waiter<Sync>& self, pipe_turn& turn) noexcept;

    std::size_t size_;
    std::size_t parts_ = 0;
    pipe_core<Sync>* granted_ = nullptr; // with a reference of its own
};

// --- between two channels --------------------------------------------------------------------------------------------------

/// The place of a splice or tee in the channel that it does not wait in at present: so that closing an end there finds it.
template <class Sync>
class pipe_move_operation;
template <class Sync>
struct pipe_guest : list_node {
    pipe_move_operation<Sync>* of = nullptr;
    const pipe_end_block<Sync>* end = nullptr;
};

template <class Sync>
struct pipe_move_description {
    using operation = pipe_move_operation<Sync>;
    using value_type = result<std::size_t>;
    pipe_end_block<Sync>* in;
    pipe_end_block<Sync>* out;
    std::size_t size;
    bool copies; ///< tee
};

/// Splice and tee. Waits on one side at a time; whoever makes that side ready calls it, and it tries on its own loop with
/// both locks, taken in the order of their addresses.
template <class Sync>
class NOWAIT_API pipe_move_operation final : public pipe_waiter<Sync> {
public:
    explicit pipe_move_operation(const pipe_move_description<Sync>& what) noexcept
        : pipe_waiter<Sync>(what.in, &attempt), in_(what.in), out_(what.out), size_(what.size),
          copies_(what.copies) {
        this->two_sided_ = true;
        guest_.of = this;
    }
    ~pipe_move_operation() {
        if (held_) [[unlikely]]
            let_go();
    }

    [[nodiscard]] bool start() noexcept;
    [[nodiscard]] result<std::size_t> try_once() noexcept;
    void cancel() noexcept;
    [[nodiscard]] result<std::size_t> take_result() const noexcept { return bytes_or_error(this->result_); }

private:
    friend class pipe_core<Sync>;
    enum class outcome : std::uint8_t { done, wait_in, wait_out };

    static pipe_attempt attempt(pipe_waiter<Sync>& self, pipe_turn& turn) noexcept;
    static void run_called(ready_node& node) noexcept;
    void call(pipe_turn& turn) noexcept;
    void lock_both() noexcept;
    void unlock_both() noexcept;
    [[nodiscard]] int refusal() const noexcept;
    [[nodiscard]] outcome try_locked(bool first_in, bool first_out) noexcept;
    void wait_at(outcome side, bool at_head) noexcept;
    void leave_queues() noexcept;
    void settle_both() noexcept;
    void hold() noexcept;
    void let_go() noexcept;

    pipe_end_block<Sync>* in_;
    pipe_end_block<Sync>* out_;
    std::size_t size_;
    bool copies_;
    bool held_ = false; // references to both ends
    // Whoever turns it to true posts the operation; it turns it back when it runs, under both locks.
    typename Sync::template atomic<bool> called_{false};
    pipe_guest<Sync> guest_;
};

} // namespace detail
NOWAIT_END_NAMESPACE
