// A second runtime, for tests of what passes between two.
#pragma once

#include <nowait/runtime.hpp>
#include <nowait/sleep.hpp>

#include <chrono>
#include <exception>
#include <latch>
#include <optional>
#include <thread>

namespace nowait_test {

/// A runtime that runs on a thread of its own until it is asked to stop.
class running_runtime {
public:
    running_runtime() {
        std::latch begun(1);
        thread_ = std::thread([this, &begun] {
            auto made = nowait::runtime::create();
            if (!made)
                std::terminate();
            remote_.emplace(made->remote());
            auto idle = made->spawn(waits());
            begun.count_down();
            if (!made->run())
                std::terminate();
        });
        begun.wait();
    }
    ~running_runtime() {
        remote_->request_stop();
        thread_.join();
    }
    [[nodiscard]] const nowait::remote_runtime& remote() const noexcept { return *remote_; }

private:
    static nowait::task<> waits() {
        (void)co_await nowait::sleep_until(std::chrono::steady_clock::time_point::max());
    }
    std::optional<nowait::remote_runtime> remote_;
    std::thread thread_;
};

} // namespace nowait_test
