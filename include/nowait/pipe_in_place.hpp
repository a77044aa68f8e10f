// Working in the pages of an in-process pipe: room that is reserved and committed, data that is peeked at and consumed.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/pipe_channel_core.hpp>
#include <nowait/detail/pipe_channel_operations.hpp>
#include <nowait/result.hpp>

#include <cerrno>
#include <cstddef>
#include <span>
#include <utility>

NOWAIT_BEGIN_NAMESPACE

/// Room in a channel, to be written in place. Nobody else writes until it is committed or dropped; it may be kept across
/// awaits. It counts as a writer: the stream does not end before it. Movable; dropping it publishes nothing.
template <class Sync>
class NOWAIT_API basic_pipe_reservation {
public:
    basic_pipe_reservation() = default;
    basic_pipe_reservation(basic_pipe_reservation&& other) noexcept
        : core_(std::exchange(other.core_, nullptr)), parts_(other.parts_) {}
    basic_pipe_reservation& operator=(basic_pipe_reservation&& other) noexcept {
        std::swap(core_, other.core_);
        std::swap(parts_, other.parts_);
        return *this;
    }
    ~basic_pipe_reservation() { drop(); }

    /// The room, in the order in which it will be read. Valid until commit or drop.
    [[nodiscard]] std::span<const std::span<std::byte>> parts() const noexcept {
        return core_ == nullptr ? std::span<const std::span<std::byte>>()
                                : std::span<const std::span<std::byte>>(core_->reserved_parts).first(parts_);
    }
    /// Bytes in all parts.
    [[nodiscard]] std::size_t size() const noexcept {
        std::size_t bytes = 0;
        for (std::span<std::byte> part : parts())
            bytes += part.size();
        return bytes;
    }
    explicit operator bool() const noexcept { return core_ != nullptr; }

    /// Publishes the first `bytes` of the parts, and ends the reservation. Never waits.
    /// Returns: `bytes`. Errors: broken_pipe: the readers have gone (it has ended); invalid_argument: more than was reserved
    /// (it stays), or nothing is.
    result<std::size_t> commit(std::size_t bytes) noexcept {
        const long n = core_ == nullptr ? -EINVAL : core_->commit(bytes);
        if (n != -EINVAL)
            std::exchange(core_, nullptr)->release();
        return detail::bytes_or_error(n);
    }
    void drop() noexcept { (void)commit(0); }

private:
    template <class, class>
    friend class detail::pipe_hold_operation;
    basic_pipe_reservation(detail::pipe_core<Sync>& core, std::size_t parts) noexcept
        : core_(&core), parts_(parts) {}

    detail::pipe_core<Sync>* core_ = nullptr;
    std::size_t parts_ = 0;
};

/// What a read would give, looked at in place. Nobody else reads until it is consumed or dropped; it may be kept across
/// awaits. Without parts it is the end of the stream. Movable; dropping it leaves everything where it is.
template <class Sync>
class NOWAIT_API basic_pipe_peek {
public:
    basic_pipe_peek() = default;
    basic_pipe_peek(basic_pipe_peek&& other) noexcept
        : core_(std::exchange(other.core_, nullptr)), parts_(other.parts_) {}
    basic_pipe_peek& operator=(basic_pipe_peek&& other) noexcept {
        std::swap(core_, other.core_);
        std::swap(parts_, other.parts_);
        return *this;
    }
    ~basic_pipe_peek() { drop(); }

    [[nodiscard]] std::span<const std::span<const std::byte>> parts() const noexcept {
        return core_ == nullptr
                   ? std::span<const std::span<const std::byte>>()
                   : std::span<const std::span<const std::byte>>(core_->peeked_parts).first(parts_);
    }
    [[nodiscard]] std::size_t size() const noexcept {
        std::size_t bytes = 0;
        for (std::span<const std::byte> part : parts())
            bytes += part.size();
        return bytes;
    }
    /// True at the end of the stream (and after consume).
    [[nodiscard]] bool empty() const noexcept { return core_ == nullptr; }

    /// Takes the first `bytes` away (a packet: the whole of it), and ends the peek; 0 leaves everything. Never waits.
    /// Returns: `bytes`. Errors: invalid_argument: more than was seen (the peek stays), or there is none.
    result<std::size_t> consume(std::size_t bytes) noexcept {
        const long n = core_ == nullptr ? -EINVAL : core_->consume(bytes);
        if (n != -EINVAL)
            std::exchange(core_, nullptr)->release();
        return detail::bytes_or_error(n);
    }
    void drop() noexcept { (void)consume(0); }

private:
    template <class, class>
    friend class detail::pipe_hold_operation;
    basic_pipe_peek(detail::pipe_core<Sync>& core, std::size_t parts) noexcept
        : core_(&core), parts_(parts) {}

    detail::pipe_core<Sync>* core_ = nullptr;
    std::size_t parts_ = 0;
};

NOWAIT_END_NAMESPACE
