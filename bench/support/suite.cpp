#include "suite.hpp"

#include "process.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <utility>

namespace bench {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr std::size_t table_runs = 10;
constexpr int most_attempts = 3;
constexpr int most_repeats = 30; // of disturbed slices, for each side of a row

struct effort {
    std::size_t pairs;
    nanoseconds slice_target;
    nanoseconds slice_at_least;
};

effort effort_of(scale size) {
    switch (size) {
    case scale::smoke:
        return {3, microseconds(200), nanoseconds(0)};
    case scale::quick:
        return {31, milliseconds(4), milliseconds(2)};
    case scale::full:
        break;
    }
    return {61, milliseconds(20), milliseconds(2)};
}

// Doubles the rounds until a slice is long enough to be timed, then scales to the target.
std::size_t calibrate(const slice& run, nanoseconds target) {
    for (std::size_t rounds = 1;; rounds *= 2) {
        const nanoseconds took = run(rounds).elapsed;
        if (took * 4 >= target) {
            const double scale = static_cast<double>(target.count()) / static_cast<double>(took.count());
            return std::max<std::size_t>(
                1, static_cast<std::size_t>(std::ceil(static_cast<double>(rounds) * scale)));
        }
    }
}

// One side of a row, as it is being measured.
class side {
public:
    side(const contender& who, const row& what, const effort& how)
        : run_(who.open()), unit_(what.per_unit), fixed_(what.fixed_rounds.has_value()),
          at_least_(how.slice_at_least),
          rounds_(fixed_ ? *what.fixed_rounds : calibrate(run_, how.slice_target)) {}

    // A slice that was too short to count is run again, longer; the longer length then stays. A slice during which another
    // process took the CPU is run again as well, as long as patience lasts.
    void measure() {
        for (;;) {
            const long switches_before = involuntary_switches();
            const measurement result = run_(rounds_);
            if (result.operations == 0) {
                throw std::runtime_error("a slice did no operations");
            }
            if (!fixed_ && result.elapsed < at_least_) {
                rounds_ *= 2;
                continue;
            }
            const bool disturbed = !fixed_ && involuntary_switches() != switches_before;
            if (disturbed && patience_ > 0) {
                --patience_;
                continue;
            }
            disturbed_ += disturbed ? 1 : 0;
            times_.push_back(result.per_operation() / unit_);
            return;
        }
    }

    void forget() {
        times_.clear();
        disturbed_ = 0;
        patience_ = most_repeats;
    }

    [[nodiscard]] const std::vector<double>& times() const noexcept { return times_; }
    [[nodiscard]] std::size_t disturbed() const noexcept { return disturbed_; }

private:
    slice run_;
    double unit_;
    bool fixed_;
    nanoseconds at_least_;
    std::size_t rounds_;
    std::vector<double> times_;
    std::size_t disturbed_ = 0;
    int patience_ = most_repeats;
};

std::string_view verdict(const std::optional<double>& bar, double ratio, bool noisy) {
    if (!bar) {
        return "reported";
    }
    if (noisy) {
        return ratio <= *bar ? "met, noisy" : "MISSED, noisy";
    }
    return ratio <= *bar ? "met" : "MISSED";
}

std::string quoted(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            out += '\\';
        }
        out += c;
    }
    return out + '"';
}

[[noreturn]] void usage(std::string_view program, std::string_view subject, int code) {
    std::FILE* const out = code == EXIT_SUCCESS ? stdout : stderr;
    std::fprintf(out,
                 "usage: %.*s [--quick | --smoke] [--json FILE] [--only ROW]\n"
                 "Measures '%.*s': ours against each baseline, slice by slice, in one run.\n"
                 "  --quick      about a minute instead of several\n"
                 "  --smoke      a few seconds, tiny sizes: everything runs, the figures mean nothing\n"
                 "  --json FILE  also write the rows to FILE\n"
                 "  --only ROW   measure one row\n",
                 static_cast<int>(program.size()), program.data(), static_cast<int>(subject.size()),
                 subject.data());
    std::exit(code);
}

} // namespace

options parse_options(int argc, char** argv, std::string_view subject) {
    options out;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        const auto value = [&]() -> std::string {
            if (i + 1 >= argc) {
                std::fprintf(stderr, "%s needs a value\n", argv[i]);
                usage(argv[0], subject, EXIT_FAILURE);
            }
            return argv[++i];
        };
        if (argument == "--quick") {
            out.size = scale::quick;
        } else if (argument == "--smoke") {
            out.size = scale::smoke;
        } else if (argument == "--json") {
            out.json = value();
        } else if (argument == "--only") {
            out.only = value();
        } else if (argument == "--serve") {
            out.serve = value();
        } else if (argument == "--help") {
            usage(argv[0], subject, EXIT_SUCCESS);
        } else {
            std::fprintf(stderr, "unknown argument: %s\n", argv[i]);
            usage(argv[0], subject, EXIT_FAILURE);
        }
    }
    return out;
}

suite::suite(std::string subject, options chosen)
    : subject_(std::move(subject)), options_(std::move(chosen)) {}

bool suite::wants(std::string_view row_name) const noexcept {
    return options_.only.empty() || options_.only == row_name;
}

void suite::section(std::string_view title) const {
    if (!options_.only.empty()) {
        return;
    }
    std::printf("\n%.*s\n%-24s %12s %12s  %6s  %-13s %7s  %6s  %-13s %s\n", static_cast<int>(title.size()),
                title.data(), "row", "ours", "baseline", "ratio", "quartiles", "min/min", "bar", "",
                "baseline is");
}

suite::outcome suite::measure(const row& what) const {
    const effort how = effort_of(options_.size);
    side ours(what.ours, what, how);
    side baseline(what.baseline, what, how);
    ours.measure(); // one pair warms up and is thrown away
    baseline.measure();
    ours.forget();
    baseline.forget();
    for (std::size_t pair = 0; pair < how.pairs; ++pair) {
        side& first = pair % 2 == 0 ? ours : baseline;
        side& second = pair % 2 == 0 ? baseline : ours;
        first.measure();
        second.measure();
    }
    outcome out{what, bench::compare(ours.times(), baseline.times())};
    const bool disturbed = ours.disturbed() + baseline.disturbed() > how.pairs / 4;
    out.noisy = what.bar && (disturbed || out.result.spread() > std::abs(*what.bar - out.result.ratio));
    return out;
}

void suite::compare(const row& what) {
    if (!wants(what.name)) {
        return;
    }
    try {
        outcome best = measure(what);
        const int attempts = options_.size == scale::smoke ? 1 : most_attempts;
        for (int attempt = 2; attempt <= attempts && best.noisy; ++attempt) {
            outcome again = measure(what);
            if (!again.noisy || again.result.spread() < best.result.spread()) {
                best = std::move(again);
            }
            best.attempts = attempt;
        }
        const comparison& seen = best.result;
        std::array<char, 16> bar{};
        if (what.bar) {
            std::snprintf(bar.data(), bar.size(), "<=%.3g", *what.bar);
        }
        const std::string_view judged = verdict(what.bar, seen.ratio, best.noisy);
        std::printf("%-24s %8.5g %-5s %6.5g %-5s  %6.3f  %.3f - %.3f %7.3f  %6s  %-13.*s %s\n",
                    what.name.c_str(), seen.ours, what.unit.c_str(), seen.baseline, what.unit.c_str(),
                    seen.ratio, seen.lower_quartile, seen.upper_quartile, seen.ratio_of_smallest, bar.data(),
                    static_cast<int>(judged.size()), judged.data(), what.baseline.name.c_str());
        std::fflush(stdout);
        outcomes_.push_back(std::move(best));
    } catch (const std::exception& error) {
        std::printf("%-24s FAILED: %s\n", what.name.c_str(), error.what());
        ++failures_;
    }
    if (const int workers = count_io_workers(); workers != 0) {
        std::printf("%-24s FAILED: %d io_uring worker threads in this process\n", what.name.c_str(), workers);
        ++failures_;
    }
}

void suite::table(std::string_view title, const std::vector<timed>& lines, std::size_t rounds) const {
    if (!options_.only.empty()) {
        return;
    }
    const std::size_t runs = options_.size == scale::smoke ? 2 : table_runs;
    std::printf("\n%.*s\n%-58s %9s %9s %9s %9s %9s\n", static_cast<int>(title.size()), title.data(), "ms",
                "avg", "stdev", "min", "max", "gain");
    std::vector<summary> done;
    for (const timed& line : lines) {
        const slice run = line.who.open();
        std::vector<double> milliseconds_taken;
        (void)run(rounds);
        for (std::size_t i = 0; i < runs; ++i) {
            milliseconds_taken.push_back(static_cast<double>(run(rounds).elapsed.count()) / 1e6);
        }
        done.push_back(summarise(milliseconds_taken));
        const summary& seen = done.back();
        std::printf("%-58s %9.2f %9.2f %9.2f %9.2f", line.who.name.c_str(), seen.average, seen.deviation,
                    seen.smallest, seen.largest);
        if (line.gain_against) {
            std::printf(" %8.1fx", done.at(*line.gain_against).average / seen.average);
        }
        std::printf("\n");
        std::fflush(stdout);
    }
}

void suite::write_json() const {
    std::ofstream file(options_.json);
    file << "[\n";
    for (std::size_t i = 0; i < outcomes_.size(); ++i) {
        const outcome& each = outcomes_[i];
        file << "  {\"name\": " << quoted(each.what.name) << ", \"ours\": " << each.result.ours
             << ", \"baseline\": " << each.result.baseline
             << ", \"baseline_name\": " << quoted(each.what.baseline.name)
             << ", \"unit\": " << quoted(each.what.unit) << ", \"ratio\": " << each.result.ratio
             << ", \"runs\": " << each.result.pairs << ", \"min_ratio\": " << each.result.ratio_of_smallest
             << ", \"lower_quartile\": " << each.result.lower_quartile
             << ", \"upper_quartile\": " << each.result.upper_quartile
             << ", \"noisy\": " << (each.noisy ? "true" : "false") << ", \"attempts\": " << each.attempts;
        if (each.what.bar) {
            file << ", \"bar\": " << *each.what.bar;
        }
        file << "}" << (i + 1 < outcomes_.size() ? "," : "") << "\n";
    }
    file << "]\n";
    file.close();
    if (!file) {
        throw std::runtime_error("cannot write " + options_.json);
    }
}

int suite::finish() {
    int met = 0;
    int barred = 0;
    for (const outcome& each : outcomes_) {
        barred += each.what.bar ? 1 : 0;
        met += each.what.bar && each.result.ratio <= *each.what.bar ? 1 : 0;
    }
    if (!options_.only.empty() && outcomes_.empty() && failures_ == 0) {
        std::fprintf(stderr, "no row is called %s\n", options_.only.c_str());
        return EXIT_FAILURE;
    }
    std::printf("\n%d of %d bars met; io_uring worker threads in this process: %d\n", met, barred,
                count_io_workers());
    if (options_.size == scale::smoke) {
        std::printf("smoke run: the figures above mean nothing\n");
    }
    if (!options_.json.empty()) {
        try {
            write_json();
        } catch (const std::exception& error) {
            std::fprintf(stderr, "%s\n", error.what());
            return EXIT_FAILURE;
        }
    }
    return failures_ == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace bench
