// One operation made of many: reads or writes the rest, again and again, until nothing is left.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/exceptions.hpp>
#include <nowait/detail/loop.hpp>
#include <nowait/detail/operation.hpp>
#include <nowait/detail/promise.hpp>
#include <nowait/result.hpp>
#include <nowait/task.hpp>

#include <cassert>
#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// `Byte` says the direction: std::byte is filled by reads, const std::byte is emptied by writes.
template <class Stream, class Byte>
[[nodiscard]] auto transfer_step(Stream& stream, std::span<Byte> rest) {
    if constexpr (std::is_const_v<Byte>)
        return stream.write(rest);
    else
        return stream.read(rest);
}

template <class Stream, class Byte>
struct transfer_all_description;

/// The child operation lives in `step_` and is made anew in place for each step: no frame, no allocation. Steps that finish
/// inline are a loop, those that wait come back through step_ended, so the stack does not grow with their number. The turn's
/// budget is spent, and respected, by the steps themselves.
template <class Stream, class Byte>
class transfer_all_operation final : public operation_base {
    using step_description =
        decltype(transfer_step(std::declval<Stream&>(), std::declval<std::span<Byte>>()));
    using step_operation = operation_for_t<step_description>;
    // Steps of the library do not throw; a stream whose read is a task may.
    static constexpr bool may_throw = !noexcept(std::declval<step_operation&>().take_result());
    struct nothing {};

public:
    explicit transfer_all_operation(const transfer_all_description<Stream, Byte>& what) noexcept
        : stream_(what.stream), rest_(what.rest) {}

    [[nodiscard]] bool start() noexcept { return advance(); }
    void cancel() noexcept {
        cancelled_ = true;
        step_->cancel();
    }
    [[nodiscard]] progress take_result() noexcept(!may_throw) {
        if constexpr (may_throw) {
            if (thrown_)
                std::rethrow_exception(std::move(thrown_));
        }
        return done_;
    }

private:
    /// True: everything has ended. False: a step waits.
    [[nodiscard]] bool advance() noexcept {
        while (!rest_.empty()) {
            if constexpr (eager_description<step_description>) {
                // The attempt comes first; an operation is built only for what has to wait.
                const step_description step = transfer_step(*stream_, rest_);
                long outcome = 0;
                if (step.try_now(home(), stop_source(), outcome)) {
                    if (!account(step_description::value_of(outcome)))
                        return true;
                    continue;
                }
                step_.emplace(step);
                step_->bind(home(), stop_source(), &step_ended, this);
                if (!step_->start_after(outcome))
                    return false;
            } else {
                if (!make_step())
                    return true;
                step_->bind(home(), stop_source(), &step_ended, this);
                if (!step_->start())
                    return false;
            }
            if (!take_step())
                return true;
        }
        return true;
    }

    static void step_ended(operation_base& step) noexcept {
        auto& self = *static_cast<transfer_all_operation*>(step.context());
        if (!self.take_step() || self.advance())
            self.complete();
    }

    [[nodiscard]] bool make_step() noexcept {
        if constexpr (!may_throw) {
            step_.emplace(transfer_step(*stream_, rest_));
        } else {
            NOWAIT_TRY {
                step_.emplace(transfer_step(*stream_, rest_));
            }
            NOWAIT_CATCH_ALL {
                thrown_ = std::current_exception();
                return false;
            }
        }
        return true;
    }

    /// False: this step was the last one.
    [[nodiscard]] bool take_step() noexcept {
        if constexpr (!may_throw) {
            return account(step_->take_result());
        } else {
            NOWAIT_TRY {
                return account(step_->take_result());
            }
            NOWAIT_CATCH_ALL {
                thrown_ = std::current_exception();
                return false;
            }
        }
    }
    [[nodiscard]] bool account(const result<std::size_t>& moved) noexcept {
        if (!moved) {
            done_.error = moved.error();
            return false;
        }
        assert(*moved <= rest_.size() && "a stream moved more than it was given");
        if (*moved == 0) {
            // The end of what is read. A write that does nothing and calls it success would be repeated for ever.
            if constexpr (std::is_const_v<Byte>)
                done_.error = std::make_error_code(std::errc::io_error);
            return false;
        }
        done_.bytes += *moved;
        rest_ = rest_.subspan(*moved);
        if (cancelled_ && !rest_.empty()) {
            done_.error = std::make_error_code(std::errc::operation_canceled);
            return false;
        }
        return true;
    }

    Stream* stream_;
    std::span<Byte> rest_;
    progress done_;
    bool cancelled_ = false;
    [[no_unique_address]] std::conditional_t<may_throw, std::exception_ptr, nothing> thrown_;
    std::optional<step_operation> step_;
};

template <class Stream, class Byte>
struct transfer_all_description {
    using operation = transfer_all_operation<Stream, Byte>;
    using value_type = progress;
    Stream* stream;
    std::span<Byte> rest;
};

} // namespace detail
NOWAIT_END_NAMESPACE
