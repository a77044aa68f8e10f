// task<T>: a coroutine that runs when it is awaited, and whose frame has died when its awaiter goes on.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/promise.hpp>

#include <cassert>

NOWAIT_BEGIN_NAMESPACE

template <class T>
class task;

namespace detail {

template <class T>
class task_awaiter;
template <class T>
class task_operation;

template <class T>
concept awaitable_description = description<T>;

/// Awaiting in a nowait task is for tasks and for the library's descriptions; what else has an `operator co_await` would be
/// resumed on whatever thread it likes.
template <class T>
inline constexpr bool is_task = false;
template <class T>
inline constexpr bool is_task<task<T>> = true;

/// What concerns the awaiting frame itself: it has an awaiter of its own, which is told where the frame's outcome goes.
template <class D>
concept frame_description = requires { typename D::frame_awaiter; };
using outcome_failer = void (*)(void* outcome, std::exception_ptr error) noexcept;

/// A coroutine that may await, whatever it gives.
struct awaiting_promise : promise_base {
    std::suspend_always initial_suspend() const noexcept { return {}; }
    /// The loop, to which control returns next, destroys the frame. Said here and not by an awaiter, which would first have to find
    /// the promise again.
    std::suspend_always final_suspend() const noexcept {
        home->finished = true;
        return {};
    }

    template <class U>
    task_awaiter<U> await_transform(task<U>&& inner) noexcept {
        return task_awaiter<U>(std::move(inner));
    }
    template <description D>
    [[gnu::always_inline]] operation_awaiter<D> await_transform(D&& what) noexcept {
        return operation_awaiter<D>(*this, std::forward<D>(what));
    }
    // A named description may be awaited as it is if it can be copied; otherwise it must be moved. (A forwarding overload
    // would be shorter, but g++ 12 then asks for a copy of move-only objects: PR 105406.)
    template <description D>
    requires std::copy_constructible<D>
    [[gnu::always_inline]] operation_awaiter<D> await_transform(D& what) noexcept {
        if constexpr (eager_description<D>) {
            return operation_awaiter<D>(*this, what);
        } else {
            D copy(what);
            return operation_awaiter<D>(*this, std::move(copy));
        }
    }
};

template <class T>
struct task_promise_base : awaiting_promise {
    outcome<T>* result; ///< set by whoever starts the task

    void unhandled_exception() noexcept { result->set_error(std::current_exception()); }

    using awaiting_promise::await_transform;
    template <frame_description D>
    typename D::frame_awaiter await_transform(
        D what, std::source_location at = std::source_location::current()) noexcept {
        outcome<T>* to = result;
        frame_owner* const owner = this->heir.second();
        if (owner != nullptr && owner->place_elsewhere != nullptr) {
            to = static_cast<outcome<T>*>(owner->place_elsewhere(*owner, *this));
            if (to != nullptr)
                result = to;
        }
        return typename D::frame_awaiter(*this, what, to, &fail_outcome, at);
    }

private:
    static void fail_outcome(void* of_frame, std::exception_ptr error) noexcept {
        static_cast<outcome<T>*>(of_frame)->set_error(std::move(error));
    }
};

template <class T>
struct task_promise : task_promise_base<T> {
    task<T> get_return_object() noexcept;
    template <class U = T>
    requires std::constructible_from<T, U&&>
    void return_value(U&& value) noexcept(std::is_nothrow_constructible_v<T, U&&>) {
        this->result->set_value(std::forward<U>(value));
    }
};
template <class T>
struct task_promise<T&> : task_promise_base<T&> {
    task<T&> get_return_object() noexcept;
    void return_value(T& value) noexcept { this->result->set_value(value); }
};
template <>
struct task_promise<void> : task_promise_base<void> {
    inline task<void> get_return_object() noexcept;
    void return_void() noexcept { this->result->set_value(); }
};

} // namespace detail

/// A coroutine. Nothing of it runs before it is awaited, spawned or run; each task can be started once.
///
/// `co_await some_task()` runs the child on the same runtime and gives its value, or throws what it threw. Its frame,
/// parameters included, is destroyed before the awaiter goes on: a `pipe_writer` passed by value is closed by then.
/// Recursion and loops of any length use constant stack.
///
/// Do not make tasks from lambdas that capture: the captures live in the closure, not in the frame. Pass parameters, or
/// give the callable itself to `runtime::spawn`, which keeps it alive.
template <class T = void>
class [[nodiscard]] task {
public:
    using promise_type = detail::task_promise<T>;
    using value_type = T;

    task() = default;
    task(task&& other) noexcept : frame_(std::exchange(other.frame_, {})) {}
    task& operator=(task&& other) noexcept {
        if (this != &other) {
            destroy();
            frame_ = std::exchange(other.frame_, {});
        }
        return *this;
    }
    /// Destroys a task that was never started: its arguments die, nothing of it runs.
    ~task() { destroy(); }

    /// False for a moved-from or already started task.
    [[nodiscard]] bool valid() const noexcept { return static_cast<bool>(frame_); }

    /// For the library: gives the frame up to whoever starts it.
    [[nodiscard]] std::coroutine_handle<promise_type> release() noexcept { return std::exchange(frame_, {}); }

private:
    friend promise_type;
    explicit task(std::coroutine_handle<promise_type> frame) noexcept : frame_(frame) {}
    void destroy() noexcept {
        if (frame_)
            frame_.destroy();
    }

    std::coroutine_handle<promise_type> frame_;
};

namespace detail {

template <class T>
task<T> task_promise<T>::get_return_object() noexcept {
    return task<T>(promise_base::handle_of(*this));
}
template <class T>
task<T&> task_promise<T&>::get_return_object() noexcept {
    return task<T&>(promise_base::handle_of(*this));
}
inline task<void> task_promise<void>::get_return_object() noexcept {
    return task<void>(promise_base::handle_of(*this));
}

/// Awaiting a child: it gets the parent's loop and stop source, and the loop's `next` slot; the parent gets the outcome.
template <class T>
class task_awaiter {
public:
    explicit task_awaiter(task<T>&& child) noexcept : frame_(child.release()) {
        assert(frame_ && "a task can be awaited once");
    }
    // The frame is destroyed by the loop: when it has ended, or before its parent in the runtime's destructor.
    task_awaiter(const task_awaiter&) = delete;
    task_awaiter& operator=(const task_awaiter&) = delete;

    [[nodiscard]] bool await_ready() const noexcept { return false; }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> self,
                       std::source_location where = std::source_location::current()) noexcept {
        promise_base& parent = self.promise();
        auto& child = frame_.promise();
        loop& home = *parent.home;
        child.home = &home;
        child.stop = parent.stop;
        child.heir.set(parent);
        child.result = &outcome_;
        parent.where = where;
        parent.awaits.set(static_cast<promise_base&>(child));
        home.next = &child;
    }
    T await_resume() { return outcome_.take(); }

private:
    std::coroutine_handle<task_promise<T>> frame_;
    outcome<T> outcome_;
};

/// A task as a member of a composed operation, or of a join state: no wrapper coroutine.
template <class T>
class task_operation : public operation_base, public frame_owner {
public:
    explicit task_operation(task<T>&& what) noexcept : frame_(what.release()) {
        assert(frame_ && "a task can be started once");
    }
    ~task_operation() {
        if (frame_) // never started
            frame_.destroy();
    }

    [[nodiscard]] bool start() noexcept {
        auto frame = std::exchange(frame_, {});
        frame.promise().result = &outcome_;
        frame_ended = [](frame_owner& self) noexcept { static_cast<task_operation&>(self).complete(); };
        frame.promise().start_detached(home(), stop_source(), *this);
        return false;
    }
    void cancel() noexcept {} // the stop source that bind() gave reaches everything inside
    T take_result() { return outcome_.take(); }
    [[nodiscard]] outcome<T>& peek() noexcept { return outcome_; }

private:
    std::coroutine_handle<task_promise<T>> frame_;
    outcome<T> outcome_;
};

/// From an awaitable (a description or a task) to its operation and value.
template <class A>
struct operation_for;
template <description D>
struct operation_for<D> {
    using type = typename D::operation;
    using value = typename D::value_type;
};
template <class T>
struct operation_for<task<T>> {
    using type = task_operation<T>;
    using value = T;
};
template <class A>
using operation_for_t = typename operation_for<A>::type;
template <class A>
using value_for_t = typename operation_for<A>::value;

} // namespace detail

/// What can be awaited in a task, or given to with_timeout, with_stop and when_all.
template <class A>
concept awaitable = detail::description<A> || detail::is_task<A>;

NOWAIT_END_NAMESPACE
