// In-process byte pipes as Asio objects.
#pragma once

#include <nowait/asio/stream.hpp>
#include <nowait/pipe_channel.hpp>

NOWAIT_BEGIN_ASIO_NAMESPACE

/// The end of a pipe_channel that is read from, as an AsyncReadStream. The other end may be anywhere: in a nowait task of any
/// runtime, or an Asio object again.
///
///     auto channel = nowait::pipe_channel::create().value();
///     nowait::asio_pipe_channel_reader in(context, std::move(channel.reader));
template <class Executor = asio_detail::net::any_io_executor>
using basic_asio_pipe_channel_reader = asio_detail::basic_reading_end<pipe_channel_reader, Executor>;
using asio_pipe_channel_reader = basic_asio_pipe_channel_reader<>;

/// The end that is written to, as an AsyncWriteStream.
template <class Executor = asio_detail::net::any_io_executor>
using basic_asio_pipe_channel_writer = asio_detail::basic_writing_end<pipe_channel_writer, Executor>;
using asio_pipe_channel_writer = basic_asio_pipe_channel_writer<>;

NOWAIT_END_ASIO_NAMESPACE
