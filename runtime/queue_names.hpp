// The names of the POSIX queues, where a file system shows them.
#pragma once

#include <nowait/config.hpp>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// Calls `each` with "/name" for every queue. Returns 0 or a negative errno value; EOPNOTSUPP: no mqueue file system is mounted.
int for_each_queue_name(void (*each)(void* context, const char* name), void* context);

} // namespace detail
NOWAIT_END_NAMESPACE
