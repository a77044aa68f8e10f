// How far the copy is, as a line of text.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace pump {

/// "1.25 GiB", "512 B".
[[nodiscard]] std::string human(double bytes);
/// "1:02:03"
[[nodiscard]] std::string human(std::chrono::nanoseconds span);

class meter {
public:
    using clock = std::chrono::steady_clock;

    meter(std::string name, std::optional<std::uint64_t> expected);

    /// `bytes` more have been written.
    void add(std::uint64_t bytes) noexcept { moved_ += bytes; }
    [[nodiscard]] std::uint64_t moved() const noexcept { return moved_; }

    /// One line, no longer than `columns`: bytes, time, rate since the last call, average rate, bar and time left if it
    /// is known how much there is.
    [[nodiscard]] std::string line(unsigned columns);
    /// The last word: the exact count, the time, the average rate.
    [[nodiscard]] std::string summary() const;

private:
    [[nodiscard]] double average(clock::time_point now) const noexcept;

    std::string name_;
    std::optional<std::uint64_t> expected_;
    clock::time_point begun_ = clock::now();
    std::uint64_t moved_ = 0;
    clock::time_point looked_ = begun_; // when line() was last called, and what had been moved then
    std::uint64_t seen_ = 0;
};

} // namespace pump
