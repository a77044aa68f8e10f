// Memory: none for a message once the channel is warm, and a failure at any place loses nothing.
#include "channel_support.hpp"
#include "counting_new.hpp"
#include "priority_support.hpp"

#include <cerrno>

using namespace channel_tests;
using nowait_test::make_runtime;
using nowait_test::run_on_new;

TEMPLATE_TEST_CASE("channel: a warm channel allocates nothing, whether its tasks wait or not", "",
                   NOWAIT_EVERY_CHANNEL(int)) {
    auto channel = make<TestType>(8);
    run_on_new([](const TestType& c) -> task<> {
        const auto sends = [](const TestType& to, int messages) -> task<> {
            for (int i = 0; i < messages; ++i) {
                const auto sent = co_await to.send(i);
                if (!sent)
                    co_return;
            }
        };
        for (int round = 0; round < 2; ++round) {
            auto sending = nowait::spawn(sends(c, 1000));
            const std::size_t before = nowait_test::allocations();
            for (int i = 0; i < 1000; ++i) {
                const auto got = co_await c.receive();
                if (number_of(got) != i)
                    FAIL("lost " << i);
            }
            if (round == 1)
                CHECK(nowait_test::allocations() == before);
            (void)co_await sending.join();
        }
    }(channel));
}

TEMPLATE_TEST_CASE("channel: when memory runs out a send fails, keeps its message, and the channel goes on",
                   "", NOWAIT_EVERY_CHANNEL(parcel)) {
    for (std::size_t failing = 0; failing < 8; ++failing) {
        priority_tests::counting_source memory;
        memory.refuse_at = failing;
        {
            typename TestType::options wanted;
            wanted.capacity = 600;
            wanted.memory = &memory;
            auto made = TestType::create(wanted);
            if (!made) {
                CHECK(made.error() == std::errc::not_enough_memory);
                continue;
            }
            auto channel = std::move(*made);
            int refused = 0;
            for (int i = 0; i < 600; ++i) {
                parcel p = wrap(i);
                const auto send = [&]() {
                    if constexpr (requires { channel.try_send(p, 1); })
                        return code_of(channel.try_send(p, (i * 67) % 32768));
                    else
                        return code_of(channel.try_send(p));
                };
                if (send() == ENOMEM) {
                    ++refused;
                    REQUIRE(p != nullptr);
                    REQUIRE(channel.size() == static_cast<std::size_t>(i));
                    REQUIRE(channel.sound());
                    REQUIRE(send() == 0);
                }
                REQUIRE(p == nullptr);
            }
            CHECK(refused <= 1);
            CHECK(channel.size() == 600);
            CHECK(channel.sound());
        }
        CHECK(memory.out.empty());
        CHECK_FALSE(memory.confused);
    }
}

TEMPLATE_TEST_CASE("channel: a send that would have to wait asks for its memory first", "",
                   NOWAIT_EVERY_CHANNEL(parcel)) {
    priority_tests::counting_source memory;
    {
        auto channel = make<TestType>(1, &memory);
        run_on_new([](const TestType& c, priority_tests::counting_source& source) -> task<> {
            parcel first = wrap(1);
            parcel second = wrap(2);
            source.refuses_all = true;
            const auto sent = co_await c.send(first);
            if (sent) { // the only message of a queue with priorities needs none: the next one asks for both
                const auto refused = co_await c.send(second);
                CHECK(code_of(refused) == ENOMEM);
                CHECK(second != nullptr);
            } else {
                CHECK(code_of(sent) == ENOMEM);
                CHECK(first != nullptr);
                source.refuses_all = false;
                const auto now = co_await c.send(first);
                CHECK(code_of(now) == 0);
            }
            source.refuses_all = false;
            std::vector<sender> senders(400);
            for (std::size_t i = 0; i < senders.size(); ++i) {
                senders[i].value = wrap(static_cast<int>(i));
                nowait::spawn(send_one(c, senders[i])).detach();
            }
            co_await settle();
            CHECK(c.waiting_senders() == 400);
            source.refuses_all = true; // everything is there that the waiting messages can need
            (void)co_await c.receive();
            for (int i = 0; i < 400; ++i) {
                const auto got = co_await c.receive();
                CHECK(number_of(got) == i);
            }
            source.refuses_all = false;
            co_await settle();
        }(channel, memory));
        CHECK(channel.sound());
    }
    CHECK(memory.out.empty());
}
