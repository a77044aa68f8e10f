// The operations of a message channel, and the descriptions that make the first attempt before there is an operation.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/message_channel_core.hpp>
#include <nowait/result.hpp>
#include <nowait/timeout.hpp>

#include <cassert>
#include <cerrno>
#include <cstdint>
#include <utility>

NOWAIT_BEGIN_NAMESPACE

/// A message that was not sent, and why.
template <class T>
struct unsent {
    std::error_code code;
    T value;
};

namespace detail {

/// An operation on a message channel. `Derived` has attempt(), for all cases, and set_code().
///
/// Life: begin() attempts. Then it is over, or it waits in the channel (pinned, with the stop hooked). If the turn's budget was
/// spent it first waits in the ready queue, and attempts from there.
template <class Derived, class Core>
class message_operation : public channel_waiter {
public:
    void cancel() noexcept {
        if (deferred_) {
            cancelled_ = true; // it is about to run, and sees it
        } else if (core_->withdraw(self())) {
            queued_ = false;
            self().set_code(ECANCELED);
            this->complete_later();
        }
    }
    /// For whoever keeps a handle of the channel until the operation has been destroyed: it needs no reference of its own.
    void rely_on_handle() noexcept { pins_ = false; }
    /// Of several waiters the most urgent goes first; equals go in the order of their coming.
    [[nodiscard]] unsigned urgency() const noexcept { return urgency_; }

protected:
    message_operation(Core* core, unsigned urgency) noexcept : core_(core), urgency_(urgency) {}
    ~message_operation() = default;

    /// For destructors.
    void let_go() noexcept {
        if (queued_) [[unlikely]] // its runtime is being destroyed
            static_cast<void>(core_->withdraw(self()));
        if (pinned_)
            core_->release();
    }

    /// For start(). True: over.
    [[nodiscard]] bool begin() noexcept {
        if (core_ == nullptr)
            return end_with(EBADF);
        if (this->stop_requested())
            return end_with(ECANCELED);
        if (this->home().budget > 0)
            return try_or_wait();
        this->home().counters_of(operation_kind::channel).budget_yields.add();
        deferred_ = true;
        pin();
        this->run = &run_deferred;
        this->home().post(*this);
        return false;
    }
    bool end_with(int code) noexcept {
        self().set_code(code);
        return true;
    }

    Core* core_;
    unsigned urgency_;
    bool pins_ = true;      // holds a reference to the channel while it waits,
    bool pinned_ = false;   // and has begun to
    bool queued_ = false;   // its loop has not heard of its outcome yet
    bool deferred_ = false; // stands in the ready queue because the turn's budget was spent
    bool cancelled_ = false;

private:
    [[nodiscard]] Derived& self() noexcept { return static_cast<Derived&>(*this); }

    void pin() noexcept {
        if (pins_ && !std::exchange(pinned_, true))
            core_->acquire();
    }
    /// With the channel's lock, which it gives back.
    void wait() noexcept {
        this->home().counters_of(operation_kind::channel).armed.add();
        this->run = &run_settled;
        queued_ = true;
        pin();
        core_->enqueue(self());
        // Another thread may have chosen it by now; its loop, which is this thread's, has not run it yet.
        this->listen_for_stop([](stop_hook& hook) noexcept {
            static_cast<Derived&>(message_operation::from_hook(hook)).cancel();
        });
    }
    [[nodiscard]] bool try_or_wait() noexcept {
        const int code = self().attempt();
        if (code == attempt_waits) {
            wait();
            return false;
        }
        if (code == 0)
            this->home().counters_of(operation_kind::channel).inline_completions.add();
        this->home().charge(0);
        return true;
    }
    static void run_deferred(ready_node& node) noexcept {
        auto& op = static_cast<message_operation&>(node);
        op.deferred_ = false;
        if (op.cancelled_ || op.stop_requested() ? op.end_with(ECANCELED) : op.try_or_wait())
            op.operation_base::complete();
    }
    /// Whoever has settled it has nothing more to do with it.
    static void run_settled(ready_node& node) noexcept {
        auto& op = static_cast<message_operation&>(node);
        op.queued_ = false;
        op.operation_base::complete();
    }
};

/// Both descriptions try the ready path by themselves. It either succeeds or does nothing: everything else, errors too, is the
/// operation's.
struct nothing_found_out {};

/// What an awaited ready path costs the runtime: the stop is looked at, the budget is charged (and given back if the path is not
/// taken), and it is counted.
[[nodiscard, gnu::always_inline]] inline bool charged(loop& home, const inplace_stop_source& stop) noexcept {
    return --home.budget >= 0 && !stop.stop_requested();
}
[[gnu::always_inline]] inline bool settle(loop& home, bool taken) noexcept {
    if (!taken) [[unlikely]] {
        ++home.budget;
        return false;
    }
    home.counters_of(operation_kind::channel).inline_completions.add();
    return true;
}

template <class Core>
struct message_send_description {
    using operation = message_send_operation<Core>;
    using value_type = result<void>;
    using outcome = nothing_found_out;
    using T = typename Core::value_type;

    Core* core;
    T* value;
    unsigned priority;
    unsigned urgency = 0;

    /// The same with a place before all waiting senders of less urgency, if it has to wait. The default is 0.
    [[nodiscard]] message_send_description with_urgency(unsigned most_first) const noexcept {
        return {core, value, priority, most_first};
    }

    [[nodiscard, gnu::always_inline]] bool try_now(loop& home, const inplace_stop_source& stop,
                                                   outcome&) const noexcept {
        return settle(home, charged(home, stop) && core != nullptr && priority < Core::levels &&
                                core->send_at_once(*value, priority));
    }
    [[nodiscard, gnu::always_inline]] static result<void> value_of(outcome) noexcept { return {}; }
    /// The same, and also if a receiver waits on `home`: for adaptors, who spare an operation by it.
    [[nodiscard]] bool try_or_hand_over(loop& home, const inplace_stop_source& stop) const noexcept {
        return settle(home, charged(home, stop) && core != nullptr && priority < Core::levels &&
                                core->send_or_hand_over(*value, priority, home));
    }
};

template <class Core>
class message_send_operation : public message_operation<message_send_operation<Core>, Core> {
    using base = message_operation<message_send_operation<Core>, Core>;

public:
    using T = typename Core::value_type;

    explicit message_send_operation(const message_send_description<Core>& what) noexcept
        : base(what.core, what.urgency), value_(what.value), priority_(what.priority) {}
    ~message_send_operation() { this->let_go(); }

    [[nodiscard]] bool start() noexcept { return this->begin(); }
    [[nodiscard]] bool start_after(nothing_found_out) noexcept { return this->begin(); }
    [[nodiscard]] result<void> take_result() const noexcept {
        if (code_ != 0)
            return fail_errno(code_);
        return {};
    }
    [[nodiscard]] unsigned priority() const noexcept { return priority_; }

protected:
    [[nodiscard]] bool sent() const noexcept { return code_ == 0; }

private:
    friend Core;
    friend base;

    void set_code(int code) noexcept { code_ = code; }
    [[nodiscard]] int attempt() noexcept {
        if (priority_ >= Core::levels)
            return code_ = EINVAL;
        if (value_ == nullptr && this->core_->is_rendezvous())
            return code_ = EOPNOTSUPP;
        if (value_ == nullptr)
            bytes_ = this->core_->reserved_size();
        else if (!this->core_->measure(*value_, bytes_))
            return code_ = EMSGSIZE;
        static_cast<void>(
            this->core_->send_now(value_, priority_, bytes_, this->urgency_, &this->home(), true, code_));
        return code_;
    }

    T* value_; // the sender's own, moved from under the lock by whoever lets it in; null: it reserves
    unsigned priority_;
    int code_ = attempt_untried; // written by whoever unlinks it, or by itself
    std::uint64_t bytes_ = 0;
};

template <class Core>
struct message_receive_description {
    using operation = message_receive_operation<Core>;
    using value_type = result<typename Core::received_type>;
    using outcome = typename Core::landing;

    Core* core;
    unsigned urgency = 0;

    /// The same with a place before all waiting receivers of less urgency, if it has to wait. The default is 0.
    [[nodiscard]] message_receive_description with_urgency(unsigned most_first) const noexcept {
        return {core, most_first};
    }

    [[nodiscard, gnu::always_inline]] bool try_now(loop& home, const inplace_stop_source& stop,
                                                   outcome& into) const noexcept {
        return settle(home, charged(home, stop) && core != nullptr && core->receive_at_once(into));
    }
    [[nodiscard, gnu::always_inline]] static value_type value_of(outcome& got) noexcept { return got.take(); }
    /// The same, and also if senders wait: for adaptors, who spare an operation by it. An error says that nothing was done.
    [[nodiscard]] value_type try_all(loop& home, const inplace_stop_source& stop) const noexcept {
        outcome landing;
        if (try_now(home, stop, landing))
            return landing.take();
        typename Core::slot slot;
        slot.code = EAGAIN;
        const bool may = charged(home, stop) && core != nullptr;
        if (may)
            static_cast<void>(core->receive_now(slot, &home, false));
        static_cast<void>(settle(home, may && slot.code == 0));
        return slot.take();
    }
};

template <class Core>
class message_receive_operation final : public message_operation<message_receive_operation<Core>, Core> {
    using base = message_operation<message_receive_operation<Core>, Core>;

public:
    explicit message_receive_operation(const message_receive_description<Core>& what) noexcept
        : base(what.core, what.urgency) {}
    ~message_receive_operation() { this->let_go(); }

    [[nodiscard]] bool start() noexcept { return this->begin(); }
    [[nodiscard]] bool start_after(const typename Core::landing&) noexcept { return this->begin(); }
    [[nodiscard]] result<typename Core::received_type> take_result() noexcept { return slot_.take(); }

private:
    friend Core;
    friend base;

    void set_code(int code) noexcept { slot_.code = code; }
    [[nodiscard]] int attempt() noexcept {
        static_cast<void>(this->core_->receive_now(slot_, &this->home(), true));
        return slot_.code;
    }

    typename Core::slot slot_; // filled by whoever hands it a message
};

/// The same as sending, with the message inside: an unsent one goes back in the error.
template <class Core>
class message_send_owned_operation;

template <class Core>
struct message_send_owned_description {
    using operation = message_send_owned_operation<Core>;
    using value_type = tl::expected<void, unsent<typename Core::value_type>>;

    Core* core;
    typename Core::value_type value;
    unsigned priority;
    unsigned urgency = 0;

    [[nodiscard]] message_send_owned_description with_urgency(unsigned most_first) && noexcept {
        return {core, std::move(value), priority, most_first};
    }
    /// What it gives where it could not even begin.
    [[nodiscard]] static value_type refused(message_send_owned_description&& what,
                                            std::error_code why) noexcept {
        return tl::unexpected(unsent<typename Core::value_type>{why, std::move(what.value)});
    }
};

template <class T>
struct message_owner {
    T owned;
};

template <class Core>
class message_send_owned_operation final : private message_owner<typename Core::value_type>,
                                           public message_send_operation<Core> {
    using T = typename Core::value_type;
    using owner = message_owner<T>;

public:
    explicit message_send_owned_operation(message_send_owned_description<Core>&& what) noexcept
        : owner{std::move(what.value)}, message_send_operation<Core>(message_send_description<Core>{
                                            what.core, &this->owned, what.priority, what.urgency}) {}

    [[nodiscard]] tl::expected<void, unsent<T>> take_result() noexcept {
        const result<void> done = message_send_operation<Core>::take_result();
        if (!done)
            return tl::unexpected(unsent<T>{done.error(), std::move(this->owned)});
        return {};
    }
};

/// A time-out of send_owned says so, and gives the message back too.
template <class T>
struct bounded<tl::expected<void, unsent<T>>> {
    using type = tl::expected<void, unsent<T>>;
    template <class Operation>
    static type take(Operation& from, bool expired) {
        type got = from.take_result();
        if (expired && !got && got.error().code == std::errc::operation_canceled)
            got.error().code = std::make_error_code(std::errc::timed_out);
        return got;
    }
};

/// Waits for the next message that reaches the empty queue while nobody waits to receive it.
template <class Core>
struct message_notified_description {
    using operation = message_notified_operation<Core>;
    using value_type = result<void>;
    Core* core;
};

template <class Core>
class message_notified_operation final : public channel_waiter {
public:
    explicit message_notified_operation(message_notified_description<Core> what) noexcept
        : core_(what.core) {}
    ~message_notified_operation() {
        if (!pinned_)
            return;
        static_cast<void>(core_->withdraw(*this));
        core_->release();
    }

    [[nodiscard]] bool start() noexcept {
        if (core_ == nullptr || this->stop_requested()) {
            code_ = core_ == nullptr ? EBADF : ECANCELED;
            return true;
        }
        // Once it is registered, code_ belongs to whoever unregisters it.
        if (const int code = core_->register_for_notice(*this); code != attempt_waits) {
            code_ = code;
            return true;
        }
        home().counters_of(operation_kind::channel).armed.add();
        pinned_ = true;
        listen_for_stop([](stop_hook& hook) noexcept {
            static_cast<message_notified_operation&>(from_hook(hook)).cancel();
        });
        return false;
    }
    void cancel() noexcept {
        if (core_->withdraw(*this)) {
            code_ = ECANCELED;
            complete_later();
        }
    }
    [[nodiscard]] result<void> take_result() const noexcept {
        if (code_ != 0)
            return fail_errno(code_);
        return {};
    }

private:
    friend Core;

    Core* core_;
    int code_ = attempt_untried; // written by whoever unregisters it
    bool pinned_ = false;
};

} // namespace detail
NOWAIT_END_NAMESPACE
