// In-process pipes beside everything else that a program does: shares, timers, the kernel, memory.
#include "pipe_channel_support.hpp"

#include <nowait/detail/page_pool.hpp>

#include <chrono>
#include <cstdint>
#include <thread>

#include <unistd.h>

namespace nowait_test::channels {

using namespace std::chrono_literals;

TEMPLATE_TEST_CASE("readers that share 4096 bytes each get their part, nothing lost and nothing twice",
                   "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        for (const std::size_t readers : {2u, 8u, 64u}) {
            auto channel = make<TestType>();
            std::vector<outcome> outs(readers);
            std::vector<nowait::join_handle<void>> jobs;
            for (std::size_t i = 0; i < readers; ++i) {
                jobs.push_back(nowait::spawn(read_once(channel.reader, page / readers, outs[i])));
                if (i == readers / 2)
                    co_await settle(); // some wait before the write, some come after it
            }
            const std::string sent = pattern(page);
            auto wrote = co_await channel.writer.write(sent);
            REQUIRE((wrote && *wrote == page));
            std::string got;
            for (std::size_t i = 0; i < readers; ++i) {
                auto joined = co_await jobs[i].join();
                REQUIRE(joined);
                CHECK(outs[i].size == page / readers);
                got += outs[i].text;
            }
            CHECK(got == sent);
        }
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("timers and kernel pipes are served while two tasks play ball without end",
                   "[pipe_channel]", BOTH_KINDS) {
    auto play = [](const typename TestType::reader_type& in, const typename TestType::writer_type& out,
                   const bool& over) -> task<> {
        std::string ball(4, '?');
        while (!over) {
            auto n = co_await in.read(room(ball));
            if (!n || *n == 0)
                co_return;
            n = co_await out.write(std::string_view(ball));
            if (!n)
                co_return;
        }
        (void)const_cast<typename TestType::writer_type&>(out).close();
    };
    auto body = [](auto player) -> task<> {
        auto there = make<TestType>();
        auto back = make<TestType>();
        bool over = false;
        auto one = nowait::spawn(player(there.reader, back.writer, over));
        auto two = nowait::spawn(player(back.reader, there.writer, over));
        REQUIRE(there.writer.try_write("ball"));
        auto slept = co_await nowait::sleep_for(1ms);
        CHECK(slept);
        auto kernel = nowait::make_pipe();
        REQUIRE(kernel);
        std::thread other([writer = std::move(kernel->writer)]() mutable { // a byte from outside
            const char byte = 'x';
            (void)!::write(writer.native_handle(), &byte, 1);
        });
        std::string buffer(1, '?');
        auto n = co_await kernel->reader.read(room(buffer));
        CHECK((n && *n == 1));
        over = true;
        other.join();
        auto joined = co_await one.join();
        CHECK(joined);
        joined = co_await two.join();
        CHECK(joined);
    };
    run_on_new(body(play));
}

TEMPLATE_TEST_CASE("a reader that does not come holds its writers back, not their memory", "[pipe_channel]",
                   BOTH_KINDS) {
    auto produce = [](const typename TestType::writer_type& writer, std::uint64_t& written) -> task<> {
        const std::string block(3 * page, 'p');
        for (;;) {
            auto n = co_await writer.write(block);
            if (!n)
                co_return;
            written += *n;
        }
    };
    auto body = [](auto producer) -> task<> {
        auto channel = make<TestType>();
        auto& pool = nowait::detail::page_pool::of_this_thread();
        const std::uint64_t before = pool.allocated.get() + pool.recycled.get();
        std::uint64_t written = 0;
        std::vector<nowait::join_handle<void>> jobs;
        for (int i = 0; i < 10; ++i)
            jobs.push_back(nowait::spawn(producer(channel.writer, written)));
        co_await settle();
        CHECK(written <= default_capacity);
        CHECK(channel.reader.available() == written);
        const std::uint64_t taken = pool.allocated.get() + pool.recycled.get() - before;
        CHECK(taken <= 2 * default_capacity / page);
        channel.reader = {};
        for (auto& job : jobs) {
            auto joined = co_await job.join();
            CHECK(joined);
        }
    };
    run_on_new(body(produce));
}

} // namespace nowait_test::channels
