// The buffered writer: by size, by time, by hand, and what is left when things go wrong.
#include "io_support.hpp"

#include <chrono>

#include <fcntl.h>
#include <unistd.h>

using namespace io;
using namespace std::chrono_literals;

using pipe_buffer = nowait::buffered_writer<nowait::pipe_writer>;

namespace {

task<> until_a_write_waits() {
    const auto waits = [] { return nowait::current_stats().of(nowait::operation_kind::write).armed; };
    const std::uint64_t before = waits();
    while (waits() == before)
        co_await nowait::yield();
}

} // namespace

TEST_CASE("small writes stay in the buffer until there is no room, or flush") {
    run_on_new([]() -> task<> {
        auto [reader, writer] = make_pipe();
        pipe_buffer out(writer, {.capacity = 10});
        const auto first = co_await out.write(std::string_view("01234"));
        CHECK(first == 5u);
        const auto second = co_await out.write(std::string_view("56789"));
        CHECK(second == 5u);
        CHECK(reader.available() == 0u);
        CHECK(out.unflushed() == 10);
        const auto third = co_await out.write(std::string_view("ab"));
        CHECK(third == 2u);
        CHECK(reader.available() == 10u);
        CHECK(out.unflushed() == 2);
        const auto flushed = co_await out.flush();
        CHECK(flushed);
        CHECK(reader.available() == 12u);
        CHECK(out.unflushed() == 0);
        std::string room(12, '\0');
        (void)co_await nowait::read_exactly(reader, room_in(room));
        CHECK(room == "0123456789ab");
        const auto again = co_await out.flush();
        CHECK(again);
    }());
}

TEST_CASE("a megabyte in pieces of many sizes arrives in order, and close writes the tail") {
    run_on_new([]() -> task<> {
        auto [reader, writer] = make_pipe({.capacity = 4096});
        const std::string text = pattern(1 << 20);
        auto reading = nowait::spawn(read_to_end(std::move(reader)));
        const std::uint64_t lost = nowait::bytes_lost_in_buffers();
        {
            pipe_buffer out(writer, {.capacity = 3000});
            std::string_view rest = text;
            for (std::size_t step = 0; !rest.empty(); ++step) {
                const auto part = rest.substr(0, 1 + (step * 977) % 7000); // also larger than the buffer
                const progress put = co_await nowait::write_all(out, part);
                REQUIRE(put.bytes == part.size());
                rest.remove_prefix(part.size());
            }
            const auto closed = co_await out.close();
            CHECK(closed);
            const auto late = co_await out.write(std::string_view("x"));
            REQUIRE(!late);
            CHECK(late.error() == std::errc::bad_file_descriptor);
            const auto twice = co_await out.close();
            CHECK(!twice);
        }
        CHECK(nowait::bytes_lost_in_buffers() == lost);
        CHECK(writer.is_open());
        CHECK(writer.close());
        const auto got = co_await reading.join();
        CHECK((*got == text));
    }());
}

TEST_CASE("the first byte starts a clock") {
    run_on_new([]() -> task<> {
        auto [reader, writer] = make_pipe();
        pipe_buffer out(writer, {.capacity = 100, .flush_after = 2ms});
        for (const std::string_view text : {"one", "two", "six"}) {
            (void)co_await out.write(text.substr(0, 1));
            (void)co_await out.write(text.substr(1));
            CHECK(out.unflushed() == 3);
            std::string room(3, '\0');
            const progress got =
                co_await nowait::read_exactly(reader, room_in(room)); // nobody flushes by hand
            CHECK(got.bytes == 3);
            CHECK(room == text);
        }
        // Flushed by hand, then filled again: the clock starts anew.
        (void)co_await out.write(std::string_view("a"));
        (void)co_await out.flush();
        (void)co_await out.write(std::string_view("b"));
        std::string room(2, '\0');
        (void)co_await nowait::read_exactly(reader, room_in(room));
        CHECK(room == "ab");
        const auto closed = co_await out.close();
        CHECK(closed);
    }());
}

TEST_CASE("bytes that wait for their time keep the runtime running") {
    auto [reader, writer] = make_pipe();
    pipe_buffer out(writer, {.capacity = 100, .flush_after = 2ms});
    auto runs = make_runtime();
    const auto ran =
        runs.run([](pipe_buffer& to) -> task<> { (void)co_await to.write(std::string_view("tail")); }(out));
    CHECK(ran);
    CHECK(out.unflushed() == 0);
    CHECK(reader.available() == 4u);
}

TEST_CASE(
    "a megabyte to a slow reader, then the normal end of main: all of it, or a count of what is missing") {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const std::string text = pattern(1 << 20);
    std::string received;
    {
        auto runs = make_runtime();
        auto reading = runs.spawn([](int fd, std::string& into) -> task<> {
            auto reader = *nowait::pipe_reader::adopt(fd);
            co_await until_a_write_waits(); // the pipe is full, and most of the text still to come
            into = co_await read_to_end(std::move(reader));
        }(ends[0], received));
        const auto ran = runs.run([](int fd, const std::string& all) -> task<> {
            auto writer = *nowait::pipe_writer::adopt(fd);
            pipe_buffer out(writer);
            for (std::size_t at = 0; at < all.size(); at += 1000)
                (void)co_await out.write(std::string_view(all).substr(at, 1000));
            const auto closed = co_await out.close();
            CHECK(closed);
        }(ends[1], text));
        CHECK(ran);
        CHECK(reading.done());
    }
    CHECK((received == text));
}

TEST_CASE("what is neither flushed nor closed is counted") {
    run_on_new([]() -> task<> {
        auto [reader, writer] = make_pipe();
        const std::uint64_t lost = nowait::bytes_lost_in_buffers();
        {
            pipe_buffer out(writer, {.capacity = 100, .flush_after = std::chrono::hours(1)});
            (void)co_await out.write(std::string_view("12345"));
            pipe_buffer moved(std::move(out));
            CHECK(moved.unflushed() == 5);
        }
        CHECK(nowait::bytes_lost_in_buffers() == lost + 5);
        CHECK(reader.available() == 0u);
    }()); // and the hour does not keep the runtime
}

TEST_CASE("an error is sticky and leaves the count of what it caught") {
    run_on_new([]() -> task<> {
        auto [reader, writer] = make_pipe();
        const std::uint64_t lost = nowait::bytes_lost_in_buffers();
        {
            pipe_buffer out(writer, {.capacity = 100});
            (void)co_await out.write(std::string_view("abc"));
            CHECK(reader.close());
            const auto flushed = co_await out.flush();
            REQUIRE(!flushed);
            CHECK(flushed.error() == std::errc::broken_pipe);
            CHECK(out.error() == std::errc::broken_pipe);
            CHECK(out.unflushed() == 3);
            const auto more = co_await out.write(std::string_view("d"));
            REQUIRE(!more);
            CHECK(more.error() == std::errc::broken_pipe);
            const auto closed = co_await out.close();
            REQUIRE(!closed);
            CHECK(closed.error() == std::errc::broken_pipe);
            const auto after = co_await out.write(std::string_view("d"));
            CHECK(after.error() == std::errc::bad_file_descriptor);
        }
        CHECK(nowait::bytes_lost_in_buffers() == lost + 3);
    }());
}

TEST_CASE("an error of the flush by time is reported by the next call") {
    run_on_new([]() -> task<> {
        auto [reader, writer] = make_pipe();
        pipe_buffer out(writer, {.capacity = 100, .flush_after = 1ms});
        CHECK(reader.close());
        (void)co_await out.write(std::string_view("abc"));
        while (!out.error())
            co_await nowait::yield();
        const auto more = co_await out.write(std::string_view("d"));
        REQUIRE(!more);
        CHECK(more.error() == std::errc::broken_pipe);
    }());
}

TEST_CASE("stops and time-outs: a write is accepted or it is not, a flush may be repeated") {
    run_on_new([]() -> task<> {
        auto [reader, writer] = make_pipe({.capacity = 4096});
        pipe_buffer out(writer, {.capacity = 5000});
        const std::string text = pattern(20'000);
        const auto first = co_await out.write(std::string_view(text).substr(0, 5000));
        CHECK(first == 5000u);
        const auto flushed = co_await nowait::with_timeout(out.flush(), 3ms);
        REQUIRE(!flushed);
        CHECK(flushed.error() == std::errc::timed_out);
        CHECK(out.unflushed() == 904);
        CHECK(!out.error());
        auto large = out.write(std::string_view(text).substr(5000, 4900));
        const auto late = co_await nowait::with_timeout(std::move(large), 3ms);
        REQUIRE(!late);
        CHECK(late.error() == std::errc::timed_out);
        CHECK(out.unflushed() == 904);
        const auto closing = co_await nowait::with_timeout(out.close(), 3ms);
        CHECK(!closing);
        auto reading = nowait::spawn(read_to_end(std::move(reader)));
        const progress rest = co_await nowait::write_all(out, std::string_view(text).substr(5000));
        CHECK(rest.bytes == 15'000);
        const auto closed = co_await out.close();
        CHECK(closed);
        CHECK(writer.close());
        const auto got = co_await reading.join();
        CHECK((*got == text));
    }());
}

TEST_CASE("writes of several tasks stay whole, and none passes an earlier one") {
    run_on_new([]() -> task<> {
        auto [reader, writer] = make_pipe({.capacity = 4096});
        pipe_buffer out(writer, {.capacity = 6000, .flush_after = 1ms});
        auto reading = nowait::spawn(read_to_end(std::move(reader), 100));
        const auto put = [](pipe_buffer& to, char name) -> task<> {
            for (std::size_t i = 0; i < 200; ++i) {
                const std::string text((i * 611) % 6000, name);
                const auto wrote = co_await to.write(std::string_view("[" + text + "]").substr(0));
                if (wrote != text.size() + 2)
                    throw std::runtime_error("short");
            }
        };
        co_await nowait::when_all(put(out, 'a'), put(out, 'b'), put(out, 'c'));
        const auto closed = co_await out.close();
        CHECK(closed);
        CHECK(writer.close());
        const auto got = co_await reading.join();
        std::size_t counts[3] = {};
        for (std::size_t at = 0; at < got->size();) {
            REQUIRE((*got)[at] == '[');
            const std::size_t end = got->find(']', at);
            REQUIRE(end != std::string::npos);
            const std::string_view text = std::string_view(*got).substr(at + 1, end - at - 1);
            if (!text.empty()) {
                REQUIRE(text.find_first_not_of(text[0]) == std::string_view::npos);
                std::size_t& i = counts[static_cast<std::size_t>(text[0] - 'a')];
                while ((i * 611) % 6000 == 0)
                    ++i;
                REQUIRE(text.size() == (i * 611) % 6000);
                ++i;
            }
            at = end + 1;
        }
        CHECK(counts[0] == 200);
        CHECK(counts[1] == 200);
        CHECK(counts[2] == 200);
    }());
}

TEST_CASE("a buffered writer dies while its flush by time waits for room") {
    run_on_new([]() -> task<> {
        auto [reader, writer] = make_pipe({.capacity = 4096});
        (void)co_await nowait::write_all(writer, std::string_view(pattern(4096)));
        {
            nowait::pipe_writer mine = std::move(writer);
            pipe_buffer out(mine, {.capacity = 100, .flush_after = 1ms});
            (void)co_await out.write(std::string_view("never"));
            co_await until_a_write_waits();
            CHECK(out.unflushed() == 5);
        }
        std::string room(5000, '\0');
        const progress got = co_await nowait::read_exactly(reader, room_in(room));
        CHECK(got.bytes == 4096);
    }());
}

TEST_CASE("a runtime that dies while a flush by time waits") {
    auto [reader, writer] = make_pipe({.capacity = 4096});
    pipe_buffer out(writer, {.capacity = 100, .flush_after = 1ms});
    {
        auto runs = make_runtime();
        (void)runs.run([](pipe_buffer& to, nowait::pipe_writer& under, nowait::runtime& of) -> task<> {
            (void)co_await nowait::write_all(under, std::string_view(pattern(4096)));
            (void)co_await to.write(std::string_view("never"));
            co_await until_a_write_waits();
            of.request_stop();
        }(out, writer, runs));
    }
    CHECK(out.unflushed() == 5);
}

TEST_CASE("a stream of tasks behind the buffer") {
    run_on_new([]() -> task<> {
        scripted_stream stream{.piece = 3, .room = 10};
        stream.last = std::make_error_code(std::errc::no_space_on_device);
        nowait::buffered_writer out(stream, {.capacity = 8});
        const progress put = co_await nowait::write_all(out, std::string_view("0123456789abcdef"));
        CHECK(put.ok());
        CHECK(stream.written ==
              "012345678"); // what was larger than the buffer went past it, in steps of three
        CHECK(out.unflushed() == 7);
        const auto flushed = co_await out.flush();
        REQUIRE(!flushed);
        CHECK(flushed.error() == std::errc::no_space_on_device);
        CHECK(stream.written == "0123456789");
        CHECK(out.unflushed() == 6);
    }());
}
