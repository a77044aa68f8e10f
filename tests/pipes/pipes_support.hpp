// What the tests of kernel pipes share.
#pragma once

#include "catch.hpp"

#include <nowait/detail/system.hpp>
#include <nowait/nowait.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define PIPES_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define PIPES_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PIPES_ASAN 1
#elif __has_feature(thread_sanitizer)
#define PIPES_TSAN 1
#endif
#endif

namespace pipes {

using namespace std::chrono_literals;
using nowait::result;
using nowait::task;

#if defined(PIPES_ASAN) || defined(PIPES_TSAN)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

/// Whether the suite runs on io_uring, and with RWF_NOWAIT: what a test says of the driver's calls, or of the rung that a
/// borrowed pipe stands on, holds for that.
inline bool on_ring() {
    const char* asked = std::getenv("NOWAIT_DRIVER");
    return asked == nullptr || std::string_view(asked) != "poll";
}
/// Whether a look at the outside costs a call of its own while anything is armed: epoll's does, and so does that of a ring whose
/// completions wait in the kernel without a sign. The loop then pays one for each pass, which is what fairness asks for: a pass
/// is 64 resumptions or 100 us, and what has come meanwhile is to be seen after no more than that.
inline bool looks_by_call() {
    using nowait::detail::feature;
    const auto& calls = nowait::detail::real_system();
    return !on_ring() || (calls.has(feature::defer_taskrun) && !calls.has(feature::taskrun_flag));
}
inline std::string_view first_rung() {
    const char* masked = std::getenv("NOWAIT_FEATURES");
    const std::string features = masked == nullptr ? "" : std::string(",") + masked + ",";
    return features.find(",-nowait,") == std::string::npos ? "RWF_NOWAIT" : "non-blocking description";
}

inline std::span<const std::byte> bytes_of(std::string_view text) noexcept {
    return std::as_bytes(std::span(text.data(), text.size()));
}
inline std::span<std::byte> room_in(std::string& text) noexcept {
    return std::as_writable_bytes(std::span(text.data(), text.size()));
}
template <std::size_t N>
std::span<std::byte> room_in(std::array<char, N>& text) noexcept {
    return std::as_writable_bytes(std::span(text));
}

/// The error of a result as an errno value; 0 if there is none.
template <class T>
int error_of(const result<T>& r) noexcept {
    return r ? 0 : r.error().value();
}

/// A repeatable stream of bytes.
inline std::string pattern(std::size_t size, unsigned seed = 1) {
    std::string text(size, '\0');
    unsigned state = seed * 2654435761u + 1;
    for (char& c : text) {
        state = state * 1664525u + 1013904223u;
        c = static_cast<char>(state >> 24);
    }
    return text;
}

inline nowait::runtime make_runtime(nowait::runtime_options options = {}) {
    auto made = nowait::runtime::create(std::move(options));
    REQUIRE(made);
    return std::move(*made);
}

inline nowait::pipe_pair make_pipe(nowait::pipe_options options = {}) {
    auto made = nowait::make_pipe(options);
    if (!made)
        throw std::system_error(made.error(), "make_pipe");
    return std::move(*made);
}

/// A number that closes itself.
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
    [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }

private:
    int fd_;
};

struct raw_pipe {
    unique_fd read;
    unique_fd write;
};

/// A pipe as a shell makes it: blocking.
inline raw_pipe make_raw_pipe(int flags = O_CLOEXEC) {
    int ends[2];
    if (::pipe2(ends, flags) != 0)
        throw std::system_error(errno, std::generic_category(), "pipe2");
    return {unique_fd(ends[0]), unique_fd(ends[1])};
}

inline int status_flags(int fd) noexcept {
    return ::fcntl(fd, F_GETFL);
}

inline std::size_t open_descriptors() {
    std::size_t count = 0;
    DIR* const list = ::opendir("/proc/self/fd");
    REQUIRE(list != nullptr);
    while (const dirent* const entry = ::readdir(list))
        count += entry->d_name[0] != '.';
    ::closedir(list);
    return count - 1; // the list itself
}

/// The threads of this process that are kernel workers of a ring.
inline std::set<std::string> ring_workers() {
    std::set<std::string> workers;
    DIR* const tasks = ::opendir("/proc/self/task");
    REQUIRE(tasks != nullptr);
    while (const dirent* const entry = ::readdir(tasks)) {
        const std::string path = std::string("/proc/self/task/") + entry->d_name + "/comm";
        if (std::FILE* const file = std::fopen(path.c_str(), "r")) {
            char name[32] = {};
            if (std::fgets(name, sizeof name, file) != nullptr && std::strncmp(name, "iou-wrk", 7) == 0)
                workers.insert(entry->d_name);
            std::fclose(file);
        }
    }
    ::closedir(tasks);
    return workers;
}

/// What uses pipes starts no workers; those of earlier tests, on files, may still be about.
class no_new_workers {
public:
    ~no_new_workers() {
        for (const auto& one : ring_workers())
            CHECK(before_.contains(one));
    }

private:
    std::set<std::string> before_ = ring_workers();
};

/// Runs `body` in a child process, where it may change limits, users and standard streams. Its return value is the
/// child's exit status, and what this returns; a death by signal is 128 + its number.
template <class Body>
int in_child(Body&& body) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        int status = 120;
        try {
            status = body();
        } catch (const std::exception& e) {
            std::fprintf(stderr, "child: %s\n", e.what());
        }
        ::_exit(status);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// For child processes, where the macros of the test framework are of no use: says what failed, and with which line.
#define CHILD_REQUIRE(...)                                                                 \
    do {                                                                                   \
        if (!(__VA_ARGS__)) {                                                              \
            std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #__VA_ARGS__); \
            return 1;                                                                      \
        }                                                                                  \
    } while (false)

/// The same inside a task<int>.
#define CHILD_CO_REQUIRE(...)                                                              \
    do {                                                                                   \
        if (!(__VA_ARGS__)) {                                                              \
            std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #__VA_ARGS__); \
            co_return 1;                                                                   \
        }                                                                                  \
    } while (false)

inline const nowait::operation_stats& reads(const nowait::runtime_stats& s) {
    return s.of(nowait::operation_kind::read);
}
inline const nowait::operation_stats& writes(const nowait::runtime_stats& s) {
    return s.of(nowait::operation_kind::write);
}

/// Reads once and keeps what came. For spawn(): the parameters outlive the frame.
struct outcome {
    bool done = false;
    result<std::size_t> value = nowait::fail(std::errc::operation_in_progress);
};

inline task<> read_into(const nowait::pipe_reader& reader, std::span<std::byte> room, outcome& out) {
    out.value = co_await reader.read(room);
    out.done = true;
}
inline task<> write_from(const nowait::pipe_writer& writer, std::string_view text, outcome& out) {
    out.value = co_await writer.write(text);
    out.done = true;
}

/// Lets everything that is ready run, looks outside included.
inline task<> settle(int rounds = 200) {
    for (int i = 0; i < rounds; ++i)
        co_await nowait::yield();
}

/// Lets everything run until all of them have ended.
inline task<> all_done(std::span<const outcome> of) {
    for (const outcome& one : of) {
        while (!one.done)
            co_await nowait::yield();
    }
}

/// Writes everything, short writes or not.
inline task<std::error_code> write_whole(const nowait::pipe_writer& writer, std::string_view text) {
    while (!text.empty()) {
        auto n = co_await writer.write(text);
        if (!n)
            co_return n.error();
        text.remove_prefix(*n);
    }
    co_return std::error_code{};
}

/// Reads to the end of the stream, `step` bytes at a time.
inline task<std::error_code> read_to_end(const nowait::pipe_reader& reader, std::string& into,
                                         std::size_t step = 4096) {
    std::string buffer(step, '\0');
    for (;;) {
        auto n = co_await reader.read(room_in(buffer));
        if (!n)
            co_return n.error();
        if (*n == 0)
            co_return std::error_code{};
        into.append(buffer, 0, *n);
    }
}

} // namespace pipes
