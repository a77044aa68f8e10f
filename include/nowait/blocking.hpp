// Work that blocks, awaited: run by a worker pool while the loop goes on.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/exceptions.hpp>
#include <nowait/detail/loop.hpp>
#include <nowait/detail/operation.hpp>
#include <nowait/detail/promise.hpp>
#include <nowait/detail/timer.hpp>
#include <nowait/detail/worker_pool_use.hpp>
#include <nowait/result.hpp>
#include <nowait/worker_pool.hpp>

#include <concepts>
#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

NOWAIT_BEGIN_NAMESPACE

/// What an interruptible function may ask: whether it was asked to stop. Only while it runs.
class interruption {
public:
    explicit interruption(const detail::pool_job& job) noexcept : job_(&job) {}
    [[nodiscard]] bool requested() const noexcept {
        return job_->interrupted.load(
            std::memory_order_relaxed); // a hint; what it is about comes with the signal
    }

private:
    const detail::pool_job* job_;
};

/// `blocking(interruptible, f)`: see there.
struct interruptible_t {
    explicit interruptible_t() = default;
};
inline constexpr interruptible_t interruptible{};

namespace detail {

class blocking_operation_base;

/// How a piece of work is to be run.
struct blocking_traits {
    worker_pool_state* pool = nullptr; ///< null: the runtime's
    work_account account = work_account::bounded;
    bool keyed = false;
    bool parallel = false;
    bool interruptible = false;
    bool abandonable = false;
    bool rationed = false;
    std::uint64_t key = 0;
};

/// The function and its outcome, apart from the awaiting frame, because abandoned work outlives that. The operation frees it, or
/// the pool if it lets go of it later.
class NOWAIT_API blocking_job_base : public pool_job {
public:
    struct wake_node : ready_node {
        blocking_job_base* of = nullptr;
    } wake;
    mailbox* box = nullptr; ///< of the awaiting loop; only abandonable work needs a reference
    blocking_operation_base* operation = nullptr; ///< on its loop's thread only
    int error = 0;

    explicit blocking_job_base(const blocking_traits& how) noexcept;

    /// The operation's last touch.
    void leave() noexcept {
        // Acquire pairs with the pool's exchange: what it did before it let go is over.
        if (holders_.load(std::memory_order_acquire) == pool_has_left ||
            holders_.exchange(operation_has_left, std::memory_order_acq_rel) == pool_has_left)
            destroy_(*this);
    }
    /// For the operation's destructor. False: the pool has left.
    [[nodiscard]] bool await_pool() noexcept {
        std::uint32_t seen = both;
        return holders_.compare_exchange_strong(seen, operation_waits, std::memory_order_acq_rel,
                                                std::memory_order_acquire) ||
               seen == operation_waits;
    }
    /// The pool has given it back: it never ran.
    void taken_back() noexcept { holders_.store(pool_has_left, std::memory_order_relaxed); }

    static void* operator new(std::size_t size) { return frame_pool::allocate(size); }
    static void operator delete(void* memory) noexcept { frame_pool::deallocate(memory); }

protected:
    ~blocking_job_base() = default;
    /// On the worker, first: what tells the end needs the loop's mailbox, also when the loop ends right after.
    void keep_mailbox() const noexcept;

    static void tell_end(pool_job& raw, int code) noexcept;
    static bool let_go(pool_job& raw) noexcept;

    void (*destroy_)(blocking_job_base&) noexcept = nullptr;

private:
    static constexpr std::uint32_t both = 0, pool_has_left = 1, operation_has_left = 2, operation_waits = 3;
    real_sync::atomic<std::uint32_t> holders_{both};
};

/// What the function gives, without reference.
template <class F>
struct blocking_outcome {
    static constexpr bool asks = std::invocable<F&, interruption>;
    template <class G>
    static decltype(auto) call(G& function, const pool_job& job) {
        if constexpr (asks)
            return std::invoke(function, interruption(job));
        else
            return std::invoke(function);
    }
    using type = std::remove_cvref_t<decltype(call(std::declval<F&>(), std::declval<const pool_job&>()))>;
};

template <class F>
class blocking_job final : public blocking_job_base {
public:
    using value = typename blocking_outcome<F>::type;

    blocking_job(F&& what, const blocking_traits& how)
        : blocking_job_base(how), function_(std::in_place, std::move(what)) {
        static constexpr pool_job_functions mine{&perform, &tell_end, &let_go};
        functions = &mine;
        destroy_ = [](blocking_job_base& self) noexcept { delete static_cast<blocking_job*>(&self); };
    }

    outcome<value> given;

private:
    static void perform(pool_job& raw) noexcept {
        auto& self = static_cast<blocking_job&>(static_cast<blocking_job_base&>(raw));
        self.keep_mailbox();
        NOWAIT_TRY {
            if constexpr (std::is_void_v<value>) {
                blocking_outcome<F>::call(*self.function_, self);
                self.given.set_value();
            } else {
                self.given.set_value(blocking_outcome<F>::call(*self.function_, self));
            }
        }
        NOWAIT_CATCH_ALL {
            self.given.set_error(std::current_exception());
        }
        self.function_.reset(); // what it holds is let go of before its end is told
    }

    std::optional<F> function_;
};

class NOWAIT_API blocking_operation_base : public operation_base {
public:
    void cancel() noexcept;

protected:
    explicit blocking_operation_base(const blocking_traits& how) noexcept : how_(how) {
        if (how_.pool != nullptr)
            acquire_pool(*how_.pool);
        timer_.of = this;
        place_.of = this;
    }
    ~blocking_operation_base();

    /// False if the operation has ended already, with `error_`.
    [[nodiscard]] bool may_start() noexcept;
    /// Hands the job over. True: ended inline, with `error_`.
    [[nodiscard]] bool submit(blocking_job_base* job) noexcept;
    /// The job was asked to end early, and says that it was.
    [[nodiscard]] bool was_interrupted() const noexcept {
        return job_->interrupted.load(
            std::memory_order_relaxed); // written by this thread, or before the end was told
    }

    blocking_traits how_;
    blocking_job_base* job_ = nullptr;
    int error_ = 0;

private:
    struct embedded_timer : timer_node {
        blocking_operation_base* of = nullptr;
    } timer_; // until the signal is sent again
    struct embedded_place : work_in_pool {
        blocking_operation_base* of = nullptr;
    } place_; // in the loop's list, while it waits

    void told() noexcept;
    void interrupt_again() noexcept;
    void stop_interrupting() noexcept;
    [[nodiscard]] bool take_back() noexcept;
    [[nodiscard]] bool outwait(clock::time_point deadline) noexcept;

    worker_pool_state* pool_ = nullptr;
    interrupt_backoff backoff_;
    bool waiting_ = false;
    bool interrupting_ = false;
};

template <class F>
class blocking_description;

template <class V>
struct blocking_result {
    using type = result<V>;
};
template <class U>
struct blocking_result<tl::expected<U, std::error_code>> {
    using type = result<U>;
};

template <class F>
class blocking_operation final : public blocking_operation_base {
public:
    using value = typename blocking_outcome<F>::type;
    using value_type = typename blocking_result<value>::type;

    explicit blocking_operation(blocking_description<F>&& what)
        : blocking_operation_base(what.how_), function_(std::move(what.function_)) {}

    [[nodiscard]] bool start() noexcept {
        if (!may_start())
            return true;
        blocking_job<F>* job = nullptr;
        NOWAIT_TRY {
            job = new blocking_job<F>(std::move(function_), how_);
        }
        NOWAIT_CATCH_ALL { // no memory, or the function could not be moved
            job = nullptr;
        }
        return submit(job);
    }

    value_type take_result() {
        if (error_ != 0)
            return fail_errno(error_);
        auto& given = static_cast<blocking_job<F>*>(job_)->given;
        if constexpr (std::is_void_v<value>) {
            given.take();
            return {};
        } else if constexpr (std::is_same_v<value, value_type>) {
            value_type got = given.take();
            if (!got && got.error() == std::errc::interrupted && was_interrupted())
                return fail(std::errc::operation_canceled);
            return got;
        } else {
            return given.take();
        }
    }

private:
    F function_;
};

/// See blocking().
template <class F>
class [[nodiscard]] blocking_description {
public:
    using operation = blocking_operation<F>;
    using value_type = typename blocking_result<typename blocking_outcome<F>::type>::type;

    blocking_description(F&& function, const blocking_traits& how)
        : function_(std::move(function)), how_(how) {}
    blocking_description(const F& function, const blocking_traits& how) : function_(function), how_(how) {}

    /// Work of one account with the same key runs one at a time, in the order in which it was submitted.
    [[nodiscard]] blocking_description key(std::uint64_t value) && {
        how_.keyed = true;
        how_.rationed = false;
        how_.key = value;
        return std::move(*this);
    }
    /// The account whose workers run it.
    [[nodiscard]] blocking_description account(work_account which) && {
        how_.account = which;
        return std::move(*this);
    }
    [[nodiscard]] blocking_description bounded() && {
        return std::move(*this).account(work_account::bounded);
    }
    [[nodiscard]] blocking_description unbounded() && {
        return std::move(*this).account(work_account::unbounded);
    }
    /// Wakes or makes a worker for itself at once, instead of waiting until the last one that was woken has looked.
    [[nodiscard]] blocking_description parallel() && {
        how_.parallel = true;
        return std::move(*this);
    }
    /// Half of the account's workers at most run such work, so that much of it leaves room for others: for what waits until somebody
    /// comes, a hundred at a time perhaps. Instead of a key.
    [[nodiscard]] blocking_description rationed() && {
        how_.rationed = true;
        how_.keyed = false;
        return std::move(*this);
    }
    /// A stop ends the await although the function runs on. Its result is lost, an exception too; what it captures by reference
    /// must live until it returns. It is listed when the pool is shut down.
    [[nodiscard]] blocking_description abandonable() && {
        how_.abandonable = true;
        return std::move(*this);
    }
    /// Another pool than the runtime's. Borrows: the pool, until it is awaited; one that was shut down refuses.
    [[nodiscard]] blocking_description on(const worker_pool& pool) && {
        how_.pool = pool.state();
        return std::move(*this);
    }

private:
    friend class blocking_operation<F>;
    F function_;
    blocking_traits how_;
};

} // namespace detail

/// Runs `function()` on a worker of the runtime's pool. `blocking(f).key(7)`, `.unbounded()`, `.parallel()`, `.rationed()`,
/// `.abandonable()`, `.on(pool)` say more about it.
///
/// It is never interrupted: a stop before it has begun takes it back, a stop while it runs waits for it. So work that may not
/// end must be interruptible or abandonable, or it holds up whoever awaits it, and the runtime's destructor for destructor_wait: then
/// the frames are left in memory, because the work may refer to them.
/// Returns: what the function gives; a result<T> stays one, another T becomes a result<T>. Throws what it throws.
/// Errors, the function not having run: operation_canceled: stopped, or the pool is shut down;
/// resource_unavailable_try_again: no thread to be had, and no worker there; resource_deadlock_would_occur: called by work
/// of the same account, whose workers would all wait for each other, or of the same key; operation_not_permitted: a pool from
/// before a fork; not_enough_memory, also if moving the function throws. Of abandonable work: operation_canceled, while it runs.
/// Borrows: what the function refers to, until the await has ended. Resumes: on the awaiter's runtime.
/// In one expression with co_await, give it a function that has a name: GCC 12 destroys temporary closures twice.
template <class F>
requires std::invocable<std::decay_t<F>&>
[[nodiscard]] auto blocking(F&& function) {
    return detail::blocking_description<std::decay_t<F>>(std::forward<F>(function), {});
}

/// The same for work that waits for the outside, and by default on the unbounded account: a stop while it runs sends its thread a
/// signal, again and again until it returns, so that the system call in which it waits fails with EINTR. The function then
/// returns; if it is one that calls again after EINTR, it may take an `interruption` and ask that first.
/// Returns and errors as above, and device_or_resource_busy: the pool's signal is used by somebody else. A result<T> whose error is
/// `interrupted` (EINTR) after a stop is reported as operation_canceled.
template <class F>
requires std::invocable<std::decay_t<F>&> || std::invocable<std::decay_t<F>&, interruption>
[[nodiscard]] auto blocking(interruptible_t, F&& function) {
    detail::blocking_traits how;
    how.account = work_account::unbounded;
    how.interruptible = true;
    return detail::blocking_description<std::decay_t<F>>(std::forward<F>(function), how);
}

NOWAIT_END_NAMESPACE
