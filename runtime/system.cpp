// The real system: the kernel's calls, with their errors as values and without their signals.
#include "queue_names.hpp"
#include "signals_dispositions.hpp"
#include "sigpipe_guard.hpp"

#include <nowait/detail/sync.hpp>
#include <nowait/detail/system.hpp>
#include <nowait/detail/system_call.hpp>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/netlink.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen) noexcept {
    ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr,
              0);
}

void futex_wait_until(std::atomic<std::uint32_t>& word, std::uint32_t seen,
                      std::chrono::steady_clock::time_point until) noexcept {
    if (until == std::chrono::steady_clock::time_point::max()) {
        futex_wait(word, seen);
        return;
    }
    const auto span = until.time_since_epoch();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(span);
    const timespec absolute{
        static_cast<std::time_t>(seconds.count()),
        static_cast<long>(std::chrono::duration_cast<std::chrono::nanoseconds>(span - seconds).count())};
    ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_BITSET_PRIVATE, seen, &absolute,
              nullptr, FUTEX_BITSET_MATCH_ANY);
}

void futex_wake(std::atomic<std::uint32_t>& word, int count) noexcept {
    ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr,
              0);
}

void futex_lock::lock_contended() noexcept {
    // The lock is held for a few dozen nanoseconds: look a little before sleeping.
    for (int i = 0; i < 64; ++i) {
        std::uint32_t expected = 0;
        if (word_.load(std::memory_order_relaxed) == 0 &&
            word_.compare_exchange_strong(expected, 1, std::memory_order_acquire, std::memory_order_relaxed))
            return;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    // From here on the word says "somebody sleeps": whoever unlocks wakes one. Acquire pairs with unlock's release.
    while (word_.exchange(2, std::memory_order_acquire) != 0)
        futex_wait(word_, 2);
}

system::~system() = default;

int system::open(const char*, int, unsigned) noexcept {
    return -ENOSYS;
}
int system::make_fifo(const char*, unsigned) noexcept {
    return -ENOSYS;
}
long system::read_waiting(int, void*, std::size_t) noexcept {
    return -ENOSYS;
}
long system::write_waiting(int, const void*, std::size_t) noexcept {
    return -ENOSYS;
}
int system::queue_open(const char*, int, unsigned, const queue_attributes*) noexcept {
    return -ENOSYS;
}
int system::queue_unlink(const char*) noexcept {
    return -ENOSYS;
}
int system::queue_inspect(int, queue_attributes&) noexcept {
    return -ENOSYS;
}
long system::queue_send(int, const void*, std::size_t, unsigned) noexcept {
    return -ENOSYS;
}
long system::queue_receive(int, void*, std::size_t, unsigned&) noexcept {
    return -ENOSYS;
}
long system::queue_receive_waiting(int, void*, std::size_t, unsigned&) noexcept {
    return -ENOSYS;
}
int system::notification_socket() noexcept {
    return -ENOSYS;
}
int system::queue_notify(int, int, const std::byte*) noexcept {
    return -ENOSYS;
}
int system::queue_forget(int) noexcept {
    return -ENOSYS;
}
int system::list_queues(void (*)(void*, const char*), void*) {
    return -ENOSYS;
}
int system::start_thread(const char*, void (*)(void*), void*, thread_handle&) noexcept {
    return -ENOSYS;
}
int system::join_thread(thread_handle) noexcept {
    return -ENOSYS;
}
int system::detach_thread(thread_handle) noexcept {
    return -ENOSYS;
}
int system::signal_thread(thread_handle, int) noexcept {
    return -ENOSYS;
}
int system::claim_signal(int) noexcept {
    return -ENOSYS;
}
int system::admit_signal(int, bool) noexcept {
    return -ENOSYS;
}
worker_host* system::workers() noexcept {
    return nullptr;
}
std::uint64_t system::blocked_signals() noexcept {
    return 0;
}
void system::block_signals(std::uint64_t) noexcept {}
unsigned system::usable_cpus() noexcept {
    return 1;
}
int system::pin_to_cpu(unsigned) noexcept {
    return -ENOSYS;
}
int system::catch_signal(int, bool, void (*)(int)) noexcept {
    return -ENOSYS;
}
void system::release_signal(int) noexcept {}

namespace {

template <class T>
long negated(T result) noexcept {
    return result >= 0 ? static_cast<long>(result) : -static_cast<long>(errno);
}

class kernel_system final : public system {
public:
    kernel_system() noexcept {
        if (const char* masked = ::secure_getenv("NOWAIT_FEATURES"))
            mask(masked);
        if (has(feature::nosignal) && !probe_nosignal())
            features_ &= ~static_cast<std::uint32_t>(feature::nosignal);
    }

    long read(int fd, const iovec* parts, int count) noexcept override {
        for (;;) {
            const long n = negated(::readv(fd, parts, count));
            if (n != -EINTR)
                return n;
        }
    }
    long write(int fd, const iovec* parts, int count) noexcept override {
        return write_flags(fd, parts, count, 0);
    }
    long read_nowait(int fd, const iovec* parts, int count) noexcept override {
        if (!has(feature::nowait))
            return -EOPNOTSUPP;
        for (;;) {
            const long n = direct_preadv2(fd, parts, count, rwf_nowait);
            if (n != -EINTR)
                return n == -ENOSYS ? -EOPNOTSUPP : n; // a sandbox that is older than the call
        }
    }
    long write_nowait(int fd, const iovec* parts, int count) noexcept override {
        if (!has(feature::nowait))
            return -EOPNOTSUPP;
        return write_flags(fd, parts, count, rwf_nowait);
    }
    long receive(int fd, const iovec* parts, int count) noexcept override {
        msghdr message{};
        message.msg_iov = const_cast<iovec*>(parts);
        message.msg_iovlen = static_cast<std::size_t>(count);
        for (;;) {
            const long n = negated(::recvmsg(fd, &message, MSG_DONTWAIT));
            if (n != -EINTR)
                return n;
        }
    }
    long send(int fd, const iovec* parts, int count) noexcept override {
        msghdr message{};
        message.msg_iov = const_cast<iovec*>(parts);
        message.msg_iovlen = static_cast<std::size_t>(count);
        for (;;) {
            const long n = negated(::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
            if (n != -EINTR)
                return n;
        }
    }
    long splice(int from, int to, std::size_t size) noexcept override {
        sigpipe_guard guard;
        long n = 0;
        do
            n = negated(::splice(from, nullptr, to, nullptr, size, SPLICE_F_NONBLOCK | SPLICE_F_MOVE));
        while (n == -EINTR);
        return guard.finish(n);
    }
    long tee(int from, int to, std::size_t size) noexcept override {
        sigpipe_guard guard;
        long n = 0;
        do
            n = negated(::tee(from, to, size, SPLICE_F_NONBLOCK));
        while (n == -EINTR);
        return guard.finish(n);
    }
    int ready(int fd, int events) noexcept override {
        pollfd one{fd, static_cast<short>(events), 0};
        int n = 0;
        do
            n = ::poll(&one, 1, 0);
        while (n < 0 && errno == EINTR);
        return n < 0 ? -errno : one.revents;
    }

    int make_pipe(int (&ends)[2], bool packets) noexcept override {
        if (::pipe2(ends, O_NONBLOCK | O_CLOEXEC | (packets ? O_DIRECT : 0)) != 0)
            return -errno;
        return 0;
    }
    int close(int fd) noexcept override {
        // Linux frees the number even when close reports EINTR: never again.
        return ::close(fd) == 0 || errno == EINTR ? 0 : -errno;
    }
    int inspect(int fd, file_info& info) noexcept override {
        struct stat status{};
        if (::fstat(fd, &status) != 0)
            return -errno;
        info.flags = ::fcntl(fd, F_GETFL);
        if (info.flags < 0)
            return -errno;
        info.device = status.st_dev;
        info.inode = status.st_ino;
        info.size = 0;
        switch (status.st_mode & S_IFMT) {
        case S_IFIFO: {
            // Anonymous pipes live on pipefs, which has no path: its device is the one of a pipe that we make.
            info.kind = is_anonymous(fd) ? file_kind::pipe : file_kind::fifo;
            break;
        }
        case S_IFSOCK:
            info.kind = file_kind::socket;
            break;
        case S_IFREG:
            info.kind = file_kind::regular;
            info.size = static_cast<std::uint64_t>(status.st_size);
            break;
        case S_IFDIR:
            info.kind = file_kind::directory;
            break;
        case S_IFCHR:
            // The master of a pseudo-terminal calls itself one, but opening it again makes another pair.
            info.kind = ::isatty(fd) == 1 && status.st_rdev != ::makedev(5, 2) ? file_kind::terminal
                                                                               : file_kind::character;
            break;
        case S_IFBLK:
            info.kind = file_kind::block;
            break;
        default:
            info.kind = file_kind::other;
        }
        return 0;
    }
    int set_nonblocking(int fd) noexcept override {
        const int flags = ::fcntl(fd, F_GETFL);
        if (flags < 0)
            return -errno;
        if ((flags & O_NONBLOCK) == 0 && ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
            return -errno;
        const int descriptor_flags = ::fcntl(fd, F_GETFD);
        if (descriptor_flags < 0 || ::fcntl(fd, F_SETFD, descriptor_flags | FD_CLOEXEC) != 0)
            return -errno;
        return 0;
    }
    int reopen_nonblocking(int fd, bool for_reading) noexcept override {
        char path[32];
        std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        const int flags = ::fcntl(fd, F_GETFL);
        if (flags < 0)
            return -errno;
        const int mode = (flags & O_ACCMODE) == O_RDWR ? O_RDWR : for_reading ? O_RDONLY : O_WRONLY;
        const int twin = ::open(path, mode | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (twin < 0)
            return -errno;
        struct stat mine{};
        struct stat theirs{};
        if (::fstat(fd, &theirs) != 0 || ::fstat(twin, &mine) != 0 || mine.st_dev != theirs.st_dev ||
            mine.st_ino != theirs.st_ino) {
            ::close(twin);
            return -ESTALE;
        }
        return twin;
    }
    int duplicate(int fd) noexcept override {
        const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
        return copy >= 0 ? copy : -errno;
    }
    long pipe_size(int fd) noexcept override { return negated(::fcntl(fd, F_GETPIPE_SZ)); }
    long set_pipe_size(int fd, std::size_t size) noexcept override {
        if (size > INT_MAX)
            return -EINVAL;
        return negated(::fcntl(fd, F_SETPIPE_SZ, static_cast<int>(size)));
    }
    long available(int fd) noexcept override {
        int bytes = 0;
        return ::ioctl(fd, FIONREAD, &bytes) == 0 ? bytes : -static_cast<long>(errno);
    }
    std::chrono::steady_clock::time_point now() noexcept override { return std::chrono::steady_clock::now(); }

    int open(const char* path, int flags, unsigned mode) noexcept override {
        const int fd = ::open(path, flags | O_CLOEXEC, static_cast<mode_t>(mode));
        return fd >= 0 ? fd : -errno;
    }
    int make_fifo(const char* path, unsigned mode) noexcept override {
        return ::mkfifo(path, static_cast<mode_t>(mode)) == 0 ? 0 : -errno;
    }

    long read_waiting(int fd, void* data, std::size_t size) noexcept override {
        return negated(::read(fd, data, size));
    }
    long write_waiting(int fd, const void* data, std::size_t size) noexcept override {
        const iovec part{const_cast<void*>(data), size};
        if (has(feature::nosignal)) {
            const long n = direct_pwritev2(fd, &part, 1, rwf_nosignal);
            if (n != -EOPNOTSUPP)
                return n;
        }
        sigpipe_guard guard;
        return guard.finish(negated(::write(fd, data, size)));
    }

    int queue_open(const char* name, int flags, unsigned mode,
                   const queue_attributes* limits) noexcept override {
        mq_attr wanted{};
        if (limits != nullptr) {
            wanted.mq_maxmsg = limits->capacity;
            wanted.mq_msgsize = limits->message_size;
        }
        const mqd_t queue = ::mq_open(name, flags | O_CLOEXEC, static_cast<mode_t>(mode),
                                      limits != nullptr ? &wanted : nullptr);
        return queue >= 0 ? queue : -errno;
    }
    int queue_unlink(const char* name) noexcept override { return ::mq_unlink(name) == 0 ? 0 : -errno; }
    int queue_inspect(int queue, queue_attributes& found) noexcept override {
        mq_attr seen{};
        if (::mq_getattr(queue, &seen) != 0)
            return -errno;
        found.capacity = seen.mq_maxmsg;
        found.message_size = seen.mq_msgsize;
        found.messages = seen.mq_curmsgs;
        found.flags = static_cast<int>(seen.mq_flags);
        return 0;
    }
    // The deadline is exactly {0, 0}: for any other past time the kernel arms a timer first, which costs 50 times as much.
    long queue_send(int queue, const void* data, std::size_t size, unsigned priority) noexcept override {
        for (;;) {
            const long n = direct_queue_send(queue, data, size, priority);
            if (n != -EINTR)
                return n == -ETIMEDOUT ? -EAGAIN : n;
        }
    }
    long queue_receive(int queue, void* data, std::size_t size, unsigned& priority) noexcept override {
        for (;;) {
            const long n = direct_queue_receive(queue, data, size, priority);
            if (n != -EINTR)
                return n == -ETIMEDOUT ? -EAGAIN : n;
        }
    }
    long queue_receive_waiting(int queue, void* data, std::size_t size,
                               unsigned& priority) noexcept override {
        return negated(::mq_receive(queue, static_cast<char*>(data), size, &priority));
    }
    int notification_socket() noexcept override {
        // The kernel uses it as a door of ours to put 32 bytes through; which netlink protocol it speaks does not matter.
        const int fd = ::socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE);
        return fd >= 0 ? fd : -errno;
    }
    int queue_notify(int queue, int socket, const std::byte* cookie) noexcept override {
        sigevent how{};
        how.sigev_notify =
            SIGEV_THREAD; // to the kernel: by netlink. The thread would be libc's, which is not asked
        how.sigev_signo = socket;
        how.sigev_value.sival_ptr = const_cast<std::byte*>(cookie);
        return ::syscall(SYS_mq_notify, queue, &how) == 0 ? 0 : -errno;
    }
    int queue_forget(int queue) noexcept override {
        return ::syscall(SYS_mq_notify, queue, nullptr) == 0 ? 0 : -errno;
    }
    int list_queues(void (*each)(void*, const char*), void* context) override {
        return for_each_queue_name(each, context);
    }

    int start_thread(const char* name, void (*body)(void*), void* context,
                     thread_handle& started) noexcept override {
        auto* start = new (std::nothrow) thread_start{body, context, {}};
        if (start == nullptr)
            return -ENOMEM;
        std::strncpy(start->name, name, sizeof start->name - 1);
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before); // inherited by the new thread
        pthread_t made{};
        const int error = pthread_create(&made, nullptr, &run_thread, start);
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        if (error != 0) {
            delete start;
            return -error;
        }
        started = made;
        return 0;
    }
    int join_thread(thread_handle thread) noexcept override { return -pthread_join(thread, nullptr); }
    int detach_thread(thread_handle thread) noexcept override { return -pthread_detach(thread); }
    int signal_thread(thread_handle thread, int signal) noexcept override {
        return -pthread_kill(thread, signal);
    }
    int claim_signal(int signal) noexcept override {
        struct sigaction present{};
        if (::sigaction(signal, nullptr, &present) != 0)
            return -errno;
        if ((present.sa_flags & SA_SIGINFO) == 0 && present.sa_handler == &do_nothing)
            return 0;
        if ((present.sa_flags & SA_SIGINFO) != 0 || present.sa_handler != SIG_DFL)
            return -EBUSY;
        struct sigaction ours{};
        ours.sa_handler = &do_nothing;
        sigemptyset(&ours.sa_mask);
        return ::sigaction(signal, &ours, nullptr) == 0 ? 0 : -errno;
    }
    int admit_signal(int signal, bool admitted) noexcept override {
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, signal);
        if (const int error = pthread_sigmask(admitted ? SIG_UNBLOCK : SIG_BLOCK, &one, nullptr); error != 0)
            return -error;
        const timespec at_once{0, 0};
        while (!admitted && (sigtimedwait(&one, nullptr, &at_once) > 0 || errno == EINTR)) {
        }
        return 0;
    }
    std::uint64_t blocked_signals() noexcept override {
        sigset_t mask;
        sigemptyset(&mask);
        pthread_sigmask(SIG_SETMASK, nullptr, &mask);
        std::uint64_t blocked = 0;
        for (int number = 1; number <= 64; ++number)
            blocked |= sigismember(&mask, number) == 1 ? std::uint64_t{1} << (number - 1) : 0;
        return blocked;
    }
    void block_signals(std::uint64_t blocked) noexcept override {
        sigset_t mask;
        sigemptyset(&mask);
        for (int number = 1; number <= 64; ++number) {
            if ((blocked >> (number - 1) & 1) != 0)
                sigaddset(&mask, number); // refuses the C library's own, which stay open
        }
        pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    }
    unsigned usable_cpus() noexcept override {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        // A machine with more CPUs than the set holds refuses: then the one that we run on is certain.
        if (::sched_getaffinity(0, sizeof cpus, &cpus) != 0)
            return 1;
        const int count = CPU_COUNT(&cpus);
        return count > 0 ? static_cast<unsigned>(count) : 1;
    }
    int pin_to_cpu(unsigned nth) noexcept override {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        if (::sched_getaffinity(0, sizeof cpus, &cpus) != 0)
            return -errno;
        for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
            if (!CPU_ISSET(cpu, &cpus) || nth-- != 0)
                continue;
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            return ::sched_setaffinity(0, sizeof one, &one) == 0 ? 0 : -errno;
        }
        return -EINVAL;
    }
    int catch_signal(int number, bool even_if_ignored, void (*handler)(int)) noexcept override {
        return catch_kernel_signal(number, even_if_ignored, handler);
    }
    void release_signal(int number) noexcept override { release_kernel_signal(number); }

    [[nodiscard]] bool real() const noexcept override { return true; }

private:
    struct thread_start {
        void (*body)(void*);
        void* context;
        char name[16];
    };
    static void do_nothing(int) {}
    static void* run_thread(void* raw) {
        auto* start = static_cast<thread_start*>(raw);
        pthread_setname_np(pthread_self(), start->name);
        const thread_start copy = *start;
        delete start;
        copy.body(copy.context);
        return nullptr;
    }

    long write_flags(int fd, const iovec* parts, int count, int flags) noexcept {
        if (has(feature::nosignal)) {
            for (;;) {
                const long n = direct_pwritev2(fd, parts, count, flags | rwf_nosignal);
                if (n == -EINTR)
                    continue;
                if (n != -EOPNOTSUPP)
                    return n;
                break; // some files (/dev/full) know no flag at all; ask again for what matters to the caller
            }
        }
        sigpipe_guard guard;
        long n = 0;
        do
            n = flags == 0 ? negated(::writev(fd, parts, count)) : direct_pwritev2(fd, parts, count, flags);
        while (n == -EINTR);
        return guard.finish(n);
    }

    static bool is_anonymous(int fd) noexcept {
        char path[32];
        char target[16] = {};
        std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        const ssize_t n = ::readlink(path, target, sizeof target - 1);
        return n > 5 && std::strncmp(target, "pipe:", 5) == 0;
    }

    static bool probe_nosignal() noexcept {
        // A zero-length write tests the flags and nothing else: no reader is needed, no signal can come.
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
            return true; // out of descriptors: ask again at the first real write, which then falls back by itself
        char byte = 0;
        const iovec part{&byte, 1};
        const long n = direct_pwritev2(ends[1], &part, 1, rwf_nosignal);
        ::close(ends[0]);
        ::close(ends[1]);
        return n == 1;
    }

    void mask(const char* list) noexcept {
        struct named {
            const char* name;
            feature bit;
        };
        static constexpr named names[] = {{"-nowait", feature::nowait},
                                          {"-nosignal", feature::nosignal},
                                          {"-defer_taskrun", feature::defer_taskrun},
                                          {"-taskrun_flag", feature::taskrun_flag},
                                          {"-multishot_poll", feature::multishot_poll},
                                          {"-ring_nonblocking", feature::ring_nonblocking}};
        while (*list != '\0') {
            const std::size_t length = std::strcspn(list, ",");
            for (const named& n : names) {
                if (std::strlen(n.name) == length && std::strncmp(n.name, list, length) == 0)
                    features_ &= ~static_cast<std::uint32_t>(n.bit);
            }
            list += length;
            list += *list == ',';
        }
    }
};

} // namespace

system& real_system() noexcept {
    static kernel_system kernel;
    return kernel;
}

} // namespace detail
NOWAIT_END_NAMESPACE
