// The suite against itself: copies of the pipe channel with one deliberate fault each. They are made by a `sync` policy of their own
// and explicit specialisations of single functions, so nothing of them is in the library. Each has to be caught within 2,000 seeds.
#include "catch.hpp"
#include "channels/pipe_channel_core.hpp"
#include "program_objects.hpp"

#include <cstdint>
#include <string>

namespace nowait_test::mutants {

/// A policy of its own, so that the templates below are types of their own.
template <int Number>
struct copy_of_real_sync {
    template <class T>
    using atomic = nowait::detail::real_sync::atomic<T>;
    using mutex = nowait::detail::real_sync::mutex;
};
using unchanged = copy_of_real_sync<0>;
using lost_baton = copy_of_real_sync<1>;
using late_cancel = copy_of_real_sync<2>;
using unfair_hand_off = copy_of_real_sync<3>;
using doubling_hand_off = copy_of_real_sync<4>;

} // namespace nowait_test::mutants

NOWAIT_BEGIN_NAMESPACE
namespace detail {

using namespace nowait_test::mutants;

// The wait queue loses the baton: a change serves the first waiter of each side, and nobody asks for the next.
template <>
void pipe_core<lost_baton>::settle_waiters(pipe_turn& turn) noexcept {
    for (queue* waiters : {&reading, &writing}) {
        if (waiters->empty())
            continue;
        waiter& first = waiters->front();
        pipe_attempt came_out = pipe_attempt::pages;
        while ((came_out = first.attempt_(first, turn)) == pipe_attempt::pages)
            fetch_pages(turn);
        if (came_out == pipe_attempt::done) {
            static_cast<list_node&>(first).unlink();
            turn.wake(first);
        }
    }
    shut_gates(!idle());
}

// The hand-shake between a cancel and whoever serves: a stop that comes after the choice takes the result back.
template <>
void pipe_waiter<late_cancel>::cancel() noexcept {
    if (!pinned_)
        return;
    if (deferred_) {
        stopped_ = true;
        return;
    }
    channel_type& channel = *end_->channel;
    pipe_turn turn(&home());
    pipe_lock lock(channel);
    if (!queued()) {
        result_ = -ECANCELED; // the result is on its way
        return;
    }
    static_cast<list_node&>(*this).unlink();
    result_ = -ECANCELED;
    home().post(*this);
    channel.settle(turn);
}

// The direct hand-off serves the last who came. (The inlined form of it declines.)
template <>
bool pipe_core<unfair_hand_off>::hand_over_whole(std::span<const std::byte>, const loop&) noexcept {
    return false;
}
template <>
std::size_t pipe_core<unfair_hand_off>::hand_over(gather& from, pipe_turn& turn) noexcept {
    std::size_t handed = 0;
    while (from.size() != 0 && !reading.empty() && reading.back().takes_bytes_) {
        auto& reader = static_cast<pipe_read_operation<unfair_hand_off>&>(reading.back());
        static_cast<list_node&>(reader).unlink();
        scatter to = reader.memory_.target();
        const std::size_t size = std::min(to.size(), from.size());
        for (std::size_t left = size; left != 0;) {
            const std::span<std::byte> run = to.take(left);
            from.copy_to(run.data(), run.size());
            left -= run.size();
        }
        reader.result_ = static_cast<long>(size);
        turn.wake(reader);
        handed += size;
    }
    return handed;
}

// The direct hand-off copies to the reader, and leaves the bytes to the ring as well.
template <>
bool pipe_core<doubling_hand_off>::hand_over_whole(std::span<const std::byte> from, const loop&) noexcept {
    if (reading.empty() || !ring.empty() || !reading.front().takes_bytes_)
        return false;
    auto& reader = static_cast<pipe_read_operation<doubling_hand_off>&>(reading.front());
    if (!reader.memory_.single() || reader.memory_.size() < from.size())
        return false;
    static_cast<list_node&>(reader).unlink();
    copy_bytes(reader.memory_.data(), from.data(), from.size());
    reader.result_ = static_cast<long>(from.size());
    reader.home().post(reader);
    return false; // and the write goes on
}

} // namespace detail
NOWAIT_END_NAMESPACE

namespace nowait_test::mutants {
namespace {

using namespace programs;

constexpr std::uint64_t seeds = 2'000;

struct outcome {
    std::uint64_t seed = 0; ///< 0: not caught
    std::string failure;
};

template <class Sync>
outcome hunt() {
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        const verdict v = run_program(make_program(seed), &make_pipe_channel_of<Sync>);
        if (!v.failure.empty())
            return {seed, v.failure};
    }
    return {};
}

template <class Sync>
void is_caught() {
    const outcome found = hunt<Sync>();
    REQUIRE(found.seed != 0);
    UNSCOPED_INFO("seed " << found.seed << ": " << found.failure);
    // What is found can be shrunk, and still fails, each time alike.
    const program shorter = shrink(make_program(found.seed), &make_pipe_channel_of<Sync>);
    const verdict once = run_program(shorter, &make_pipe_channel_of<Sync>);
    const verdict twice = run_program(shorter, &make_pipe_channel_of<Sync>);
    UNSCOPED_INFO(describe(shorter) << once.failure);
    CHECK_FALSE(once.failure.empty());
    CHECK(once.failure == twice.failure);
    CHECK(once.hash == twice.hash);
    std::size_t steps = 0;
    for (const actor& a : shorter.actors)
        steps += a.steps.size();
    CHECK(steps <= 20);
}

} // namespace

TEST_CASE("an unchanged copy of the pipe channel passes") {
    const outcome found = hunt<unchanged>();
    INFO(found.failure);
    CHECK(found.seed == 0);
}

TEST_CASE("a wait queue that loses the baton is caught") {
    is_caught<lost_baton>();
}

TEST_CASE("a cancel that takes a result back is caught") {
    is_caught<late_cancel>();
}

TEST_CASE("a hand-off to the one who came last is caught") {
    is_caught<unfair_hand_off>();
}

TEST_CASE("a hand-off that doubles what it hands over is caught") {
    is_caught<doubling_hand_off>();
}

} // namespace nowait_test::mutants
