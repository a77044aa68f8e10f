// Composition of plain operations costs nothing of its own: no coroutine frame, not even a recycled one, and no allocation.
#include "catch.hpp"
#include "counting_new.hpp"
#include "runs.hpp"

#include <nowait/nowait.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <utility>

using namespace std::chrono_literals;
using nowait::task;

namespace {

struct cost {
    std::uint64_t frames = 0; ///< made, wherever their memory came from
    std::size_t allocations = 0;
    friend bool operator==(const cost&, const cost&) = default;
};

cost so_far() {
    const auto stats = nowait::current_stats();
    return {stats.frames_allocated + stats.frames_recycled, nowait_test::allocations()};
}

/// What the compositions are made of: a pipe that has bytes, one that has none, and a channel, likewise.
struct things {
    nowait::pipe_pair full = nowait::make_pipe().value();
    nowait::pipe_pair empty = nowait::make_pipe().value();
    nowait::channel<int> silent = nowait::channel<int>::create(1).value();
    nowait::inplace_stop_source stop;
    std::stop_source token;
    std::array<std::byte, 16> here{};
    std::array<std::byte, 16> there{};
};

/// `make(things)` is awaited a few times to warm up, and then counted.
template <class Make>
cost cost_of(Make make) {
    cost counted;
    nowait::runtime runs = nowait_test::make_runtime();
    auto body = [](Make how, cost& out) -> task<> {
        things with;
        for (int i = 0; i < 20; ++i) {
            (void)co_await with.full.writer.write("some");
            auto what = how(with);
            (void)co_await std::move(what);
        }
        const cost before = so_far();
        for (int i = 0; i < 20; ++i) {
            (void)co_await with.full.writer.write("some");
            auto what = how(with);
            (void)co_await std::move(what);
        }
        const cost after = so_far();
        out = {after.frames - before.frames, after.allocations - before.allocations};
    };
    CHECK(runs.run(body(make, counted)).has_value());
    return counted;
}

constexpr cost nothing{};

} // namespace

TEST_CASE("composition: time-outs and stops of operations that are ready, and that wait, cost no frame") {
    CHECK(cost_of([](things& t) { return nowait::with_timeout(t.full.reader.read(t.here), 1h); }) == nothing);
    CHECK(cost_of([](things& t) { return nowait::with_timeout(t.empty.reader.read(t.here), 10us); }) ==
          nothing);
    CHECK(cost_of([](things& t) { return nowait::with_timeout(t.silent.receive(), 10us); }) == nothing);
    CHECK(cost_of([](things&) {
              return nowait::with_deadline(nowait::sleep_for(10us),
                                           std::chrono::steady_clock::time_point::max());
          }) == nothing);
    CHECK(cost_of([](things& t) {
              return nowait::with_stop(nowait::with_timeout(t.empty.reader.read(t.here), 10us),
                                       t.stop.get_token());
          }) == nothing);
    CHECK(cost_of([](things& t) {
              return nowait::with_stop(t.full.reader.read(t.here), t.stop.get_token());
          }) == nothing);
}

TEST_CASE("composition: when_all and when_any of plain operations cost no frame") {
    CHECK(cost_of([](things& t) {
              return nowait::when_all(t.full.reader.read(t.here), nowait::sleep_for(10us));
          }) == nothing);
    CHECK(cost_of([](things& t) {
              return nowait::when_any(t.empty.reader.read(t.here), t.silent.receive(),
                                      nowait::sleep_for(10us));
          }) == nothing);
    CHECK(cost_of([](things& t) {
              return nowait::when_any(t.silent.receive(), t.full.reader.read(t.here));
          }) == nothing);
}

TEST_CASE("composition: compositions of compositions cost no frame") {
    CHECK(cost_of([](things& t) {
              return nowait::when_all(
                  nowait::with_timeout(t.full.reader.read(t.here), 1h),
                  nowait::when_any(nowait::with_stop(t.empty.reader.read(t.there), t.stop.get_token()),
                                   nowait::with_timeout(t.silent.receive(), 10us)));
          }) == nothing);
}

TEST_CASE("composition: a child does cost a frame, and the count sees it") {
    auto child = [](things&) -> task<> { co_return; };
    CHECK(cost_of(child).frames == 20);
}
