// `system`: the immediate half of the seam. Attempts, creation, closing, sizes, the clock.
//
// Nothing above this and `driver` makes a system call. The real system's two hottest attempts are also inlined where they are
// awaited (system_call.hpp); a control block says by one flag whether it may be used that way. A test or a simulation
// derives from `system` and keeps its pipes in memory.
#pragma once

#include <nowait/config.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <sys/uio.h>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// Kernel features that can be masked, one bit each. NOWAIT_FEATURES names those to go without, separated by commas, each
/// with a minus sign in front: `NOWAIT_FEATURES=-nosignal,-defer_taskrun`.
enum class feature : std::uint32_t {
    nowait = 1,           ///< RWF_NOWAIT on pipes
    nosignal = 2,         ///< RWF_NOSIGNAL
    defer_taskrun = 4,    ///< IORING_SETUP_DEFER_TASKRUN (and SINGLE_ISSUER)
    taskrun_flag = 8,     ///< IORING_SETUP_TASKRUN_FLAG
    multishot_poll = 16,  ///< POLL_ADD that stays armed
    ring_nonblocking = 32 ///< ring reads and writes of O_NONBLOCK files wait; without it they end with EAGAIN
};

/// What kind of file a descriptor is, as far as waiting goes.
enum class file_kind : std::uint8_t {
    pipe,
    fifo,
    socket,
    regular,
    directory,
    character,
    terminal,
    block,
    queue, ///< a POSIX message queue, as those say who open one: to fstat it is a regular file
    other
};

struct file_info {
    file_kind kind = file_kind::other;
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    std::uint64_t size = 0; ///< bytes, of regular files
    int flags = 0;          ///< F_GETFL
};

/// Of a POSIX message queue.
struct queue_attributes {
    long capacity = 0;     ///< messages it holds at most
    long message_size = 0; ///< bytes of the longest message
    long messages = 0;     ///< messages in it now
    int flags = 0;         ///< O_NONBLOCK of the description, or 0
};

class worker_host;

/// A thread that `system` has started: for joining it and for sending it a signal.
using thread_handle = unsigned long;

/// Every function that returns long or int gives a negative errno value on failure, and never touches errno for its caller.
class NOWAIT_API system {
public:
    virtual ~system();

    // Attempts. None of them waits for data or room; none raises SIGPIPE.
    virtual long read(int fd, const iovec* parts, int count) noexcept = 0;        // an O_NONBLOCK description
    virtual long write(int fd, const iovec* parts, int count) noexcept = 0;       // an O_NONBLOCK description
    virtual long read_nowait(int fd, const iovec* parts, int count) noexcept = 0; // RWF_NOWAIT
    virtual long write_nowait(int fd, const iovec* parts, int count) noexcept = 0; // RWF_NOWAIT
    virtual long receive(int fd, const iovec* parts, int count) noexcept = 0;      // sockets, MSG_DONTWAIT
    virtual long send(int fd, const iovec* parts, int count) noexcept = 0;         // sockets, MSG_DONTWAIT
    virtual long splice(int from, int to, std::size_t size) noexcept = 0;          // SPLICE_F_NONBLOCK
    virtual long tee(int from, int to, std::size_t size) noexcept = 0;             // SPLICE_F_NONBLOCK
    /// The poll events (POLLIN, POLLOUT, POLLHUP, POLLERR) that stand now.
    virtual int ready(int fd, int events) noexcept = 0;

    // Creation and the rest.
    virtual int make_pipe(int (&ends)[2], bool packets) noexcept = 0; // O_NONBLOCK | O_CLOEXEC
    virtual int close(int fd) noexcept = 0;
    virtual int inspect(int fd, file_info& info) noexcept = 0;
    virtual int set_nonblocking(int fd) noexcept = 0;
    /// Through /proc/self/fd, the same inode checked; for both directions if `fd` is.
    virtual int reopen_nonblocking(int fd, bool for_reading) noexcept = 0;
    virtual int duplicate(int fd) noexcept = 0; // close-on-exec
    virtual long pipe_size(int fd) noexcept = 0;
    virtual long set_pipe_size(int fd, std::size_t size) noexcept = 0;
    virtual long available(int fd) noexcept = 0; // FIONREAD
    virtual std::chrono::steady_clock::time_point now() noexcept = 0;

    // What not every world has: these say ENOSYS unless they are overridden.

    /// open(2), close-on-exec. Without O_NONBLOCK it may wait, and a signal then ends it with EINTR.
    virtual int open(const char* path, int flags, unsigned mode) noexcept;
    virtual int make_fifo(const char* path, unsigned mode) noexcept;

    /// read(2) and write(2) on a description without O_NONBLOCK, in a thread that may wait; a signal ends them with EINTR. No SIGPIPE.
    virtual long read_waiting(int fd, void* data, std::size_t size) noexcept;
    virtual long write_waiting(int fd, const void* data, std::size_t size) noexcept;

    // POSIX queues. Attempts do not wait, whatever the flags of the shared description say; EAGAIN is full, or empty.
    virtual int queue_open(const char* name, int flags, unsigned mode,
                           const queue_attributes* limits) noexcept;
    virtual int queue_unlink(const char* name) noexcept;
    virtual int queue_inspect(int queue, queue_attributes& found) noexcept;
    virtual long queue_send(int queue, const void* data, std::size_t size, unsigned priority) noexcept;
    virtual long queue_receive(int queue, void* data, std::size_t size, unsigned& priority) noexcept;
    /// Waits for a message on a description without O_NONBLOCK; a signal ends it with EINTR.
    virtual long queue_receive_waiting(int queue, void* data, std::size_t size, unsigned& priority) noexcept;

    /// A socket on which notifications arrive: datagrams of notification_size bytes, O_NONBLOCK | O_CLOEXEC.
    virtual int notification_socket() noexcept;
    /// Asks for one notification when a message comes to the empty queue. `cookie` is what will arrive, its last byte replaced by
    /// 1 (a message is there) or 2 (the registration was taken away). EBUSY: somebody has asked before.
    virtual int queue_notify(int queue, int socket, const std::byte* cookie) noexcept;
    /// Takes this process's registration away, if it has one.
    virtual int queue_forget(int queue) noexcept;
    static constexpr std::size_t notification_size = 32;
    /// Calls `each` with the name ("/jobs") of every queue. EOPNOTSUPP: no file system shows them.
    virtual int list_queues(void (*each)(void* context, const char* name), void* context);

    // Threads. A new one runs with every signal blocked: signals are the program's. `name` is cut to 15 characters.
    virtual int start_thread(const char* name, void (*body)(void*), void* context,
                             thread_handle& started) noexcept;
    virtual int join_thread(thread_handle thread) noexcept;
    /// Nobody will join it.
    virtual int detach_thread(thread_handle thread) noexcept;
    /// Only while the thread is known to run.
    virtual int signal_thread(thread_handle thread, int signal) noexcept;
    /// Gives the signal a handler that does nothing, without SA_RESTART, so that it ends system calls. EBUSY: its disposition is
    /// not the default one, so somebody else uses it. 0 also if it was claimed before.
    virtual int claim_signal(int signal) noexcept;
    /// Whether the signal reaches the calling thread. Shutting it out also takes off those that have been sent.
    virtual int admit_signal(int signal, bool admitted) noexcept;
    /// Who runs the workers of a pool, if not threads of this system.
    [[nodiscard]] virtual worker_host* workers() noexcept;

    /// The signals that the calling thread blocks: bit n - 1 stands for signal n.
    [[nodiscard]] virtual std::uint64_t blocked_signals() noexcept;
    virtual void block_signals(std::uint64_t blocked) noexcept;

    /// How many CPUs this process may run on.
    [[nodiscard]] virtual unsigned usable_cpus() noexcept;
    /// From now on the calling thread runs on the `nth` of them only, counted from 0.
    virtual int pin_to_cpu(unsigned nth) noexcept;

    // Signals of the process, for those who ask for them. The handler may run on any thread, at any moment.
    /// EBUSY: somebody handles it. EPERM: it is ignored, and not to be taken all the same. To be called once for each holder.
    virtual int catch_signal(int number, bool even_if_ignored, void (*handler)(int)) noexcept;
    /// The last holder's: what was there before is there again, unless somebody has replaced the handler meanwhile.
    virtual void release_signal(int number) noexcept;

    /// True for the one that talks to the kernel, whose attempts may be inlined.
    [[nodiscard]] virtual bool real() const noexcept { return false; }
    [[nodiscard]] bool has(feature f) const noexcept {
        return (features_ & static_cast<std::uint32_t>(f)) != 0;
    }

protected:
    std::uint32_t features_ = ~0u;
};

/// The kernel, as this process sees it. One object, made at first use.
[[nodiscard]] NOWAIT_API system& real_system() noexcept;

} // namespace detail
NOWAIT_END_NAMESPACE
