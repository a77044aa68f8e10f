// Moves bytes from one end to the other.
#pragma once

#include "meter.hpp"
#include "options.hpp"

#include <nowait/pipe.hpp>
#include <nowait/task.hpp>

#include <cstddef>
#include <cstdint>
#include <system_error>

namespace pump {

/// Why a transfer ended.
struct ending {
    std::error_code error{}; // none: the end of the input, or the limit
    bool at_output = false;  // whose error it is
};

/// Enlarges the pipe behind `end`, if it is one and smaller, to 1 MiB or what the system allows.
void enlarge(nowait::pipe_reader& end);
void enlarge(nowait::pipe_writer& end);

/// Moves up to `limit` bytes and tells `count` of each byte that has arrived at `to`.
///
/// Splices if `how` allows it and one end is a pipe, the other a pipe, a regular file or (as output) /dev/null. Elsewhere,
/// and where a file system cannot splice, it reads into a buffer and writes that out.
/// Ends with operation_canceled when the runtime is asked to stop. Then all that was spliced has been counted; what a read
/// had taken and no write had passed on is lost to both sides, as with any filter that is interrupted.
[[nodiscard]] nowait::task<ending> transfer(const nowait::pipe_reader& from, const nowait::pipe_writer& to,
                                            const options& how, std::uint64_t limit, meter& count);

} // namespace pump
