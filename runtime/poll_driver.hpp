// The epoll driver: for where io_uring is refused.
#pragma once

#include <nowait/detail/driver.hpp>
#include <nowait/detail/system.hpp>

#include <memory>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// Returns 0 and the driver, or the errno value of what could not be made (EMFILE, ENFILE, ENOMEM).
[[nodiscard]] int make_poll_driver(system& calls, std::unique_ptr<driver>& made);

} // namespace detail
NOWAIT_END_NAMESPACE
