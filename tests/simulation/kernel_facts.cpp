// What the simulated kernel knows beyond single calls: who holds what, FIFOs, notifications, files that the driver reads, workers.
#include "catch.hpp"

#include <nowait/blocking.hpp>
#include <nowait/fifo.hpp>
#include <nowait/mqueue_notification.hpp>
#include <nowait/nowait.hpp>
#include <nowait/posix_mqueue.hpp>
#include <nowait/simulation.hpp>

#include <chrono>
#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>

using namespace std::chrono_literals;
using nowait::fault;
using nowait::result;
using nowait::simulation;
using nowait::task;

namespace {

std::span<std::byte> room(std::string& text) {
    return std::as_writable_bytes(std::span(text));
}

task<void> read_end_waits(simulation& sim, bool& hidden) {
    auto pipe = *nowait::make_pipe();
    const int number = pipe.writer.native_handle();
    std::string byte(1, '\0');
    const auto to_nowhere = room(byte);
    auto waited = co_await nowait::with_timeout(pipe.reader.read(to_nowhere), 1ms); // leaves an armed poll
    CHECK((!waited && waited.error() == std::errc::timed_out));
    // Closed behind the library's back while a poll is armed on it, the read end has not gone.
    (void)sim.system().close(pipe.reader.native_handle());
    hidden = (sim.system().ready(number, POLLOUT) & POLLERR) == 0;
    (void)pipe.reader.close(); // lets go of it
    co_await nowait::yield();
    CHECK((sim.system().ready(number, POLLOUT) & POLLERR) != 0);
}

task<void> through_a_fifo(simulation& sim) {
    CHECK(sim.system().make_fifo("/fifo", 0600) == 0);
    CHECK(sim.system().make_fifo("/fifo", 0600) == -EEXIST);
    auto nobody_reads = nowait::try_open_writer("/fifo");
    CHECK((!nobody_reads && nobody_reads.error() == std::errc::no_such_device_or_address));
    auto reader = *nowait::open_reader("/fifo");
    // Nobody has written yet: that is not the end of the stream.
    std::string text(10, '\0');
    const auto into = room(text);
    auto nothing = co_await nowait::with_timeout(reader.read(into), 1ms);
    CHECK((!nothing && nothing.error() == std::errc::timed_out));
    auto writer = *nowait::try_open_writer("/fifo");
    (void)co_await writer.write("words");
    (void)writer.close();
    auto words = co_await reader.read(into);
    CHECK((words && *words == 5));
    auto end = co_await nowait::with_timeout(reader.read(into), 1ms);
    CHECK((end && *end == 0));
}

task<void> one_notification() {
    auto queue = *nowait::posix_mqueue::open("/notices", {.how = nowait::mqueue_open::create});
    auto notice = queue.notify();
    REQUIRE(notice);
    auto busy = queue.notify();
    CHECK((!busy && busy.error() == std::errc::device_or_resource_busy));
    auto nothing = co_await nowait::with_timeout(notice->arrived(), 1s);
    CHECK((!nothing && nothing.error() == std::errc::timed_out));
    (void)co_await queue.send("news", 3);
    auto arrived = co_await notice->arrived();
    CHECK(arrived.has_value());
    CHECK(notice->renew());
    auto got = co_await queue.receive();
    CHECK((got && got->priority == 3 && got->value.size() == 4));
    CHECK(nowait::posix_mqueue::unlink("/notices"));
}

task<void> file_that_is_not_in_memory(simulation& sim) {
    const int fd = sim.system().open("/data", O_RDWR | O_CREAT, 0600);
    REQUIRE(fd >= 1000);
    auto file = *nowait::pipe_writer::adopt(fd);
    const auto written = co_await nowait::write_all(file, std::as_bytes(std::span("0123456789", 10)));
    CHECK((written.bytes == 10 && !written.error));
    auto reader = *nowait::pipe_reader::adopt(sim.system().open("/data", O_RDONLY, 0));
    std::string text(10, '?');
    const auto into = room(text);
    auto got = co_await reader.read(into); // by the driver
    CHECK((got && *got == 10 && text == "0123456789"));
    CHECK(reader.method() == "ring");
}

task<void> jobs(std::set<int>& ran) {
    std::vector<nowait::task<void>> parts;
    for (int i = 0; i < 10; ++i)
        parts.push_back([](int number, std::set<int>& into) -> task<void> {
            auto work = [number] { return number; };
            auto what = nowait::blocking(work);
            auto did = co_await std::move(what);
            into.insert(did.value_or(-1));
        }(i, ran));
    (void)co_await nowait::when_all(std::move(parts));
}

} // namespace

TEST_CASE("an end that is polled has not gone, in the simulated kernel as on Linux") {
    simulation sim;
    bool hidden = false;
    CHECK(sim.run(read_end_waits(sim, hidden)).has_value());
    CHECK(hidden);
}

TEST_CASE("simulated FIFOs: no reader, no writer yet, and the end") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        simulation sim({.seed = seed});
        CHECK(sim.run(through_a_fifo(sim)).has_value());
        CHECK(sim.open_descriptors() == 0);
    }
}

TEST_CASE("notifications of simulated queues arrive once, and again when they are renewed") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        simulation sim({.seed = seed});
        CHECK(sim.run(one_notification()).has_value());
        CHECK(sim.open_descriptors() == 0);
    }
}

TEST_CASE("a simulated file that is not in memory is read by the driver") {
    nowait::fault_schedule faults;
    faults.set(fault::not_in_cache, 1);
    simulation sim({.faults = faults});
    CHECK(sim.run(file_that_is_not_in_memory(sim)).has_value());
    CHECK(sim.happened(fault::not_in_cache) > 0);
}

TEST_CASE("jobs run on simulated workers, and some of them although threads are refused") {
    std::uint64_t refused = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        nowait::fault_schedule faults;
        faults.set(fault::no_thread, seed % 2 == 0 ? 0.5 : 0);
        simulation sim({.seed = seed, .faults = faults});
        std::set<int> ran;
        CHECK(sim.run(jobs(ran)).has_value());
        refused += sim.happened(fault::no_thread);
        // A job that finds no worker at all says so.
        if (sim.happened(fault::no_thread) == 0)
            CHECK((ran.size() == 10 && ran.count(-1) == 0));
    }
    CHECK(refused > 0);
}
