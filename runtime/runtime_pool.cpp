#include "fork_watch.hpp"

#include <nowait/detail/driver.hpp>
#include <nowait/detail/sync.hpp>
#include <nowait/detail/system.hpp>
#include <nowait/runtime_pool.hpp>
#include <nowait/sleep.hpp>

#include <algorithm>
#include <cassert>
#include <deque>
#include <string>
#include <vector>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

namespace {

void adopt(posted_base& node) noexcept {
    const std::unique_ptr<spawn_parcel> parcel(static_cast<spawn_parcel*>(&node));
    start_frame(*loop::current(), *parcel->frame, *parcel->owner);
}

/// Keeps a runtime of a pool running until it is asked to stop.
task<> stay() {
    (void)co_await sleep_until(std::chrono::steady_clock::time_point::max());
}

} // namespace

void send_frame(mailbox& to, spawn_parcel& parcel) noexcept {
    parcel.run = &run_posted;
    parcel.invoke = &adopt;
    if (to.post(parcel))
        return;
    const std::unique_ptr<spawn_parcel> refused(&parcel);
    refused->frame->self().destroy();
    if (refused->owner->frame_abandoned != nullptr)
        refused->owner->frame_abandoned(*refused->owner);
}

} // namespace detail

struct runtime_pool::state {
    /// One runtime and its thread.
    struct member {
        member(runtime&& made, detail::system& with)
            : runs(std::make_unique<runtime>(std::move(made))), reach(runs->remote()), calls(with) {}

        std::unique_ptr<runtime> runs; // destroyed by its own thread, under the lock
        remote_runtime reach;
        detail::system& calls;
        std::uint64_t blocked_signals = 0;
        int cpu = -1; // to stay on; -1: anywhere
        std::size_t unfinished = 0;
        bool started = false;
        detail::thread_handle thread{};
        detail::real_sync::mutex lock; // `runs` is there, for whoever reads its counters

        static void body(void* context) {
            auto& self = *static_cast<member*>(context);
            self.calls.block_signals(self.blocked_signals);
            if (self.cpu >= 0)
                (void)self.calls.pin_to_cpu(static_cast<unsigned>(self.cpu));
            detail::loop& here = self.runs->get_loop();
            {
                auto stays = self.runs->spawn(detail::stay());
                (void)self.runs->run();
                self.unfinished = here.live - (stays.done() ? 0 : 1);
            }
            std::unique_ptr<runtime> last;
            {
                detail::lock_scope held(self.lock);
                last = std::move(self.runs);
            }
        }
    };

    std::deque<member> members; // in place: threads point to them
    detail::real_sync::atomic<std::size_t> turn{0};
    std::chrono::nanoseconds destructor_wait{};
    unsigned fork_stamp = detail::fork_generation();
    bool ended = false;

    /// The calling thread is one of ours.
    [[nodiscard]] bool inside() const noexcept {
        detail::loop* const here = detail::loop::current();
        return !ended && here != nullptr &&
               std::any_of(members.begin(), members.end(),
                           [here](const member& m) { return m.reach.get_mailbox().of() == here; });
    }

    std::size_t end_by(std::chrono::nanoseconds limit) {
        if (std::exchange(ended, true))
            return 0;
        if (fork_stamp != detail::fork_generation()) {
            // A child after fork: the threads are the parent's, and were in the middle of anything. Numbers are closed (where
            // the driver can), the rest is left alone.
            for (member& m : members) {
                if (m.runs != nullptr)
                    m.runs.release()->get_loop().waits().abandon();
            }
            return 0;
        }
        for (member& m : members)
            m.reach.request_stop();
        if (limit != std::chrono::nanoseconds::max()) {
            for (member& m : members) {
                const auto deadline = detail::deadline_after(m.calls.now(), limit);
                (void)m.reach.post([deadline] { detail::loop::current()->end_run_by(deadline); });
            }
        }
        std::size_t unfinished = 0;
        for (member& m : members) {
            if (std::exchange(m.started, false)) {
                (void)m.calls.join_thread(m.thread);
                unfinished += m.unfinished;
            }
        }
        return unfinished;
    }
};

runtime_pool::runtime_pool(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}
runtime_pool::runtime_pool(runtime_pool&&) noexcept = default;
runtime_pool& runtime_pool::operator=(runtime_pool&& other) noexcept {
    runtime_pool old(std::move(*this));
    state_ = std::move(other.state_);
    return *this;
}

runtime_pool::~runtime_pool() {
    if (state_ == nullptr)
        return;
    assert(!state_->inside() && "a pool is not destroyed by one of its own tasks");
    (void)state_->end_by(state_->destructor_wait);
}

result<runtime_pool> runtime_pool::create(const runtime_pool_options& options) {
    constexpr unsigned count_max = 4096;
    if (options.count > count_max)
        return fail(std::errc::invalid_argument);
    detail::system& calls = options.each.system != nullptr ? *options.each.system : detail::real_system();
    const unsigned cpus = calls.usable_cpus();
    const unsigned count = options.count != 0 ? options.count : std::min(cpus, count_max);

    auto made = std::make_unique<state>();
    made->destructor_wait = options.each.destructor_wait;
    for (unsigned i = 0; i < count; ++i) {
        auto one = runtime::create(options.each);
        if (!one)
            return fail(one.error());
        state::member& m = made->members.emplace_back(std::move(*one), calls);
        m.blocked_signals = calls.blocked_signals();
        if (options.pin)
            m.cpu = static_cast<int>(i % cpus);
    }
    runtime_pool pool(std::move(made)); // from here on its destructor ends the threads
    for (std::size_t i = 0; i < count; ++i) {
        state::member& m = pool.state_->members[i];
        const std::string name = options.name + "/" + std::to_string(i);
        if (const int error = calls.start_thread(name.c_str(), &state::member::body, &m, m.thread);
            error != 0)
            return fail_errno(-error);
        m.started = true;
    }
    return pool;
}

std::size_t runtime_pool::size() const noexcept {
    return state_->members.size();
}

const remote_runtime& runtime_pool::at(std::size_t index) const noexcept {
    return state_->members[index % state_->members.size()].reach;
}

const remote_runtime& runtime_pool::next() const noexcept {
    return at(state_->turn.fetch_add(1, std::memory_order_relaxed)); // a number, and nothing else
}

void runtime_pool::request_stop() noexcept {
    for (state::member& m : state_->members)
        m.reach.request_stop();
}

result<shutdown_report> runtime_pool::shutdown(std::chrono::nanoseconds limit) {
    if (state_->inside())
        return fail(std::errc::resource_deadlock_would_occur);
    return shutdown_report{state_->end_by(limit)};
}

result<runtime_stats> runtime_pool::stats(std::size_t index) const noexcept {
    if (index >= state_->members.size())
        return fail(std::errc::invalid_argument);
    state::member& m = state_->members[index];
    detail::lock_scope held(m.lock);
    if (m.runs == nullptr)
        return fail(std::errc::invalid_argument);
    return m.runs->stats();
}

NOWAIT_END_NAMESPACE
