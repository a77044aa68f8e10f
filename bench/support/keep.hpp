// Keeps a value alive for the optimiser, so that work whose result nobody uses is still done.
#pragma once

namespace bench {

template <typename T>
inline void keep(const T& value) noexcept {
    asm volatile("" : : "r,m"(value) : "memory");
}

} // namespace bench
