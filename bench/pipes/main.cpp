// bench_pipes: the published pipe benchmark and its neighbours, ours beside every baseline in one run.
#include "baselines.hpp"
#include "bench/support/process.hpp"
#include "bench/support/suite.hpp"
#include "filters.hpp"
#include "ours.hpp"

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
    std::printf("Linux %s, compiler %s; one CPU (%d), several where processes are piped together.\n",
                system.release, __VERSION__, cpu);
    std::printf("%zu pipes, messages of one byte; an operation is one read or one write.\n", pipe_count);
}

// The tables in the form they were published in, and the published figures beside them (another machine).
void published_tables(const suite& run) {
    run.table("S2, data present when the read is issued: 128 pipes, 256 rounds (published: 249.24 before, "
              "10.86 after)",
              {
                  {elsewhere("punted_ready_1"), {}},
                  {elsewhere("punted_ready_128"), 0},
                  {uring_ready(), 0},
                  {raw_ready(writing::plain), 0},
                  {raw_ready(writing::nosignal), 0},
                  {asio_ready(), 0},
                  {ours_ready(), 0},
              },
              published_rounds);
    run.table("S0, read issued on an empty pipe, in lock step: 128 pipes, 256 rounds (published: 262.52 "
              "before, 24.14 after)",
              {
                  {elsewhere("punted_lockstep_1"), {}},
                  {elsewhere("punted_lockstep_128"), 0},
                  {uring_lockstep(), 0},
                  {uring_lockstep_direct_write(), 0},
                  {asio_lockstep(), 0},
                  {ours_lockstep(), 0},
              },
              published_rounds);
}

void bulk_table(const suite& run) {
    const bool full = run.size() == scale::full;
    run.table(full ? "4 GiB through one pipe in pieces of 64 KiB"
                   : "1 GiB through one pipe in pieces of 64 KiB",
              {{raw_bulk(), {}}, {asio_bulk(), 0}, {ours_bulk(), 0}},
              run.size() == scale::smoke ? 16
              : full                     ? 4096
                                         : 1024);
}

void rows(suite& run) {
    run.section("data ready");
    run.compare({"ready_vs_raw", ours_ready(), raw_ready(writing::nosignal), 1.00});
    run.compare({"ready_vs_write", ours_ready(), raw_ready(writing::plain), 1.10});
    run.compare({"ready_vs_asio", ours_ready(), asio_ready(), 0.57});
    run.compare({"ready_vs_punted_b1", ours_ready(), elsewhere("punted_ready_1"), 0.09});
    run.compare({"ready_vs_punted_b128", ours_ready(), elsewhere("punted_ready_128"), {}});

    run.section("lock step: every read waits before the first write of its round");
    run.compare({"lockstep_vs_liburing", ours_lockstep(), uring_lockstep(), 1.00});
    run.compare({"lockstep_vs_liburing_direct", ours_lockstep(), uring_lockstep_direct_write(), {}});
    run.compare({"lockstep_vs_asio", ours_lockstep(), asio_lockstep(), 0.55});
    run.compare({"lockstep_vs_punted_b1", ours_lockstep(), elsewhere("punted_lockstep_1"), 0.18});
    run.compare({"lockstep_vs_punted_b128", ours_lockstep(), elsewhere("punted_lockstep_128"), {}});

    run.section("free running: 128 reading and 128 writing tasks");
    run.compare({"free_vs_asio", ours_free(), asio_free(), 0.60});

    run.section("one pipe");
    run.compare({"pingpong_vs_raw", ours_pingpong(), raw_ready(writing::nosignal, 1), 1.00});
    run.compare({"pingpong_vs_asio", ours_pingpong(), asio_pingpong(), {}});
    run.compare({"loop512_vs_raw", ours_loop(), raw_loop(writing::nosignal), {}});
    run.compare({"loop512_vs_asio", ours_loop(), asio_loop(), {}});
    run.compare({"bulk_vs_raw", ours_bulk(), raw_bulk(), {}});
    run.compare({"bulk_vs_asio", ours_bulk(), asio_bulk(), {}});

    run.section("on the epoll driver");
    run.compare({"poll_ready_vs_raw", ours_poll_ready(), raw_ready(writing::nosignal), 1.05});
    run.compare({"poll_lockstep_vs_epoll", ours_poll_lockstep(), epoll_lockstep(), 1.15});
    run.compare({"poll_lockstep_vs_asio", ours_poll_lockstep(), asio_lockstep(), 0.60});

    run.section("what counting costs");
    run.compare({"metrics_cost", ours_ready(), uncounted_ready(), 1.02});
    run.compare({"metrics_cost_lockstep", ours_lockstep(), uncounted_lockstep(), {}});
}

void pump_row(suite& run, const std::string& name, feed from) {
    if (!run.wants(name)) {
        return;
    }
    const std::size_t mebibytes = run.size() == scale::smoke ? 8 : run.size() == scale::quick ? 256 : 1024;
    row what{name, filter("pump", {NOWAIT_EXAMPLES_DIR "/pump"}, from),
             faster_of({filter("cat", {"cat"}, from), filter("pv -q", {"pv", "-q"}, from)}, mebibytes), 0.60};
    what.fixed_rounds = mebibytes;
    what.unit = "ms/GiB";
    what.per_unit = 1e6 / 1024;
    run.compare(what);
}

void pump_rows(suite& run) {
    run.section(
        "the pump example, which enlarges its pipes, as a whole process beside the faster of cat and pv");
    pump_row(run, "pump_pipe_vs_best", feed::pipe);
    pump_row(run, "pump_file_vs_best", feed::file);
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
    bulk_table(run);
    rows(run);
    pump_rows(run);
    return run.finish();
}
