// What the harness measures: something that can be opened once and then run in slices.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace bench {

// What one slice did. A contender times itself, so that setting up (spawning tasks, filling pipes) stays outside.
struct measurement {
    std::uint64_t operations = 0;
    std::chrono::nanoseconds elapsed{};

    [[nodiscard]] double per_operation() const noexcept {
        return static_cast<double>(elapsed.count()) / static_cast<double>(operations);
    }
};

// Runs so many rounds; what a round is, the contender says.
using slice = std::function<measurement(std::size_t rounds)>;

// `open` builds the pipes, rings and loops; they live as long as the slice function it returns.
struct contender {
    std::string name;
    std::function<slice()> open;
};

class stopwatch {
public:
    void start() noexcept { begin_ = std::chrono::steady_clock::now(); }
    [[nodiscard]] std::chrono::nanoseconds elapsed() const noexcept {
        return std::chrono::steady_clock::now() - begin_;
    }

private:
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

} // namespace bench
