// broadcast<T>: every reader gets every message, and one that is too slow is told how many it has lost.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/message_channel_broadcast.hpp>
#include <nowait/detail/message_channel_handle.hpp>
#include <nowait/result.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

NOWAIT_BEGIN_NAMESPACE

/// Reads a broadcast, from the message after its making on. Movable while none of its operations waits.
template <class T, class Sync>
class basic_broadcast_reader {
    using core = detail::broadcast_core<T, Sync>;

public:
    basic_broadcast_reader(basic_broadcast_reader&& other) noexcept
        : core_(std::exchange(other.core_, nullptr)), position_(other.position_) {}
    basic_broadcast_reader& operator=(basic_broadcast_reader&& other) noexcept {
        std::swap(core_, other.core_);
        std::swap(position_, other.position_);
        return *this;
    }
    ~basic_broadcast_reader() {
        if (core_ != nullptr)
            core_->release();
    }

    /// Waits for the next message. Returns: a copy, and how many messages before it were overwritten unread.
    /// Errors: broken_pipe: closed, and everything has been read; operation_canceled: nothing was skipped;
    /// bad_file_descriptor: a moved-from reader. Throws: what copying a T throws; the message then counts as read.
    /// Borrows: the reader. Resumes: on the awaiter's runtime.
    [[nodiscard]] detail::broadcast_receive_description<T, Sync> receive() noexcept {
        return {core_, &position_};
    }

    /// The same without waiting. Errors: resource_unavailable_try_again: nothing new; and those of receive().
    [[nodiscard]] result<broadcast_item<T>> try_receive() {
        if (core_ == nullptr)
            return fail(std::errc::bad_file_descriptor);
        struct hold {
            core* of;
            typename core::node* held = nullptr;
            ~hold() {
                if (held != nullptr)
                    of->let_go(*held);
            }
        } taken{core_};
        std::uint64_t lost = 0;
        if (const int code = core_->receive(position_, false, taken.held, lost); code != 0)
            return fail_errno(code);
        return broadcast_item<T>{std::as_const(taken.held->value), lost};
    }

private:
    template <class, class>
    friend class basic_broadcast;
    explicit basic_broadcast_reader(core& of) noexcept : core_(&of), position_(of.next()) { of.acquire(); }

    core* core_;
    std::uint64_t position_; // the number of the next message to read
};

/// Sends copies of each message to all readers. Sending never waits: the last `capacity` messages are kept, older ones are
/// overwritten. A handle is a reference; when the last one goes, the broadcast is closed.
///
/// T is moved in under the channel's lock, without throwing; it is copied out and destroyed outside it.
template <class T, class Sync>
class basic_broadcast {
    static_assert(std::is_nothrow_move_constructible_v<T> && std::is_copy_constructible_v<T> &&
                  std::is_nothrow_destructible_v<T>);
    using core = detail::broadcast_core<T, Sync>;

public:
    using reader = basic_broadcast_reader<T, Sync>;

    /// Makes a broadcast that keeps the last `capacity` messages. Errors: invalid_argument: 0, or more than 2^26;
    /// not_enough_memory. Borrows: `memory`, if given, outlives it.
    [[nodiscard]] static result<basic_broadcast> create(std::size_t capacity,
                                                        detail::block_source* memory = nullptr) noexcept {
        if (capacity == 0 || capacity > detail::queue_limits::most_messages)
            return fail(std::errc::invalid_argument);
        core* const made = core::create(capacity, memory != nullptr ? *memory : detail::heap_blocks());
        if (made == nullptr)
            return fail(std::errc::not_enough_memory);
        return basic_broadcast(made);
    }
    basic_broadcast(const basic_broadcast& other) noexcept : core_(other.core_) {
        if (core_ != nullptr)
            core_->add_handle();
    }
    basic_broadcast(basic_broadcast&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}
    basic_broadcast& operator=(basic_broadcast other) noexcept {
        std::swap(core_, other.core_);
        return *this;
    }
    ~basic_broadcast() {
        if (core_ != nullptr)
            core_->drop_handle();
    }

    /// Gives `value` to all readers, present and waiting. Any thread if shared. Errors, with `value` left alone:
    /// broken_pipe: closed; not_enough_memory; bad_file_descriptor: a moved-from handle.
    result<void> send(T& value) const noexcept {
        if (core_ == nullptr)
            return fail(std::errc::bad_file_descriptor);
        if (const int code = core_->send(value, detail::loop::current()); code != 0)
            return fail_errno(code);
        return {};
    }
    result<void> send(T&& value) const noexcept { return send(value); }

    /// A new reader, of the messages from now on. Errors: bad_file_descriptor: a moved-from handle.
    [[nodiscard]] result<reader> subscribe() const noexcept {
        if (core_ == nullptr)
            return fail(std::errc::bad_file_descriptor);
        return reader(*core_);
    }

    /// No more sends. Readers get what they have not read, then broken_pipe.
    void close() const noexcept {
        if (core_ != nullptr)
            core_->close();
    }
    [[nodiscard]] bool closed() const noexcept { return core_ == nullptr || core_->closed(); }
    [[nodiscard]] std::size_t capacity() const noexcept { return core_ == nullptr ? 0 : core_->capacity(); }

private:
    explicit basic_broadcast(core* made) noexcept : core_(made) {}

    core* core_;
};

/// Shared: any thread, any runtime.
template <class T>
using broadcast = basic_broadcast<T, detail::real_sync>;
template <class T>
using broadcast_reader = basic_broadcast_reader<T, detail::real_sync>;

/// For one runtime: the same without a lock.
template <class T>
using local_broadcast = basic_broadcast<T, detail::local_sync>;
template <class T>
using local_broadcast_reader = basic_broadcast_reader<T, detail::local_sync>;

NOWAIT_END_NAMESPACE
