// What a stream is: something with a read or a write that can be awaited.
#pragma once

#include <nowait/config.hpp>
#include <nowait/result.hpp>
#include <nowait/task.hpp>

#include <concepts>
#include <cstddef>
#include <span>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

template <class A, class Value>
concept awaitable_for = awaitable<A> && std::same_as<value_for_t<A>, Value>;

} // namespace detail

/// `reader.read(buffer)` reads at least one byte and at most the buffer's size, waiting while there is none.
///
/// Awaiting it gives result<std::size_t>: the bytes read, 0 at the end of the stream. A read that ends with an error has
/// taken nothing from the stream. Kernel pipes, in-process pipes, and any class whose `read` is a task are readers.
template <class Reader>
concept async_reader = requires(Reader& reader, std::span<std::byte> buffer) {
    { reader.read(buffer) } -> detail::awaitable_for<result<std::size_t>>;
};

/// `writer.write(data)` writes at least one byte of `data`, waiting while there is no room.
///
/// Awaiting it gives result<std::size_t>: the bytes written, fewer than offered if the stream had room for no more. A write
/// that ends with an error has written nothing.
template <class Writer>
concept async_writer = requires(Writer& writer, std::span<const std::byte> data) {
    { writer.write(data) } -> detail::awaitable_for<result<std::size_t>>;
};

NOWAIT_END_NAMESPACE
