// The system-call instruction, inlined into the code that awaits.
//
// On the machines we measured, the first `ret` after a system call costs 50-100 ns, so an attempt that goes through libc's
// wrappers is a quarter slower than the same instruction in place (docs/nowait-first.md). Sanitizers intercept the libc
// functions, and other processors have other conventions: there the libc call is made instead.
#pragma once

#include <nowait/config.hpp>

#include <cerrno>
#include <cstddef>
#include <ctime>

#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NOWAIT_LIBC_CALLS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define NOWAIT_LIBC_CALLS 1
#endif
#endif
#if !defined(NOWAIT_LIBC_CALLS) && !(defined(__x86_64__) && defined(__LP64__)) && !defined(__aarch64__)
#define NOWAIT_LIBC_CALLS 1
#endif

NOWAIT_BEGIN_NAMESPACE
namespace detail {

// Flags of preadv2 and pwritev2; values are kernel ABI. The distribution's headers lack the last name.
inline constexpr int rwf_nowait = 0x08;
inline constexpr int rwf_nosignal = 0x100;

// The deadline of an attempt on a POSIX queue, exactly this: for any other time that has passed the kernel arms a timer first,
// which costs fifty times as much (docs/posix-mqueue.md).
inline constexpr timespec no_time{0, 0};

#if defined(NOWAIT_LIBC_CALLS)

inline long direct_read(int fd, void* data, std::size_t size) noexcept {
    const ssize_t n = ::read(fd, data, size);
    return n >= 0 ? n : -errno;
}
inline long direct_write(int fd, const void* data, std::size_t size) noexcept {
    const ssize_t n = ::write(fd, data, size);
    return n >= 0 ? n : -errno;
}
inline long direct_preadv2(int fd, const iovec* parts, int count, int flags) noexcept {
    const ssize_t n = ::preadv2(fd, parts, count, -1, flags);
    return n >= 0 ? n : -errno;
}
inline long direct_pwritev2(int fd, const iovec* parts, int count, int flags) noexcept {
    const ssize_t n = ::pwritev2(fd, parts, count, -1, flags);
    return n >= 0 ? n : -errno;
}
inline long direct_timed_send(int queue, const void* data, std::size_t size, unsigned priority) noexcept {
    // Not libc's function, which declares that `data` is never null: of an empty message it may be.
    return ::syscall(SYS_mq_timedsend, queue, data, size, priority, &no_time) == 0 ? 0 : -errno;
}
inline long direct_timed_receive(int queue, void* data, std::size_t size, unsigned* priority) noexcept {
    const long n = ::syscall(SYS_mq_timedreceive, queue, data, size, priority, &no_time);
    return n >= 0 ? n : -errno;
}

#elif defined(__x86_64__)

inline long direct_read(int fd, void* data, std::size_t size) noexcept {
    long result;
    asm volatile("syscall"
                 : "=a"(result)
                 : "0"(0L), "D"(static_cast<long>(fd)), "S"(data), "d"(size)
                 : "rcx", "r11", "memory");
    return result;
}
inline long direct_write(int fd, const void* data, std::size_t size) noexcept {
    long result;
    asm volatile("syscall"
                 : "=a"(result)
                 : "0"(1L), "D"(static_cast<long>(fd)), "S"(data), "d"(size)
                 : "rcx", "r11", "memory");
    return result;
}
inline long direct_vectored(long number, int fd, const iovec* parts, int count, int flags) noexcept {
    long result;
    // Offset -1 in the low word means "at the position", the only one a pipe has; the high word is ignored on 64 bits.
    register long low asm("r10") = -1;
    register long high asm("r8") = -1;
    register long flag asm("r9") = flags;
    asm volatile("syscall"
                 : "=a"(result)
                 : "0"(number), "D"(static_cast<long>(fd)), "S"(parts), "d"(static_cast<long>(count)),
                   "r"(low), "r"(high), "r"(flag)
                 : "rcx", "r11", "memory");
    return result;
}
inline long direct_preadv2(int fd, const iovec* parts, int count, int flags) noexcept {
    return direct_vectored(327, fd, parts, count, flags);
}
inline long direct_pwritev2(int fd, const iovec* parts, int count, int flags) noexcept {
    return direct_vectored(328, fd, parts, count, flags);
}
inline long direct_timed_send(int queue, const void* data, std::size_t size, unsigned priority) noexcept {
    long result;
    register unsigned long rank asm("r10") = priority;
    register const timespec* until asm("r8") = &no_time;
    asm volatile("syscall"
                 : "=a"(result)
                 : "0"(242L), "D"(static_cast<long>(queue)), "S"(data), "d"(size), "r"(rank), "r"(until)
                 : "rcx", "r11", "memory");
    return result;
}
inline long direct_timed_receive(int queue, void* data, std::size_t size, unsigned* priority) noexcept {
    long result;
    register unsigned* rank asm("r10") = priority;
    register const timespec* until asm("r8") = &no_time;
    asm volatile("syscall"
                 : "=a"(result)
                 : "0"(243L), "D"(static_cast<long>(queue)), "S"(data), "d"(size), "r"(rank), "r"(until)
                 : "rcx", "r11", "memory");
    return result;
}

#else // aarch64

inline long direct_call(long number, long a, long b, long c, long d, long e, long f) noexcept {
    register long x8 asm("x8") = number;
    register long x0 asm("x0") = a;
    register long x1 asm("x1") = b;
    register long x2 asm("x2") = c;
    register long x3 asm("x3") = d;
    register long x4 asm("x4") = e;
    register long x5 asm("x5") = f;
    asm volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}
inline long direct_read(int fd, void* data, std::size_t size) noexcept {
    return direct_call(63, fd, reinterpret_cast<long>(data), static_cast<long>(size), 0, 0, 0);
}
inline long direct_write(int fd, const void* data, std::size_t size) noexcept {
    return direct_call(64, fd, reinterpret_cast<long>(data), static_cast<long>(size), 0, 0, 0);
}
inline long direct_preadv2(int fd, const iovec* parts, int count, int flags) noexcept {
    return direct_call(286, fd, reinterpret_cast<long>(parts), count, -1, -1, flags);
}
inline long direct_pwritev2(int fd, const iovec* parts, int count, int flags) noexcept {
    return direct_call(287, fd, reinterpret_cast<long>(parts), count, -1, -1, flags);
}
inline long direct_timed_send(int queue, const void* data, std::size_t size, unsigned priority) noexcept {
    return direct_call(182, queue, reinterpret_cast<long>(data), static_cast<long>(size), priority,
                       reinterpret_cast<long>(&no_time), 0);
}
inline long direct_timed_receive(int queue, void* data, std::size_t size, unsigned* priority) noexcept {
    return direct_call(183, queue, reinterpret_cast<long>(data), static_cast<long>(size),
                       reinterpret_cast<long>(priority), reinterpret_cast<long>(&no_time), 0);
}

#endif

/// Attempts on a POSIX queue: EAGAIN is full, or empty, whatever the flags of the description say.
inline long direct_queue_send(int queue, const void* data, std::size_t size, unsigned priority) noexcept {
    const long n = direct_timed_send(queue, data, size, priority);
    return n != -ETIMEDOUT ? n : -EAGAIN;
}
inline long direct_queue_receive(int queue, void* data, std::size_t size, unsigned& priority) noexcept {
    const long n = direct_timed_receive(queue, data, size, &priority);
    return n != -ETIMEDOUT ? n : -EAGAIN;
}

} // namespace detail
NOWAIT_END_NAMESPACE
