// What the tests of the stream algorithms share.
#pragma once

#include "catch.hpp"
#include "runs.hpp"

#include <nowait/nowait.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace io {

using nowait::progress;
using nowait::result;
using nowait::task;
using nowait_test::make_runtime;
using nowait_test::run_on_new;

inline std::span<std::byte> room_in(std::string& text) noexcept {
    return std::as_writable_bytes(std::span(text));
}
inline std::span<const std::byte> bytes_of(std::string_view text) noexcept {
    return std::as_bytes(std::span(text));
}

/// A repeatable stream of bytes in which no piece looks like the next.
inline std::string pattern(std::size_t size, unsigned seed = 1) {
    std::string text(size, '\0');
    unsigned state = seed * 2654435761u + 1;
    for (char& c : text) {
        state = state * 1664525u + 1013904223u;
        c = static_cast<char>(state >> 24);
    }
    return text;
}

inline nowait::pipe_pair make_pipe(nowait::pipe_options options = {}) {
    auto made = nowait::make_pipe(options);
    if (!made)
        throw std::system_error(made.error(), "make_pipe");
    return std::move(*made);
}

inline task<> write_and_close(nowait::pipe_writer to, std::string text, progress& done) {
    done = co_await nowait::write_all(to, text);
}

/// Reads to the end of the stream, `step` bytes at a time, and closes the reader.
inline task<std::string> read_to_end(nowait::pipe_reader from, std::size_t step = 4096) {
    std::string all;
    std::string buffer(step, '\0');
    for (;;) {
        const auto got = co_await from.read(room_in(buffer));
        if (!got)
            throw std::system_error(got.error(), "read_to_end");
        if (*got == 0)
            co_return all;
        all.append(buffer, 0, *got);
    }
}

/// Lets everything that is ready run, looks at the outside included.
inline task<> settle() {
    for (int i = 0; i < 300; ++i)
        co_await nowait::yield();
}

/// A stream in memory, after a script: pieces of the given sizes, then an error or the end. Its operations are tasks, as
/// those of a stream that somebody else writes.
class scripted_stream {
public:
    std::string data{};
    std::size_t piece = 1;
    std::error_code last{}; // after the data: no error is the end of the stream
    bool throws = false;    // after the data
    std::string written{};
    std::size_t room = static_cast<std::size_t>(-1); // writes fail with `last` after so many bytes

    task<result<std::size_t>> read(std::span<std::byte> into) {
        co_await nowait::yield();
        if (data.empty()) {
            if (throws)
                throw std::runtime_error("scripted");
            if (last)
                co_return nowait::fail(last);
            co_return std::size_t{0};
        }
        const std::size_t n = std::min({piece, into.size(), data.size()});
        std::copy_n(bytes_of(data).begin(), n, into.begin());
        data.erase(0, n);
        co_return n;
    }
    task<result<std::size_t>> write(std::span<const std::byte> from) {
        if (room == 0)
            co_return nowait::fail(last);
        const std::size_t n = std::min({piece, from.size(), room});
        written.append(reinterpret_cast<const char*>(from.data()), n);
        room -= n;
        co_return n;
    }
};

} // namespace io
