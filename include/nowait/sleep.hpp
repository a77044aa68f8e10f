// Waiting for time to pass, and stepping aside.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/loop.hpp>
#include <nowait/detail/operation.hpp>
#include <nowait/detail/promise.hpp>
#include <nowait/detail/timer.hpp>
#include <nowait/result.hpp>

#include <chrono>
#include <coroutine>
#include <source_location>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

class sleep_operation;
class yield_operation;

struct sleep_description {
    using operation = sleep_operation;
    using value_type = result<void>;
    clock::time_point until;
    clock::duration span; ///< from the start of the operation, if `relative`
    bool relative;
};

struct yield_description {
    using operation = yield_operation;
    using value_type = void;
};

class NOWAIT_API sleep_operation final : public operation_base, private timer_node {
public:
    explicit sleep_operation(const sleep_description& what) noexcept : relative_(what.relative) {
        deadline = relative_ ? clock::time_point(what.span) : what.until;
    }
    ~sleep_operation() {
        if (waiting_) [[unlikely]]
            home().remove_timer(*this);
    }

    [[nodiscard]] bool start() noexcept;
    void cancel() noexcept;
    [[nodiscard]] result<void> take_result() const noexcept {
        if (error_ != 0)
            return fail_errno(error_);
        return {};
    }

private:
    // Programs have these by the hundred thousand, so they are kept small: before start() `deadline` may be a span, and what
    // follows lies in the padding of timer_node.
    bool relative_;
    bool waiting_ = false;
    int error_ = ECANCELED;
};

class yield_operation final : public operation_base {
public:
    explicit yield_operation(yield_description) noexcept {}
    [[nodiscard]] bool start() noexcept {
        home().counters_of(operation_kind::yield).armed.add();
        complete_later();
        return false;
    }
    void cancel() noexcept {} // it ends by itself, at once
    void take_result() const noexcept {}
};

/// A task that yields needs no operation: its frame stands in the ready queue.
template <>
class operation_awaiter<yield_description> {
public:
    operation_awaiter(promise_base&, yield_description) noexcept {}
    operation_awaiter(const operation_awaiter&) = delete;
    operation_awaiter& operator=(const operation_awaiter&) = delete;

    [[nodiscard]] bool await_ready() const noexcept { return false; }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> self,
                       std::source_location where = std::source_location::current()) const noexcept {
        promise_base& frame = self.promise();
        loop& home = *frame.home;
        home.counters_of(operation_kind::yield).armed.add();
        frame.where = where;
        frame.run = &promise_base::run_frame;
        home.post(frame);
    }
    void await_resume() const noexcept {}
};

} // namespace detail

/// Waits for `span` of any duration type. Zero, negative or NaN: no wait. What does not fit into the clock (hours::max())
/// waits until it is stopped. Never early; late by at most the timer's tick (16 us) and what runs before.
/// Errors: operation_canceled. Resumes: on the awaiter's runtime.
template <class Rep, class Period>
[[nodiscard]] detail::sleep_description sleep_for(std::chrono::duration<Rep, Period> span) noexcept {
    const auto end = detail::deadline_after(detail::clock::time_point{}, span);
    return {end, end.time_since_epoch(), true};
}

/// The same until a point of the steady clock; time_point::max() is "until stopped".
[[nodiscard]] inline detail::sleep_description sleep_until(
    std::chrono::steady_clock::time_point until) noexcept {
    return {until, {}, false};
}

/// The time as the runtime that runs here sees it, read at most once a turn; outside of a runtime, the steady clock's. In a
/// simulation it is virtual time: what std::chrono::steady_clock::now() says has nothing to do with it.
[[nodiscard]] NOWAIT_API std::chrono::steady_clock::time_point now() noexcept;

/// Goes to the tail of the ready queue: everything that is ready now runs first.
[[nodiscard]] inline detail::yield_description yield() noexcept {
    return {};
}

NOWAIT_END_NAMESPACE
