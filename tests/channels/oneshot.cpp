// One value, once: given before or after it is waited for, or never.
#include "channel_support.hpp"
#include "priority_support.hpp"

#include <nowait/oneshot.hpp>

#include <cerrno>
#include <thread>

using namespace channel_tests;
using nowait_test::run_on_new;

namespace {

auto make_pair() {
    auto made = nowait::make_oneshot<parcel>();
    if (!made)
        FAIL("no oneshot: " << made.error().message());
    return std::move(*made);
}

task<> receive_it(const nowait::oneshot_receiver<parcel>& from, int& outcome) {
    const auto got = co_await from.receive();
    outcome = number_of(got);
}

} // namespace

TEST_CASE("oneshot: the value is there before it is waited for") {
    auto [sender, receiver] = make_pair();
    CHECK(number_of(receiver.try_receive()) == -EAGAIN);
    REQUIRE(sender.send(wrap(5)));
    CHECK(sender.closed());
    parcel second = wrap(6);
    CHECK(code_of(sender.send(second)) == EPIPE);
    CHECK(second != nullptr);
    int outcome = -1;
    run_on_new(receive_it(receiver, outcome));
    CHECK(outcome == 5);
    CHECK(number_of(receiver.try_receive()) == -EPIPE);
}

TEST_CASE("oneshot: a waiting receiver gets the value on its own runtime") {
    auto [sender, receiver] = make_pair();
    int outcome = -1;
    std::thread gives([from = std::move(sender)] {
        if (!from.send(wrap(7)))
            std::abort();
    });
    run_on_new(receive_it(receiver, outcome));
    gives.join();
    CHECK(outcome == 7);
}

TEST_CASE("oneshot: a sender that goes without giving ends the receiver") {
    auto pair = make_pair();
    run_on_new([](auto& ends) -> task<> {
        int outcome = -1;
        auto waits = nowait::spawn(receive_it(ends.second, outcome));
        co_await settle();
        {
            auto gone = std::move(ends.first);
        }
        CHECK(outcome == -1);
        (void)co_await waits.join();
        CHECK(outcome == -EPIPE);
    }(pair));
}

TEST_CASE("oneshot: a receiver that goes destroys what nobody took, and later senders are told") {
    auto shared = std::make_shared<int>(1);
    auto made = nowait::make_oneshot<std::shared_ptr<int>>();
    REQUIRE(made);
    {
        auto receiver = std::move(made->second);
        REQUIRE(made->first.send(std::shared_ptr<int>(shared)));
        CHECK(shared.use_count() == 2);
    }
    CHECK(shared.use_count() == 1);

    auto other = make_pair();
    {
        auto gone = std::move(other.second);
    }
    parcel kept = wrap(1);
    CHECK(other.first.closed());
    CHECK(code_of(other.first.send(kept)) == EPIPE);
    CHECK(kept != nullptr);
}

TEST_CASE("oneshot: a cancelled wait leaves the value to be had") {
    auto pair = make_pair();
    run_on_new([](auto& ends) -> task<> {
        const auto late = co_await nowait::with_timeout(ends.second.receive(), std::chrono::milliseconds(1));
        CHECK(number_of(late) == -ETIMEDOUT);
        CHECK(ends.first.send(wrap(3)));
        const auto got = co_await ends.second.receive();
        CHECK(number_of(got) == 3);
    }(pair));
}
