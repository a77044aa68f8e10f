// One of our operations with an Asio handler: no coroutine frame, one block of the handler's memory.
//
// Life, on the loop's thread (from other threads everything is posted there first):
//
//      initiation --begin()--> ready   ended inline: it completes when the ready queue comes to it, never inside the initiation
//                     |
//                     +------> waiting --ended()--> completes in the loop's turn that ended it
//
// Completion moves the handler out, gives the block back, and then calls the handler: in place if its executor runs on this
// very thread (ours, or the io_context that hosts us), otherwise through its executor, which is kept busy meanwhile.
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

#include <cerrno>
#include <concepts>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <typeinfo>
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

/// Whether a handler with this executor may be called in a turn of the core's loop.
template <class Executor>
[[nodiscard]] bool runs_here(const asio_core& core, const Executor& executor) noexcept {
    if constexpr (requires { executor.core(); }) {
        return &executor.core() == &core;
    } else if constexpr (requires {
                             { executor.context() } -> std::same_as<net::io_context&>;
                         }) {
        return &executor.context() == &core.context();
    } else if constexpr (std::is_same_v<Executor, net::any_io_executor>) {
        // Asked by type first: early versions of target() give the pointer whatever it points to.
        if (executor.target_type() == typeid(asio_executor))
            return &executor.template target<asio_executor>()->core() == &core;
        return executor.target_type() == typeid(net::io_context::executor_type) &&
               &executor.template target<net::io_context::executor_type>()->context() == &core.context();
    } else {
        return false;
    }
}

/// A handler with its arguments, for a foreign executor.
template <class Handler, class Arguments>
struct bound_handler {
    using allocator_type = net::associated_allocator_t<Handler>;
    [[nodiscard]] allocator_type get_allocator() const noexcept {
        return net::get_associated_allocator(handler);
    }
    void operator()() {
        std::apply([this](auto&... each) { std::move(handler)(std::move(each)...); }, arguments);
    }
    Handler handler;
    Arguments arguments;
};

/// A kind whose first attempt needs no operation: try_first() gives the handler's arguments, or nothing if it has to wait.
template <class Kind>
concept tries_first = requires(Kind& kind, typename Kind::object& object, detail::loop& home) {
    static_cast<bool>(kind.try_first(object, home));
};

/// `Kind` says what is done: describe(object) makes our description, arguments(value) what the handler is given,
/// failure(error) the same where there was no operation.
template <class Kind, class Handler, class IoExecutor>
class asio_operation final : public asio_operation_base {
    using executor_type = net::associated_executor_t<Handler, IoExecutor>;
    using tracked_executor = std::decay_t<decltype(net::prefer(std::declval<executor_type>(),
                                                               net::execution::outstanding_work.tracked))>;
    using allocator_type = net::associated_allocator_t<Handler>;
    using memory = recycled_memory<asio_operation, allocator_type>;
    using inner_operation = typename Kind::description::operation;

public:
    /// The initiating function's work.
    static void initiate(asio_object& object, const IoExecutor& executor, Kind&& kind, Handler&& handler) {
        asio_core& core = object.core();
        if (core.here()) {
            const detail::loop_visit visiting(core.get_loop());
            if constexpr (tries_first<Kind>) {
                auto& on = static_cast<typename Kind::object&>(object);
                if (!on.template waits<Kind>()) {
                    if (auto arguments = kind.try_first(on, core.get_loop())) {
                        complete_at_once(core, executor, std::move(handler), std::move(*arguments));
                        return;
                    }
                }
            }
            make(core, object, executor, std::move(kind), std::move(handler), true)->begin(&executor);
            return;
        }
        asio_operation* const made = make(core, object, executor, std::move(kind), std::move(handler), false);
        object.acquire();
        core.work_started();
        made->invoke = [](detail::posted_base& node) noexcept {
            auto& self = static_cast<asio_operation&>(node);
            asio_object& on = *self.object_;
            asio_core& to = self.core_;
            if (to.over())
                self.discard();
            else
                self.begin(nullptr);
            to.work_finished();
            on.release();
        };
        if (!core.send(*made)) {
            made->aborted_ = true;
            made->complete(false);
            core.work_finished();
            object.release();
        }
    }

private:
    asio_operation(asio_core& core, asio_object& object, const IoExecutor& io, Kind&& kind, Handler&& handler)
        : asio_operation_base(core, object), kind_(std::move(kind)), handler_(std::move(handler)) {
        auto executor = net::get_associated_executor(handler_, io);
        direct_ = runs_here(core, executor);
        if (!direct_)
            executor_.emplace(net::prefer(executor, net::execution::outstanding_work.tracked));
    }
    ~asio_operation() {
        if (built_)
            operation_.~inner_operation();
    }

    static asio_operation* make(asio_core& core, asio_object& object, const IoExecutor& io, Kind&& kind,
                                Handler&& handler, bool on_loop) {
        void* const block = memory::take(core, net::get_associated_allocator(handler), on_loop);
        auto* const made =
            ::new (block) asio_operation(core, object, io, std::move(kind), std::move(handler));
        made->made_on_loop_ = on_loop;
        auto slot = net::get_associated_cancellation_slot(made->handler_);
        if (slot.is_connected()) {
            made->cancel_message_.emplace(core, *made);
            slot.template emplace<asio_canceller>(*made->cancel_message_);
        }
        return made;
    }

    /// `initiated`: the object's executor, inside the initiating function; null when it was posted.
    void begin(const IoExecutor* initiated) noexcept {
        if (cancel_arrived()) {
            aborted_ = true;
            end_at_once(initiated);
            return;
        }
        ::new (static_cast<void*>(&operation_))
            inner_operation(kind_.describe(static_cast<typename Kind::object&>(*object_)));
        built_ = true;
        if constexpr (requires { operation_.rely_on_handle(); })
            operation_.rely_on_handle(); // the object's, which stays
        detail::loop& home = core_.get_loop();
        operation_.bind(
            home, home.root_stop(),
            [](detail::operation_base& ended) noexcept {
                static_cast<asio_operation*>(ended.context())->complete(true);
            },
            this);
        const bool ended = operation_.start();
        if constexpr (tries_first<Kind>)
            static_cast<typename Kind::object&>(*object_).template expect<Kind>(!ended);
        if (ended) {
            end_at_once(initiated);
            return;
        }
        waits_ = true;
        added_ = true;
        object_->add(*this);
        ++core_.waiting;
        core_.stir(); // what has been armed is to be submitted
    }

    /// Done before there was an operation: all that travels is the handler with its arguments.
    template <class Arguments>
    static void complete_at_once(asio_core& core, const IoExecutor& io, Handler&& handler,
                                 Arguments&& arguments) {
        using called = bound_handler<Handler, Arguments>;
#if NOWAIT_ASIO_HAS_IMMEDIATE_EXECUTOR
        using immediate = net::associated_immediate_executor<Handler, IoExecutor>;
        if constexpr (!requires {
                          typename immediate::asio_associated_immediate_executor_is_unspecialised;
                      }) {
            const auto there = immediate::get(handler, io); // a copy: the handler moves on
            execute_on(there, called{std::move(handler), std::move(arguments)});
            return;
        }
#endif
        const auto executor = net::get_associated_executor(handler, io);
        const auto allocator = net::get_associated_allocator(handler);
        if (runs_here(core, executor)) {
            using node = executed_function<called, allocator_type>;
            core.post_here(*node::make(core, allocator, false, std::move(handler), std::move(arguments)));
        } else {
            execute_on(net::prefer(net::require(executor, net::execution::blocking.never),
                                   net::execution::allocator(allocator)),
                       called{std::move(handler), std::move(arguments)});
        }
    }

    /// Ended by the first attempt. It completes later, or, if the handler names an executor for immediate completions, there.
    void end_at_once(const IoExecutor* initiated) noexcept {
#if NOWAIT_ASIO_HAS_IMMEDIATE_EXECUTOR
        using immediate = net::associated_immediate_executor<Handler, IoExecutor>;
        if constexpr (!requires {
                          typename immediate::asio_associated_immediate_executor_is_unspecialised;
                      }) {
            if (initiated != nullptr) {
                const auto there = immediate::get(handler_, *initiated);
                end_and([&there](auto&& called, tracked_executor*) { execute_on(there, std::move(called)); });
                return;
            }
        }
#endif
        if (direct_) {
            invoke = [](detail::posted_base& node) noexcept {
                auto& self = static_cast<asio_operation&>(node);
                if (self.core_.over())
                    self.discard();
                else
                    self.complete(true);
            };
            (void)core_.send(*this);
        } else {
            complete(initiated == nullptr);
        }
    }

    /// Ends, and calls the handler or sends it to its executor. `may_block`: not inside the initiating function.
    void complete(bool may_block) noexcept {
        end_and([may_block](auto&& called, tracked_executor* executor) {
            if (executor == nullptr) {
                called();
                return;
            }
            const auto allocator = called.get_allocator();
            if (may_block)
                execute_on(net::prefer(*executor, net::execution::blocking.possibly,
                                       net::execution::allocator(allocator)),
                           std::move(called));
            else
                execute_on(net::prefer(net::require(*executor, net::execution::blocking.never),
                                       net::execution::allocator(allocator)),
                           std::move(called));
        });
    }

    template <class Deliver>
    void end_and(Deliver deliver) noexcept {
        asio_core& core = core_;
        if (!let_canceller_go()) { // its node is on its way here
            ended_ = true;
            stay_listed();
            return;
        }
        stop_waiting();
        try {
            auto arguments = aborted_ ? kind_.failure(net::error::operation_aborted)
                                      : kind_.arguments(operation_.take_result());
            bound_handler<Handler, decltype(arguments)> called{std::move(handler_), std::move(arguments)};
            if (direct_) {
                destroy(called.get_allocator());
                deliver(std::move(called), nullptr);
            } else {
                tracked_executor executor(std::move(*executor_));
                destroy(called.get_allocator());
                deliver(std::move(called), &executor);
            }
        } catch (...) {
            core.caught(std::current_exception());
        }
    }

    void stop_waiting() noexcept {
        static_cast<detail::list_node&>(*this).unlink();
        if (std::exchange(waits_, false))
            --core_.waiting;
    }
    void stay_listed() noexcept {
        if (std::exchange(added_, true) && detail::list_node::linked())
            return;
        object_->add(*this);
    }
    void cancel_inner() noexcept override { operation_.cancel(); }
    void finish() noexcept override { complete(true); }
    void discard() noexcept override {
        if (!let_canceller_go()) { // its node stands in a queue that is still to be emptied
            stay_listed();
            cancel_message_->arrived = true; // the queues are emptied before this list is
            return;
        }
        stop_waiting();
        Handler handler(std::move(handler_));
        destroy(net::get_associated_allocator(handler));
    }
    void destroy(const allocator_type& allocator) noexcept {
        asio_core& core = core_;
        asio_object* const keeper = added_ ? object_ : nullptr;
        const bool on_loop = made_on_loop_;
        this->~asio_operation();
        memory::give_back(core, allocator, on_loop, this);
        if (keeper != nullptr)
            keeper->removed();
    }

    Kind kind_;
    Handler handler_;
    std::optional<tracked_executor> executor_; // none where the handler is called in place
    bool direct_ = false;
    bool aborted_ = false; // cancelled, or refused, before it was started
    bool built_ = false;
    bool added_ = false; // to the object, which stays until this has been destroyed
    bool made_on_loop_ = false;
    union {
        inner_operation operation_;
    };
};

/// The initiation that all objects use.
template <class Executor>
class initiate_operation {
public:
    using executor_type = Executor;
    initiate_operation(asio_object& object, const Executor& executor) noexcept
        : object_(&object), executor_(executor) {}
    [[nodiscard]] executor_type get_executor() const noexcept { return executor_; }

    template <class Handler, class Kind>
    void operator()(Handler&& handler, Kind&& kind) const {
        using kept_handler = std::decay_t<Handler>;
        using kept_kind = std::decay_t<Kind>;
        asio_operation<kept_kind, kept_handler, Executor>::initiate(
            *object_, executor_, own<kept_kind>(std::forward<Kind>(kind)),
            own<kept_handler>(std::forward<Handler>(handler)));
    }

private:
    /// What can be moved from is moved when it gets its place, once; of what cannot there is a copy.
    template <class T>
    static T&& own(T&& movable) noexcept {
        return static_cast<T&&>(movable);
    }
    template <class T>
    static T own(const T& lasting) {
        return lasting;
    }

    asio_object* object_;
    Executor executor_;
};

} // namespace asio_detail
NOWAIT_END_ASIO_NAMESPACE
