// Facts that public conformance tests assert of POSIX message queues, on the in-process queue: those in which
// nobody waits. Names are those of the Linux Test Project (mq_timedsend01, ...) and of the Open POSIX Test
// Suite (mq_send 3-1).
#include "catch.hpp"
#include "priority_support.hpp"

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace priority_tests;

using tree = nonblocking_queue<tree_queue<std::string>>;
using bitmap = nonblocking_queue<bitmap_queue<std::string>>;

struct arrived {
    int error = 0;
    std::string message{};
    unsigned priority = 0;

    friend bool operator==(const arrived&, const arrived&) = default;
};

template <class Queue>
arrived next(Queue& queue) {
    arrived got;
    got.error = queue.receive(got.message, got.priority, 8192);
    return got;
}

constexpr unsigned highest = priority_levels - 1; // MQ_PRIO_MAX - 1

} // namespace

TEMPLATE_TEST_CASE(
    "mq_timedsend01: lengths 0, 1 and the largest, the highest priority, what lies beyond fails",
    "[priority][facts]", tree, bitmap) {
    TestType queue(3, 16);
    CHECK(queue.send("", 0) == 0);
    CHECK(queue.send("x", highest) == 0);
    CHECK(queue.send("x", highest + 1) == EINVAL);
    CHECK(queue.send("x", static_cast<unsigned>(-1)) == EINVAL);
    CHECK(queue.send(std::string(17, 'x'), 0) == EMSGSIZE);
    CHECK(queue.size() == 2);
    CHECK(queue.send(std::string(16, 'x'), 0) == 0);
    CHECK(queue.send("x", 0) == EAGAIN);
    CHECK(queue.send("x", highest + 1) == EINVAL); // arguments are looked at before the queue
    CHECK(queue.send(std::string(17, 'x'), 0) == EMSGSIZE);
    CHECK(queue.size() == 3);
}

TEMPLATE_TEST_CASE("mq_timedreceive01: lengths 0, 1 and the largest come back exactly, with their priority",
                   "[priority][facts]", tree, bitmap) {
    TestType queue(3, 16);
    std::string message;
    unsigned priority = 0;
    CHECK(queue.receive(message, priority, 16) == EAGAIN);
    CHECK(queue.receive(message, priority, 15) == EMSGSIZE); // before the queue is looked at
    REQUIRE(queue.send("", 2) == 0);
    REQUIRE(queue.send("y", 1) == 0);
    REQUIRE(queue.send(std::string(16, 'z'), 0) == 0);
    CHECK(queue.receive(message, priority, 15) == EMSGSIZE);
    CHECK(queue.size() == 3);
    CHECK(next(queue) == arrived{0, "", 2});
    CHECK(next(queue) == arrived{0, "y", 1});
    CHECK(next(queue) == arrived{0, std::string(16, 'z'), 0});
    CHECK(queue.receive(message, priority, 16) == EAGAIN);
}

TEMPLATE_TEST_CASE("mq_send 1-1: what is sent is received", "[priority][facts]", tree, bitmap) {
    TestType queue(10, 64);
    REQUIRE(queue.send("I am a message", 1) == 0);
    CHECK(next(queue) == arrived{0, "I am a message", 1});
}

TEMPLATE_TEST_CASE("mq_send 3-1, mq_receive 1-1: the higher priority comes out first, and is removed",
                   "[priority][facts]", tree, bitmap) {
    TestType queue(10, 64);
    REQUIRE(queue.send("low", 1) == 0);
    REQUIRE(queue.send("high", 2) == 0);
    CHECK(next(queue) == arrived{0, "high", 2});
    CHECK(queue.size() == 1);
    CHECK(next(queue) == arrived{0, "low", 1});
    CHECK(next(queue).error == EAGAIN);
}

TEMPLATE_TEST_CASE("mq_send 3-2: equal priorities leave in the order of sending", "[priority][facts]", tree,
                   bitmap) {
    TestType queue(10, 64);
    for (const char* const text : {"one", "two", "three"})
        REQUIRE(queue.send(text, 5) == 0);
    REQUIRE(queue.send("urgent", 6) == 0);
    REQUIRE(queue.send("four", 5) == 0);
    for (const char* const text : {"urgent", "one", "two", "three", "four"})
        CHECK(next(queue).message == text);
}

TEMPLATE_TEST_CASE("mq_send 7-1, 9-1, 10-1: a send that fails queues nothing", "[priority][facts]", tree,
                   bitmap) {
    TestType queue(1, 4);
    REQUIRE(queue.send("full", 3) == 0);
    CHECK(queue.send("more", 4) == EAGAIN);
    CHECK(queue.send("too long", 4) == EMSGSIZE);
    CHECK(queue.send("bad", highest + 1) == EINVAL);
    CHECK(queue.size() == 1);
    CHECK(next(queue) == arrived{0, "full", 3});
    CHECK(next(queue).error == EAGAIN);
}

TEMPLATE_TEST_CASE("mq_getattr 4-1: the count is that of the messages queued", "[priority][facts]", tree,
                   bitmap) {
    TestType queue(10, 64);
    for (std::size_t n = 0; n < 10; ++n) {
        CHECK(queue.size() == n);
        CHECK(queue.readable() == (n > 0));
        CHECK(queue.writable());
        REQUIRE(queue.send("m", static_cast<unsigned>(n) * 3000) == 0);
    }
    CHECK(queue.size() == 10);
    CHECK_FALSE(queue.writable());
    CHECK(next(queue).error == 0);
    CHECK(queue.size() == 9);
    CHECK(queue.writable());
}

TEMPLATE_TEST_CASE("message sizes are checked on both sides and nothing is cut short", "[priority][facts]",
                   tree, bitmap) {
    TestType queue(10, 128);
    REQUIRE(queue.send(std::string(10, 'a'), 0) == 0);
    REQUIRE(queue.send(std::string(128, 'b'), 0) == 0);
    CHECK(queue.send(std::string(129, 'c'), 0) == EMSGSIZE);
    std::string message;
    unsigned priority = 0;
    CHECK(queue.receive(message, priority, 64) == EMSGSIZE);
    CHECK(queue.size() == 2);
    CHECK(next(queue).message == std::string(10, 'a'));
    CHECK(next(queue).message == std::string(128, 'b'));
}

TEMPLATE_TEST_CASE("ten thousand messages of four priorities come out sorted, and in sequence within each",
                   "[priority][facts]", tree, bitmap) {
    TestType queue(10'000, 64);
    for (unsigned n = 0; n < 10'000; ++n)
        REQUIRE(queue.send(std::to_string(n), n % 4) == 0);
    for (unsigned priority = 4; priority-- > 0;)
        for (unsigned n = priority; n < 10'000; n += 4)
            REQUIRE(next(queue) == arrived{0, std::to_string(n), priority});
    CHECK(next(queue).error == EAGAIN);
}

TEST_CASE("limits: each is checked by itself, and no product of them wraps", "[priority][facts]") {
    constexpr std::uint64_t huge = std::uint64_t{1} << 33;
    const auto check = [](std::uint64_t messages, std::uint64_t bytes, std::uint64_t total = 0) {
        queue_limits limits{messages, bytes, total};
        return settle(limits);
    };
    CHECK(check(10, 8192) == std::errc{});
    CHECK(check(huge, huge) == std::errc::invalid_argument);
    CHECK(check(huge, 1) == std::errc::invalid_argument);
    CHECK(check(0, 8192) == std::errc::invalid_argument);
    CHECK(check(10, 0) == std::errc::invalid_argument);
    CHECK(check(10, UINT64_MAX) == std::errc::invalid_argument);
    CHECK(check(UINT64_MAX, 1) == std::errc::invalid_argument);
    CHECK(check(10, queue_limits::most_message_bytes + 1) == std::errc::invalid_argument);
    CHECK(check(queue_limits::most_messages + 1, 1) == std::errc::invalid_argument);
    CHECK(check(10, 100, 99) ==
          std::errc::invalid_argument); // a message of the largest size could never be sent
    CHECK(check(10, 100, UINT64_MAX) == std::errc::invalid_argument);

    queue_limits product{10, 100, 0};
    REQUIRE(settle(product) == std::errc{});
    CHECK(product.total_bytes == 1000);
    queue_limits largest{queue_limits::most_messages, queue_limits::most_message_bytes, 0};
    REQUIRE(settle(largest) == std::errc{});
    CHECK(largest.total_bytes == queue_limits::most_total_bytes);

    queue_limits rendezvous{0, 1, 0};
    CHECK(settle(rendezvous) == std::errc::invalid_argument);
    CHECK(settle(rendezvous, true) == std::errc{});
    CHECK_FALSE(fifo_queue<int>(rendezvous).admits(1));
}

TEST_CASE("limits: the bytes of all messages together are bounded too", "[priority][facts]") {
    bitmap_queue<int> queue(limits_of(10, 60, 100));
    REQUIRE(queue.reserve(0));
    CHECK(queue.admits(60));
    queue.push(1, 0, 60);
    CHECK(queue.bytes() == 60);
    CHECK_FALSE(queue.admits(41));
    CHECK(queue.admits(40));
    queue.push(2, 0, 40);
    CHECK_FALSE(queue.admits(1));
    CHECK(queue.admits(0));
    CHECK(queue.pop().bytes == 60);
    CHECK(queue.bytes() == 40);
    CHECK(queue.admits(60));
}

TEMPLATE_TEST_CASE("a queue of one place keeps order and count with mixed priorities", "[priority][facts]",
                   tree, bitmap) {
    TestType queue(1, 8);
    for (const unsigned priority : {5u, highest, 0u, 5u, 6u, 4u}) {
        CHECK(queue.send("m", priority) == 0);
        CHECK(queue.send("n", priority + (priority < highest ? 1 : 0)) == EAGAIN);
        CHECK(queue.size() == 1);
        CHECK(next(queue) == arrived{0, "m", priority});
        CHECK(queue.size() == 0);
    }
}
