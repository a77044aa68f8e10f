// Every operation that can wait, in every way in which a wait can end. The order of events is chosen by the order of spawns,
// yields and calls on one runtime, so each interleaving is exact; pipe_channel_threads.cpp leaves it to chance.
#include "pipe_channel_support.hpp"

#include <memory>
#include <optional>

namespace nowait_test::channels {
namespace {

/// Two channels and a buffer: where one operation is made to wait.
template <class Channel>
struct stage {
    Channel a = make<Channel>();
    Channel b = make<Channel>();
    std::string buffer = std::string(100, '?');
};

// One kind of operation each: how the stage is set so that it must wait (`set`), the operation, what lets it go on, which of
// its own ends may be closed, what the last end of the other kind is, and what its close means.

template <class Channel>
struct reads_nothing {
    static constexpr bool two_sided = false;
    static constexpr int peer_close_error = 0;
    static void set(stage<Channel>&) {}
    static void let_go_on(stage<Channel>& s) { CHECK(s.a.writer.try_write("data")); }
    static void close_own(stage<Channel>& s) { CHECK(s.a.reader.close()); }
    static void close_peer(stage<Channel>& s) { s.a.writer = {}; }
};
template <class Channel>
struct writes_into_full {
    static constexpr bool two_sided = false;
    static constexpr int peer_close_error = EPIPE;
    static void set(stage<Channel>& s) { fill(s.a); }
    static void let_go_on(stage<Channel>& s) {
        std::string one(page, '?');
        CHECK(s.a.reader.try_read(room(one)));
    }
    static void close_own(stage<Channel>& s) { CHECK(s.a.writer.close()); }
    static void close_peer(stage<Channel>& s) { s.a.reader = {}; }
};

template <class Channel>
struct read : reads_nothing<Channel> {
    static constexpr const char* name = "read";
    static auto operation(stage<Channel>& s) { return s.a.reader.read(room(s.buffer)); }
};
template <class Channel>
struct readable : reads_nothing<Channel> {
    static constexpr const char* name = "readable";
    static auto operation(stage<Channel>& s) { return s.a.reader.readable(); }
};
template <class Channel>
struct peek : reads_nothing<Channel> {
    static constexpr const char* name = "peek";
    static auto operation(stage<Channel>& s) { return s.a.reader.peek(); }
};
template <class Channel>
struct write : writes_into_full<Channel> {
    static constexpr const char* name = "write";
    static auto operation(stage<Channel>& s) { return s.a.writer.write("written"); }
};
template <class Channel>
struct writable : writes_into_full<Channel> {
    static constexpr const char* name = "writable";
    static auto operation(stage<Channel>& s) { return s.a.writer.writable(); }
};
template <class Channel>
struct reserve : writes_into_full<Channel> {
    static constexpr const char* name = "reserve";
    static auto operation(stage<Channel>& s) { return s.a.writer.reserve(10); }
};
template <class Channel>
struct splice_from_empty : reads_nothing<Channel> {
    static constexpr const char* name = "splice from an empty channel";
    static constexpr bool two_sided = true;
    static auto operation(stage<Channel>& s) { return nowait::splice(s.a.reader, s.b.writer, 100); }
};
template <class Channel>
struct tee_from_empty : reads_nothing<Channel> {
    static constexpr const char* name = "tee from an empty channel";
    static constexpr bool two_sided = true;
    static auto operation(stage<Channel>& s) { return nowait::tee(s.a.reader, s.b.writer, 100); }
};
template <class Channel>
struct into_full : writes_into_full<Channel> {
    static constexpr bool two_sided = true;
    static void set(stage<Channel>& s) {
        fill(s.a);
        CHECK(s.b.writer.try_write("source"));
    }
};
template <class Channel>
struct splice_into_full : into_full<Channel> {
    static constexpr const char* name = "splice into a full channel";
    static auto operation(stage<Channel>& s) { return nowait::splice(s.b.reader, s.a.writer, 100); }
};
template <class Channel>
struct tee_into_full : into_full<Channel> {
    static constexpr const char* name = "tee into a full channel";
    static auto operation(stage<Channel>& s) { return nowait::tee(s.b.reader, s.a.writer, 100); }
};
// The same two, but the end that is closed is the one that the operation does not stand at.
template <class Channel>
struct splice_closed_at_its_source : splice_into_full<Channel> {
    static constexpr const char* name = "splice into a full channel, closed at its source";
    static void close_own(stage<Channel>& s) { CHECK(s.b.reader.close()); }
};
template <class Channel>
struct splice_closed_at_its_target : splice_from_empty<Channel> {
    static constexpr const char* name = "splice from an empty channel, closed at its target";
    static void close_own(stage<Channel>& s) { CHECK(s.b.writer.close()); }
};

template <class Channel, template <class> class... Scenario>
struct scenarios {
    template <template <class, class> class Fact>
    static void all() {
        (one<Fact, Scenario<Channel>>(), ...);
    }
    template <template <class, class> class Fact, class One>
    static void one() {
        INFO(One::name);
        run_on_new(Fact<Channel, One>::body());
    }
};
template <class Channel>
using every_operation =
    scenarios<Channel, read, readable, peek, write, writable, reserve, splice_from_empty, tee_from_empty,
              splice_into_full, tee_into_full, splice_closed_at_its_source, splice_closed_at_its_target>;

template <class Channel, class One>
struct goes_on_when_it_can {
    static task<> body() {
        stage<Channel> s;
        One::set(s);
        outcome out;
        auto job = nowait::spawn(await_once(One::operation(s), out));
        co_await settle();
        REQUIRE_FALSE(out.done);
        One::let_go_on(s);
        CHECK_FALSE(out.done); // never inside somebody else's call
        co_await settle();
        CHECK(out.done);
        CHECK(out.error == 0);
    }
};
template <class Channel, class One>
struct ends_when_its_end_is_closed {
    static task<> body() {
        stage<Channel> s;
        One::set(s);
        outcome out;
        auto job = nowait::spawn(await_once(One::operation(s), out));
        co_await settle();
        REQUIRE_FALSE(out.done);
        One::close_own(s);
        CHECK_FALSE(out.done);
        co_await settle();
        CHECK(out.done);
        CHECK(out.error == ECANCELED);
    }
};
template <class Channel, class One>
struct ends_when_the_other_side_is_gone {
    static task<> body() {
        stage<Channel> s;
        One::set(s);
        outcome out;
        auto job = nowait::spawn(await_once(One::operation(s), out));
        co_await settle();
        One::close_peer(s);
        CHECK_FALSE(out.done);
        co_await settle();
        CHECK(out.done);
        const bool only_readiness =
            std::is_same_v<decltype(One::operation(s)), decltype(s.a.reader.readable())>;
        CHECK(out.error == (only_readiness ? 0 : One::peer_close_error));
    }
};
template <class Channel, class One>
struct can_be_stopped {
    static task<> body() {
        stage<Channel> s;
        One::set(s);
        nowait::inplace_stop_source stop;
        outcome out;
        auto job = nowait::spawn(await_stoppable(One::operation(s), stop.get_token(), out));
        co_await settle();
        REQUIRE_FALSE(out.done);
        const auto held = s.a.reader.available();
        stop.request_stop();
        CHECK_FALSE(out.done);
        co_await settle();
        CHECK(out.done);
        CHECK(out.error == ECANCELED);
        CHECK(s.a.reader.available() == held);
        // No waiter is left behind: the next one is first in the queue.
        outcome next;
        auto another = nowait::spawn(await_once(One::operation(s), next));
        co_await settle();
        REQUIRE_FALSE(next.done);
        One::let_go_on(s);
        co_await settle();
        CHECK((next.done && next.error == 0));
    }
};
template <class Channel, class One>
struct delivers_what_it_got_before_the_stop {
    static task<> body() {
        stage<Channel> s;
        One::set(s);
        nowait::inplace_stop_source stop;
        outcome out;
        auto job = nowait::spawn(await_stoppable(One::operation(s), stop.get_token(), out));
        co_await settle();
        const auto source = s.b.reader.available();
        One::let_go_on(s);
        stop.request_stop(); // chosen, and not yet run
        co_await settle();
        REQUIRE(out.done);
        if (One::two_sided) {
            // It had only been called: it has done nothing, and says so.
            CHECK(out.error == ECANCELED);
            CHECK(s.b.reader.available() == source);
        } else {
            CHECK(out.error == 0);
        }
    }
};
template <class Channel, class One>
struct takes_nothing_after_the_stop {
    static task<> body() {
        stage<Channel> s;
        One::set(s);
        nowait::inplace_stop_source stop;
        outcome out;
        auto job = nowait::spawn(await_stoppable(One::operation(s), stop.get_token(), out));
        co_await settle();
        stop.request_stop();
        One::let_go_on(s);
        const auto held = s.a.reader.available();
        co_await settle();
        REQUIRE(out.done);
        CHECK(out.error == ECANCELED);
        CHECK(s.a.reader.available() == held);
        CHECK(s.buffer == std::string(100, '?'));
    }
};
template <class Channel, class One>
struct does_nothing_under_a_stop {
    static task<> body() {
        stage<Channel> s;
        One::set(s);
        One::let_go_on(s);
        nowait::inplace_stop_source stop;
        stop.request_stop();
        outcome out;
        const auto held = s.a.reader.available();
        co_await await_stoppable(One::operation(s), stop.get_token(), out);
        CHECK(out.error == ECANCELED);
        CHECK(s.a.reader.available() == held);
    }
};
template <class Channel, class One>
struct is_nothing_before_it_starts {
    static task<> body() {
        stage<Channel> s;
        One::set(s);
        One::let_go_on(s);
        const auto held = s.a.reader.available();
        {
            auto described = One::operation(s);
            using operation = typename decltype(described)::operation;
            auto bound = std::make_unique<operation>(std::move(described));
        }
        CHECK(s.a.reader.available() == held);
        co_return;
    }
};
template <class Channel, class One>
struct waits_for_its_turn_when_the_budget_is_spent {
    static task<> body() {
        stage<Channel> s;
        One::set(s);
        One::let_go_on(s);
        nowait::detail::loop& here = *nowait::detail::loop::current();
        const auto before = nowait::current_stats();
        here.budget = 0;
        auto got = co_await One::operation(s); // the attempt is put off to another turn, and then succeeds
        CHECK(got);
        const auto kind = nowait::operation_kind::channel;
        const auto after = nowait::current_stats();
        CHECK(after.of(kind).budget_yields == before.of(kind).budget_yields + 1);
        CHECK(after.turns > before.turns);

        nowait::inplace_stop_source stop;
        outcome out;
        here.budget = 0;
        auto stopper = [](nowait::inplace_stop_source& source) -> task<> {
            source.request_stop();
            co_return;
        };
        auto job = nowait::spawn(stopper(stop)); // runs before the attempt
        co_await await_stoppable(One::operation(s), stop.get_token(), out);
        CHECK(out.error == ECANCELED);
    }
};
template <class Channel, class One>
struct passes_to_the_next_in_line {
    static task<> body() {
        stage<Channel> s;
        One::set(s);
        nowait::inplace_stop_source stop;
        outcome first, second;
        auto a = nowait::spawn(await_stoppable(One::operation(s), stop.get_token(), first));
        auto b = nowait::spawn(await_once(One::operation(s), second));
        co_await settle();
        stop.request_stop();
        One::let_go_on(s);
        co_await settle();
        CHECK((first.done && first.error == ECANCELED));
        CHECK((second.done && second.error == 0));
    }
};

} // namespace

TEMPLATE_TEST_CASE("an operation that waits ends when it can go on, on its own runtime", "[pipe_channel]",
                   BOTH_KINDS) {
    every_operation<TestType>::template all<goes_on_when_it_can>();
}
TEMPLATE_TEST_CASE("closing its end stops an operation that waits", "[pipe_channel]", BOTH_KINDS) {
    every_operation<TestType>::template all<ends_when_its_end_is_closed>();
}
TEMPLATE_TEST_CASE("the last close of the other side ends an operation that waits", "[pipe_channel]",
                   BOTH_KINDS) {
    every_operation<TestType>::template all<ends_when_the_other_side_is_gone>();
}
TEMPLATE_TEST_CASE("a stop ends an operation that waits, which has done nothing", "[pipe_channel]",
                   BOTH_KINDS) {
    every_operation<TestType>::template all<can_be_stopped>();
}
TEMPLATE_TEST_CASE("chosen, then stopped: the result is delivered", "[pipe_channel]", BOTH_KINDS) {
    every_operation<TestType>::template all<delivers_what_it_got_before_the_stop>();
}
TEMPLATE_TEST_CASE("stopped, then made possible: nothing was taken", "[pipe_channel]", BOTH_KINDS) {
    every_operation<TestType>::template all<takes_nothing_after_the_stop>();
}
TEMPLATE_TEST_CASE("an operation that begins under a stop does nothing", "[pipe_channel]", BOTH_KINDS) {
    every_operation<TestType>::template all<does_nothing_under_a_stop>();
}
TEMPLATE_TEST_CASE("an operation that never started has done nothing", "[pipe_channel]", BOTH_KINDS) {
    every_operation<TestType>::template all<is_nothing_before_it_starts>();
}
TEMPLATE_TEST_CASE("with the turn's budget spent an operation lets the others run first", "[pipe_channel]",
                   BOTH_KINDS) {
    every_operation<TestType>::template all<waits_for_its_turn_when_the_budget_is_spent>();
}
TEMPLATE_TEST_CASE("a stopped waiter passes the chance on", "[pipe_channel]", BOTH_KINDS) {
    every_operation<TestType>::template all<passes_to_the_next_in_line>();
}

// --- in turn ---------------------------------------------------------------------------------------------------------------

TEMPLATE_TEST_CASE("readers are served first come, first served, one wake each", "[pipe_channel]",
                   BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        std::vector<outcome> outs(5);
        std::vector<nowait::join_handle<void>> jobs;
        int count = 0;
        for (outcome& out : outs)
            jobs.push_back(nowait::spawn(read_once(channel.reader, 4, out, &count)));
        co_await settle();
        const auto before = nowait::current_stats();
        for (int i = 0; i < 5; ++i) {
            REQUIRE(channel.writer.try_write(
                std::string_view("abcdefghijklmnopqrst").substr(std::size_t(i) * 4, 4)));
            // The one that was chosen has not run; whoever comes now must not take what follows.
            std::string buffer(4, '?');
            if (i < 4)
                CHECK(error_of(channel.reader.try_read(room(buffer))) == EAGAIN);
        }
        co_await settle();
        for (int i = 0; i < 5; ++i) {
            CHECK(outs[std::size_t(i)].order == i + 1);
            CHECK(outs[std::size_t(i)].text ==
                  std::string_view("abcdefghijklmnopqrst").substr(std::size_t(i) * 4, 4));
        }
        CHECK(nowait::current_stats().of(nowait::operation_kind::channel).armed ==
              before.of(nowait::operation_kind::channel).armed); // nobody went back to waiting
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("one write serves as many readers as it has bytes for", "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        std::vector<outcome> outs(4);
        std::vector<nowait::join_handle<void>> jobs;
        for (outcome& out : outs)
            jobs.push_back(nowait::spawn(read_once(channel.reader, 1000, out)));
        co_await settle();
        const std::string sent = pattern(2500);
        auto n = co_await channel.writer.write(sent);
        REQUIRE((n && *n == 2500));
        co_await settle();
        CHECK(outs[0].text + outs[1].text + outs[2].text == sent);
        CHECK(outs[2].size == 500);
        CHECK_FALSE(outs[3].done);
        channel.writer = {};
        co_await settle();
        CHECK((outs[3].done && outs[3].size == 0));
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("what waiting readers leave of a write stays in the channel", "[pipe_channel]",
                   BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        outcome out;
        auto job = nowait::spawn(read_once(channel.reader, 5000, out));
        co_await settle();
        const std::string sent = pattern(60'000);
        auto n = co_await channel.writer.write(sent);
        REQUIRE((n && *n == sent.size()));
        CHECK(channel.reader.available() == 55'000u);
        co_await settle();
        channel.writer = {};
        std::string rest = co_await read_to_end(channel.reader);
        CHECK(out.text + rest == sent);
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("writers are served first come, first served, and keep their bytes together",
                   "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>({.capacity = page});
        fill(channel);
        std::vector<outcome> outs(4);
        std::vector<nowait::join_handle<void>> jobs;
        const std::string words[] = {"one ", "two ", "three ", "four "};
        int count = 0;
        for (std::size_t i = 0; i < 4; ++i)
            jobs.push_back(nowait::spawn(write_once(channel.writer, words[i], outs[i], &count)));
        co_await settle();
        CHECK(error_of(channel.writer.try_write("barging")) == EAGAIN);
        std::string buffer(page, '?');
        auto n = co_await channel.reader.read(room(buffer));
        REQUIRE((n && *n == page));
        co_await settle();
        for (int i = 0; i < 4; ++i)
            CHECK(outs[std::size_t(i)].order == i + 1);
        n = co_await channel.reader.read(room(buffer));
        REQUIRE(n);
        CHECK(buffer.substr(0, *n) == "one two three four ");
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("a writer that leaves the head of the queue lets a smaller one behind it go on",
                   "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>({.capacity = page});
        REQUIRE(channel.writer.try_write(std::string_view(pattern(page - 10))));
        nowait::inplace_stop_source stop;
        outcome large, small;
        const std::string data = pattern(100);
        auto a = nowait::spawn(await_stoppable(channel.writer.write(data), stop.get_token(), large));
        auto b = nowait::spawn(write_once(channel.writer, "tiny", small));
        co_await settle();
        CHECK_FALSE(small.done); // there is room for it, but it is not its turn
        stop.request_stop();
        co_await settle();
        CHECK((large.done && large.error == ECANCELED));
        CHECK((small.done && small.size == 4));
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("the last writer's close wakes every waiting reader", "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        auto second = channel.writer.duplicate();
        REQUIRE(second);
        std::vector<outcome> outs(10);
        std::vector<nowait::join_handle<void>> jobs;
        for (outcome& out : outs)
            jobs.push_back(nowait::spawn(read_once(channel.reader, 4, out)));
        co_await settle();
        channel.writer = {};
        co_await settle();
        for (const outcome& out : outs)
            CHECK_FALSE(out.done);
        *second = {};
        co_await settle();
        for (const outcome& out : outs)
            CHECK((out.done && out.error == 0 && out.size == 0));
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("the last reader's close wakes every waiting writer", "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        fill(channel);
        std::vector<outcome> outs(10);
        std::vector<nowait::join_handle<void>> jobs;
        for (outcome& out : outs)
            jobs.push_back(nowait::spawn(write_once(channel.writer, "x", out)));
        co_await settle();
        channel.reader = {};
        co_await settle();
        for (const outcome& out : outs)
            CHECK((out.done && out.error == EPIPE));
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("closing one of two ends stops only the operations through it", "[pipe_channel]",
                   BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        auto second = channel.reader.duplicate();
        REQUIRE(second);
        outcome through_first, through_second;
        auto a = nowait::spawn(read_once(channel.reader, 4, through_first));
        auto b = nowait::spawn(read_once(*second, 4, through_second));
        co_await settle();
        channel.reader = {};
        co_await settle();
        CHECK((through_first.done && through_first.error == ECANCELED));
        CHECK_FALSE(through_second.done);
        REQUIRE(channel.writer.try_write("data"));
        co_await settle();
        CHECK(through_second.text == "data");
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("a channel destroyed with waiters ends them", "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        std::optional<TestType> channel = make<TestType>();
        outcome reader, writer;
        auto a = nowait::spawn(read_once(channel->reader, 4, reader));
        co_await settle();
        channel.reset();
        CHECK_FALSE(reader.done);
        co_await settle();
        CHECK(reader.done);
        CHECK((reader.error == ECANCELED ||
               (reader.error == 0 && reader.size == 0))); // whichever end died first
        channel = make<TestType>();
        fill(*channel);
        auto b = nowait::spawn(write_once(channel->writer, "x", writer));
        co_await settle();
        channel.reset();
        co_await settle();
        CHECK(writer.done);
        CHECK((writer.error == ECANCELED || writer.error == EPIPE));
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("an end may be moved while operations wait through it", "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        outcome out;
        auto job = nowait::spawn(read_once(channel.reader, 4, out));
        co_await settle();
        auto moved = std::move(channel.reader);
        REQUIRE(channel.writer.try_write("data"));
        co_await settle();
        CHECK(out.text == "data");
    };
    run_on_new(body());
}

TEST_CASE("a runtime that is destroyed takes its waiters out of the channel", "[pipe_channel]") {
    auto channel = make<nowait::pipe_channel>();
    auto full = make<nowait::pipe_channel>();
    auto other = make<nowait::pipe_channel>();
    fill(full);
    REQUIRE(other.writer.try_write("kept"));
    outcome outs[4];
    std::string buffer(10, '?');
    {
        auto runtime = make_runtime();
        auto read = runtime.spawn(read_once(channel.reader, 4, outs[0]));
        auto wrote = runtime.spawn(write_once(full.writer, "x", outs[1]));
        auto moved = runtime.spawn(await_once(nowait::splice(other.reader, full.writer, 10), outs[2]));
        auto seen = runtime.spawn(await_once(channel.reader.peek(), outs[3]));
        nowait::detail::loop& loop = runtime.get_loop();
        REQUIRE(loop.enter() == 0);
        loop.run_until_idle(nowait::detail::clock::now()); // one pass: everybody waits
        loop.leave();
    }
    for (const outcome& out : outs)
        CHECK_FALSE(out.done);
    REQUIRE(channel.writer.try_write("data"));
    auto n = channel.reader.try_read(room(buffer));
    CHECK((n && *n == 4));
    CHECK(full.reader.available() == default_capacity);
    std::string one(page, '?');
    REQUIRE(full.reader.try_read(room(one)));
    CHECK(full.writer.try_write("room again"));
    CHECK(other.reader.available() == 4u);
}

} // namespace nowait_test::channels
