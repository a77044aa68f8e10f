// The seam for what is made outside an operation.
#pragma once

#include <nowait/detail/loop.hpp>
#include <nowait/detail/system.hpp>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// The system of the runtime that runs here, else the real one.
inline system& present_system() noexcept {
    loop* here = loop::current();
    return here != nullptr ? here->calls() : real_system();
}

} // namespace detail
NOWAIT_END_NAMESPACE
