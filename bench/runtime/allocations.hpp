// Counts calls of malloc and its kin: the library's frames do not come from operator new.
#pragma once

#include <cstddef>

namespace bench::runtime {

// Starts from zero.
void count_allocations() noexcept;
// What has been counted; counting ends.
[[nodiscard]] std::size_t counted_allocations() noexcept;

} // namespace bench::runtime
