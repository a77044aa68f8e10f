// Threads that run no runtime and yet wait: wait(description).
#include "pipe_channel_support.hpp"

#include <atomic>
#include <cstdint>
#include <thread>

namespace nowait_test::channels {

using namespace std::chrono_literals;

TEST_CASE("a plain thread reads and writes without a runtime", "[pipe_channel][wait]") {
    auto channel = make<nowait::pipe_channel>();
    auto wrote = nowait::wait(channel.writer.write("hello"));
    CHECK((wrote && *wrote == 5));
    std::string buffer(10, '?');
    auto read = nowait::wait(channel.reader.read(room(buffer)));
    CHECK((read && buffer.substr(0, *read) == "hello"));
    CHECK(channel.writer.close());
    read = nowait::wait(channel.reader.read(room(buffer)));
    CHECK((read && *read == 0));
    CHECK(error_of(nowait::wait(channel.writer.write("x"))) == EBADF);
    CHECK(nowait::wait(channel.reader.readable()));
    auto peeked = nowait::wait(channel.reader.peek());
    CHECK((peeked && peeked->empty()));
}

TEST_CASE("a plain thread that waits can be given a limit, and has then taken nothing",
          "[pipe_channel][wait]") {
    auto channel = make<nowait::pipe_channel>();
    std::string buffer(10, '?');
    auto read = nowait::wait(nowait::with_timeout(channel.reader.read(room(buffer)), 2ms));
    CHECK(error_of(read) == ETIMEDOUT);
    read = nowait::wait(nowait::with_timeout(channel.reader.read(room(buffer)), 0ms));
    CHECK(error_of(read) == ETIMEDOUT);
    REQUIRE(channel.writer.try_write("kept"));
    read = nowait::wait(nowait::with_timeout(channel.reader.read(room(buffer)), 0ms));
    CHECK((read && *read == 4));
    std::stop_source stop;
    stop.request_stop();
    read = nowait::wait(nowait::with_stop(channel.reader.read(room(buffer)), stop.get_token()));
    CHECK(error_of(read) == ECANCELED);
}

TEST_CASE("inside a runtime, wait would block it and says so", "[pipe_channel][wait]") {
    auto body = []() -> task<> {
        auto channel = make<nowait::pipe_channel>();
        auto wrote = nowait::wait(channel.writer.write("x"));
        CHECK(error_of(wrote) == EDEADLK);
        CHECK(channel.reader.available() == 0u);
        co_return;
    };
    run_on_new(body());
}

TEST_CASE("two plain threads and a runtime play ball", "[pipe_channel][wait]") {
    constexpr int rounds = 2000;
    auto there = make<nowait::pipe_channel>();
    auto back = make<nowait::pipe_channel>();
    auto echo = [](nowait::pipe_channel_reader& in, nowait::pipe_channel_writer& out) -> task<> {
        std::string buffer(8, '?');
        for (;;) {
            auto n = co_await in.read(room(buffer));
            if (!n || *n == 0)
                break;
            auto written = co_await out.write(std::string_view(buffer).substr(0, *n));
            if (!written)
                break;
        }
        (void)out.close();
    };
    std::atomic<int> heard{0};
    auto player = [&](nowait::pipe_channel_writer writer) {
        std::string buffer(8, '?');
        for (int i = 0; i < rounds; ++i) {
            auto wrote = nowait::wait(writer.write("12345678"));
            auto read = nowait::wait(back.reader.read(room(buffer)));
            if (!wrote || *wrote != 8 || !read || *read != 8)
                return;
            ++heard;
        }
    };
    auto second = there.writer.duplicate();
    REQUIRE(second);
    std::thread a(player, std::move(there.writer));
    std::thread b(player, std::move(*second));
    run_on_new(echo(there.reader, back.writer));
    a.join();
    b.join();
    CHECK(heard == 2 * rounds);
}

TEST_CASE("a plain thread that waits is ended by a close", "[pipe_channel][wait]") {
    auto channel = make<nowait::pipe_channel>();
    result<std::size_t> got = nowait::fail(std::errc::operation_in_progress);
    std::atomic<bool> begun{false};
    std::thread waits([&] {
        std::string buffer(10, '?');
        begun = true;
        got = nowait::wait(channel.reader.read(room(buffer)));
    });
    while (!begun)
        std::this_thread::yield();
    channel.writer = {};
    waits.join();
    CHECK((got && *got == 0));
}

} // namespace nowait_test::channels
