// The life of an operation.
//
// A call such as `reader.read(buffer)` returns a *description*: small, movable, nothing has happened. Awaiting it (or
// giving it to with_timeout, when_all, ...) makes the *operation*, which lives in the awaiting frame or inside a composed
// operation, is immovable, and is its own node in whatever queue it waits in. No operation allocates.
//
//      bound ---start()--> ended inline                     the first nowait attempt finished it; nothing else happened
//        |
//        +----start()--> waiting ---event, attempt---> ended     armed in the driver or in a wait queue; a wake makes
//                          |  ^         |                        the operation try again by itself, and only a result
//                          |  +--EAGAIN-+                        ends it: the coroutine never sees a wake-up
//                          |
//                          +--cancel()--> cancelling ---> ended  "cancelling" is over at once where the operation is only
//                                                                a link in a list, and lasts until the driver's own
//                                                                completion where a buffer is in the kernel's hands
//
// The rules, the same for every driver and every kind:
//
//  1. bind() gives the operation its loop, its stop source, and the function to call when it ends. It is called once.
//  2. start() returns true when the operation has ended inline: the result is there, the completion function is NOT called.
//     Otherwise it returns false, and the completion function is called exactly once, later, by the operation's own
//     loop, with nobody else's call on the stack: never from inside start(), cancel(), or another object's write or close.
//  3. A completion function is the last thing that a ready node runs, and it finds the loop's `next` slot free: "resume
//     this coroutine" is to fill that slot.
//  4. cancel() is called on the loop's thread, any number of times, only between a start() that returned false and the
//     end. It asks; the end still comes through the completion function, with operation_canceled if nothing was done, with
//     the result if there is one.
//  5. Done or untouched: an operation that ends with operation_canceled or timed_out has consumed nothing, sent nothing
//     and left no waiter behind.
//  6. A buffer is borrowed until the end, cancelled or not.
//  7. take_result() is called once, after the end. Then, or if it was never started, the operation may be destroyed.
//     Destroying one that waits is a broken precondition; only the runtime's destructor does it, when its loop is over and
//     its driver has let go of everything.
//
// Because resumption goes through rule 2 and 3 only, an operation may be armed before the coroutine is suspended: nothing
// can end it until control is back in the loop. So await_ready() does all the work (or, where a description can make the first
// attempt by itself, the awaiter's constructor), and await_suspend() only leaves.
#pragma once

#include <nowait/config.hpp>
#include <nowait/result.hpp>
#include <nowait/stats.hpp>
#include <nowait/stop.hpp>

#include <concepts>
#include <utility>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

class loop;

/// An entry of a loop's ready queue or inbox. Whoever posts it sets `run` first; it stands in one queue at a time. Neither word
/// means anything before: most operations and frames end without having stood in a queue.
struct ready_node {
    ready_node* next_ready;
    void (*run)(ready_node&) noexcept;

    // User-provided: value-initialisation does not clear it either.
    ready_node() noexcept {} // NOLINT(modernize-use-equals-default)
};

/// What every operation has. See the essay above.
class operation_base : public ready_node {
public:
    using completion = void (*)(operation_base&) noexcept;

    operation_base() = default;
    operation_base(const operation_base&) = delete;
    operation_base& operator=(const operation_base&) = delete;

    void bind(loop& on, inplace_stop_source& stop, completion on_end, void* end_context) noexcept {
        home_ = &on;
        stop_ = &stop;
        complete_ = on_end;
        context_ = end_context;
    }
    /// For completion functions: whatever bind() was given.
    [[nodiscard]] void* context() const noexcept { return context_; }
    [[nodiscard]] loop& home() const noexcept { return *home_; }
    [[nodiscard]] inplace_stop_source& stop_source() const noexcept { return *stop_; }

protected:
    ~operation_base() = default;

    [[nodiscard]] bool stop_requested() const noexcept { return stop_->stop_requested(); }

    /// Registers `on_stop` with the stop source: only operations that wait pay for it.
    void listen_for_stop(stop_hook::function on_stop) noexcept {
        hook_.on_stop = on_stop;
        stop_->add(hook_);
    }
    void stop_listening() noexcept { hook_.unlink(); }

    /// Recovers the operation from its hook inside an on_stop function.
    static operation_base& from_hook(stop_hook& hook) noexcept {
        return *static_cast<embedded_hook&>(hook).owner;
    }

    /// Ends a waiting operation from inside a node that the loop runs (rule 3).
    void complete() noexcept {
        stop_listening();
        complete_(*this);
    }
    /// Ends a waiting operation from anywhere on the loop's thread: the completion function runs when the queue comes to it.
    void complete_later() noexcept;

private:
    struct embedded_hook : stop_hook {
        explicit embedded_hook(operation_base* self) noexcept : owner(self) {}
        operation_base* owner;
    };

    loop* home_ = nullptr;
    inplace_stop_source* stop_ = nullptr;
    completion complete_ = nullptr;
    void* context_ = nullptr;
    embedded_hook hook_{this};
};

/// A type whose objects can be awaited by making an operation from them.
template <class D>
concept description = std::move_constructible<D> && requires {
    typename D::operation;
    typename D::value_type;
} && std::derived_from<typename D::operation, operation_base>;

} // namespace detail
NOWAIT_END_NAMESPACE
