// The calls of the real system that need more than a pipe: queues and threads.
#include "catch.hpp"

#include <nowait/detail/system.hpp>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

using namespace nowait::detail;

namespace {

struct minimal : nowait::detail::system { // a world with pipes only
    long read(int, const iovec*, int) noexcept override { return -EBADF; }
    long write(int, const iovec*, int) noexcept override { return -EBADF; }
    long read_nowait(int, const iovec*, int) noexcept override { return -EBADF; }
    long write_nowait(int, const iovec*, int) noexcept override { return -EBADF; }
    long receive(int, const iovec*, int) noexcept override { return -EBADF; }
    long send(int, const iovec*, int) noexcept override { return -EBADF; }
    long splice(int, int, std::size_t) noexcept override { return -EBADF; }
    long tee(int, int, std::size_t) noexcept override { return -EBADF; }
    int ready(int, int) noexcept override { return -EBADF; }
    int make_pipe(int (&)[2], bool) noexcept override { return -EMFILE; }
    int close(int) noexcept override { return -EBADF; }
    int inspect(int, file_info&) noexcept override { return -EBADF; }
    int set_nonblocking(int) noexcept override { return -EBADF; }
    int reopen_nonblocking(int, bool) noexcept override { return -EBADF; }
    int duplicate(int) noexcept override { return -EBADF; }
    long pipe_size(int) noexcept override { return -EBADF; }
    long set_pipe_size(int, std::size_t) noexcept override { return -EBADF; }
    long available(int) noexcept override { return -EBADF; }
    std::chrono::steady_clock::time_point now() noexcept override { return {}; }
};

} // namespace

TEST_CASE("queue attempts never wait, though the description may") {
    nowait::detail::system& kernel = real_system();
    const std::string name = "/nowait-system-" + std::to_string(::getpid());
    const queue_attributes limits{1, 8, 0, 0};
    const int queue = kernel.queue_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600, &limits);
    REQUIRE(queue >= 0);
    CHECK(kernel.queue_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600, &limits) == -EEXIST);
    CHECK((::fcntl(queue, F_GETFD) & FD_CLOEXEC) != 0);

    char text[8];
    unsigned priority = 77;
    CHECK(kernel.queue_receive(queue, text, sizeof text, priority) == -EAGAIN);
    CHECK(kernel.queue_send(queue, "seven", 5, 7) == 0);
    CHECK(kernel.queue_send(queue, "more", 4, 1) == -EAGAIN);
    queue_attributes found;
    CHECK(kernel.queue_inspect(queue, found) == 0);
    CHECK(found.capacity == 1);
    CHECK(found.message_size == 8);
    CHECK(found.messages == 1);
    CHECK(found.flags == 0);
    CHECK(kernel.queue_receive(queue, text, 7, priority) == -EMSGSIZE);
    CHECK(kernel.queue_receive_waiting(queue, text, sizeof text, priority) == 5);
    CHECK(priority == 7);
    CHECK(std::memcmp(text, "seven", 5) == 0);

    CHECK(kernel.queue_unlink(name.c_str()) == 0);
    CHECK(kernel.queue_unlink(name.c_str()) == -ENOENT);
    CHECK(kernel.close(queue) == 0);
}

TEST_CASE("a started thread has its name and leaves all signals to the program") {
    struct report {
        char name[16] = {};
        bool takes_signals = true;
    } seen;
    thread_handle thread{};
    REQUIRE(real_system().start_thread(
                "nowait-twenty-characters",
                [](void* raw) {
                    auto& out = *static_cast<report*>(raw);
                    ::pthread_getname_np(::pthread_self(), out.name, sizeof out.name);
                    sigset_t blocked;
                    ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
                    out.takes_signals =
                        ::sigismember(&blocked, SIGTERM) == 0 || ::sigismember(&blocked, SIGINT) == 0;
                },
                &seen, thread) == 0);
    REQUIRE(real_system().join_thread(thread) == 0);
    CHECK(std::string(seen.name) == "nowait-twenty-c");
    CHECK_FALSE(seen.takes_signals);
}

TEST_CASE("a world without files, queues and threads says so") {
    minimal small;
    queue_attributes attributes;
    unsigned priority = 0;
    thread_handle thread{};
    CHECK(small.open("/dev/null", O_RDONLY, 0) == -ENOSYS);
    CHECK(small.queue_open("/q", O_RDWR, 0, nullptr) == -ENOSYS);
    CHECK(small.queue_unlink("/q") == -ENOSYS);
    CHECK(small.queue_inspect(3, attributes) == -ENOSYS);
    CHECK(small.queue_send(3, "", 0, 0) == -ENOSYS);
    CHECK(small.queue_receive(3, nullptr, 0, priority) == -ENOSYS);
    CHECK(small.queue_receive_waiting(3, nullptr, 0, priority) == -ENOSYS);
    CHECK(small.start_thread("x", [](void*) {}, nullptr, thread) == -ENOSYS);
    CHECK(small.join_thread(thread) == -ENOSYS);
    CHECK(small.signal_thread(thread, 0) == -ENOSYS);
}
