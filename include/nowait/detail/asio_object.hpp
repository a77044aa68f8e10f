// An I/O object of the adaptor, and what its operations have in common: how they find each other, how they end together, and how
// a cancel from any thread reaches one of them.
//
// Cancellation. The slot's handler (asio_canceller) and the operation's message point to each other, under a lock: the signal
// may be emitted on any thread, and the slot may keep its handler for long after the operation has ended. It posts the message
// and does nothing else. If the operation ends while the message is on its way, its end waits for it. All our primitives are done or
// untouched, so every cancellation type (terminal, partial, total) asks for the same thing and is given it.
#pragma once

#include <nowait/asio/executor.hpp>
#include <nowait/detail/asio_core.hpp>
#include <nowait/detail/list.hpp>
#include <nowait/detail/operation.hpp>

#include <memory>
#include <system_error>
#include <utility>

NOWAIT_BEGIN_ASIO_NAMESPACE
namespace asio_detail {

/// An error as Asio's own objects give it.
[[nodiscard]] inline error_code to_asio(std::error_code error) noexcept {
    return error_code(error.value(), net::error::get_system_category());
}

/// For canceller and operation to find each other or not. Taken only where a cancellation slot is connected.
NOWAIT_API inline detail::futex_lock cancel_lock;

class asio_canceller;
class asio_object;
class asio_operation_base;

/// Of an operation whose handler has a cancellation slot: what a cancel posts.
struct cancel_message : detail::posted_base {
    cancel_message(asio_core& core, asio_operation_base& op) noexcept;

    asio_core& to;
    asio_operation_base& of;
    asio_canceller* from = nullptr; // under cancel_lock
    bool sent = false;              // under cancel_lock
    bool arrived = false;
};

/// What stands in a cancellation slot.
class asio_canceller {
public:
    explicit asio_canceller(cancel_message& message) noexcept : message_(&message) { message.from = this; }
    asio_canceller(const asio_canceller&) = delete;
    asio_canceller& operator=(const asio_canceller&) = delete;
    ~asio_canceller() {
        detail::lock_scope held(cancel_lock);
        if (message_ != nullptr)
            message_->from = nullptr;
    }

    void operator()(net::cancellation_type_t type) noexcept {
        if (type == net::cancellation_type::none)
            return;
        detail::lock_scope held(cancel_lock);
        if (message_ != nullptr && !std::exchange(message_->sent, true))
            (void)message_->to.send(*message_); // refused: the runtime is over, and the operation with it
    }
    /// By the operation, under cancel_lock.
    void forget() noexcept { message_ = nullptr; }

private:
    cancel_message* message_; // under cancel_lock
};

/// What does not depend on handler and kind. `list_node`: its place in its object's list, while it waits.
class NOWAIT_API asio_operation_base : public detail::posted_base, public detail::list_node {
public:
    asio_operation_base(const asio_operation_base&) = delete;
    asio_operation_base& operator=(const asio_operation_base&) = delete;

    // On the loop's thread, while it stands in the object's list:
    void cancel() noexcept {
        if (waits_)
            cancel_inner();
    }
    /// The runtime is over: ends without calling the handler.
    virtual void discard() noexcept = 0;

    void cancel_arrives() noexcept {
        if (core_.over())
            return;
        if (ended_)
            finish();
        else if (waits_)
            cancel_inner();
    }

protected:
    asio_operation_base(asio_core& core, asio_object& object) noexcept : core_(core), object_(&object) {}
    ~asio_operation_base() { (void)let_canceller_go(); }

    virtual void cancel_inner() noexcept = 0;
    virtual void finish() noexcept = 0;

    [[nodiscard]] bool cancel_arrived() const noexcept { return cancel_message_ && cancel_message_->arrived; }
    /// True: no cancel is on its way, and none will be.
    [[nodiscard]] bool let_canceller_go() noexcept {
        if (!cancel_message_)
            return true;
        detail::lock_scope held(cancel_lock);
        if (cancel_message_->from != nullptr)
            std::exchange(cancel_message_->from, nullptr)->forget();
        return !cancel_message_->sent || cancel_message_->arrived;
    }

    asio_core& core_;
    asio_object* object_;
    bool waits_ = false;
    bool ended_ = false; // its end waits for a cancel that is on its way
    std::optional<cancel_message> cancel_message_;
};

inline cancel_message::cancel_message(asio_core& core, asio_operation_base& op) noexcept : to(core), of(op) {
    invoke = [](detail::posted_base& node) noexcept {
        auto& self = static_cast<cancel_message&>(node);
        self.arrived = true;
        self.of.cancel_arrives();
    };
}

/// What an I/O object of the adaptor and its operations share: counted, because operations may outlive the object.
///
/// Operations that wait keep it all together, by one reference: taken with the first, given back when the object is closed and
/// the last one has gone. So one that waits costs no atomic instruction.
class NOWAIT_API asio_object : public detail::outside_holder {
public:
    explicit asio_object(asio_core& core) noexcept : core_(core) {
        abandon_one = [](detail::outside_holder& of) noexcept {
            static_cast<asio_object&>(of).discard_one();
        };
        core_.acquire();
    }
    asio_object(const asio_object&) = delete;
    asio_object& operator=(const asio_object&) = delete;

    [[nodiscard]] asio_core& core() const noexcept { return core_; }
    void acquire() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept {
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            delete this;
    }
    [[nodiscard]] bool is_open() const noexcept { return open_.load(std::memory_order_relaxed); }

    /// Any thread: what waits in this object ends with operation_aborted.
    void cancel() noexcept {
        on_loop([](asio_object& self) noexcept { self.cancel_waiting(); });
    }
    /// Any thread. False: it was closed.
    bool close() noexcept {
        if (!open_.exchange(false, std::memory_order_relaxed))
            return false;
        on_loop([](asio_object& self) noexcept {
            self.close_handle();
            self.cancel_waiting();
            self.closed_here_ = true;
            self.removed();
        });
        return true;
    }

    // On the loop's thread:
    void add(asio_operation_base& waiting) noexcept {
        if (!std::exchange(kept_, true)) {
            acquire();
            core_.get_loop().outside_holders().push_back(*this);
        }
        waiting_.push_back(waiting);
    }
    /// One that was added has been destroyed.
    void removed() noexcept {
        if (closed_here_ && waiting_.empty())
            stop_keeping();
    }

protected:
    virtual ~asio_object() { core_.release(); }
    virtual void close_handle() noexcept = 0;

private:
    /// Now, on the loop's thread; through its inbox, on another one; now, if there is no loop any more.
    template <class Function>
    void on_loop(Function function) noexcept {
        if (core_.here()) {
            const detail::loop_visit visiting(core_.get_loop());
            function(*this);
            return;
        }
        struct message final : detail::posted_base {
            message(asio_object& object, Function what) noexcept : to(object), call(what) {
                invoke = [](detail::posted_base& node) noexcept {
                    const std::unique_ptr<message> self(static_cast<message*>(&node));
                    self->call(self->to);
                    self->to.core_.work_finished();
                    self->to.release();
                };
            }
            asio_object& to;
            Function call;
        };
        auto sent = std::make_unique<message>(*this, function);
        acquire();
        core_.work_started();
        if (core_.send(*sent)) {
            (void)sent.release();
            return;
        }
        function(*this);
        core_.work_finished();
        release();
    }
    void cancel_waiting() noexcept {
        waiting_.for_each([](asio_operation_base& each) { each.cancel(); });
    }
    void stop_keeping() noexcept {
        if (!std::exchange(kept_, false))
            return;
        static_cast<detail::list_node&>(*this).unlink();
        release();
    }
    /// By the loop's destructor, which has taken this out of its list, until it stays out.
    void discard_one() noexcept {
        if (waiting_.empty()) {
            stop_keeping();
            return;
        }
        core_.get_loop().outside_holders().push_back(*this);
        waiting_.front().discard();
    }

    asio_core& core_;
    detail::list<asio_operation_base> waiting_;
    bool kept_ = false;        // by them; and it stands in the loop's list
    bool closed_here_ = false; // the close has come to the loop's thread
    detail::real_sync::atomic<unsigned> references_{1};
    detail::real_sync::atomic<bool> open_{true};
};

/// With the handle of ours that it stands for.
template <class Handle>
class asio_object_of final : public asio_object {
public:
    asio_object_of(asio_core& core, Handle&& with) : asio_object(core), handle(std::move(with)) {}
    Handle handle;

private:
    void close_handle() noexcept override {
        if constexpr (requires { handle.close(); })
            (void)handle.close();
    }
};

template <class Object>
class object_pointer {
public:
    object_pointer() = default;
    explicit object_pointer(Object* made) noexcept : object_(made) {}
    object_pointer(object_pointer&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    object_pointer& operator=(object_pointer&& other) noexcept {
        if (this != &other) {
            reset();
            object_ = std::exchange(other.object_, nullptr);
        }
        return *this;
    }
    ~object_pointer() { reset(); }
    void reset() noexcept {
        if (object_ != nullptr) {
            (void)object_->close();
            std::exchange(object_, nullptr)->release();
        }
    }
    [[nodiscard]] Object* get() const noexcept { return object_; }
    Object* operator->() const noexcept { return object_; }

private:
    Object* object_ = nullptr;
};

} // namespace asio_detail
NOWAIT_END_ASIO_NAMESPACE
