// Pipe channels with one deliberate fault each: see mutants.hpp.
#include "channels/pipe_channel_core.hpp"
#include "mutants.hpp"
#include "stream_objects.hpp"

#include <algorithm>

namespace nowait_test::mutants {

using unchanged = copy_of_real_sync<struct nothing>;
using lost_baton = copy_of_real_sync<struct baton>;
using late_cancel = copy_of_real_sync<struct cancel>;
using unfair_hand_off = copy_of_real_sync<struct order>;
using doubling_hand_off = copy_of_real_sync<struct copies>;
using uncounted_waits = copy_of_real_sync<struct counters>;

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

// A wait that is not counted.
template <>
bool pipe_waiter<uncounted_waits>::wait_here() noexcept {
    run = &run_served;
    waits_ = true;
    end_->channel->enqueue(*this, *end_, false);
    end_->channel->mutex.unlock();
    home().counters_of(operation_kind::channel).nowait_misses.add();
    listen_for_stop([](stop_hook& hook) noexcept {
        static_cast<pipe_waiter&>(operation_base::from_hook(hook)).cancel();
    });
    return false;
}

} // namespace detail
NOWAIT_END_NAMESPACE

namespace nowait_test::mutants {
namespace {

template <class Sync>
object_factories made_by() {
    object_factories make;
    make.pipe_channel = &programs::make_pipe_channel_of<Sync>;
    return make;
}

} // namespace

TEST_CASE("an unchanged copy of the pipe channel passes") {
    const outcome found = hunt(made_by<unchanged>());
    INFO(found.failure);
    CHECK(found.seed == 0);
}

TEST_CASE("a pipe channel whose wait queue loses the baton is caught") {
    is_caught(made_by<lost_baton>());
}

TEST_CASE("a pipe channel whose cancel takes a result back is caught") {
    is_caught(made_by<late_cancel>());
}

TEST_CASE("a pipe channel that hands over to the one who came last is caught") {
    is_caught(made_by<unfair_hand_off>());
}

TEST_CASE("a pipe channel that doubles what it hands over is caught") {
    is_caught(made_by<doubling_hand_off>());
}

TEST_CASE("a pipe channel that does not count its waits is caught") {
    is_caught(made_by<uncounted_waits>());
}

} // namespace nowait_test::mutants
