// Kernel pipes belong to one runtime; their handles may die anywhere.
#include "pipes_support.hpp"

#include <thread>

namespace pipes {
namespace {

task<> give_away(nowait::pipe_reader& reader, outcome& out) {
    std::array<char, 8> room{};
    auto waiting = nowait::spawn(read_into(reader, room_in(room), out));
    co_await settle();
    std::thread elsewhere([moved = std::move(reader)]() mutable { moved = {}; });
    (void)co_await waiting.join(); // the loop closes it, and the wait ends
    elsewhere.join();
}

} // namespace

TEST_CASE("a handle that dies on another thread closes on its own loop") {
    const auto before = open_descriptors();
    for (int i = 0; i < 50; ++i) {
        auto p = make_pipe();
        outcome out;
        REQUIRE(nowait::run(give_away(p.reader, out)));
        CHECK((out.done && error_of(out.value) == ECANCELED));
        pollfd one{p.writer.native_handle(), POLLOUT, 0};
        CHECK(::poll(&one, 1, 0) == 1);
        CHECK((one.revents & POLLERR) != 0);
    }
    CHECK(open_descriptors() == before);
}

namespace {

task<> busy_on(const nowait::pipe_pair& p, int rounds) {
    std::array<char, 8> room{};
    for (int i = 0; i < rounds; ++i) {
        outcome out;
        auto waiting = nowait::spawn(read_into(p.reader, room_in(room), out));
        co_await nowait::yield();
        (void)co_await p.writer.write("x");
        (void)co_await waiting.join();
    }
}

task<> handles_die_while_the_loop_works() {
    // Several handles of one block, on several threads, while operations come and go on it.
    auto p = make_pipe();
    auto raw = make_raw_pipe();
    nowait::pipe_pair borrowed{nowait::pipe_reader::borrow(raw.read.get()).value(),
                               nowait::pipe_writer::borrow(raw.write.get()).value()};
    for (int i = 0; i < 20; ++i) {
        std::vector<nowait::pipe_reader> copies;
        for (int j = 0; j < 4; ++j)
            copies.push_back(nowait::pipe_reader::borrow(raw.read.get()).value());
        co_await busy_on(borrowed, 1);
        std::vector<std::thread> threads;
        for (auto& one : copies)
            threads.emplace_back([moved = std::move(one)]() mutable { moved = {}; });
        co_await busy_on(borrowed, 20);
        for (auto& one : threads)
            one.join();
    }
    CHECK(borrowed.reader.is_open());
}

} // namespace

TEST_CASE("handles die on other threads while the loop works with their block") {
    const auto before = open_descriptors();
    REQUIRE(nowait::run(handles_die_while_the_loop_works()));
    CHECK(open_descriptors() == before);
}

TEST_CASE("a runtime that ran on another thread is destroyed here, before and after its handles") {
    const auto before = open_descriptors();
    for (const bool handles_first : {true, false}) {
        auto p = std::make_unique<nowait::pipe_pair>(make_pipe());
        std::array<char, 8> room{};
        outcome out;
        auto rt = std::make_unique<nowait::runtime>(make_runtime());
        std::thread([&] {
            (void)rt->run(busy_on(*p, 3));
            // A wait that nothing ends is left behind.
            (void)rt->spawn(read_into(p->reader, room_in(room), out));
            (void)rt->get_loop().enter();
            rt->get_loop().run_until_idle(std::chrono::steady_clock::now());
            rt->get_loop().leave();
        }).join();
        if (!handles_first)
            rt.reset();
        CHECK_FALSE(out.done);
        p.reset();
        rt.reset();
        CHECK(open_descriptors() == before);
    }
}

namespace {

task<> hold(nowait::pipe_pair p) {
    std::array<char, 8> room{};
    (void)co_await p.reader.read(room_in(room));
}

} // namespace

TEST_CASE("frames that hold ends die with a runtime that ran on another thread") {
    const auto before = open_descriptors();
    {
        auto rt = make_runtime();
        std::thread([&] {
            for (int i = 0; i < 10; ++i)
                (void)rt.spawn(hold(make_pipe()));
            (void)rt.get_loop().enter();
            rt.get_loop().run_until_idle(std::chrono::steady_clock::now());
            rt.get_loop().leave();
        }).join();
        CHECK(rt.get_loop().live == 10);
    }
    CHECK(open_descriptors() == before);
}

TEST_CASE("a handle dies on one thread while its runtime dies on another") {
    const auto before = open_descriptors();
    for (int i = 0; i < (sanitized ? 100 : 500); ++i) {
        auto p = make_pipe();
        auto rt = std::make_unique<nowait::runtime>(make_runtime());
        REQUIRE(rt->run(busy_on(p, 1)));
        std::thread elsewhere([moved = std::move(p)]() mutable { moved = {}; });
        rt.reset();
        elsewhere.join();
    }
    CHECK(open_descriptors() == before);
}

namespace {

task<> use_foreign(nowait::pipe_pair& p) {
    result<std::size_t> n;
    std::array<char, 8> room{};
    const std::array<iovec, 1> parts{iovec{room.data(), room.size()}};
    n = co_await p.reader.read(room_in(room));
    CHECK(error_of(n) == EPERM);
    n = co_await p.reader.read(std::span(parts));
    CHECK(error_of(n) == EPERM);
    n = co_await p.writer.write("x");
    CHECK(error_of(n) == EPERM);
    n = co_await nowait::splice(p.reader, p.writer, 1);
    CHECK(error_of(n) == EPERM);
    auto ready = co_await p.reader.readable();
    CHECK(error_of(ready) == EPERM);
    CHECK(error_of(p.reader.close()) == EPERM);
    CHECK(p.reader.is_open());
}

} // namespace

TEST_CASE("an end that belongs to another runtime is refused, and stays usable where it belongs") {
    auto p = make_pipe();
    auto home = make_runtime();
    REQUIRE(home.run(busy_on(p, 1)));
    std::thread([&p] { (void)nowait::run(use_foreign(p)); }).join();
    REQUIRE(home.run(busy_on(p, 1)));
}

} // namespace pipes
