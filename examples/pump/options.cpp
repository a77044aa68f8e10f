#include "options.hpp"

#include <nowait/config.hpp>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>

#include <getopt.h>

namespace pump {
namespace {

constexpr const char* help =
    R"(Usage: pump [OPTION...] [FILE...]

Copies each FILE (none, or -: standard input) to standard output and shows on standard error how far it is.

  -f, --progress          show the progress even if standard error is no terminal, a line at a time
  -q, --quiet             no progress, no report; errors only
  -i, --interval SECONDS  time between two looks at the progress (0.5)
  -N, --name NAME         what stands before the progress
  -s, --size BYTES        how much will come, for the bar; regular files say so themselves
  -l, --limit BYTES       stop after that many
  -B, --buffer-size BYTES buffer for what cannot be spliced (256K)
      --no-splice         read and write, also where the kernel could move pages
      --no-enlarge        leave the capacity of pipes alone
  -c, --counters          at the end, print what the runtime counted
  -h, --help
  -V, --version

BYTES may end in K, M, G or T (powers of 1024).

Between pipes, and between a pipe and a regular file, data is spliced: it never enters this process. Pipes on either
side are enlarged to 1 MiB, or to /proc/sys/fs/pipe-max-size if that is less, and stay so. No flag of a descriptor that
others share is changed, neither now nor when pump is killed.

Exit status: 0, all was copied; 1, something could not be read or written; 2, wrong usage; 130, 143, 129: stopped by
SIGINT (Ctrl-C), SIGTERM, SIGHUP, after a report. When the reader of standard output goes away, that is an error like
any other (status 1, "Broken pipe"): no SIGPIPE is raised.
)";

int wrong(const char* what, std::string_view value) {
    std::fprintf(stderr, "pump: invalid %s: '%.*s'\nTry 'pump --help'.\n", what,
                 static_cast<int>(value.size()), value.data());
    return 2;
}

std::optional<std::uint64_t> bytes(std::string_view text) {
    std::uint64_t count = 0;
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, count);
    if (error != std::errc{})
        return std::nullopt;
    if (end == last)
        return count;
    constexpr std::string_view units = "KMGT";
    const std::size_t unit = units.find(*end == 'k' ? 'K' : *end);
    if (end + 1 != last || unit == std::string_view::npos)
        return std::nullopt;
    const unsigned shift = 10 * (static_cast<unsigned>(unit) + 1);
    if (count > (no_limit >> shift))
        return std::nullopt;
    return count << shift;
}

std::optional<std::chrono::nanoseconds> seconds(std::string_view text) {
    double value = 0;
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, value);
    if (error != std::errc{} || end != last || !(value >= 0.01) || value > 86'400)
        return std::nullopt;
    return std::chrono::nanoseconds(static_cast<std::int64_t>(value * 1e9));
}

} // namespace

std::optional<options> parse(int argc, char** argv, int& status) {
    enum : int { no_splice = 256, no_enlarge };
    static constexpr option known[] = {{"progress", no_argument, nullptr, 'f'},
                                       {"quiet", no_argument, nullptr, 'q'},
                                       {"interval", required_argument, nullptr, 'i'},
                                       {"name", required_argument, nullptr, 'N'},
                                       {"size", required_argument, nullptr, 's'},
                                       {"limit", required_argument, nullptr, 'l'},
                                       {"buffer-size", required_argument, nullptr, 'B'},
                                       {"no-splice", no_argument, nullptr, no_splice},
                                       {"no-enlarge", no_argument, nullptr, no_enlarge},
                                       {"counters", no_argument, nullptr, 'c'},
                                       {"help", no_argument, nullptr, 'h'},
                                       {"version", no_argument, nullptr, 'V'},
                                       {nullptr, 0, nullptr, 0}};
    options chosen;
    status = 2;
    for (int c = 0; (c = ::getopt_long(argc, argv, "fqi:N:s:l:B:chV", known, nullptr)) != -1;) {
        const std::string_view value = ::optarg != nullptr ? ::optarg : "";
        switch (c) {
        case 'f':
            chosen.progress = showing::always;
            break;
        case 'q':
            chosen.progress = showing::never;
            break;
        case 'N':
            chosen.name = value;
            break;
        case 'i':
            if (const auto given = seconds(value)) {
                chosen.interval = *given;
                break;
            }
            status = wrong("interval (0.01 to 86400 seconds)", value);
            return std::nullopt;
        case 's':
            chosen.size = bytes(value);
            if (chosen.size)
                break;
            status = wrong("size", value);
            return std::nullopt;
        case 'l':
            if (const auto given = bytes(value)) {
                chosen.limit = *given;
                break;
            }
            status = wrong("limit", value);
            return std::nullopt;
        case 'B':
            if (const auto given = bytes(value); given && *given != 0 && *given <= (1U << 30)) {
                chosen.buffer_size = *given;
                break;
            }
            status = wrong("buffer size (1 byte to 1G)", value);
            return std::nullopt;
        case no_splice:
            chosen.splice = false;
            break;
        case no_enlarge:
            chosen.enlarge = false;
            break;
        case 'c':
            chosen.counters = true;
            break;
        case 'h':
            status = std::fputs(help, stdout) < 0 || std::fflush(stdout) != 0 ? 1 : 0;
            return std::nullopt;
        case 'V':
            std::printf("pump (nowait %d.%d.%d)\n", NOWAIT_VERSION_MAJOR, NOWAIT_VERSION_MINOR,
                        NOWAIT_VERSION_PATCH);
            status = std::fflush(stdout) != 0 ? 1 : 0;
            return std::nullopt;
        default:
            std::fputs("Try 'pump --help'.\n", stderr);
            return std::nullopt;
        }
    }
    chosen.files.assign(argv + ::optind, argv + argc);
    if (chosen.files.empty())
        chosen.files.emplace_back("-");
    status = 0;
    return chosen;
}

} // namespace pump
