// Calls of the simulated system that wait, on the simulated workers: openings of FIFOs and blocked receivers of queues.
#include "catch.hpp"
#include "child_process.hpp"
#include "runtime/simulated_world.hpp"

#include <nowait/blocking.hpp>
#include <nowait/nowait.hpp>
#include <nowait/simulation.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <fcntl.h>

using namespace std::chrono_literals;
using nowait::result;
using nowait::simulation;
using nowait::task;

namespace {

/// open(2) on a worker, as a program would write it.
task<result<int>> opens(simulation& sim, const char* path, int flags) {
    auto call = [&sim, path, flags](nowait::interruption asked) -> result<int> {
        for (;;) {
            const int fd = sim.system().open(path, flags, 0);
            if (fd >= 0)
                return fd;
            if (fd != -EINTR || asked.requested())
                return nowait::fail_errno(-fd);
        }
    };
    auto what = nowait::blocking(nowait::interruptible, call);
    co_return co_await std::move(what);
}

/// Opens for writing long before anybody reads, or the other way round.
task<> meets(simulation& sim, int first_flags, int second_flags) {
    REQUIRE(nowait::make_fifo("/meeting").has_value());
    auto first = nowait::spawn(opens(sim, "/meeting", first_flags));
    (void)co_await nowait::sleep_for(1h);
    CHECK_FALSE(first.done());
    auto second = co_await opens(sim, "/meeting", second_flags);
    auto opened = co_await first.join();
    REQUIRE((second.has_value() && opened.has_value() && opened->has_value()));
    CHECK(sim.elapsed() >= 1h);
    (void)sim.system().close(*second);
    (void)sim.system().close(**opened);
}

/// The first to wait is not the first to be met: jobs wait beside one another, not on top of one another.
task<> crosses(simulation& sim, std::vector<int>& order) {
    for (const char* path : {"/a", "/b", "/c"})
        REQUIRE(nowait::make_fifo(path).has_value());
    auto waits = [](simulation& in, const char* path, int number, std::vector<int>& out) -> task<> {
        auto fd = co_await opens(in, path, O_WRONLY);
        CHECK(fd.has_value());
        out.push_back(number);
        (void)in.system().close(fd.value_or(-1));
    };
    auto a = nowait::spawn(waits(sim, "/a", 1, order));
    (void)co_await nowait::sleep_for(1s);
    auto b = nowait::spawn(waits(sim, "/b", 2, order));
    (void)co_await nowait::sleep_for(1s);
    auto c = nowait::spawn(waits(sim, "/c", 3, order));
    (void)co_await nowait::sleep_for(1s);
    for (const char* path : {"/b", "/a", "/c"}) {
        auto reader = nowait::open_reader(path);
        CHECK(reader.has_value());
        (void)co_await nowait::sleep_for(1s);
    }
    (void)co_await a.join();
    (void)co_await b.join();
    (void)co_await c.join();
}

task<> gives_up(simulation& sim) {
    REQUIRE(nowait::make_fifo("/nobody").has_value());
    auto opening = nowait::open_writer("/nobody");
    auto limited = nowait::with_timeout(std::move(opening), 10min);
    auto opened = co_await std::move(limited);
    CHECK((!opened && opened.error() == std::errc::timed_out));
    CHECK(sim.elapsed() >= 10min);
    // Nothing of it is left: a reader finds no writer, and another writer would wait again.
    const int reader = sim.system().open("/nobody", O_RDONLY | O_NONBLOCK, 0);
    REQUIRE(reader >= 0);
    CHECK(static_cast<nowait::detail::simulated_pipe&>(*sim.world().kernel.description_of(reader)->of)
              .ring.writers() == 0);
    (void)sim.system().close(reader);
}

task<> library_meets() {
    REQUIRE(nowait::make_fifo("/library").has_value());
    auto writes = [](std::string what) -> task<result<std::size_t>> {
        auto opening = nowait::open_writer("/library");
        auto writer = co_await std::move(opening);
        if (!writer)
            co_return nowait::fail(writer.error());
        co_return co_await writer->write(what);
    };
    auto writing = nowait::spawn(writes("a line"));
    (void)co_await nowait::sleep_for(1min);
    auto reader = nowait::open_reader("/library");
    REQUIRE(reader.has_value());
    std::string buffer(100, '\0');
    auto n = co_await reader->read(std::as_writable_bytes(std::span(buffer)));
    CHECK((n && *n == 6));
    auto wrote = co_await writing.join();
    CHECK(wrote->has_value());
}

} // namespace

TEST_CASE("an opening of a FIFO waits for its partner on a simulated worker") {
    const auto flags = GENERATE(std::pair(O_WRONLY, O_RDONLY), std::pair(O_RDONLY, O_WRONLY));
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        simulation sim({.seed = seed, .faults = nowait::fault_schedule::unnoticed(0.05)});
        CHECK(sim.run(meets(sim, flags.first, flags.second)).has_value());
        CHECK(sim.open_descriptors() == 0);
    }
}

TEST_CASE("the library's own opening of a FIFO waits in the simulation as it does on Linux") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        simulation sim({.seed = seed});
        CHECK(sim.run(library_meets()).has_value());
    }
}

TEST_CASE("jobs that wait in a simulated call go on in the order of what they wait for") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        simulation sim({.seed = seed});
        std::vector<int> order;
        CHECK(sim.run(crosses(sim, order)).has_value());
        CHECK(order == std::vector<int>{2, 1, 3});
    }
}

TEST_CASE("a stop interrupts a call that waits in the simulation") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        simulation sim({.seed = seed});
        CHECK(sim.run(gives_up(sim)).has_value());
    }
}

TEST_CASE("a call that nothing will end is a deadlock, and the end of the simulation ends it") {
    simulation sim({.explain = false});
    REQUIRE(sim.system().make_fifo("/dead", 0600) == 0);
    const auto ran = sim.run(opens(sim, "/dead", O_WRONLY));
    CHECK((!ran && ran.error() == std::errc::resource_deadlock_would_occur));
}

TEST_CASE("a job that cannot be interrupted returns at the end of the simulation") {
    // Its frame may have been lent to it, and stays: so in a child, which ends without anybody looking.
    const auto end = nowait_test::in_child([] {
        bool returned = false;
        {
            simulation sim({.explain = false});
            if (sim.system().make_fifo("/dead", 0600) != 0)
                return 1;
            auto ran = sim.run([](simulation& in, bool& out) -> task<> {
                auto call = [&in, &out] {
                    while (in.system().open("/dead", O_WRONLY, 0) == -EINTR) {
                    }
                    out = true;
                };
                auto what = nowait::blocking(call).account(nowait::work_account::unbounded);
                (void)co_await std::move(what);
            }(sim, returned));
            if (ran)
                return 2;
        }
        return returned ? 0 : 3;
    });
    CHECK(end.exit_code == 0);
}

TEST_CASE("runs with calls that wait are the same each time") {
    const auto hash = [] {
        simulation sim({.seed = 5, .faults = nowait::fault_schedule::unnoticed(0.1)});
        std::vector<int> order;
        CHECK(sim.run(crosses(sim, order)).has_value());
        return sim.trace_hash();
    };
    const std::uint64_t first = hash();
    for (int i = 0; i < 5; ++i)
        CHECK(hash() == first);
}
