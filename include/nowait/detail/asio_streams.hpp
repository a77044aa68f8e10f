// Reading and writing byte streams: kernel pipes and in-process pipes alike.
#pragma once

#include <nowait/detail/asio_operation.hpp>
#include <nowait/result.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <tuple>
#include <type_traits>

#include <sys/uio.h>

NOWAIT_BEGIN_ASIO_NAMESPACE
namespace asio_detail {

/// A buffer sequence as the kernel takes it: its first `Max` parts that are not empty. "Some" may always be less than all.
template <std::size_t Max>
struct buffer_parts {
    iovec part[Max]; // those that count, and always the first
    int count = 0;
    std::size_t total = 0;

    /// On its way into the operation it is copied a few times: only what there is.
    buffer_parts(const buffer_parts& other) noexcept : count(other.count), total(other.total) {
        std::copy_n(other.part, std::max(count, 1), part);
    }
    buffer_parts& operator=(const buffer_parts&) = delete;

    template <class Buffer, class Sequence>
    explicit buffer_parts(std::type_identity<Buffer>, const Sequence& buffers) {
        auto at = net::buffer_sequence_begin(buffers);
        const auto end = net::buffer_sequence_end(buffers);
        for (; at != end && count < static_cast<int>(Max); ++at) {
            const Buffer buffer(*at);
            if (buffer.size() == 0)
                continue;
            part[count++] = {const_cast<void*>(static_cast<const void*>(buffer.data())), buffer.size()};
            total += buffer.size();
        }
        if (count == 0)
            part[0] = {nullptr, 0};
    }
};
/// As many as Asio's own objects take in one system call.
inline constexpr std::size_t parts_max = 64;
template <class Sequence, class Buffer>
inline constexpr std::size_t parts_of = std::is_convertible_v<const Sequence&, Buffer> ? 1 : parts_max;
template <class Element, std::size_t N, class Buffer>
inline constexpr std::size_t parts_of<std::array<Element, N>, Buffer> =
    std::clamp(N, std::size_t{1}, parts_max);

/// What both directions have.
template <class Handle, std::size_t Max>
struct transfer_kind {
    using object = asio_object_of<Handle>;
    buffer_parts<Max> parts;

    [[nodiscard]] static std::tuple<error_code, std::size_t> failure(error_code error) noexcept {
        return {error, 0};
    }
};

template <class Handle, std::size_t Max>
struct read_kind : transfer_kind<Handle, Max> {
    using description = decltype(std::declval<const Handle&>().read(std::declval<std::span<std::byte>>()));
    using value_type = typename description::value_type;

    [[nodiscard]] description describe(asio_object_of<Handle>& from) const noexcept {
        const auto& to = this->parts;
        if (Max == 1 || to.count <= 1)
            return from.handle.read(
                std::span(static_cast<std::byte*>(to.part[0].iov_base), to.part[0].iov_len));
        return from.handle.read(std::span<const iovec>(to.part, static_cast<std::size_t>(to.count)));
    }
    [[nodiscard]] std::tuple<error_code, std::size_t> arguments(const value_type& got) const noexcept {
        if (!got)
            return {to_asio(got.error()), 0};
        if (*got == 0 && this->parts.total != 0)
            return {error_code(net::error::eof), 0};
        return {error_code(), *got};
    }
};

template <class Handle, std::size_t Max>
struct write_kind : transfer_kind<Handle, Max> {
    using description =
        decltype(std::declval<const Handle&>().write(std::declval<std::span<const std::byte>>()));
    using value_type = typename description::value_type;

    [[nodiscard]] description describe(asio_object_of<Handle>& to) const noexcept {
        const auto& from = this->parts;
        if (Max == 1 || from.count <= 1)
            return to.handle.write(std::span<const std::byte>(
                static_cast<const std::byte*>(from.part[0].iov_base), from.part[0].iov_len));
        return to.handle.write(std::span<const iovec>(from.part, static_cast<std::size_t>(from.count)));
    }
    [[nodiscard]] static std::tuple<error_code, std::size_t> arguments(const value_type& put) noexcept {
        if (!put)
            return {to_asio(put.error()), 0};
        return {error_code(), *put};
    }
};

/// Readable or writable, by the kind of the end.
template <class Handle>
struct ready_kind {
    using object = asio_object_of<Handle>;
    static auto described(const Handle& handle) noexcept {
        if constexpr (requires { handle.readable(); })
            return handle.readable();
        else
            return handle.writable();
    }
    using description = decltype(described(std::declval<const Handle&>()));

    [[nodiscard]] static description describe(object& on) noexcept { return described(on.handle); }
    [[nodiscard]] static std::tuple<error_code> arguments(const result<void>& outcome) noexcept {
        return {outcome ? error_code() : to_asio(outcome.error())};
    }
    [[nodiscard]] static std::tuple<error_code> failure(error_code error) noexcept { return {error}; }
};
/// The same, or refused: for writing on a read end, and the other way round.
template <class Handle>
struct either_kind : ready_kind<Handle> {
    bool possible;

    [[nodiscard]] typename ready_kind<Handle>::description describe(
        asio_object_of<Handle>& on) const noexcept {
        if (possible)
            return ready_kind<Handle>::describe(on);
        const Handle nothing; // an end that is not there is refused at once
        return ready_kind<Handle>::described(nothing);
    }
    [[nodiscard]] std::tuple<error_code> arguments(const result<void>& outcome) const noexcept {
        if (!possible)
            return {error_code(net::error::operation_not_supported)};
        return ready_kind<Handle>::arguments(outcome);
    }
};

/// One end of a stream as an Asio I/O object.
template <class Handle, class Executor>
class asio_stream_end {
public:
    using executor_type = Executor;
    using lowest_layer_type = asio_stream_end;
    using native_type = Handle;

    /// Not open. Throws std::system_error, invalid_argument: no asio_runtime or asio_guest stands behind the executor.
    explicit asio_stream_end(const executor_type& executor) : asio_stream_end(executor, Handle()) {}
    /// Takes a handle over. It may not have been used on another runtime.
    asio_stream_end(const executor_type& executor, Handle handle)
        : executor_(executor),
          object_(new object(core_of(net::query(executor, net::execution::context)), std::move(handle))) {}
    /// The same with the executor of a context: an io_context with a guest, asio_guest or asio_runtime.
    template <class Context>
    requires requires(Context& context) {
        { context.get_executor() } -> std::convertible_to<executor_type>;
    } && (!std::is_convertible_v<Context&, executor_type>)
    explicit asio_stream_end(Context& context, Handle handle = {})
        : asio_stream_end(executor_type(context.get_executor()), std::move(handle)) {}

    /// What is moved from is like a closed one, on the same executor.
    asio_stream_end(asio_stream_end&& other) noexcept
        : executor_(other.executor_), object_(std::move(other.object_)) {}
    asio_stream_end& operator=(asio_stream_end&& other) noexcept {
        executor_ = other.executor_;
        object_ = std::move(other.object_);
        return *this;
    }
    /// Closes, as close().
    ~asio_stream_end() = default;

    [[nodiscard]] executor_type get_executor() const noexcept { return executor_; }
    [[nodiscard]] lowest_layer_type& lowest_layer() noexcept { return *this; }
    [[nodiscard]] const lowest_layer_type& lowest_layer() const noexcept { return *this; }
    [[nodiscard]] bool is_open() const noexcept { return object_.get() != nullptr && object_->is_open(); }

    /// What waits ends with operation_aborted, on the runtime's thread, if nothing came before. Any thread.
    void cancel() noexcept {
        if (object_.get() != nullptr)
            object_->cancel();
    }
    /// Closes. What waits ends with operation_aborted; later operations give bad_descriptor. Any thread; away from the
    /// runtime's own, the end is closed when the runtime comes to it. Closing twice is harmless.
    void close() noexcept {
        if (object_.get() != nullptr)
            (void)object_->close();
    }

protected:
    using object = asio_object_of<Handle>;

    /// Moved from, it is like a closed one.
    [[nodiscard]] asio_object& shared() {
        if (object_.get() == nullptr) {
            object_ = object_pointer<object>(
                new object(core_of(net::query(executor_, net::execution::context)), Handle()));
            (void)object_->close();
        }
        return *object_.get();
    }

    template <class Token, class Signature, class Kind>
    auto start(Token&& token, Kind kind) {
        return net::async_initiate<Token, Signature>(initiate_operation<Executor>(shared(), executor_), token,
                                                     std::move(kind));
    }

private:
    executor_type executor_;
    object_pointer<object> object_;
};

} // namespace asio_detail
NOWAIT_END_ASIO_NAMESPACE
