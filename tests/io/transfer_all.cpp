// read_exactly and write_all: all of it, and exact counts when not.
#include "counting_new.hpp"
#include "io_support.hpp"
#include "stack_probe.hpp"

#include <array>
#include <chrono>
#include <stdexcept>

#include <fcntl.h>

using namespace io;
using namespace std::chrono_literals;

static_assert(nowait::async_reader<nowait::pipe_reader>);
static_assert(nowait::async_reader<const nowait::pipe_reader>);
static_assert(nowait::async_writer<nowait::pipe_writer>);
static_assert(nowait::async_reader<scripted_stream>);
static_assert(nowait::async_writer<scripted_stream>);
static_assert(nowait::async_writer<nowait::buffered_writer<nowait::pipe_writer>>);
static_assert(!nowait::async_reader<nowait::pipe_writer>);
static_assert(!nowait::async_writer<nowait::pipe_reader>);
static_assert(!nowait::async_reader<std::string>);
static_assert(!nowait::async_reader<int>);

TEST_CASE("write_all of a megabyte through a pipe of one page to a reader of 1 to 7 bytes") {
    const std::string sent = pattern(1 << 20);
    std::string received;
    progress wrote;
    run_on_new([](const std::string& text, std::string& into, progress& done) -> task<> {
        auto [reader, writer] = make_pipe({.capacity = 4096});
        REQUIRE(reader.capacity() == 4096u);
        auto writing = nowait::spawn(write_and_close(std::move(writer), text, done));
        std::array<char, 8> few{};
        for (std::size_t step = 0;; ++step) {
            const std::span<char> room(few.data(), 1 + step % 7);
            const auto got = co_await reader.read(std::as_writable_bytes(room));
            REQUIRE(got);
            if (*got == 0)
                break;
            into.append(few.data(), *got);
        }
        co_await writing.join();
    }(sent, received, wrote));
    CHECK(wrote.ok());
    CHECK(wrote.bytes == sent.size());
    CHECK((received == sent));
}

TEST_CASE("read_exactly gathers a megabyte from a pipe of one page written 1 to 7 bytes at a time") {
    const std::string sent = pattern(1 << 20, 2);
    std::string received(sent.size(), '\0');
    run_on_new([](const std::string& text, std::string& into) -> task<> {
        auto [reader, writer] = make_pipe({.capacity = 4096});
        auto writing = nowait::spawn([](nowait::pipe_writer to, std::string_view rest) -> task<> {
            for (std::size_t step = 0; !rest.empty(); ++step) {
                const auto part = rest.substr(0, 1 + step % 7);
                const auto put = co_await nowait::write_all(to, part);
                REQUIRE(put.bytes == part.size());
                rest.remove_prefix(part.size());
            }
        }(std::move(writer), text));
        const progress got = co_await nowait::read_exactly(reader, room_in(into));
        CHECK(got.ok());
        CHECK(got.bytes == into.size());
        std::string beyond(1, '\0');
        const progress end = co_await nowait::read_exactly(reader, room_in(beyond));
        CHECK(end.ok());
        CHECK(end.bytes == 0);
        co_await writing.join();
    }(sent, received));
    CHECK((received == sent));
}

TEST_CASE("the end of the stream in the middle is fewer bytes and no error") {
    run_on_new([]() -> task<> {
        auto [reader, writer] = make_pipe();
        progress wrote;
        auto writing = nowait::spawn(write_and_close(std::move(writer), pattern(70'001), wrote));
        std::string room(1 << 20, '\0');
        const progress got = co_await nowait::read_exactly(reader, room_in(room));
        co_await writing.join();
        CHECK(got.ok());
        CHECK(got.bytes == 70'001);
        CHECK((room.substr(0, got.bytes) == pattern(70'001)));
        CHECK(wrote.bytes == 70'001);
    }());
}

TEST_CASE("a reader that goes away in the middle: broken_pipe, and the bytes that the pipe had taken") {
    run_on_new([]() -> task<> {
        auto [reader, writer] = make_pipe({.capacity = 4096});
        const std::string text = pattern(100'000);
        auto reading = nowait::spawn([](nowait::pipe_reader from) -> task<std::size_t> {
            std::string room(10'000, '\0');
            const progress got = co_await nowait::read_exactly(from, room_in(room));
            co_await settle(); // the pipe is full again
            const auto queued = from.available();
            co_return got.bytes + *queued;
        }(std::move(reader)));
        const progress put = co_await nowait::write_all(writer, text);
        const auto arrived = co_await reading.join();
        CHECK(put.error == std::errc::broken_pipe);
        CHECK(put.bytes == *arrived);
    }());
}

TEST_CASE("a time-out in the middle reports exactly what was moved") {
    run_on_new([]() -> task<> {
        auto [reader, writer] = make_pipe({.capacity = 4096});
        const std::string text = pattern(20'000);
        // Writing: what the pipe took is what is reported, and what can be read afterwards.
        const progress put = co_await nowait::with_timeout(nowait::write_all(writer, text), 5ms);
        CHECK(put.error == std::errc::timed_out);
        CHECK(put.bytes == 4096);
        std::string room(10'000, '\0');
        const progress got = co_await nowait::with_timeout(nowait::read_exactly(reader, room_in(room)), 5ms);
        CHECK(got.error == std::errc::timed_out);
        CHECK(got.bytes == 4096);
        CHECK((room.substr(0, 4096) == text.substr(0, 4096)));
        // Nothing was taken after that, nothing is left behind: the stream goes on where the counts say.
        const progress more = co_await nowait::write_all(writer, std::string_view(text).substr(4096, 100));
        CHECK(more.bytes == 100);
        std::string next(100, '\0');
        const progress rest = co_await nowait::read_exactly(reader, room_in(next));
        CHECK(rest.ok());
        CHECK((next == text.substr(4096, 100)));
    }());
}

TEST_CASE("a stop reaches the step that waits, a stop before the start moves nothing") {
    run_on_new([]() -> task<> {
        auto [reader, writer] = make_pipe();
        (void)co_await writer.write(std::string_view("abc"));
        nowait::inplace_stop_source stop;
        auto stopping = nowait::spawn([](nowait::inplace_stop_source& source) -> task<> {
            co_await settle();
            source.request_stop();
        }(stop));
        std::string room(10, '\0');
        auto bounded = nowait::with_stop(nowait::read_exactly(reader, room_in(room)), stop.get_token());
        const progress got = co_await std::move(bounded);
        CHECK(got.error == std::errc::operation_canceled);
        CHECK(got.bytes == 3);
        co_await stopping.join();
        (void)co_await writer.write(std::string_view("def"));
        auto late = nowait::with_stop(nowait::read_exactly(reader, room_in(room)), stop.get_token());
        const progress none = co_await std::move(late);
        CHECK(none.error == std::errc::operation_canceled);
        CHECK(none.bytes == 0);
        CHECK(reader.available() == 3u);
    }());
}

TEST_CASE("packets fill on, one after the other") {
    run_on_new([]() -> task<> {
        auto [reader, writer] = make_pipe({.packets = true});
        for (const std::string_view packet : {"one", "twotwo", "x"})
            (void)co_await nowait::write_all(writer, packet);
        std::string room(10, '\0');
        const progress got = co_await nowait::read_exactly(reader, room_in(room));
        CHECK(got.ok());
        CHECK(room == "onetwotwox");
    }());
}

TEST_CASE("bad arguments are errors, nothing asked for is success") {
    run_on_new([]() -> task<> {
        auto [reader, writer] = make_pipe();
        const progress nothing = co_await nowait::read_exactly(reader, {});
        CHECK(nothing.ok());
        const progress empty = co_await nowait::write_all(writer, std::string_view());
        CHECK(empty.ok());
        (void)co_await writer.write(std::string_view("abc"));
        const std::span<std::byte> null(static_cast<std::byte*>(nullptr), 3);
        const progress bad = co_await nowait::read_exactly(reader, null);
        CHECK(bad.error == std::errc::bad_address);
        CHECK(bad.bytes == 0);
        CHECK(reader.close());
        std::string room(3, '\0');
        const progress closed = co_await nowait::read_exactly(reader, room_in(room));
        CHECK(closed.error == std::errc::bad_file_descriptor);
        nowait::pipe_writer unmade;
        const progress none = co_await nowait::write_all(unmade, std::string_view("abc"));
        CHECK(none.error == std::errc::bad_file_descriptor);
    }());
}

TEST_CASE("streams whose operations are tasks: short steps, errors and exceptions in the middle") {
    run_on_new([]() -> task<> {
        scripted_stream stream{.data = pattern(1000), .piece = 7};
        std::string room(900, '\0');
        const progress got = co_await nowait::read_exactly(stream, room_in(room));
        CHECK(got.ok());
        CHECK((room == pattern(1000).substr(0, 900)));

        stream.last = std::make_error_code(std::errc::connection_reset);
        const progress cut = co_await nowait::read_exactly(stream, room_in(room));
        CHECK(cut.error == std::errc::connection_reset);
        CHECK(cut.bytes == 100);

        stream.room = 50;
        const progress put = co_await nowait::write_all(stream, std::string_view(room));
        CHECK(put.error == std::errc::connection_reset);
        CHECK(put.bytes == 50);
        CHECK((stream.written == room.substr(0, 50)));

        stream.throws = true;
        bool caught = false;
        try {
            (void)co_await nowait::read_exactly(stream, room_in(room));
        } catch (const std::runtime_error&) {
            caught = true;
        }
        CHECK(caught);

        stream.piece = 0; // says "success" and does nothing
        stream.room = 1;
        const progress stuck = co_await nowait::write_all(stream, std::string_view("abc"));
        CHECK(stuck.error == std::errc::io_error);
    }());
}

TEST_CASE("read_exactly and write_all allocate nothing, inline or waiting") {
    std::size_t before = 0;
    std::size_t after = 0;
    run_on_new([](std::size_t& from, std::size_t& to) -> task<> {
        auto [reader, writer] = make_pipe({.capacity = 4096});
        std::string text = pattern(3 * 4096);
        std::string room(text.size(), '\0');
        for (int round = 0; round < 20; ++round) {
            if (round == 4) // by then the runtime has what it needs
                from = nowait_test::allocations();
            auto both = nowait::when_all(nowait::read_exactly(reader, room_in(room)),
                                         nowait::write_all(writer, std::string_view(text)));
            const auto [got, put] = co_await std::move(both);
            if (got.bytes != room.size() || put.bytes != text.size())
                throw std::logic_error("short");
        }
        to = nowait_test::allocations();
    }(before, after));
    CHECK(after == before);
}

namespace {

/// Moves one byte at a time, inline, and watches the stack.
struct inline_stream {
    nowait::pipe_writer* writer;
    nowait_test::stack_probe* probe;
    nowait::detail::write_description write(std::span<const std::byte> data) const noexcept {
        probe->touch();
        return writer->write(data.first(1));
    }
};

} // namespace

TEST_CASE("a million steps use constant stack, and the others get their turns") {
    nowait_test::stack_probe probe;
    std::size_t turns_of_others = 0;
    run_on_new([](nowait_test::stack_probe& stack, std::size_t& others) -> task<> {
        const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
        auto opened = nowait::pipe_writer::adopt(null);
        REQUIRE(opened);
        inline_stream stream{&*opened, &stack};
        bool done = false;
        auto other = nowait::spawn([](const bool& stop, std::size_t& count) -> task<> {
            while (!stop) {
                ++count;
                co_await nowait::yield();
            }
        }(done, others));
        const std::string text(1'000'000, 'x');
        const progress put = co_await nowait::write_all(stream, std::string_view(text));
        CHECK(put.bytes == text.size());
        done = true;
        co_await other.join();
    }(probe, turns_of_others));
    CHECK(probe.depth() < 4096);
    CHECK(turns_of_others > 1000); // the budget is 128 a turn
}
