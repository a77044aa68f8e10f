// pump as a child process, with ends that the test holds too.
#pragma once

#include "catch.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

namespace pump_tests {

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

private:
    int fd_;
};

struct ends {
    unique_fd read;
    unique_fd write;
};

/// A pipe as a shell makes it, blocking; close-on-exec here, so that only pump's ends are pump's.
inline ends make_pipe(int flags = 0) {
    int numbers[2] = {-1, -1};
    REQUIRE(::pipe2(numbers, O_CLOEXEC | flags) == 0);
    return {unique_fd(numbers[0]), unique_fd(numbers[1])};
}

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
        REQUIRE(n >= 0);
        if (n == 0)
            break;
        got += static_cast<std::size_t>(n);
    }
    text.resize(got);
    return text;
}

inline std::string take_all(int fd) {
    std::string text;
    for (;;) {
        const std::string more = take(fd, 65536);
        text += more;
        if (more.size() < 65536)
            return text;
    }
}

/// A running pump. Killed and waited for at the end of its scope.
class pump {
public:
    struct setup {
        int in = -1;
        int out = -1;
        int err = -1;
        std::vector<std::string> arguments{};
        bool own_terminal = false; ///< a session of its own, with `in` as its controlling terminal
    };

    explicit pump(const setup& how) {
        std::vector<std::string> words{NOWAIT_EXAMPLES_DIR "/pump"};
        words.insert(words.end(), how.arguments.begin(), how.arguments.end());
        std::vector<char*> pointers;
        for (std::string& word : words)
            pointers.push_back(word.data());
        pointers.push_back(nullptr);
        id_ = ::fork();
        REQUIRE(id_ >= 0);
        if (id_ != 0)
            return;
        // Only async-signal-safe calls from here on. Numbers above 2, then dup2: no end is overwritten by another.
        int given[3] = {how.in, how.out, how.err};
        for (int number = 0; number < 3; ++number)
            given[number] = given[number] < 0 ? ::open("/dev/null", O_RDWR | O_CLOEXEC)
                                              : ::fcntl(given[number], F_DUPFD_CLOEXEC, 3);
        for (int number = 0; number < 3; ++number)
            ::dup2(given[number], number);
        if (how.own_terminal && (::setsid() < 0 || ::ioctl(0, TIOCSCTTY, 0) != 0))
            ::_exit(126);
        ::execv(pointers[0], pointers.data());
        ::_exit(127);
    }
    pump(const pump&) = delete;
    pump& operator=(const pump&) = delete;
    ~pump() {
        if (id_ > 0) {
            ::kill(id_, SIGKILL);
            ::waitpid(id_, nullptr, 0);
        }
    }

    /// Returns: the exit status, or 1000 + the signal that ended it.
    int wait() {
        int status = 0;
        REQUIRE(::waitpid(std::exchange(id_, -1), &status, 0) > 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    }
    void signal(int number) const { REQUIRE(::kill(id_, number) == 0); }

    /// Returns when the kernel says that it sleeps: it has done what it could.
    void until_asleep() const {
        for (;;) {
            std::ifstream file("/proc/" + std::to_string(id_) + "/stat");
            std::stringstream text;
            text << file.rdbuf();
            const std::string line = text.str();
            const std::size_t name_end = line.rfind(')');
            REQUIRE(name_end != std::string::npos);
            const char state = line.at(name_end + 2);
            REQUIRE(state != 'Z');
            if (state == 'S')
                return;
            ::sched_yield();
        }
    }

private:
    pid_t id_ = -1;
};

/// A pseudo-terminal: what is written to `master` was typed, what is read from it is on the screen.
struct terminal {
    unique_fd master{::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)};
    unique_fd slave;

    terminal() {
        REQUIRE(master.get() >= 0);
        REQUIRE(::grantpt(master.get()) == 0);
        REQUIRE(::unlockpt(master.get()) == 0);
        slave = unique_fd(::open(::ptsname(master.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
        REQUIRE(slave.get() >= 0);
    }

    [[nodiscard]] std::string settings() const {
        termios now{};
        REQUIRE(::tcgetattr(slave.get(), &now) == 0);
        return std::string(reinterpret_cast<const char*>(now.c_cc), sizeof now.c_cc) + ' ' +
               std::to_string(now.c_iflag) + ' ' + std::to_string(now.c_oflag) + ' ' +
               std::to_string(now.c_lflag) + ' ' + std::to_string(now.c_cflag);
    }
    /// The screen up to and with `text`.
    [[nodiscard]] std::string screen_until(std::string_view text) const {
        std::string seen;
        while (seen.find(text) == std::string::npos)
            seen += take(master.get(), 1);
        return seen;
    }
};

} // namespace pump_tests
