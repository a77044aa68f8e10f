// For threads that run no runtime: wait for one operation of an in-process channel, asleep.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/loop.hpp>
#include <nowait/detail/operation.hpp>
#include <nowait/detail/waiter.hpp>
#include <nowait/result.hpp>
#include <nowait/stop.hpp>
#include <nowait/task.hpp>
#include <nowait/timeout.hpp>

#include <concepts>
#include <utility>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// The loop that stands in on a thread without a runtime: a real one, but its driver knows only how to sleep on one word.
/// Made at the thread's first need of it and kept until the thread ends. nullptr when memory ran out.
[[nodiscard]] NOWAIT_API loop* loop_of_plain_thread() noexcept;

template <class T>
class join_operation;

/// Operations that end without the kernel: those of channels, and joining a task of a runtime on another thread, bounded or not.
template <class Operation>
inline constexpr bool ends_in_process = std::derived_from<Operation, channel_waiter>;
template <class T>
inline constexpr bool ends_in_process<join_operation<T>> = true;
template <class A, class Trigger, class Argument>
inline constexpr bool ends_in_process<bounded_operation<A, Trigger, Argument>> =
    ends_in_process<operation_for_t<A>>;

/// What a wait gives that cannot even begin: an error, and for descriptions that hold something, what they hold.
template <class D>
[[nodiscard]] typename D::value_type refused(D what, std::error_code why) {
    if constexpr (requires { D::refused(std::move(what), why); })
        return D::refused(std::move(what), why);
    else if constexpr (requires { what.inner; })
        return refused(std::move(what.inner), why);
    else
        return fail(why);
}

/// Inside the stand-in loop, for a scope.
class plain_thread_visit {
public:
    explicit plain_thread_visit(loop& on) noexcept : loop_(on), error_(on.enter()) {}
    ~plain_thread_visit() {
        if (error_ == 0) {
            loop_.flush_outbox(); // whom the operation has woken on other loops
            loop_.leave();
        }
    }
    plain_thread_visit(const plain_thread_visit&) = delete;
    plain_thread_visit& operator=(const plain_thread_visit&) = delete;
    [[nodiscard]] int error() const noexcept { return error_; }

private:
    loop& loop_;
    int error_;
};

} // namespace detail

/// Runs one operation of a channel, or a join, to its end on a thread without a runtime: `wait(channel.reader.read(buffer))`,
/// `wait(handle.join())`, also under with_timeout, with_deadline or with_stop. Tries first, and sleeps (on a futex) only if it must wait. It stands in the
/// channel's queue like any other operation.
/// Returns: what awaiting it would give. Errors: also resource_deadlock_would_occur: a runtime runs on this thread, which
/// would be blocked; not_enough_memory. Borrows: as the operation. Resumes: here.
template <detail::description D>
requires detail::ends_in_process<typename D::operation>
[[nodiscard]] typename D::value_type wait(D what) {
    if (detail::loop::current() != nullptr)
        return detail::refused(std::move(what),
                               std::make_error_code(std::errc::resource_deadlock_would_occur));
    detail::loop* const here = detail::loop_of_plain_thread();
    if (here == nullptr)
        return detail::refused(std::move(what), std::make_error_code(std::errc::not_enough_memory));
    const detail::plain_thread_visit visit(*here);
    if (visit.error() != 0)
        return detail::refused(std::move(what), std::error_code(visit.error(), std::generic_category()));

    typename D::operation operation(std::move(what));
    inplace_stop_source never;
    operation.bind(
        *here, never, [](detail::operation_base& ended) noexcept { --ended.home().live; }, nullptr);
    here->budget = 128; // as for a turn: nobody else is to run here
    if (!operation.start()) {
        ++here->live;
        here->flush_outbox();
        here->run_until_idle(detail::clock::time_point::max());
    }
    return operation.take_result();
}

NOWAIT_END_NAMESPACE
