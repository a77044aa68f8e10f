// The few statistics the tables need. A ratio is judged by the median of adjacent pairs, because the machine has
// slow phases: two slices that lie side by side share them, two averages taken a second apart do not.
#pragma once

#include <span>
#include <vector>

namespace bench {

struct summary {
    double average = 0;
    double deviation = 0; // of the sample, n - 1
    double smallest = 0;
    double largest = 0;
};

[[nodiscard]] summary summarise(std::span<const double> samples);

// The value below which `part` (0 to 1) of the samples lie, interpolated between neighbours.
[[nodiscard]] double quantile(std::span<const double> samples, double part);

struct comparison {
    double ours = 0;     // median
    double baseline = 0; // median
    double ratio = 0;    // median of ours[i] / baseline[i]
    double lower_quartile = 0;
    double upper_quartile = 0;
    double ratio_of_smallest = 0; // min(ours) / min(baseline)
    std::size_t pairs = 0;

    [[nodiscard]] double spread() const noexcept { return upper_quartile - lower_quartile; }
};

// Both spans have one entry per pair, in the order measured.
[[nodiscard]] comparison compare(std::span<const double> ours, std::span<const double> baseline);

} // namespace bench
