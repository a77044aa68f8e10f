// Whether this process is a child of the one that made an object.
#pragma once

#include <nowait/config.hpp>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// Starts counting; once in a process is enough, and again does no harm.
void watch_forks() noexcept;

/// A number that is another one in the child of a fork. What remembers an old one shares ring memory and descriptors with a
/// parent that still uses them.
[[nodiscard]] unsigned fork_generation() noexcept;

} // namespace detail
NOWAIT_END_NAMESPACE
