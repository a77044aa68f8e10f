// The io_uring driver, and how it is made.
#pragma once

#include <nowait/detail/driver.hpp>
#include <nowait/detail/system.hpp>

#include <memory>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

struct uring_options {
    unsigned entries = 256;
    unsigned completion_entries = 0; // 0: twice the entries, as the kernel chooses
};

/// Makes a ring, with fewer features and fewer entries if it must be. Returns 0 and the driver, or the errno value of the
/// last attempt.
[[nodiscard]] int make_uring_driver(system& calls, const uring_options& options,
                                    std::unique_ptr<driver>& made);

} // namespace detail
NOWAIT_END_NAMESPACE
