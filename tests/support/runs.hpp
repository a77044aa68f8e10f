// Short ways to a runtime, for tests.
#pragma once

#include "catch.hpp"

#include <nowait/runtime.hpp>

#include <utility>

namespace nowait_test {

[[nodiscard]] inline nowait::runtime make_runtime(nowait::runtime_options options = {}) {
    auto made = nowait::runtime::create(std::move(options));
    if (!made)
        FAIL("no runtime: " << made.error().message());
    return std::move(*made);
}

/// Runs `what` on a runtime of its own and gives its value.
template <class T>
T run_on_new(nowait::task<T> what, nowait::runtime_options options = {}) {
    nowait::runtime runs = make_runtime(std::move(options));
    auto ran = runs.run(std::move(what));
    if (!ran)
        FAIL("run: " << ran.error().message());
    if constexpr (!std::is_void_v<T>)
        return std::move(*ran);
}

} // namespace nowait_test
