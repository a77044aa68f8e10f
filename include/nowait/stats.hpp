// Counters: what a runtime has done, by kind of operation. One writer (the runtime's thread), readers anywhere.
#pragma once

#include <nowait/config.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

NOWAIT_BEGIN_NAMESPACE

/// Kinds of operation that are counted apart.
enum class operation_kind : std::uint8_t {
    read,
    write,
    splice,
    tee,
    ready,
    sleep,
    yield,
    join,
    channel,
    queue_send,
    queue_receive,
    blocking,
    other
};
inline constexpr std::size_t operation_kinds = 13;

/// The name of a kind as it is printed: "read", "write", ...
[[nodiscard]] NOWAIT_API std::string_view to_string(operation_kind kind) noexcept;

/// A snapshot of the counters of one kind. Units: operations, unless said.
struct operation_stats {
    std::uint64_t inline_completions = 0; ///< finished by the first attempt, no suspension
    std::uint64_t armed = 0;              ///< suspended and handed to the driver or to a wait queue
    std::uint64_t punted = 0;             ///< handed to a thread, because nothing can poll it
    std::uint64_t nowait_misses = 0;      ///< attempts that ended with EAGAIN
    std::uint64_t predictor_skips = 0;    ///< attempts not made because they kept failing
    std::uint64_t budget_yields = 0;      ///< attempts put off because the turn had spent its budget
};

/// A snapshot of a runtime's counters.
struct runtime_stats {
    std::array<operation_stats, operation_kinds> operations{};
    std::uint64_t turns = 0;            ///< resumptions from the loop
    std::uint64_t passes = 0;           ///< looks at the outside
    std::uint64_t submissions = 0;      ///< entries handed to the driver
    std::uint64_t enters = 0;           ///< system calls of the driver
    std::uint64_t completions = 0;      ///< completions reaped from the driver
    std::uint64_t remote_posts = 0;     ///< posts received from other threads
    std::uint64_t remote_wakes = 0;     ///< wake-ups that cost a system call, received
    std::uint64_t frames_allocated = 0; ///< frames that came from the allocator
    std::uint64_t frames_recycled = 0;  ///< frames that came from the free lists
    std::uint64_t driver_fallbacks = 0; ///< 1 if the driver is not the one that was preferred

    [[nodiscard]] const operation_stats& of(operation_kind kind) const noexcept {
        return operations[static_cast<std::size_t>(kind)];
    }
};

NOWAIT_END_NAMESPACE
