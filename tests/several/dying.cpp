// Runtimes that end at the same time, and what one of them still has of the other.
#include "several_support.hpp"

#include <barrier>

using namespace several_test;

namespace {

task<int> receives(nowait::channel<int>& from) {
    auto got = co_await from.receive();
    co_return got ? *got : -got.error().value();
}

} // namespace

TEST_CASE("whom the last posted functions of a dying runtime have woken hears of it") {
    runtime_pool pool = make_pool(1);
    auto made = nowait::channel<int>::create(1);
    auto& channel = *made;
    auto waits = nowait::spawn_on(pool.at(0), receives(channel));
    while (channel.waiting_receivers() == 0)
        std::this_thread::yield();
    {
        const runtime dying = make_runtime(); // nobody runs it
        REQUIRE(dying.remote().post([&channel] {
            int message = 7;
            CHECK(channel.try_send(message));
        }));
    }
    CHECK(nowait::wait(waits.join()).value() == 7);
}
