// From the signal handler to whoever awaits.
//
// Each `signals` object has a station. Stations stand in a list that only grows and are used again, never freed: so the
// handler, which may run on any thread in the middle of anything, can walk the list without a lock. Into a station it writes
// counts, and posts one node to the loop that the station is bound to.
//
// Two hand-shakes, both between the handler and a thread:
//  - binding: start() publishes the mailbox, then looks at the counts; the handler counts, then looks for the mailbox. Both in
//    one total order (seq_cst), so that one of them sees the other.
//  - release: `interest` and `box` are cleared first, then `users` must reach 0; the handler counts itself into `users` and
//    looks at `interest` once more. From then on no handler knows of the object.
// The node may still be in the loop's queue at that time: then the station is an orphan, and the node's run frees it.
#include "fork_watch.hpp"

#include <nowait/detail/loop.hpp>
#include <nowait/detail/sync.hpp>
#include <nowait/detail/system.hpp>
#include <nowait/signals.hpp>

#include <array>
#include <cassert>
#include <cerrno>
#include <csignal>
#include <new>
#include <thread>

#include <pthread.h>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

namespace {

constexpr std::size_t numbers_max = 64;

constexpr std::uint64_t bit_of(int number) noexcept {
    return std::uint64_t{1} << (number - 1);
}

futex_lock registry_lock; // constant initialisation; never taken by the handler
real_sync::atomic<signal_station*> first_station{nullptr};
std::uint64_t next_serial = 1; // under the lock

} // namespace

struct signal_station {
    struct wake_node : posted_base {
        signal_station* of = nullptr;
    };

    // Shared with the handler.
    real_sync::atomic<std::uint64_t> interest{0};
    real_sync::atomic<mailbox*> box{nullptr};
    real_sync::atomic<unsigned> users{0};
    real_sync::atomic<bool> posted{false};
    std::array<real_sync::atomic<std::uint32_t>, numbers_max> counts{};
    wake_node node;
    signal_station* following = nullptr; // written before the station is published

    // Under the lock. The serial is that of the object which has the station: 0 for nobody.
    real_sync::atomic<std::uint64_t> serial{0};
    bool in_use = false;
    bool orphan = false;

    // Of the object: `waiters` and `last` on the bound runtime's thread.
    system* calls = nullptr;
    unsigned fork_stamp = 0;
    list<signal_operation> waiters;
    std::size_t last = numbers_max - 1;

    signal_station() noexcept {
        node.of = this;
        node.run = &run_posted;
        node.invoke = [](posted_base& ran) noexcept { static_cast<wake_node&>(ran).of->arrived(); };
    }

    /// The handler's part. Async-signal-safe.
    void note(int number) noexcept {
        const std::uint64_t bit = bit_of(number);
        if ((interest.load() & bit) == 0)
            return;
        users.fetch_add(1);
        if ((interest.load() & bit) != 0) {
            counts[static_cast<std::size_t>(number - 1)].fetch_add(1);
            if (mailbox* const to = box.load(); to != nullptr && !posted.exchange(true)) {
                if (!to->post(node))
                    posted.store(false); // the loop is gone
            }
        }
        users.fetch_sub(1);
    }

    /// The next signal that has come, going round so that none waits for ever behind another.
    [[nodiscard]] bool take(received_signal& got) noexcept {
        for (std::size_t i = 1; i <= numbers_max; ++i) {
            const std::size_t at = (last + i) % numbers_max;
            if (counts[at].load() == 0)
                continue;
            got.times = counts[at].exchange(0);
            got.number = static_cast<int>(at) + 1;
            last = at;
            return true;
        }
        return false;
    }

    void arrived() noexcept {
        lock_scope held(registry_lock);
        posted.store(false); // before the counts are looked at: what comes later posts again
        if (orphan) {
            orphan = in_use = false;
            return;
        }
        received_signal got;
        while (!waiters.empty() && take(got))
            settle(waiters.pop_front(), got, 0);
    }

    static void settle(signal_operation& waiter, const received_signal& got, int error) noexcept {
        waiter.got_ = got;
        waiter.error_ = error;
        waiter.complete_later();
    }

    [[nodiscard]] int bind(loop& home) noexcept {
        mailbox* const mine = &home.remote();
        mailbox* const seen = box.load();
        if (seen == mine)
            return 0;
        if (seen != nullptr)
            return EPERM;
        mine->acquire();
        box.store(mine);
        return 0;
    }

    /// No handler knows of the object any more when this returns.
    void retire() noexcept {
        while (!waiters.empty())
            settle(waiters.pop_front(), {}, ECANCELED);
        const std::uint64_t held_signals = interest.exchange(0);
        for (int number = 1; number <= static_cast<int>(numbers_max); ++number) {
            if ((held_signals & bit_of(number)) != 0)
                calls->release_signal(number);
        }
        mailbox* const bound = box.exchange(nullptr);
        while (users.load() != 0)
            std::this_thread::yield(); // a handler on another thread, in the middle of note()
        for (auto& count : counts)
            count.store(0, std::memory_order_relaxed);
        {
            lock_scope held(registry_lock);
            serial.store(0);
            if (posted.load())
                orphan = true;
            else
                in_use = false;
        }
        if (bound != nullptr)
            bound->release();
    }
};

namespace {

/// The handler. Whatever it interrupts finds errno as it was.
void signal_arrived(int number) noexcept {
    const int saved = errno;
    // Acquire pairs with the release that published the station.
    for (signal_station* at = first_station.load(std::memory_order_acquire); at != nullptr;
         at = at->following)
        at->note(number);
    errno = saved;
}

/// In a child after fork the objects are the parent's: their signals are back already (the system sees to it), and their
/// stations stay theirs for good. What the child makes gets stations of its own.
void forget_stations() noexcept {
    for (signal_station* at = first_station.load(); at != nullptr; at = at->following) {
        at->interest.store(0);
        at->box.store(nullptr);
        at->users.store(0);
    }
    ::new (static_cast<void*>(&registry_lock)) futex_lock;
}

[[nodiscard]] bool may_be_awaited(int number) noexcept {
    if (number < 1 || number > static_cast<int>(numbers_max))
        return false;
    switch (number) {
    case SIGKILL:
    case SIGSTOP:
    case SIGSEGV: // for a fault that comes again as soon as the handler returns, there is nothing to await
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
        return false;
    default:
        return number < 32 || number >= SIGRTMIN; // between them are the C library's own
    }
}

[[nodiscard]] signal_station* take_station() noexcept {
    static const bool watching = [] {
        watch_forks();
        ::pthread_atfork(nullptr, nullptr, &forget_stations);
        return true;
    }();
    (void)watching;
    lock_scope held(registry_lock);
    signal_station* at = first_station.load();
    while (at != nullptr && at->in_use)
        at = at->following;
    if (at == nullptr) {
        at = new (std::nothrow) signal_station;
        if (at == nullptr)
            return nullptr;
        at->following = first_station.load();
        first_station.store(at, std::memory_order_release); // pairs with the handler's acquire
    }
    at->in_use = true;
    at->serial.store(next_serial++);
    at->fork_stamp = fork_generation();
    at->last = numbers_max - 1;
    return at;
}

} // namespace

bool signal_operation::start() noexcept {
    signal_station* const station = what_.station;
    operation_counters& counts = home().counters_of(operation_kind::other);
    if (station == nullptr || station->serial.load() != what_.serial) {
        error_ = EBADF;
        return true;
    }
    if (stop_requested())
        return true;
    error_ = station->fork_stamp != fork_generation() ? EPERM : station->bind(home());
    if (error_ != 0)
        return true;
    if (station->waiters.empty() && station->take(got_)) {
        if (home().budget > 0) {
            home().charge(0);
            counts.inline_completions.add();
            return true;
        }
        counts.budget_yields.add();
        complete_later();
        return false;
    }
    error_ = ECANCELED;
    station->waiters.push_back(*this);
    counts.armed.add();
    listen_for_stop(
        [](stop_hook& hook) noexcept { static_cast<signal_operation&>(from_hook(hook)).cancel(); });
    return false;
}

void signal_operation::cancel() noexcept {
    if (!list_node::linked())
        return; // a signal, or the end, is on its way to it
    list_node::unlink();
    complete_later();
}

} // namespace detail

result<signals> signals::create(std::span<const int> numbers, signal_options options) noexcept {
    if (numbers.empty())
        return fail(std::errc::invalid_argument);
    for (const int number : numbers) {
        if (!detail::may_be_awaited(number))
            return fail(std::errc::invalid_argument);
    }
    detail::signal_station* const station = detail::take_station();
    if (station == nullptr)
        return fail(std::errc::not_enough_memory);
    detail::loop* const here = detail::loop::current();
    station->calls = here != nullptr ? &here->calls() : &detail::real_system();
    signals made(station, station->serial.load());
    for (const int number : numbers) {
        if ((station->interest.load() & detail::bit_of(number)) != 0)
            continue; // named twice
        // Interest first: from the first delivery to our handler on, somebody is there to be told.
        station->interest.fetch_or(detail::bit_of(number));
        const int refused =
            station->calls->catch_signal(number, options.even_if_ignored, &detail::signal_arrived);
        if (refused != 0) {
            station->interest.fetch_and(~detail::bit_of(number));
            return fail_errno(-refused); // `made` gives the others back
        }
    }
    return made;
}

result<void> signals::close() noexcept {
    if (station_ == nullptr)
        return fail(std::errc::bad_file_descriptor);
    if (station_->fork_stamp == detail::fork_generation()) {
        const detail::mailbox* const bound = station_->box.load();
        const detail::loop* const here = detail::loop::current();
        if (bound != nullptr && (here == nullptr || &const_cast<detail::loop*>(here)->remote() != bound))
            return fail(std::errc::operation_not_permitted);
    }
    release();
    return {};
}

void signals::release() noexcept {
    detail::signal_station* const station = std::exchange(station_, nullptr);
    if (station == nullptr || station->fork_stamp != detail::fork_generation())
        return; // a copy of the parent's
    station->retire();
}

NOWAIT_END_NAMESPACE
