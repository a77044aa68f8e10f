// POSIX message queues as Asio objects.
#pragma once

#include <nowait/detail/asio_streams.hpp>
#include <nowait/posix_mqueue.hpp>

#include <concepts>
#include <cstddef>
#include <span>
#include <tuple>
#include <utility>

NOWAIT_BEGIN_ASIO_NAMESPACE
namespace asio_detail {

struct queue_send_kind {
    using object = asio_object_of<posix_mqueue>;
    using description = detail::queue_send_description;
    std::span<const std::byte> data;
    unsigned priority;

    [[nodiscard]] description describe(object& to) const noexcept { return to.handle.send(data, priority); }
    [[nodiscard]] static std::tuple<error_code> arguments(const result<void>& sent) noexcept {
        return {sent ? error_code() : to_asio(sent.error())};
    }
    [[nodiscard]] static std::tuple<error_code> failure(error_code error) noexcept { return {error}; }
};

struct queue_receive_kind {
    using object = asio_object_of<posix_mqueue>;
    using description = detail::queue_receive_description;
    using all = std::tuple<error_code, std::size_t, unsigned>;
    std::span<std::byte> buffer;

    [[nodiscard]] description describe(object& from) const noexcept { return from.handle.receive(buffer); }
    [[nodiscard]] static all arguments(const description::value_type& got) noexcept {
        if (!got)
            return failure(to_asio(got.error()));
        return {error_code(), got->value.size(), got->priority};
    }
    [[nodiscard]] static all failure(error_code error) noexcept { return {error, 0, 0}; }
};

struct queue_ready_kind {
    using object = asio_object_of<posix_mqueue>;
    using description = detail::ready_description;
    bool for_writing;

    [[nodiscard]] description describe(object& on) const noexcept {
        return for_writing ? on.handle.writable() : on.handle.readable();
    }
    [[nodiscard]] static std::tuple<error_code> arguments(const result<void>& outcome) noexcept {
        return {outcome ? error_code() : to_asio(outcome.error())};
    }
    [[nodiscard]] static std::tuple<error_code> failure(error_code error) noexcept { return {error}; }
};

} // namespace asio_detail

/// posix_mqueue as an Asio object. Messages are whole or not at all; the highest priority is received first.
///
///     nowait::asio_posix_mqueue jobs(context, nowait::posix_mqueue::open("/jobs", options).value());
///     jobs.async_send(asio::buffer(text), 9, token);    // (error_code)
///     jobs.async_receive(asio::buffer(space), token);   // (error_code, bytes, priority)
///
/// Cancellation: terminal, partial and total, all with the effect of total.
template <class Executor = asio_detail::net::any_io_executor>
class basic_asio_posix_mqueue : public asio_detail::asio_stream_end<posix_mqueue, Executor> {
    using base = asio_detail::asio_stream_end<posix_mqueue, Executor>;
    using default_token = asio_detail::net::default_completion_token<Executor>;
    using error_code = asio_detail::error_code;

public:
    using base::base;
    template <class Other>
    struct rebind_executor {
        using other = basic_asio_posix_mqueue<Other>;
    };

    /// Waits while the queue is full. Completes with (error_code). Errors: operation_aborted: nothing was sent; message_size;
    /// invalid_argument: no such priority; bad_descriptor; fault. Borrows: the buffer's memory.
    template <std::integral P, class Token = typename default_token::type>
    auto async_send(asio_detail::net::const_buffer data, P priority,
                    Token&& token = typename default_token::type()) {
        const auto bytes = std::span(static_cast<const std::byte*>(data.data()), data.size());
        // What is no priority stays none.
        const unsigned checked = std::in_range<unsigned>(priority) ? static_cast<unsigned>(priority) : ~0u;
        return this->template start<Token, void(error_code)>(std::forward<Token>(token),
                                                             asio_detail::queue_send_kind{bytes, checked});
    }
    /// Waits while the queue is empty. Completes with (error_code, std::size_t, unsigned): the message's size and priority.
    /// Errors: operation_aborted: nothing was taken; message_size: the buffer is smaller than a message may be;
    /// bad_descriptor; fault. Borrows: the buffer's memory.
    template <class Token = typename default_token::type>
    auto async_receive(asio_detail::net::mutable_buffer buffer,
                       Token&& token = typename default_token::type()) {
        const auto bytes = std::span(static_cast<std::byte*>(buffer.data()), buffer.size());
        return this->template start<Token, void(error_code, std::size_t, unsigned)>(
            std::forward<Token>(token), asio_detail::queue_receive_kind{bytes});
    }
    /// Completes with (error_code) when a receive, or a send, would not wait. Another process may be faster.
    template <class Token = typename default_token::type>
    auto async_wait(asio_detail::net::posix::descriptor_base::wait_type what,
                    Token&& token = typename default_token::type()) {
        const bool for_writing = what == asio_detail::net::posix::descriptor_base::wait_write;
        return this->template start<Token, void(error_code)>(std::forward<Token>(token),
                                                             asio_detail::queue_ready_kind{for_writing});
    }
};
using asio_posix_mqueue = basic_asio_posix_mqueue<>;

NOWAIT_END_ASIO_NAMESPACE
