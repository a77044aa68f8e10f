// Waiting, event by event: what the driver says, in whatever order a kernel might say it.
#include "fake_driver.hpp"
#include "runs.hpp"

#include <nowait/pipe.hpp>
#include <nowait/sleep.hpp>
#include <nowait/timeout.hpp>
#include <nowait/when_all.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <poll.h>

using nowait::operation_kind;
using nowait::runtime;
using nowait::task;
using nowait_test::fake_world;
using namespace std::chrono_literals;

namespace {

std::string text_of(const std::array<std::byte, 16>& buffer, std::size_t size) {
    return {reinterpret_cast<const char*>(buffer.data()), size};
}

task<std::string> reads(nowait::pipe_reader& from) {
    std::array<std::byte, 16> buffer{};
    const auto got = co_await from.read(buffer);
    co_return got ? text_of(buffer, *got) : got.error().message();
}

/// Reads until the end of the stream.
task<> collects(nowait::pipe_reader& from, std::string& to) {
    std::array<std::byte, 16> buffer{};
    for (;;) {
        const auto got = co_await from.read(buffer);
        if (!got || *got == 0)
            co_return;
        to += text_of(buffer, *got);
    }
}

/// One byte at a time, each after everybody else has run.
task<> dribbles(nowait::pipe_writer to, int count) {
    for (int i = 0; i < count; ++i) {
        const char letter = static_cast<char>('a' + i % 26);
        (void)co_await to.write(std::string_view(&letter, 1));
        for (int k = 0; k < 3; ++k)
            co_await nowait::yield();
        (void)co_await nowait::sleep_for(1us); // a pass of the loop
    }
}

std::string alphabet(int count) {
    std::string all;
    for (int i = 0; i < count; ++i)
        all += static_cast<char>('a' + i % 26);
    return all;
}

struct pipe_in {
    explicit pipe_in(runtime& on) {
        auto made =
            on.run([]() -> task<nowait::result<nowait::pipe_pair>> { co_return nowait::make_pipe(); }());
        pair = std::move(made.value().value());
    }
    nowait::pipe_pair pair;
};

} // namespace

TEST_CASE("a poll that keeps reporting is armed once") {
    fake_world world;
    runtime runs = world.make();
    pipe_in pipe(runs);
    std::string got;
    auto reader = runs.spawn(collects(pipe.pair.reader, got));
    runs.spawn(dribbles(std::move(pipe.pair.writer), 100)).detach();
    REQUIRE(runs.run().has_value());
    CHECK(got == alphabet(100));
    CHECK(world.driver->arms == 1);
}

TEST_CASE("a poll that ends early is armed again, no byte lost or repeated") {
    fake_world world;
    runtime runs = world.make();
    pipe_in pipe(runs);
    world.driver->early_ends = 7;
    std::string got;
    auto reader = runs.spawn(collects(pipe.pair.reader, got));
    runs.spawn(dribbles(std::move(pipe.pair.writer), 100)).detach();
    REQUIRE(runs.run().has_value());
    CHECK(got == alphabet(100));
    CHECK(world.driver->early_ends == 0);
    CHECK(world.driver->arms > 1);
    CHECK(world.driver->arms <= 8);
}

TEST_CASE("one-shot polls do the same work with more arming") {
    fake_world world;
    runtime runs = world.make();
    world.driver->multishot = false;
    pipe_in pipe(runs);
    std::string got;
    auto reader = runs.spawn(collects(pipe.pair.reader, got));
    runs.spawn(dribbles(std::move(pipe.pair.writer), 100)).detach();
    REQUIRE(runs.run().has_value());
    CHECK(got == alphabet(100));
    CHECK(world.driver->arms > 1);
    CHECK(world.driver->arms <= 101);
}

TEST_CASE("a poll that is refused ends the waiter with the reason, and is not asked for without end") {
    fake_world world;
    runtime runs = world.make();
    pipe_in pipe(runs);
    world.driver->refusals = {-EINVAL, -EINVAL, -EINVAL, -EINVAL};
    CHECK(runs.run(reads(pipe.pair.reader)).value() == std::generic_category().message(EINVAL));
    CHECK(world.driver->arms <= 2);
    // What needs no waiting still works.
    REQUIRE(runs.run([](nowait::pipe_writer& to) -> task<> {
                    const auto wrote = co_await to.write("still");
                    CHECK(wrote.value() == 5);
                }(pipe.pair.writer))
                .has_value());
    CHECK(runs.run(reads(pipe.pair.reader)).value() == "still");
}

namespace {

/// Attempts of a task that reads, when so many events come behind which nothing is, and then a byte.
std::size_t attempts_with_false_events(int count) {
    fake_world world;
    runtime runs = world.make();
    pipe_in pipe(runs);
    auto handle = runs.spawn(reads(pipe.pair.reader));
    int idles = 0;
    world.driver->when_idle = [&] {
        auto* poll = world.driver->poll_of(pipe.pair.reader.native_handle());
        if (poll == nullptr)
            return;
        if (++idles <= count) {
            world.driver->fire(*poll, POLLIN, true);
            return;
        }
        const iovec data{const_cast<char*>("x"), 1};
        (void)world.calls.write(pipe.pair.writer.native_handle(), &data, 1);
    };
    const std::size_t before = world.calls.calls.reads;
    REQUIRE(runs.run().has_value());
    CHECK(idles == count + 1);
    CHECK(handle.done());
    return world.calls.calls.reads - before;
}

} // namespace

TEST_CASE("a false event makes one attempt and waits on") {
    CHECK(attempts_with_false_events(3) == 1 + 3 + 1);
}

TEST_CASE("after three false events in a row the level is looked at before there is another attempt") {
    CHECK(attempts_with_false_events(10) == 1 + 3 + 1);
}

TEST_CASE("one event wakes one waiter, first come first served") {
    fake_world world;
    runtime runs = world.make();
    pipe_in pipe(runs);
    std::vector<int> order;
    std::string got;
    for (int i = 0; i < 5; ++i) {
        runs.spawn([](nowait::pipe_reader& from, int id, std::vector<int>& to, std::string& text) -> task<> {
                std::array<std::byte, 1> byte{};
                const auto n = co_await from.read(byte);
                if (n.value_or(0) == 1) {
                    to.push_back(id);
                    text += static_cast<char>(byte[0]);
                }
            }(pipe.pair.reader, i, order, got))
            .detach();
    }
    runs.spawn(dribbles(std::move(pipe.pair.writer), 5)).detach();
    REQUIRE(runs.run().has_value());
    CHECK(order == std::vector<int>{0, 1, 2, 3, 4});
    CHECK(got == "abcde");
}

TEST_CASE("EINTR, short counts and errors of attempts") {
    fake_world world;
    runtime runs = world.make();
    pipe_in pipe(runs);
    const int in = pipe.pair.reader.native_handle();
    const int out = pipe.pair.writer.native_handle();
    world.calls.inject(out, 3); // a short write
    world.calls.inject(out, -EIO);
    auto writes = [](nowait::pipe_writer& to) -> task<nowait::result<std::size_t>> {
        co_return co_await to.write("abcdef");
    };
    CHECK(runs.run(writes(pipe.pair.writer)).value().value() == 3);
    CHECK(runs.run(writes(pipe.pair.writer)).value().error() == std::errc::io_error);
    CHECK(world.calls.content(out) == "abc");
    world.calls.inject(in, 2); // a short read
    world.calls.inject(in, -EIO);
    CHECK(runs.run(reads(pipe.pair.reader)).value() == "ab");
    CHECK(runs.run(reads(pipe.pair.reader)).value() == std::generic_category().message(EIO));
    CHECK(runs.run(reads(pipe.pair.reader)).value() == "c");
}

TEST_CASE("an attempt that says EAGAIN though there is data is made again after the event") {
    fake_world world;
    runtime runs = world.make();
    pipe_in pipe(runs);
    const int in = pipe.pair.reader.native_handle();
    const iovec data{const_cast<char*>("late"), 4};
    REQUIRE(world.calls.write(pipe.pair.writer.native_handle(), &data, 1) == 4);
    world.calls.inject(in, -EAGAIN);
    CHECK(runs.run(reads(pipe.pair.reader)).value() == "late");
}

TEST_CASE("closing an end with a poll armed closes the number after the driver has let go") {
    fake_world world;
    runtime runs = world.make();
    pipe_in pipe(runs);
    const int in = pipe.pair.reader.native_handle();
    world.driver->hold_removals = true;
    std::string ended;
    auto handle = runs.spawn([](nowait::pipe_reader& from, std::string& to) -> task<> {
        to = co_await reads(from);
    }(pipe.pair.reader, ended));
    bool closed_early = false;
    runs.spawn(
            [](nowait::pipe_reader& end, fake_world& w, int fd, bool& early, std::string& other) -> task<> {
                (void)co_await nowait::sleep_for(1ms);
                CHECK(end.close().has_value());
                early = !w.calls.is_open(fd);
                co_await nowait::yield();
                co_await nowait::yield();
                // The reader has its answer although the driver still holds the poll.
                CHECK(other == std::generic_category().message(ECANCELED));
                CHECK(w.calls.is_open(fd));
                w.driver->let_go();
            }(pipe.pair.reader, world, in, closed_early, ended))
        .detach();
    REQUIRE(runs.run().has_value());
    CHECK_FALSE(closed_early);
    CHECK_FALSE(world.calls.is_open(in));
}

TEST_CASE("a cancelled transfer ends when the driver says so, with what it moved") {
    // Without RWF_NOWAIT a borrowed end goes down to the driver's own reads.
    for (const long late : {-long{ECANCELED}, 3L, 0L}) {
        CAPTURE(late);
        fake_world world;
        world.calls.without(nowait::detail::feature::nowait);
        runtime runs = world.make();
        pipe_in pipe(runs);
        world.driver->hold_cancels = true;
        std::array<std::byte, 16> buffer{};
        bool ended = false;
        nowait::result<std::size_t> outcome = 0;
        REQUIRE(runs.run([](fake_world& w, nowait::pipe_reader& original, std::array<std::byte, 16>& into,
                            bool& over, nowait::result<std::size_t>& result, long end_with) -> task<> {
                        nowait::pipe_reader borrowed =
                            nowait::pipe_reader::borrow(original.native_handle()).value();
                        borrowed.block()->how[0] = nowait::detail::rung::ring;
                        auto child = [](nowait::pipe_reader& from, std::array<std::byte, 16>& to, bool& flag,
                                        nowait::result<std::size_t>& slot) -> task<> {
                            slot = co_await nowait::with_timeout(from.read(to), 1ms);
                            flag = true;
                        };
                        auto handle = nowait::spawn(child(borrowed, into, over, result));
                        (void)co_await nowait::sleep_for(10ms);
                        CHECK(w.driver->transfers.size() == 1);
                        CHECK(w.driver->cancels == 1);
                        CHECK_FALSE(over); // the buffer is still lent
                        if (!w.driver->transfers.empty())
                            w.driver->fire(*w.driver->transfers.front(), end_with, false);
                        (void)co_await handle.join();
                    }(world, pipe.pair.reader, buffer, ended, outcome, late))
                    .has_value());
        CHECK(ended);
        if (late < 0)
            CHECK(outcome.error() == std::errc::timed_out);
        else
            CHECK(outcome.value() == static_cast<std::size_t>(late));
    }
}

TEST_CASE("a transfer that ends with EINTR is started again, after EAGAIN when a poll says so") {
    fake_world world;
    runtime runs = world.make();
    pipe_in pipe(runs);
    std::size_t got = 0;
    int idles = 0;
    world.driver->when_idle = [&] {
        // Nothing spins: after EAGAIN no transfer is in flight until there is an event.
        if (world.driver->transfers.empty()) {
            CHECK(idles == 2);
            CHECK(world.driver->polls.size() == 1);
            world.driver->fire(*world.driver->polls.front(), POLLIN, true);
            return;
        }
        const long ends[] = {-EINTR, -EAGAIN, 4};
        world.driver->fire(*world.driver->transfers.front(), ends[idles++], false);
    };
    REQUIRE(runs.run([](nowait::pipe_reader& original, std::size_t& to) -> task<> {
                    nowait::pipe_reader borrowed =
                        nowait::pipe_reader::borrow(original.native_handle()).value();
                    borrowed.block()->how[0] = nowait::detail::rung::ring;
                    std::array<std::byte, 16> buffer{};
                    const auto read = co_await borrowed.read(buffer);
                    to = read.value();
                }(pipe.pair.reader, got))
                .has_value());
    CHECK(got == 4);
    CHECK(idles == 3);
    CHECK(world.driver->starts == 3);
}

TEST_CASE("a failed make_pipe leaves nothing behind") {
    fake_world world;
    runtime runs = world.make();
    world.calls.next_make_pipe = -EMFILE;
    REQUIRE(runs.run([]() -> task<> {
                    const auto none = nowait::make_pipe();
                    CHECK(none.error() == std::errc::too_many_files_open);
                    CHECK(nowait::make_pipe().has_value());
                    co_return;
                }())
                .has_value());
    CHECK(world.calls.open_descriptors() == 0);
}

TEST_CASE("the destructor lets go of what the driver holds, in the fake too") {
    fake_world world;
    {
        runtime runs = world.make();
        std::vector<pipe_in> pipes;
        for (int i = 0; i < 20; ++i)
            pipes.emplace_back(runs);
        for (pipe_in& pipe : pipes) {
            runs.spawn([](nowait::pipe_pair both) -> task<> {
                    std::array<std::byte, 4> buffer{};
                    (void)co_await both.reader.read(buffer);
                }(std::move(pipe.pair)))
                .detach();
        }
        REQUIRE(runs.get_loop().enter() == 0);
        runs.get_loop().run_until_idle(world.calls.time + 1ms);
        runs.get_loop().leave();
        CHECK(world.driver->pending() == 20);
    }
    CHECK(world.calls.open_descriptors() == 0);
}

// --- counters ---------------------------------------------------------------------------------------------------------------

TEST_CASE("counters: an inline operation moves one counter of its kind") {
    fake_world world;
    runtime runs = world.make();
    pipe_in pipe(runs);
    const auto before = runs.stats();
    REQUIRE(runs.run([](nowait::pipe_pair& p) -> task<> {
                    std::array<std::byte, 16> buffer{};
                    (void)co_await p.writer.write("abc");
                    (void)co_await p.reader.read(buffer);
                    (void)co_await nowait::sleep_for(0s);
                }(pipe.pair))
                .has_value());
    const auto after = runs.stats();
    for (const auto kind : {operation_kind::write, operation_kind::read, operation_kind::sleep}) {
        CAPTURE(to_string(kind));
        CHECK(after.of(kind).inline_completions == before.of(kind).inline_completions + 1);
        CHECK(after.of(kind).armed == before.of(kind).armed);
        CHECK(after.of(kind).nowait_misses == before.of(kind).nowait_misses);
        CHECK(after.of(kind).budget_yields == before.of(kind).budget_yields);
    }
    CHECK(after.submissions == before.submissions);
    CHECK(after.turns == before.turns + 1);
}

TEST_CASE("counters: misses until the predictor skips, and a probe on every 32nd") {
    fake_world world;
    runtime runs = world.make();
    pipe_in pipe(runs);
    constexpr int rounds = 2 + 3 * 32;
    std::string got;
    std::size_t attempts_before = world.calls.calls.reads;
    auto reader = runs.spawn(collects(pipe.pair.reader, got));
    runs.spawn(dribbles(std::move(pipe.pair.writer), rounds)).detach();
    REQUIRE(runs.run().has_value());
    const auto stats = runs.stats();
    const auto& reading = stats.of(operation_kind::read);
    CHECK(got.size() == rounds);
    CHECK(reading.armed == rounds + 1); // and the end of the stream
    CHECK(reading.inline_completions == 0);
    // Two to learn, then one probe in 32.
    CHECK(reading.predictor_skips >= rounds - 2 - 4);
    CHECK(reading.nowait_misses + reading.predictor_skips == rounds + 1);
    // One attempt for each byte and the end, and one for each miss.
    CHECK(world.calls.calls.reads - attempts_before == rounds + 1 + reading.nowait_misses);
}

TEST_CASE("counters: yields, joins and waits are armed, each under its kind") {
    fake_world world;
    runtime runs = world.make();
    REQUIRE(runs.run([]() -> task<> {
                    for (int i = 0; i < 5; ++i)
                        co_await nowait::yield();
                    auto waits = nowait::spawn([]() -> task<> { (void)co_await nowait::sleep_for(1ms); }());
                    (void)co_await waits.join();
                    auto over = nowait::spawn([]() -> task<> { co_return; }());
                    co_await nowait::yield();
                    (void)co_await over.join();
                }())
                .has_value());
    const auto stats = runs.stats();
    CHECK(stats.of(operation_kind::yield).armed == 6);
    CHECK(stats.of(operation_kind::join).armed == 1);
    CHECK(stats.of(operation_kind::join).inline_completions == 1);
    CHECK(stats.of(operation_kind::sleep).armed == 1);
    CHECK(stats.remote_posts == 0);
}
