// async_generator<T>: a coroutine that gives values one after the other, and may wait between them.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/promise.hpp>
#include <nowait/result.hpp>
#include <nowait/task.hpp>

#include <cassert>
#include <cerrno>
#include <coroutine>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

NOWAIT_BEGIN_NAMESPACE

template <class T>
class async_generator;

namespace detail {

template <class T>
class generator_next_operation;

template <class T>
struct generator_promise : awaiting_promise {
    generator_next_operation<T>* consumer =
        nullptr; ///< while the coroutine runs, or waits for something of its own

    struct yielded {
        [[nodiscard]] bool await_ready() const noexcept { return false; }
        void await_suspend(std::coroutine_handle<generator_promise> at) const noexcept {
            at.promise().hand_over();
        }
        void await_resume() const noexcept {}
    };

    async_generator<T> get_return_object() noexcept;
    template <class U>
    requires std::constructible_from<T, U&&>
    yielded yield_value(U&& value) noexcept(std::is_nothrow_constructible_v<T, U&&>) {
        consumer->value_.emplace(std::forward<U>(value));
        return {};
    }
    void return_void() const noexcept {}
    void unhandled_exception() noexcept { consumer->exception_ = std::current_exception(); }

    /// Out of the loop's hands until the next value is asked for.
    void hand_over() noexcept {
        static_cast<list_node&>(*this).unlink();
        --home->live;
        std::exchange(consumer, nullptr)->complete();
    }
};

template <class T>
struct generator_next_description {
    using operation = generator_next_operation<T>;
    using value_type = result<T>;
    async_generator<T>* of;
};

/// Lets the coroutine go on until it has a value or ends. Meanwhile the coroutine is a root of the loop, as a task that a
/// composed operation holds: a runtime that is destroyed takes it down before whoever waits for it.
template <class T>
class generator_next_operation final : public operation_base, public frame_owner {
public:
    explicit generator_next_operation(generator_next_description<T> what) noexcept : of_(what.of) {}

    [[nodiscard]] bool start() noexcept {
        if (!of_->frame_) {
            error_ = of_->ended_ ? EPIPE : EBADF;
            return true;
        }
        auto& promise = of_->frame_.promise();
        if (promise.consumer != nullptr) {
            error_ = EBUSY;
            return true;
        }
        if (stop_requested()) {
            error_ = ECANCELED;
            return true;
        }
        promise.consumer = this;
        frame_ended = [](frame_owner& owner) noexcept {
            auto& self = static_cast<generator_next_operation&>(owner);
            self.lose_frame();
            self.complete();
        };
        frame_abandoned = [](frame_owner& owner) noexcept {
            static_cast<generator_next_operation&>(owner).lose_frame();
        };
        promise.start_detached(home(), stop_source(), *this);
        return false;
    }
    void cancel() noexcept {} // the stop source that bind() gave reaches everything inside
    [[nodiscard]] result<T> take_result() {
        if (exception_)
            std::rethrow_exception(std::exchange(exception_, nullptr));
        if (!value_)
            return fail_errno(error_);
        return std::move(*value_);
    }

private:
    friend struct generator_promise<T>;
    friend class async_generator<T>;

    void lose_frame() noexcept {
        of_->frame_ = {};
        of_->ended_ = true;
    }

    async_generator<T>* of_; // kept right when the generator moves
    int error_ = EPIPE;
    std::optional<T> value_;
    std::exception_ptr exception_;
};

} // namespace detail

/// A coroutine that gives values by co_yield. Nothing of it runs before the first next(), and between two calls it stands still:
/// it makes nothing that nobody has asked for.
///
///     nowait::async_generator<std::string> lines_of(nowait::pipe_reader from);
///
///     auto lines = lines_of(std::move(reader));
///     while (auto line = co_await lines.next())
///         use(*line);
///
/// The same cautions hold as for tasks: parameters by value, no lambdas that capture. Its frame, parameters included, is
/// destroyed when its end has been reached or with this object, whichever comes first.
template <class T>
class [[nodiscard]] async_generator {
    static_assert(std::is_object_v<T>, "values, not references: give a pointer or a reference_wrapper");

public:
    using promise_type = detail::generator_promise<T>;
    using value_type = T;

    async_generator() = default;
    async_generator(async_generator&& other) noexcept { take(other); }
    async_generator& operator=(async_generator&& other) noexcept {
        if (this != &other) {
            destroy();
            take(other);
        }
        return *this;
    }
    /// Precondition: nobody waits for a value.
    ~async_generator() { destroy(); }

    /// Waits for the next value. Returns: it; throws what the coroutine threw, which has then ended.
    /// Errors: broken_pipe: the coroutine has ended, there will be no more values; operation_canceled: a stop had been requested
    /// before it was let go on; device_or_resource_busy: somebody else waits for a value; bad_file_descriptor: an empty
    /// generator. A stop that comes meanwhile reaches what the coroutine waits for; whether it then gives another value or ends
    /// is the coroutine's decision, and next() waits for that.
    /// Borrows: the generator; it may move. Resumes: on the awaiter's runtime.
    [[nodiscard]] detail::generator_next_description<T> next() & noexcept { return {this}; }

    /// False for an empty or moved-from generator, and when the end has been reached.
    [[nodiscard]] bool valid() const noexcept { return static_cast<bool>(frame_); }

private:
    friend promise_type;
    friend class detail::generator_next_operation<T>;
    explicit async_generator(std::coroutine_handle<promise_type> frame) noexcept : frame_(frame) {}

    void take(async_generator& other) noexcept {
        frame_ = std::exchange(other.frame_, {});
        ended_ = std::exchange(other.ended_, false);
        if (frame_ && frame_.promise().consumer != nullptr)
            frame_.promise().consumer->of_ = this;
    }
    void destroy() noexcept {
        if (!frame_)
            return;
        assert(frame_.promise().consumer == nullptr && "a generator goes while somebody waits for its value");
        std::exchange(frame_, {}).destroy();
    }

    std::coroutine_handle<promise_type> frame_;
    bool ended_ = false;
};

namespace detail {

template <class T>
async_generator<T> generator_promise<T>::get_return_object() noexcept {
    return async_generator<T>(promise_base::handle_of(*this));
}

} // namespace detail
NOWAIT_END_NAMESPACE
