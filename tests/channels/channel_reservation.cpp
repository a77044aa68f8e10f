// A place first, then the message: nothing can come between.
#include "channel_support.hpp"
#include "priority_support.hpp"

#include <nowait/wait.hpp>

#include <cerrno>
#include <string>
#include <thread>

using namespace channel_tests;
using nowait_test::run_on_new;

namespace {

template <class C>
using reservation_of = typename C::reservation;

/// A reserve in a task of its own.
template <class C>
struct reserver {
    std::optional<reservation_of<C>> place;
    int outcome = -1;
};
template <class C>
task<> reserve_one(const C& in, reserver<C>& r) {
    auto got = co_await in.reserve();
    r.outcome = code_of(got);
    if (got)
        r.place.emplace(std::move(*got));
}
template <class C>
task<> reserve_one(const C& in, reserver<C>& r, nowait::inplace_stop_token token) {
    auto got = co_await nowait::with_stop(in.reserve(), token);
    r.outcome = code_of(got);
    if (got)
        r.place.emplace(std::move(*got));
}

template <class C>
int try_send(const C& to, int number) {
    parcel p = wrap(number);
    return code_of(to.try_send(p));
}

} // namespace

TEMPLATE_TEST_CASE("channel: a reservation that is dropped after the close wakes the receiver", "",
                   NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    run_on_new([](const TestType& c) -> task<> {
        auto reserved = co_await c.reserve();
        CHECK(reserved);
        c.close();
        receiver r;
        nowait::spawn(receive_one(c, r)).detach();
        co_await settle();
        CHECK(r.outcome == -1); // a message may still come
        CHECK(c.waiting_receivers() == 1);
        CHECK(c.sound());
        reserved->give_back();
        co_await settle();
        CHECK(r.outcome == -EPIPE);
    }(channel));
    CHECK(channel.sound());
}

TEMPLATE_TEST_CASE("channel: a reservation is a place that nobody else gets, and its message does not wait",
                   "", NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(2);
    auto reserved = channel.try_reserve();
    REQUIRE(reserved);
    CHECK(channel.size() == 0);
    CHECK(channel.reserved() == 1);
    CHECK(try_send(channel, 1) == 0);
    CHECK(try_send(channel, 2) == EAGAIN);
    CHECK(code_of(channel.try_reserve()) == EAGAIN);
    CHECK(channel.sound());
    REQUIRE(reserved->send(wrap(3)));
    CHECK_FALSE(reserved->valid());
    CHECK(code_of(reserved->send(wrap(4))) == EBADF);
    CHECK(channel.reserved() == 0);
    CHECK(channel.size() == 2);
    CHECK(number_of(channel.try_receive()) == 1);
    CHECK(number_of(channel.try_receive()) == 3); // its place in the order is that of its sending
    CHECK(channel.sound());
    CHECK(try_send(channel, 5) == 0);
}

TEMPLATE_TEST_CASE("channel: a message that was reserved for is handed to a waiting receiver", "",
                   NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    run_on_new([](const TestType& c) -> task<> {
        auto reserved = co_await c.reserve();
        CHECK(reserved);
        receiver r;
        nowait::spawn(receive_one(c, r)).detach();
        co_await settle();
        CHECK(reserved->send(wrap(8)));
        co_await settle();
        CHECK(r.outcome == 8);
        CHECK(c.size() == 0);
    }(channel));
    CHECK(channel.sound());
}

TEMPLATE_TEST_CASE("channel: a send passes a reservation to a receiver that waits", "",
                   NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    run_on_new([](const TestType& c) -> task<> {
        auto reserved = co_await c.reserve();
        CHECK(reserved);
        sender s{wrap(1)};
        nowait::spawn(send_one(c, s)).detach();
        co_await settle();
        CHECK(s.outcome == -1);
        const auto got = co_await c.receive(); // the place is taken, but nothing must lie in it
        CHECK(number_of(got) == 1);
        co_await settle();
        CHECK(s.outcome == 0);
        CHECK(c.sound());
    }(channel));
    CHECK(channel.reserved() == 0);
    CHECK(channel.sound());
}

TEMPLATE_TEST_CASE("channel: what was reserved before the close is delivered after it, then comes the end",
                   "", NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(2);
    auto first = channel.try_reserve();
    auto second = channel.try_reserve();
    REQUIRE((first && second));
    channel.close();
    CHECK(number_of(channel.try_receive()) == -EAGAIN);
    CHECK(code_of(channel.try_reserve()) == EPIPE);
    REQUIRE(first->send(wrap(1)));
    CHECK(number_of(channel.try_receive()) == 1);
    CHECK(number_of(channel.try_receive()) == -EAGAIN);
    second->give_back();
    CHECK(number_of(channel.try_receive()) == -EPIPE);
    CHECK(channel.sound());
}

TEMPLATE_TEST_CASE("channel: after an abort, or the last handle, a reservation keeps its message", "",
                   NOWAIT_EVERY_CHANNEL(parcel)) {
    for (const bool abort : {true, false}) {
        priority_tests::counting_source memory;
        {
            std::optional<TestType> channel = make<TestType>(4, &memory);
            auto reserved = channel->try_reserve();
            REQUIRE(reserved);
            CHECK(try_send(*channel, 1) == 0);
            if (abort) {
                channel->abort();
                CHECK(number_of(channel->try_receive()) == -EPIPE);
                CHECK(channel->sound());
            } else {
                channel.reset();
            }
            parcel late = wrap(2);
            CHECK(code_of(reserved->send(late)) == EPIPE);
            CHECK(*late == 2);
            CHECK_FALSE(reserved->valid());
        }
        CHECK(memory.out.empty());
    }
}

TEMPLATE_TEST_CASE("channel: reservations are waited for in line with senders", "",
                   NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    run_on_new([](const TestType& c) -> task<> {
        parcel zero = wrap(0);
        (void)co_await c.send(zero);
        sender before{wrap(1)};
        sender after{wrap(3)};
        reserver<TestType> between;
        nowait::spawn(send_one(c, before)).detach();
        nowait::spawn(reserve_one(c, between)).detach();
        nowait::spawn(send_one(c, after)).detach();
        co_await settle();
        CHECK(c.waiting_senders() == 3);
        const auto got_zero = co_await c.receive();
        CHECK(number_of(got_zero) == 0);
        co_await settle();
        CHECK((before.outcome == 0 && between.outcome == -1));
        const auto got_one = co_await c.receive();
        CHECK(number_of(got_one) == 1);
        co_await settle();
        CHECK((between.outcome == 0 && after.outcome == -1));
        CHECK(c.reserved() == 1);
        CHECK(c.sound());
        between.place->give_back(); // and the next one is let in
        co_await settle();
        CHECK(after.outcome == 0);
        const auto got_three = co_await c.receive();
        CHECK(number_of(got_three) == 3);
    }(channel));
    CHECK(channel.sound());
}

TEMPLATE_TEST_CASE("channel: a reserve that is stopped holds nothing, one that was chosen gives a place", "",
                   NOWAIT_EVERY_CHANNEL(parcel)) {
    auto channel = make<TestType>(1);
    run_on_new([](const TestType& c) -> task<> {
        parcel zero = wrap(0);
        (void)co_await c.send(zero);
        nowait::inplace_stop_source stop;
        reserver<TestType> stopped;
        reserver<TestType> chosen;
        nowait::spawn(reserve_one(c, stopped, stop.get_token())).detach();
        co_await settle();
        stop.request_stop();
        co_await settle();
        CHECK(stopped.outcome == ECANCELED);
        CHECK(c.waiting_senders() == 0);
        nowait::inplace_stop_source late;
        nowait::spawn(reserve_one(c, chosen, late.get_token())).detach();
        co_await settle();
        (void)c.try_receive(); // it is chosen here
        late.request_stop();
        co_await settle();
        CHECK(chosen.outcome == 0);
        CHECK(c.reserved() == 1);
        const auto timed = co_await nowait::with_timeout(c.reserve(), std::chrono::seconds(0));
        CHECK(code_of(timed) == ETIMEDOUT);
        CHECK(c.reserved() == 1);
        CHECK(c.sound());
    }(channel));
    CHECK(channel.reserved() == 0);
    CHECK(channel.sound());
}

TEMPLATE_TEST_CASE("channel: all the memory of a reserved message is there", "",
                   NOWAIT_EVERY_CHANNEL(parcel)) {
    priority_tests::counting_source memory;
    {
        auto channel = make<TestType>(1000, &memory);
        std::vector<reservation_of<TestType>> places;
        for (int i = 0; i < 1000; ++i) {
            auto reserved = [&] {
                if constexpr (requires { channel.try_reserve(1); })
                    return channel.try_reserve((i * 67) % 32768);
                else
                    return channel.try_reserve();
            }();
            REQUIRE(reserved);
            places.push_back(std::move(*reserved));
        }
        memory.refuses_all = true;
        for (auto& place : places)
            REQUIRE(place.send(wrap(1)));
        CHECK(channel.size() == 1000);
        CHECK(channel.sound());
        memory.refuses_all = false;
    }
    CHECK(memory.out.empty());
}

TEST_CASE("channel: a reserve without memory fails, and the channel goes on") {
    priority_tests::counting_source memory;
    {
        auto queue = make<nowait::mqueue_channel<parcel>>(4, &memory);
        memory.refuses_all = true;
        CHECK(code_of(queue.try_reserve(3)) == ENOMEM);
        CHECK(queue.reserved() == 0);
        CHECK(queue.sound());
        memory.refuses_all = false;
        CHECK(code_of(queue.try_reserve(3)) == 0);
    }
    CHECK(memory.out.empty());
}

TEST_CASE("mqueue_channel: where messages are measured a place counts the largest until it is used") {
    nowait::channel_options<std::string> wanted;
    wanted.capacity = 10;
    wanted.message_bytes = 100;
    wanted.total_bytes = 150;
    wanted.size_of = [](const std::string& s) noexcept -> std::uint64_t { return s.size(); };
    auto made = nowait::mqueue_channel<std::string>::create(wanted);
    REQUIRE(made);
    auto reserved = made->try_reserve(1);
    REQUIRE(reserved);
    CHECK(code_of(made->try_reserve(1)) == EAGAIN);
    std::string large(51, 'x');
    CHECK(code_of(made->try_send(large, 1)) == EAGAIN);
    std::string fits(50, 'x');
    CHECK(code_of(made->try_send(fits, 1)) == 0);
    std::string too_large(101, 'x');
    CHECK(code_of(reserved->send(too_large)) == EMSGSIZE);
    CHECK(too_large.size() == 101);
    CHECK(reserved->valid());
    REQUIRE(reserved->send(std::string(10, 'y')));
    CHECK(made->bytes() == 60);
    CHECK(code_of(made->try_send(large, 1)) == 0);
    CHECK(made->sound());
}

TEST_CASE("mqueue_channel: a reservation has its priority") {
    auto queue = make<nowait::mqueue_channel<int>>(4);
    auto high = queue.try_reserve(9);
    REQUIRE(high);
    int low = 1;
    REQUIRE(queue.try_send(low, 3));
    REQUIRE(high->send(2));
    const auto first = queue.try_receive();
    REQUIRE(first);
    CHECK(first->value == 2);
    CHECK(first->priority == 9);
    CHECK(code_of(queue.try_reserve(32768)) == EINVAL);
    CHECK(code_of(queue.try_reserve(-1)) == EINVAL);
    const auto moved = std::move(queue);
    CHECK(code_of(queue.try_reserve(1)) == EBADF); // NOLINT(bugprone-use-after-move): that is the question
    run_on_new([](const nowait::mqueue_channel<int>& q) -> task<> {
        const auto bad = co_await q.reserve(-1);
        CHECK(code_of(bad) == EINVAL);
    }(moved));
}

TEST_CASE("mqueue_channel: a message that was reserved for is a notice to whoever waits for one") {
    auto queue = make<nowait::mqueue_channel<int>>(4);
    run_on_new([](const nowait::mqueue_channel<int>& q) -> task<> {
        auto reserved = co_await q.reserve(1);
        int outcome = -1;
        const auto waits = [](const nowait::mqueue_channel<int>& on, int& code) -> task<> {
            const auto told = co_await on.notified();
            code = code_of(told);
        };
        nowait::spawn(waits(q, outcome)).detach();
        co_await settle();
        CHECK(outcome == -1);
        CHECK(reserved->send(5));
        co_await settle();
        CHECK(outcome == 0);
    }(queue));
}

TEST_CASE("rendezvous: there are no places to reserve") {
    auto channel = make<nowait::channel<int>>(0);
    CHECK(code_of(channel.try_reserve()) == EOPNOTSUPP);
    CHECK(code_of(nowait::wait(channel.reserve())) == EOPNOTSUPP);
}

TEST_CASE("channel: reservations between threads: every message once, and the end after the last") {
    auto channel = make<nowait::mqueue_channel<int>>(3);
    constexpr int messages = 2000;
    long long sum = 0;
    int count = 0;
    int errors = 0;
    std::thread receiving([&] {
        for (;;) {
            const auto got = nowait::wait(channel.receive());
            if (!got) {
                errors += got.error() != std::errc::broken_pipe;
                return;
            }
            sum += got->value;
            ++count;
        }
    });
    std::vector<std::thread> sending;
    std::vector<int> failures(2);
    std::vector<int> dropped(2);
    for (int t = 0; t < 2; ++t) {
        sending.emplace_back([&, t] {
            const auto nth = static_cast<std::size_t>(t);
            for (int i = 0; i < messages; ++i) {
                auto place = nowait::wait(channel.reserve(i % 5));
                if (!place)
                    ++failures[nth];
                else if (i % 7 == 0)
                    ++dropped[nth];
                else
                    failures[nth] += !place->send(1);
            }
        });
    }
    for (std::thread& each : sending)
        each.join();
    channel.close();
    receiving.join();
    CHECK(errors + failures[0] + failures[1] == 0);
    CHECK(count == 2 * messages - dropped[0] - dropped[1]);
    CHECK(sum == count);
    CHECK(channel.sound());
}
