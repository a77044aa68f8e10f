// What the property suite has found in the library, each as the shortest program that shows it.
#include "catch.hpp"

#include <nowait/blocking.hpp>
#include <nowait/nowait.hpp>
#include <nowait/simulation.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <utility>

using nowait::result;
using nowait::simulation;
using nowait::task;

namespace {

task<result<std::size_t>> read_once(nowait::pipe_reader& from) {
    std::string buffer(100, '\0');
    const std::span<std::byte> room = std::as_writable_bytes(std::span(buffer));
    co_return co_await from.read(room);
}

task<result<std::size_t>> splice_once(nowait::pipe_reader& from, nowait::pipe_writer& to) {
    co_return co_await nowait::splice(from, to, 100);
}

/// A splice waits for bytes, two readers wait behind it. Bytes and the end come as one event, and the splice finds no room.
task<void> end_behind_a_splice() {
    auto from = *nowait::make_pipe();
    auto to = *nowait::make_pipe({.capacity = 4096});
    const std::string page(4096, 'x');
    (void)co_await to.writer.write(page);
    auto splicing = nowait::spawn(splice_once(from.reader, to.writer));
    co_await nowait::yield();
    auto first = nowait::spawn(read_once(from.reader));
    auto second = nowait::spawn(read_once(from.reader));
    co_await nowait::yield();
    (void)co_await from.writer.write("bytes");
    (void)from.writer.close();
    auto bytes = co_await first.join();
    CHECK((bytes && *bytes == 5));
    auto end = co_await second.join();
    CHECK((end && *end == 0));
    (void)to.reader.close();
    auto spliced = co_await splicing.join();
    CHECK((spliced && !*spliced));
}

task<void> two_jobs(simulation& sim) {
    auto work = [] { return 1; };
    sim.faults().set(nowait::fault::no_thread, 1);
    auto refused = nowait::blocking(work);
    auto first = co_await std::move(refused);
    CHECK((!first && first.error() == std::errc::resource_unavailable_try_again));
    sim.faults().set(nowait::fault::no_thread, 0);
    auto soon_after = nowait::blocking(work);
    auto second = co_await std::move(soon_after);
    CHECK((second && *second == 1));
}

/// A poll is refused for want of memory, once.
task<void> two_waits(simulation& sim) {
    auto pipe = *nowait::make_pipe();
    std::string buffer(10, '\0');
    const std::span<std::byte> room = std::as_writable_bytes(std::span(buffer));
    sim.faults().set(nowait::fault::no_memory, 1);
    auto refused = co_await pipe.reader.read(room);
    CHECK((!refused && refused.error() == std::errc::not_enough_memory));
    sim.faults().set(nowait::fault::no_memory, 0);
    auto waiting = nowait::spawn(read_once(pipe.reader));
    co_await nowait::yield();
    (void)co_await pipe.writer.write("x");
    auto got = co_await waiting.join();
    CHECK((got && *got == 1));
}

} // namespace

TEST_CASE("a wait that was refused for want of memory is no reason to refuse the next one") {
    simulation sim({.any_order = false});
    CHECK(sim.run(two_waits(sim)).has_value());
}

TEST_CASE("the end of a stream reaches a reader behind a splice that waits for room") {
    // On Linux, and in the simulation, in the order of a real loop.
    auto real = nowait::run(end_behind_a_splice());
    CHECK(real.has_value());
    simulation sim({.any_order = false});
    CHECK(sim.run(end_behind_a_splice()).has_value());
}

TEST_CASE("work that comes soon after a thread was refused gets one") {
    simulation sim;
    CHECK(sim.run(two_jobs(sim)).has_value());
}
