// bench_runtime: tasks, timers, races and posts beside Asio's. No kernel object is touched.
#include "allocations.hpp"
#include "bench/support/process.hpp"
#include "bench/support/suite.hpp"
#include "contenders.hpp"
#include "posting.hpp"
#include "several.hpp"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>

#include <sys/utsname.h>

namespace bench::runtime {

void give_up(std::string_view what) {
    std::fprintf(stderr, "bench_runtime: %.*s failed\n", static_cast<int>(what.size()), what.data());
    std::exit(EXIT_FAILURE);
}

} // namespace bench::runtime

namespace {

using namespace bench;
using namespace bench::runtime;

struct line {
    const char* name;
    subject what;
    double bar;
};
constexpr line one_cpu[] = {
    {"spawn_join_vs_asio", subject::spawn_join, 0.05},
    {"yield_vs_asio", subject::yield, 0.04},
    {"child_await_vs_asio", subject::child_await, 0.70},
    {"when_any_vs_asio", subject::when_any, 0.25},
    {"timer_vs_asio", subject::timer, 0.15},
};
constexpr line two_cpus{"post_crossthread_vs_asio", subject::post, 0.2};

void print_conditions(int cpu) {
    utsname system{};
    ::uname(&system);
    std::printf("Linux %s, compiler %s; one CPU (%d), except for post_crossthread.\n", system.release,
                __VERSION__, cpu);
    std::printf("spawn_join: 1,000 tasks spawned, then joined. yield: 64 tasks.\n");
    std::printf("when_any: a timer of an hour and one that is due. timer: one cancelled and set again beside "
                "1,000,000.\n");
}

// Allocations of ours in a slice, after one that warms up.
void print_allocations(const suite& run, const line& of) {
    if (!run.wants(of.name)) {
        return;
    }
    const std::size_t rounds = 20'000;
    const slice slice_of = ours(of.what).open();
    for (int warm = 0; warm < 3; ++warm) {
        (void)slice_of(rounds);
    }
    count_allocations();
    (void)slice_of(rounds);
    const std::size_t seen = counted_allocations();
    // Running a root task takes one join state, which comes from the allocator outside of the loop.
    std::printf("  %-26s %zu calls of malloc in %zu rounds\n", of.name, seen, rounds);
}

void print_footprint(scale size) {
    const std::size_t how_many = size == scale::smoke ? 10'000 : 1'000'000;
    const footprint bytes = measure_footprint(how_many);
    std::printf("\nMemory, bytes each, %zu at once (with what the allocator adds):\n", how_many);
    std::printf("  a task that was made and not started            %6.0f\n", bytes.task);
    std::printf("  a coroutine that waits on a channel             %6.0f, of which the operation %zu\n",
                bytes.waits_on_channel, bytes.channel_wait);
    std::printf("  a coroutine that sleeps                         %6.0f, of which the operation %zu\n",
                bytes.waits_on_timer, bytes.timer);
    std::printf("  a timer without a coroutine                     %6zu\n", bytes.timer);
}

} // namespace

int main(int argc, char** argv) {
    const options chosen = parse_options(argc, argv, "runtime");
    suite run("runtime", chosen);
    print_conditions(pin_to_one_cpu());

    run.section("one CPU");
    for (const line& each : one_cpu) {
        run.compare({each.name, ours(each.what), asio_twin(each.what, false), each.bar});
    }
    run.section("one task at a time, and Asio tuned: reported");
    run.compare({"spawn_join_one_vs_asio",
                 ours(subject::spawn_join_one),
                 asio_twin(subject::spawn_join_one, false),
                 {}});
    run.compare(
        {"yield_alone_vs_asio", ours(subject::yield_alone), asio_twin(subject::yield_alone, false), {}});
    for (const line& each : one_cpu) {
        run.compare({std::string(each.name) + "_tuned", ours(each.what), asio_twin(each.what, true), {}});
    }
    run.section("two threads, two CPUs");
    unpin();
    pin_to(0);
    run.compare({two_cpus.name, ours(two_cpus.what), asio_twin(two_cpus.what, false), two_cpus.bar});
    compare_several(run);

    std::printf("\nAllocations of ours, once warm:\n");
    for (const line& each : one_cpu) {
        print_allocations(run, each);
    }
    print_allocations(run, two_cpus);
    if (chosen.only.empty()) {
        print_footprint(chosen.size);
    }
    return run.finish();
}
