// What the tests of signals share. They stay away from SIGINT and SIGTERM in this process: Catch handles those.
#pragma once

#include "catch.hpp"
#include "child_process.hpp"
#include "runs.hpp"
#include "sanitizers.hpp"

#include <nowait/signals.hpp>
#include <nowait/sleep.hpp>
#include <nowait/timeout.hpp>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <system_error>
#include <utility>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

namespace signals_test {

using nowait::received_signal;
using nowait::result;
using nowait::runtime;
using nowait::signals;
using nowait::task;
using nowait_test::in_child;
using nowait_test::make_runtime;
using nowait_test::run_on_new;
using namespace std::chrono_literals;

[[nodiscard]] inline signals take(std::initializer_list<int> numbers, nowait::signal_options options = {}) {
    auto made = signals::create(numbers, options);
    if (!made)
        FAIL("signals: " << made.error().message());
    return std::move(*made);
}

[[nodiscard]] inline struct sigaction disposition_of(int number) {
    struct sigaction now{};
    ::sigaction(number, nullptr, &now);
    return now;
}
[[nodiscard]] inline bool is_default(int number) {
    return disposition_of(number).sa_handler == SIG_DFL;
}

inline int wait_for(pid_t child) {
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

/// Receives one signal.
inline task<result<received_signal>> receive(signals& from) {
    co_return co_await from.next();
}

/// Sets a disposition for a scope.
class disposition_scope {
public:
    disposition_scope(int number, void (*handler)(int), int flags = 0) : number_(number) {
        struct sigaction with{};
        with.sa_handler = handler;
        with.sa_flags = flags;
        ::sigaction(number, &with, &before_);
    }
    ~disposition_scope() { ::sigaction(number_, &before_, nullptr); }
    disposition_scope(const disposition_scope&) = delete;
    disposition_scope& operator=(const disposition_scope&) = delete;

private:
    int number_;
    struct sigaction before_{};
};

} // namespace signals_test
