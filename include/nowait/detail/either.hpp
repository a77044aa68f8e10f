// One word that points to an object of one of two kinds, or to none.
#pragma once

#include <nowait/config.hpp>

#include <cstdint>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// Which kind is told by the lowest bit: both are objects that hold pointers, so their addresses are even.
template <class First, class Second>
class either {
public:
    either() = default;

    void clear() noexcept { word_ = 0; }
    void set(First& object) noexcept { word_ = reinterpret_cast<std::uintptr_t>(&object); }
    void set(Second& object) noexcept { word_ = reinterpret_cast<std::uintptr_t>(&object) + 1; }

    // NOLINTBEGIN(performance-no-int-to-ptr): that the word is a number is what it is for
    /// Null: none, or one of the other kind.
    [[nodiscard]] First* first() const noexcept {
        return (word_ & 1) == 0 ? reinterpret_cast<First*>(word_) : nullptr;
    }
    [[nodiscard]] Second* second() const noexcept {
        return (word_ & 1) != 0 ? reinterpret_cast<Second*>(word_ - 1) : nullptr;
    }
    // NOLINTEND(performance-no-int-to-ptr)

private:
    std::uintptr_t word_ = 0;
};

} // namespace detail
NOWAIT_END_NAMESPACE
