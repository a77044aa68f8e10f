#include "signals_dispositions.hpp"

#include <nowait/detail/sync.hpp>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include <pthread.h>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

namespace {

/// One signal: how many hold it, and what to give back when none does.
struct disposition {
    unsigned holders = 0;
    struct sigaction before{};
    void (*ours)(int) = nullptr;
};

constexpr int numbers_end = 65;

// Constant initialisation, all of it. The lock is held over a fork, so that the child finds nothing half done.
futex_lock table_lock;
std::array<disposition, numbers_end> table;
sigset_t mask_before_fork;

[[nodiscard]] bool stands(int number) noexcept {
    struct sigaction now{};
    const disposition& d = table[static_cast<std::size_t>(number)];
    return ::sigaction(number, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
           now.sa_handler == d.ours;
}

// From before the fork until the child has the process's own dispositions back, the signals that we hold wait: else one could
// find our handler in the child, where nobody awaits it, instead of the default action.
void before_fork() noexcept {
    table_lock.lock();
    sigset_t held;
    sigemptyset(&held);
    for (int number = 1; number < numbers_end; ++number) {
        if (table[static_cast<std::size_t>(number)].holders != 0)
            sigaddset(&held, number);
    }
    pthread_sigmask(SIG_BLOCK, &held, &mask_before_fork);
}

void after_fork_in_parent() noexcept {
    const sigset_t mask = mask_before_fork;
    table_lock.unlock();
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

void after_fork_in_child() noexcept {
    for (int number = 1; number < numbers_end; ++number) {
        disposition& d = table[static_cast<std::size_t>(number)];
        if (std::exchange(d.holders, 0u) != 0 && stands(number))
            ::sigaction(number, &d.before, nullptr);
    }
    const sigset_t mask = mask_before_fork;
    table_lock.unlock();
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

} // namespace

int catch_kernel_signal(int number, bool even_if_ignored, void (*handler)(int)) noexcept {
    if (number < 1 || number >= numbers_end)
        return -EINVAL;
    static const bool watching =
        ::pthread_atfork(&before_fork, &after_fork_in_parent, &after_fork_in_child) == 0;
    (void)watching;
    lock_scope held(table_lock);
    disposition& d = table[static_cast<std::size_t>(number)];
    struct sigaction now{};
    if (::sigaction(number, nullptr, &now) != 0)
        return -errno;
    const bool plain = (now.sa_flags & SA_SIGINFO) == 0;
    if (plain && now.sa_handler == handler) {
        if (d.holders++ ==
            0) { // somebody has put back what he found when it was ours: what was before that, nobody knows
            d.before = {};
            d.ours = handler;
        }
        return 0;
    }
    if (!plain || (now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN) || d.holders != 0)
        return -EBUSY;
    if (now.sa_handler == SIG_IGN && !even_if_ignored)
        return -EPERM;
    struct sigaction with{};
    with.sa_handler = handler;
    sigfillset(&with.sa_mask); // it is short; and nothing then runs on top of it
    // What blocks elsewhere in the program goes on waiting. Whether children leave zombies or report stops is not ours to say.
    with.sa_flags = SA_RESTART | SA_ONSTACK | (now.sa_flags & (SA_NOCLDSTOP | SA_NOCLDWAIT));
    if (now.sa_handler == SIG_IGN && number == SIGCHLD)
        with.sa_flags |= SA_NOCLDWAIT; // ignoring it means that nobody waits for them
    if (::sigaction(number, &with, nullptr) != 0)
        return -errno;
    d.before = now;
    d.ours = handler;
    d.holders = 1;
    return 0;
}

void release_kernel_signal(int number) noexcept {
    lock_scope held(table_lock);
    disposition& d = table[static_cast<std::size_t>(number)];
    if (d.holders == 0)
        return;
    if (--d.holders != 0)
        return;
    if (stands(number)) // else somebody has set his own since, and keeps it
        ::sigaction(number, &d.before, nullptr);
}

} // namespace detail
NOWAIT_END_NAMESPACE
