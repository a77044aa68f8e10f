#include "poll_driver.hpp"
#include "refusal.hpp"
#include "uring_driver.hpp"

#include <nowait/detail/driver.hpp>
#include <nowait/detail/worker_pool_use.hpp>
#include <nowait/runtime.hpp>
#include <nowait/worker_pool.hpp>

#include <cerrno>
#include <cstdlib>
#include <cstring>

NOWAIT_BEGIN_NAMESPACE

namespace detail {

bool join_state_base::publish_end(bool abandoned) noexcept {
    phase seen = word.load(std::memory_order_acquire);
    for (;;) {
        const phase then = seen == phase::waiting_remote ? phase::posting : phase::ended;
        // Release: whoever joins sees the value. Acquire: we see what the awaiter left.
        if (!word.compare_exchange_strong(seen, seen == phase::detached ? phase::detached : then,
                                          std::memory_order_acq_rel, std::memory_order_acquire))
            continue;
        switch (seen) {
        case phase::detached:
            return true;
        case phase::waiting:
            // This is the end of a node that the loop runs: whoever waits here goes on at once. (Abandoned, it is about to go too.)
            if (!abandoned)
                wake.run(wake);
            return false;
        case phase::waiting_remote: {
            mailbox* const to = box;
            (void)to->post(wake); // refused: the awaiter's runtime is gone, and its frames with it
            to->release();
            phase posting = phase::posting;
            return !word.compare_exchange_strong(posting, phase::ended, std::memory_order_acq_rel,
                                                 std::memory_order_acquire);
        }
        default:
            return false;
        }
    }
}

join_operation_base::~join_operation_base() {
    if (state_ != nullptr && state_->waiter == this)
        (void)leave();
}

bool join_operation_base::start() noexcept {
    operation_counters& counts = home().counters_of(operation_kind::join);
    if (state_ == nullptr || (state_->waiter != nullptr && state_->waiter != this)) {
        error_ = EINVAL;
        state_ = nullptr;
        return true;
    }
    if (state_->over()) {
        counts.inline_completions.add();
        return true;
    }
    if (stop_requested()) {
        error_ = ECANCELED;
        return true;
    }
    const bool remote = state_->home != &home();
    state_->waiter = this;
    state_->wake.of = state_;
    state_->wake.run = [](ready_node& node) noexcept {
        join_state_base* state = static_cast<join_state_base::wake_node&>(node).of;
        auto* self = static_cast<join_operation_base*>(state->waiter);
        state->waiter = nullptr;
        self->complete();
    };
    if (remote) {
        state_->box = &home().remote();
        state_->box->acquire();
    }
    using phase = join_state_base::phase;
    phase seen = phase::running;
    if (!state_->word.compare_exchange_strong(seen, remote ? phase::waiting_remote : phase::waiting,
                                              std::memory_order_acq_rel, std::memory_order_acquire)) {
        state_->waiter = nullptr; // it ended just now
        if (remote)
            state_->box->release();
        counts.inline_completions.add();
        return true;
    }
    counts.armed.add();
    listen_for_stop(
        [](stop_hook& hook) noexcept { static_cast<join_operation_base&>(from_hook(hook)).cancel(); });
    return false;
}

/// Takes the operation out of the word, if the ending task has not done so.
bool join_operation_base::leave() noexcept {
    using phase = join_state_base::phase;
    const bool remote = state_->home != &home();
    phase mine = remote ? phase::waiting_remote : phase::waiting;
    if (!state_->word.compare_exchange_strong(mine, phase::running, std::memory_order_acq_rel,
                                              std::memory_order_acquire))
        return false;
    state_->waiter = nullptr;
    if (remote)
        state_->box->release();
    return true;
}

void join_operation_base::cancel() noexcept {
    if (state_ == nullptr || state_->waiter != this || !leave())
        return;
    error_ = ECANCELED;
    complete_later();
}

void start_frame(loop& on, promise_base& frame, frame_owner& owner) noexcept {
    frame.start_detached(on, on.root_stop(), owner);
}

} // namespace detail

namespace {

/// Between enter() and leave(), also when a host throws.
struct leaving {
    detail::loop& from;
    ~leaving() { from.leave(); }
};

} // namespace

result<runtime> runtime::create(const runtime_options& options) {
    if (options.budget < 1 || options.ring_entries == 0 || options.ring_entries > 32768 ||
        options.completion_entries > 65536 || (options.make_driver && options.system == nullptr))
        return fail(std::errc::invalid_argument);
    detail::system& calls = options.system != nullptr ? *options.system : detail::real_system();

    std::string reason = "preferred and available";
    driver_choice choice = options.driver;
    if (choice != driver_choice::automatic) {
        reason = "asked for by the program";
    } else if (const char* asked = ::secure_getenv("NOWAIT_DRIVER"); asked != nullptr && *asked != '\0') {
        reason = "asked for by NOWAIT_DRIVER";
        if (std::strcmp(asked, "uring") == 0)
            choice = driver_choice::uring;
        else if (std::strcmp(asked, "poll") == 0)
            choice = driver_choice::poll;
        else
            return fail(std::errc::invalid_argument);
    }

    std::unique_ptr<detail::driver> waits;
    bool fell_back = false;
    if (options.make_driver) {
        waits = options.make_driver(calls);
        reason = "given by the program";
        if (waits == nullptr)
            return fail(std::errc::not_enough_memory);
    } else {
        const detail::uring_options ring{options.ring_entries, options.completion_entries};
        int error = 0;
        if (choice != driver_choice::poll) {
            error = detail::make_uring_driver(calls, ring, waits);
            if (error != 0 && choice == driver_choice::automatic && detail::means_refused(error)) {
                reason = detail::refusal("io_uring_setup", error);
                fell_back = true;
                choice = driver_choice::poll;
            }
        }
        if (choice == driver_choice::poll)
            error = detail::make_poll_driver(calls, waits);
        if (error != 0)
            return fail_errno(error);
    }
    auto made = std::make_unique<detail::loop>(calls, std::move(waits), options.budget);
    made->destructor_wait = options.destructor_wait;
    made->spin_patience = options.spin;
    made->unhandled = options.unhandled;
    made->reason = std::move(reason);
    if (fell_back)
        made->fallbacks.add();
    if (choice == driver_choice::automatic && !options.make_driver)
        made->substitute = &detail::make_poll_driver;
    if (options.pool != nullptr && options.pool->state() != nullptr) {
        made->pool = options.pool->state();
        detail::acquire_pool(*made->pool);
    }
    return runtime(std::move(made));
}

runtime::runtime(std::unique_ptr<detail::loop> made) noexcept : loop_(std::move(made)) {}

runtime::~runtime() = default;

result<void> runtime::run() {
    if (const int error = loop_->enter(); error != 0)
        return fail_errno(error);
    {
        const leaving at_the_end{*loop_};
        loop_->run_until_idle(detail::clock::time_point::max());
    }
    if (const int error = loop_->waits().failure(); error != 0 && loop_->live != 0)
        return fail_errno(error);
    if (loop_->forked())
        return fail(std::errc::state_not_recoverable);
    return {};
}

shutdown_report runtime::shutdown(std::chrono::nanoseconds limit) {
    if (loop_->enter() == 0) {
        const leaving at_the_end{*loop_};
        loop_->stop_now();
        loop_->run_until_idle(detail::deadline_after(loop_->calls().now(), limit));
    }
    return {loop_->live};
}

std::string_view runtime::driver() const noexcept {
    return loop_->waits().name();
}

const std::string& runtime::driver_reason() const noexcept {
    return loop_->reason;
}

void runtime::trim() noexcept {
    loop_->frames().trim();
}

runtime_stats current_stats() noexcept {
    detail::loop* here = detail::loop::current();
    return here != nullptr ? here->snapshot() : runtime_stats{};
}

remote_runtime current_remote() noexcept {
    detail::loop* here = detail::loop::current();
    assert(here != nullptr && "current_remote() without a running runtime");
    return remote_runtime(here->remote());
}

NOWAIT_END_NAMESPACE
