// How deep the stack gets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace nowait_test {

/// Remembers the lowest and the highest place of the stack at which it was touched.
class stack_probe {
public:
    // Never inlined: the frame's address is the stack pointer of the caller, give or take a constant.
    [[gnu::noinline]] void touch() noexcept {
        const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
        lowest_ = std::min(lowest_, here);
        highest_ = std::max(highest_, here);
    }
    [[nodiscard]] std::size_t depth() const noexcept { return lowest_ > highest_ ? 0 : highest_ - lowest_; }

private:
    std::uintptr_t lowest_ = UINTPTR_MAX;
    std::uintptr_t highest_ = 0;
};

} // namespace nowait_test
