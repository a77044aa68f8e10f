// bench_channels: in-process pipes beside kernel pipes and memory, with the published programs.
#include "baselines.hpp"
#include "bench/support/process.hpp"
#include "bench/support/statistics.hpp"
#include "bench/support/suite.hpp"
#include "ours.hpp"

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/utsname.h>

namespace {

using namespace bench;
using namespace bench::channels;

void print_conditions(int cpu) {
    utsname system{};
    ::uname(&system);
    std::printf("Linux %s, compiler %s; one CPU (%d), except for the threads of the token program (%u).\n",
                system.release, __VERSION__, cpu, std::thread::hardware_concurrency());
    std::printf(
        "An operation is 512 bytes written and read, a chunk of 64 KiB, or an increment of the token.\n");
}

std::size_t increments_of(const suite& run) {
    return run.size() == scale::smoke ? 1'000 : run.size() == scale::quick ? 50'000 : 100'000;
}

// Loops per second and the index, as UnixBench gives them: the median of seven stretches.
void throughput_table(const suite& run) {
    const std::size_t rounds = run.size() == scale::smoke ? 2'000 : 200'000;
    std::printf(
        "\nPipe Throughput, 512 bytes (published: 493023.3 lps before, 507551.4 after)\n%-58s %14s %10s\n",
        "", "loops/s", "index");
    for (const contender& who : {kernel_loop(), ours_loop(kind::local), ours_loop(kind::shared)}) {
        const slice measured = who.open();
        (void)measured(rounds);
        std::vector<double> samples;
        for (int i = 0; i < 7; ++i) {
            samples.push_back(1e9 / measured(rounds).per_operation());
        }
        const double loops = quantile(samples, 0.5);
        std::printf("%-58s %14.1f %10.1f\n", who.name.c_str(), loops, loops / unixbench_reference);
        std::fflush(stdout);
    }
}

void token_table(const suite& run) {
    struct line {
        const char* name;
        token_program play;
        std::uint64_t token_result::* wakes;
    };
    const std::vector<line> lines{
        {"64 threads, kernel pipe (wakes: context switches)", kernel_tokens(), &token_result::switches},
        {"64 coroutines, local_pipe_channel", ours_tokens(kind::local), &token_result::wakes},
        {"64 coroutines, pipe_channel", ours_tokens(kind::shared), &token_result::wakes},
    };
    const std::size_t increments = run.size() == scale::full ? 1'000'000 : increments_of(run);
    std::printf(
        "\nToken among 64, to %zu (published, to 1000000: 11250961 context switches and 14.62 s before, "
        "1212233 and 1.70 s after)\n%-52s %10s %10s %10s %10s %10s %9s %9s\n",
        increments, "", "reads", "wakes", "per read", "per incr.", "elapsed s", "ns/incr.", "fairness");
    for (const line& each : lines) {
        const token_result seen = each.play(increments);
        const auto wakes = static_cast<double>(seen.*each.wakes);
        const auto transfers = static_cast<double>(seen.increments);
        const auto elapsed = static_cast<double>(seen.elapsed.count());
        std::printf("%-52s %10llu %10llu %10.4f %10.4f %10.4f %9.1f %9.3f\n", each.name,
                    static_cast<unsigned long long>(seen.reads),
                    static_cast<unsigned long long>(seen.*each.wakes),
                    wakes / static_cast<double>(seen.reads), wakes / transfers, elapsed / 1e9,
                    elapsed / transfers, seen.fairness);
        std::fflush(stdout);
    }
}

void rows(suite& run) {
    run.section("512 bytes written and read back by one coroutine");
    run.compare({"pipe512_local_vs_kernel", ours_loop(kind::local), kernel_loop(), 0.045});
    run.compare({"pipe512_shared_vs_kernel", ours_loop(kind::shared), kernel_loop(), 0.06});

    run.section("chunks of 64 KiB, filled by memset and read by memchr, between two coroutines");
    run.compare({"bulk_copy_vs_kernel", ours_bulk(kind::shared), kernel_bulk(), 0.30});
    run.compare({"copy_local_vs_kernel", ours_bulk(kind::local), kernel_bulk(), {}});
    run.compare({"bulk_zerocopy_vs_kernel", ours_in_place(kind::shared), kernel_bulk(), 0.14});
    run.compare({"zerocopy_local_vs_kernel", ours_in_place(kind::local), kernel_bulk(), {}});
    run.compare({"bulk_copy_vs_memcpy", ours_bulk(kind::shared), memcpy_bulk(), 1.10});
    run.compare({"copy_local_vs_memcpy", ours_bulk(kind::local), memcpy_bulk(), {}});
}

// A count of wakes beside a count of reads, both of the same program.
void wakes_row(suite& run, const std::string& name, kind which, std::optional<double> bar) {
    const auto open = [which] { return ours_tokens(which); };
    row what{name, token_count("wakes", open, &token_result::wakes),
             token_count("one wake for each token read", open, &token_result::reads), bar};
    what.fixed_rounds = increments_of(run);
    what.unit = "wakes";
    run.compare(what);
}

// In a process of its own, on all CPUs: ours shall not become a program with threads by being compared.
contender tokens_on_threads() {
    contender who = served("64 threads, kernel pipe", executable_path(), "kernel_tokens");
    who.open = [open = who.open] {
        unpin();
        slice run = open();
        (void)pin_to_one_cpu();
        return run;
    };
    return who;
}

// A run during which another process took the CPU is played again, a few times: the suite does that only where it chooses
// the length.
token_program undisturbed(token_program play) {
    return [play = std::move(play)](std::size_t increments) {
        for (int patience = 5;; --patience) {
            const long switches_before = involuntary_switches();
            token_result seen = play(increments);
            if (patience == 0 || involuntary_switches() == switches_before) {
                return seen;
            }
        }
    };
}

void token_row(suite& run, const std::string& name, kind which, std::optional<double> bar) {
    row what{name, token_time("coroutines", [which] { return undisturbed(ours_tokens(which)); }),
             tokens_on_threads(), bar};
    what.fixed_rounds = increments_of(run); // the same program for both
    run.compare(what);
}

void token_rows(suite& run) {
    run.section("the token among 64 (no task may read less than 0.9 of what another does)");
    wakes_row(run, "token_wakes", kind::shared, 1.02);
    wakes_row(run, "token_wakes_local", kind::local, {});
    token_row(run, "token_vs_kernel", kind::shared, 0.035);
    token_row(run, "token_local_vs_kernel", kind::local, {});
}

// From its first thread on, a process needs atomic instructions in the lock of what its threads may share.
void rows_with_threads(suite& run) {
    std::thread([] {}).join();
    run.section("the same in a process that has had more than one thread");
    run.compare({"pipe512_threads_vs_kernel", ours_loop(kind::shared), kernel_loop(), {}});
    run.compare({"bulk_threads_vs_kernel", ours_bulk(kind::shared), kernel_bulk(), {}});
    token_row(run, "token_threads_vs_kernel", kind::shared, {});
}

} // namespace

int main(int argc, char** argv) {
    const options chosen = parse_options(argc, argv, "channels");
    if (!chosen.serve.empty()) {
        if (chosen.serve != "kernel_tokens") {
            std::fprintf(stderr, "nothing to serve under the name %s\n", chosen.serve.c_str());
            return EXIT_FAILURE;
        }
        return serve(token_time("kernel_tokens", kernel_tokens));
    }

    suite run("channels", chosen);
    print_conditions(pin_to_one_cpu());
    const bool everything = chosen.only.empty();
    if (everything) {
        throughput_table(run);
    }
    rows(run);
    token_rows(run);
    rows_with_threads(run);
    if (everything) {
        token_table(run);
    }
    return run.finish();
}
