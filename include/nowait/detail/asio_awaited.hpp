// An Asio operation as one of ours: what use_task makes.
//
// The handler that Asio keeps and our operation share a counted state, because either may go first: the task's frame with its
// runtime, or the handler with its io_context. The handler leaves its arguments in the state and posts a node to the task's
// loop; nothing runs inside anybody's call.
#pragma once

#include <nowait/detail/asio_operation.hpp>
#include <nowait/detail/frame_pool.hpp>
#include <nowait/detail/loop.hpp>
#include <nowait/detail/operation.hpp>
#include <nowait/result.hpp>

#include <cerrno>
#include <exception>
#include <optional>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

#include <pthread.h>

NOWAIT_BEGIN_ASIO_NAMESPACE
namespace asio_detail {

/// An Asio error as ours are: errno values are generic.
[[nodiscard]] inline std::error_code from_asio(const error_code& error) noexcept {
    if (error.category() == net::error::get_system_category())
        return {error.value(), std::generic_category()};
    return error;
}

/// What the value part of a completion is.
template <class... Values>
struct packed {
    using type = std::tuple<Values...>;
    static type of(Values&... values) { return type(std::move(values)...); }
};
template <class Value>
struct packed<Value> {
    using type = Value;
    static type of(Value& value) { return std::move(value); }
};
template <>
struct packed<> {
    using type = void;
};

/// From a completion's arguments to what co_await gives. `As`: 0 result, 1 progress, 2 exceptions.
template <int As, class... Arguments>
struct outcome_of { // no error at all
    using values = packed<Arguments...>;
    using type = typename values::type;
    static type take(Arguments&... arguments) {
        if constexpr (sizeof...(Arguments) != 0)
            return values::of(arguments...);
    }
    static type canceled() { throw std::system_error(std::make_error_code(std::errc::operation_canceled)); }
};
template <int As, class... Values>
struct outcome_of<As, std::exception_ptr, Values...> {
    using values = packed<Values...>;
    using type = typename values::type;
    static type take(std::exception_ptr& error, Values&... rest) {
        if (error)
            std::rethrow_exception(std::move(error));
        if constexpr (sizeof...(Values) != 0)
            return values::of(rest...);
    }
    static type canceled() { throw std::system_error(std::make_error_code(std::errc::operation_canceled)); }
};
template <class... Values>
struct outcome_of<0, error_code, Values...> {
    using values = packed<Values...>;
    using type = result<typename values::type>;
    static type take(error_code& error, Values&... rest) {
        constexpr bool counts_bytes = std::is_same_v<std::tuple<Values...>, std::tuple<std::size_t>>;
        if (error && !(counts_bytes && error == net::error::eof))
            return fail(from_asio(error));
        if constexpr (sizeof...(Values) != 0)
            return values::of(rest...);
        else
            return {};
    }
    static type canceled() { return fail(std::errc::operation_canceled); }
};
template <class... Values>
struct outcome_of<1, error_code, Values...> {
    static_assert(std::is_same_v<std::tuple<Values...>, std::tuple<std::size_t>>,
                  "use_task_progress is for operations that complete with (error_code, std::size_t)");
    using type = progress;
    static progress take(error_code& error, std::size_t& bytes) {
        if (error == net::error::eof)
            return {bytes, {}};
        return {bytes, from_asio(error)};
    }
    static progress canceled() { return {0, std::make_error_code(std::errc::operation_canceled)}; }
};
template <class... Values>
struct outcome_of<2, error_code, Values...> {
    using values = packed<Values...>;
    using type = typename values::type;
    static type take(error_code& error, Values&... rest) {
        constexpr bool counts_bytes = std::is_same_v<std::tuple<Values...>, std::tuple<std::size_t>>;
        if (error && !(counts_bytes && error == net::error::eof))
            throw std::system_error(from_asio(error));
        if constexpr (sizeof...(Values) != 0)
            return values::of(rest...);
    }
    static type canceled() { throw std::system_error(std::make_error_code(std::errc::operation_canceled)); }
};

class awaited_operation_base;

/// What does not depend on the completion's arguments.
class NOWAIT_API awaited_state_base {
public:
    explicit awaited_state_base(awaited_operation_base& op, detail::mailbox& box) noexcept
        : op_(&op), box_(&box), thread_(static_cast<unsigned long>(::pthread_self())) {
        box_->acquire();
        node_.of = this;
        node_.run = [](detail::ready_node& node) noexcept { static_cast<end_node&>(node).of->arrive(); };
    }
    awaited_state_base(const awaited_state_base&) = delete;
    awaited_state_base& operator=(const awaited_state_base&) = delete;

    void acquire() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept {
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            delete this;
    }

    net::cancellation_signal signal; // used where the handler runs
    bool over = false;               // the handler has been called or destroyed. Used where the handler runs

    /// The handler's last act, on any thread.
    inline void finish() noexcept;
    /// The operation goes before its end, with its loop, and the I/O object may go too: nothing is emitted any more, because an
    /// object's cancellation handler looks at the object.
    void forget() noexcept {
        op_ = nullptr;
        forgotten_.store(true, std::memory_order_relaxed);
    }
    void emit() {
        if (!over && !forgotten_.load(std::memory_order_relaxed))
            signal.emit(net::cancellation_type::all);
    }

    static void* operator new(std::size_t size) { return detail::frame_pool::allocate(size); }
    static void operator delete(void* memory) noexcept { detail::frame_pool::deallocate(memory); }

protected:
    virtual ~awaited_state_base() { box_->release(); }

private:
    inline void arrive() noexcept;

    struct end_node : detail::ready_node {
        awaited_state_base* of = nullptr;
    } node_;
    awaited_operation_base* op_; // used on the loop's thread
    detail::mailbox* box_;
    unsigned long thread_; // the loop's
    detail::real_sync::atomic<bool> forgotten_{false};
    detail::real_sync::atomic<unsigned> references_{1};
};

class awaited_operation_base : public detail::operation_base {
    friend class awaited_state_base;
};

inline void awaited_state_base::finish() noexcept {
    over = true;
    if (thread_ == static_cast<unsigned long>(::pthread_self())) {
        if (op_ != nullptr)
            op_->home().post(node_);
    } else {
        (void)box_->post(node_); // refused: the loop is gone, and the operation with it
    }
}
inline void awaited_state_base::arrive() noexcept {
    if (op_ != nullptr)
        op_->complete();
}

template <class... Arguments>
class awaited_state final : public awaited_state_base {
public:
    using awaited_state_base::awaited_state_base;
    std::optional<std::tuple<Arguments...>> arguments;
};

/// What Asio keeps.
template <class... Arguments>
class awaited_handler {
public:
    using cancellation_slot_type = net::cancellation_slot;

    explicit awaited_handler(awaited_state<Arguments...>& state) noexcept : state_(&state) {
        state.acquire();
    }
    awaited_handler(awaited_handler&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
    awaited_handler& operator=(awaited_handler&&) = delete;
    ~awaited_handler() {
        if (state_ != nullptr)
            end(); // uncalled
    }

    [[nodiscard]] cancellation_slot_type get_cancellation_slot() const noexcept {
        return state_->signal.slot();
    }
    template <class... Given>
    void operator()(Given&&... given) {
        state_->arguments.emplace(std::forward<Given>(given)...);
        end();
    }

private:
    void end() noexcept {
        auto* const state = std::exchange(state_, nullptr);
        state->finish();
        state->release();
    }
    awaited_state<Arguments...>* state_;
};

template <int As, class Initiation, class Arguments, class... InitArguments>
class awaited_operation;

template <int As, class Initiation, class Arguments, class... InitArguments>
struct awaited_description {
    using operation = awaited_operation<As, Initiation, Arguments, InitArguments...>;
    using value_type = typename operation::outcome::type;
    Initiation initiation;
    std::tuple<InitArguments...> with;
};

template <int As, class Initiation, class... Arguments, class... InitArguments>
class awaited_operation<As, Initiation, std::tuple<Arguments...>, InitArguments...> final
    : public awaited_operation_base {
    using state_type = awaited_state<std::decay_t<Arguments>...>;
    static constexpr bool names_executor = requires(const Initiation& i) { i.get_executor(); };

public:
    using outcome = outcome_of<As, std::decay_t<Arguments>...>;

    explicit awaited_operation(
        awaited_description<As, Initiation, std::tuple<Arguments...>, InitArguments...>&& what)
        : initiation_(std::move(what.initiation)), with_(std::move(what.with)) {}
    ~awaited_operation() {
        if (state_ != nullptr) {
            state_->forget();
            state_->release();
        }
    }

    [[nodiscard]] bool start() noexcept {
        if (stop_requested())
            return true;
        try {
            state_ = new state_type(*this, home().remote());
            awaited_handler<std::decay_t<Arguments>...> handler(*state_);
            std::apply([&](auto&... each) { initiation_(std::move(handler), std::move(each)...); }, with_);
        } catch (...) {
            failure_ = std::current_exception(); // the handler has been destroyed: its node is on its way
        }
        if (state_ == nullptr)
            return true;
        listen_for_stop([](detail::stop_hook& hook) noexcept {
            static_cast<awaited_operation&>(from_hook(hook)).cancel();
        });
        return false;
    }
    void cancel() noexcept {
        try {
            emit();
        } catch (...) { // no memory to post with: the operation ends when it ends
        }
    }
    typename outcome::type take_result() {
        if (failure_)
            std::rethrow_exception(std::move(failure_));
        if (state_ == nullptr || !state_->arguments)
            return outcome::canceled();
        return std::apply([](auto&... each) { return outcome::take(each...); }, *state_->arguments);
    }

private:
    /// Where the handler runs: that is the I/O object's executor, since the handler has none of its own.
    void emit() {
        if constexpr (names_executor) {
            auto executor = initiation_.get_executor();
            if (!runs_on_this_thread(executor)) {
                struct emission {
                    state_type* state;
                    explicit emission(state_type& of) noexcept : state(&of) { of.acquire(); }
                    emission(emission&& other) noexcept : state(std::exchange(other.state, nullptr)) {}
                    ~emission() {
                        if (state != nullptr)
                            state->release();
                    }
                    void operator()() const { state->emit(); }
                };
                execute_on(net::require(executor, net::execution::blocking.never), emission(*state_));
                return;
            }
        }
        state_->emit();
    }
    template <class Executor>
    [[nodiscard]] bool runs_on_this_thread(const Executor& executor) const noexcept {
        net::execution_context& context = net::query(executor, net::execution::context);
        if (!net::has_service<asio_service>(context))
            return false;
        const asio_core* const core = net::use_service<asio_service>(context).core();
        return core != nullptr && core->here() && runs_here(*core, executor);
    }

    Initiation initiation_;
    std::tuple<InitArguments...> with_;
    state_type* state_ = nullptr;
    std::exception_ptr failure_;
};

} // namespace asio_detail
NOWAIT_END_ASIO_NAMESPACE
