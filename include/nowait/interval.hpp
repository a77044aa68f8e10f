// Something that is to be done again and again, at a steady pace.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/loop.hpp>
#include <nowait/detail/operation.hpp>
#include <nowait/detail/timer.hpp>
#include <nowait/result.hpp>
#include <nowait/sleep.hpp>

#include <cassert>
#include <chrono>
#include <cstdint>
#include <optional>

NOWAIT_BEGIN_NAMESPACE

class interval;

/// What becomes of ticks that went by while nobody waited for them.
enum class missed_ticks : std::uint8_t {
    skip,  ///< the next tick counts them; the pace stays as it was
    burst, ///< each comes, one after the other, at once
    delay  ///< they are dropped, and the pace begins anew with the late tick
};

namespace detail {

class interval_operation;

struct interval_description {
    using operation = interval_operation;
    using value_type = result<std::uint64_t>;
    interval* of;
};

class interval_operation final : public operation_base {
public:
    explicit interval_operation(interval_description what) noexcept : of_(what.of) {}

    [[nodiscard]] inline bool start() noexcept;
    void cancel() noexcept {
        if (sleep_)
            sleep_->cancel();
    }
    [[nodiscard]] inline result<std::uint64_t> take_result() noexcept;

private:
    interval* of_;
    int error_ = 0;
    std::optional<sleep_operation> sleep_;
};

} // namespace detail

/// Ticks, `period` apart. The first comes one period after the first call of tick() or try_tick(). What is done between the
/// ticks does not slow them down: tick n is due at the beginning plus n periods.
///
///     nowait::interval every(100ms);
///     while (auto ticks = co_await every.tick())
///         report();                               // ends when a stop is requested
///
/// For one task at a time. Borrows: the interval stays where it is while a tick is waited for.
class interval {
public:
    using clock = std::chrono::steady_clock;

    /// A period of less than one nanosecond, or none, is taken as one nanosecond.
    template <class Rep, class Period>
    explicit interval(std::chrono::duration<Rep, Period> period,
                      missed_ticks missed = missed_ticks::skip) noexcept
        : period_(detail::deadline_after(clock::time_point{}, period).time_since_epoch()), missed_(missed) {
        if (period_ < clock::duration(1))
            period_ = clock::duration(1);
    }

    /// Waits for the next tick. Returns: how many periods it stands for: 1, or more with missed_ticks::skip.
    /// Errors: operation_canceled: no tick was taken, the next call waits for the same one;
    /// device_or_resource_busy: another task waits. Resumes: on the awaiter's runtime.
    [[nodiscard]] detail::interval_description tick() noexcept { return {this}; }

    /// The same without waiting. Errors: resource_unavailable_try_again: it is not due. Precondition: inside a runtime.
    [[nodiscard]] result<std::uint64_t> try_tick() noexcept {
        detail::loop* const here = detail::loop::current();
        assert(here != nullptr && "try_tick() without a running runtime");
        if (waiting_)
            return fail(std::errc::device_or_resource_busy);
        begin(here->now());
        if (next_ > here->now())
            return fail(std::errc::resource_unavailable_try_again);
        return take(here->now());
    }

    [[nodiscard]] clock::duration period() const noexcept { return period_; }
    /// When the next tick is due; time_point::max() before the first call.
    [[nodiscard]] clock::time_point next() const noexcept { return next_; }
    /// The next tick comes one period from the next call on.
    void reset() noexcept { next_ = clock::time_point::max(); }

private:
    friend class detail::interval_operation;

    void begin(clock::time_point now) noexcept {
        if (next_ == clock::time_point::max())
            next_ = detail::deadline_after(now, period_);
    }
    /// The tick that is due.
    [[nodiscard]] std::uint64_t take(clock::time_point now) noexcept {
        std::uint64_t ticks = 1;
        if (missed_ == missed_ticks::skip)
            ticks += static_cast<std::uint64_t>((now - next_) / period_);
        if (missed_ == missed_ticks::delay)
            next_ = detail::deadline_after(now, period_);
        else
            next_ += period_ * static_cast<clock::rep>(ticks);
        return ticks;
    }

    clock::duration period_;
    missed_ticks missed_;
    bool waiting_ = false;
    clock::time_point next_ = clock::time_point::max();
};

namespace detail {

inline bool interval_operation::start() noexcept {
    if (of_->waiting_) {
        error_ = EBUSY;
        return true;
    }
    of_->waiting_ = true;
    of_->begin(home().now());
    sleep_.emplace(sleep_description{of_->next_, {}, false});
    sleep_->bind(
        home(), stop_source(),
        [](operation_base& ended) noexcept { static_cast<interval_operation*>(ended.context())->complete(); },
        this);
    return sleep_->start();
}

inline result<std::uint64_t> interval_operation::take_result() noexcept {
    if (error_ != 0)
        return fail_errno(error_);
    of_->waiting_ = false;
    if (auto slept = sleep_->take_result(); !slept)
        return fail(slept.error());
    return of_->take(home().now());
}

} // namespace detail
NOWAIT_END_NAMESPACE
