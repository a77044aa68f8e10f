// Every reader gets every message; a lagging one is told how many it has lost.
#include "channel_support.hpp"
#include "priority_support.hpp"

#include <nowait/broadcast.hpp>

#include <atomic>
#include <cerrno>
#include <string>
#include <thread>

using namespace channel_tests;
using nowait_test::run_on_new;

namespace {

template <class B>
B make_broadcast(std::size_t capacity, nowait::detail::block_source* memory = nullptr) {
    auto made = B::create(capacity, memory);
    if (!made)
        FAIL("no broadcast: " << made.error().message());
    return std::move(*made);
}

template <class R>
task<> read_one(R& reader, std::string& value, int& outcome) {
    const auto got = co_await reader.receive();
    outcome = code_of(got);
    if (got)
        value = got->value;
}

} // namespace

TEMPLATE_TEST_CASE("broadcast: each reader gets each message sent since it came", "",
                   nowait::broadcast<std::string>, nowait::local_broadcast<std::string>) {
    auto all = make_broadcast<TestType>(4);
    auto early = all.subscribe();
    REQUIRE(all.send("one"));
    auto late = all.subscribe();
    REQUIRE(all.send("two"));
    CHECK(early->try_receive()->value == "one");
    CHECK(early->try_receive()->value == "two");
    CHECK(late->try_receive()->value == "two");
    CHECK(code_of(early->try_receive()) == EAGAIN);
    CHECK(code_of(late->try_receive()) == EAGAIN);
}

TEMPLATE_TEST_CASE("broadcast: a lagging reader is told how many it has lost", "",
                   nowait::broadcast<std::string>, nowait::local_broadcast<std::string>) {
    auto all = make_broadcast<TestType>(3);
    auto reader = all.subscribe();
    for (int i = 0; i < 10; ++i)
        REQUIRE(all.send(std::to_string(i)));
    for (int i = 7; i < 10; ++i) {
        const auto got = reader->try_receive();
        REQUIRE(got);
        CHECK(got->value == std::to_string(i));
        CHECK(got->lost == (i == 7 ? 7 : 0));
    }
}

TEMPLATE_TEST_CASE("broadcast: all who wait are woken by one message, and end at the close", "",
                   nowait::broadcast<std::string>, nowait::local_broadcast<std::string>) {
    auto all = make_broadcast<TestType>(2);
    run_on_new([](const TestType& b) -> task<> {
        auto one = b.subscribe();
        auto two = b.subscribe();
        std::string values[2];
        int outcomes[2] = {-1, -1};
        nowait::spawn(read_one(*one, values[0], outcomes[0])).detach();
        nowait::spawn(read_one(*two, values[1], outcomes[1])).detach();
        co_await settle();
        CHECK(b.send("news"));
        CHECK(outcomes[0] == -1);
        co_await settle();
        CHECK(values[0] == "news");
        CHECK(values[1] == "news");
        nowait::spawn(read_one(*one, values[0], outcomes[0])).detach();
        co_await settle();
        CHECK(b.send("last"));
        b.close();
        co_await settle();
        CHECK(values[0] == "last");
        const auto unread = co_await two->receive();
        CHECK(unread->value == "last");
        const auto over = co_await two->receive();
        CHECK(code_of(over) == EPIPE);
        std::string kept = "kept";
        CHECK(code_of(b.send(kept)) == EPIPE);
        CHECK(kept == "kept");
    }(all));
}

TEMPLATE_TEST_CASE("broadcast: a cancelled reader has skipped nothing, one that was given a message has it",
                   "", nowait::broadcast<std::string>, nowait::local_broadcast<std::string>) {
    auto all = make_broadcast<TestType>(2);
    run_on_new([](const TestType& b) -> task<> {
        auto reader = b.subscribe();
        const auto none = co_await nowait::with_timeout(reader->receive(), std::chrono::milliseconds(1));
        CHECK(code_of(none) == ETIMEDOUT);
        CHECK(b.send("a"));
        const auto a = co_await reader->receive();
        CHECK(a->value == "a");

        nowait::inplace_stop_source stop;
        std::string value;
        int outcome = -1;
        const auto waits = [](auto& from, std::string& into, int& code,
                              nowait::inplace_stop_token token) -> task<> {
            const auto got = co_await nowait::with_stop(from.receive(), token);
            code = code_of(got);
            if (got)
                into = got->value;
        };
        nowait::spawn(waits(*reader, value, outcome, stop.get_token())).detach();
        co_await settle();
        CHECK(b.send("b"));
        stop.request_stop();
        co_await settle();
        CHECK(outcome == 0);
        CHECK(value == "b");
    }(all));
}

TEST_CASE("broadcast: bad arguments, moved-from ends, the last handle") {
    CHECK(nowait::broadcast<int>::create(0).error() == std::errc::invalid_argument);
    CHECK(nowait::broadcast<int>::create(std::size_t{1} << 40).error() == std::errc::invalid_argument);
    auto all = make_broadcast<nowait::broadcast<int>>(1);
    auto reader = all.subscribe();
    {
        auto taken = std::move(all);
        CHECK(code_of(all.send(1)) == EBADF); // NOLINT(bugprone-use-after-move): what is tested
        CHECK(all.subscribe().error() == std::errc::bad_file_descriptor);
        CHECK(code_of(taken.send(1)) == 0);
    }
    CHECK(reader->try_receive()->value == 1);
    CHECK(code_of(reader->try_receive()) == EPIPE);
    auto moved = std::move(*reader);
    CHECK(code_of(reader->try_receive()) == EBADF);
}

TEST_CASE("broadcast: when memory runs out a send fails and keeps its message, everything is given back") {
    for (std::size_t failing = 0; failing < 5; ++failing) {
        priority_tests::counting_source memory;
        memory.refuse_at = failing;
        {
            auto made = nowait::broadcast<std::string>::create(2, &memory);
            if (!made) {
                CHECK(made.error() == std::errc::not_enough_memory);
            } else {
                auto reader = made->subscribe();
                int refused = 0;
                for (int i = 0; i < 20; ++i) {
                    std::string text = std::to_string(i);
                    if (!made->send(text)) {
                        ++refused;
                        CHECK(text == std::to_string(i));
                    }
                }
                CHECK(refused <= 1);
                CHECK(reader->try_receive()->value == "18");
                CHECK(memory.taken <= 5); // the same nodes, again and again
            }
        }
        CHECK(memory.out.empty());
    }
}

TEST_CASE("broadcast: between threads every reader sees the numbers rise, and accounts for those it lost") {
    auto all = make_broadcast<nowait::broadcast<int>>(8);
    constexpr int messages = 20'000;
    std::atomic<int> wrong = 0;
    std::vector<std::thread> readers;
    for (int i = 0; i < 2; ++i) {
        auto mine = all.subscribe();
        REQUIRE(mine);
        readers.emplace_back([&wrong, reader = std::move(*mine)]() mutable {
            const auto reads = [](nowait::broadcast_reader<int>& from, std::atomic<int>& bad) -> task<> {
                std::uint64_t accounted = 0;
                for (;;) {
                    const auto got = co_await from.receive();
                    if (!got)
                        break;
                    accounted += got->lost;
                    if (static_cast<std::uint64_t>(got->value) != accounted++)
                        ++bad;
                }
                if (accounted != messages)
                    ++bad;
            };
            if (!nowait::run(reads(reader, wrong)))
                ++wrong;
        });
    }
    for (int i = 0; i < messages; ++i) {
        if (!all.send(i))
            ++wrong;
    }
    all.close();
    for (std::thread& each : readers)
        each.join();
    CHECK(wrong == 0);
}
