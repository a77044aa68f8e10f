// What the ends of all our streams offer to Asio: AsyncReadStream and AsyncWriteStream.
#pragma once

#include <nowait/detail/asio_streams.hpp>

#include <cstddef>
#include <utility>

NOWAIT_BEGIN_ASIO_NAMESPACE
namespace asio_detail {

/// The reading half of the interface, over any of our readers.
template <class Handle, class Executor>
class basic_reading_end : public asio_stream_end<Handle, Executor> {
    using base = asio_stream_end<Handle, Executor>;
    using default_token = net::default_completion_token<Executor>;

public:
    using base::base;
    template <class Other>
    struct rebind_executor {
        using other = basic_reading_end<Handle, Other>;
    };

    /// AsyncReadStream: reads what is there, waits while there is nothing. Completes with (error_code, std::size_t).
    /// Errors: eof; operation_aborted: cancelled or closed, nothing was read; bad_descriptor: not open; fault: a null buffer;
    /// no_permission: the handle belongs to another runtime. Of a sequence, the first 64 parts that are not empty are used.
    /// Cancellation: terminal, partial and total, all with the effect of total. Borrows: the buffers' memory.
    template <class Buffers, class Token = typename default_token::type>
    auto async_read_some(const Buffers& buffers, Token&& token = typename default_token::type()) {
        constexpr std::size_t parts = parts_of<Buffers, net::mutable_buffer>;
        using kind = read_kind<Handle, parts>;
        return this->template start<Token, void(error_code, std::size_t)>(
            std::forward<Token>(token),
            kind{{buffer_parts<parts>(std::type_identity<net::mutable_buffer>(), buffers)}});
    }

    /// Completes with (error_code) when a read would not wait. Errors: operation_not_supported: a wait for writing.
    template <class Token = typename default_token::type>
    auto async_wait(net::posix::descriptor_base::wait_type what,
                    Token&& token = typename default_token::type()) {
        return this->template start<Token, void(error_code)>(
            std::forward<Token>(token),
            either_kind<Handle>{{}, what == net::posix::descriptor_base::wait_read});
    }
};

/// The writing half.
template <class Handle, class Executor>
class basic_writing_end : public asio_stream_end<Handle, Executor> {
    using base = asio_stream_end<Handle, Executor>;
    using default_token = net::default_completion_token<Executor>;

public:
    using base::base;
    template <class Other>
    struct rebind_executor {
        using other = basic_writing_end<Handle, Other>;
    };

    /// AsyncWriteStream: writes as much as there is room for, waits while there is none. Up to 4096 bytes go whole or not at all.
    /// Completes with (error_code, std::size_t). Errors: broken_pipe: nobody will ever read; and as async_read_some.
    /// Cancellation: terminal, partial and total, all with the effect of total. Borrows: the buffers' memory.
    template <class Buffers, class Token = typename default_token::type>
    auto async_write_some(const Buffers& buffers, Token&& token = typename default_token::type()) {
        constexpr std::size_t parts = parts_of<Buffers, net::const_buffer>;
        using kind = write_kind<Handle, parts>;
        return this->template start<Token, void(error_code, std::size_t)>(
            std::forward<Token>(token),
            kind{{buffer_parts<parts>(std::type_identity<net::const_buffer>(), buffers)}});
    }

    /// Completes with (error_code) when there is room, or nobody will read. Errors: operation_not_supported: a wait for reading.
    template <class Token = typename default_token::type>
    auto async_wait(net::posix::descriptor_base::wait_type what,
                    Token&& token = typename default_token::type()) {
        return this->template start<Token, void(error_code)>(
            std::forward<Token>(token),
            either_kind<Handle>{{}, what == net::posix::descriptor_base::wait_write});
    }
};

} // namespace asio_detail
NOWAIT_END_ASIO_NAMESPACE
