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
#pragma once

#include <nowait/asio/executor.hpp>
#include <nowait/detail/asio_core.hpp>
#include <nowait/detail/asio_object.hpp>
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
