// A nursery: tasks that are started into it, and that have all ended when it is left.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/frame_pool.hpp>
#include <nowait/detail/loop.hpp>
#include <nowait/detail/promise.hpp>
#include <nowait/result.hpp>
#include <nowait/runtime.hpp>
#include <nowait/stop.hpp>
#include <nowait/task.hpp>

#include <cassert>
#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <system_error>
#include <type_traits>
#include <utility>

NOWAIT_BEGIN_NAMESPACE

namespace detail {

class scope_join_operation;

/// Why a task failed; neither, if it did not.
struct scope_failure {
    std::exception_ptr thrown;
    std::error_code code;
};

/// What the scope, its tasks and whoever joins share. It goes with the last of them.
class NOWAIT_API scope_state final {
public:
    explicit scope_state(loop* home) noexcept : home_(home) {}
    scope_state(const scope_state&) = delete;
    scope_state& operator=(const scope_state&) = delete;

    static void* operator new(std::size_t size) { return frame_pool::allocate(size); }
    static void operator delete(void* memory) noexcept { frame_pool::deallocate(memory); }

    [[nodiscard]] loop& home() noexcept {
        if (home_ == nullptr) [[unlikely]]
            find_home();
        return *home_;
    }
    [[nodiscard]] inplace_stop_source& stop() noexcept { return stop_; }
    [[nodiscard]] std::size_t active() const noexcept { return active_; }

    template <class T>
    void start(task<T>&& what) noexcept {
        sink<T>& into = sink_for<T>();
        start_into(std::move(what), into.slot, into);
    }
    template <class T>
    void start_into(task<T>&& what, outcome<T>& slot, frame_owner& owner) noexcept {
        auto frame = what.release();
        assert(frame && "a task can be started once");
        frame.promise().result = &slot;
        loop& on = home();
        assert(on.on_own_thread() && "a scope belongs to one runtime's thread");
        if (active_++ == 0) [[unlikely]]
            first_starts();
        frame.promise().start_detached(on, stop_, owner);
    }
    /// What an outcome says of a failure; it is empty again afterwards.
    template <class T>
    [[nodiscard]] static scope_failure failure_of(outcome<T>& slot) noexcept {
        scope_failure found{slot.error(), {}};
        if constexpr (!std::is_void_v<T>) {
            if (!found.thrown) {
                if (const T value = slot.take(); !value)
                    found.code = value.error();
            }
        }
        std::destroy_at(&slot);
        std::construct_at(&slot);
        return found;
    }
    /// A task has ended: inside a node that the loop runs.
    void child_ended(scope_failure how) noexcept;
    void child_succeeded() noexcept {
        if (--active_ == 0) [[unlikely]]
            last_ended();
    }
    void child_abandoned() noexcept;
    /// The scope object goes.
    void abandon() noexcept;

private:
    friend class scope_join_operation;

    /// Of a task that has moved to another runtime: a place of its own for its outcome.
    template <class T>
    struct traveller final : frame_owner {
        explicit traveller(scope_state* state) noexcept : of(state) {
            frame_ended = [](frame_owner& owner) noexcept {
                auto* const self = static_cast<traveller*>(&owner);
                scope_state& state_of = *self->of;
                scope_failure how = failure_of(self->slot);
                delete self;
                state_of.child_ended(std::move(how));
            };
            frame_abandoned = [](frame_owner& owner) noexcept {
                auto* const self = static_cast<traveller*>(&owner);
                scope_state& state_of = *self->of;
                delete self;
                state_of.child_abandoned();
            };
        }
        scope_state* of;
        outcome<T> slot;
    };

    /// Where the outcome of tasks without a callable goes, one after the other: between a task's last word and child_ended()
    /// nothing else runs on this thread. So a task costs its frame and nothing beside.
    template <class T>
    struct sink : frame_owner {
        explicit sink(scope_state* state) noexcept : of(state) {
            frame_ended = [](frame_owner& owner) noexcept {
                auto& self = static_cast<sink&>(owner);
                if constexpr (std::is_void_v<T>) {
                    if (!self.slot.failed()) [[likely]] {
                        self.of->child_succeeded();
                        return;
                    }
                }
                self.judge();
            };
            frame_abandoned = [](frame_owner& owner) noexcept {
                static_cast<sink&>(owner).of->child_abandoned();
            };
            place_elsewhere = [](frame_owner& owner, promise_base& frame) noexcept -> void* {
                auto* const alone = new (std::nothrow) traveller<T>(static_cast<sink&>(owner).of);
                if (alone == nullptr)
                    return nullptr;
                frame.heir.set(*alone);
                return &alone->slot;
            };
        }
        [[gnu::noinline]] void judge() noexcept { of->child_ended(failure_of(slot)); }

        scope_state* of;
        outcome<T> slot;
    };
    template <class T>
    [[nodiscard]] sink<T>& sink_for() noexcept {
        if constexpr (std::is_void_v<T>)
            return plain_;
        else
            return with_result_;
    }

    struct embedded_hook : stop_hook {
        scope_state* of = nullptr;
    };

    void find_home() noexcept;
    void first_starts() noexcept;
    void last_ended() noexcept;
    void release_if_unused() noexcept;

    loop* home_;
    inplace_stop_source stop_;
    embedded_hook runtime_stop_; // linked while there are tasks
    std::size_t active_ = 0;
    scope_join_operation* joiner_ = nullptr;
    bool owned_ = true;
    scope_failure first_;
    sink<void> plain_{this};
    sink<result<void>> with_result_{this};
};

struct scope_join_description {
    using operation = scope_join_operation;
    using value_type = result<void>;
    scope_state* of;
};

class NOWAIT_API scope_join_operation final : public operation_base {
public:
    explicit scope_join_operation(scope_join_description what) noexcept : state_(what.of) {}
    ~scope_join_operation();

    [[nodiscard]] bool start() noexcept;
    void cancel() noexcept;
    [[nodiscard]] result<void> take_result();

private:
    friend class scope_state;
    scope_state* state_;
    int error_ = 0;
    bool waiting_ = false;
    bool stopped_ = false; // asked to stop while there were tasks
};

} // namespace detail

/// A nursery. Tasks are spawned into it, join() waits until all have ended; the first that fails stops the others.
///
///     nowait::task_scope scope;
///     scope.spawn(serve(first));
///     scope.spawn(serve(second));
///     auto ended = co_await scope.join();         // result<void>; throws what the first failed task threw
///
/// A task fails by an exception, or as a task<result<void>> by an error. From then on, and from request_stop() on, tasks see a
/// stop, those spawned later at once; that they then end with operation_canceled is no failure. Further failures are dropped.
///
/// A scope that is destroyed before its tasks have ended (by one of them, say) cannot wait: it asks them to stop and lets them
/// go; the runtime still waits for them, and an exception that nobody hears ends the program as in any detached task. Whatever
/// they borrow must outlive them: where that lives in the same function, use with_scope(), which no exception leaves early.
///
/// For one runtime's thread. A task costs its frame, the scope one small block; both are recycled.
class task_scope {
public:
    /// For the runtime that runs here, or the first that spawns into it. Throws: std::bad_alloc.
    task_scope() : state_(new detail::scope_state(detail::loop::current())) {}
    /// For a runtime that does not run yet.
    explicit task_scope(const runtime& on) : state_(new detail::scope_state(&on.get_loop())) {}
    task_scope(task_scope&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
    task_scope& operator=(task_scope&& other) noexcept {
        if (this != &other) {
            leave();
            state_ = std::exchange(other.state_, nullptr);
        }
        return *this;
    }
    ~task_scope() { leave(); }

    /// Starts a task; it runs when the ready queue comes to it. Precondition: not moved from.
    void spawn(task<> what) noexcept { state_->start(std::move(what)); }
    void spawn(task<result<void>> what) noexcept { state_->start(std::move(what)); }
    /// The same from a callable that makes a task; the callable (and what it captures) is kept until the task has ended.
    /// Throws: std::bad_alloc, and what the callable throws.
    template <class Function>
    requires detail::is_task<std::invoke_result_t<Function&>>
    void spawn(Function make);

    /// Waits until all tasks have ended. A stop of the awaiter is passed on to them, and is waited out as well: so with_timeout
    /// around it bounds when they are asked to stop, not when they end.
    /// Returns: success, or the first failure: throws what it threw. Errors: also operation_canceled: the awaiter was asked to
    /// stop while there were tasks, and none has failed; device_or_resource_busy: somebody else joins; bad_file_descriptor:
    /// moved from. Resumes: on the awaiter's runtime.
    [[nodiscard]] detail::scope_join_description join() noexcept { return {state_}; }

    /// Asks every task to stop, those to come included.
    void request_stop() noexcept { state_->stop().request_stop(); }
    [[nodiscard]] bool stop_requested() const noexcept { return state_->stop().stop_requested(); }
    [[nodiscard]] inplace_stop_token get_token() noexcept { return state_->stop().get_token(); }
    /// Tasks that have not ended.
    [[nodiscard]] std::size_t active() const noexcept { return state_->active(); }

private:
    void leave() noexcept {
        if (state_ != nullptr)
            std::exchange(state_, nullptr)->abandon();
    }
    detail::scope_state* state_;
};

namespace detail {

/// A task together with the callable that made it.
template <class Function, class T>
struct scope_callable final : frame_owner {
    scope_callable(Function&& f, scope_state& state) : make(std::move(f)), of(&state) {
        frame_ended = [](frame_owner& owner) noexcept {
            auto* const self = static_cast<scope_callable*>(&owner);
            scope_state& state_of = *self->of;
            scope_failure how = scope_state::failure_of(self->slot);
            delete self; // the callable, too: before anybody hears of the end
            state_of.child_ended(std::move(how));
        };
        frame_abandoned = [](frame_owner& owner) noexcept {
            auto* const self = static_cast<scope_callable*>(&owner);
            scope_state& state_of = *self->of;
            delete self;
            state_of.child_abandoned();
        };
    }
    static void* operator new(std::size_t size) { return frame_pool::allocate(size); }
    static void operator delete(void* memory) noexcept { frame_pool::deallocate(memory); }

    Function make;
    scope_state* of;
    outcome<T> slot;
};

} // namespace detail

template <class Function>
requires detail::is_task<std::invoke_result_t<Function&>>
void task_scope::spawn(Function make) {
    using made_type = std::invoke_result_t<Function&>;
    using T = typename made_type::value_type;
    static_assert(std::is_void_v<T> || std::is_same_v<T, result<void>>,
                  "a scope takes tasks without a value: task<> or task<result<void>>");
    auto child = std::make_unique<detail::scope_callable<Function, T>>(std::move(make), *state_);
    made_type what = child->make();
    detail::scope_callable<Function, T>& owner = *child.release(); // it goes with the task
    state_->start_into(std::move(what), owner.slot, owner);
}

/// Runs `body(scope)` as the first task of a scope, and leaves when it and everything that was spawned has ended: whatever the
/// bodies of tasks borrow from the caller outlives them. The first failure, of the body or of a task, stops all.
///
///     int answers = 0;
///     auto body = [&](nowait::task_scope& scope) -> nowait::task<> {
///         for (auto& each : questions)
///             scope.spawn(ask(each, answers));
///         co_return;
///     };
///     auto ended = co_await nowait::with_scope(body);
///
/// Returns, throws: as task_scope::join(). Here the body may be a lambda with captures: it lives until all have ended.
template <class Body>
requires detail::is_task<std::invoke_result_t<Body&, task_scope&>>
task<result<void>> with_scope(Body body) {
    task_scope scope;
    scope.spawn(body(scope));
    result<void> ended = co_await scope.join();
    co_return ended;
}

NOWAIT_END_NAMESPACE
