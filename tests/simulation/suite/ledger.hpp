// What the actors know of their operations: how many began, which ended at once, which waited. The counters of the runtimes have
// to say the same.
#pragma once

#include <nowait/simulation.hpp>
#include <nowait/stats.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <system_error>

namespace nowait_test::programs {

/// Of one kind of operation.
struct tally {
    std::uint64_t at_once = 0; ///< succeeded in the turn in which they began
    std::uint64_t waited = 0;  ///< ended in a later turn, however
    // Of an operation that raced against another one its actor cannot always say which of the two it did.
    std::uint64_t one_of_both = 0; ///< it succeeded
    std::uint64_t perhaps = 0;     ///< or it may have failed at once, which is not counted
    std::uint64_t try_misses = 0;  ///< try_ forms that found nothing: no operations, but attempts
};

class ledger {
public:
    /// An operation that has begun.
    struct mark {
        nowait::operation_kind kind;
        std::uint64_t step;
    };

    explicit ledger(const nowait::simulation& sim) noexcept : sim_(sim) {}

    /// Numbers operations in the order of their beginning.
    [[nodiscard]] std::uint64_t number() noexcept { return next_++; }

    /// In the turn in which the operation starts.
    [[nodiscard]] mark begin(nowait::operation_kind kind, std::uint64_t& number_of_it) noexcept {
        number_of_it = number();
        return {kind, sim_.steps()};
    }
    /// In the turn in which whoever awaits it goes on. What fails at once is not counted: it was no operation.
    void end(const mark& of, bool success) noexcept {
        tally& t = of_kind(of.kind);
        if (waited(of))
            ++t.waited;
        else if (success)
            ++t.at_once;
    }
    /// Of two in a when_any: `first` began first, and nothing but its waiting lets the second one begin.
    template <class First, class Second>
    void end_race(const mark& first, nowait::operation_kind second, const First& ended,
                  const Second& second_ended) noexcept {
        end(first, ended.has_value());
        if (!waited(first))
            return;
        tally& t = of_kind(second);
        if (second_ended.has_value())
            ++t.one_of_both;
        else if (second_ended.error() == std::errc::operation_canceled)
            ++t.waited;
        else
            ++t.perhaps;
    }
    [[nodiscard]] bool waited(const mark& of) const noexcept { return sim_.steps() != of.step; }

    [[nodiscard]] tally& of_kind(nowait::operation_kind kind) noexcept {
        return tallies_[static_cast<std::size_t>(kind)];
    }

private:
    const nowait::simulation& sim_;
    std::uint64_t next_ = 1;
    std::array<tally, nowait::operation_kinds> tallies_{};
};

} // namespace nowait_test::programs
