// Several writers, one pipe: records that stay whole.
#include "io_support.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>

using namespace io;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t writers = 8;
constexpr std::size_t records_each = 1000;

/// A record: length, writer, number, then a filling that only this record has.
std::string record(std::size_t size, std::uint32_t writer, std::uint32_t number) {
    std::string text(size, static_cast<char>('a' + (writer * 7 + number) % 26));
    const std::array<std::uint32_t, 3> head{static_cast<std::uint32_t>(size), writer, number};
    std::memcpy(text.data(), head.data(), sizeof head);
    return text;
}

task<> write_records(const nowait::pipe_writer& to, nowait::write_lock* lock, std::vector<std::size_t> sizes,
                     std::uint32_t self) {
    for (std::uint32_t i = 0; i < records_each; ++i) {
        const std::string text = record(sizes[i % sizes.size()], self, i);
        nowait::write_lock::guard turn;
        if (lock != nullptr) {
            auto acquired = co_await lock->acquire();
            if (!acquired)
                throw std::system_error(acquired.error(), "acquire");
            turn = std::move(*acquired);
        }
        const progress put = co_await nowait::write_all(to, std::string_view(text));
        if (!put.ok() || put.bytes != text.size())
            throw std::runtime_error("a record was cut");
    }
}

task<> check_records(const nowait::pipe_reader& from, std::size_t expected) {
    std::array<std::uint32_t, writers> next{};
    std::string text;
    for (std::size_t i = 0; i < expected; ++i) {
        text.resize(12);
        const progress head = co_await nowait::read_exactly(from, room_in(text));
        REQUIRE(head.bytes == 12);
        std::array<std::uint32_t, 3> words{};
        std::memcpy(words.data(), text.data(), sizeof words);
        REQUIRE(words[0] >= 12);
        REQUIRE(words[0] <= 30'000);
        REQUIRE(words[1] < writers);
        REQUIRE(words[2] == next[words[1]]++);
        text.resize(words[0]);
        const auto rest = room_in(text).subspan(12);
        const progress body = co_await nowait::read_exactly(from, rest);
        REQUIRE(body.bytes == rest.size());
        REQUIRE((text == record(words[0], words[1], words[2])));
    }
}

task<> eight_writers(std::vector<std::size_t> sizes, bool locked) {
    auto [reader, writer] = make_pipe();
    nowait::write_lock lock;
    std::vector<task<>> all;
    for (std::uint32_t i = 0; i < writers; ++i)
        all.push_back(write_records(writer, locked ? &lock : nullptr, sizes, i));
    all.push_back(check_records(reader, writers * records_each));
    co_await nowait::when_all(std::move(all));
    CHECK(reader.available() == 0u);
    CHECK(!lock.held());
}

} // namespace

TEST_CASE("records of up to 4096 bytes are whole by themselves") {
    run_on_new(eight_writers({100, 4096}, false));
}

TEST_CASE("records of any size are whole under a lock") {
    run_on_new(eight_writers({100, 4096, 4097, 30'000}, true));
}

TEST_CASE("the lock is handed on in order, and nobody barges in") {
    run_on_new([]() -> task<> {
        nowait::write_lock lock;
        std::string order;
        auto first = co_await lock.acquire();
        REQUIRE(first);
        const auto enter = [](nowait::write_lock& of, std::string& log, char name) -> task<> {
            const auto turn = co_await of.acquire();
            REQUIRE(turn);
            log += name;
            co_await nowait::yield();
            log += name;
        };
        std::vector<task<>> all;
        for (const char name : {'a', 'b', 'c'})
            all.push_back(enter(lock, order, name));
        auto others = nowait::spawn([](std::vector<task<>> parts) -> task<> {
            co_await nowait::when_all(std::move(parts));
        }(std::move(all)));
        co_await settle();
        CHECK(order.empty());
        CHECK(lock.contended());
        first->release();
        CHECK(lock.held()); // a's already
        co_await enter(lock, order, 'd');
        co_await others.join();
        CHECK(order == "aabbccdd");
        CHECK(!lock.held());
    }());
}

TEST_CASE("a waiter that gives up leaves the line, a chosen one that is stopped keeps its lock") {
    run_on_new([]() -> task<> {
        nowait::write_lock lock;
        auto held = co_await lock.acquire();
        const auto late = co_await nowait::with_timeout(lock.acquire(), 3ms);
        REQUIRE(!late);
        CHECK(late.error() == std::errc::timed_out);
        CHECK(!lock.contended());

        nowait::inplace_stop_source stop;
        bool got = false;
        auto waiting = nowait::spawn(
            [](nowait::write_lock& of, nowait::inplace_stop_token token, bool& owned) -> task<> {
                const auto turn = co_await nowait::with_stop(of.acquire(), token);
                owned = turn.has_value();
            }(lock, stop.get_token(), got));
        co_await settle();
        held->release();     // chosen now, runs later
        stop.request_stop(); // too late
        co_await waiting.join();
        CHECK(got);
        CHECK(!lock.held());
        const auto stopped = co_await nowait::with_stop(lock.acquire(), stop.get_token());
        REQUIRE(!stopped);
        CHECK(stopped.error() == std::errc::operation_canceled);
        CHECK(!lock.held());
    }());
}

TEST_CASE("a runtime that dies with a lock's waiters") {
    nowait::write_lock lock;
    {
        auto runs = make_runtime();
        auto first = runs.spawn([](nowait::write_lock& of) -> task<> {
            const auto turn = co_await of.acquire();
            co_await nowait::sleep_for(std::chrono::hours(1));
        }(lock));
        auto second = runs.spawn([](nowait::write_lock& of) -> task<> { (void)co_await of.acquire(); }(lock));
        auto root = runs.spawn(settle());
        first.detach();
        second.detach();
        root.detach();
        runs.post([&runs] { runs.request_stop(); });
        (void)runs.run();
    }
    CHECK(!lock.held());
    CHECK(!lock.contended());
}
