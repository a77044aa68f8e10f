#include "process.hpp"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace bench {
namespace {

cpu_set_t initial_cpus() {
    static const cpu_set_t cpus = [] {
        cpu_set_t set;
        CPU_ZERO(&set);
        if (::sched_getaffinity(0, sizeof set, &set) != 0) {
            throw std::system_error(errno, std::generic_category(), "sched_getaffinity");
        }
        return set;
    }();
    return cpus;
}

void use_cpus(const cpu_set_t& cpus) {
    if (::sched_setaffinity(0, sizeof cpus, &cpus) != 0) {
        throw std::system_error(errno, std::generic_category(), "sched_setaffinity");
    }
}

// A child process that answers slices over two pipes.
class server {
public:
    server(const std::string& program, const std::string& name) : name_(name) {
        int to_child[2];
        int from_child[2];
        if (::pipe2(to_child, O_CLOEXEC) != 0) {
            throw std::system_error(errno, std::generic_category(), "pipe2");
        }
        if (::pipe2(from_child, O_CLOEXEC) != 0) {
            const int error = errno;
            ::close(to_child[0]);
            ::close(to_child[1]);
            throw std::system_error(error, std::generic_category(), "pipe2");
        }

        posix_spawn_file_actions_t actions;
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawn_file_actions_adddup2(&actions, to_child[0], STDIN_FILENO);
        ::posix_spawn_file_actions_adddup2(&actions, from_child[1], STDOUT_FILENO);
        std::string serve_flag = "--serve";
        std::string path = program;
        char* arguments[] = {path.data(), serve_flag.data(), name_.data(), nullptr};
        const int failed = ::posix_spawn(&child_, program.c_str(), &actions, nullptr, arguments, environ);
        ::posix_spawn_file_actions_destroy(&actions);
        ::close(to_child[0]);
        ::close(from_child[1]);
        requests_ = ::fdopen(to_child[1], "w");
        answers_ = ::fdopen(from_child[0], "r");
        if (failed != 0) {
            child_ = -1;
            close();
            throw std::system_error(failed, std::generic_category(), program);
        }
    }

    server(const server&) = delete;
    server& operator=(const server&) = delete;
    ~server() { close(); }

    measurement run(std::size_t rounds) {
        unsigned long long operations = 0;
        long long nanoseconds = 0;
        if (std::fprintf(requests_, "%zu\n", rounds) < 0 || std::fflush(requests_) != 0 ||
            std::fscanf(answers_, "%llu %lld", &operations, &nanoseconds) != 2) {
            throw std::runtime_error("the process that serves '" + name_ + "' has ended");
        }
        return {operations, std::chrono::nanoseconds(nanoseconds)};
    }

private:
    void close() noexcept {
        std::fclose(requests_); // the child sees the end of its input and leaves
        std::fclose(answers_);
        if (child_ > 0) {
            int status = 0;
            ::waitpid(child_, &status, 0);
        }
    }

    std::string name_;
    pid_t child_ = -1;
    std::FILE* requests_ = nullptr;
    std::FILE* answers_ = nullptr;
};

} // namespace

int pin_to_one_cpu() {
    const cpu_set_t allowed = initial_cpus();
    int last = -1;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(static_cast<std::size_t>(cpu), &allowed)) {
            last = cpu;
        }
    }
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(static_cast<std::size_t>(last), &only);
    use_cpus(only);
    return last;
}

void unpin() {
    use_cpus(initial_cpus());
}

long involuntary_switches() {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
}

int count_io_workers() {
    int count = 0;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
        std::ifstream comm(thread.path() / "comm"); // a thread that has just ended reads as an empty name
        std::string name;
        std::getline(comm, name);
        count += name.starts_with("iou-wrk") ? 1 : 0;
    }
    return count;
}

std::string executable_path() {
    return std::filesystem::read_symlink("/proc/self/exe").string();
}

std::string executable_directory() {
    return std::filesystem::path(executable_path()).parent_path().string();
}

contender served(std::string shown_name, std::string program, std::string name) {
    return {std::move(shown_name), [program = std::move(program), name = std::move(name)]() -> slice {
                auto child = std::make_shared<server>(program, name);
                return [child](std::size_t rounds) { return child->run(rounds); };
            }};
}

int serve(const contender& what) {
    const slice run = what.open();
    std::string line;
    while (std::getline(std::cin, line)) {
        std::size_t rounds = 0;
        const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), rounds);
        if (error != std::errc{} || end != line.data() + line.size()) {
            std::cerr << "not a number of rounds: " << line << '\n';
            return EXIT_FAILURE;
        }
        const measurement result = run(rounds);
        std::cout << result.operations << ' ' << result.elapsed.count() << std::endl;
    }
    return EXIT_SUCCESS;
}

} // namespace bench
