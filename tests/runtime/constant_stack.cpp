// A loop of a million awaits and a chain of a hundred thousand children need no stack, whatever the compiler's mood.
#include "runs.hpp"
#include "stack_probe.hpp"

#include <nowait/pipe.hpp>
#include <nowait/sleep.hpp>

#include <array>
#include <cstddef>

#include <pthread.h>

using nowait::task;
using nowait_test::run_on_new;
using nowait_test::stack_probe;

namespace {

// What the parts of one pass of the loop may differ by: the same functions, entered from different places.
constexpr std::size_t constant = 4096;

task<int> immediate(int n, stack_probe& probe) {
    probe.touch();
    co_return n & 1;
}

task<long> awaits(int rounds, stack_probe& probe) {
    long sum = 0;
    for (int i = 0; i < rounds; ++i) {
        const int n = co_await immediate(i, probe);
        sum += n;
        probe.touch();
    }
    co_return sum;
}

task<int> chain(int depth, stack_probe& probe) {
    probe.touch();
    if (depth == 0)
        co_return 0;
    const int below = co_await chain(depth - 1, probe);
    probe.touch();
    co_return below + 1;
}

task<> inline_reads(int rounds, stack_probe& probe) {
    nowait::pipe_pair pipe = nowait::make_pipe().value();
    std::array<std::byte, 1> byte{};
    for (int i = 0; i < rounds; ++i) {
        const auto wrote = co_await pipe.writer.write(byte);
        const auto got = co_await pipe.reader.read(byte);
        if (!wrote || !got) {
            CHECK(wrote.has_value());
            CHECK(got.has_value());
            co_return;
        }
        probe.touch();
    }
    const auto stats = nowait::current_stats();
    const auto& reads = stats.of(nowait::operation_kind::read);
    CHECK(reads.inline_completions + reads.budget_yields >= static_cast<std::uint64_t>(rounds));
    CHECK(stats.of(nowait::operation_kind::read).nowait_misses == 0);
}

} // namespace

TEST_CASE("a million awaits of children that end at once use constant stack") {
    stack_probe probe;
    CHECK(run_on_new(awaits(1'000'000, probe)) == 500'000);
    CHECK(probe.depth() < constant);
}

TEST_CASE("a million operations that finish inline use constant stack") {
    stack_probe probe;
    run_on_new(inline_reads(500'000, probe)); // a write and a read each
    CHECK(probe.depth() < constant);
}

TEST_CASE("a chain of a hundred thousand children uses constant stack") {
    stack_probe probe;
    CHECK(run_on_new(chain(100'000, probe)) == 100'000);
    CHECK(probe.depth() < constant);
}

TEST_CASE("a thread with a stack of 64 KiB is enough") {
    // Sanitizers need stack of their own for their reports; the loop itself is what is measured.
    struct outcome {
        stack_probe probe;
        bool ok = false;
    } seen;
    pthread_attr_t attributes;
    REQUIRE(::pthread_attr_init(&attributes) == 0);
    REQUIRE(::pthread_attr_setstacksize(&attributes, 65536) == 0);
    pthread_t thread;
    REQUIRE(::pthread_create(
                &thread, &attributes,
                [](void* argument) -> void* {
                    auto& to = *static_cast<outcome*>(argument);
                    auto runs = nowait::runtime::create();
                    if (!runs)
                        return nullptr;
                    const auto sum = runs->run(awaits(100'000, to.probe));
                    const auto depth = runs->run(chain(10'000, to.probe));
                    to.ok = sum && depth && *sum == 50'000 && *depth == 10'000;
                    return nullptr;
                },
                &seen) == 0);
    ::pthread_join(thread, nullptr);
    ::pthread_attr_destroy(&attributes);
    CHECK(seen.ok);
    CHECK(seen.probe.depth() < constant);
}
