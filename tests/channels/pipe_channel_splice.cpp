// Between two channels, and between a channel and a kernel pipe.
#include "pipe_channel_support.hpp"

namespace nowait_test::channels {

TEMPLATE_TEST_CASE("splice moves, tee shares: many sizes", "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        for (const std::size_t size : {1u, 100u, 4095u, 4096u, 4097u, 10'000u, 65'536u}) {
            auto a = make<TestType>();
            auto b = make<TestType>();
            auto c = make<TestType>();
            const std::string data = pattern(size);
            auto wrote = co_await a.writer.write(data);
            REQUIRE((wrote && *wrote == size));
            auto shared = co_await nowait::tee(a.reader, b.writer, size);
            CHECK((shared && *shared == size));
            CHECK(a.reader.available() == size);
            auto moved = co_await nowait::splice(a.reader, c.writer, size);
            CHECK((moved && *moved == size));
            CHECK(a.reader.available() == 0u);
            b.writer = {};
            c.writer = {};
            std::string copy = co_await read_to_end(b.reader);
            std::string original = co_await read_to_end(c.reader);
            CHECK(copy == data);
            CHECK(original == data);
        }
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("after a tee both go on being written to, and never mix", "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto a = make<TestType>();
        auto b = make<TestType>();
        REQUIRE(a.writer.try_write("shared "));
        auto shared = co_await nowait::tee(a.reader, b.writer, 100);
        REQUIRE(shared);
        REQUIRE(a.writer.try_write("a"));
        REQUIRE(b.writer.try_write("b"));
        std::string buffer(100, '?');
        auto n = co_await a.reader.read(room(buffer));
        CHECK((n && buffer.substr(0, *n) == "shared a"));
        n = co_await b.reader.read(room(buffer));
        CHECK((n && buffer.substr(0, *n) == "shared b"));
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("tee says EAGAIN when there is nothing now, and 0 only at the end of the stream",
                   "[pipe_channel]", BOTH_KINDS) {
    auto a = make<TestType>();
    auto b = make<TestType>();
    CHECK(error_of(nowait::try_tee(a.reader, b.writer, 10)) == EAGAIN);
    CHECK(error_of(nowait::try_splice(a.reader, b.writer, 10)) == EAGAIN);
    a.writer = {};
    auto teed = nowait::try_tee(a.reader, b.writer, 10);
    CHECK((teed && *teed == 0));
    auto spliced = nowait::try_splice(a.reader, b.writer, 10);
    CHECK((spliced && *spliced == 0));
}

TEMPLATE_TEST_CASE("splice and tee refuse what makes no sense", "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto a = make<TestType>();
        auto b = make<TestType>();
        REQUIRE(a.writer.try_write("data"));
        auto same = co_await nowait::splice(a.reader, a.writer, 10);
        CHECK(error_of(same) == EINVAL);
        same = co_await nowait::tee(a.reader, a.writer, 10);
        CHECK(error_of(same) == EINVAL);
        auto nothing = co_await nowait::splice(a.reader, b.writer, 0);
        CHECK((nothing && *nothing == 0));
        b.reader = {};
        auto broken = co_await nowait::splice(a.reader, b.writer, 10);
        CHECK(error_of(broken) == EPIPE);
        CHECK(a.reader.available() == 4u);
        CHECK(b.writer.close());
        auto closed = co_await nowait::splice(a.reader, b.writer, 10);
        CHECK(error_of(closed) == EBADF);
        CHECK(error_of(nowait::try_tee(a.reader, b.writer, 10)) == EBADF);
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("a splice waits for data, then for room, then for data again", "[pipe_channel]",
                   BOTH_KINDS) {
    auto body = []() -> task<> {
        auto a = make<TestType>();
        auto b = make<TestType>({.capacity = page});
        fill(b);
        outcome out, behind;
        auto job = nowait::spawn(await_once(nowait::splice(a.reader, b.writer, 100), out));
        co_await settle();
        REQUIRE(a.writer.try_write("first"));
        co_await settle();
        CHECK_FALSE(out.done); // now it waits for room
        std::string buffer(page, '?');
        auto n = a.reader.try_read(
            room(buffer)); // not in the reader's queue any more: this is allowed to be faster
        CHECK((n && *n == 5));
        REQUIRE(b.reader.try_read(room(buffer)));
        co_await settle();
        CHECK_FALSE(out.done); // and for data again
        REQUIRE(a.writer.try_write("second"));
        co_await settle();
        CHECK((out.done && out.size == 6));
        n = b.reader.try_read(room(buffer));
        CHECK((n && buffer.substr(0, *n) == "second"));
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("called and then stopped, a splice lets the reader behind it go on", "[pipe_channel]",
                   BOTH_KINDS) {
    auto body = []() -> task<> {
        auto a = make<TestType>();
        auto b = make<TestType>();
        nowait::inplace_stop_source stop;
        outcome splice, reader;
        auto first =
            nowait::spawn(await_stoppable(nowait::splice(a.reader, b.writer, 100), stop.get_token(), splice));
        auto second = nowait::spawn(read_once(a.reader, 100, reader));
        co_await settle();
        REQUIRE(a.writer.try_write("data")); // calls the splice, which has not run
        std::string buffer(10, '?');
        CHECK(error_of(a.reader.try_read(room(buffer))) == EAGAIN); // nobody barges
        stop.request_stop();
        co_await settle();
        CHECK((splice.done && splice.error == ECANCELED));
        CHECK(reader.text == "data");
        CHECK(b.reader.available() == 0u);
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("splice makes room for writers of its source and data for readers of its target",
                   "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto a = make<TestType>({.capacity = page});
        auto b = make<TestType>();
        fill(a);
        outcome writer, reader;
        auto first = nowait::spawn(write_once(a.writer, "more", writer));
        auto second = nowait::spawn(read_once(b.reader, 10, reader));
        co_await settle();
        auto moved = co_await nowait::splice(a.reader, b.writer, page);
        CHECK((moved && *moved == page));
        co_await settle();
        CHECK((writer.done && writer.size == 4));
        CHECK((reader.done && reader.text == std::string(10, 'f')));
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("packets stay packets through splice and tee", "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto a = make<TestType>({.packets = true});
        auto b = make<TestType>();
        REQUIRE(a.writer.try_write("one"));
        REQUIRE(a.writer.try_write("two"));
        auto shared = co_await nowait::tee(a.reader, b.writer, 3);
        CHECK((shared && *shared == 3));
        auto moved = co_await nowait::splice(a.reader, b.writer, 100);
        CHECK((moved && *moved == 6));
        std::string buffer(100, '?');
        for (const char* expected : {"one", "one", "two"}) {
            auto n = co_await b.reader.read(room(buffer));
            REQUIRE(n);
            CHECK(buffer.substr(0, *n) == expected);
        }
    };
    run_on_new(body());
}

// --- channel and kernel pipe ---------------------------------------------------------------------------------------------------

TEMPLATE_TEST_CASE("a channel pours into a kernel pipe and out of another, unchanged", "[pipe_channel]",
                   BOTH_KINDS) {
    auto into_pipe = [](const typename TestType::reader_type& from, nowait::pipe_writer to) -> task<> {
        for (;;) {
            auto n = co_await nowait::splice(from, to, 50'000);
            REQUIRE(n);
            if (*n == 0)
                co_return;
        }
    };
    auto out_of_pipe = [](nowait::pipe_reader from, typename TestType::writer_type to) -> task<> {
        for (;;) {
            auto n = co_await nowait::splice(from, to, 30'000);
            REQUIRE(n);
            if (*n == 0)
                co_return;
        }
    };
    auto source = [](typename TestType::writer_type to, std::string data) -> task<> {
        auto error = co_await write_whole(to, data);
        CHECK_FALSE(error);
    };
    auto body = [](auto first, auto second, auto third) -> task<> {
        auto a = make<TestType>();
        auto b = make<TestType>({.capacity = 2 * page});
        auto kernel = nowait::make_pipe();
        REQUIRE(kernel);
        const std::string data = pattern(500'000);
        auto writes = nowait::spawn(third(std::move(a.writer), data));
        auto pours = nowait::spawn(first(a.reader, std::move(kernel->writer)));
        auto fills = nowait::spawn(second(std::move(kernel->reader), std::move(b.writer)));
        std::string got = co_await read_to_end(b.reader);
        CHECK(got == data);
        auto joined = co_await writes.join();
        CHECK(joined);
        joined = co_await pours.join();
        CHECK(joined);
        joined = co_await fills.join();
        CHECK(joined);
    };
    run_on_new(body(into_pipe, out_of_pipe, source));
}

TEMPLATE_TEST_CASE("splices with a kernel pipe that are stopped have moved nothing", "[pipe_channel]",
                   BOTH_KINDS) {
    auto into = [](const typename TestType::reader_type& from, const nowait::pipe_writer& to,
                   nowait::inplace_stop_token stop, outcome& out) -> task<> {
        auto n = co_await nowait::with_stop(nowait::splice(from, to, 100), stop);
        out.error = error_of(n);
        out.done = true;
    };
    auto out_of = [](const nowait::pipe_reader& from, const typename TestType::writer_type& to,
                     nowait::inplace_stop_token stop, outcome& out) -> task<> {
        auto n = co_await nowait::with_stop(nowait::splice(from, to, 100), stop);
        out.error = error_of(n);
        out.done = true;
    };
    auto body = [](auto start_into, auto start_out_of) -> task<> {
        auto channel = make<TestType>();
        auto kernel = nowait::make_pipe();
        REQUIRE(kernel);
        outcome a, b;
        nowait::inplace_stop_source stop;
        // Nothing in the pipe, and other writers of the channel are not kept waiting for it.
        auto first = nowait::spawn(start_out_of(kernel->reader, channel.writer, stop.get_token(), a));
        co_await settle();
        auto wrote = co_await channel.writer.write("data");
        CHECK(wrote);
        // No room in the pipe.
        const std::string block(page, 'k');
        for (int i = 0; i < 16; ++i) {
            auto n = co_await kernel->writer.write(block);
            REQUIRE(n);
        }
        while (!a.done) // until the loop has looked at the pipe
            co_await nowait::yield();
        CHECK(a.error == 0);
        const auto held = channel.reader.available();
        for (;;) { // what the splice took out is put back
            auto n = co_await nowait::with_timeout(kernel->writer.write(block), std::chrono::nanoseconds(0));
            if (!n)
                break;
        }
        auto second = nowait::spawn(start_into(channel.reader, kernel->writer, stop.get_token(), b));
        co_await settle(200);
        CHECK_FALSE(b.done);
        stop.request_stop();
        while (!b.done)
            co_await nowait::yield();
        CHECK(b.error == ECANCELED);
        CHECK(channel.reader.available() == held);
    };
    run_on_new(body(into, out_of));
}

} // namespace nowait_test::channels
