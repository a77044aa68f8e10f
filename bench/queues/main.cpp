// bench_queues: the in-process channels beside Asio's, a heap under a mutex, TBB, Boost and the kernel's queue.
#include "baselines.hpp"
#include "bench/support/process.hpp"
#include "bench/support/statistics.hpp"
#include "bench/support/suite.hpp"
#include "ours.hpp"
#include "posix.hpp"
#include "threads.hpp"

#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <sys/utsname.h>

namespace {

using namespace bench;
using namespace bench::queues;

void print_conditions(int cpu) {
    utsname system{};
    ::uname(&system);
    std::printf("Linux %s, compiler %s; one CPU (%d), except for the rows between threads.\n", system.release,
                __VERSION__, cpu);
    std::printf("An operation is one message sent and received; messages of 16 bytes, or ints.\n");
}

// A few slices, for choosing among baselines and patterns: what is reported is measured afresh.
double glance(const contender& who, std::size_t rounds) {
    const slice run = who.open();
    (void)run(rounds);
    std::vector<double> samples;
    for (int i = 0; i < 3; ++i) {
        samples.push_back(run(rounds).per_operation());
    }
    return quantile(samples, 0.5);
}

contender faster_heap(pattern which, std::size_t depth) {
    const std::size_t rounds = depth == 0 ? 50'000 : 20'000;
    contender heap = heap_locked(which, depth);
    contender tbb = tbb_queue(which, depth);
    return glance(heap, rounds) <= glance(tbb, rounds) ? heap : tbb;
}

using side = std::function<contender(pattern)>;

// The row of the pattern that looks worst for us.
void worst_pattern(suite& run, const std::string& name, const side& ours, const side& baseline, double bar) {
    if (!run.wants(name)) {
        return;
    }
    pattern worst = pattern::constant;
    double worst_ratio = 0;
    for (pattern each : every_pattern) {
        const double ratio = glance(ours(each), 20'000) / glance(baseline(each), 20'000);
        if (ratio > worst_ratio) {
            worst_ratio = ratio;
            worst = each;
        }
    }
    contender chosen = ours(worst);
    chosen.name += ", " + std::string(name_of(worst));
    run.compare({name, chosen, baseline(worst), bar});
}

side ours_empty(kind which_queue) {
    return [=](pattern which) { return ours_pairs(which_queue, which, 0); };
}

void message_rows(suite& run) {
    run.section("ints, 64 places, two coroutines on one runtime");
    run.compare({"int_shared_vs_asio", ours_ints(kind::shared_tree), asio_ints(), 0.09});
    run.compare({"int_local_vs_asio", ours_ints(kind::local_tree), asio_ints(), 0.07});
    run.compare({"int_shared_bitmap_vs_asio", ours_ints(kind::shared_bitmap), asio_ints(), {}});
    run.compare({"int_local_bitmap_vs_asio", ours_ints(kind::local_bitmap), asio_ints(), {}});
    run.compare({"fifo_shared_vs_asio", ours_fifo(true), asio_ints(), 0.07});
    run.compare({"fifo_local_vs_asio", ours_fifo(false), asio_ints(), 0.05});
}

void empty_rows(suite& run) {
    run.section("empty queue, one coroutine sends and receives: the worst of four patterns");
    worst_pattern(run, "mq_empty_shared_vs_kernel", ours_empty(kind::shared_tree), kernel_queue, 0.018);
    worst_pattern(run, "mq_empty_local_vs_kernel", ours_empty(kind::local_tree), kernel_queue, 0.012);
    const side local_heap = [](pattern which) { return heap_local(which, 0); };
    worst_pattern(run, "mq_empty_local_vs_heap", ours_empty(kind::local_tree), local_heap, 0.9);
    worst_pattern(run, "mq_empty_local_bitmap_vs_heap", ours_empty(kind::local_bitmap), local_heap, 0.9);
}

void full_rows(suite& run) {
    run.section("65,527 deep, refilled for every stretch: against the faster of heap + mutex and TBB");
    for (pattern each : every_pattern) {
        const std::string bitmap = "mq_full_" + std::string(name_of(each));
        const std::string tree = "mq_full_tree_" + std::string(name_of(each));
        if (!run.wants(bitmap) && !run.wants(tree)) {
            continue;
        }
        const contender heap = faster_heap(each, full_depth);
        const bool steps = each == pattern::increasing || each == pattern::decreasing;
        run.compare({bitmap, ours_pairs(kind::shared_bitmap, each, full_depth), heap, 0.40});
        row by_tree{tree, ours_pairs(kind::shared_tree, each, full_depth), heap, steps ? 0.55 : 0.40};
        if (each == pattern::random) {
            by_tree.bar.reset();
        }
        run.compare(by_tree);
    }

    run.section("depth, caches, Boost");
    run.compare({"mq_depth_local",
                 ours_pairs(kind::local_tree, pattern::constant, full_depth),
                 ours_pairs(kind::local_tree, pattern::constant, 0),
                 {}});
    run.compare({"mq_nodecache",
                 ours_pairs(kind::shared_uncached, pattern::increasing, 0),
                 ours_pairs(kind::shared_tree, pattern::increasing, 0),
                 {}});
    // Boost shifts its index at every insertion: a whole cycle of priorities, or the row shows one place of it.
    const std::size_t depth = run.size() == scale::smoke ? 1'023 : full_depth;
    row boost{"mq_vs_boost", ours_pairs(kind::shared_tree, pattern::increasing, depth),
              boost_queue(pattern::increasing, depth), 0.02};
    boost.fixed_rounds = priorities;
    run.compare(boost);
}

void posix_rows(suite& run) {
    run.section("the kernel's queue: one coroutine sends and receives, and two processes send to and fro");
    run.compare({"posix_ready_vs_raw", posix_ready_ours(), posix_ready_raw(), 1.05});
    run.compare({"posix_wait_vs_thread", posix_wait_ours(), posix_wait_thread(), 1.5});
    run.compare({"posix_wait_both_vs_threads", posix_wait_ours_both(), posix_wait_thread(), {}});
}

// What is shared is shared by threads. A process that has had a second one uses the locks' atomic instructions from then on, ours
// and the C library's: so these rows come after those of one thread.
void rows_in_company(suite& run) {
    const company awaited_by_nobody;
    run.section("shared queues, in a process with a second thread, asleep");
    const side best_heap = [](pattern which) { return faster_heap(which, 0); };
    worst_pattern(run, "mq_empty_shared_vs_heap", ours_empty(kind::shared_tree), best_heap, 1.1);
    worst_pattern(run, "mq_empty_shared_bitmap_vs_heap", ours_empty(kind::shared_bitmap), best_heap, 1.1);
    run.compare({"mq_depth", ours_pairs(kind::shared_tree, pattern::constant, full_depth),
                 ours_pairs(kind::shared_tree, pattern::constant, 0), 1.15});
    for (pattern each : every_pattern) {
        const std::string name = "mq_full_" + std::string(name_of(each)) + "_in_company";
        if (run.wants(name)) {
            run.compare(
                {name, ours_pairs(kind::shared_bitmap, each, full_depth), faster_heap(each, full_depth), {}});
        }
    }
}

void thread_rows(suite& run) {
    unpin();
    run.section("ints, 64 places, between two runtimes on two threads");
    for (const bool two_cpus : {true, false}) {
        const std::string name = two_cpus ? "cross_2cpu_vs_asio" : "cross_1cpu_vs_asio";
        if (!run.wants(name)) {
            continue;
        }
        const auto ours = std::make_shared<cpu_time>();
        const auto theirs = std::make_shared<cpu_time>();
        run.compare({name, ours_cross(two_cpus, ours), asio_cross(two_cpus, theirs), 0.40});
        const auto each = [](const cpu_time& used) {
            return static_cast<double>(used.spent.count()) / static_cast<double>(used.messages);
        };
        std::printf("  %s, CPU time of both threads, ns per message: ours %.0f, asio %.0f\n", name.c_str(),
                    each(*ours), each(*theirs));
    }
}

void published_tables(const suite& run) {
    if (run.size() == scale::smoke) {
        return;
    }
    const fine_clock clock;
    std::vector<published_line> lines;
    for (kind each : {kind::shared_tree, kind::shared_bitmap, kind::local_tree, kind::local_bitmap,
                      kind::shared_uncached}) {
        lines.push_back(ours_line(each, clock));
    }
    lines.push_back(heap_locked_line(clock));
    lines.push_back(tbb_line(clock));
    lines.push_back(boost_line(clock));
    lines.push_back(kernel_line(clock));

    std::printf(
        "\nS3, ns per message, send/recv (published for the kernel, 65,528 deep: 349/318 empty, 362/314 "
        "constant, 495/445 increasing, 482/409 decreasing, 546/436 random)\n");
    std::printf("  %-30s %9s %13s %13s %13s %13s %13s\n", "", "depth", "empty", "constant", "increasing",
                "decreasing", "random");
    for (const published_line& line : lines) {
        std::printf("  %-30s %9zu", line.who.c_str(), line.depth);
        for (std::size_t i = 0; i < line.send.size(); ++i) {
            std::printf(" %6.0f/%-6.0f", line.send[i], line.receive[i]);
        }
        std::printf("\n");
    }
    std::printf("\nS3, fill/drain, ns per message (published, seconds for 65,528: .13/.12 constant, .21/.18 "
                "increasing, .21/.18 decreasing, .22/.17 random)\n");
    std::printf("  %-30s %9s %13s %13s %13s %13s\n", "", "depth", "constant", "increasing", "decreasing",
                "random");
    for (const published_line& line : lines) {
        std::printf("  %-30s %9zu", line.who.c_str(), line.depth);
        for (std::size_t i = 0; i < line.fill.size(); ++i) {
            std::printf(" %6.0f/%-6.0f", line.fill[i], line.drain[i]);
        }
        std::printf("\n");
    }
}

} // namespace

int main(int argc, char** argv) {
    const options chosen = parse_options(argc, argv, "queues");
    suite run("queues", chosen);
    print_conditions(pin_to_one_cpu());
    if (chosen.only.empty()) {
        published_tables(run);
    }
    message_rows(run);
    empty_rows(run);
    full_rows(run);
    posix_rows(run);
    rows_in_company(run);
    thread_rows(run);
    return run.finish();
}
