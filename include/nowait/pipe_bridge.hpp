// Between in-process pipes and the kernel's: one copy, made by the kernel from or into the channel's own pages.
#pragma once

#include <nowait/config.hpp>
#include <nowait/pipe.hpp>
#include <nowait/pipe_channel.hpp>
#include <nowait/result.hpp>
#include <nowait/task.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include <sys/uio.h>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// The first `size` bytes of parts that lie in memory, as the system calls want them.
template <class Byte>
[[nodiscard]] std::size_t as_vectors(std::span<const std::span<Byte>> parts, std::size_t size,
                                     std::array<iovec, pipe_core<real_sync>::parts_max>& vectors) noexcept {
    std::size_t count = 0;
    for (std::span<Byte> part : parts) {
        if (size == 0)
            break;
        const std::size_t n = std::min(part.size(), size);
        // writev takes its bytes through the same structure as readv, without const.
        vectors[count++] = {const_cast<std::byte*>(part.data()), n};
        size -= n;
    }
    return count;
}

} // namespace detail

/// Moves up to `size` bytes (at most 64 KiB at a time) from a channel into a kernel pipe. Waits for data, then for room;
/// while it waits for room, other readers of the channel queue behind it. Of a packet that is larger than `size` the rest is
/// lost, as in a read.
/// Returns: bytes moved; 0: end of stream (or a size of 0). Errors: as pipe_channel_reader::peek and pipe_writer::write;
/// nothing was moved then. Borrows: both ends until it has ended. Resumes: on the awaiter's runtime.
template <class Sync>
[[nodiscard]] task<result<std::size_t>> splice(const basic_pipe_channel_reader<Sync>& from,
                                               const pipe_writer& to, std::size_t size) {
    if (size == 0)
        co_return 0;
    auto seen = co_await from.peek();
    if (!seen)
        co_return fail(seen.error());
    if (seen->empty())
        co_return 0;
    std::array<iovec, detail::pipe_core<detail::real_sync>::parts_max> vectors;
    const std::size_t count = detail::as_vectors(seen->parts(), size, vectors);
    const std::span<const iovec> parts = std::span(vectors).first(count);
    auto written = co_await to.write(parts);
    if (written)
        (void)seen->consume(*written); // without it, nothing is taken away
    co_return written;
}

/// Moves up to `size` bytes (at most 64 KiB at a time) from a kernel pipe into a channel. Waits for data, then for room;
/// other writers of the channel are kept waiting only for the transfer itself (or until the next data, if another reader of
/// the pipe was faster).
/// Returns: bytes moved; 0: end of stream (or a size of 0). Errors: as pipe_reader::read and pipe_channel_writer::reserve.
/// broken_pipe: the channel's readers have gone; if they went while the bytes were read, those are lost. With every other
/// error nothing was taken. Borrows: both ends until it has ended. Resumes: on the awaiter's runtime.
template <class Sync>
[[nodiscard]] task<result<std::size_t>> splice(const pipe_reader& from,
                                               const basic_pipe_channel_writer<Sync>& to, std::size_t size) {
    if (size == 0)
        co_return 0;
    auto ready = co_await from.readable();
    if (!ready)
        co_return fail(ready.error());
    auto room = co_await to.reserve(size);
    if (!room)
        co_return fail(room.error());
    std::array<iovec, detail::pipe_core<detail::real_sync>::parts_max> vectors;
    const std::span<const std::span<std::byte>> reserved = room->parts();
    const std::size_t count = detail::as_vectors(reserved, size, vectors);
    const std::span<const iovec> parts = std::span(vectors).first(count);
    auto got = co_await from.read(parts);
    if (!got || *got == 0)
        co_return got; // the reservation is dropped
    co_return room->commit(*got);
}

NOWAIT_END_NAMESPACE
