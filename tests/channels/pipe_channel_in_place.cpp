// reserve and commit, peek and consume: a channel's own pages, written and read where they lie.
#include "pipe_channel_support.hpp"

#include <cstring>
#include <optional>

namespace nowait_test::channels {
namespace {

template <class Reservation>
void put(Reservation& reservation, std::string_view text) {
    for (std::span<std::byte> part : reservation.parts()) {
        const std::size_t n = std::min(part.size(), text.size());
        std::memcpy(part.data(), text.data(), n);
        text.remove_prefix(n);
    }
    CHECK(text.empty());
}
template <class Peek>
std::string seen(const Peek& peek) {
    std::string all;
    for (std::span<const std::byte> part : peek.parts())
        all += text_of(part);
    return all;
}

} // namespace

TEMPLATE_TEST_CASE("what is committed is read, what is not is not", "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        auto reserved = co_await channel.writer.reserve(100);
        REQUIRE((reserved && reserved->size() == 100 && reserved->parts().size() == 1));
        put(*reserved, "in place");
        CHECK(channel.reader.available() == 0u);
        auto committed = reserved->commit(8);
        CHECK((committed && *committed == 8));
        CHECK_FALSE(static_cast<bool>(*reserved));
        CHECK(error_of(reserved->commit(0)) == EINVAL);

        auto peeked = co_await channel.reader.peek();
        REQUIRE((peeked && seen(*peeked) == "in place"));
        CHECK(error_of(peeked->consume(9)) == EINVAL); // more than was seen: it stays
        auto consumed = peeked->consume(3);
        CHECK((consumed && *consumed == 3));
        CHECK(peeked->empty());
        auto rest = co_await channel.reader.peek();
        REQUIRE((rest && seen(*rest) == "place"));
        rest->drop();
        CHECK(channel.reader.available() == 5u);
        CHECK(channel.writer.close());
        std::string all = co_await read_to_end(channel.reader);
        CHECK(all == "place");
        auto end = co_await channel.reader.peek();
        CHECK((end && end->empty() && end->parts().empty()));
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("a reservation may be as long as the channel, in pages", "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        const std::string data = pattern(default_capacity);
        auto reserved = co_await channel.writer.reserve(1'000'000);
        REQUIRE((reserved && reserved->size() == default_capacity));
        put(*reserved, data);
        auto committed = reserved->commit(50'000);
        REQUIRE((committed && *committed == 50'000));
        auto peeked = co_await channel.reader.peek();
        REQUIRE((peeked && seen(*peeked) == data.substr(0, 50'000)));
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("other writers queue behind a reservation, in order, and go on when it ends",
                   "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        std::string buffer(100, '?');
        for (const bool commit : {true, false}) {
            auto reserved = co_await channel.writer.reserve(10);
            REQUIRE(reserved);
            outcome first, second;
            int count = 0;
            auto a = nowait::spawn(write_once(channel.writer, "first", first, &count));
            auto b = nowait::spawn(write_once(channel.writer, "second", second, &count));
            co_await settle(); // held across awaits
            CHECK_FALSE(first.done);
            CHECK(error_of(channel.writer.try_write("x")) == EAGAIN);
            CHECK(error_of(channel.writer.try_reserve(1)) == EAGAIN);
            CHECK(error_of(channel.writer.set_capacity(8 * page)) == EBUSY);
            put(*reserved, "0123456789");
            if (commit)
                CHECK(reserved->commit(10));
            else
                *reserved = {}; // dropped
            co_await settle();
            CHECK((first.order == 1 && second.order == 2));
            auto n = co_await channel.reader.read(room(buffer));
            REQUIRE(n);
            CHECK(buffer.substr(0, *n) == (commit ? "0123456789firstsecond" : "firstsecond"));
        }
        CHECK(channel.writer.set_capacity(8 * page));
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("readers queue behind a peek, a tee does not", "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        auto copy = make<TestType>();
        REQUIRE(channel.writer.try_write("looked at"));
        auto peeked = co_await channel.reader.peek();
        REQUIRE(peeked);
        outcome reader, splice;
        auto a = nowait::spawn(read_once(channel.reader, 100, reader));
        auto b = nowait::spawn(await_once(nowait::splice(channel.reader, copy.writer, 100), splice));
        co_await settle();
        CHECK_FALSE(reader.done);
        CHECK_FALSE(splice.done);
        std::string buffer(100, '?');
        CHECK(error_of(channel.reader.try_read(room(buffer))) == EAGAIN);
        CHECK(error_of(channel.reader.try_peek()) == EAGAIN);
        CHECK(error_of(channel.reader.set_capacity(8 * page)) == EBUSY);
        auto shared = co_await nowait::tee(channel.reader, copy.writer, 100);
        CHECK((shared && *shared == 9));
        CHECK(peeked->consume(7));
        co_await settle();
        CHECK(reader.text == "at");
        REQUIRE(channel.writer.try_write("more"));
        co_await settle();
        CHECK((splice.done && splice.size == 4));
        auto n = co_await copy.reader.read(room(buffer));
        CHECK((n && buffer.substr(0, *n) == "looked atmore"));
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("the readers go while room is reserved: commit is a broken pipe", "[pipe_channel]",
                   BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        auto reserved = co_await channel.writer.reserve(10);
        REQUIRE(reserved);
        outcome behind;
        auto job = nowait::spawn(write_once(channel.writer, "x", behind));
        co_await settle();
        channel.reader = {};
        co_await settle();
        CHECK((behind.done && behind.error == EPIPE));
        put(*reserved, "0123456789");
        CHECK(error_of(reserved->commit(10)) == EPIPE);
        CHECK_FALSE(static_cast<bool>(*reserved));
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("a reservation keeps the stream open, and its end is seen by who waits", "[pipe_channel]",
                   BOTH_KINDS) {
    auto body = []() -> task<> {
        for (const bool commit : {true, false}) {
            auto channel = make<TestType>();
            auto reserved = co_await channel.writer.reserve(10);
            REQUIRE(reserved);
            channel.writer = {}; // the last writer, but for the reservation
            outcome reader, behind;
            auto a = nowait::spawn(read_once(channel.reader, 10, reader));
            auto b = nowait::spawn(read_once(channel.reader, 10, behind));
            co_await settle();
            CHECK_FALSE(reader.done);
            put(*reserved, "0123456789");
            if (commit)
                CHECK(reserved->commit(10));
            else
                reserved->drop();
            co_await settle();
            CHECK((reader.done && reader.error == 0));
            CHECK(reader.text == (commit ? "0123456789" : ""));
            CHECK((behind.done && behind.size == 0));
        }
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("reservation and peek may outlive both ends", "[pipe_channel]", BOTH_KINDS) {
    auto channel = std::optional(make<TestType>());
    REQUIRE(channel->writer.try_write("data"));
    auto peeked = channel->reader.try_peek();
    auto reserved = channel->writer.try_reserve(page);
    REQUIRE((peeked && reserved));
    channel.reset();
    CHECK(seen(*peeked) == "data");
    put(*reserved, "nobody reads this");
    CHECK(error_of(reserved->commit(17)) == EPIPE);
    CHECK(peeked->consume(4));
}

TEMPLATE_TEST_CASE("who waits for room or data in place is served in turn", "[pipe_channel]", BOTH_KINDS) {
    auto reserver = [](const typename TestType::writer_type& writer, char mark, int& count,
                       int& order) -> task<> {
        auto reserved = co_await writer.reserve(4);
        REQUIRE(reserved);
        order = ++count;
        co_await nowait::yield(); // the others must wait for this one
        put(*reserved, std::string(4, mark));
        CHECK(reserved->commit(4));
    };
    auto body = [](auto reserve_one) -> task<> {
        auto channel = make<TestType>({.capacity = page});
        fill(channel);
        int count = 0;
        int orders[3] = {};
        std::vector<nowait::join_handle<void>> jobs;
        for (int i = 0; i < 3; ++i)
            jobs.push_back(
                nowait::spawn(reserve_one(channel.writer, static_cast<char>('a' + i), count, orders[i])));
        co_await settle();
        CHECK(count == 0);
        std::string buffer(page, '?');
        auto n = co_await channel.reader.read(room(buffer));
        REQUIRE(n);
        co_await settle();
        CHECK((orders[0] == 1 && orders[1] == 2 && orders[2] == 3));
        n = co_await channel.reader.read(room(buffer));
        REQUIRE(n);
        CHECK(buffer.substr(0, *n) == "aaaabbbbcccc");
    };
    run_on_new(body(reserver));
}

TEMPLATE_TEST_CASE("a reservation that was granted and then stopped is delivered or let go", "[pipe_channel]",
                   BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>({.capacity = page});
        fill(channel);
        nowait::inplace_stop_source stop;
        outcome out;
        // The task drops what it gets at once.
        auto job = nowait::spawn(await_stoppable(channel.writer.reserve(10), stop.get_token(), out));
        co_await settle();
        std::string buffer(page, '?');
        REQUIRE(channel.reader.try_read(room(buffer)));
        CHECK(error_of(channel.writer.try_write("x")) == EAGAIN); // granted
        stop.request_stop();
        co_await settle();
        CHECK((out.done && out.error == 0));
        CHECK(channel.writer.try_write("x"));
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("in packet mode a commit is a packet, and consuming a part discards the rest",
                   "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>({.packets = true});
        for (const char* word : {"packet", "next"}) {
            auto reserved = co_await channel.writer.reserve(100);
            REQUIRE(reserved);
            put(*reserved, word);
            CHECK(reserved->commit(std::strlen(word)));
        }
        auto peeked = co_await channel.reader.peek();
        REQUIRE((peeked && seen(*peeked) == "packet"));
        CHECK(peeked->consume(2));
        peeked = co_await channel.reader.peek();
        REQUIRE((peeked && seen(*peeked) == "next"));
    };
    run_on_new(body());
}

} // namespace nowait_test::channels
