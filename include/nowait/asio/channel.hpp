// Message channels as Asio objects: the shape of asio::experimental::channel, without its "experimental".
#pragma once

#include <nowait/channel.hpp>
#include <nowait/detail/asio_awaitable.hpp>
#include <nowait/detail/asio_operation.hpp>
#include <nowait/mqueue_channel.hpp>

#include <cerrno>
#include <concepts>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

NOWAIT_BEGIN_ASIO_NAMESPACE
namespace asio_detail {

[[nodiscard]] inline error_code channel_error(std::error_code error) noexcept {
    if (error.value() == EPIPE)
        return net::experimental::error::channel_closed;
    return to_asio(error);
}

/// What operations on a channel share. The channel is others' too: it is not closed with the object.
template <class Channel>
class asio_channel_object final : public asio_object {
public:
    asio_channel_object(asio_core& core, Channel&& with) : asio_object(core), handle(std::move(with)) {}
    const Channel handle;

    /// Whether the last operation of its kind had to wait: then the next one does not try before it is made, for that would be
    /// one attempt too many. On the loop's thread.
    template <class Kind>
    [[nodiscard]] bool waits() const noexcept {
        return Kind::sends ? sends_wait_ : receives_wait_;
    }
    template <class Kind>
    void expect(bool wait) noexcept {
        (Kind::sends ? sends_wait_ : receives_wait_) = wait;
    }

private:
    bool sends_wait_ = false;
    bool receives_wait_ = false;
    void close_handle() noexcept override {}
};

template <class Channel>
struct send_kind {
    static constexpr bool sends = true;
    using object = asio_channel_object<Channel>;
    using value_type = typename Channel::value_type;
    using description = decltype(std::declval<const Channel&>().send(std::declval<value_type&>()));

    value_type value; // stays here until the operation takes it
    unsigned priority = 0;

    [[nodiscard]] description describe(object& to) noexcept {
        if constexpr (requires { to.handle.send(value, priority); })
            return to.handle.send(value, priority);
        else
            return to.handle.send(value);
    }
    [[nodiscard]] std::optional<std::tuple<error_code>> try_first(object& to, detail::loop& home) noexcept {
        if (!describe(to).try_or_hand_over(home, home.root_stop()))
            return std::nullopt;
        return std::tuple(error_code());
    }
    [[nodiscard]] static std::tuple<error_code> arguments(const result<void>& sent) noexcept {
        return {sent ? error_code() : channel_error(sent.error())};
    }
    [[nodiscard]] static std::tuple<error_code> failure(error_code error) noexcept { return {error}; }
};

template <class Channel>
struct receive_kind {
    static constexpr bool sends = false;
    using object = asio_channel_object<Channel>;
    using description = decltype(std::declval<const Channel&>().receive());
    using received_type = typename description::value_type::value_type;
    static_assert(std::default_initializable<received_type>,
                  "async_receive completes with (error_code, T): with an error, T is a default one");

    [[nodiscard]] static description describe(object& from) noexcept { return from.handle.receive(); }
    [[nodiscard]] static std::optional<std::tuple<error_code, received_type>> try_first(object& from,
                                                                                        detail::loop& home) {
        auto got = describe(from).try_all(home, home.root_stop());
        if (!got)
            return std::nullopt;
        return arguments(std::move(got));
    }
    [[nodiscard]] static std::tuple<error_code, received_type> arguments(result<received_type>&& got) {
        if (!got)
            return failure(channel_error(got.error()));
        return {error_code(), std::move(*got)};
    }
    [[nodiscard]] static std::tuple<error_code, received_type> failure(error_code error) {
        return {error, received_type()};
    }
};

/// A channel handle of ours as an Asio object.
template <class Channel, class Executor>
class asio_channel_end {
    using default_token = net::default_completion_token<Executor>;
    using object = asio_channel_object<Channel>;

public:
    using executor_type = Executor;
    using native_type = Channel;
    using value_type = typename Channel::value_type;
    using received_type = typename receive_kind<Channel>::received_type;
    template <class Other>
    struct rebind_executor {
        using other = asio_channel_end<Channel, Other>;
    };

    /// Another handle of an existing channel. Throws std::system_error, invalid_argument: no asio_runtime or asio_guest stands
    /// behind the executor.
    asio_channel_end(const executor_type& executor, Channel channel)
        : executor_(executor),
          object_(new object(core_of(net::query(executor, net::execution::context)), std::move(channel))) {}
    template <class Context>
    requires requires(Context& context) {
        { context.get_executor() } -> std::convertible_to<executor_type>;
    } && (!std::is_convertible_v<Context&, executor_type>)
    asio_channel_end(Context& context, Channel channel)
        : asio_channel_end(executor_type(context.get_executor()), std::move(channel)) {}
    /// A new channel for `capacity` messages. Throws std::system_error: what Channel::create gives as errors; and as above.
    template <class Where>
    asio_channel_end(Where&& where, std::uint64_t capacity) : asio_channel_end(where, made(capacity)) {}

    /// What is moved from gives bad_descriptor, on the same executor.
    asio_channel_end(asio_channel_end&& other) noexcept
        : executor_(other.executor_), object_(std::move(other.object_)) {}
    asio_channel_end& operator=(asio_channel_end&& other) noexcept {
        executor_ = other.executor_;
        object_ = std::move(other.object_);
        return *this;
    }
    /// What waits through this object ends with operation_aborted; the channel stays, if others have handles to it.
    ~asio_channel_end() = default;

    [[nodiscard]] executor_type get_executor() const noexcept { return executor_; }
    /// The channel itself, for nowait tasks, for other objects, and for its queries. Precondition: not moved from.
    [[nodiscard]] const Channel& native() const noexcept { return object_->handle; }
    [[nodiscard]] bool is_open() const noexcept { return object_.get() != nullptr && !native().closed(); }
    [[nodiscard]] std::uint64_t capacity() const noexcept { return native().capacity(); }
    /// A receive would not wait.
    [[nodiscard]] bool ready() const noexcept { return !native().empty(); }

    /// For everybody who has the channel: no more sends; what is queued can still be received. Any thread. Closing twice is
    /// harmless.
    void close() noexcept {
        if (object_.get() != nullptr)
            native().close();
    }
    /// What waits through this object ends with operation_aborted. Any thread.
    void cancel() noexcept {
        if (object_.get() != nullptr)
            object_->cancel();
    }

    /// Waits for room. Completes with (error_code). Errors: channel_closed; operation_aborted: nothing was sent;
    /// message_size; no_memory; bad_descriptor: moved from. With an error the message is destroyed. Cancellation: terminal,
    /// partial and total, all with the effect of total. With use_awaitable, here and below, what need not wait does not suspend:
    /// the coroutine goes on in its turn, within the turn's budget.
    template <class Token = typename default_token::type>
    auto async_send(value_type value, Token&& token = typename default_token::type()) {
        return start<Token, void(error_code)>(token, send_kind<Channel>{std::move(value)});
    }
    /// The same with a priority, 0 to 32767. Errors: also invalid_argument: another priority.
    template <std::integral P, class Token = typename default_token::type>
    requires(std::same_as<received_type, message<value_type>>)
    auto async_send(value_type value, P priority, Token&& token = typename default_token::type()) {
        const unsigned checked =
            std::in_range<unsigned>(priority) ? static_cast<unsigned>(priority) : priority_limit;
        return start<Token, void(error_code)>(token, send_kind<Channel>{std::move(value), checked});
    }
    /// Waits for a message. Completes with (error_code, T), of an mqueue_channel with (error_code, message<T>); with an error, T
    /// is a default one. Errors: channel_closed: and empty; operation_aborted: no message was taken; bad_descriptor: moved
    /// from. Cancellation: as async_send.
    template <class Token = typename default_token::type>
    auto async_receive(Token&& token = typename default_token::type()) {
        return start<Token, void(error_code, received_type)>(token, receive_kind<Channel>());
    }

private:
    [[nodiscard]] static Channel made(std::uint64_t capacity) {
        typename Channel::options options;
        options.capacity = capacity;
        auto channel = Channel::create(options);
        if (!channel)
            throw std::system_error(channel.error(), "nowait: channel");
        return std::move(*channel);
    }
    /// Moved from, it has a handle that was moved from.
    [[nodiscard]] asio_object& shared() {
        if (object_.get() == nullptr) [[unlikely]] {
            Channel taken = made(1);
            const Channel elsewhere = std::move(taken); // and goes: what is left in `taken` is what is wanted
            object_ = object_pointer<object>(
                new object(core_of(net::query(executor_, net::execution::context)), std::move(taken)));
        }
        return *object_.get();
    }
    template <class Token, class Signature, class Kind>
    auto start(Token& token, Kind kind) {
        asio_object& with = shared();
#if NOWAIT_ASIO_HAS_AWAITABLE
        if constexpr (is_use_awaitable<std::decay_t<Token>>) {
            if (in_turn(with) && !object_->template waits<Kind>())
                return try_then_await<Signature>(&with, executor_, token, std::move(kind));
        }
#endif
        return net::async_initiate<Token, Signature>(initiate_operation<Executor>(with, executor_), token,
                                                     std::move(kind));
    }

    executor_type executor_;
    object_pointer<object> object_;
};

} // namespace asio_detail

/// channel<T> as an Asio object. A handle: nowait tasks use the same channel by a copy of native().
///
///     nowait::asio_channel<int> numbers(context, 64);
///     numbers.async_send(1, token);
///     numbers.async_receive(token);                     // (error_code, int)
template <class T, class Executor = asio_detail::net::any_io_executor>
using asio_channel = asio_detail::asio_channel_end<channel<T>, Executor>;

/// mqueue_channel<T> as an Asio object: the highest priority is received first.
template <class T, class Executor = asio_detail::net::any_io_executor>
using asio_mqueue_channel = asio_detail::asio_channel_end<mqueue_channel<T>, Executor>;

NOWAIT_END_ASIO_NAMESPACE
