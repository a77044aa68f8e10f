// No SIGPIPE from a call that has no flag for it.
#pragma once

#include <nowait/config.hpp>

#include <cerrno>
#include <csignal>
#include <ctime>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// SIGPIPE kept away from this thread for the length of a call, for kernels and calls without a flag for it: blocked before,
/// and if the call raised it, taken off again; unless one was pending before, which is then not ours to take.
class sigpipe_guard {
public:
    sigpipe_guard() noexcept {
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        sigset_t pending;
        sigemptyset(&pending);
        sigpending(&pending);
        was_pending_ = sigismember(&pending, SIGPIPE) == 1;
        if (!was_pending_)
            pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    sigpipe_guard(const sigpipe_guard&) = delete;
    sigpipe_guard& operator=(const sigpipe_guard&) = delete;
    long finish(long outcome) noexcept {
        if (was_pending_)
            return outcome;
        if (outcome == -EPIPE) {
            const timespec at_once{0, 0};
            while (sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
            }
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        return outcome;
    }

private:
    sigset_t pipe_{};
    sigset_t before_{};
    bool was_pending_ = false;
};

} // namespace detail
NOWAIT_END_NAMESPACE
