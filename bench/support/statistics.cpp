#include "statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace bench {

summary summarise(std::span<const double> samples) {
    if (samples.empty()) {
        throw std::invalid_argument("no samples to summarise");
    }
    summary out;
    const auto count = static_cast<double>(samples.size());
    out.average = std::accumulate(samples.begin(), samples.end(), 0.0) / count;
    out.smallest = *std::min_element(samples.begin(), samples.end());
    out.largest = *std::max_element(samples.begin(), samples.end());
    if (samples.size() > 1) {
        double squares = 0;
        for (const double sample : samples) {
            squares += (sample - out.average) * (sample - out.average);
        }
        out.deviation = std::sqrt(squares / (count - 1));
    }
    return out;
}

double quantile(std::span<const double> samples, double part) {
    if (samples.empty()) {
        throw std::invalid_argument("no samples to order");
    }
    std::vector<double> sorted(samples.begin(), samples.end());
    std::sort(sorted.begin(), sorted.end());
    const double position = part * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<std::size_t>(std::floor(position));
    const auto above = std::min(below + 1, sorted.size() - 1);
    const double weight = position - static_cast<double>(below);
    return sorted[below] * (1 - weight) + sorted[above] * weight;
}

comparison compare(std::span<const double> ours, std::span<const double> baseline) {
    if (ours.size() != baseline.size() || ours.empty()) {
        throw std::invalid_argument("a comparison needs pairs");
    }
    std::vector<double> ratios(ours.size());
    std::transform(ours.begin(), ours.end(), baseline.begin(), ratios.begin(), std::divides<>());

    comparison out;
    out.ours = quantile(ours, 0.5);
    out.baseline = quantile(baseline, 0.5);
    out.ratio = quantile(ratios, 0.5);
    out.lower_quartile = quantile(ratios, 0.25);
    out.upper_quartile = quantile(ratios, 0.75);
    out.ratio_of_smallest = summarise(ours).smallest / summarise(baseline).smallest;
    out.pairs = ours.size();
    return out;
}

} // namespace bench
