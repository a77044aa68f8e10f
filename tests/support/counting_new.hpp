// Counts calls of operator new, on all threads. Linking this in replaces the global operators.
#pragma once

#include <cstddef>

namespace nowait_test {

/// Calls of operator new since the program began; 0 under the thread sanitizer, which counts nothing.
[[nodiscard]] std::size_t allocations() noexcept;

} // namespace nowait_test
