// A directory of FIFOs, and peers that are not ours.
#pragma once

#include "catch.hpp"
#include "runs.hpp"

#include <nowait/nowait.hpp>

#include <array>
#include <chrono>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace fifo_tests {

using namespace std::chrono_literals;
using nowait::open_options;
using nowait::pipe_reader;
using nowait::pipe_writer;
using nowait::result;
using nowait::task;

class unique_fd {
public:
    explicit unique_fd(int fd = -1) noexcept : fd_(fd) {}
    unique_fd(unique_fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    unique_fd& operator=(unique_fd&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~unique_fd() { reset(); }
    void reset() noexcept {
        if (fd_ >= 0)
            ::close(std::exchange(fd_, -1));
    }
    [[nodiscard]] int get() const noexcept { return fd_; }

private:
    int fd_;
};

/// A directory, gone with the test.
class scratch {
public:
    scratch() { REQUIRE(::mkdtemp(path_) != nullptr); }
    scratch(const scratch&) = delete;
    scratch& operator=(const scratch&) = delete;
    ~scratch() {
        for (const auto& name : names_)
            ::unlink(name.c_str());
        ::rmdir(path_);
    }
    std::string name(const std::string& of) {
        names_.push_back(std::string(path_) + "/" + of);
        return names_.back();
    }
    std::string fifo(const std::string& of = "fifo") {
        const std::string path = name(of);
        REQUIRE(nowait::make_fifo(path));
        return path;
    }
    [[nodiscard]] std::string path() const { return path_; }

private:
    char path_[32] = "/tmp/nowait-fifo-XXXXXX";
    std::vector<std::string> names_;
};

/// Both drivers, one after the other.
inline nowait::runtime_options each_driver() {
    nowait::runtime_options options;
    options.driver = GENERATE(nowait::driver_choice::uring, nowait::driver_choice::poll);
    return options;
}

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

/// Reads once and keeps what came.
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

inline std::size_t open_descriptors() {
    std::size_t count = 0;
    DIR* const list = ::opendir("/proc/self/fd");
    REQUIRE(list != nullptr);
    while (const dirent* const entry = ::readdir(list))
        count += entry->d_name[0] != '.';
    ::closedir(list);
    return count - 1;
}

} // namespace fifo_tests
