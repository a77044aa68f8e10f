// The sentence a person needs.
#pragma once

#include <nowait/config.hpp>

#include <cstdint>
#include <string>
#include <system_error>

NOWAIT_BEGIN_NAMESPACE

/// What the call that failed was about.
enum class subject : std::uint8_t {
    general,       ///< nothing in particular
    pipe,          ///< making, reading or writing a pipe or another stream
    pipe_capacity, ///< pipe_end::set_capacity
    splice,        ///< splice, tee
    runtime,       ///< runtime::create: the ring
    posix_queue,   ///< posix_mqueue: opening it, and its operations
    work,          ///< blocking(): work for a pool of threads
    use            ///< an operation of an object that belongs to a runtime
};

/// Says what went wrong, which limit or rule stands behind it, where that is set, and what it is at this moment.
///
/// Returns: one line without a newline at its end, for example "Too many open files: this process may have 1024
/// descriptors (RLIMIT_NOFILE, `ulimit -n`; hard limit 4096)". For codes that need no explanation, their message.
/// Never fails because a limit cannot be read: the sentence then names it without the value. Reads files under /proc, which takes a few
/// microseconds: for error paths. Throws: std::bad_alloc. Any thread.
[[nodiscard]] NOWAIT_API std::string explain(std::error_code error, subject about = subject::general);

NOWAIT_END_NAMESPACE
