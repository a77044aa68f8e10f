#include <nowait/detail/loop.hpp>
#include <nowait/sleep.hpp>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

bool sleep_operation::start() noexcept {
    operation_counters& counts = home().counters_of(operation_kind::sleep);
    if (stop_requested())
        return true;
    const clock::duration span = deadline.time_since_epoch();
    const bool endless = deadline == clock::time_point::max();
    if (relative_ && !endless)
        deadline = deadline_after(home().now(), span);
    const bool over = !endless && (relative_ ? span <= clock::duration::zero() : deadline <= home().now());
    if (over) {
        error_ = 0;
        if (home().budget > 0) {
            home().charge(0);
            counts.inline_completions.add();
            return true;
        }
        counts.budget_yields.add();
        complete_later();
        return false;
    }
    waiting_ = true;
    on_expiry = [](timer_node& timer) noexcept {
        auto& self = static_cast<sleep_operation&>(timer);
        self.waiting_ = false;
        self.error_ = 0;
        self.complete_later();
    };
    home().add_timer(*this);
    counts.armed.add();
    listen_for_stop(
        [](stop_hook& hook) noexcept { static_cast<sleep_operation&>(from_hook(hook)).cancel(); });
    return false;
}

void sleep_operation::cancel() noexcept {
    if (!waiting_)
        return; // it has expired: the result is on its way
    waiting_ = false;
    home().remove_timer(*this);
    complete_later();
}

} // namespace detail

std::chrono::steady_clock::time_point now() noexcept {
    detail::loop* here = detail::loop::current();
    return here != nullptr ? here->now() : detail::real_system().now();
}

NOWAIT_END_NAMESPACE
