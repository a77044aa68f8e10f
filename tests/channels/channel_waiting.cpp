// Waiting in a message channel: every way in and every way out, for each kind of channel, on one runtime.
#include "channel_support.hpp"

#include <cerrno>

using namespace channel_tests;
using nowait_test::make_runtime;
using nowait_test::run_on_new;

TEMPLATE_TEST_CASE("channel: what is sent is received, in order, without suspension", "",
                   NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(4);
    auto runtime = make_runtime();
    const auto body = [](const TestType& c) -> task<> {
        for (int i = 0; i < 4; ++i) {
            parcel p = wrap(i);
            const auto sent = co_await c.send(p);
            CHECK(code_of(sent) == 0);
            CHECK(p == nullptr);
        }
        CHECK(c.size() == 4);
        for (int i = 0; i < 4; ++i) {
            const auto got = co_await c.receive();
            CHECK(number_of(got) == i);
        }
        CHECK(c.empty());
    };
    REQUIRE(runtime.run(body(channel)));
    const auto counted = runtime.stats().of(nowait::operation_kind::channel);
    CHECK(counted.inline_completions == 8);
    CHECK(counted.armed == 0);
    CHECK(channel.sound());
}

TEMPLATE_TEST_CASE("channel: a receive waits for a send, which hands it the message", "",
                   NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(2);
    run_on_new([](const TestType& c) -> task<> {
        receiver r;
        auto waits = nowait::spawn(receive_one(c, r));
        co_await settle();
        CHECK(r.outcome == -1);
        CHECK(c.waiting_receivers() == 1);
        parcel p = wrap(7);
        const auto sent = co_await c.send(p);
        CHECK(code_of(sent) == 0);
        CHECK(c.size() == 0); // it never was in the queue
        CHECK(c.waiting_receivers() == 0);
        CHECK(r.outcome == -1); // never resumed inside somebody else's call
        (void)co_await waits.join();
        CHECK(r.outcome == 7);
    }(channel));
    CHECK(channel.sound());
}

TEMPLATE_TEST_CASE("channel: mq_send 5-1: a send to a full channel waits until a receive makes room", "",
                   NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    run_on_new([](const TestType& c) -> task<> {
        parcel first = wrap(1);
        (void)co_await c.send(first);
        sender s{wrap(2)};
        auto waits = nowait::spawn(send_one(c, s));
        co_await settle();
        CHECK(s.outcome == -1);
        CHECK(s.value != nullptr); // still the sender's
        CHECK(c.waiting_senders() == 1);
        const auto got = co_await c.receive();
        CHECK(number_of(got) == 1);
        CHECK(c.size() == 1); // the place was filled again at the same moment
        CHECK(c.waiting_senders() == 0);
        (void)co_await waits.join();
        CHECK(s.outcome == 0);
        const auto next = co_await c.receive();
        CHECK(number_of(next) == 2);
    }(channel));
    CHECK(channel.sound());
}

TEMPLATE_TEST_CASE("channel: a newcomer does not overtake those who wait", "", NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    run_on_new([](const TestType& c) -> task<> {
        parcel first = wrap(1);
        (void)co_await c.send(first);
        sender second{wrap(2)};
        auto waits = nowait::spawn(send_one(c, second));
        co_await settle();
        (void)co_await c.receive(); // the second is chosen, and has not run yet
        parcel third = wrap(3);
        CHECK(code_of(c.try_send(third)) == EAGAIN);
        CHECK(third != nullptr);

        (void)co_await waits.join();
        const auto got = co_await c.receive();
        CHECK(number_of(got) == 2);

        receiver early;
        auto receives = nowait::spawn(receive_one(c, early));
        co_await settle();
        (void)co_await c.send(third); // given to the early one, which has not run yet
        CHECK(number_of(c.try_receive()) == -EAGAIN);
        (void)co_await receives.join();
        CHECK(early.outcome == 3);
    }(channel));
}

TEMPLATE_TEST_CASE("channel: closing ends waiting senders, who keep their messages", "",
                   NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    run_on_new([](const TestType& c) -> task<> {
        parcel first = wrap(1);
        (void)co_await c.send(first);
        sender a{wrap(2)};
        sender b{wrap(3)};
        auto wait_a = nowait::spawn(send_one(c, a));
        auto wait_b = nowait::spawn(send_one(c, b));
        co_await settle();
        c.close();
        (void)co_await wait_a.join();
        (void)co_await wait_b.join();
        CHECK(a.outcome == EPIPE);
        CHECK(b.outcome == EPIPE);
        REQUIRE(a.value != nullptr);
        CHECK(*a.value == 2);
        CHECK(*b.value == 3);

        // What was queued can still be received; then it is over, for senders and receivers.
        CHECK(c.closed());
        const auto left = co_await c.receive();
        CHECK(number_of(left) == 1);
        const auto over = co_await c.receive();
        CHECK(number_of(over) == -EPIPE);
        CHECK(number_of(c.try_receive()) == -EPIPE);
        const auto refused = co_await c.send(a.value);
        CHECK(code_of(refused) == EPIPE);
        CHECK(code_of(c.try_send(a.value)) == EPIPE);
        CHECK(a.value != nullptr);
        c.close();
    }(channel));
    CHECK(channel.sound());
}

TEMPLATE_TEST_CASE("channel: closing ends waiting receivers", "", NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    run_on_new([](const TestType& c) -> task<> {
        receiver a;
        receiver b;
        auto wait_a = nowait::spawn(receive_one(c, a));
        auto wait_b = nowait::spawn(receive_one(c, b));
        co_await settle();
        c.close();
        CHECK(a.outcome == -1);
        (void)co_await wait_a.join();
        (void)co_await wait_b.join();
        CHECK(a.outcome == -EPIPE);
        CHECK(b.outcome == -EPIPE);
    }(channel));
}

TEMPLATE_TEST_CASE("channel: the last handle's end ends whoever waits", "", NOWAIT_EVERY_CHANNEL(parcel)) {
    run_on_new([]() -> task<> {
        std::optional<TestType> channel = make<TestType>(1);
        std::optional<TestType> copy = channel;
        receiver r;
        auto receives = nowait::spawn(receive_one(*copy, r));
        co_await settle();
        channel.reset();
        co_await settle();
        CHECK(r.outcome == -1);
        copy.reset();
        CHECK(r.outcome == -1);
        (void)co_await receives.join();
        CHECK(r.outcome == -EPIPE);

        channel = make<TestType>(1);
        parcel first = wrap(1);
        (void)co_await channel->send(first);
        sender s{wrap(2)};
        auto sends = nowait::spawn(send_one(*channel, s));
        co_await settle();
        channel.reset();
        (void)co_await sends.join();
        CHECK(s.outcome == EPIPE);
        REQUIRE(s.value != nullptr);
        CHECK(*s.value == 2);
    }());
}

TEMPLATE_TEST_CASE("channel: a cancelled receive takes nothing and leaves no waiter", "",
                   NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    run_on_new([](const TestType& c) -> task<> {
        nowait::inplace_stop_source stop;
        receiver r;
        auto waits = nowait::spawn(receive_one(c, r, stop.get_token()));
        co_await settle();
        CHECK(c.waiting_receivers() == 1);
        stop.request_stop();
        CHECK(c.waiting_receivers() == 0);
        parcel p = wrap(5);
        (void)co_await c.send(p); // after the cancel, before its end: it stays queued
        CHECK(c.size() == 1);
        (void)co_await waits.join();
        CHECK(r.outcome == -ECANCELED);
        const auto got = co_await c.receive();
        CHECK(number_of(got) == 5);
    }(channel));
    CHECK(channel.sound());
}

TEMPLATE_TEST_CASE("channel: a receive that was given a message delivers it, whatever stop comes then", "",
                   NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    run_on_new([](const TestType& c) -> task<> {
        nowait::inplace_stop_source stop;
        receiver r;
        auto waits = nowait::spawn(receive_one(c, r, stop.get_token()));
        co_await settle();
        parcel p = wrap(5);
        (void)co_await c.send(p);
        stop.request_stop(); // chosen, then cancelled
        (void)co_await waits.join();
        CHECK(r.outcome == 5);
        CHECK(c.empty());
    }(channel));
}

TEMPLATE_TEST_CASE("channel: a cancelled send keeps its message", "", NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    run_on_new([](const TestType& c) -> task<> {
        nowait::inplace_stop_source stop;
        parcel first = wrap(1);
        (void)co_await c.send(first);
        sender s{wrap(2)};
        auto waits = nowait::spawn(send_one(c, s, stop.get_token()));
        co_await settle();
        CHECK(c.waiting_senders() == 1);
        stop.request_stop();
        CHECK(c.waiting_senders() == 0);
        (void)co_await c.receive();
        CHECK(c.empty()); // the cancelled message did not fill the place
        (void)co_await waits.join();
        CHECK(s.outcome == ECANCELED);
        REQUIRE(s.value != nullptr);
        CHECK(*s.value == 2);
    }(channel));
    CHECK(channel.sound());
}

TEMPLATE_TEST_CASE("channel: a send that was let in has succeeded, whatever stop comes then", "",
                   NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    run_on_new([](const TestType& c) -> task<> {
        nowait::inplace_stop_source stop;
        parcel first = wrap(1);
        (void)co_await c.send(first);
        sender s{wrap(2)};
        auto waits = nowait::spawn(send_one(c, s, stop.get_token()));
        co_await settle();
        (void)co_await c.receive();
        stop.request_stop();
        (void)co_await waits.join();
        CHECK(s.outcome == 0);
        CHECK(s.value == nullptr);
        const auto got = co_await c.receive();
        CHECK(number_of(got) == 2);
    }(channel));
}

TEMPLATE_TEST_CASE("channel: waiters are served in the order of their coming", "",
                   NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    run_on_new([](const TestType& c) -> task<> {
        std::vector<receiver> receivers(3);
        for (receiver& r : receivers)
            nowait::spawn(receive_one(c, r)).detach();
        co_await settle();
        for (int i = 1; i <= 3; ++i) {
            parcel p = wrap(i);
            (void)co_await c.send(p);
        }
        co_await settle();
        for (int i = 1; i <= 3; ++i)
            CHECK(receivers[static_cast<std::size_t>(i - 1)].outcome == i);

        parcel first = wrap(0);
        (void)co_await c.send(first);
        std::vector<sender> senders(3);
        for (int i = 0; i < 3; ++i) {
            senders[static_cast<std::size_t>(i)].value = wrap(i + 1);
            nowait::spawn(send_one(c, senders[static_cast<std::size_t>(i)])).detach();
        }
        co_await settle();
        for (int i = 0; i <= 3; ++i) {
            const auto got = co_await c.receive();
            CHECK(number_of(got) == i);
        }
        co_await settle();
    }(channel));
    CHECK(channel.sound());
}

namespace {

template <class C>
task<> send_urgently(const C& to, sender& s, unsigned urgency) {
    const auto sent = co_await to.send(s.value).with_urgency(urgency);
    s.outcome = code_of(sent);
}
template <class C>
task<> receive_urgently(const C& from, receiver& r, unsigned urgency) {
    const auto got = co_await from.receive().with_urgency(urgency);
    r.outcome = number_of(got);
}

} // namespace

TEMPLATE_TEST_CASE(
    "channel: mq_send 6, mq_receive 6: the most urgent waiter first, the longest waiting among equals", "",
    NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    run_on_new([](const TestType& c) -> task<> {
        const unsigned urgencies[] = {0, 5, 0, 5, 9, 1};
        const std::size_t order[] = {4, 1, 3, 5, 0, 2};
        std::vector<receiver> receivers(6);
        for (std::size_t i = 0; i < 6; ++i)
            nowait::spawn(receive_urgently(c, receivers[i], urgencies[i])).detach();
        co_await settle();
        for (int i = 0; i < 6; ++i) {
            parcel p = wrap(i);
            (void)co_await c.send(p);
        }
        co_await settle();
        for (int i = 0; i < 6; ++i)
            CHECK(receivers[order[i]].outcome == i);

        parcel first = wrap(100);
        (void)co_await c.send(first);
        std::vector<sender> senders(6);
        for (std::size_t i = 0; i < 6; ++i) {
            senders[i].value = wrap(static_cast<int>(i));
            nowait::spawn(send_urgently(c, senders[i], urgencies[i])).detach();
        }
        co_await settle();
        (void)co_await c.receive();
        for (std::size_t i : order) {
            const auto got = co_await c.receive();
            CHECK(number_of(got) == static_cast<int>(i));
        }
        co_await settle();
    }(channel));
    CHECK(channel.sound());
}

TEMPLATE_TEST_CASE("channel: mq_timedsend 18-1, 15-1, mq_timedreceive 10-2, 18-2: a deadline in the past "
                   "matters only to who must wait",
                   "", NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    run_on_new([](const TestType& c) -> task<> {
        const auto past = std::chrono::steady_clock::now() - std::chrono::seconds(1);
        parcel a = wrap(1);
        const auto roomy = co_await nowait::with_deadline(c.send(a), past);
        CHECK(code_of(roomy) == 0);
        parcel b = wrap(2);
        const auto full = co_await nowait::with_deadline(c.send(b), past);
        CHECK(code_of(full) == ETIMEDOUT);
        CHECK(b != nullptr);
        const auto there = co_await nowait::with_deadline(c.receive(), past);
        CHECK(number_of(there) == 1);
        const auto empty = co_await nowait::with_deadline(c.receive(), past);
        CHECK(number_of(empty) == -ETIMEDOUT);
        CHECK(c.waiting_receivers() + c.waiting_senders() == 0);
    }(channel));
}

TEMPLATE_TEST_CASE(
    "channel: mq_timedreceive 5-2, mq_timedsend 5-3: a wait ends at its time-out, and leaves nothing", "",
    NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    run_on_new([](const TestType& c) -> task<> {
        const auto none = co_await nowait::with_timeout(c.receive(), std::chrono::milliseconds(2));
        CHECK(number_of(none) == -ETIMEDOUT);
        parcel a = wrap(1);
        (void)co_await c.send(a);
        CHECK(c.size() == 1); // no receiver was left behind to take it
        parcel b = wrap(2);
        const auto full = co_await nowait::with_timeout(c.send(b), std::chrono::milliseconds(2));
        CHECK(code_of(full) == ETIMEDOUT);
        CHECK(b != nullptr);
        CHECK(c.waiting_senders() == 0);
    }(channel));
}

TEMPLATE_TEST_CASE("channel: send_owned gives an unsent message back", "", NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    run_on_new([](const TestType& c) -> task<> {
        const auto first = co_await c.send_owned(wrap(1));
        CHECK(code_of(first) == 0);
        auto late = co_await nowait::with_timeout(c.send_owned(wrap(2)), std::chrono::milliseconds(1));
        REQUIRE(code_of(late) == ETIMEDOUT);
        CHECK(*late.error().value == 2);
        c.close();
        auto refused = co_await c.send_owned(std::move(late.error().value));
        REQUIRE(code_of(refused) == EPIPE);
        CHECK(*refused.error().value == 2);
    }(channel));
}

TEMPLATE_TEST_CASE("channel: send_owned waits as send does", "", NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    run_on_new([](const TestType& c) -> task<> {
        const auto all = [](const TestType& to) -> task<> {
            for (int i = 0; i < 10; ++i) {
                const auto sent = co_await to.send_owned(wrap(i));
                CHECK(code_of(sent) == 0);
            }
        };
        auto sends = nowait::spawn(all(c));
        for (int i = 0; i < 10; ++i) {
            const auto got = co_await c.receive();
            CHECK(number_of(got) == i);
        }
        (void)co_await sends.join();
    }(channel));
}

TEMPLATE_TEST_CASE("channel: what was never started has never happened", "", NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    parcel p = wrap(1);
    {
        [[maybe_unused]] auto sends = channel.send(p);
        [[maybe_unused]] auto receives = channel.receive();
        [[maybe_unused]] auto owned = channel.send_owned(wrap(2));
        using send_operation = typename decltype(sends)::operation;
        using receive_operation = typename decltype(receives)::operation;
        [[maybe_unused]] send_operation s(sends);
        [[maybe_unused]] receive_operation r(receives);
        receiver never;
        [[maybe_unused]] auto unstarted = receive_one(channel, never);
    }
    CHECK(p != nullptr);
    CHECK(channel.empty());
    CHECK(channel.waiting_receivers() + channel.waiting_senders() == 0);
    CHECK(channel.sound());
}

TEMPLATE_TEST_CASE("channel: a stop that was requested before leaves everything as it is", "",
                   NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(2);
    run_on_new([](const TestType& c) -> task<> {
        nowait::inplace_stop_source stop;
        stop.request_stop();
        parcel p = wrap(1);
        const auto sent = co_await nowait::with_stop(c.send(p), stop.get_token());
        CHECK(code_of(sent) == ECANCELED);
        CHECK(p != nullptr);
        (void)co_await c.send(p);
        const auto got = co_await nowait::with_stop(c.receive(), stop.get_token());
        CHECK(number_of(got) == -ECANCELED);
        CHECK(c.size() == 1);
    }(channel));
}

TEMPLATE_TEST_CASE(
    "channel: a runtime that is stopped takes its waiters out, and leaves the channel to others", "",
    NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    sender s{wrap(2)};
    {
        auto runtime = make_runtime();
        parcel first = wrap(1);
        REQUIRE(channel.try_send(first));
        runtime.spawn(send_one(channel, s)).detach();
        const auto stops = [](nowait::runtime& of) -> task<> {
            co_await settle();
            of.request_stop();
        };
        REQUIRE(runtime.run(stops(runtime)));
    }
    CHECK(s.outcome == ECANCELED);
    CHECK(channel.waiting_senders() == 0);
    REQUIRE(s.value != nullptr);
    CHECK(number_of(channel.try_receive()) == 1);
    CHECK(channel.empty());
    CHECK(channel.sound());
}

TEMPLATE_TEST_CASE("channel: a moved-from handle gives errors", "", NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    auto taken = std::move(channel);
    CHECK_FALSE(channel.valid()); // NOLINT(bugprone-use-after-move): what is tested
    CHECK(taken.valid());
    run_on_new([](const TestType& c) -> task<> {
        parcel p = wrap(1);
        const auto sent = co_await c.send(p);
        CHECK(code_of(sent) == EBADF);
        const auto got = co_await c.receive();
        CHECK(number_of(got) == -EBADF);
        const auto owned = co_await c.send_owned(wrap(1));
        CHECK(code_of(owned) == EBADF);
        const auto told = co_await c.notified();
        CHECK(code_of(told) == EBADF);
        CHECK(code_of(c.try_send(p)) == EBADF);
        CHECK(number_of(c.try_receive()) == -EBADF);
        CHECK(p != nullptr);
    }(channel));
    channel.close();
    channel.abort();
    CHECK(channel.closed());
    CHECK(channel.size() + channel.bytes() + channel.capacity() + channel.waiting_senders() == 0);
}

TEMPLATE_TEST_CASE("channel: a task that never waits still gives way when its budget is spent", "",
                   NOWAIT_EVERY_CHANNEL(int)) {
    nowait::runtime_options options;
    options.budget = 8;
    auto runtime = make_runtime(options);
    auto channel = make<TestType>(1);
    bool stop = false;
    long rounds = 0;
    const auto busy = [](const TestType& c, const bool& over, long& n) -> task<> {
        while (!over) {
            int one = 1;
            (void)co_await c.send(one);
            (void)co_await c.receive();
            ++n;
        }
    };
    const auto other = [](bool& over) -> task<> {
        for (int i = 0; i < 10; ++i)
            co_await nowait::yield();
        over = true;
    };
    runtime.spawn(busy(channel, stop, rounds)).detach();
    runtime.spawn(other(stop)).detach();
    REQUIRE(runtime.run());
    CHECK(rounds > 0);
    CHECK(rounds <= 4 * 11 + 1);
    CHECK(runtime.stats().of(nowait::operation_kind::channel).budget_yields >= 10);
    CHECK(channel.sound());
}
