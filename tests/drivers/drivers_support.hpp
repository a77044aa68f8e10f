// What the tests of the drivers share.
#pragma once

#include "catch.hpp"
#include "child_process.hpp"
#include "runs.hpp"
#include "sandbox.hpp"

#include <nowait/nowait.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace drivers_tests {

using namespace std::chrono_literals;
using nowait::driver_choice;
using nowait::pipe_reader;
using nowait::pipe_writer;
using nowait::result;
using nowait::runtime;
using nowait::runtime_options;
using nowait::task;
using nowait_test::in_child;
using nowait_test::make_runtime;
using nowait_test::refuse;

/// For child processes: says what failed, and with which line.
#define CHILD_REQUIRE(...)                                                                 \
    do {                                                                                   \
        if (!(__VA_ARGS__)) {                                                              \
            std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #__VA_ARGS__); \
            return 1;                                                                      \
        }                                                                                  \
    } while (false)
#define CHILD_CO_REQUIRE(...)                                                              \
    do {                                                                                   \
        if (!(__VA_ARGS__)) {                                                              \
            std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #__VA_ARGS__); \
            co_return 1;                                                                   \
        }                                                                                  \
    } while (false)

template <std::size_t N>
std::span<std::byte> room_in(std::array<char, N>& text) noexcept {
    return std::as_writable_bytes(std::span(text));
}

template <class T>
int error_of(const result<T>& r) noexcept {
    return r ? 0 : r.error().value();
}

/// What a read gave: the text, or "error N"; the end is "".
inline task<std::string> read_text(const pipe_reader& from) {
    std::array<char, 64> room{};
    const auto got = co_await from.read(room_in(room));
    if (!got)
        co_return "error " + std::to_string(got.error().value());
    co_return std::string(room.data(), *got);
}

struct outcome {
    bool done = false;
    std::string text;
};
inline task<> read_into(const pipe_reader& from, outcome& out) {
    out.text = co_await read_text(from);
    out.done = true;
}

/// Lets everything that is ready run, looks outside included.
inline task<> settle(int rounds = 200) {
    for (int i = 0; i < rounds; ++i)
        co_await nowait::yield();
}

inline void expect_success(const nowait_test::child_end& end) {
    INFO(end.errors);
    CHECK(end.signal == 0);
    CHECK(end.exit_code == 0);
}

} // namespace drivers_tests
