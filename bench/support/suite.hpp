// One benchmark subject: its rows, the way they are measured, the tables and the JSON that come out.
//
// A row compares ours with one baseline in at least 31 adjacent pairs of slices, each at least 2 ms long, in
// alternating order. Its ratio is the median of the paired ratios. When the quartiles of these ratios lie further
// apart than the ratio lies from its bar, or other processes kept taking the CPU, the row is noisy: it is measured
// again, up to three times in all, and the calmest attempt is reported (never the most flattering one).
#pragma once

#include "contender.hpp"
#include "statistics.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

enum class scale {
    smoke, // seconds: does everything run?
    quick, // a minute
    full,
};

struct options {
    scale size = scale::full;
    std::string json;  // where the results go, empty for nowhere
    std::string only;  // measure this row alone
    std::string serve; // answer slices for another process, see process.hpp
};

// Prints what is wrong or the usage and leaves the process when the command line is not understood.
[[nodiscard]] options parse_options(int argc, char** argv, std::string_view subject);

struct row {
    std::string name;
    contender ours;
    contender baseline;
    std::optional<double> bar{};               // ours / baseline, at most; none: the row is reported
    std::optional<std::size_t> fixed_rounds{}; // per slice; otherwise found by the clock
    std::string unit = "ns/op";
    double per_unit = 1; // nanoseconds per operation are divided by this before they are shown
};

// A line of a table in the form the kernel's result was published in.
struct timed {
    contender who;
    std::optional<std::size_t> gain_against{}; // index of the line that is the "before" of this one
};

class suite {
public:
    suite(std::string subject, options chosen);

    [[nodiscard]] scale size() const noexcept { return options_.size; }
    [[nodiscard]] bool wants(std::string_view row_name) const noexcept;

    void section(std::string_view title) const;
    void compare(const row& what);

    // Average, deviation, smallest and largest of 10 runs of `rounds` rounds, after one that is discarded.
    void table(std::string_view title, const std::vector<timed>& lines, std::size_t rounds) const;

    // Writes the JSON and the verdict. Returns the exit code for main: failure only if something did not run; a missed
    // bar is a result, not an error.
    int finish();

private:
    struct outcome {
        row what;
        comparison result;
        bool noisy = false;
        int attempts = 1;
    };

    [[nodiscard]] outcome measure(const row& what) const;
    void write_json() const;

    std::string subject_;
    options options_;
    std::vector<outcome> outcomes_;
    int failures_ = 0;
};

} // namespace bench
