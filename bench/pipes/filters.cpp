#include "filters.hpp"

#include "bench/support/process.hpp"
#include "bench/support/statistics.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace bench::pipes {
namespace {

constexpr std::size_t mebibyte = 1024 * 1024;

// A descriptor of ours, closed at the end.
class file {
public:
    explicit file(int descriptor) noexcept : descriptor_(descriptor) {}
    file(const file&) = delete;
    file& operator=(const file&) = delete;
    ~file() { ::close(descriptor_); }

    [[nodiscard]] int get() const noexcept { return descriptor_; }

private:
    int descriptor_;
};

pid_t start(std::vector<std::string> command, int input, int output) {
    std::vector<char*> arguments;
    for (std::string& word : command) {
        arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);

    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t child = -1;
    const int failed = ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) {
        throw std::system_error(failed, std::generic_category(), command[0]);
    }
    return child;
}

// Fills the first pipe and ends. Only async-signal-safe calls after the fork.
pid_t start_producer(const pipe_set& pipes, std::size_t bytes) {
    static std::vector<char> zeros(mebibyte); // lent to pipes, so nobody may write here, ever
    const pid_t child = ::fork();
    if (child != 0) {
        expect(child > 0, 1, "fork");
        return child;
    }
    ::close(pipes.reader(0)); // so that a filter that dies is noticed
    while (bytes > 0) {
        const iovec lent{zeros.data(), std::min(bytes, zeros.size())};
        const ssize_t moved = ::vmsplice(pipes.writer(0), &lent, 1, 0);
        if (moved <= 0) {
            ::_exit(1);
        }
        bytes -= static_cast<std::size_t>(moved);
    }
    ::_exit(0);
}

// A file in memory without a name. Opened anew for every run, so that each starts at the beginning.
std::shared_ptr<file> make_input_file(std::size_t bytes) {
    const auto input = std::make_shared<file>(::open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (input->get() < 0) {
        throw std::system_error(errno, std::generic_category(), "/dev/shm");
    }
    std::vector<char> text(mebibyte);
    for (std::size_t i = 0; i < text.size(); ++i) {
        text[i] = static_cast<char>('a' + i % 26);
    }
    for (std::size_t written = 0; written < bytes; written += text.size()) {
        expect(::write(input->get(), text.data(), text.size()), static_cast<long>(text.size()),
               "write to /dev/shm");
    }
    return input;
}

// Throws away everything up to the end of the stream, or until nothing has come for `patience`.
std::size_t drain(int from) {
    constexpr int patience_ms = 20'000;
    const file nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    std::size_t total = 0;
    for (;;) {
        const ssize_t got = ::splice(from, nullptr, nowhere.get(), nullptr, mebibyte, SPLICE_F_NONBLOCK);
        if (got == 0) {
            return total;
        }
        if (got > 0) {
            total += static_cast<std::size_t>(got);
            continue;
        }
        pollfd readable{from, POLLIN, 0};
        if (errno != EAGAIN || ::poll(&readable, 1, patience_ms) != 1) {
            return total;
        }
    }
}

// A child that is ended with its owner, whatever happens in between.
class process {
public:
    process(pid_t child, std::string name) : child_(child), name_(std::move(name)) {}
    process(const process&) = delete;
    process& operator=(const process&) = delete;
    ~process() {
        if (child_ > 0) {
            ::kill(child_, SIGKILL);
            ::waitpid(child_, nullptr, 0);
        }
    }

    void wait() {
        int status = 0;
        if (::waitpid(std::exchange(child_, -1), &status, 0) < 0 || status != 0) {
            throw std::runtime_error(name_ + " failed, wait status " + std::to_string(status));
        }
    }

private:
    pid_t child_;
    std::string name_;
};

void expect_all(std::size_t received, std::size_t rounds) {
    if (received != rounds * mebibyte) {
        throw std::runtime_error("stuck or short: received " + std::to_string(received) + " of " +
                                 std::to_string(rounds * mebibyte) + " bytes");
    }
}

// Several processes: they may use every CPU, whatever the rows before were pinned to.
class unpinned {
public:
    unpinned() { unpin(); }
    unpinned(const unpinned&) = delete;
    unpinned& operator=(const unpinned&) = delete;
    ~unpinned() { pin_to_one_cpu(); }
};

measurement run_from_pipe(const std::vector<std::string>& command, std::size_t rounds) {
    const unpinned all_cpus;
    pipe_set pipes(2, 0); // fresh ones: a filter may change their size
    stopwatch clock;
    process producer(start_producer(pipes, rounds * mebibyte), "the producer");
    process child(start(command, pipes.reader(0), pipes.writer(1)), command[0]);
    // An end that stays open here would keep the next process from seeing the end of the stream.
    pipes.close_writer(0);
    pipes.close_reader(0);
    pipes.close_writer(1);
    const std::size_t received = drain(pipes.reader(1));
    const auto elapsed = clock.elapsed();
    expect_all(received, rounds);
    child.wait();
    producer.wait();
    return {rounds, elapsed};
}

measurement run_from_file(const std::vector<std::string>& command, const file& source, std::size_t rounds) {
    const unpinned all_cpus;
    const std::string path = "/proc/self/fd/" + std::to_string(source.get());
    const file input(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    pipe_set pipes(1, 0);
    stopwatch clock;
    process child(start(command, input.get(), pipes.writer(0)), command[0]);
    pipes.close_writer(0);
    const std::size_t received = drain(pipes.reader(0));
    const auto elapsed = clock.elapsed();
    expect_all(received, rounds);
    child.wait();
    return {rounds, elapsed};
}

} // namespace

contender filter(std::string name, std::vector<std::string> command, feed from) {
    return {std::move(name), [command = std::move(command), from]() -> slice {
                if (from == feed::pipe) {
                    return [command](std::size_t rounds) { return run_from_pipe(command, rounds); };
                }
                auto input = std::make_shared<std::pair<std::size_t, std::shared_ptr<file>>>();
                return [command, input](std::size_t rounds) {
                    if (input->first != rounds) {
                        *input = {rounds, make_input_file(rounds * mebibyte)};
                    }
                    return run_from_file(command, *input->second, rounds);
                };
            }};
}

contender faster_of(const std::vector<contender>& candidates, std::size_t rounds) {
    constexpr std::size_t runs = 5;
    std::vector<slice> open;
    for (const contender& each : candidates) {
        open.push_back(each.open());
    }
    std::vector<std::vector<double>> times(candidates.size());
    for (std::size_t run = 0; run < runs; ++run) {
        for (std::size_t i = 0; i < open.size(); ++i) {
            times[i].push_back(open[i](rounds).per_operation());
        }
    }
    std::size_t best = 0;
    for (std::size_t i = 1; i < times.size(); ++i) {
        if (quantile(times[i], 0.5) < quantile(times[best], 0.5)) {
            best = i;
        }
    }
    return candidates[best];
}

} // namespace bench::pipes
