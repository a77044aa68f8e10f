// What the command line says.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace pump {

inline constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();

enum class showing { when_terminal, always, never };

struct options {
    std::vector<std::string> files; // none, or "-": standard input
    showing progress = showing::when_terminal;
    std::chrono::nanoseconds interval = std::chrono::milliseconds(500);
    std::string name;                  // stands before the progress line
    std::optional<std::uint64_t> size; // bytes expected; what the files say if not given
    std::uint64_t limit = no_limit;    // bytes after which to stop
    std::size_t buffer_size = 256 * 1024;
    bool splice = true;
    bool enlarge = true;
    bool counters = false;
};

/// Returns: the options; nothing if there is nothing to do: the help was asked for (`status` is 0) or the command line
/// is wrong (2), and it has been printed.
[[nodiscard]] std::optional<options> parse(int argc, char** argv, int& status);

} // namespace pump
