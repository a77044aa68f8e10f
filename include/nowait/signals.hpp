// Signals as something to await, for those who ask for it. Nobody else's disposition or mask is ever changed.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/list.hpp>
#include <nowait/detail/operation.hpp>
#include <nowait/result.hpp>

#include <cerrno>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>

NOWAIT_BEGIN_NAMESPACE

/// A signal that has come, perhaps several times since it was last received.
struct received_signal {
    int number = 0;          ///< SIGTERM, ...
    std::uint32_t times = 0; ///< deliveries seen; the kernel itself merges ordinary signals that are pending
};

namespace detail {

struct signal_station;

struct signal_description {
    using operation = class signal_operation;
    using value_type = result<received_signal>;
    signal_station* station;
    std::uint64_t serial; ///< of the object that made it: a station is used again
};

class NOWAIT_API signal_operation final : public operation_base, public list_node {
public:
    explicit signal_operation(const signal_description& what) noexcept : what_(what) {}
    ~signal_operation() { list_node::unlink(); }

    [[nodiscard]] bool start() noexcept;
    void cancel() noexcept;
    [[nodiscard]] result<received_signal> take_result() const noexcept {
        if (error_ != 0)
            return fail_errno(error_);
        return got_;
    }

private:
    friend struct signal_station;

    signal_description what_;
    received_signal got_;
    int error_ = ECANCELED;
};

} // namespace detail

struct signal_options {
    /// Take signals, too, that the process was told to ignore (as nohup does with SIGHUP). They are ignored again later.
    bool even_if_ignored = false;
};

/// A set of signals, received here instead of doing what they do by default, for as long as this object lives.
///
///     auto quit = nowait::signals::create({SIGINT, SIGTERM});
///     auto got = co_await quit->next();                          // result<received_signal>
///
/// Several objects, on several runtimes, may hold the same signal: each of them receives it. When the last of them goes, the
/// disposition is what it was before, unless somebody has set another one since, which stays. The handler runs where the kernel
/// delivers: on any thread that does not block the signal; a signal that every thread blocks does not arrive. A child after
/// fork has the process's own dispositions from its first instruction on.
///
/// It belongs to the runtime of its first next(). Signals that come between two calls of next(), or before the first, are kept.
class NOWAIT_API signals {
public:
    /// Takes the signals. May be called before any runtime is there. Errors, nothing being taken: invalid_argument: no number
    /// at all, or one that is none, that cannot be caught (SIGKILL, SIGSTOP), that the C library keeps for itself, or that tells
    /// of a fault of the very thread (SIGSEGV, SIGBUS, SIGFPE, SIGILL); device_or_resource_busy: somebody in this process handles
    /// it, and goes on to; operation_not_permitted: the process ignores it, and `even_if_ignored` is not set; not_enough_memory.
    [[nodiscard]] static result<signals> create(std::span<const int> numbers,
                                                signal_options options = {}) noexcept;
    [[nodiscard]] static result<signals> create(std::initializer_list<int> numbers,
                                                signal_options options = {}) noexcept {
        return create(std::span<const int>(numbers.begin(), numbers.size()), options);
    }

    signals(signals&& other) noexcept
        : station_(std::exchange(other.station_, nullptr)), serial_(other.serial_) {}
    signals& operator=(signals&& other) noexcept {
        std::swap(station_, other.station_);
        std::swap(serial_, other.serial_);
        return *this;
    }
    /// Gives the signals back; whoever waits in next() ends with operation_canceled. On another thread than the runtime's only
    /// when nobody waits.
    ~signals() { release(); }

    /// Waits for one of the signals; of several that have come, each gets its turn. One signal wakes one waiter, first come,
    /// first served. Returns: its number, and how often it came. Errors: operation_canceled: stopped, or closed meanwhile, and
    /// no signal is lost to it; bad_file_descriptor: closed, or moved from; operation_not_permitted: it belongs to another
    /// runtime, or to the parent process. Borrows: nothing. Resumes: on the awaiter's runtime.
    [[nodiscard]] detail::signal_description next() const noexcept { return {station_, serial_}; }

    /// Gives the signals back now. Errors: bad_file_descriptor: it is closed; operation_not_permitted: not on its runtime's thread.
    result<void> close() noexcept;

private:
    signals(detail::signal_station* station, std::uint64_t serial) noexcept
        : station_(station), serial_(serial) {}
    void release() noexcept;

    detail::signal_station* station_ = nullptr;
    std::uint64_t serial_ = 0;
};

NOWAIT_END_NAMESPACE
