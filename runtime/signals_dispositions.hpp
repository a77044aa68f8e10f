// The real system's half of `signals`: whose handler stands where, and what stood there before.
#pragma once

#include <nowait/config.hpp>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// See system::catch_signal and system::release_signal.
int catch_kernel_signal(int number, bool even_if_ignored, void (*handler)(int)) noexcept;
void release_kernel_signal(int number) noexcept;

} // namespace detail
NOWAIT_END_NAMESPACE
