// pump: a pipe viewer. Copies files or standard input to standard output and shows the progress on standard error.
//
//     tar cf - /usr/include | pump | gzip > headers.tar.gz
//
// Shows: standard streams used without changing them, splice, two tasks at once, a stop from a signal handler, counters.
#include "meter.hpp"
#include "options.hpp"
#include "transfer.hpp"

#include <nowait/nowait.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <system_error>
#include <tuple>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pump {
namespace {

void complain(const std::string& about, std::error_code error) {
    std::fprintf(stderr, "pump: %s: %s\n", about.c_str(), error.message().c_str());
}

// --- signals -------------------------------------------------------------------------------------------------------------

// The library leaves signals to the program, and this is the program. The first signal asks for an end with a report, the
// second ends.
constexpr std::array stopping_signals{SIGINT, SIGTERM, SIGHUP};
volatile std::sig_atomic_t caught = 0;
const nowait::remote_runtime* to_stop = nullptr; // set before the handler is

void on_signal(int number) {
    const int kept = errno;
    caught = number;
    to_stop->request_stop();
    errno = kept;
}

void catch_signals(const nowait::remote_runtime& target) {
    to_stop = &target;
    struct sigaction action{};
    action.sa_handler = on_signal;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigemptyset(&action.sa_mask);
    for (const int number : stopping_signals) {
        struct sigaction before{};
        ::sigaction(number, nullptr, &before);
        if (before.sa_handler != SIG_IGN) // nohup, or a shell's background
            ::sigaction(number, &action, nullptr);
    }
}

// --- the descriptors -------------------------------------------------------------------------------------------------------

/// A standard descriptor that we were started without must not become the number of something else that we open: messages
/// would land in it. A path descriptor takes its place, which can neither be read nor written.
void occupy_standard_descriptors() {
    for (int number = 0; number <= 2; ++number) {
        if (::fcntl(number, F_GETFD) < 0)
            (void)!::open("/", O_PATH);
    }
}

bool is_standard_input(const std::string& file) {
    return file == "-";
}

std::string spoken(const std::string& file) {
    return is_standard_input(file) ? "standard input" : file;
}

/// What is left of a regular file from where its descriptor stands.
std::optional<std::uint64_t> left_to_read(const struct stat& status, int fd) {
    if (!S_ISREG(status.st_mode) || status.st_size == 0) // files of /proc say 0 and are not empty
        return std::nullopt;
    const off_t at = std::max<off_t>(0, fd < 0 ? 0 : ::lseek(fd, 0, SEEK_CUR));
    return at < status.st_size ? static_cast<std::uint64_t>(status.st_size - at) : 0;
}

std::optional<std::uint64_t> expected_size(const options& how) {
    std::optional<std::uint64_t> sum = how.size;
    if (!sum) {
        sum = 0;
        for (const std::string& file : how.files) {
            struct stat status{};
            const bool standard = is_standard_input(file);
            const bool known = (standard ? ::fstat(0, &status) : ::stat(file.c_str(), &status)) == 0;
            const auto size = known ? left_to_read(status, standard ? 0 : -1) : std::nullopt;
            if (!size) {
                sum.reset();
                break;
            }
            *sum += *size;
        }
    }
    if (how.limit != no_limit)
        sum = std::min(sum.value_or(how.limit), how.limit);
    return sum;
}

/// A file of ours, or standard input.
nowait::task<nowait::result<nowait::pipe_reader>> open_input(const std::string& file) {
    if (is_standard_input(file))
        co_return nowait::standard_input();
    // Without waiting, or a FIFO would hold the whole thread until somebody opens its other end.
    const int fd = ::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        co_return nowait::fail_errno(errno);
    auto reader = nowait::pipe_reader::adopt(fd);
    if (!reader) {
        ::close(fd);
        co_return reader;
    }
    struct stat status{};
    if (::fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode)) {
        // Before the first writer comes, a FIFO reads as if it had ended.
        const auto ready = co_await reader->readable();
        if (!ready)
            co_return nowait::fail(ready.error());
    }
    co_return reader;
}

/// `cat file >> file` would never end.
bool feeds_itself(int from, int to) {
    struct stat in{};
    struct stat out{};
    return ::fstat(from, &in) == 0 && ::fstat(to, &out) == 0 && S_ISREG(in.st_mode) &&
           in.st_dev == out.st_dev && in.st_ino == out.st_ino && in.st_size != 0;
}

// --- the tasks -------------------------------------------------------------------------------------------------------------

struct session {
    const options& how;
    meter& count;
    nowait::pipe_writer output;
    nowait::pipe_writer messages;
    bool shows = false;
    bool on_terminal = false;           // where it shows
    nowait::inplace_stop_source over{}; // the copy has ended: so does the display
    int status = 0;
};

unsigned columns() {
    winsize size{};
    return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1U : 100U;
}

/// A line on a terminal replaces the one before.
std::string framed(const session& s, const std::string& line) {
    return s.on_terminal ? '\r' + line + "\x1b[K" : line + '\n';
}

/// True if it is worth going on with the next file.
nowait::task<bool> copy_one(session& s, const std::string& file) {
    auto input = co_await open_input(file);
    ending end;
    if (!input) {
        end.error = input.error();
    } else if (feeds_itself(input->native_handle(), s.output.native_handle())) {
        std::fprintf(stderr, "pump: %s: input file is output file\n", spoken(file).c_str());
        s.status = 1;
        co_return true;
    } else {
        if (s.how.enlarge)
            enlarge(*input);
        end = co_await transfer(*input, s.output, s.how, s.how.limit - s.count.moved(), s.count);
    }
    if (caught != 0)
        co_return false;
    if (!end.error)
        co_return true;
    if (s.on_terminal)
        std::fputs("\r\x1b[K", stderr);
    complain(end.at_output ? "standard output" : spoken(file), end.error);
    s.status = 1;
    co_return !end.at_output;
}

nowait::task<void> copy_all(session& s) {
    for (const std::string& file : s.how.files) {
        const bool go_on = co_await copy_one(s, file);
        if (!go_on || s.count.moved() >= s.how.limit)
            break;
    }
    s.over.request_stop();
}

/// A task of its own, so that a terminal that is halted with Ctrl-S does not halt the data.
nowait::task<void> show(session& s) {
    while (s.shows) {
        const auto slept = co_await nowait::with_stop(nowait::sleep_for(s.how.interval), s.over.get_token());
        if (!slept)
            break;
        const std::string text = framed(s, s.count.line(s.on_terminal ? columns() : 100U));
        for (std::string_view rest = text; !rest.empty();) {
            const auto written = co_await nowait::with_stop(s.messages.write(rest), s.over.get_token());
            if (!written)
                co_return; // nobody looks any more
            rest.remove_prefix(*written);
        }
    }
}

nowait::task<void> run_both(session& s) {
    nowait::task<void> copying = copy_all(s);
    nowait::task<void> showing = show(s);
    (void)co_await nowait::when_all(std::move(copying), std::move(showing));
}

void print(const nowait::runtime_stats& stats) {
    std::fprintf(stderr, "%-8s %12s %12s %12s %12s %12s\n", "", "inline", "armed", "misses", "skipped",
                 "over budget");
    for (std::size_t i = 0; i < nowait::operation_kinds; ++i) {
        const auto kind = static_cast<nowait::operation_kind>(i);
        const auto& of = stats.of(kind);
        if (of.inline_completions + of.armed + of.nowait_misses + of.budget_yields == 0)
            continue;
        const std::string name(to_string(kind));
        std::fprintf(stderr, "%-8s %12" PRIu64 " %12" PRIu64 " %12" PRIu64 " %12" PRIu64 " %12" PRIu64 "\n",
                     name.c_str(), of.inline_completions, of.armed, of.nowait_misses, of.predictor_skips,
                     of.budget_yields);
    }
    std::fprintf(stderr,
                 "%" PRIu64 " turns, %" PRIu64 " passes, %" PRIu64 " submissions, %" PRIu64
                 " enters, %" PRIu64 " completions\n",
                 stats.turns, stats.passes, stats.submissions, stats.enters, stats.completions);
}

int run(const options& how) {
    auto output = nowait::standard_output();
    if (!output) {
        complain("standard output", output.error());
        return 1;
    }
    auto messages = nowait::standard_error();
    auto runtime = nowait::runtime::create();
    if (!runtime) {
        complain("cannot start the runtime", runtime.error());
        return 1;
    }
    const nowait::remote_runtime remote = runtime->remote();
    catch_signals(remote);

    meter count(how.name, expected_size(how));
    session s{how, count, std::move(*output), messages ? std::move(*messages) : nowait::pipe_writer{}};
    s.on_terminal = ::isatty(STDERR_FILENO) == 1;
    s.shows = messages &&
              (how.progress == showing::always || (how.progress == showing::when_terminal && s.on_terminal));
    s.on_terminal = s.on_terminal && s.shows;
    if (how.enlarge)
        enlarge(s.output);

    if (const auto ran = runtime->run(run_both(s)); !ran) {
        complain("the runtime", ran.error());
        return 1;
    }

    if (s.shows) {
        const std::string line = framed(s, count.line(s.on_terminal ? columns() : 100U));
        std::fprintf(stderr, "%s%s", line.c_str(), s.on_terminal ? "\n" : "");
    }
    const std::string name = how.name.empty() ? "" : how.name + ": ";
    if (caught != 0 && how.progress != showing::never)
        std::fprintf(stderr, "pump: %sinterrupted: %s\n", name.c_str(), count.summary().c_str());
    else if (s.shows)
        std::fprintf(stderr, "pump: %s%s\n", name.c_str(), count.summary().c_str());
    if (how.counters)
        print(runtime->stats());
    return caught != 0 ? 128 + caught : s.status;
}

} // namespace
} // namespace pump

int main(int argc, char** argv) {
    pump::occupy_standard_descriptors();
    int status = 0;
    const auto chosen = pump::parse(argc, argv, status);
    return chosen ? pump::run(*chosen) : status;
}
