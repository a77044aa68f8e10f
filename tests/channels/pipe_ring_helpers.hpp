// Calls on a pipe ring as its layers make them: pages taken before, given back after.
#pragma once

#include <nowait/detail/pipe_ring.hpp>

#include <cerrno>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nowait_test {

using nowait::detail::page_list;
using nowait::detail::page_pool;
using nowait::detail::page_size;
using nowait::detail::pipe_ring;
using nowait::detail::pipe_slot;
using nowait::detail::slot_array;

constexpr bool packet = true;

inline std::string text(std::size_t size, char first = 'a') {
    std::string made(size, ' ');
    for (std::size_t i = 0; i != size; ++i)
        made[i] = static_cast<char>(first + static_cast<char>(i % 23));
    return made;
}

inline std::span<const std::byte> bytes_of(std::string_view s) {
    return std::as_bytes(std::span(s.data(), s.size()));
}

inline std::ptrdiff_t write(pipe_ring& ring, std::string_view what, bool as_packet = false) {
    page_list pages;
    if (!page_pool::of_this_thread().take(ring.pages_needed(what.size()), pages))
        return -ENOMEM;
    nowait::detail::gather from(bytes_of(what));
    return ring.write(from, as_packet, pages);
}

// A negative errno as a result is kept in `error`; the string is then empty.
struct read_result {
    std::string bytes;
    std::ptrdiff_t result;
};

inline read_result read(pipe_ring& ring, std::size_t size) {
    page_list pages;
    std::string bytes(size, '?');
    nowait::detail::scatter to(std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
    std::ptrdiff_t n = ring.read(to, pages);
    bytes.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
    return {bytes, n};
}

inline std::string drain(pipe_ring& ring) {
    std::string all;
    while (!ring.empty())
        all += read(ring, 777).bytes;
    return all;
}

// The whole way of F_SETPIPE_SZ: the new capacity in bytes or a negative errno.
inline std::ptrdiff_t set_capacity(pipe_ring& ring, std::size_t bytes) {
    std::ptrdiff_t slots = ring.plan_resize(bytes);
    if (slots < 0)
        return slots;
    slot_array storage = slot_array::create(static_cast<std::uint32_t>(slots));
    if (!storage)
        return -ENOMEM;
    int error = ring.resize(storage);
    return error != 0 ? error : static_cast<std::ptrdiff_t>(ring.capacity_bytes());
}

struct ring_of : pipe_ring {
    explicit ring_of(std::uint32_t slots = default_slots) : pipe_ring(slot_array::create(slots)) {}
};

} // namespace nowait_test
