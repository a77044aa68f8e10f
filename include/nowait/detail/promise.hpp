// What every coroutine frame of the library knows: its loop, who waits for it, what it waits for.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/either.hpp>
#include <nowait/detail/frame_pool.hpp>
#include <nowait/detail/loop.hpp>
#include <nowait/detail/operation.hpp>

#include <cassert>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <new>
#include <source_location>
#include <type_traits>
#include <utility>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// Out of the way of outcomes that are no exceptions: a frame that throws needs registers and cleanups of its own.
[[noreturn, gnu::noinline, gnu::cold]] inline void rethrow(std::exception_ptr& error) {
    std::rethrow_exception(std::move(error));
}

/// Where a task's outcome goes: in the awaiter, or in whatever started the task. The frame is gone when it is read.
template <class T>
class outcome {
public:
    outcome() noexcept {}
    ~outcome() { reset(); }
    outcome(const outcome&) = delete;
    outcome& operator=(const outcome&) = delete;

    template <class U>
    void set_value(U&& value) noexcept(std::is_nothrow_constructible_v<T, U&&>) {
        ::new (static_cast<void*>(&value_)) T(std::forward<U>(value));
        state_ = state::value;
    }
    void set_error(std::exception_ptr error) noexcept {
        ::new (static_cast<void*>(&error_)) std::exception_ptr(std::move(error));
        state_ = state::error;
    }
    [[nodiscard]] std::exception_ptr error() const noexcept {
        return state_ == state::error ? error_ : std::exception_ptr();
    }
    T take() {
        if (state_ == state::error) [[unlikely]]
            rethrow(error_);
        return std::move(value_);
    }

private:
    enum class state : unsigned char { empty, value, error };
    void reset() noexcept {
        if (state_ == state::value)
            value_.~T();
        else if (state_ == state::error) [[unlikely]]
            error_.~exception_ptr();
    }
    state state_ = state::empty;
    union {
        T value_;
        std::exception_ptr error_;
    };
};

template <class T>
class outcome<T&> {
public:
    void set_value(T& value) noexcept { value_ = &value; }
    void set_error(std::exception_ptr error) noexcept { error_ = std::move(error); }
    [[nodiscard]] std::exception_ptr error() const noexcept { return error_; }
    T& take() {
        if (error_) [[unlikely]]
            rethrow(error_);
        return *value_;
    }

private:
    T* value_ = nullptr;
    std::exception_ptr error_;
};

template <>
class outcome<void> {
public:
    void set_value() noexcept {} // success is that there is no error
    void set_error(std::exception_ptr error) noexcept { error_ = std::move(error); }
    [[nodiscard]] std::exception_ptr error() const noexcept { return error_; }
    [[nodiscard]] bool failed() const noexcept { return static_cast<bool>(error_); }
    void take() {
        if (error_) [[unlikely]]
            rethrow(error_);
    }

private:
    std::exception_ptr error_;
};

/// What is told when a frame without a parent has ended. Called by the loop, after the frame has been destroyed, with the
/// `next` slot free.
struct frame_owner {
    void (*frame_ended)(frame_owner&) noexcept = nullptr;
    /// The loop has been destroyed, and the frame with it, before it ended. Null: the owner goes the same way by itself.
    void (*frame_abandoned)(frame_owner&) noexcept = nullptr;
    /// The frame is about to move to another loop, whose thread will write its outcome. Null: it may, where it is. Otherwise
    /// gives another place (and perhaps another owner), or null if there is no memory for it.
    void* (*place_elsewhere)(frame_owner&, struct promise_base& frame) noexcept = nullptr;
};

/// The part of a promise that does not depend on its type. `ready_node`: the frame itself is what stands in the ready
/// queue; `list_node`: its place among the roots.
struct promise_base : ready_node, list_node {
    // Set when the frame is made; those without a value, when it is started. Of a child task that ends at once, each word that
    // is not written counts.
    loop* home;
    inplace_stop_source* stop; ///< inherited from whoever started this frame
    /// Who goes on when this frame has ended, its parent; or, of a frame of its own, who is told.
    either<promise_base, frame_owner> heir;
    /// While it is suspended: the operation or the child that it waits for. None: it is ready, or the child is on another loop.
    either<operation_base, promise_base> awaits;
    /// For the dump: where it waits, or waited last. Line 0: it has not waited yet.
    std::source_location where;

    promise_base() noexcept : list_node(unset{}) {}

    /// The coroutine. Every promise begins with its promise_base, and in the frame it stands at one distance from the head, which
    /// depends on the promise's alignment only (g++ and clang): nothing needs to be remembered.
    [[nodiscard]] std::coroutine_handle<> self() noexcept {
        return std::coroutine_handle<promise_base>::from_promise(*this);
    }
    template <class Promise>
    [[nodiscard]] static std::coroutine_handle<Promise> handle_of(Promise& promise) noexcept {
        static_assert(alignof(Promise) == alignof(promise_base));
        auto handle = std::coroutine_handle<Promise>::from_promise(promise);
        assert(handle.address() == promise.self().address());
        return handle;
    }

    /// A frame of its own: it runs when the ready queue comes to it.
    void start_detached(loop& on, inplace_stop_source& stop_with, frame_owner& tell) noexcept {
        home = &on;
        stop = &stop_with;
        heir.set(tell);
        on.roots.push_back(*this);
        ++on.live;
        run = &run_frame;
        on.post(*this);
    }
    /// What the loop does with a frame that stands in its ready queue. Its address is how the loop knows one.
    NOWAIT_API static void run_frame(ready_node& node) noexcept;

    /// For awaiters, when the frame is about to suspend.
    void suspend_for(operation_base& operation, std::source_location at) noexcept {
        awaits.set(operation);
        where = at;
    }

    static void* operator new(std::size_t size) { return frame_pool::allocate(size); }
    static void operator delete(void* frame) noexcept { frame_pool::deallocate(frame); }
};

/// The common end of awaiters: resuming a frame is to fill the loop's `next` slot.
inline void resume_frame(operation_base& ended) noexcept {
    auto& frame = *static_cast<promise_base*>(ended.context());
    frame.awaits.clear();
    frame.home->next = &frame;
}

/// The awaiter of a plain operation: lives in the frame, by value, immovable. The place of the co_await, for the dump, is an
/// argument of await_suspend: so only those that suspend pay for it.
template <class D>
class operation_awaiter {
public:
    operation_awaiter(promise_base& frame, D&& what) noexcept : operation_(std::move(what)) {
        operation_.bind(*frame.home, *frame.stop, &resume_frame, &frame);
    }
    operation_awaiter(const operation_awaiter&) = delete;
    operation_awaiter& operator=(const operation_awaiter&) = delete;

    [[nodiscard]] bool await_ready() noexcept { return operation_.start(); }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> self,
                       std::source_location where = std::source_location::current()) noexcept {
        self.promise().suspend_for(operation_, where);
    }
    typename D::value_type await_resume() { return operation_.take_result(); }

private:
    typename D::operation operation_;
};

/// What a first attempt leaves behind: a number, unless the description names a type of its own.
template <class D>
struct eager_outcome {
    using type = long;
};
template <class D>
requires requires { typename D::outcome; }
struct eager_outcome<D> {
    using type = typename D::outcome;
};

/// Descriptions that can make the first attempt by themselves, before there is an operation. `outcome` is value_of()'s if the
/// attempt has ended it, and start_after()'s if not.
template <class D>
concept eager_description = description<D> && requires(const D& d, loop& home, inplace_stop_source& stop,
                                                       typename eager_outcome<D>::type& outcome) {
    { d.try_now(home, stop, outcome) } -> std::same_as<bool>;
    { D::value_of(outcome) } -> std::same_as<typename D::value_type>;
};

/// The same for them: the operation (a waiter node, a stop hook, a dozen words) is built only if the attempt fails. It is made
/// where the awaiter is constructed, with everything still in registers: every word that an awaiter keeps is stored in
/// the frame, and in an attempt that succeeds these stores would be most of the work.
template <eager_description D>
class operation_awaiter<D> {
public:
    /// `what` is a temporary of the co_await expression, or a variable of the awaiting frame.
    [[gnu::always_inline]] operation_awaiter(promise_base& frame, const D& what) noexcept {
        if (what.try_now(*frame.home, *frame.stop, outcome_)) [[likely]]
            stage_ = stage::ended_at_once;
        else
            start_operation(frame, what);
    }
    [[gnu::always_inline]] ~operation_awaiter() {
        if (stage_ != stage::ended_at_once) [[unlikely]]
            operation_.~operation_type();
    }
    operation_awaiter(const operation_awaiter&) = delete;
    operation_awaiter& operator=(const operation_awaiter&) = delete;

    [[nodiscard, gnu::always_inline]] bool await_ready() const noexcept { return stage_ != stage::waits; }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> self,
                       std::source_location where = std::source_location::current()) noexcept {
        self.promise().suspend_for(operation_, where);
    }
    [[gnu::always_inline]] typename D::value_type await_resume() {
        if (stage_ == stage::ended_at_once) [[likely]]
            return D::value_of(outcome_);
        return operation_.take_result();
    }

private:
    using operation_type = typename D::operation;
    enum class stage : unsigned char { ended_at_once, ended, waits }; // the last two: there is an operation

    /// Out of the way of the attempt.
    [[gnu::noinline]] void start_operation(promise_base& frame, const D& what) noexcept {
        ::new (static_cast<void*>(&operation_)) operation_type(what);
        operation_.bind(*frame.home, *frame.stop, &resume_frame, &frame);
        stage_ = operation_.start_after(outcome_) ? stage::ended : stage::waits;
    }

    stage stage_;
    [[no_unique_address]] typename eager_outcome<D>::type outcome_{};
    union {
        operation_type operation_;
    };
};

} // namespace detail
NOWAIT_END_NAMESPACE
