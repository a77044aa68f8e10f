// Child processes with whatever a person may have on standard input, output and error.
#pragma once

#include "catch.hpp"

#include <nowait/nowait.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

namespace standard_tests {

using namespace std::chrono_literals;
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

/// Our end, and the one that a child is given.
struct ends {
    unique_fd near;
    unique_fd far;
};

inline int status_flags(int fd) {
    const int flags = ::fcntl(fd, F_GETFL);
    REQUIRE(flags >= 0);
    return flags;
}

inline void put(int fd, std::string_view text) {
    REQUIRE(::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

/// Exactly `size` bytes, or what there is until the end.
inline std::string take(int fd, std::size_t size) {
    std::string text(size, '\0');
    std::size_t got = 0;
    while (got < size) {
        const ssize_t n = ::read(fd, text.data() + got, size - got);
        if (n <= 0)
            break;
        got += static_cast<std::size_t>(n);
    }
    text.resize(got);
    return text;
}

/// A child's exit status as the tests see it: its code, or 1000 + the signal.
inline int wait_for(pid_t child) {
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

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

private:
    char path_[36] = "/tmp/nowait-standard-XXXXXX";
    std::vector<std::string> names_;
};

/// What a stream can be that has a peer. `reads`: the child reads from it.
enum class kind {
    pipe,
    fifo,
    terminal,
    terminal_master,
    socket,
    nonblocking_pipe,
    nonblocking_terminal,
    nonblocking_socket
};
inline const char* name_of(kind k) {
    static constexpr const char* names[] = {"pipe",
                                            "FIFO",
                                            "terminal",
                                            "terminal's master",
                                            "socket",
                                            "non-blocking pipe",
                                            "non-blocking terminal",
                                            "non-blocking socket"};
    return names[static_cast<int>(k)];
}

inline ends open_pair(kind k, bool child_reads, scratch& dir) {
    const auto two = [&](int reading, int writing) {
        return child_reads ? ends{unique_fd(writing), unique_fd(reading)}
                           : ends{unique_fd(reading), unique_fd(writing)};
    };
    switch (k) {
    case kind::pipe:
    case kind::nonblocking_pipe: {
        int numbers[2];
        REQUIRE(::pipe2(numbers, O_CLOEXEC) == 0);
        ends made = two(numbers[0], numbers[1]);
        if (k == kind::nonblocking_pipe)
            REQUIRE(::fcntl(made.far.get(), F_SETFL, O_NONBLOCK) == 0);
        return made;
    }
    case kind::fifo: {
        const std::string path = dir.name("fifo" + std::to_string(child_reads));
        REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
        const int reading = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        const int writing = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
        REQUIRE((reading >= 0 && writing >= 0));
        REQUIRE(::fcntl(reading, F_SETFL, 0) == 0);
        return two(reading, writing);
    }
    case kind::socket:
    case kind::nonblocking_socket: {
        int numbers[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, numbers) == 0);
        if (k == kind::nonblocking_socket)
            REQUIRE(::fcntl(numbers[1], F_SETFL, O_RDWR | O_NONBLOCK) == 0);
        return {unique_fd(numbers[0]), unique_fd(numbers[1])};
    }
    default: {
        unique_fd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
        REQUIRE((master.get() >= 0 && ::grantpt(master.get()) == 0 && ::unlockpt(master.get()) == 0));
        char name[64] = {};
        REQUIRE(::ptsname_r(master.get(), name, sizeof name) == 0);
        unique_fd slave(::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
        REQUIRE(slave.get() >= 0);
        termios raw{};
        REQUIRE(::tcgetattr(slave.get(), &raw) == 0);
        ::cfmakeraw(&raw);
        REQUIRE(::tcsetattr(slave.get(), TCSANOW, &raw) == 0);
        if (k == kind::nonblocking_terminal)
            REQUIRE(::fcntl(slave.get(), F_SETFL, O_RDWR | O_NONBLOCK) == 0);
        if (k == kind::terminal_master)
            return {std::move(slave), std::move(master)};
        return {std::move(master), std::move(slave)};
    }
    }
}

inline kind any_kind() {
    return GENERATE(kind::pipe, kind::fifo, kind::terminal, kind::terminal_master, kind::socket,
                    kind::nonblocking_pipe, kind::nonblocking_terminal, kind::nonblocking_socket);
}

/// Both drivers, one after the other.
inline nowait::driver_choice any_driver() {
    return GENERATE(nowait::driver_choice::uring, nowait::driver_choice::poll);
}

struct streams {
    int in = -1; ///< -1: as the test has it; closed_stream: none at all
    int out = -1;
    int err = -1;
};
inline constexpr int closed_stream = -2;

/// Runs `body` in a child with these streams; the process that calls gets its id.
inline pid_t start(const streams& given, const std::function<int()>& body) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child != 0)
        return child;
    ::alarm(60); // a child that hangs dies by itself
    const int wanted[3] = {given.in, given.out, given.err};
    for (int number = 0; number < 3; ++number) {
        if (wanted[number] == closed_stream)
            ::close(number);
        else if (wanted[number] >= 0)
            ::dup2(wanted[number], number);
    }
    ::close_range(3, ~0u, 0); // the near ends are the test's
    int code = 125;
    try {
        code = body();
    } catch (...) {
        code = 126;
    }
    ::_exit(code);
}

/// Runs `root(...)` on a runtime of its own; a child's exit code: what the root gives, or 100 and more.
template <class Make>
int run_root(nowait::driver_choice choice, Make make) {
    nowait::runtime_options options;
    options.driver = choice;
    auto made = nowait::runtime::create(options);
    if (!made)
        return 100;
    auto ended = made->run(make());
    return ended ? *ended : 101;
}

/// Until the child sleeps in the kernel, all its threads.
inline void until_asleep(pid_t child) {
    for (;;) {
        const std::string path = "/proc/" + std::to_string(child) + "/stat";
        std::FILE* const file = std::fopen(path.c_str(), "r");
        REQUIRE(file != nullptr);
        char text[512] = {};
        const std::size_t n = std::fread(text, 1, sizeof text - 1, file);
        std::fclose(file);
        const std::string_view stat(text, n);
        const auto end = stat.rfind(')');
        REQUIRE(end != std::string_view::npos);
        if (stat[end + 2] == 'S')
            return;
        REQUIRE(stat[end + 2] != 'Z'); // it has gone
        ::sched_yield();
    }
}

template <std::size_t N>
std::span<std::byte> room_in(std::array<char, N>& text) noexcept {
    return std::as_writable_bytes(std::span(text));
}

template <class T>
int error_of(const result<T>& r) noexcept {
    return r ? 0 : r.error().value();
}

} // namespace standard_tests
