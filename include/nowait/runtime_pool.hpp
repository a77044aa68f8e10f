// Several runtimes, each on a thread of its own: one for each CPU.
#pragma once

#include <nowait/config.hpp>
#include <nowait/result.hpp>
#include <nowait/resume_on.hpp>
#include <nowait/runtime.hpp>
#include <nowait/task.hpp>
#include <nowait/wait.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// A task under way to the runtime that is to run it.
struct spawn_parcel : posted_base {
    promise_base* frame = nullptr;
    frame_owner* owner = nullptr;
    static void* operator new(std::size_t size) { return frame_pool::allocate(size); }
    static void operator delete(void* memory) noexcept { frame_pool::deallocate(memory); }
};
/// Sends it. Refused, because that runtime has gone: the frame is destroyed, and the owner told that it was abandoned.
NOWAIT_API void send_frame(mailbox& to, spawn_parcel& parcel) noexcept;

template <class T>
join_handle<T> spawn_remote(mailbox& to, task<T>&& what, std::unique_ptr<join_state<T>> state) {
    auto* const parcel = new spawn_parcel;
    auto frame = what.release();
    assert(frame && "a task can be started once");
    state->home = to.of();
    frame.promise().result = &state->value;
    parcel->frame = &frame.promise();
    parcel->owner = state.get();
    join_handle<T> handle(state.release());
    send_frame(to, *parcel);
    return handle;
}

} // namespace detail

/// Starts a task of its own on a runtime, from any thread; it runs when that loop comes to it. Whoever joins it, on whichever
/// runtime (or, by wait(), on none), has its value or what it threw. If the runtime has gone, or goes before the task has ended,
/// join() gives operation_canceled. Throws: std::bad_alloc.
template <class T>
join_handle<T> spawn_on(const remote_runtime& where, task<T> what) {
    return detail::spawn_remote(where.get_mailbox(), std::move(what),
                                std::make_unique<detail::join_state<T>>());
}
/// The same from a callable that makes the task, here and now; the callable (and what it captures) is kept until the task has
/// ended, and is destroyed there.
template <class Function>
requires detail::is_task<std::invoke_result_t<Function&>>
auto spawn_on(const remote_runtime& where, Function make) {
    using T = typename std::invoke_result_t<Function&>::value_type;
    auto state = std::make_unique<detail::join_state<T>>();
    auto kept = std::make_unique<detail::kept_function<Function>>(std::move(make));
    task<T> made = kept->function();
    state->callable = std::move(kept);
    return detail::spawn_remote(where.get_mailbox(), std::move(made), std::move(state));
}

struct runtime_pool_options {
    /// How many runtimes; 0: one for each CPU that the process may run on.
    unsigned count = 0;
    /// Each thread stays on one of these CPUs (the one of its index, round and round). Otherwise the kernel moves them about.
    bool pin = false;
    /// Threads are called by this and their index: "nowait/0". What is longer than 15 characters is cut.
    std::string name = "nowait";
    /// What each of them is made with.
    runtime_options each{};
};

/// A number of runtimes that run until they are shut down, each on a thread of its own. The threads block the signals that the
/// thread blocks which makes the pool.
///
///     auto pool = nowait::runtime_pool::create();
///     auto handle = pool->spawn(work());             // on the next one, round and round
///     auto value = nowait::wait(handle.join());      // in main; a task says `co_await handle.join()`
class NOWAIT_API runtime_pool {
public:
    /// Errors: as runtime::create; invalid_argument: more than 4096; what pthread_create said (resource_unavailable_try_again:
    /// too many threads).
    [[nodiscard]] static result<runtime_pool> create(const runtime_pool_options& options = {});

    runtime_pool(runtime_pool&&) noexcept;
    runtime_pool& operator=(runtime_pool&&) noexcept;
    /// shutdown() with the destructor_wait of its runtimes. Not by a task of the pool.
    ~runtime_pool();

    [[nodiscard]] std::size_t size() const noexcept;
    /// The runtime of that index, round and round: for resume_on(), post() and spawn_on(). Any thread. It stays valid when the pool has
    /// gone, and then refuses.
    [[nodiscard]] const remote_runtime& at(std::size_t index) const noexcept;
    /// The next one, round and round. Any thread.
    [[nodiscard]] const remote_runtime& next() const noexcept;

    /// Starts a task on the next runtime. Any thread; see spawn_on().
    template <class T>
    join_handle<T> spawn(task<T> what) {
        return nowait::spawn_on(next(), std::move(what));
    }
    template <class Function>
    requires detail::is_task<std::invoke_result_t<Function&>>
    auto spawn(Function make) {
        return nowait::spawn_on(next(), std::move(make));
    }
    /// The same on the runtime of that index, round and round.
    template <class T>
    join_handle<T> spawn_on(std::size_t index, task<T> what) {
        return nowait::spawn_on(at(index), std::move(what));
    }
    template <class Function>
    requires detail::is_task<std::invoke_result_t<Function&>>
    auto spawn_on(std::size_t index, Function make) {
        return nowait::spawn_on(at(index), std::move(make));
    }

    /// Runs a task on the next runtime and waits for it, on a thread without a runtime. Returns: its value; throws what it threw.
    /// Errors: operation_canceled: the pool was shut down before it ended; resource_deadlock_would_occur: a runtime runs on
    /// this thread.
    template <class T>
    result<T> run(task<T> root) {
        if (detail::loop::current() != nullptr)
            return fail(std::errc::resource_deadlock_would_occur);
        join_handle<T> handle = spawn(std::move(root));
        return wait(handle.join());
    }

    /// Any thread, signal handlers too: every task sees a stop. The runtimes end when their tasks have; what is spawned later
    /// is cancelled.
    void request_stop() noexcept;
    /// Asks everything to stop, waits for the threads until `limit` has passed, then destroys what is left. A task that keeps its
    /// thread busy is waited for in any case. Returns: how many tasks had not ended by then.
    /// Errors: resource_deadlock_would_occur: called by a task of the pool.
    result<shutdown_report> shutdown(std::chrono::nanoseconds limit);

    /// The counters of one runtime. Any thread, until shutdown. Errors: invalid_argument: no such index, or it has gone.
    [[nodiscard]] result<runtime_stats> stats(std::size_t index) const noexcept;

private:
    struct state;
    explicit runtime_pool(std::unique_ptr<state> made) noexcept;

    std::unique_ptr<state> state_;
};

NOWAIT_END_NAMESPACE
