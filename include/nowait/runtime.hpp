// The runtime: one loop bound to the thread that runs it.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/loop.hpp>
#include <nowait/result.hpp>
#include <nowait/stats.hpp>
#include <nowait/task.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

NOWAIT_BEGIN_NAMESPACE

template <class T>
class join_handle;
class worker_pool;

/// Which driver waits for the kernel.
enum class driver_choice : std::uint8_t {
    automatic, ///< what NOWAIT_DRIVER says ("uring", "poll"), else io_uring, else epoll where io_uring is refused
    uring,     ///< io_uring or an error
    poll       ///< epoll
};

struct runtime_options {
    driver_choice driver = driver_choice::automatic;
    /// Entries of the submission queue, rounded up to a power of two; more operations than that may wait at once.
    unsigned ring_entries = 256;
    /// Entries of the completion queue; 0 is twice the other.
    unsigned completion_entries = 0;
    /// What one turn may spend on operations that finish at once: one unit each, and one more for every 4 KiB moved.
    int budget = 128;
    /// How long the destructor waits for the kernel to give memory back.
    std::chrono::nanoseconds destructor_wait = std::chrono::seconds(5);
    /// How long a loop that is about to sleep looks for work first, if whoever last posted to it ran on another CPU: waking a CPU
    /// that has gone idle takes longer than most answers. It backs off where that finds nothing. Zero: it sleeps at once.
    std::chrono::nanoseconds spin = std::chrono::microseconds(50);
    /// Who runs blocking work; null is worker_pool::common(). Borrows: nothing; a pool that was shut down refuses.
    worker_pool* pool = nullptr;
    /// Sees what a task threw that nobody joins; std::terminate follows.
    void (*unhandled)(std::exception_ptr) = nullptr;
    /// For tests and simulations: the seam. Both or none. Borrows: `system` outlives the runtime.
    detail::system* system = nullptr;
    std::function<std::unique_ptr<detail::driver>(detail::system&)> make_driver{};
};

/// What shutdown() could not bring to an end.
struct shutdown_report {
    std::size_t unfinished = 0; ///< spawned tasks whose frames are still there
    [[nodiscard]] bool complete() const noexcept { return unfinished == 0; }
};

/// A way to reach a runtime from any thread, also after it has gone: then it says so.
class remote_runtime {
public:
    explicit remote_runtime(detail::mailbox& box) noexcept : box_(&box) { box_->acquire(); }
    remote_runtime(const remote_runtime& other) noexcept : box_(other.box_) { box_->acquire(); }
    remote_runtime(remote_runtime&& other) noexcept : box_(std::exchange(other.box_, nullptr)) {}
    remote_runtime& operator=(remote_runtime other) noexcept {
        std::swap(box_, other.box_);
        return *this;
    }
    ~remote_runtime() {
        if (box_ != nullptr)
            box_->release();
    }

    /// Runs `function()` on the runtime's thread, in a turn of its own; FIFO for each posting thread.
    /// Returns: false if the runtime is gone; the function is destroyed unrun.
    template <std::invocable Function>
    bool post(Function function) const;

    /// Asks every task of the runtime to stop. Async-signal-safe.
    void request_stop() const noexcept { box_->request_stop(); }

    /// For the library's own layers.
    [[nodiscard]] detail::mailbox& get_mailbox() const noexcept { return *box_; }

private:
    detail::mailbox* box_;
};

namespace detail {

template <class Function>
struct posted_function : posted_base {
    explicit posted_function(Function&& f) : function(std::move(f)) {
        run = &run_posted;
        invoke = [](posted_base& node) noexcept {
            std::unique_ptr<posted_function> self(static_cast<posted_function*>(&node));
            self->function();
        };
    }
    // From the poster's own stock, to which it comes back when the function has run: a thread that posts again and again
    // allocates nothing once warm. (What wants more alignment than a frame has is left to the ordinary allocator.)
    static constexpr bool recycled = alignof(Function) <= alignof(std::max_align_t);
    static void* operator new(std::size_t size) {
        if constexpr (recycled)
            return frame_pool::allocate_on_any_thread(size);
        else
            return ::operator new(size, std::align_val_t(alignof(Function)));
    }
    static void operator delete(void* memory) noexcept {
        if constexpr (recycled)
            frame_pool::deallocate(memory);
        else
            ::operator delete(memory, std::align_val_t(alignof(Function)));
    }

    Function function;
};

template <class Function>
bool post_function(mailbox& box, Function&& function) {
    auto node = std::make_unique<posted_function<std::decay_t<Function>>>(std::forward<Function>(function));
    if (!box.post(*node))
        return false;
    (void)node.release(); // the loop runs and deletes it
    return true;
}

/// What a join handle and a spawned frame share. One word decides who comes first, the task's end, the handle's
/// destruction or an awaiter, and who releases the memory.
///
///   running ---> ended        the task has ended; the handle's side deletes
///      |  \---> detached      the handle has gone; the task's end deletes
///      v
///   waiting (same loop) -----> ended
///   waiting_remote ----------> posting ---> ended     the ending task uses this memory until it has posted; if the
///                                 \------> detached   awaiter's runtime dies meanwhile, the ending task deletes
class join_state_base : public frame_owner {
public:
    enum class phase : unsigned { running, waiting, waiting_remote, posting, ended, detached };

    lone_atomic<phase> word{phase::running};
    loop* home = nullptr; // the task's
    // The awaiter's, written before the word says so:
    operation_base* waiter = nullptr;
    struct wake_node : ready_node {
        join_state_base* of = nullptr;
    } wake;
    mailbox* box = nullptr;

    join_state_base(const join_state_base&) = delete;
    join_state_base& operator=(const join_state_base&) = delete;

    [[nodiscard]] bool over() const noexcept {
        const phase seen = word.load(std::memory_order_acquire); // pairs with the exchange in publish_end()
        return seen == phase::ended || seen == phase::posting;
    }

protected:
    join_state_base() = default;
    ~join_state_base() = default;
    /// Says that the task has ended. True: the memory is the caller's to release. `abandoned`: its loop is being destroyed, and
    /// runs nothing any more.
    [[nodiscard]] NOWAIT_API bool publish_end(bool abandoned) noexcept;
};

/// A callable that a spawned task was made by.
struct kept_callable {
    virtual ~kept_callable() = default;
};
template <class Function>
struct kept_function final : kept_callable {
    explicit kept_function(Function&& made_from) : function(std::move(made_from)) {}
    Function function;
};

template <class T>
class join_state final : public join_state_base {
public:
    join_state() {
        frame_ended = [](frame_owner& owner) noexcept { static_cast<join_state&>(owner).end(); };
        frame_abandoned = [](frame_owner& owner) noexcept {
            auto& self = static_cast<join_state&>(owner);
            self.callable.reset();
            self.abandoned = true; // without a value: whoever joins is told that it was cancelled
            if (self.publish_end(true))
                delete &self;
        };
    }

    outcome<T> value;
    bool abandoned = false;
    std::unique_ptr<kept_callable> callable; // of spawn(callable), until the frame has gone

    static void* operator new(std::size_t size) { return frame_pool::allocate(size); }
    static void operator delete(void* memory) noexcept { frame_pool::deallocate(memory); }

private:
    void end() noexcept {
        callable.reset();
        if (!publish_end(false))
            return;
        if (std::exception_ptr error = value.error()) [[unlikely]] {
            if (home->unhandled != nullptr)
                home->unhandled(error);
            std::terminate();
        }
        delete this;
    }
};

class NOWAIT_API join_operation_base : public operation_base {
public:
    explicit join_operation_base(join_state_base* state) noexcept : state_(state) {}
    ~join_operation_base();
    [[nodiscard]] bool start() noexcept;
    void cancel() noexcept;

protected:
    [[nodiscard]] bool leave() noexcept;

    join_state_base* state_;
    int error_ = 0;
};

/// Waits for a spawned task. The state is shared with the handle, which outlives the operation.
template <class T>
class join_operation final : public join_operation_base {
public:
    using join_operation_base::join_operation_base;

    result<T> take_result() {
        if (error_ != 0)
            return fail_errno(error_);
        auto& joined = *static_cast<join_state<T>*>(state_);
        outcome<T>& value = joined.value;
        if (joined.abandoned) [[unlikely]]
            return fail(std::errc::operation_canceled);
        if constexpr (std::is_void_v<T>) {
            value.take();
            return {};
        } else {
            return value.take();
        }
    }
};

} // namespace detail

/// A spawned task. Awaiting it gives its value or throws what it threw; dropping it lets the task go on by itself, and an
/// exception that nobody joins then ends the program (after `runtime_options::unhandled`).
template <class T>
class [[nodiscard]] join_handle {
public:
    struct description {
        using operation = detail::join_operation<T>;
        using value_type = result<T>;
        detail::join_state<T>* state;
        [[nodiscard]] operator detail::join_state_base*() const noexcept { return state; }
    };

    join_handle() = default;
    explicit join_handle(detail::join_state<T>* state) noexcept : state_(state) {}
    join_handle(join_handle&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
    join_handle& operator=(join_handle&& other) noexcept {
        if (this != &other) {
            detach();
            state_ = std::exchange(other.state_, nullptr);
        }
        return *this;
    }
    ~join_handle() { detach(); }

    /// Waits for the end. Returns: the task's value. Errors: operation_canceled: the awaiter was asked to stop (the task
    /// goes on), or the task's runtime has been destroyed before it ended; invalid_argument: an empty handle, or one that
    /// another operation waits on. Throws what the task threw. Borrows: the handle. Resumes: on the awaiter's runtime,
    /// whichever ran the task.
    /// To be awaited to the end once.
    [[nodiscard]] description join() & noexcept { return description{state_}; }

    [[nodiscard]] bool valid() const noexcept { return state_ != nullptr; }
    /// True when the task has ended, or has gone with its runtime.
    [[nodiscard]] bool done() const noexcept { return state_ != nullptr && state_->over(); }

    /// Lets the task go on by itself.
    void detach() noexcept {
        if (state_ == nullptr)
            return;
        detail::join_state<T>* state = std::exchange(state_, nullptr);
        // acq_rel: if the task has ended, its end is seen here, and the memory is ours to release.
        using phase = detail::join_state_base::phase;
        if (state->word.exchange(phase::detached, std::memory_order_acq_rel) == phase::ended)
            delete state;
    }

private:
    detail::join_state<T>* state_ = nullptr;
};

/// One loop, one driver, one thread at a time.
///
/// `run` binds the runtime to the calling thread at first use. Everything not marked "any thread" is for that thread.
/// Several runtimes may run on several threads.
class NOWAIT_API runtime {
public:
    /// Makes a runtime. Errors: what io_uring_setup said, if the ring was asked for by name (ENOSYS, EPERM, EACCES: refused here;
    /// ENOMEM: not even the smallest ring fits); too_many_files_open: no descriptors left; invalid_argument: a budget
    /// below 1, no entries or more than 32768, an unknown NOWAIT_DRIVER.
    [[nodiscard]] static result<runtime> create(const runtime_options& options = {});

    runtime(runtime&&) noexcept = default;
    runtime& operator=(runtime&&) noexcept = default;
    /// Cancels what is left, waits (bounded by destructor_wait) until the kernel has given all memory back, and destroys
    /// the frames, leaves first. Never resumes a coroutine: for an orderly end, shutdown() first. On the runtime's thread, or
    /// on any when that thread has ended.
    ~runtime();

    /// Runs `root` and everything it spawned to the end. Returns: the root's value; throws what it threw.
    /// Errors: operation_not_permitted: on another thread than before, inside a running runtime's own task, or in a child after fork;
    /// state_not_recoverable: the process was forked and this is the child, or the root was left unfinished.
    template <class T>
    result<T> run(task<T> root);
    /// Runs what was spawned before, to the end.
    result<void> run();

    /// Starts a task of its own; it runs when the loop comes to it. On the runtime's thread, or while it does not run.
    /// Throws: std::bad_alloc.
    template <class T>
    join_handle<T> spawn(task<T> what);
    /// The same from a callable that makes a task; the callable (and what it captures) is kept until the task has ended.
    template <class Function>
    requires detail::is_task<std::invoke_result_t<Function&>>
    auto spawn(Function make) {
        using T = typename std::invoke_result_t<Function&>::value_type;
        auto* state = new detail::join_state<T>;
        std::unique_ptr<detail::join_state<T>> guard(state);
        auto kept = std::make_unique<detail::kept_function<Function>>(std::move(make));
        task<T> made = kept->function();
        state->callable = std::move(kept);
        (void)guard.release();
        return start(std::move(made), state);
    }

    /// Any thread: see remote_runtime::post.
    template <std::invocable Function>
    bool post(Function function) {
        return detail::post_function(loop_->remote(), std::move(function));
    }
    /// Any thread, signal handlers too: every task sees a stop; run() returns when they have ended.
    void request_stop() noexcept { loop_->remote().request_stop(); }
    /// Asks every task to stop and runs the loop until they have ended or `limit` has passed. From then on every await of a
    /// library operation ends at once with operation_canceled. Not inside a task.
    shutdown_report shutdown(std::chrono::nanoseconds limit);

    /// Any thread, and beyond the runtime's life.
    [[nodiscard]] remote_runtime remote() const noexcept { return remote_runtime(loop_->remote()); }

    /// "uring" or "poll".
    [[nodiscard]] std::string_view driver() const noexcept;
    /// Why this driver: "preferred and available", "asked for by NOWAIT_DRIVER", "because io_uring_setup: EPERM", ... Both may
    /// change while the runtime runs: where the ring is refused in mid-life and was not asked for by name, epoll takes over.
    [[nodiscard]] const std::string& driver_reason() const noexcept;
    /// Any thread. A snapshot.
    [[nodiscard]] runtime_stats stats() const noexcept { return loop_->snapshot(); }
    /// Gives recycled frames back to the allocator.
    void trim() noexcept;

    /// For the library's own layers.
    [[nodiscard]] detail::loop& get_loop() const noexcept { return *loop_; }

private:
    explicit runtime(std::unique_ptr<detail::loop> made) noexcept;

    template <class T>
    join_handle<T> start(task<T>&& what, detail::join_state<T>* state);

    std::unique_ptr<detail::loop> loop_;
};

namespace detail {

NOWAIT_API void start_frame(loop& on, promise_base& frame, frame_owner& owner) noexcept;

template <class T>
join_handle<T> spawn_on(loop& on, task<T>&& what, join_state<T>* state) {
    auto frame = what.release();
    assert(frame && "a task can be started once");
    state->home = &on;
    frame.promise().result = &state->value;
    start_frame(on, frame.promise(), *state);
    return join_handle<T>(state);
}

} // namespace detail

template <class T>
join_handle<T> runtime::start(task<T>&& what, detail::join_state<T>* state) {
    return detail::spawn_on(*loop_, std::move(what), state);
}

template <class T>
join_handle<T> runtime::spawn(task<T> what) {
    return start(std::move(what), new detail::join_state<T>);
}

template <std::invocable Function>
bool remote_runtime::post(Function function) const {
    return detail::post_function(*box_, std::move(function));
}

template <class T>
result<T> runtime::run(task<T> root) {
    auto* state = new detail::join_state<T>;
    join_handle<T> joined = start(std::move(root), state);
    if (auto ran = run(); !ran)
        return fail(ran.error());
    if (!joined.done())
        return fail(std::errc::state_not_recoverable);
    if constexpr (std::is_void_v<T>) {
        state->value.take();
        return {};
    } else {
        return state->value.take();
    }
}

/// Makes a runtime and runs `root` on it. Returns and errors as runtime::create and runtime::run.
template <class T>
result<T> run(task<T> root, const runtime_options& options = {}) {
    auto made = runtime::create(options);
    if (!made)
        return fail(made.error());
    return made->run(std::move(root));
}

/// Starts a task beside the current one, from inside a task. See runtime::spawn.
/// Throws: std::bad_alloc. Precondition: called by code that a runtime runs.
template <class T>
join_handle<T> spawn(task<T> what) {
    detail::loop* here = detail::loop::current();
    assert(here != nullptr && "spawn() without a running runtime");
    return detail::spawn_on(*here, std::move(what), new detail::join_state<T>);
}

/// The runtime's counters, from inside a task: `nowait::current_stats()`.
[[nodiscard]] NOWAIT_API runtime_stats current_stats() noexcept;
/// A way back to the runtime that runs here, for other threads. Precondition: called by code that a runtime runs.
[[nodiscard]] NOWAIT_API remote_runtime current_remote() noexcept;

NOWAIT_END_NAMESPACE
