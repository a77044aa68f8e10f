// The switches of the faults that mutations.cmake puts into copies of library sources.
#pragma once

#include <string_view>

namespace nowait_test {

/// Whether the fault of this name is there at the moment.
[[nodiscard]] bool broken(std::string_view fault) noexcept;
/// From now on this one is, and no other. An empty name: none.
void break_with(std::string_view fault) noexcept;

} // namespace nowait_test
