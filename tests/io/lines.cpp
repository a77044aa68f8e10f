// Lines and delimiters.
#include "io_support.hpp"

#include <chrono>
#include <optional>

using namespace io;
using namespace std::chrono_literals;

namespace {

/// All lines of `text`, read in pieces of `piece` bytes; what went wrong stands between angle brackets.
task<std::vector<std::string>> lines_of(std::string text, std::size_t piece, nowait::line_options options) {
    scripted_stream stream;
    stream.data = std::move(text);
    stream.piece = piece;
    nowait::line_reader lines(stream, options);
    std::vector<std::string> all;
    for (;;) {
        const auto line = co_await lines.next();
        if (!line) {
            all.push_back("<" + std::string(line.error() == std::errc::message_size ? "too long" : "error") +
                          ">");
        } else if (!*line) {
            break;
        } else {
            all.emplace_back(**line);
            if (!lines.terminated())
                all.push_back("<no newline>");
        }
    }
    // The end stays the end.
    const auto again = co_await lines.next();
    CHECK(again);
    CHECK(!*again);
    co_return all;
}

using strings = std::vector<std::string>;

} // namespace

TEST_CASE("lines come as they are, in pieces of any size") {
    for (const std::size_t piece : {1, 2, 3, 5, 100}) {
        CAPTURE(piece);
        CHECK(run_on_new(lines_of("", piece, {})).empty());
        CHECK(run_on_new(lines_of("\n", piece, {})) == strings{""});
        CHECK(run_on_new(lines_of("a\n\nbc\n", piece, {})) == strings{"a", "", "bc"});
        CHECK(run_on_new(lines_of("a\nlast", piece, {})) == strings{"a", "last", "<no newline>"});
        CHECK(run_on_new(lines_of("a\r\nb\r\n", piece, {})) == strings{"a\r", "b\r"});
        const std::string zero("x\0y\n", 4);
        CHECK(run_on_new(lines_of(zero, piece, {})) == strings{std::string("x\0y", 3)});
    }
}

TEST_CASE("the carriage return is part of the end only before a newline") {
    const nowait::line_options crlf{.max_length = 4, .crlf = true};
    for (const std::size_t piece : {1, 2, 3, 5, 100}) {
        CAPTURE(piece);
        CHECK(run_on_new(lines_of("a\r\nb\n\r\n", piece, crlf)) == strings{"a", "b", ""});
        CHECK(run_on_new(lines_of("a\rb\n\r", piece, crlf)) == strings{"a\rb", "\r", "<no newline>"});
        CHECK(run_on_new(lines_of("1234\r\n12345\r\n1234\n", piece, crlf)) ==
              strings{"1234", "<too long>", "1234"});
    }
}

TEST_CASE("a line that is too long is reported once and dropped whole") {
    const nowait::line_options few{.max_length = 4};
    for (const std::size_t piece : {1, 2, 3, 5, 7, 100}) {
        CAPTURE(piece);
        CHECK(run_on_new(lines_of("1234\n12345\nabc\n", piece, few)) == strings{"1234", "<too long>", "abc"});
        CHECK(run_on_new(lines_of("123456789012345\n\nabc", piece, few)) ==
              strings{"<too long>", "", "abc", "<no newline>"});
        CHECK(run_on_new(lines_of("ok\n12345", piece, few)) == strings{"ok", "<too long>"});
        CHECK(run_on_new(lines_of("123456\n123456\nx\n", piece, few)) ==
              strings{"<too long>", "<too long>", "x"});
        CHECK(run_on_new(lines_of("\n1\n", piece, {.max_length = 0})) == strings{"", "<too long>"});
    }
    // Longer than any buffer that the limit asks for.
    const std::string text = std::string(100'000, 'x') + "\n" + std::string(5000, 'y') + "\nz\n";
    CHECK(run_on_new(lines_of(text, 4096, {.max_length = 5000})) ==
          strings{"<too long>", std::string(5000, 'y'), "z"});
}

TEST_CASE("lines of a pipe: stops and time-outs lose nothing") {
    run_on_new([]() -> task<> {
        auto [reader, writer] = make_pipe();
        nowait::line_reader lines(reader);
        (void)co_await writer.write(std::string_view("first\nsec"));
        const auto first = co_await lines.next();
        REQUIRE(first);
        CHECK(**first == "first");
        CHECK(lines.buffered().size() == 3);
        const auto late = co_await nowait::with_timeout(lines.next(), 3ms);
        REQUIRE(!late);
        CHECK(late.error() == std::errc::timed_out);
        (void)co_await writer.write(std::string_view("ond\nbinary"));
        const auto second = co_await lines.next();
        REQUIRE(second);
        CHECK(**second == "second");
        CHECK(lines.buffered().size() == 6);
        auto both = nowait::when_all(lines.next(), lines.next(), writer.write(std::string_view("!\n")));
        const auto [waits, refused, wrote] = co_await std::move(both);
        REQUIRE(waits);
        CHECK(**waits == "binary!");
        REQUIRE(!refused);
        CHECK(refused.error() == std::errc::device_or_resource_busy);
        CHECK(reader.close());
        const auto closed = co_await lines.next();
        REQUIRE(!closed);
        CHECK(closed.error() == std::errc::bad_file_descriptor);
    }());
}

TEST_CASE("a reader that throws") {
    run_on_new([]() -> task<> {
        scripted_stream stream{.data = "a\nb", .piece = 100, .throws = true};
        nowait::line_reader lines(stream);
        const auto line = co_await lines.next();
        CHECK(**line == "a");
        bool caught = false;
        try {
            (void)co_await lines.next();
        } catch (const std::runtime_error&) {
            caught = true;
        }
        CHECK(caught);
        stream.throws = false;
        const auto rest = co_await lines.next();
        CHECK(**rest == "b");
    }());
}

TEST_CASE("lines that are in the buffer already spend the budget") {
    run_on_new([]() -> task<> {
        auto [reader, writer] = make_pipe();
        (void)co_await nowait::write_all(writer, std::string_view(std::string(60'000, '\n')));
        bool done = false;
        std::size_t turns = 0;
        auto other = nowait::spawn([](const bool& stop, std::size_t& count) -> task<> {
            while (!stop) {
                ++count;
                co_await nowait::yield();
            }
        }(done, turns));
        nowait::line_reader lines(reader);
        for (int i = 0; i < 60'000; ++i) {
            const auto line = co_await lines.next();
            if (!line || !*line || !(*line)->empty())
                throw std::runtime_error("not an empty line");
        }
        done = true;
        co_await other.join();
        CHECK(turns > 400);
    }());
}

TEST_CASE("read_until finds delimiters across pieces and keeps what is beyond them") {
    for (const std::size_t piece : {1, 2, 3, 100}) {
        run_on_new([](std::size_t size) -> task<> {
            scripted_stream stream{.data = "GET /\r\nHost\r: x\r\n\r\nbody", .piece = size};
            std::string text;
            strings heads;
            for (;;) {
                const progress found = co_await nowait::read_until(stream, "\r\n", text, 100);
                REQUIRE(found.ok());
                const std::string head = text.substr(0, found.bytes);
                text.erase(0, found.bytes);
                heads.push_back(head);
                if (!head.ends_with("\r\n"))
                    break;
            }
            CHECK(heads == strings{"GET /\r\n", "Host\r: x\r\n", "\r\n", "body"});
            const progress end = co_await nowait::read_until(stream, "\r\n", text, 100);
            CHECK(end.ok());
            CHECK(end.bytes == 0);
        }(piece));
    }
}

TEST_CASE("read_until stops at its limit and loses nothing, also with errors and time-outs") {
    run_on_new([]() -> task<> {
        scripted_stream stream{.data = "0123456789;rest", .piece = 4};
        std::string text;
        const progress over = co_await nowait::read_until(stream, ";", text, 10);
        CHECK(over.error == std::errc::message_size);
        CHECK(over.bytes == 10);
        CHECK(text == "0123456789");
        const progress fits = co_await nowait::read_until(stream, ";", text, 11);
        CHECK(fits.ok());
        CHECK(fits.bytes == 11);
        text.clear();
        stream.last = std::make_error_code(std::errc::connection_reset);
        const progress cut = co_await nowait::read_until(stream, ";", text, 100);
        CHECK(cut.error == std::errc::connection_reset);
        CHECK(cut.bytes == 4);
        CHECK(text == "rest");
        const progress bad = co_await nowait::read_until(stream, "", text, 100);
        CHECK(bad.error == std::errc::invalid_argument);

        auto [reader, writer] = make_pipe();
        (void)co_await writer.write(std::string_view("abc"));
        std::string line;
        auto reading = nowait::read_until(reader, "\n", line, 100);
        const progress late = co_await nowait::with_timeout(std::move(reading), 3ms);
        CHECK(late.error == std::errc::timed_out);
        CHECK(late.bytes == 3);
        CHECK(line == "abc");
    }());
}
