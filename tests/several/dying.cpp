// Runtimes that end at the same time, and what one of them still has of the other.
#include "several_support.hpp"

#include <barrier>

using namespace several_test;

namespace {

task<int> receives(nowait::channel<int>& from) {
    auto got = co_await from.receive();
    co_return got ? *got : -got.error().value();
}

/// Its child moves, and does not come back.
task<> stays_over_there(const remote_runtime& where, std::atomic<int>& arrived) {
    auto child = [](const remote_runtime& to, std::atomic<int>& count) -> task<> {
        (void)co_await resume_on(to);
        ++count;
        (void)co_await nowait::sleep_for(1h);
    };
    co_await child(where, arrived);
}

/// When both are where they want to be.
task<> ends_the_run(runtime& of, std::atomic<int>& arrived) {
    while (arrived != 2)
        co_await nowait::yield();
    of.get_loop().end_run_by(std::chrono::steady_clock::time_point::min());
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

TEST_CASE("two runtimes that end while each has a task of the other wait no longer than they were told to") {
    // What they leave is leaked, on purpose: so in a child, which ends without anybody looking.
    const auto end = in_child([] {
        nowait::runtime_options impatient;
        impatient.destructor_wait = 20ms;
        std::array<std::unique_ptr<runtime>, 2> both{std::make_unique<runtime>(make_runtime(impatient)),
                                                     std::make_unique<runtime>(make_runtime(impatient))};
        const std::array<remote_runtime, 2> reach{both[0]->remote(), both[1]->remote()};
        std::atomic<int> arrived{0};
        std::barrier together(2);
        const auto live = [&](std::size_t me) {
            both[me]->spawn(stays_over_there(reach[1 - me], arrived)).detach();
            both[me]->spawn(ends_the_run(*both[me], arrived)).detach();
            (void)both[me]->run();
            together.arrive_and_wait();
            both[me].reset();
        };
        std::thread other([&] { live(1); });
        live(0);
        other.join();
        return arrived == 2 ? 0 : 1;
    });
    INFO(end.errors);
    CHECK(end.exit_code == 0);
#ifndef NDEBUG
    CHECK(end.errors.find("frames are left alone") != std::string::npos);
#endif
}
