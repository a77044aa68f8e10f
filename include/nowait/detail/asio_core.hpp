// Our loop inside an io_context: who runs whom, who waits where, and what counts as work.
//
// One thread waits, in one place: the io_context's own wait, which watches our driver's descriptor beside its own. Our loop
// runs from handlers of the io_context, a pass at a time:
//
//      queued ---> pass ---> more is ready: queued again, behind what the io_context has (so both get their turns)
//         ^          |
//         |          +-----> nothing is ready: at rest. Watched: the driver's descriptor, and a timer for our next deadline
//         +------------------ the descriptor is readable, the deadline has come, or something stirs on this thread
//
// Work. io_context::run() returns when its count of outstanding work is zero. While our side has work (frames that have not
// ended, operations that wait, closes under way) the core holds one count. A queued pass is a handler, and counts by itself.
// The watch and the timer must not count (an idle loop would keep run() from ever returning), and yet stay armed (another
// thread may post at any time): each takes its count back when it has been armed, and returns it when it fires.
#pragma once

#include <nowait/detail/asio_config.hpp>
#include <nowait/detail/driver.hpp>
#include <nowait/detail/loop.hpp>
#include <nowait/detail/sync.hpp>
#include <nowait/runtime.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include <pthread.h>

NOWAIT_BEGIN_ASIO_NAMESPACE
namespace asio_detail {

/// The memory of one handler that is never queued twice.
class handler_slot {
public:
    void* take(std::size_t size) {
        if (size > sizeof(bytes_) || taken_)
            return ::operator new(size);
        taken_ = true;
        return bytes_;
    }
    void give_back(void* memory) noexcept {
        if (memory == bytes_)
            taken_ = false;
        else
            ::operator delete(memory);
    }

private:
    alignas(std::max_align_t) std::byte bytes_[256];
    bool taken_ = false;
};

template <class T>
struct slot_allocator {
    using value_type = T;
    explicit slot_allocator(handler_slot& from) noexcept : slot(&from) {}
    template <class U>
    slot_allocator(const slot_allocator<U>& other) noexcept : slot(other.slot) {}
    T* allocate(std::size_t n) { return static_cast<T*>(slot->take(n * sizeof(T))); }
    void deallocate(T* memory, std::size_t) noexcept { slot->give_back(memory); }
    friend bool operator==(const slot_allocator& a, const slot_allocator& b) noexcept {
        return a.slot == b.slot;
    }
    handler_slot* slot;
};

/// Blocks of one size, last in, first out: the allocator would be half of the price of a post. Used on the loop's thread.
template <std::size_t Size>
class block_cache {
public:
    static constexpr std::size_t block_size = Size;

    block_cache() = default;
    block_cache(const block_cache&) = delete;
    block_cache& operator=(const block_cache&) = delete;
    ~block_cache() {
        while (free_ != nullptr)
            ::operator delete(std::exchange(free_, free_->next));
    }
    [[nodiscard]] void* take() {
        if (free_ == nullptr) [[unlikely]]
            return ::operator new(block_size);
        --cached_;
        return std::exchange(free_, free_->next);
    }
    void give_back(void* memory) noexcept {
        if (cached_ == cached_max) [[unlikely]] {
            ::operator delete(memory);
            return;
        }
        ++cached_;
        free_ = ::new (memory) link{free_};
    }

private:
    static constexpr unsigned cached_max = 1024;
    struct link {
        link* next;
    };
    link* free_ = nullptr;
    unsigned cached_ = 0;
};

/// Tells threads from each other, in one instruction where the compiler offers it.
[[nodiscard]] inline unsigned long this_thread() noexcept {
#if (defined(__x86_64__) || defined(__aarch64__)) && __has_builtin(__builtin_thread_pointer)
    return reinterpret_cast<unsigned long>(__builtin_thread_pointer());
#else
    return static_cast<unsigned long>(::pthread_self());
#endif
}

/// What objects, operations and executors know of the runtime behind them. It outlives the io_context and the runtime for as
/// long as an object refers to it, and then refuses.
class NOWAIT_API asio_core final : public detail::loop_host {
public:
    asio_core(net::io_context& context, runtime&& guest)
        : context_(&context), executor_(context.get_executor()), runtime_(std::move(guest)),
          loop_(&runtime_->get_loop()), box_(&loop_->remote()) {
        box_->acquire();
    }
    asio_core(const asio_core&) = delete;
    asio_core& operator=(const asio_core&) = delete;

    /// Throws if the runtime's driver cannot be watched.
    void begin() {
        if (const int error = loop_->be_hosted(this); error != 0)
            throw std::system_error(error, std::generic_category(), "nowait: this driver cannot be hosted");
        schedule();
    }

    /// The runtime ends, and with it everything that waits in it: handlers are destroyed, not called.
    void end() noexcept {
        if (loop_ == nullptr)
            return;
        timer_.reset();
        if (watch_)
            (void)watch_->release(); // the number is the driver's
        watch_.reset();
        over_.store(true, std::memory_order_relaxed);
        thread_.store(
            0, std::memory_order_relaxed); // what is sent from here on goes to the inbox, which will refuse
        runtime_.reset();
        loop_ = nullptr;
        if (std::exchange(counted_, false))
            executor_.on_work_finished();
    }
    /// The same, and the io_context goes too.
    void end_with_context() noexcept {
        end();
        // Relaxed: nobody uses the executors of a context while it is destroyed, except what is destroyed with it.
        context_gone_.store(true, std::memory_order_relaxed);
    }

    // --- any thread -------------------------------------------------------------------------------------------------------

    /// True on the thread of a living runtime.
    [[nodiscard]] bool here() const noexcept {
        // Relaxed: a thread looks for its own number only.
        return thread_.load(std::memory_order_relaxed) == this_thread();
    }
    /// To the ready queue, from any thread. Away from the loop's thread it is work of the io_context until arrived(). False:
    /// the runtime is over, and the node still the caller's.
    [[nodiscard]] bool send(detail::posted_base& node) noexcept {
        if (here()) {
            post_here(node);
            return true;
        }
        node.run = &detail::run_posted;
        return box_->post(node);
    }
    /// The same on the loop's thread.
    void post_here(detail::posted_base& node) noexcept {
        node.run = &detail::run_posted;
        loop_->post(node);
    }
    void work_started() const noexcept {
        if (!context_gone_.load(std::memory_order_relaxed))
            executor_.on_work_started();
    }
    void work_finished() const noexcept {
        if (!context_gone_.load(std::memory_order_relaxed))
            executor_.on_work_finished();
    }
    [[nodiscard]] net::io_context& context() const noexcept { return *context_; }
    void acquire() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept {
        // acq_rel: the last one sees everything that the others did before it deletes.
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            delete this;
    }

    // --- the loop's thread ---------------------------------------------------------------------------------------------------

    /// The runtime is over, or on its way there: nothing is started or called any more.
    [[nodiscard]] bool over() const noexcept { return over_.load(std::memory_order_relaxed); }
    [[nodiscard]] detail::loop& get_loop() const noexcept { return *loop_; }
    [[nodiscard]] runtime& get_runtime() noexcept { return *runtime_; }
    /// A handler may be called in place: this is the inside of run().
    [[nodiscard]] bool running() const noexcept { return loop_->running(); }

    /// Operations that wait.
    std::size_t waiting = 0;
    /// For functions that are sent on this thread, and for operations that are made here.
    using small_blocks = block_cache<192>;
    using large_blocks = block_cache<448>;
    small_blocks small;
    large_blocks large;

    /// A handler has thrown, in a node of the loop: the exception leaves through run(), as Asio has it.
    void caught(std::exception_ptr error) noexcept {
        thrown_ = std::move(error);
        loop_->break_pass();
    }
    void stir() noexcept {
        if (loop_->outside())
            schedule();
    }
    void loop_stirs() noexcept override { schedule(); }
    void run_hosted(detail::clock::time_point deadline) override {
        if (context_->stopped())
            context_->restart();
        if (deadline == detail::clock::time_point::max())
            context_->run();
        else
            context_->run_until(deadline);
    }

private:
    ~asio_core() { box_->release(); }

    void schedule() noexcept {
        if (std::exchange(scheduled_, true))
            return;
        auto never_blocks = net::require(executor_, net::execution::blocking.never);
        auto with_memory =
            net::prefer(never_blocks, net::execution::allocator(slot_allocator<void>(pass_memory_)));
        execute_on(with_memory, [this] {
            scheduled_ = false;
            run_pass();
        });
    }

    void run_pass() {
        if (loop_ == nullptr || passing_)
            return;
        const bool entering = !loop_->running();
        if (entering) {
            if (const int error = loop_->enter(); error != 0) {
                schedule();
                throw std::system_error(
                    error, std::generic_category(),
                    "nowait: one thread runs an io_context that hosts a runtime, always the same");
            }
        }
        thread_.store(this_thread(), std::memory_order_relaxed);
        passing_ = true;
        bool at_rest = false;
        auto until = detail::clock::time_point::max();
        const auto latest = loop_->now() + patience_of_others;
        for (int i = 0; i < passes_in_a_row && !at_rest && !thrown_; ++i) {
            const bool more = loop_->pass();
            if (thrown_ || (more && loop_->now() > latest))
                break;
            at_rest = !more && loop_->rest(until);
        }
        passing_ = false;
        const int broken = loop_->waits().failure();
        if (entering)
            loop_->leave();
        count_work();
        if (at_rest)
            arm(until);
        else
            schedule();
        if (thrown_)
            std::rethrow_exception(std::exchange(thrown_, nullptr));
        if (broken != 0)
            throw std::system_error(broken, std::generic_category(), "nowait: the driver cannot wait");
    }

    /// The driver's descriptor: known when the loop is bound to its thread, and another one if the driver has been replaced.
    void watch_driver() {
        const int wanted = loop_->waits().watchable();
        if (watch_ && watch_->native_handle() == wanted)
            return;
        if (watch_)
            (void)watch_->release();
        watch_.emplace(executor_, wanted);
        watching_ = false;
        if (!timer_)
            timer_.emplace(executor_);
    }

    void count_work() noexcept {
        const bool busy = waiting != 0 || loop_->live != 0 || loop_->closing != 0;
        if (busy == counted_)
            return;
        counted_ = busy;
        if (busy)
            executor_.on_work_started();
        else
            executor_.on_work_finished();
    }

    struct watch_handler {
        using allocator_type = slot_allocator<void>;
        asio_core* self;
        [[nodiscard]] allocator_type get_allocator() const noexcept {
            return slot_allocator<void>(self->watch_memory_);
        }
        void operator()(error_code error) const {
            self->executor_.on_work_started(); // what arm() has taken back
            if (error)
                return; // the runtime is over, or has another driver now
            self->watching_ = false;
            if (!self->scheduled_)
                self->run_pass();
        }
    };
    struct timer_handler {
        using allocator_type = slot_allocator<void>;
        asio_core* self;
        unsigned setting;
        [[nodiscard]] allocator_type get_allocator() const noexcept {
            return slot_allocator<void>(self->timer_memory_[setting % 2]);
        }
        void operator()(error_code) const {
            self->executor_.on_work_started();
            if (setting != self->timer_setting_)
                return; // set anew since
            self->timer_at_ = detail::clock::time_point::max();
            if (!self->scheduled_)
                self->run_pass();
        }
    };

    void arm(detail::clock::time_point until) {
        watch_driver();
        if (!watching_) {
            watching_ = true;
            watch_->async_wait(net::posix::descriptor_base::wait_read, watch_handler{this});
            executor_.on_work_finished(); // not the last count: this is inside a handler
        }
        // A timer that is set for an earlier time is left: one pass too many costs less than setting it anew.
        if (until < timer_at_) {
            timer_at_ = until;
            timer_->expires_at(until);
            timer_->async_wait(timer_handler{this, ++timer_setting_});
            executor_.on_work_finished();
        }
    }

    // What the io_context has waits for so many resumptions of ours (64 a pass), or so long.
    static constexpr int passes_in_a_row = 4;
    static constexpr auto patience_of_others = std::chrono::microseconds(100);

    net::io_context* context_;
    net::io_context::executor_type executor_;
    std::optional<runtime> runtime_;
    detail::loop* loop_;
    detail::mailbox* box_;
    std::optional<net::posix::basic_stream_descriptor<net::io_context::executor_type>> watch_;
    std::optional<net::basic_waitable_timer<detail::clock, net::wait_traits<detail::clock>,
                                            net::io_context::executor_type>>
        timer_;
    detail::clock::time_point timer_at_ = detail::clock::time_point::max(); // for which it is set
    unsigned timer_setting_ = 0;
    bool scheduled_ = false; // a pass is queued in the io_context
    bool passing_ = false;   // a handler may run the io_context inside itself: passes do not nest
    bool watching_ = false;
    bool counted_ = false; // our one count of work
    std::exception_ptr thrown_;
    detail::real_sync::atomic<bool> over_{false}; // relaxed: others are told by a refused post
    detail::real_sync::atomic<bool> context_gone_{false};
    detail::real_sync::atomic<unsigned long> thread_{0};
    detail::real_sync::atomic<unsigned> references_{1};
    handler_slot pass_memory_, watch_memory_, timer_memory_[2];
};

/// The core's place in its io_context: objects find it by their executor, and it hears when the context is destroyed.
class NOWAIT_API asio_service final : public net::execution_context::service {
public:
    static inline net::execution_context::id id;

    explicit asio_service(net::execution_context& context) : service(context) {}
    ~asio_service() { drop(); }
    asio_service(const asio_service&) = delete;
    asio_service& operator=(const asio_service&) = delete;

    [[nodiscard]] asio_core* core() const noexcept { return core_; }
    void set(asio_core* core) noexcept {
        drop();
        core_ = core;
        if (core != nullptr)
            core->acquire();
    }

private:
    void shutdown() noexcept override {
        if (core_ != nullptr)
            core_->end_with_context();
    }
    void drop() noexcept {
        if (core_ != nullptr)
            std::exchange(core_, nullptr)->release();
    }

    asio_core* core_ = nullptr;
};

/// The core behind an executor or a context. Throws std::system_error, invalid_argument, if there is none: no asio_guest has
/// been made for this io_context, or it is no io_context.
inline asio_core& core_of(net::execution_context& context) {
    asio_core* found = nullptr;
    if (net::has_service<asio_service>(context))
        found = net::use_service<asio_service>(context).core();
    if (found == nullptr || found->over())
        throw std::system_error(std::make_error_code(std::errc::invalid_argument),
                                "nowait: no asio_runtime or asio_guest behind this executor");
    return *found;
}

} // namespace asio_detail
NOWAIT_END_ASIO_NAMESPACE
