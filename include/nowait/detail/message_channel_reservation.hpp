// A place in a message channel, taken before there is a message.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/message_channel_operations.hpp>
#include <nowait/result.hpp>

#include <cstdint>
#include <utility>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

template <class Core>
class message_reserve_operation;

/// A place that belongs to its holder: a message put into it does not wait, and needs no memory. It counts against the limits
/// as one message (where messages are measured: as one of the largest size) until it is used or given back; its end gives it
/// back. While it is out a closed channel is not at its end: receivers wait for what it will bring. Movable; keeps the channel.
template <class Core>
class message_reservation {
    using T = typename Core::value_type;

public:
    message_reservation(message_reservation&& other) noexcept
        : core_(std::exchange(other.core_, nullptr)), priority_(other.priority_), bytes_(other.bytes_) {}
    message_reservation& operator=(message_reservation&& other) noexcept {
        message_reservation old(std::move(*this));
        core_ = std::exchange(other.core_, nullptr);
        priority_ = other.priority_;
        bytes_ = other.bytes_;
        return *this;
    }
    ~message_reservation() { give_back(); }

    /// False once it was used, given back or moved from.
    [[nodiscard]] bool valid() const noexcept { return core_ != nullptr; }

    /// Moves the message in, also after a close(). Never waits. Errors, with `value` left alone: message_size: it is larger
    /// than the channel's message_bytes, and the place is still held; broken_pipe: the channel was aborted or its last handle
    /// has gone; bad_file_descriptor: no place is held. A channel that measures nothing and is not aborted gives none of them.
    result<void> send(T& value) noexcept {
        if (core_ == nullptr)
            return fail(std::errc::bad_file_descriptor);
        std::uint64_t bytes = 0;
        if (!core_->measure(value, bytes))
            return fail(std::errc::message_size);
        if (const int code = settle(&value, bytes); code != 0)
            return fail_errno(code);
        return {};
    }
    result<void> send(T&& value) noexcept { return send(value); }

    /// The place is free again, for whoever waits for one.
    void give_back() noexcept {
        if (core_ != nullptr)
            static_cast<void>(settle(nullptr, 0));
    }

private:
    template <class>
    friend class message_reserve_operation;
    template <class>
    friend class message_channel_handle;

    /// Takes over a place that was reserved in `core`.
    message_reservation(Core& core, unsigned priority) noexcept
        : core_(&core), priority_(priority), bytes_(core.reserved_size()) {
        core.acquire();
    }
    int settle(T* value, std::uint64_t bytes) noexcept {
        Core& core = *std::exchange(core_, nullptr);
        const int code = core.settle_reservation(value, priority_, bytes_, bytes, loop::current());
        core.release();
        return code;
    }

    Core* core_;
    unsigned priority_;
    std::uint64_t bytes_;
};

template <class Core>
struct message_reserve_description {
    using operation = message_reserve_operation<Core>;
    using value_type = result<message_reservation<Core>>;

    Core* core;
    unsigned priority;
    unsigned urgency = 0;

    /// The same with a place before all waiting senders of less urgency, if it has to wait. The default is 0.
    [[nodiscard]] message_reserve_description with_urgency(unsigned most_first) const noexcept {
        return {core, priority, most_first};
    }
};

/// A sender that has no message, and leaves with the place.
template <class Core>
class message_reserve_operation final : public message_send_operation<Core> {
    using base = message_send_operation<Core>;

public:
    explicit message_reserve_operation(const message_reserve_description<Core>& what) noexcept
        : base(message_send_description<Core>{what.core, nullptr, what.priority, what.urgency}) {}
    ~message_reserve_operation() {
        if (this->sent() && !taken_) // nobody has asked for the result
            static_cast<void>(take_result());
    }
    [[nodiscard]] result<message_reservation<Core>> take_result() noexcept {
        if (const result<void> done = base::take_result(); !done)
            return fail(done.error());
        taken_ = true;
        return message_reservation<Core>(*this->core_, this->priority());
    }

private:
    bool taken_ = false;
};

} // namespace detail
NOWAIT_END_NAMESPACE
