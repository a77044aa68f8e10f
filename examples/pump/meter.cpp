#include "meter.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>

namespace pump {
namespace {

double seconds(meter::clock::duration span) noexcept {
    return std::chrono::duration<double>(span).count();
}

template <class... Values>
std::string format(const char* how, Values... values) {
    std::array<char, 128> text{};
    const int size = std::snprintf(text.data(), text.size(), how, values...);
    return {text.data(), std::min(static_cast<std::size_t>(size), text.size() - 1)};
}

std::string bar(double part, std::size_t width) {
    const auto full = static_cast<std::size_t>(part * static_cast<double>(width));
    std::string inside(full, '=');
    if (full < width) {
        inside += '>';
        inside.append(width - full - 1, ' ');
    }
    return '[' + inside + ']';
}

} // namespace

std::string human(double bytes) {
    static constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    std::size_t unit = 0;
    for (; bytes >= 1000 && unit + 1 < units.size(); ++unit) // never four digits before the point
        bytes /= 1024;
    const int digits = unit == 0 || bytes >= 100 ? 0 : bytes >= 10 ? 1 : 2;
    return format("%.*f %s", digits, bytes, units[unit]);
}

std::string human(std::chrono::nanoseconds span) {
    const auto all = std::chrono::duration_cast<std::chrono::seconds>(span).count();
    return format("%" PRId64 ":%02d:%02d", static_cast<std::int64_t>(all / 3600),
                  static_cast<int>(all / 60 % 60), static_cast<int>(all % 60));
}

meter::meter(std::string name, std::optional<std::uint64_t> expected)
    : name_(std::move(name)), expected_(expected) {}

double meter::average(clock::time_point now) const noexcept {
    return static_cast<double>(moved_) / std::max(seconds(now - begun_), 1e-9);
}

std::string meter::line(unsigned columns) {
    const auto now = clock::now();
    const double rate = static_cast<double>(moved_ - seen_) / std::max(seconds(now - looked_), 1e-9);
    looked_ = now;
    seen_ = moved_;

    std::string text = name_.empty() ? "" : name_ + ": ";
    text += format("%8s  %s  %8s/s, average %8s/s", human(static_cast<double>(moved_)).c_str(),
                   human(now - begun_).c_str(), human(rate).c_str(), human(average(now)).c_str());
    if (expected_ && *expected_ != 0) {
        const double part = std::min(1.0, static_cast<double>(moved_) / static_cast<double>(*expected_));
        std::string end = format("  %3d%%", static_cast<int>(part * 100));
        if (moved_ != 0 && moved_ <= *expected_) {
            const double left = static_cast<double>(*expected_ - moved_) / average(now);
            // Who waits for a month wants no clock.
            if (left < 30 * 86'400.0)
                end += "  ETA " + human(std::chrono::nanoseconds(static_cast<std::int64_t>(left * 1e9)));
        }
        const std::size_t taken = text.size() + end.size() + 4; // two spaces, two brackets
        if (columns > taken + 8)
            text += "  " + bar(part, std::min<std::size_t>(columns - taken, 40));
        text += end;
    }
    if (text.size() > columns)
        text.resize(columns);
    return text;
}

std::string meter::summary() const {
    const auto now = clock::now();
    return format("%" PRIu64 " bytes in %.3f s, %s/s", moved_, seconds(now - begun_),
                  human(average(now)).c_str());
}

} // namespace pump
