// What it means that the kernel, or a sandbox around the process, does not allow io_uring.
#pragma once

#include <nowait/config.hpp>

#include <cerrno>
#include <string>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// The errors that mean "no ring here", as against "no descriptors left".
inline bool means_refused(int error) noexcept {
    return error == ENOSYS || error == EPERM || error == EACCES || error == EINVAL || error == ENOMEM;
}

/// "because io_uring_setup: EPERM"
inline std::string refusal(const char* call, int error) {
    const char* name = error == ENOSYS   ? "ENOSYS"
                       : error == EPERM  ? "EPERM"
                       : error == EACCES ? "EACCES"
                       : error == EINVAL ? "EINVAL"
                                         : "ENOMEM";
    return std::string("because ") + call + ": " + name;
}

} // namespace detail
NOWAIT_END_NAMESPACE
