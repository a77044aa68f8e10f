// A timer as its user sees it: a node with a deadline and a function.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/list.hpp>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <limits>
#include <ratio>
#include <type_traits>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

using clock = std::chrono::steady_clock;

class timer_node : public list_node {
public:
    void (*on_expiry)(timer_node&) noexcept = nullptr;
    clock::time_point deadline{};
    std::uint16_t place = 0; // the wheel's: which slot the node stands in
};

/// `from + span` without overflow, from any duration type: what does not fit is "never", what lies in the past is `from`,
/// NaN is `from`.
template <class Rep, class Period>
[[nodiscard]] constexpr clock::time_point deadline_after(clock::time_point from,
                                                         std::chrono::duration<Rep, Period> span) noexcept {
    using std::chrono::duration;
    if (!(span > span.zero())) // also NaN
        return from;
    // A hundred years is "never" for a clock that counts nanoseconds since boot, and far from its end.
    constexpr long double horizon_seconds = 100.0L * 366 * 86400;
    if constexpr (std::integral<Rep>) {
        // In the span's own units, no further than the conversion can multiply; a unit may be so small that every span of it
        // lies before.
        using factor = std::ratio_divide<Period, clock::period>;
        constexpr long double horizon =
            std::min(horizon_seconds * Period::den / Period::num,
                     static_cast<long double>(std::numeric_limits<clock::rep>::max()) / factor::num - 1);
        if constexpr (horizon < static_cast<long double>(std::numeric_limits<Rep>::max())) {
            if (span.count() > static_cast<Rep>(horizon))
                return clock::time_point::max();
        }
    } else if (duration<long double>(span).count() >= horizon_seconds) {
        return clock::time_point::max();
    }
    auto whole = std::chrono::duration_cast<clock::duration>(span);
    if constexpr (!std::is_floating_point_v<Rep>) {
        if (whole < span) // a picosecond is not nothing: round up
            whole += clock::duration(1);
    }
    if (from > clock::time_point::max() - whole)
        return clock::time_point::max();
    return from + whole;
}

} // namespace detail
NOWAIT_END_NAMESPACE
