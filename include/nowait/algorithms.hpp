// What people do with streams: all of it, up to somewhere, or from one to the other.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/transfer_all.hpp>
#include <nowait/io.hpp>
#include <nowait/pipe.hpp>
#include <nowait/result.hpp>
#include <nowait/task.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

NOWAIT_BEGIN_NAMESPACE

/// Reads until `buffer` is full or the stream ends. Allocates nothing.
///
/// Returns: progress: the bytes now in `buffer`. Fewer than its size without an error: the stream ended. Exact also with an
/// error, and when with_timeout or a stop ends it: those bytes were taken from the stream, the next ones were not.
/// Errors: those of the reader; operation_canceled. From a packet pipe each packet fills on; one that does not fit the rest
/// is cut, as by read.
/// Borrows: `reader`, which stays where it is, and `buffer`, until the await ends. Resumes: on the awaiter's runtime.
template <async_reader Reader>
[[nodiscard]] detail::transfer_all_description<Reader, std::byte> read_exactly(
    Reader& reader, std::span<std::byte> buffer) noexcept {
    return {&reader, buffer};
}

/// Writes all of `data`, in as many writes as it takes. Allocates nothing.
///
/// Two write_alls on one handle at the same time may mix their pieces: a write of up to 4096 bytes to a pipe is whole, a larger
/// one is not. Whoever needs whole records takes a write_lock around each.
///
/// Returns: progress: the bytes written, all of them if there is no error. Errors: those of the writer (broken_pipe: nobody
/// will ever read, and some of the bytes may never have been read); operation_canceled; io_error: the writer says that it
/// wrote nothing. Borrows: `writer`, which stays where it is, and `data`, until the await ends. Resumes: on the awaiter's runtime.
template <async_writer Writer>
[[nodiscard]] detail::transfer_all_description<Writer, const std::byte> write_all(
    Writer& writer, std::span<const std::byte> data) noexcept {
    return {&writer, data};
}
template <async_writer Writer>
[[nodiscard]] detail::transfer_all_description<Writer, const std::byte> write_all(
    Writer& writer, std::string_view text) noexcept {
    return {&writer, std::as_bytes(std::span(text))};
}

struct copy_options {
    /// Stop after so many bytes.
    std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
    /// What is read at once where the bytes must pass through memory.
    std::size_t buffer_size = std::size_t{64} * 1024;
    /// Whether pipe ends that others share may be spliced: see allow_splice. Ends of our own always are.
    allow_splice splicing = allow_splice::no;
    /// Kept up to date with the bytes that have arrived, for whoever shows progress. Borrows: until the copy ends.
    std::uint64_t* arrived = nullptr;
    /// Where to put what was read and could not be written, if an error or a stop came between the two; never
    /// anything when splicing. Borrows: until the copy ends.
    std::vector<std::byte>* left_over = nullptr;
};

namespace detail {

/// Copies on from `before` bytes.
template <class Reader, class Writer>
task<progress> copy_through_memory(Reader& from, Writer& to, copy_options options, std::uint64_t before = 0) {
    progress total{static_cast<std::size_t>(before), {}};
    if (options.buffer_size == 0) {
        total.error = std::make_error_code(std::errc::invalid_argument);
        co_return total;
    }
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(options.buffer_size);
    while (total.bytes < options.limit) {
        const auto wish = static_cast<std::size_t>(
            std::min<std::uint64_t>(options.limit - total.bytes, options.buffer_size));
        const std::span<std::byte> room(buffer.get(), wish);
        const result<std::size_t> got = co_await from.read(room);
        if (!got) {
            total.error = got.error();
            break;
        }
        if (*got == 0)
            break;
        const std::span<const std::byte> data(buffer.get(), *got);
        const progress put = co_await write_all(to, data);
        total.bytes += put.bytes;
        if (options.arrived != nullptr)
            *options.arrived = total.bytes;
        if (!put.ok()) {
            total.error = put.error;
            const auto rest = data.subspan(put.bytes);
            if (options.left_over != nullptr)
                options.left_over->assign(rest.begin(), rest.end());
            break;
        }
    }
    co_return total;
}

[[nodiscard]] NOWAIT_API task<progress> copy_descriptors(const pipe_reader& from, const pipe_writer& to,
                                                         copy_options options);

} // namespace detail

/// Copies from one stream to the other until the first ends.
///
/// Between a kernel pipe and another pipe or a regular file the bytes are spliced: they stay in the kernel. That needs pipe
/// ends that are ours alone, or options.splicing. Everything else (terminals, sockets, devices, in-process
/// streams) passes through a buffer. Splicing from a file that is not in the page cache waits for the disk, as `cat` does.
///
/// Returns: progress: the bytes that `to` has taken; the stream's end is no error. Errors: those of reader and writer, with what
/// had arrived by then (broken_pipe: what arrived may never have been read); operation_canceled; invalid_argument: a buffer
/// of no bytes, or both are the same pipe. Throws: std::bad_alloc. Borrows: both streams, which stay where they are, and what the
/// options point to, until the await ends. Resumes: on the awaiter's runtime.
template <async_reader Reader, async_writer Writer>
[[nodiscard]] task<progress> copy(Reader& from, Writer& to, copy_options options = {}) {
    if constexpr (std::derived_from<Reader, pipe_reader> && std::derived_from<Writer, pipe_writer>)
        return detail::copy_descriptors(from, to, options);
    else
        return detail::copy_through_memory(from, to, options);
}

/// Reads until `text` holds `delimiter`, or the stream ends, or `text` holds `limit` bytes without it.
///
/// Streams are read in pieces, so `text` may hold bytes from beyond the delimiter afterwards. They belong to the next
/// call, which looks at them first: use what is in front, erase that much, call again.
///
/// Returns: progress: the bytes in front of `text` up to and with the delimiter. No error and no delimiter at their end: the
/// stream ended, and this is all of the rest; 0: there was none. With an error, `bytes` is what `text` holds: nothing is lost, and
/// the call may be repeated. Errors: message_size: no delimiter within `limit` bytes; invalid_argument: an empty delimiter;
/// those of the reader; operation_canceled. Throws: std::bad_alloc. Borrows: everything, until the await ends. Resumes: on the awaiter's runtime.
template <async_reader Reader>
[[nodiscard]] task<progress> read_until(Reader& reader, std::string_view delimiter, std::string& text,
                                        std::size_t limit) {
    constexpr std::size_t piece = 4096;
    if (delimiter.empty())
        co_return progress{text.size(), std::make_error_code(std::errc::invalid_argument)};
    std::size_t searched = 0; // no delimiter begins before this
    for (;;) {
        const std::size_t found = text.find(delimiter, searched);
        if (found != std::string::npos && found + delimiter.size() <= limit)
            co_return progress{found + delimiter.size(), {}};
        const std::size_t held = text.size();
        if (held >= limit)
            co_return progress{held, std::make_error_code(std::errc::message_size)};
        searched = held - std::min(held, delimiter.size() - 1);
        text.resize(held + std::min(piece, limit - held));
        const auto room = std::as_writable_bytes(std::span(text)).subspan(held);
        const result<std::size_t> got = co_await reader.read(room);
        text.resize(held + got.value_or(0));
        if (!got)
            co_return progress{held, got.error()};
        if (*got == 0)
            co_return progress{held, {}};
    }
}

NOWAIT_END_NAMESPACE
