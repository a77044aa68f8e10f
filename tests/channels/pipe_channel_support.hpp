// What the tests of in-process pipes share. Most of them run for both kinds of channel.
#pragma once

#include "catch.hpp"
#include "runs.hpp"

#include <nowait/pipe.hpp>
#include <nowait/pipe_bridge.hpp>
#include <nowait/pipe_channel.hpp>
#include <nowait/runtime.hpp>
#include <nowait/sleep.hpp>
#include <nowait/timeout.hpp>
#include <nowait/wait.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace nowait_test::channels {

using nowait::result;
using nowait::task;
using nowait_test::run_on_new;

inline constexpr std::size_t page = 4096;
inline constexpr std::size_t default_capacity = 16 * page;

#define BOTH_KINDS nowait::pipe_channel, nowait::local_pipe_channel

inline std::span<const std::byte> bytes(std::string_view text) noexcept {
    return std::as_bytes(std::span(text.data(), text.size()));
}
inline std::span<std::byte> room(std::string& text) noexcept {
    return std::as_writable_bytes(std::span(text.data(), text.size()));
}
inline std::string text_of(std::span<const std::byte> part) {
    return {reinterpret_cast<const char*>(part.data()), part.size()};
}
inline std::string pattern(std::size_t size, unsigned seed = 1) {
    std::string text(size, '\0');
    unsigned state = seed * 2654435761u + 1;
    for (char& c : text) {
        state = state * 1664525u + 1013904223u;
        c = static_cast<char>(state >> 24);
    }
    return text;
}

template <class T>
int error_of(const result<T>& r) noexcept {
    return r ? 0 : r.error().value();
}

template <class Channel>
Channel make(nowait::pipe_channel_options options = {}) {
    auto made = Channel::create(options);
    if (!made)
        throw std::system_error(made.error(), "pipe channel");
    return std::move(*made);
}

/// What one operation came to, for tasks that are spawned to wait.
struct outcome {
    bool done = false;
    int error = -1;
    std::size_t size = 0;
    std::string text;
    int order = 0; // the how-manieth of its group to end
};

template <class Reader>
task<> read_once(const Reader& reader, std::size_t size, outcome& out, int* count = nullptr) {
    std::string buffer(size, '?');
    auto n = co_await reader.read(room(buffer));
    out.error = error_of(n);
    out.size = n ? *n : 0;
    out.text = buffer.substr(0, out.size);
    out.order = count != nullptr ? ++*count : 0;
    out.done = true;
}
template <class Writer>
task<> write_once(const Writer& writer, std::string_view text, outcome& out, int* count = nullptr) {
    auto n = co_await writer.write(text);
    out.error = error_of(n);
    out.size = n ? *n : 0;
    out.order = count != nullptr ? ++*count : 0;
    out.done = true;
}
/// The same under a stop source of the test.
template <class Reader>
task<> read_until_stopped(const Reader& reader, std::size_t size, nowait::inplace_stop_token stop,
                          outcome& out) {
    std::string buffer(size, '?');
    auto n = co_await nowait::with_stop(reader.read(room(buffer)), stop);
    out.error = error_of(n);
    out.size = n ? *n : 0;
    out.text = buffer.substr(0, out.size);
    out.done = true;
}
/// Any description whose value is a result: keeps the error.
template <class Description>
task<> await_stoppable(Description what, nowait::inplace_stop_token stop, outcome& out) {
    auto got = co_await nowait::with_stop(std::move(what), stop);
    out.error = error_of(got);
    out.done = true;
}
template <class Description>
task<> await_once(Description what, outcome& out, int* count = nullptr) {
    auto got = co_await std::move(what);
    out.error = error_of(got);
    if constexpr (std::is_same_v<decltype(got), result<std::size_t>>)
        out.size = got ? *got : 0;
    out.order = count != nullptr ? ++*count : 0;
    out.done = true;
}

/// Everything that is ready runs, and what that makes ready.
inline task<> settle(int rounds = 20) {
    for (int i = 0; i < rounds; ++i)
        co_await nowait::yield();
}

template <class Writer>
task<std::error_code> write_whole(const Writer& writer, std::string_view text) {
    while (!text.empty()) {
        auto n = co_await writer.write(text);
        if (!n)
            co_return n.error();
        text.remove_prefix(*n);
    }
    co_return std::error_code{};
}
template <class Reader>
task<std::string> read_to_end(const Reader& reader, std::size_t step = 777) {
    std::string all;
    std::string buffer(step, '?');
    for (;;) {
        auto n = co_await reader.read(room(buffer));
        if (!n)
            throw std::system_error(n.error(), "read");
        if (*n == 0)
            co_return all;
        all.append(buffer, 0, *n);
    }
}
/// Fills every slot with one page.
template <class Channel>
void fill(const Channel& channel) {
    const std::string one(page, 'f');
    while (channel.writer.try_write(std::string_view(one))) {
    }
}

} // namespace nowait_test::channels
