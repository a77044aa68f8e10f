// What went wrong with other channels, and does not here. Those that are about one operation stand with its other tests.
#include "channel_support.hpp"

#include <nowait/pipe.hpp>
#include <nowait/runtime.hpp>

#include <array>
#include <barrier>
#include <cerrno>
#include <optional>
#include <stop_token>
#include <thread>

using namespace channel_tests;
using nowait_test::run_on_new;

namespace {

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif

#ifdef UNDER_TSAN
constexpr int rounds = 2'000;
#else
constexpr int rounds = 20'000;
#endif

/// One of two tasks, whose stop sets the other's event.
struct party {
    nowait::channel<int> event = make<nowait::channel<int>>(1);
    std::optional<std::stop_source> stop;
    int woken = 0;
    int stopped = 0;
    int errors = 0;
};

task<> wait_for_event(party& self) {
    const auto got = co_await nowait::with_stop(self.event.receive(), self.stop->get_token());
    self.woken += got.has_value();
    self.stopped += !got && got.error() == std::errc::operation_canceled;
    self.errors += !got && got.error() != std::errc::operation_canceled;
}

task<> play(nowait::channel<int> in, nowait::channel<int> out) {
    for (;;) {
        const auto got = co_await in.receive();
        if (!got)
            co_return;
        int ball = *got;
        (void)co_await out.send(ball);
    }
}

task<> read_a_byte(nowait::pipe_reader& from, bool& seen) {
    std::array<std::byte, 1> buffer{};
    const auto got = co_await from.read(buffer);
    seen = got && *got == 1;
}

} // namespace

TEST_CASE("channel: two tasks whose stops wake each other are stopped together, without a deadlock") {
    std::array<party, 2> parties;
    std::barrier<> line(4); // two tasks, each on its thread, and two threads that stop them
    std::array<std::thread, 4> threads;
    for (std::size_t i = 0; i < 2; ++i) {
        threads[i] = std::thread([&, i] {
            party& self = parties[i];
            party& other = parties[1 - i];
            auto made = nowait::runtime::create();
            self.errors += !made;
            for (int round = 0; round < rounds; ++round) {
                self.stop.emplace();
                line.arrive_and_wait();
                {
                    const std::stop_callback callback(self.stop->get_token(), [&other] {
                        int event = 1;
                        (void)other.event.try_send(event);
                    });
                    self.errors += !made || !made->run(wait_for_event(self));
                }
                line.arrive_and_wait(); // now nobody sets events
                (void)self.event.try_receive();
                line.arrive_and_wait();
            }
        });
        threads[2 + i] = std::thread([&, i] {
            for (int round = 0; round < rounds; ++round) {
                line.arrive_and_wait();
                parties[i].stop->request_stop();
                line.arrive_and_wait();
                line.arrive_and_wait();
            }
        });
    }
    for (std::thread& each : threads)
        each.join();
    for (const party& each : parties) {
        CHECK(each.errors == 0);
        CHECK(each.woken + each.stopped == rounds);
        CHECK(each.event.sound());
    }
}

TEST_CASE("channel: messages back and forth for ever hold up neither a timer nor a pipe") {
    auto ping = make<nowait::channel<int>>(1);
    auto pong = make<nowait::channel<int>>(1);
    run_on_new([](nowait::channel<int> a, nowait::channel<int> b) -> task<> {
        auto pipe = nowait::make_pipe();
        REQUIRE(pipe);
        bool seen = false;
        auto reads = nowait::spawn(read_a_byte(pipe->reader, seen));
        auto one = nowait::spawn(play(a, b));
        auto two = nowait::spawn(play(b, a));
        int ball = 1;
        (void)co_await a.send(ball);
        const auto slept = co_await nowait::sleep_for(std::chrono::milliseconds(10));
        CHECK(slept);
        const auto wrote = co_await pipe->writer.write(std::string_view("x"));
        CHECK(wrote);
        (void)co_await reads.join(); // while the ball is in the air
        CHECK(seen);
        a.close();
        b.close();
        (void)co_await one.join();
        (void)co_await two.join();
    }(ping, pong));
}

TEMPLATE_TEST_CASE("channel: a sender without a receiver waits at the bound, and holds one message more", "",
                   NOWAIT_EVERY_CHANNEL(std::shared_ptr<int>)) {
    auto channel = make<TestType>(64);
    run_on_new([](const TestType& c) -> task<> {
        const auto memory = std::make_shared<int>(0); // what a message holds
        const auto produces = [](const TestType& to, std::shared_ptr<int> held, int& sent) -> task<> {
            for (;;) {
                std::shared_ptr<int> message = held;
                const auto done = co_await to.send(message);
                if (!done)
                    co_return;
                ++sent;
            }
        };
        int sent = 0;
        auto producer = nowait::spawn(produces(c, memory, sent));
        for (int i = 0; i < 100; ++i)
            co_await nowait::yield();
        CHECK(sent == 64);
        CHECK(c.waiting_senders() == 1);
        CHECK(memory.use_count() == 64 + 3); // queued; ours, the producer's, and the message in its hand
        c.abort();
        (void)co_await producer.join();
        CHECK(memory.use_count() == 1);
    }(channel));
}
