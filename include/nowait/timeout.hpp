// Bounding anything that can be awaited: by time, or by somebody's stop token.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/loop.hpp>
#include <nowait/detail/timer.hpp>
#include <nowait/result.hpp>
#include <nowait/stop.hpp>
#include <nowait/task.hpp>

#include <chrono>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// What a bounded awaitable gives: results and progress stay as they are, other values become results.
template <class V>
struct bounded {
    using type = result<V>;
    template <class Operation>
    static type take(Operation& from, bool expired) {
        if constexpr (std::is_void_v<V>) {
            from.take_result();
            if (expired)
                return fail(std::errc::timed_out);
            return {};
        } else {
            (void)expired; // there is a value: it is not thrown away
            return from.take_result();
        }
    }
};
template <class U>
struct bounded<tl::expected<U, std::error_code>> {
    using type = result<U>;
    template <class Operation>
    static type take(Operation& from, bool expired) {
        type got = from.take_result();
        if (expired && !got && got.error() == std::errc::operation_canceled)
            return fail(std::errc::timed_out);
        return got;
    }
};
template <>
struct bounded<progress> {
    using type = progress;
    template <class Operation>
    static type take(Operation& from, bool expired) {
        type got = from.take_result();
        if (expired && got.error == std::errc::operation_canceled)
            got.error = std::make_error_code(std::errc::timed_out);
        return got;
    }
};

/// An operation with a stop source of its own, which hears the outer stop too. What else requests the stop is in `Trigger`:
/// arm(self) when the inner operation has not finished inline, disarm() before the end. disarm() is false while something
/// of the trigger is still under way to this loop; trigger_settled() follows then.
template <class A, class Trigger, class Argument>
struct bounded_description;

template <class A, class Trigger, class Argument>
class bounded_operation final : public operation_base {
public:
    using inner_operation = operation_for_t<A>;

    explicit bounded_operation(bounded_description<A, Trigger, Argument>&& what)
        : inner_(std::move(what.inner)), trigger_(std::move(what.argument)) {}

    [[nodiscard]] bool start() noexcept {
        inner_.bind(home(), own_stop_, &inner_ended, this);
        if (stop_requested() || trigger_.stopped_already())
            own_stop_.request_stop();
        if (inner_.start())
            return true;
        if (own_stop_.stop_requested())
            return false; // a task that was started under a stop: it ends when it ends
        listen_for_stop(
            [](stop_hook& hook) noexcept { static_cast<bounded_operation&>(from_hook(hook)).cancel(); });
        trigger_.arm(*this);
        return false;
    }
    void cancel() noexcept { own_stop_.request_stop(); }
    typename bounded<value_for_t<A>>::type take_result() {
        return bounded<value_for_t<A>>::take(inner_, trigger_.expired());
    }

    // For the trigger, on the loop's thread:
    void trigger_fired() noexcept { own_stop_.request_stop(); }
    void trigger_settled() noexcept { // inside a node that the loop runs
        if (inner_over_)
            complete();
    }

private:
    static void inner_ended(operation_base& inner) noexcept {
        auto& self = *static_cast<bounded_operation*>(inner.context());
        self.stop_listening();
        self.inner_over_ = true;
        if (self.trigger_.disarm())
            self.complete();
    }

    inplace_stop_source own_stop_;
    inner_operation inner_;
    Trigger trigger_;
    bool inner_over_ = false;
};

class deadline_trigger {
public:
    explicit deadline_trigger(clock::duration span) noexcept : span_(span), relative_(true) {}
    explicit deadline_trigger(clock::time_point until) noexcept { timer_.deadline = until; }

    [[nodiscard]] bool stopped_already() const noexcept {
        return false;
    } // nowait first: even with no time left
    template <class Owner>
    void arm(Owner& owner) noexcept {
        home_ = &owner.home();
        if (relative_)
            timer_.deadline = span_ == clock::duration::max() ? clock::time_point::max()
                                                              : deadline_after(home_->now(), span_);
        timer_.of = this;
        timer_.owner = &owner;
        timer_.on_expiry = [](timer_node& node) noexcept {
            auto& timer = static_cast<embedded_timer&>(node);
            timer.of->armed_ = false;
            timer.of->expired_ = true;
            static_cast<Owner*>(timer.owner)->trigger_fired();
        };
        if (timer_.deadline <= home_->now() && timer_.deadline != clock::time_point::max()) {
            timer_.on_expiry(timer_);
            return;
        }
        armed_ = true;
        home_->add_timer(timer_);
    }
    [[nodiscard]] bool disarm() noexcept {
        if (std::exchange(armed_, false))
            home_->remove_timer(timer_);
        return true;
    }
    [[nodiscard]] bool expired() const noexcept { return expired_; }
    ~deadline_trigger() { (void)disarm(); }

private:
    struct embedded_timer : timer_node {
        deadline_trigger* of = nullptr;
        void* owner = nullptr;
    } timer_;
    loop* home_ = nullptr;
    clock::duration span_{};
    bool relative_ = false;
    bool armed_ = false;
    bool expired_ = false;
};

/// A std::stop_token may fire on any thread: its callback posts one node to the loop, which requests the stop there. If the
/// inner operation ends while the node is under way, the end waits for the node.
class token_trigger {
public:
    explicit token_trigger(std::stop_token token) noexcept : token_(std::move(token)) {}

    [[nodiscard]] bool stopped_already() const noexcept { return token_.stop_requested(); }
    template <class Owner>
    void arm(Owner& owner) noexcept {
        if (!token_.stop_possible())
            return;
        note_.owner = &owner;
        note_.of = this;
        note_.run = [](ready_node& node) noexcept {
            auto& note = static_cast<arrival&>(node);
            note.of->arrived_ = true;
            auto& self = *static_cast<Owner*>(note.owner);
            self.trigger_fired();
            self.trigger_settled();
        };
        callback_.emplace(token_, poster{this, &owner.home().remote()});
    }
    [[nodiscard]] bool disarm() noexcept {
        // Waits for a callback that runs at this moment on another thread: it is one push, and never runs our code.
        callback_.reset();
        return !posted_ || arrived_;
    }
    [[nodiscard]] bool expired() const noexcept { return false; }

private:
    struct arrival : ready_node {
        token_trigger* of = nullptr;
        void* owner = nullptr;
    };
    struct poster {
        token_trigger* of;
        mailbox* to;
        // The reset above synchronises with the end of this call, so `posted_` needs no atomic.
        void operator()() const noexcept { of->posted_ = to->post(of->note_); }
    };

    std::stop_token token_;
    arrival note_;
    std::optional<std::stop_callback<poster>> callback_;
    bool posted_ = false;
    bool arrived_ = false;
};

/// A stop source of the same runtime.
class source_trigger {
public:
    explicit source_trigger(inplace_stop_token token) noexcept : token_(token) {}

    [[nodiscard]] bool stopped_already() const noexcept { return token_.stop_requested(); }
    template <class Owner>
    void arm(Owner& owner) noexcept {
        if (!token_.stop_possible())
            return;
        hook_.owner = &owner;
        hook_.on_stop = [](stop_hook& hook) noexcept {
            static_cast<Owner*>(static_cast<embedded_hook&>(hook).owner)->trigger_fired();
        };
        token_.source()->add(hook_);
    }
    [[nodiscard]] bool disarm() noexcept {
        hook_.unlink();
        return true;
    }
    [[nodiscard]] bool expired() const noexcept { return false; }

private:
    struct embedded_hook : stop_hook {
        void* owner = nullptr;
    } hook_;
    inplace_stop_token token_;
};

template <class A, class Trigger, class Argument>
struct bounded_description {
    using operation = bounded_operation<A, Trigger, Argument>;
    using value_type = typename bounded<value_for_t<A>>::type;

    A inner;
    Argument argument;
};

} // namespace detail

/// Asks `what` to stop when `span` has passed. Zero or negative: one nowait attempt, then timed_out.
///
/// A time-out bounds when the stop is requested; the await ends when `what` has ended. For the library's operations that is
/// at once; a task ends when it has heard the stop. An operation that had finished by then gives its result, not a time-out.
/// Returns: result<T> as `what` gives it (progress stays progress; a plain value T of a task becomes result<T>).
/// Errors: timed_out, and those of `what`. Borrows: as `what`. Resumes: on the awaiter's runtime.
template <awaitable A, class Rep, class Period>
[[nodiscard]] auto with_timeout(A what, std::chrono::duration<Rep, Period> span) {
    const auto end = detail::deadline_after(detail::clock::time_point{}, span);
    return detail::bounded_description<A, detail::deadline_trigger, detail::clock::duration>{
        std::move(what), end.time_since_epoch()};
}

/// The same with a point in time.
template <awaitable A>
[[nodiscard]] auto with_deadline(A what, std::chrono::steady_clock::time_point until) {
    return detail::bounded_description<A, detail::deadline_trigger, detail::clock::time_point>{
        std::move(what), until};
}

/// Asks `what` to stop when `token` is stopped, from whichever thread. Errors: operation_canceled, and those of `what`.
template <awaitable A>
[[nodiscard]] auto with_stop(A what, std::stop_token token) {
    return detail::bounded_description<A, detail::token_trigger, std::stop_token>{std::move(what),
                                                                                  std::move(token)};
}

/// The same for a stop source of this runtime.
template <awaitable A>
[[nodiscard]] auto with_stop(A what, inplace_stop_token token) {
    return detail::bounded_description<A, detail::source_trigger, inplace_stop_token>{std::move(what), token};
}

NOWAIT_END_NAMESPACE
