// What mqueue_channel and channel have in common at their surface: the shared object behind copyable handles.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/message_channel_core.hpp>
#include <nowait/detail/message_channel_operations.hpp>
#include <nowait/detail/message_channel_reservation.hpp>
#include <nowait/result.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

NOWAIT_BEGIN_NAMESPACE

/// The limits of a channel, and how its messages are measured.
template <class T, class Order = detail::strict_order>
struct channel_options {
    /// Messages that the channel holds: at most 2^26.
    std::uint64_t capacity = 10;
    /// Bytes of one message, as `size_of` counts them: 1 to 2^40. A larger message is refused with message_size.
    std::uint64_t message_bytes = std::max<std::uint64_t>(8192, sizeof(T));
    /// Bytes of all messages together: 0, or from `message_bytes` to 2^62. 0: capacity times message_bytes, no limit of
    /// its own.
    std::uint64_t total_bytes = 0;
    /// What a message counts. Called once for each send, outside the channel's lock. None: every message counts sizeof(T),
    /// and `message_bytes` may not be less.
    std::uint64_t (*size_of)(const T&) noexcept = nullptr;
    /// The order among priorities, for `fair_order`.
    Order order{};
    /// Where memory comes from. Borrows: it outlives the channel.
    detail::block_source* memory = nullptr;
};

namespace detail {

/// The part of a channel handle that does not depend on priorities.
///
/// A handle is a reference: copies name the same channel. When the last one goes, whatever waits in the channel ends with
/// broken_pipe on its own runtime, and the messages left are destroyed. Everything here is for any thread where the channel
/// is shared, and for its runtime's thread where it is local. A moved-from handle gives bad_file_descriptor, and zeros.
template <class Core>
class message_channel_handle {
public:
    using value_type = typename Core::value_type;
    /// A place in this channel, held before there is a message.
    using reservation = message_reservation<Core>;

    message_channel_handle(const message_channel_handle& other) noexcept : core_(other.core_) {
        if (core_ != nullptr)
            core_->add_handle();
    }
    message_channel_handle(message_channel_handle&& other) noexcept
        : core_(std::exchange(other.core_, nullptr)) {}
    message_channel_handle& operator=(message_channel_handle other) noexcept {
        std::swap(core_, other.core_);
        return *this;
    }
    ~message_channel_handle() {
        if (core_ != nullptr)
            core_->drop_handle();
    }

    /// False for a moved-from handle.
    [[nodiscard]] bool valid() const noexcept { return core_ != nullptr; }

    /// No more sends: waiting senders end with broken_pipe and keep their messages. What is queued, and what a place was reserved
    /// for before, can still be received; then receivers get broken_pipe. Closing twice is harmless.
    void close() const noexcept { end(Core::ending::drains); }

    /// Closes, and destroys what is queued (each message once, outside the lock, before abort() returns). Reservations are void.
    void abort() const noexcept { end(Core::ending::drops); }

    /// Messages queued. A snapshot, as all of these.
    [[nodiscard]] std::size_t size() const noexcept { return core_ == nullptr ? 0 : core_->size(); }
    [[nodiscard]] bool empty() const noexcept { return size() == 0; }
    /// Bytes queued, as size_of counts them.
    [[nodiscard]] std::uint64_t bytes() const noexcept { return core_ == nullptr ? 0 : core_->bytes(); }
    /// Places reserved and not used yet.
    [[nodiscard]] std::size_t reserved() const noexcept { return core_ == nullptr ? 0 : core_->reserved(); }
    /// Messages that the channel can hold: what was asked for, or as many as total_bytes allow where each counts sizeof(T).
    [[nodiscard]] std::uint64_t capacity() const noexcept {
        return core_ == nullptr ? 0 : core_->limits().messages;
    }
    /// Bytes that one message may have.
    [[nodiscard]] std::uint64_t message_bytes() const noexcept {
        return core_ == nullptr ? 0 : core_->limits().message_bytes;
    }
    [[nodiscard]] bool closed() const noexcept { return core_ == nullptr || core_->closed(); }
    /// Operations that wait. Takes time in proportion to them.
    [[nodiscard]] std::size_t waiting_senders() const noexcept {
        return core_ == nullptr ? 0 : core_->waiting_senders();
    }
    [[nodiscard]] std::size_t waiting_receivers() const noexcept {
        return core_ == nullptr ? 0 : core_->waiting_receivers();
    }

    /// Takes a message if there is one. Errors: resource_unavailable_try_again: none; broken_pipe: none, and the channel is
    /// closed; bad_file_descriptor: a moved-from handle.
    [[nodiscard]] result<typename Core::received_type> try_receive() const noexcept {
        if (core_ == nullptr)
            return fail(std::errc::bad_file_descriptor);
        typename Core::landing landing;
        if (core_->receive_at_once(landing)) [[likely]]
            return landing.take();
        typename Core::slot slot;
        static_cast<void>(core_->receive_now(slot, loop::current(), false));
        return slot.take();
    }

    /// Waits for a message. Returns: it, by value. Errors: broken_pipe: the channel is closed and empty; operation_canceled:
    /// a stop was requested, and no message was taken; bad_file_descriptor: a moved-from handle; operation_not_permitted:
    /// a local channel in which another runtime's operations wait. Borrows: nothing; the channel stays while it waits.
    /// Resumes: on the awaiter's runtime.
    [[nodiscard]] message_receive_description<Core> receive() const noexcept { return {core_}; }

    /// Waits until a message reaches the empty queue while nobody waits to receive it (one that is handed to a waiting
    /// receiver, or comes from a waiting sender when another was received, does not count). Once; one waiter at a time.
    /// Errors: device_or_resource_busy: somebody waits for it already; broken_pipe: the channel is or was closed;
    /// operation_canceled; bad_file_descriptor. Borrows: nothing. Resumes: on the awaiter's runtime.
    [[nodiscard]] message_notified_description<Core> notified() const noexcept { return {core_}; }

    /// For tests, while nothing else happens: true if every invariant holds.
    [[nodiscard]] bool sound() const noexcept { return core_ == nullptr || core_->sound(); }

protected:
    explicit message_channel_handle(Core* core) noexcept : core_(core) {}

    template <class Handle, class Options>
    [[nodiscard]] static result<Handle> make(const Options& options, bool rendezvous) noexcept {
        queue_limits limits{options.capacity, options.message_bytes, options.total_bytes};
        if (const std::errc bad = settle(limits, rendezvous); bad != std::errc{})
            return fail(bad);
        if (options.size_of == nullptr && sizeof(value_type) > limits.message_bytes)
            return fail(std::errc::invalid_argument); // nothing could ever be sent
        block_source& memory = options.memory != nullptr ? *options.memory : heap_blocks();
        Core* const core = Core::create(limits, options.size_of, memory, options.order);
        if (core == nullptr)
            return fail(std::errc::not_enough_memory);
        return Handle(core);
    }

    [[nodiscard]] result<void> try_to_send(value_type& value, unsigned priority) const noexcept {
        if (core_ == nullptr)
            return fail(std::errc::bad_file_descriptor);
        if (priority >= Core::levels)
            return fail(std::errc::invalid_argument);
        if (core_->send_at_once(value, priority)) [[likely]]
            return {};
        std::uint64_t bytes = 0;
        if (!core_->measure(value, bytes))
            return fail(std::errc::message_size);
        int code = attempt_untried;
        static_cast<void>(core_->send_now(&value, priority, bytes, 0, loop::current(), false, code));
        if (code != 0)
            return fail_errno(code);
        return {};
    }

    [[nodiscard]] result<reservation> try_to_reserve(unsigned priority) const noexcept {
        if (core_ == nullptr)
            return fail(std::errc::bad_file_descriptor);
        if (priority >= Core::levels)
            return fail(std::errc::invalid_argument);
        if (core_->is_rendezvous())
            return fail(std::errc::operation_not_supported);
        int code = attempt_untried;
        static_cast<void>(
            core_->send_now(nullptr, priority, core_->reserved_size(), 0, loop::current(), false, code));
        if (code != 0)
            return fail_errno(code);
        return reservation(*core_, priority);
    }

    Core* core_;

private:
    void end(typename Core::ending how) const noexcept {
        if (core_ != nullptr)
            core_->end(how);
    }
};

} // namespace detail
NOWAIT_END_NAMESPACE
