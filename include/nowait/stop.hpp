// Stop requests inside a runtime: std::execution's in-place shape, without allocation and without locks.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/list.hpp>

NOWAIT_BEGIN_NAMESPACE

class inplace_stop_source;

namespace detail {

/// What a stop source calls. `list_node` is its place in the source's list; whoever embeds it supplies the function.
class stop_hook : public list_node {
public:
    using function = void (*)(stop_hook&) noexcept;
    ~stop_hook() { unlink(); }

    function on_stop = nullptr;
};

} // namespace detail

/// A view of a stop source. The default one can never be stopped.
class inplace_stop_token {
public:
    inplace_stop_token() = default;
    [[nodiscard]] bool stop_requested() const noexcept;
    [[nodiscard]] bool stop_possible() const noexcept { return source_ != nullptr; }
    [[nodiscard]] inplace_stop_source* source() const noexcept { return source_; }
    friend bool operator==(inplace_stop_token, inplace_stop_token) = default;

private:
    friend class inplace_stop_source;
    explicit inplace_stop_token(inplace_stop_source* source) noexcept : source_(source) {}

    inplace_stop_source* source_ = nullptr;
};

/// A place where a stop can be requested, once, for everything that listens.
///
/// A departure from std::execution, on purpose: a source belongs to one runtime, and `request_stop` is called on that
/// runtime's thread. So neither registering nor cancelling takes a lock, no callback can run on a foreign thread, and
/// leaving never waits for a callback in progress. A stop from another thread travels as `std::stop_token` (see
/// `with_stop`) or `runtime::request_stop`, both of which post.
///
/// Borrows: the source outlives its tokens' users.
class inplace_stop_source {
public:
    inplace_stop_source() = default;
    inplace_stop_source(const inplace_stop_source&) = delete;
    inplace_stop_source& operator=(const inplace_stop_source&) = delete;
    ~inplace_stop_source() {
        if (in_turn_) [[unlikely]]
            leave_turn();
    }

    /// Calls every registered callback, in order of registration. Returns false if a stop had been requested before.
    /// Callbacks only post or unlink: no coroutine is resumed in here. Called inside a callback of another source, it says at
    /// once that a stop is requested, and its own callbacks follow when the other's have been called: sources that pass a stop
    /// on from one to the next, however many, need no more stack than one.
    bool request_stop() noexcept {
        if (requested_)
            return false;
        requested_ = true;
        if (!hooks_.empty())
            call_hooks();
        return true;
    }
    [[nodiscard]] bool stop_requested() const noexcept { return requested_; }
    [[nodiscard]] inplace_stop_token get_token() noexcept { return inplace_stop_token(this); }

    /// For operations: a hook with its function set. Not called if a stop was requested before: test first.
    void add(detail::stop_hook& hook) noexcept { hooks_.push_back(hook); }

private:
    NOWAIT_API void call_hooks() noexcept;
    NOWAIT_API void leave_turn() noexcept;

    detail::list<detail::stop_hook> hooks_;
    inplace_stop_source* next_in_turn_ =
        nullptr; // of those whose callbacks are still to be called on this thread
    bool requested_ = false;
    bool in_turn_ = false;
};

inline bool inplace_stop_token::stop_requested() const noexcept {
    return source_ != nullptr && source_->stop_requested();
}

/// Calls `function` when a stop is requested, at once if it already was. Removing it is its destruction.
template <class Function>
class inplace_stop_callback : private detail::stop_hook {
public:
    inplace_stop_callback(inplace_stop_token token, Function callback)
        : function_(static_cast<Function&&>(callback)) {
        if (!token.stop_possible())
            return;
        on_stop = [](detail::stop_hook& hook) noexcept {
            static_cast<inplace_stop_callback&>(hook).function_();
        };
        if (token.stop_requested())
            function_();
        else
            token.source()->add(*this);
    }

private:
    Function function_;
};

NOWAIT_END_NAMESPACE
