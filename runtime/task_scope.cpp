#include <nowait/task_scope.hpp>

#include <cassert>
#include <cerrno>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

namespace {

/// True if what a task threw says no more than that it was asked to stop.
bool means_stopped(const std::exception_ptr& thrown) noexcept {
    try {
        std::rethrow_exception(thrown);
    } catch (const std::system_error& error) {
        return error.code() == std::errc::operation_canceled;
    } catch (...) {
        return false;
    }
}

} // namespace

void scope_state::find_home() noexcept {
    home_ = loop::current();
    assert(home_ != nullptr && "a scope spawns inside a runtime, or was made for one");
}

void scope_state::first_starts() noexcept {
    loop& on = *home_;
    // The runtime's own stop reaches the tasks also while nobody joins. Only while there are tasks: a scope may outlive the
    // runtime, its tasks do not.
    if (on.root_stop().stop_requested()) {
        stop_.request_stop();
        return;
    }
    runtime_stop_.of = this;
    runtime_stop_.on_stop = [](stop_hook& hook) noexcept {
        static_cast<embedded_hook&>(hook).of->stop_.request_stop();
    };
    on.root_stop().add(runtime_stop_);
}

void scope_state::child_ended(scope_failure how) noexcept {
    const bool stopped = stop_.stop_requested();
    if (stopped && how.thrown && means_stopped(how.thrown))
        how.thrown = nullptr;
    if (stopped && how.code == std::errc::operation_canceled)
        how.code.clear();
    if (how.thrown || how.code) {
        if (!owned_ && joiner_ == nullptr && how.thrown) [[unlikely]] {
            if (home_->unhandled != nullptr)
                home_->unhandled(how.thrown);
            std::terminate();
        }
        if (!first_.thrown && !first_.code)
            first_ = std::move(how);
        stop_.request_stop();
    }
    child_succeeded();
}

void scope_state::last_ended() noexcept {
    runtime_stop_.unlink();
    if (joiner_ != nullptr && joiner_->waiting_) {
        joiner_->waiting_ = false;
        joiner_->complete();
        return;
    }
    release_if_unused();
}

void scope_state::child_abandoned() noexcept {
    if (--active_ == 0)
        runtime_stop_.unlink();
    release_if_unused();
}

void scope_state::abandon() noexcept {
    owned_ = false;
    if (active_ != 0)
        stop_.request_stop();
    release_if_unused();
}

void scope_state::release_if_unused() noexcept {
    if (!owned_ && active_ == 0 && joiner_ == nullptr)
        delete this;
}

scope_join_operation::~scope_join_operation() {
    if (state_ == nullptr || state_->joiner_ != this)
        return;
    state_->joiner_ = nullptr;
    state_->release_if_unused();
}

bool scope_join_operation::start() noexcept {
    operation_counters& counts = home().counters_of(operation_kind::join);
    if (state_ == nullptr) {
        error_ = EBADF;
        return true;
    }
    if (state_->joiner_ != nullptr) {
        error_ = EBUSY;
        return true;
    }
    state_->joiner_ = this;
    if (state_->active_ == 0) {
        counts.inline_completions.add();
        return true;
    }
    assert(state_->home_ == &home() && "a scope is joined on its own runtime");
    waiting_ = true;
    counts.armed.add();
    if (stop_requested())
        cancel();
    else
        listen_for_stop(
            [](stop_hook& hook) noexcept { static_cast<scope_join_operation&>(from_hook(hook)).cancel(); });
    return false;
}

void scope_join_operation::cancel() noexcept {
    if (!waiting_)
        return;
    stopped_ = true;
    state_->stop_.request_stop();
}

result<void> scope_join_operation::take_result() {
    if (error_ != 0)
        return fail_errno(error_);
    scope_failure& first = state_->first_;
    if (first.thrown)
        std::rethrow_exception(std::exchange(first.thrown, nullptr));
    if (first.code)
        return fail(std::exchange(first.code, {}));
    if (stopped_)
        return fail(std::errc::operation_canceled);
    return {};
}

} // namespace detail
NOWAIT_END_NAMESPACE
