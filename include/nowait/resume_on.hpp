// Going on somewhere else: the rest of a task runs on another runtime.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/loop.hpp>
#include <nowait/detail/promise.hpp>
#include <nowait/result.hpp>
#include <nowait/runtime.hpp>
#include <nowait/task.hpp>

#include <cerrno>
#include <exception>
#include <source_location>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

class journey;

/// The move itself is made by the loop, in a turn of its own, when the coroutine has suspended: from then on its frame, and this
/// in it, belong to the other thread.
class NOWAIT_API resume_on_awaiter : ready_node {
public:
    resume_on_awaiter(promise_base& frame, struct resume_on_description to, void* outcome,
                      outcome_failer fail_with, std::source_location where) noexcept;
    ~resume_on_awaiter();
    resume_on_awaiter(const resume_on_awaiter&) = delete;
    resume_on_awaiter& operator=(const resume_on_awaiter&) = delete;

    [[nodiscard]] bool await_ready() noexcept;
    void await_suspend(std::coroutine_handle<>) noexcept;
    [[nodiscard]] result<void> await_resume() const noexcept {
        if (error_ != 0)
            return fail_errno(error_);
        return {};
    }

private:
    static void depart(ready_node& node) noexcept;

    promise_base& frame_;
    mailbox* to_; // a reference
    journey* fresh_ = nullptr;
    void* outcome_;
    outcome_failer fail_;
    std::source_location where_;
    int error_ = 0;
};

struct resume_on_description {
    using frame_awaiter = resume_on_awaiter;
    mailbox* to;
};

} // namespace detail

/// The awaiting task goes on on the runtime `where`, with everything that it awaits from then on: its home is there. When it
/// ends, whoever awaits it goes on where *he* was, with its value or what it threw: a task that moves is a matter of its own.
/// It may move again, and back. Not for the middle of composed operations: only a task's own co_await takes it.
///
/// What belongs to a runtime stays behind: a pipe end, queue or signal that the task has used before answers
/// operation_not_permitted on the other one; local channels and inplace_stop_sources must not be touched from there. Shared channels
/// are for everywhere. A stop of whoever started the task reaches it there too, and so does the end of either runtime. The
/// runtime that it came from waits for it: run() does not return, and the destructor (up to destructor_wait) does not go on.
///
/// Returns: nothing; the task is there (already, if it was before). Errors, the task going on where it is: operation_canceled: a stop
/// was requested, or that runtime has gone; not_enough_memory. If it goes just before the task arrives, the task goes on at home,
/// where it came from first, with the same error. If that runtime is destroyed while the task is on it, the task's
/// frame goes with it, and its awaiter gets std::system_error(operation_canceled).
/// Borrows: `where`, until it is awaited. Resumes: on `where`, when somebody runs it.
[[nodiscard]] inline detail::resume_on_description resume_on(const remote_runtime& where) noexcept {
    return {&where.get_mailbox()};
}
[[nodiscard]] inline detail::resume_on_description resume_on(const runtime& where) noexcept {
    return {&where.get_loop().remote()};
}

NOWAIT_END_NAMESPACE
