// What the tests on real threads share.
#pragma once

#include "catch.hpp"

#include <nowait/blocking.hpp>
#include <nowait/runtime.hpp>
#include <nowait/sleep.hpp>
#include <nowait/worker_pool.hpp>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace nowait_test {

/// Opened once; whoever passes before that waits.
class gate {
public:
    void open() {
        std::lock_guard held(mutex_);
        open_ = true;
        changed_.notify_all();
    }
    void pass() {
        std::unique_lock held(mutex_);
        changed_.wait(held, [this] { return open_; });
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool open_ = false;
};

[[nodiscard]] inline nowait::worker_pool make_pool(const nowait::worker_pool_options& options = {}) {
    auto made = nowait::worker_pool::create(options);
    if (!made)
        FAIL("no pool: " << made.error().message());
    return std::move(*made);
}

/// A pipe whose read end blocks.
struct blocking_pipe {
    int ends[2] = {-1, -1};
    blocking_pipe() {
        if (::pipe2(ends, O_CLOEXEC) != 0)
            FAIL("no pipe");
    }
    ~blocking_pipe() {
        ::close(ends[0]);
        ::close(ends[1]);
    }
    blocking_pipe(const blocking_pipe&) = delete;
    blocking_pipe& operator=(const blocking_pipe&) = delete;
    void put(char byte) {
        if (::write(ends[1], &byte, 1) != 1)
            FAIL("no write");
    }
};

/// read(2) of one byte.
[[nodiscard]] inline nowait::result<char> read_byte(int fd) {
    char byte = 0;
    const ssize_t n = ::read(fd, &byte, 1);
    if (n < 0)
        return nowait::fail_errno(errno);
    return byte;
}

} // namespace nowait_test
