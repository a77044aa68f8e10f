// bench_pool: work for other threads, beside Asio's thread pool.
#include "bench/support/process.hpp"
#include "bench/support/suite.hpp"
#include "pool.hpp"

#include <cstdio>

#include <sys/utsname.h>

int main(int argc, char** argv) {
    using namespace bench;
    using namespace bench::pool;

    suite run("pool", parse_options(argc, argv, "pool"));
    utsname system{};
    ::uname(&system);
    // On one CPU nobody spins: a loop that waits for a thread on its own CPU would only keep it from running.
    std::printf("Linux %s, compiler %s; one CPU (%d), up to %zu workers.\n", system.release, __VERSION__,
                pin_to_one_cpu(), threads);
    std::printf("An operation is one function run by a worker, and its end back on the loop.\n");

    run.section("one at a time");
    run.compare({"blocking_vs_asio_1", ours(1), asio_coroutines(1), 1.05});
    run.compare({"blocking_vs_asio_handlers_1", ours(1), asio_handlers(1), {}});
    run.section("1,000 in flight");
    run.compare({"blocking_vs_asio_1000", ours(1000), asio_coroutines(1000), 0.60});
    run.compare({"blocking_vs_asio_handlers_1000", ours(1000), asio_handlers(1000), {}});
    return run.finish();
}
