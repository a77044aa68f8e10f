// System calls that the kernel refuses, as a sandbox or a container does it.
#pragma once

namespace nowait_test {

/// From now on `call` ends with `error` (an errno value), in this process and what it executes.
[[nodiscard]] bool refuse(int call, int error);
/// The same only where the call's first argument is above `limit`.
[[nodiscard]] bool refuse_above(int call, unsigned limit, int error);

} // namespace nowait_test
