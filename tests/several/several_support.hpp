// What the tests of several runtimes share.
#pragma once

#include "catch.hpp"
#include "child_process.hpp"
#include "runs.hpp"
#include "sanitizers.hpp"

#include <nowait/channel.hpp>
#include <nowait/pipe.hpp>
#include <nowait/resume_on.hpp>
#include <nowait/runtime_pool.hpp>
#include <nowait/sleep.hpp>
#include <nowait/timeout.hpp>
#include <nowait/wait.hpp>
#include <nowait/when_all.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace several_test {

using nowait::remote_runtime;
using nowait::resume_on;
using nowait::runtime;
using nowait::runtime_pool;
using nowait::task;
using nowait_test::in_child;
using nowait_test::make_runtime;
using nowait_test::run_on_new;
using namespace std::chrono_literals;
using thread_id = std::thread::id;

// Out of line: in a coroutine the compiler may keep what it knows of the thread over a suspension.
[[nodiscard]] thread_id this_thread() noexcept;

[[nodiscard]] inline runtime_pool make_pool(unsigned count, nowait::runtime_options each = {}) {
    nowait::runtime_pool_options options;
    options.count = count;
    options.each = std::move(each);
    auto made = runtime_pool::create(options);
    if (!made)
        FAIL("no pool: " << made.error().message());
    return std::move(*made);
}

/// Which thread a runtime runs on.
inline task<thread_id> where_am_i() {
    co_return this_thread();
}
[[nodiscard]] inline thread_id thread_of(const remote_runtime& which) {
    auto handle = nowait::spawn_on(which, where_am_i());
    return nowait::wait(handle.join()).value();
}

} // namespace several_test
