// What the tests of POSIX queues share. Limits are small: all queues of a user share RLIMIT_MSGQUEUE, and tests run side by side.
#pragma once

#include "catch.hpp"
#include "child_process.hpp"
#include "runs.hpp"

#include <nowait/nowait.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <mqueue.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace queues {

using namespace std::chrono_literals;
using nowait::mqueue_access;
using nowait::mqueue_open;
using nowait::owned_posix_mqueue;
using nowait::posix_mqueue;
using nowait::posix_mqueue_options;
using nowait::result;
using nowait::task;
using nowait_test::in_child;
using nowait_test::make_runtime;
using nowait_test::run_on_new;

inline constexpr std::size_t message_bytes = 128;
using buffer = std::array<std::byte, message_bytes>;

/// A name that no other test uses.
inline std::string fresh_name() {
    static std::atomic<int> next{0};
    return "/nowait_test_" + std::to_string(::getpid()) + "_" + std::to_string(next++);
}

inline posix_mqueue_options small(std::size_t capacity = 8) {
    posix_mqueue_options options;
    options.how = mqueue_open::create;
    options.capacity = capacity;
    options.message_bytes = message_bytes;
    return options;
}

/// A queue of its own, gone with its object.
inline owned_posix_mqueue make_queue(std::size_t capacity = 8) {
    auto made = owned_posix_mqueue::open(fresh_name(), small(capacity));
    if (!made)
        throw std::system_error(made.error(), nowait::explain(made.error(), nowait::subject::posix_queue));
    return std::move(*made);
}

/// The same queue through another description.
inline posix_mqueue reopen(const owned_posix_mqueue& queue, mqueue_access access = mqueue_access::both) {
    posix_mqueue_options options;
    options.access = access;
    auto opened = posix_mqueue::open(queue.name(), options);
    if (!opened)
        throw std::system_error(opened.error(), "mq_open " + queue.name());
    return std::move(*opened);
}

template <class T>
int error_of(const result<T>& r) noexcept {
    return r ? 0 : r.error().value();
}

inline std::string text_of(std::span<const std::byte> bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

/// "priority:text", or the error's number.
template <class Bytes>
std::string shown(const result<nowait::message<Bytes>>& got) {
    if (!got)
        return "error " + std::to_string(got.error().value());
    return std::to_string(got->priority) + ":" + text_of(got->value);
}

inline task<> settle(int rounds = 200) {
    for (int i = 0; i < rounds; ++i)
        co_await nowait::yield();
}

struct received {
    bool done = false;
    std::string what;
};

inline task<> receive_into(const posix_mqueue& queue, received& out) {
    buffer room;
    auto got = co_await queue.receive(room);
    out.what = shown(got);
    out.done = true;
}

struct sent {
    bool done = false;
    int error = -1;
};

inline task<> send_from(const posix_mqueue& queue, std::string_view text, unsigned priority, sent& out) {
    auto done = co_await queue.send(text, priority);
    out.error = error_of(done);
    out.done = true;
}

template <class Out>
task<> until_done(const Out& of) {
    while (!of.done)
        co_await nowait::yield();
}

/// A user without queues. False where that is not allowed.
inline bool become_nobody(unsigned who) {
    return ::setgroups(0, nullptr) == 0 && ::setresgid(who, who, who) == 0 && ::setresuid(who, who, who) == 0;
}
inline constexpr int not_allowed = 77;

/// For child processes, where the macros of the test framework are of no use.
#define CHILD_REQUIRE(...)                                                                 \
    do {                                                                                   \
        if (!(__VA_ARGS__)) {                                                              \
            std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #__VA_ARGS__); \
            return 1;                                                                      \
        }                                                                                  \
    } while (false)

inline void check_child(const nowait_test::child_end& end) {
    INFO(end.errors);
    if (end.exit_code == not_allowed)
        WARN("not allowed here: " << end.errors);
    else
        CHECK((end.exit_code == 0 && end.signal == 0));
}

/// A process that runs `body` beside the test; killed at the latest when this goes.
class other_process {
public:
    explicit other_process(const std::function<int()>& body) {
        std::fflush(nullptr);
        pid_ = ::fork();
        if (pid_ == 0) {
            ::alarm(60);
            ::_exit(body());
        }
    }
    other_process(const other_process&) = delete;
    other_process& operator=(const other_process&) = delete;
    ~other_process() {
        if (pid_ > 0) {
            kill();
            (void)wait();
        }
    }
    void kill() const { ::kill(pid_, SIGKILL); }
    /// The exit status, or 128 and the signal.
    int wait() {
        int status = 0;
        while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
        }
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    [[nodiscard]] pid_t pid() const noexcept { return pid_; }

private:
    pid_t pid_ = -1;
};

/// Waits until a thread of another process sleeps in the system call of that number.
inline bool sleeps_in(pid_t process, long call) {
    const std::string path = "/proc/" + std::to_string(process) + "/syscall";
    for (int i = 0; i < 200'000; ++i) {
        if (std::FILE* const file = std::fopen(path.c_str(), "r")) {
            long number = -1;
            const int fields = std::fscanf(file, "%ld", &number);
            std::fclose(file);
            if (fields == 1 && number == call)
                return true;
        }
        ::sched_yield();
    }
    return false;
}

} // namespace queues
