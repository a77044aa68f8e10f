// A channel of capacity 0: a message goes from hand to hand, and a send ends when somebody has it.
#include "channel_support.hpp"

#include <cerrno>

using namespace channel_tests;
using nowait_test::run_on_new;

TEMPLATE_TEST_CASE("rendezvous: a send waits for a receiver, a receive takes from the waiting sender", "",
                   nowait::channel<parcel>, nowait::local_channel<parcel>) {
    auto channel = make<TestType>(0);
    run_on_new([](const TestType& c) -> task<> {
        parcel alone = wrap(0);
        CHECK(code_of(c.try_send(alone)) == EAGAIN);
        CHECK(number_of(c.try_receive()) == -EAGAIN);
        sender first{wrap(1)};
        sender second{wrap(2)};
        nowait::spawn(send_one(c, first)).detach();
        nowait::spawn(send_one(c, second)).detach();
        co_await settle();
        CHECK(c.waiting_senders() == 2);
        CHECK(c.size() == 0);
        const auto a = co_await c.receive();
        CHECK(number_of(a) == 1);
        co_await settle();
        CHECK(first.outcome == 0);
        CHECK(second.outcome == -1);
        CHECK(number_of(c.try_receive()) == 2);
        co_await settle();
        CHECK(second.outcome == 0);

        receiver r;
        nowait::spawn(receive_one(c, r)).detach();
        co_await settle();
        CHECK(code_of(c.try_send(alone)) == 0);
        CHECK(alone == nullptr);
        co_await settle();
        CHECK(r.outcome == 0);
    }(channel));
    CHECK(channel.sound());
}

TEMPLATE_TEST_CASE("rendezvous: cancel and close leave the message with its sender", "",
                   nowait::channel<parcel>, nowait::local_channel<parcel>) {
    auto channel = make<TestType>(0);
    run_on_new([](const TestType& c) -> task<> {
        nowait::inplace_stop_source stop;
        sender a{wrap(1)};
        sender b{wrap(2)};
        nowait::spawn(send_one(c, a, stop.get_token())).detach();
        nowait::spawn(send_one(c, b)).detach();
        co_await settle();
        stop.request_stop();
        CHECK(number_of(c.try_receive()) == 2);
        co_await settle();
        CHECK(a.outcome == ECANCELED);
        CHECK(*a.value == 1);
        CHECK(b.outcome == 0);
        sender last{wrap(3)};
        nowait::spawn(send_one(c, last)).detach();
        co_await settle();
        c.close();
        co_await settle();
        CHECK(last.outcome == EPIPE);
        CHECK(*last.value == 3);
        CHECK(number_of(c.try_receive()) == -EPIPE);
    }(channel));
    CHECK(channel.sound());
}
