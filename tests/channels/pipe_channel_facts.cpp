// What an in-process pipe does, fact by fact; most of them are facts about kernel pipes too.
#include "counting_new.hpp"
#include "pipe_channel_support.hpp"

#include <nowait/io.hpp>

namespace nowait_test::channels {
namespace {

static_assert(nowait::async_reader<nowait::pipe_channel_reader>);
static_assert(nowait::async_writer<nowait::pipe_channel_writer>);
static_assert(nowait::async_reader<nowait::local_pipe_channel_reader>);
static_assert(nowait::async_writer<nowait::local_pipe_channel_writer>);
static_assert(nowait::async_reader<nowait::pipe_channel_duplex> &&
              nowait::async_writer<nowait::pipe_channel_duplex>);
static_assert(!std::is_copy_constructible_v<nowait::pipe_channel_reader>);
static_assert(!std::is_copy_constructible_v<nowait::pipe_channel_writer>);

// A reader has no write and a writer no read: what the kernel answers with EBADF does not compile.
template <class End>
concept can_read = requires(const End& end, std::span<std::byte> buffer) { end.read(buffer); };
template <class End>
concept can_write = requires(const End& end, std::span<const std::byte> data) { end.write(data); };
static_assert(!can_read<nowait::pipe_channel_writer> && !can_write<nowait::pipe_channel_reader>);

} // namespace

TEMPLATE_TEST_CASE("bytes come out as they went in, in order", "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        const std::string sent = pattern(50'000);
        for (std::size_t at = 0; at < sent.size(); at += 1000) {
            auto n = co_await channel.writer.write(std::string_view(sent).substr(at, 1000));
            REQUIRE(n);
            REQUIRE(*n == 1000);
        }
        auto closed = channel.writer.close();
        CHECK(closed);
        std::string got = co_await read_to_end(channel.reader);
        CHECK(got == sent);
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("a read that finds data and a write that finds room do not suspend", "[pipe_channel]",
                   BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        std::string buffer(512, '?');
        const std::string data = pattern(512);
        co_await nowait::yield();
        const auto before = nowait::current_stats();
        for (int i = 0; i < 20; ++i) {
            auto wrote = co_await channel.writer.write(data);
            auto read = co_await channel.reader.read(room(buffer));
            REQUIRE((wrote && read && *wrote == 512 && *read == 512));
        }
        const auto after = nowait::current_stats();
        const auto kind = nowait::operation_kind::channel;
        CHECK(after.turns == before.turns);
        CHECK(after.of(kind).inline_completions - before.of(kind).inline_completions == 40);
        CHECK(after.of(kind).armed == before.of(kind).armed);
        CHECK(buffer == data);
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("after the last writer closes, readers get the remaining data first, then 0",
                   "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        auto wrote = co_await channel.writer.write("left over");
        REQUIRE(wrote);
        channel.writer = {};
        std::string buffer(100, '?');
        auto first = co_await channel.reader.read(room(buffer));
        REQUIRE((first && *first == 9));
        for (int i = 0; i < 3; ++i) {
            auto then = co_await channel.reader.read(room(buffer));
            REQUIRE((then && *then == 0));
        }
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("a write that nobody will read is a broken pipe, and raises no signal", "[pipe_channel]",
                   BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        channel.reader = {};
        auto wrote = co_await channel.writer.write("x");
        CHECK(error_of(wrote) == EPIPE);
        auto again = channel.writer.try_write("x");
        CHECK(error_of(again) == EPIPE);
        auto nothing = co_await channel.writer.write("");
        CHECK((nothing && *nothing == 0));
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("operations on a closed or moved-from end are EBADF", "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        std::string buffer(10, '?');
        {
            auto reader = std::move(channel.reader);
            auto from_moved = co_await channel.reader.read(room(buffer));
            CHECK(error_of(from_moved) == EBADF);
            CHECK(error_of(channel.reader.try_read(room(buffer))) == EBADF);
            CHECK(error_of(channel.reader.close()) == EBADF);
            CHECK(error_of(channel.reader.capacity()) == EBADF);
            CHECK(error_of(channel.reader.set_capacity(page)) == EBADF);
            CHECK(error_of(channel.reader.available()) == EBADF);
            CHECK(error_of(channel.reader.duplicate()) == EBADF);
            CHECK(error_of(channel.reader.try_peek()) == EBADF);
            CHECK_FALSE(channel.reader.is_open());
            auto early = reader.read(room(buffer)); // made before, awaited after
            CHECK(reader.close());
            CHECK_FALSE(reader.is_open());
            auto from_closed = co_await early;
            CHECK(error_of(from_closed) == EBADF);
            auto empty = co_await reader.read(std::span<std::byte>());
            CHECK(error_of(empty) == EBADF);
            CHECK(error_of(reader.try_read(room(buffer))) == EBADF);
            auto ready = co_await reader.readable();
            CHECK(error_of(ready) == EBADF);
            auto peeked = co_await reader.peek();
            CHECK(error_of(peeked) == EBADF);
            CHECK(error_of(reader.close()) == EBADF);
            CHECK(error_of(reader.capacity()) == EBADF);
            CHECK(error_of(reader.set_capacity(page)) == EBADF);
            CHECK(error_of(reader.duplicate()) == EBADF);
        }
        auto writer = std::move(channel.writer);
        auto from_moved = co_await channel.writer.write("x");
        CHECK(error_of(from_moved) == EBADF);
        CHECK(error_of(channel.writer.set_packets(true)) == EBADF);
        CHECK(writer.close());
        auto from_closed = co_await writer.write("x");
        CHECK(error_of(from_closed) == EBADF);
        CHECK(error_of(writer.try_write("x")) == EBADF);
        auto ready = co_await writer.writable();
        CHECK(error_of(ready) == EBADF);
        auto reserved = co_await writer.reserve(10);
        CHECK(error_of(reserved) == EBADF);
        CHECK(error_of(writer.try_reserve(10)) == EBADF);
        CHECK(error_of(writer.set_packets(true)) == EBADF);
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("zero bytes are 0, whatever the state and whoever waits", "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        outcome waiting;
        auto job = nowait::spawn(read_once(channel.reader, 10, waiting));
        co_await settle();
        auto read = co_await channel.reader.read(std::span<std::byte>());
        CHECK((read && *read == 0));
        const iovec none[2] = {};
        auto vectored = co_await channel.reader.read(std::span<const iovec>(none));
        CHECK((vectored && *vectored == 0));
        auto tried = channel.reader.try_read(std::span<std::byte>());
        CHECK((tried && *tried == 0));
        auto wrote = co_await channel.writer.write("");
        CHECK((wrote && *wrote == 0));
        CHECK_FALSE(waiting.done);
        channel.writer = {};
        co_await settle();
        CHECK((waiting.done && waiting.error == 0 && waiting.size == 0));
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("bad arguments are errors, and nothing happens", "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        auto written = co_await channel.writer.write("data");
        REQUIRE(written);
        auto null_read =
            co_await channel.reader.read(std::span<std::byte>(static_cast<std::byte*>(nullptr), 4));
        CHECK(error_of(null_read) == EFAULT);
        auto null_write =
            co_await channel.writer.write(std::string_view(static_cast<const char*>(nullptr), 4));
        CHECK(error_of(null_write) == EFAULT);
        std::vector<iovec> many(1025);
        auto too_many = co_await channel.reader.read(std::span<const iovec>(many));
        CHECK(error_of(too_many) == EINVAL);
        CHECK(error_of(channel.writer.try_write(std::span<const iovec>(many))) == EINVAL);
        auto nothing = co_await channel.writer.reserve(0);
        CHECK(error_of(nothing) == EINVAL);
        CHECK(channel.reader.available() == 4u);
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("vectored reads and writes go in order through all parts", "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        std::string a = pattern(3000, 1), b = pattern(7, 2), c = pattern(6000, 3);
        const iovec out[] = {{a.data(), a.size()}, {nullptr, 0}, {b.data(), b.size()}, {c.data(), c.size()}};
        auto wrote = co_await channel.writer.write(std::span<const iovec>(out));
        REQUIRE((wrote && *wrote == 9007));
        std::string x(10, '?'), y(8000, '?'), z(5000, '?');
        const iovec in[] = {{x.data(), x.size()}, {y.data(), y.size()}, {z.data(), z.size()}};
        auto read = co_await channel.reader.read(std::span<const iovec>(in));
        REQUIRE((read && *read == 9007));
        CHECK((x + y + z).substr(0, 9007) == a + b + c);
        // And into the parts of a reader that waits.
        outcome reader;
        auto job = nowait::spawn(await_once(channel.reader.read(std::span<const iovec>(in)), reader));
        co_await settle();
        auto again = co_await channel.writer.write(std::span<const iovec>(out));
        REQUIRE((again && *again == 9007));
        co_await settle();
        CHECK((reader.done && reader.size == 9007));
        CHECK((x + y + z).substr(0, 9007) == a + b + c);
        CHECK(channel.reader.available() == 0u);
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("full: a small write waits or says EAGAIN, a large one is short", "[pipe_channel]",
                   BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        auto short_count = co_await channel.writer.write(std::string_view(pattern(100'000)));
        REQUIRE((short_count && *short_count == default_capacity));
        CHECK(error_of(channel.writer.try_write("x")) == EAGAIN);
        outcome writer;
        auto job = nowait::spawn(write_once(channel.writer, "x", writer));
        co_await settle();
        CHECK_FALSE(writer.done);
        std::string buffer(page, '?');
        auto read = co_await channel.reader.read(room(buffer));
        REQUIRE((read && *read == page));
        co_await settle();
        CHECK((writer.done && writer.size == 1));
        CHECK(channel.reader.available() == default_capacity - page + 1);
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("after a wait a small write is merged into the newest slot", "[pipe_channel]",
                   BOTH_KINDS) {
    // The kernel does not try that again after it slept.
    auto body = []() -> task<> {
        auto channel = make<TestType>({.capacity = 2 * page});
        fill(channel);
        outcome writer;
        const std::string most(page - 10, 'm');
        auto job = nowait::spawn(write_once(channel.writer, most, writer));
        outcome small;
        auto second = nowait::spawn(write_once(channel.writer, "tiny", small));
        co_await settle();
        std::string buffer(page, '?');
        auto read = co_await channel.reader.read(room(buffer));
        REQUIRE(read);
        co_await settle();
        CHECK((writer.done && writer.size == most.size()));
        CHECK((small.done && small.size == 4)); // no slot was free for it
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("packets keep their bounds, also into the buffer of a waiting reader", "[pipe_channel]",
                   BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>({.packets = true});
        outcome first, second;
        int count = 0;
        auto a = nowait::spawn(read_once(channel.reader, 3, first, &count));
        auto b = nowait::spawn(read_once(channel.reader, 100, second, &count));
        co_await settle();
        auto one = co_await channel.writer.write("abcdef");
        auto two = co_await channel.writer.write("ghi");
        REQUIRE((one && *one == 6 && two && *two == 3));
        co_await settle();
        CHECK((first.text == "abc" && first.order == 1)); // what did not fit is lost
        CHECK((second.text == "ghi" && second.order == 2));
        CHECK(channel.writer.set_packets(false));
        (void)channel.writer.try_write("12");
        (void)channel.writer.try_write("34");
        CHECK(channel.reader.available() == 4u);
        std::string buffer(10, '?');
        auto merged = co_await channel.reader.read(room(buffer));
        CHECK((merged && *merged == 4));
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("capacity: rounded as F_SETPIPE_SZ does, and refused beyond the limits", "[pipe_channel]",
                   BOTH_KINDS) {
    CHECK(make<TestType>().reader.capacity() == default_capacity);
    CHECK(make<TestType>({.capacity = 1}).reader.capacity() == page);
    CHECK(make<TestType>({.capacity = 5000}).writer.capacity() == 2 * page);
    CHECK(make<TestType>({.capacity = 3 * page}).writer.capacity() == 4 * page);
    CHECK(error_of(TestType::create({.capacity = (std::size_t{1} << 20) + 1})) == EPERM);
    CHECK(error_of(TestType::create({.capacity = (std::size_t{1} << 31) + 1})) == EINVAL);
    CHECK(error_of(TestType::create({.capacity = ~std::size_t{0}})) == EINVAL);
    // A new channel takes the limit where the default is above it.
    CHECK(make<TestType>({.capacity_limit = 20'000}).reader.capacity() == 4 * page);

    auto channel = make<TestType>();
    CHECK(channel.reader.set_capacity(0) == page);
    CHECK(channel.writer.capacity() == page); // set through one end, seen through the other
    CHECK(channel.writer.set_capacity(std::size_t{1} << 20) == std::size_t{1} << 20);
    CHECK(error_of(channel.writer.set_capacity((std::size_t{1} << 20) + 1)) == EPERM);
    CHECK(error_of(channel.writer.set_capacity((std::size_t{1} << 31) + 1)) == EINVAL);
    CHECK(channel.reader.capacity() == std::size_t{1} << 20);
}

TEMPLATE_TEST_CASE("shrinking below what is in use is EBUSY and changes nothing", "[pipe_channel]",
                   BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        fill(channel);
        CHECK(error_of(channel.writer.set_capacity(default_capacity / 2)) == EBUSY);
        CHECK(channel.writer.capacity() == default_capacity);
        std::string buffer(default_capacity / 2, '?');
        auto half = co_await channel.reader.read(room(buffer));
        REQUIRE(half);
        CHECK(channel.writer.set_capacity(default_capacity / 2) == default_capacity / 2);
        CHECK(error_of(channel.writer.try_write("x")) == EAGAIN);
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("growing a full channel lets a waiting writer go on", "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>({.capacity = page});
        fill(channel);
        outcome first, second;
        auto a = nowait::spawn(write_once(channel.writer, "first", first));
        auto b = nowait::spawn(write_once(channel.writer, "second", second));
        co_await settle();
        CHECK_FALSE(first.done);
        CHECK(channel.reader.set_capacity(4 * page) == 4 * page);
        co_await settle();
        CHECK((first.done && first.size == 5));
        CHECK((second.done && second.size == 6));
        CHECK(channel.reader.available() == page + 11);
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("ends are counted: duplicates keep a side open", "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        auto writer = channel.writer.duplicate();
        auto reader = channel.reader.duplicate();
        REQUIRE((writer && reader));
        channel.writer = {};
        channel.reader = {};
        outcome waiting;
        auto job = nowait::spawn(read_once(*reader, 10, waiting));
        co_await settle();
        CHECK_FALSE(waiting.done);
        auto wrote = co_await writer->write("still");
        CHECK((wrote && *wrote == 5));
        co_await settle();
        CHECK(waiting.text == "still");
        CHECK(writer->close());
        std::string buffer(10, '?');
        auto end = co_await reader->read(room(buffer));
        CHECK((end && *end == 0));
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("a duplex pair is a conversation", "[pipe_channel]", BOTH_KINDS) {
    using duplex = std::conditional_t<std::is_same_v<TestType, nowait::pipe_channel>,
                                      nowait::pipe_channel_duplex, nowait::local_pipe_channel_duplex>;
    auto body = []() -> task<> {
        auto made = duplex::create();
        REQUIRE(made);
        auto& [left, right] = *made;
        auto question = co_await left.write("question");
        REQUIRE(question);
        std::string buffer(20, '?');
        auto heard = co_await right.read(room(buffer));
        REQUIRE((heard && buffer.substr(0, *heard) == "question"));
        auto answer = co_await right.write("answer");
        REQUIRE(answer);
        CHECK(right.out.close());
        heard = co_await left.read(room(buffer));
        REQUIRE((heard && buffer.substr(0, *heard) == "answer"));
        heard = co_await left.read(room(buffer));
        CHECK((heard && *heard == 0));
        auto still = co_await left.write("the other way is open");
        CHECK(still);
    };
    run_on_new(body());
}

TEST_CASE("a local channel belongs to the runtime that waits in it", "[pipe_channel]") {
    auto channel = make<nowait::local_pipe_channel>();
    auto use = [](const nowait::local_pipe_channel& c, int& error) -> task<> {
        auto wrote = co_await c.writer.write("x");
        error = error_of(wrote);
    };
    auto second = make_runtime();
    int error = -1;
    outcome waiting;
    {
        auto first = make_runtime();
        auto job = first.spawn(read_once(channel.reader, 10, waiting));
        nowait::detail::loop& loop = first.get_loop();
        REQUIRE(loop.enter() == 0);
        loop.run_until_idle(nowait::detail::clock::now()); // one pass: it waits
        loop.leave();
        REQUIRE(second.run(use(channel, error)));
        CHECK(error == EPERM);
        CHECK(channel.reader.available() == 0u);
    }
    CHECK_FALSE(waiting.done);
    REQUIRE(second.run(use(channel, error)));
    CHECK(error == 0);
    CHECK(channel.reader.available() == 1u);
}

TEMPLATE_TEST_CASE("no operation allocates once warm, ready or waiting", "[pipe_channel]", BOTH_KINDS) {
    auto echo = [](const typename TestType::reader_type& in, const typename TestType::writer_type& out,
                   int rounds) -> task<> {
        std::string buffer(600, '?');
        for (int i = 0; i < rounds; ++i) {
            auto n = co_await in.read(room(buffer));
            if (!n)
                co_return;
            n = co_await out.write(std::string_view(buffer).substr(0, *n));
            if (!n)
                co_return;
        }
    };
    auto body = [](auto run_echo) -> task<> {
        auto there = make<TestType>();
        auto back = make<TestType>();
        auto job = nowait::spawn(run_echo(there.reader, back.writer, 300));
        std::string buffer(600, '?');
        std::size_t counted = 0;
        for (int i = 0; i < 300; ++i) {
            if (i == 100)
                counted = allocations();
            auto wrote = co_await there.writer.write(std::string_view(buffer));
            REQUIRE(wrote);
            auto heard = co_await back.reader.read(room(buffer)); // waits: the echo has not run
            REQUIRE((heard && *heard == 600));
        }
        CHECK(allocations() == counted);
        std::string big(default_capacity, '?');
        for (int i = 0; i < 30; ++i) {
            if (i == 10)
                counted = allocations();
            auto wrote = co_await there.writer.write(std::string_view(big));
            auto read = co_await there.reader.read(room(big));
            REQUIRE((wrote && read && *read == default_capacity));
        }
        CHECK(allocations() == counted);
    };
    run_on_new(body(echo));
}

} // namespace nowait_test::channels
