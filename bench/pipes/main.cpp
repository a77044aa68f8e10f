// bench_pipes: the published pipe benchmark and its neighbours, ours beside every baseline in one run.
#include "baselines.hpp"
#include "bench/support/process.hpp"
#include "bench/support/suite.hpp"
#include "filters.hpp"

#include <csignal>
#include <cstdio>
#include <map>
#include <string>

#include <sys/utsname.h>

namespace {

using namespace bench;
using namespace bench::pipes;

// What runs in a process of its own: the loops that make io_uring start worker threads, which must not count as ours.
std::map<std::string, contender> served_contenders() {
    return {
        {"punted_ready_1", punted_ready(1)},
        {"punted_ready_128", punted_ready(pipe_count)},
        {"punted_lockstep_1", punted_lockstep(1)},
        {"punted_lockstep_128", punted_lockstep(pipe_count)},
    };
}

contender elsewhere(const std::string& name) {
    return served(served_contenders().at(name).name, executable_path(), name);
}

void print_conditions(int cpu) {
    utsname system{};
    ::uname(&system);
    std::printf("Linux %s, g++ %s; one CPU (%d) except where processes are piped together.\n", system.release,
                __VERSION__, cpu);
    std::printf("%zu pipes, messages of one byte; an operation is one read or one write.\n", pipe_count);
}

void published_tables(const suite& run) {
    run.table("S2, data present when the read is issued: 128 pipes, 256 rounds",
              {
                  {elsewhere("punted_ready_1"), {}},
                  {elsewhere("punted_ready_128"), 0},
                  {uring_ready(), 0},
                  {raw_ready(writing::plain), 0},
                  {raw_ready(writing::nosignal), 0},
                  {asio_ready(), 0},
              },
              published_rounds);
    run.table("S0, read issued on an empty pipe (lock step): 128 pipes, 256 rounds",
              {
                  {elsewhere("punted_lockstep_1"), {}},
                  {elsewhere("punted_lockstep_128"), 0},
                  {uring_lockstep(), 0},
                  {uring_lockstep_direct_write(), 0},
                  {asio_lockstep(), 0},
              },
              published_rounds);
}

} // namespace

int main(int argc, char** argv) {
    const options chosen = parse_options(argc, argv, "pipes");
    // A child that dies must be an error message here, not a signal.
    std::signal(SIGPIPE, SIG_IGN);
    if (!chosen.serve.empty()) {
        const auto known = served_contenders();
        const auto found = known.find(chosen.serve);
        if (found == known.end()) {
            std::fprintf(stderr, "nothing to serve under the name %s\n", chosen.serve.c_str());
            return EXIT_FAILURE;
        }
        return serve(found->second);
    }

    suite run("pipes", chosen);
    print_conditions(pin_to_one_cpu());
    published_tables(run);
    return run.finish();
}
