// Kernel pipes as Asio objects: descriptors that others share keep their flags, and a write never raises SIGPIPE.
#pragma once

#include <nowait/asio/stream.hpp>
#include <nowait/pipe.hpp>

NOWAIT_BEGIN_ASIO_NAMESPACE

/// The end of a kernel pipe, or of any stream, that is read from: pipe_reader as an AsyncReadStream.
///
///     auto pipe = nowait::make_pipe().value();
///     nowait::asio_readable_pipe in(context, std::move(pipe.reader));
///     asio::async_read_until(in, buffer, '\n', token);
///
/// Operations run on the runtime behind the executor; they may be started on any thread, several at once (they queue).
template <class Executor = asio_detail::net::any_io_executor>
using basic_asio_readable_pipe = asio_detail::basic_reading_end<pipe_reader, Executor>;
using asio_readable_pipe = basic_asio_readable_pipe<>;

/// The end that is written to: pipe_writer as an AsyncWriteStream.
template <class Executor = asio_detail::net::any_io_executor>
using basic_asio_writable_pipe = asio_detail::basic_writing_end<pipe_writer, Executor>;
using asio_writable_pipe = basic_asio_writable_pipe<>;

NOWAIT_END_ASIO_NAMESPACE
