#include <nowait/stop.hpp>

#include <utility>

NOWAIT_BEGIN_NAMESPACE

namespace {

// Where the next source that is asked to stop inside a callback is linked; null outside of callbacks.
thread_local inplace_stop_source** turn_tail = nullptr;
thread_local inplace_stop_source* turn_head = nullptr;

} // namespace

void inplace_stop_source::call_hooks() noexcept {
    if (turn_tail != nullptr) {
        in_turn_ = true;
        *turn_tail = this;
        turn_tail = &next_in_turn_;
        return;
    }
    turn_head = nullptr;
    turn_tail = &turn_head;
    // Whose callbacks are called now stands in the queue no longer, and its owner keeps it: callbacks end nobody.
    for (inplace_stop_source* at = this; at != nullptr;) {
        while (!at->hooks_.empty()) {
            detail::stop_hook& hook = at->hooks_.pop_front();
            hook.on_stop(hook);
        }
        at = turn_head;
        if (at != nullptr) {
            turn_head = std::exchange(at->next_in_turn_, nullptr);
            if (turn_head == nullptr)
                turn_tail = &turn_head;
            at->in_turn_ = false;
        }
    }
    turn_tail = nullptr;
}

void inplace_stop_source::leave_turn() noexcept {
    inplace_stop_source** at = &turn_head;
    while (*at != this)
        at = &(*at)->next_in_turn_;
    *at = next_in_turn_;
    if (turn_tail == &next_in_turn_)
        turn_tail = at;
}

NOWAIT_END_NAMESPACE
