// The only place that names std::atomic and the futex.
//
// Everything that two threads may touch at once (the inbox, the wait queues of shared channels, the cancel hand-shake) is a
// template over a policy: this one is the real thing; a test supplies one whose operations are scheduling points, and walks
// through the interleavings.
#pragma once

#include <nowait/config.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>

#include <sys/single_threaded.h>

// Not where ThreadSanitizer has to see it.
#if defined(__x86_64__) && defined(__LP64__) && !defined(__SANITIZE_THREAD__)
#define NOWAIT_PLAIN_INCREMENT 1
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#undef NOWAIT_PLAIN_INCREMENT
#endif
#endif
#endif

NOWAIT_BEGIN_NAMESPACE
namespace detail {

// The slow halves of the lock below: they make the system call. Defined in runtime/system.cpp.
NOWAIT_API void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen) noexcept;
/// The same until a point of the steady clock; time_point::max() is "until woken".
NOWAIT_API void futex_wait_until(std::atomic<std::uint32_t>& word, std::uint32_t seen,
                                 std::chrono::steady_clock::time_point until) noexcept;
NOWAIT_API void futex_wake(std::atomic<std::uint32_t>& word, int count) noexcept;

/// One-word lock: 0 free, 1 held, 2 held and somebody sleeps on it. An uncontended pair is two atomic instructions (5 ns
/// against 7-9 of std::mutex), it cannot fail, and it is held for a queue's own words only, never over user code.
///
/// While the process has one thread, the atomic instructions are left out, as the C library does in its own mutex: nobody is
/// there to see the difference. The first thread that is created sees what was written before, and the lock is not held then.
class futex_lock {
public:
    [[gnu::always_inline]] void lock() noexcept {
        std::uint32_t expected = 0;
        if (__libc_single_threaded != 0 && word_.load(std::memory_order_relaxed) == 0) {
            word_.store(1, std::memory_order_relaxed);
            return;
        }
        if (!word_.compare_exchange_strong(expected, 1, std::memory_order_acquire, std::memory_order_relaxed))
            lock_contended();
    }
    [[nodiscard]] bool try_lock() noexcept {
        std::uint32_t expected = 0;
        return word_.compare_exchange_strong(expected, 1, std::memory_order_acquire,
                                             std::memory_order_relaxed);
    }
    [[gnu::always_inline]] void unlock() noexcept {
        if (__libc_single_threaded != 0) {
            word_.store(0, std::memory_order_relaxed);
            return;
        }
        // Release pairs with the acquire of whoever locks next.
        if (word_.exchange(0, std::memory_order_release) == 2)
            futex_wake(word_, 1);
    }

private:
    NOWAIT_API void lock_contended() noexcept;

    std::atomic<std::uint32_t> word_{0};
};

/// An atomic word for a hand-shake. While the process has one thread the instructions are plain ones, as in the lock above.
template <class T>
class lone_atomic {
public:
    constexpr explicit lone_atomic(T value) noexcept : word_(value) {}
    [[nodiscard]] T load(std::memory_order order) const noexcept { return word_.load(order); }
    T exchange(T value, std::memory_order order) noexcept {
        if (__libc_single_threaded == 0)
            return word_.exchange(value, order);
        const T old = word_.load(std::memory_order_relaxed);
        word_.store(value, std::memory_order_relaxed);
        return old;
    }
    bool compare_exchange_strong(T& expected, T desired, std::memory_order success,
                                 std::memory_order failure) noexcept {
        if (__libc_single_threaded == 0)
            return word_.compare_exchange_strong(expected, desired, success, failure);
        const T seen = word_.load(std::memory_order_relaxed);
        if (seen != expected) {
            expected = seen;
            return false;
        }
        word_.store(desired, std::memory_order_relaxed);
        return true;
    }

private:
    std::atomic<T> word_;
};

/// The policy of the real world.
struct NOWAIT_API real_sync {
    template <class T>
    using atomic = std::atomic<T>;
    using mutex = futex_lock;

    /// Sleeps while the word is `seen`; may return early.
    static void wait(atomic<std::uint32_t>& word, std::uint32_t seen,
                     std::chrono::steady_clock::time_point until) noexcept {
        futex_wait_until(word, seen, until);
    }
    static void wake(atomic<std::uint32_t>& word) noexcept { futex_wake(word, 1); }
};

/// A policy for what never leaves one runtime: the same code without a lock or an atomic instruction.
struct NOWAIT_API local_sync {
    template <class T>
    class atomic {
    public:
        atomic() = default;
        constexpr atomic(T value) noexcept : value_(value) {}
        [[nodiscard]] T load(std::memory_order = std::memory_order_seq_cst) const noexcept { return value_; }
        void store(T value, std::memory_order = std::memory_order_seq_cst) noexcept { value_ = value; }
        T exchange(T value, std::memory_order = std::memory_order_seq_cst) noexcept {
            T old = value_;
            value_ = value;
            return old;
        }
        bool compare_exchange_strong(T& expected, T desired, std::memory_order = std::memory_order_seq_cst,
                                     std::memory_order = std::memory_order_seq_cst) noexcept {
            if (value_ != expected) {
                expected = value_;
                return false;
            }
            value_ = desired;
            return true;
        }
        T fetch_add(T n, std::memory_order = std::memory_order_seq_cst) noexcept {
            T old = value_;
            value_ = static_cast<T>(value_ + n);
            return old;
        }
        T fetch_sub(T n, std::memory_order = std::memory_order_seq_cst) noexcept {
            T old = value_;
            value_ = static_cast<T>(value_ - n);
            return old;
        }

    private:
        T value_{};
    };
    struct mutex {
        void lock() noexcept {}
        [[nodiscard]] bool try_lock() noexcept { return true; }
        void unlock() noexcept {}
    };
};

/// A lock held for a scope, over any policy's mutex.
template <class Mutex>
class lock_scope {
public:
    explicit lock_scope(Mutex& mutex) noexcept : mutex_(mutex) { mutex_.lock(); }
    ~lock_scope() { mutex_.unlock(); }
    lock_scope(const lock_scope&) = delete;
    lock_scope& operator=(const lock_scope&) = delete;

private:
    Mutex& mutex_;
};

/// A number with one writer and any readers: a reader sees some recent value and never a torn one. Compiled out, it keeps its
/// place.
class counter {
public:
    [[gnu::always_inline]] void add([[maybe_unused]] std::uint64_t n = 1) noexcept {
#if !NOWAIT_COUNTERS
#elif defined(NOWAIT_PLAIN_INCREMENT)
        // g++ and clang make three instructions of a relaxed load, an addition and a relaxed store. This is the one that
        // they would make of a plain variable; aligned words are never torn.
        asm("addq %1, %0" : "+m"(value_) : "er"(n) : "cc");
#else
        value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
#endif
    }
    [[nodiscard]] std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

private:
    std::atomic<std::uint64_t> value_{0};
};

} // namespace detail
NOWAIT_END_NAMESPACE
