// Reservations and peeks: room filled and bytes looked at in place, held while other calls go on around them.
// A random test keeps both open over many calls and compares the bytes with plain strings.
#include "catch.hpp"
#include "tests/channels/pipe_ring_helpers.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <random>

using namespace nowait_test;

namespace {

// Fills the reserved parts with the first bytes of `with`. The number of parts, or a negative errno.
std::ptrdiff_t reserve(pipe_ring& ring, std::string_view with, bool as_packet = false,
                       std::size_t parts_max = 16) {
    page_list pages;
    if (!page_pool::of_this_thread().take(ring.pages_needed(with.size()), pages))
        return -ENOMEM;
    std::vector<std::span<std::byte>> parts(parts_max);
    std::ptrdiff_t n = ring.reserve(with.size(), as_packet, parts, pages);
    std::size_t done = 0;
    for (std::ptrdiff_t i = 0; i < n; ++i) {
        std::span<std::byte> part = parts[static_cast<std::size_t>(i)];
        std::copy_n(bytes_of(with).data() + done, part.size(), part.data());
        done += part.size();
    }
    return n;
}

std::ptrdiff_t commit(pipe_ring& ring, std::size_t size) {
    page_list pages;
    return ring.commit(size, pages);
}

std::ptrdiff_t consume(pipe_ring& ring, std::size_t size) {
    page_list pages;
    return ring.consume(size, pages);
}

read_result peek(pipe_ring& ring, std::size_t parts_max = 16) {
    std::vector<std::span<const std::byte>> parts(parts_max);
    std::ptrdiff_t n = ring.peek(parts);
    std::string seen;
    for (std::ptrdiff_t i = 0; i < n; ++i)
        for (std::byte b : parts[static_cast<std::size_t>(i)])
            seen += static_cast<char>(b);
    return {seen, n};
}

} // namespace

TEST_CASE("reserve: what is committed appears, in order, and merges as a write would", "[channels][pipe]") {
    ring_of ring;
    REQUIRE(reserve(ring, "one ") == 1);
    CHECK(ring.empty()); // not before commit
    CHECK(commit(ring, 4) == 4);
    REQUIRE(reserve(ring, "two ") == 1);
    CHECK(commit(ring, 4) == 4);
    CHECK(write(ring, "three") == 5);
    CHECK(ring.indices().occupancy() == 1);
    CHECK(drain(ring) == "one two three");
}

TEST_CASE("reserve: large room comes in parts of a page", "[channels][pipe]") {
    ring_of ring;
    REQUIRE(write(ring, "x") == 1);
    REQUIRE(reserve(ring, text(9000)) == 3); // 808 behind the x, two pages
    CHECK(commit(ring, 9000) == 9000);
    CHECK(drain(ring) == "x" + text(9000));
    REQUIRE(reserve(ring, text(9000), false, 2) == 2); // as many parts as asked for
    CHECK(commit(ring, 8193) == -EINVAL);
    CHECK(commit(ring, 8192) == 8192);
}

TEST_CASE("reserve: a part of it may be committed", "[channels][pipe]") {
    for (std::size_t size : {0, 1, 807, 808, 809, 4904, 4905, 9000}) {
        ring_of ring;
        REQUIRE(write(ring, "x") == 1);
        REQUIRE(reserve(ring, text(9000)) == 3);
        CHECK(commit(ring, size) == static_cast<std::ptrdiff_t>(size));
        CHECK(ring.consistent());
        CHECK(write(ring, "y") == 1);
        CHECK(drain(ring) == "x" + text(9000).substr(0, size) + "y");
    }
}

TEST_CASE("reserve: exclusive until commit, and commit of nothing drops it", "[channels][pipe]") {
    ring_of ring, other;
    REQUIRE(write(other, "other") == 5);
    REQUIRE(reserve(ring, "abc") == 1);
    CHECK_FALSE(ring.poll().writable);
    CHECK(write(ring, "x") == -EAGAIN);
    CHECK_FALSE(ring.write_one(bytes_of("x"), false));
    CHECK(reserve(ring, "x") == -EAGAIN);
    CHECK(pipe_ring::splice(other, ring, 1) == -EAGAIN);
    CHECK(pipe_ring::tee(other, ring, 1) == -EAGAIN);
    CHECK(set_capacity(ring, 8192) == -EBUSY);
    CHECK(commit(ring, 4) == -EINVAL); // more than reserved: it stays
    CHECK(write(ring, "x") == -EAGAIN);
    CHECK(commit(ring, 0) == 0);
    CHECK(ring.poll().writable);
    CHECK(ring.empty());
    CHECK(write(ring, "x") == 1);
    CHECK(commit(ring, 0) == -EINVAL);
    CHECK(set_capacity(ring, 8192) == 8192);
}

TEST_CASE("reserve: bad arguments, a full ring, no reader", "[channels][pipe]") {
    ring_of ring(1);
    CHECK(reserve(ring, "") == -EINVAL);
    CHECK(reserve(ring, "x", false, 0) == -EINVAL);
    REQUIRE(write(ring, text(4095)) == 4095);
    CHECK(reserve(ring, "two") == -EAGAIN);
    CHECK(reserve(ring, "1") == 1); // fits behind
    CHECK(commit(ring, 1) == 1);
    CHECK(ring.drop_reader() == 0);
    CHECK(reserve(ring, "x") == -EPIPE);
}

TEST_CASE("reserve: when the readers go, commit is EPIPE and the room is free", "[channels][pipe]") {
    ring_of ring;
    REQUIRE(write(ring, "before") == 6);
    REQUIRE(reserve(ring, text(5000)) == 2);
    ring.drop_reader();
    CHECK(commit(ring, 5000) == -EPIPE);
    CHECK(ring.bytes_available() == 6);
    CHECK(ring.consistent());
    CHECK(commit(ring, 0) == -EINVAL);
    ring_of second;
    REQUIRE(reserve(second, "x") == 1);
    second.drop_reader();
    CHECK(commit(second, 0) == 0); // dropping is no error
}

TEST_CASE("reserve: the slot it would append to may be read or moved away meanwhile", "[channels][pipe]") {
    SECTION("read") {
        ring_of ring;
        REQUIRE(write(ring, "read away") == 9);
        REQUIRE(reserve(ring, "kept") == 1);
        CHECK(drain(ring) == "read away");
        CHECK(commit(ring, 4) == 4);
        CHECK(write(ring, "+") == 1);
        CHECK(drain(ring) == "kept+");
    }
    SECTION("spliced, whole: the other ring may not append") {
        ring_of ring, other;
        REQUIRE(write(ring, "moved") == 5);
        REQUIRE(reserve(ring, "kept") == 1);
        CHECK(pipe_ring::splice(ring, other, 5) == 5);
        CHECK(write(other, " elsewhere") == 10);
        CHECK(commit(ring, 4) == 4);
        CHECK(write(ring, " here") == 5);
        CHECK(drain(other) == "moved elsewhere");
        CHECK(drain(ring) == "kept here");
    }
    SECTION("teed") {
        ring_of ring, other;
        REQUIRE(write(ring, "seen") == 4);
        REQUIRE(reserve(ring, "more") == 1);
        CHECK(pipe_ring::tee(ring, other, 9) == 4);
        CHECK(commit(ring, 4) == 4);
        CHECK(write(other, "!") == 1);
        CHECK(drain(other) == "seen!");
        CHECK(drain(ring) == "seenmore");
    }
    SECTION("dropped afterwards") {
        ring_of ring;
        REQUIRE(write(ring, "gone") == 4);
        REQUIRE(reserve(ring, "kept") == 1);
        CHECK(drain(ring) == "gone");
        CHECK(commit(ring, 0) == 0);
        CHECK(ring.consistent());
    }
}

TEST_CASE("reserve: packets", "[channels][pipe]") {
    ring_of ring;
    REQUIRE(reserve(ring, text(5000), packet) == 2);
    CHECK(commit(ring, 4500) == 4500);
    CHECK(read(ring, 9000).result == 4096);
    CHECK(read(ring, 9000).result == 404);
}

TEST_CASE("reserve: a ring can be destroyed with a reservation or a peek open", "[channels][pipe]") {
    auto ring = std::make_unique<ring_of>();
    REQUIRE(write(*ring, "x") == 1);
    REQUIRE(reserve(*ring, text(5000)) == 2);
    REQUIRE(peek(*ring).bytes == "x");
    ring.reset(); // what it held goes back: the leak checker watches
}

TEST_CASE("peek: shows what a read would take, consume takes it", "[channels][pipe]") {
    ring_of ring;
    REQUIRE(write(ring, text(5000)) == 5000);
    CHECK(peek(ring, 1).bytes == text(5000).substr(0, 4096));
    CHECK(consume(ring, 4097) == -EINVAL); // more than was shown: the peek stays
    CHECK(consume(ring, 0) == 0);
    CHECK(consume(ring, 0) == -EINVAL);
    CHECK(ring.bytes_available() == 5000);
    CHECK(peek(ring).bytes == text(5000));
    CHECK(consume(ring, 4100) == 4100);
    CHECK(drain(ring) == text(5000).substr(4100));
}

TEST_CASE("peek: nothing there, end of stream, no room to show", "[channels][pipe]") {
    ring_of ring;
    CHECK(peek(ring).result == -EAGAIN);
    CHECK(peek(ring, 0).result == -EINVAL);
    ring.drop_writer();
    CHECK(peek(ring).result == 0);
    CHECK(consume(ring, 0) == -EINVAL); // the end of the stream needs no consume
}

TEST_CASE("peek: exclusive among readers, writers and tee go on", "[channels][pipe]") {
    ring_of ring, other;
    REQUIRE(write(ring, "look") == 4);
    REQUIRE(peek(ring).bytes == "look");
    CHECK_FALSE(ring.poll().readable);
    CHECK(peek(ring).result == -EAGAIN);
    CHECK(read(ring, 1).result == -EAGAIN);
    std::array<std::byte, 4> room{};
    CHECK(ring.read_one(room) == 0);
    CHECK(pipe_ring::splice(ring, other, 1) == -EAGAIN);
    CHECK(set_capacity(ring, 8192) == -EBUSY);
    CHECK(pipe_ring::tee(ring, other, 4) == 4);
    CHECK(write(ring, "ing") == 3); // behind what is being looked at
    CHECK(consume(ring, 5) == -EINVAL);
    CHECK(consume(ring, 4) == 4);
    CHECK(drain(ring) == "ing");
    CHECK(drain(other) == "look");
}

TEST_CASE("peek: packets are shown one at a time, and what is not consumed is lost", "[channels][pipe]") {
    ring_of ring;
    REQUIRE(write(ring, "stream") == 6);
    REQUIRE(write(ring, text(4096)) == 4096);
    REQUIRE(write(ring, "packet", packet) == 6);
    REQUIRE(write(ring, "next", packet) == 4);
    CHECK(peek(ring).bytes == "stream" + text(4096) + "packet");
    CHECK(consume(ring, 6 + 4096 + 2) == 6 + 4096 + 2);
    CHECK(peek(ring).bytes == "next");
    CHECK(consume(ring, 0) == 0); // not touched, not lost
    CHECK(peek(ring).bytes == "next");
    CHECK(consume(ring, 4) == 4);
    CHECK(ring.empty());
}

// -- Held over many calls -----------------------------------------------------------------------------------

namespace {

// A ring, and a string of what it must hold.
struct modelled {
    ring_of ring{4};
    std::string bytes;
    std::string reserved; // what is in the reserved room
    std::string peeked;
    bool has_reservation = false, has_peek = false;
};

} // namespace

TEST_CASE("in place: reservations and peeks held over random calls lose and mix nothing",
          "[channels][pipe]") {
    auto seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937 random(seed);
    auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    auto some_size = [&] { return below(4) == 0 ? 4095 + below(3) : 1 + below(below(3) == 0 ? 9000 : 900); };
    std::array<modelled, 2> both;
    std::size_t written = 0;

    for (int step = 0; step != 60'000; ++step) {
        modelled& m = both[below(2)];
        modelled& other = &m == &both[0] ? both[1] : both[0];
        std::size_t size = some_size();
        switch (below(9)) {
        case 0: {
            std::string data = text(size, static_cast<char>('a' + written++ % 26));
            std::ptrdiff_t n = write(m.ring, data);
            REQUIRE((!m.has_reservation || n == -EAGAIN));
            if (n > 0)
                m.bytes += data.substr(0, static_cast<std::size_t>(n));
            break;
        }
        case 1: {
            read_result r = read(m.ring, size);
            REQUIRE((!m.has_peek || r.result == -EAGAIN));
            REQUIRE(r.bytes == m.bytes.substr(0, r.bytes.size()));
            m.bytes.erase(0, r.bytes.size());
            break;
        }
        case 2:
        case 3: {
            std::string data = text(size, static_cast<char>('A' + written++ % 26));
            std::ptrdiff_t n = reserve(m.ring, data);
            REQUIRE((!m.has_reservation || n == -EAGAIN));
            if (n > 0) {
                m.has_reservation = true;
                m.reserved = data; // perhaps more than fits: commit says
            }
            break;
        }
        case 4: {
            std::size_t want = below(3) == 0 ? 0 : 1 + below(m.reserved.size() + 1);
            std::ptrdiff_t n = commit(m.ring, want);
            REQUIRE((m.has_reservation || n == -EINVAL));
            if (n >= 0) {
                m.bytes += m.reserved.substr(0, static_cast<std::size_t>(n));
                m.has_reservation = false;
            }
            break;
        }
        case 5: {
            read_result seen = peek(m.ring, 1 + below(4));
            REQUIRE((!m.has_peek || seen.result == -EAGAIN));
            REQUIRE(seen.bytes == m.bytes.substr(0, seen.bytes.size()));
            if (seen.result > 0) {
                m.has_peek = true;
                m.peeked = seen.bytes;
            }
            break;
        }
        case 6: {
            std::ptrdiff_t n = consume(m.ring, below(m.peeked.size() + 1));
            REQUIRE(m.has_peek == (n >= 0));
            if (n >= 0)
                m.bytes.erase(0, static_cast<std::size_t>(n));
            m.has_peek = false;
            break;
        }
        case 7: {
            std::ptrdiff_t n = pipe_ring::splice(m.ring, other.ring, size);
            REQUIRE((!(m.has_peek || other.has_reservation) || n == -EAGAIN));
            if (n > 0) {
                other.bytes += m.bytes.substr(0, static_cast<std::size_t>(n));
                m.bytes.erase(0, static_cast<std::size_t>(n));
            }
            break;
        }
        case 8: {
            std::ptrdiff_t n = pipe_ring::tee(m.ring, other.ring, size);
            REQUIRE((!other.has_reservation || n == -EAGAIN));
            if (n > 0)
                other.bytes += m.bytes.substr(0, static_cast<std::size_t>(n));
            break;
        }
        }
        bool good =
            m.ring.consistent() && other.ring.consistent() && m.ring.bytes_available() == m.bytes.size();
        REQUIRE(good);
    }
    for (modelled& m : both) {
        if (m.has_peek)
            REQUIRE(consume(m.ring, 0) == 0);
        CHECK(drain(m.ring) == m.bytes);
    }
}
