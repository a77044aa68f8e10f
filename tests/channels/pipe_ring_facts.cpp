// What Linux's own tests assert about pipes, on the ring: the entries that need neither waiting nor
// descriptors. The identifiers name the LTP test a fact comes from; R are repairs the kernel had to make.
#include "catch.hpp"
#include "tests/channels/pipe_ring_helpers.hpp"

#include <random>

using namespace nowait_test;

TEST_CASE("P1 (pipe01): bytes come out identical and in order", "[channels][pipe]") {
    ring_of ring;
    std::string sent, received;
    for (std::size_t size : {1, 100, 4095, 4096, 4097, 9000, 3}) {
        std::string part = text(size, static_cast<char>('A' + size % 7));
        REQUIRE(write(ring, part) == static_cast<std::ptrdiff_t>(size));
        sent += part;
    }
    CHECK(ring.bytes_available() == sent.size());
    for (std::size_t size : {3, 4097, 1, 20000})
        received += read(ring, size).bytes;
    CHECK(received == sent);
    CHECK(ring.empty());
}

TEST_CASE("P8 (pipe08): a write without a reader is EPIPE, a zero-length one is nothing",
          "[channels][pipe]") {
    ring_of ring;
    REQUIRE(write(ring, "kept") == 4);
    REQUIRE(ring.drop_reader() == 0);
    CHECK(write(ring, "x") == -EPIPE);
    CHECK_FALSE(ring.write_one(bytes_of("x"), false));
    CHECK(write(ring, "") == 0);
    CHECK(ring.poll() == pipe_ring::readiness{true, false, true, true});
}

TEST_CASE("P11 (pipe11): readers that share PIPE_BUF bytes each get their share, once", "[channels][pipe]") {
    for (std::size_t readers : {1, 2, 7, 64}) {
        ring_of ring;
        std::string all = text(4096);
        REQUIRE(write(ring, all) == 4096);
        std::string together;
        for (std::size_t i = 0; i != readers; ++i)
            together += read(ring, 4096 / readers).bytes;
        CHECK(together == all.substr(0, 4096 / readers * readers));
        CHECK(ring.bytes_available() == 4096 % readers);
    }
}

TEST_CASE("P12 (pipe12): a full ring is EAGAIN, a small write succeeds fully or not at all",
          "[channels][pipe]") {
    ring_of ring(4);
    std::ptrdiff_t filled = 0;
    while (write(ring, text(1000)) == 1000)
        filled += 1000;
    // Four writes share a page; the fifth does not fit behind them and starts the next.
    CHECK(filled == 16000);
    CHECK(ring.full());
    CHECK(write(ring, text(97)) == -EAGAIN);
    CHECK(write(ring, text(96)) == 96); // still fits behind the newest
    CHECK(ring.full());
    CHECK(write(ring, text(1)) == -EAGAIN);
    CHECK(ring.bytes_available() == 16096);
}

TEST_CASE("P12: after an unaligned fill, more than a page starts with its odd bytes", "[channels][pipe]") {
    ring_of ring(2);
    REQUIRE(write(ring, text(100)) == 100);
    CHECK(write(ring, text(5000, 'B')) == 5000); // 904 behind the 100, then a page
    CHECK(ring.indices().occupancy() == 2);
    CHECK(ring.slot(0).length == 1004);
    CHECK(ring.slot(1).length == 4096);
    CHECK(drain(ring) == text(100) + text(5000, 'B'));
}

TEST_CASE("P12: a write larger than the room is short", "[channels][pipe]") {
    ring_of ring(2);
    CHECK(write(ring, text(20000)) == 8192);
    CHECK(drain(ring) == text(20000).substr(0, 8192));
}

TEST_CASE("P14 (pipe14): after the last writer has gone, first the remaining bytes, then 0",
          "[channels][pipe]") {
    ring_of ring;
    ring.add_writer();
    REQUIRE(write(ring, "rest") == 4);
    CHECK(ring.drop_writer() == 1);
    CHECK(read(ring, 4).bytes == "rest");
    CHECK(read(ring, 1).result == -EAGAIN);
    REQUIRE(write(ring, "end") == 3);
    CHECK(ring.drop_writer() == 0);
    CHECK(ring.poll() == pipe_ring::readiness{true, true, true, false});
    CHECK(read(ring, 100).bytes == "end");
    CHECK(read(ring, 100).result == 0);
    CHECK(read(ring, 0).result == 0);
}

TEST_CASE("P18 (pipe2_04): capacity 0 becomes one page", "[channels][pipe]") {
    ring_of ring;
    CHECK(set_capacity(ring, 0) == 4096);
    CHECK(write(ring, text(4096)) == 4096);
    CHECK(write(ring, "x") == -EAGAIN);
}

TEST_CASE("F1 (fcntl30): the capacity can be raised to the limit, and is at least what was asked",
          "[channels][pipe]") {
    ring_of ring;
    CHECK(ring.capacity_bytes() == 65536);
    CHECK(set_capacity(ring, 1 << 20) == 1 << 20);
    CHECK(set_capacity(ring, 4097) == 8192);
    CHECK(set_capacity(ring, 70000) == 131072);
}

TEST_CASE("F3 (fcntl37): beyond 2^31 EINVAL, below what is occupied EBUSY, beyond the limit EPERM",
          "[channels][pipe]") {
    ring_of ring;
    CHECK(set_capacity(ring, (std::size_t{1} << 31) + 1) == -EINVAL);
    CHECK(set_capacity(ring, ~std::size_t{0}) == -EINVAL);
    CHECK(set_capacity(ring, (1 << 20) + 1) == -EPERM);
    REQUIRE(write(ring, text(65536)) == 65536);
    CHECK(set_capacity(ring, 32768) == -EBUSY);
    CHECK(ring.capacity_bytes() == 65536);
    CHECK(drain(ring) == text(65536));
}

TEST_CASE("resize: what counts is slots, not bytes", "[channels][pipe]") {
    ring_of ring;
    for (int i = 0; i != 5; ++i)
        REQUIRE(write(ring, "p", packet) == 1);
    CHECK(set_capacity(ring, 4 * 4096) == -EBUSY); // 5 bytes in 5 slots
    CHECK(read(ring, 1).result == 1);
    CHECK(set_capacity(ring, 4 * 4096) == 4 * 4096);
    CHECK(ring.full());
    CHECK(drain(ring) == "pppp");
}

TEST_CASE("resize: contents survive when they wrap around the end", "[channels][pipe]") {
    ring_of ring(4);
    for (int i = 0; i != 3; ++i) {
        REQUIRE(write(ring, text(4096)) == 4096);
        REQUIRE(read(ring, 4096).result == 4096);
    }
    REQUIRE(write(ring, text(12288, 'W')) == 12288); // slots 3, 0, 1
    REQUIRE(set_capacity(ring, 65536) == 65536);
    CHECK(write(ring, "more") == 4);
    CHECK(drain(ring) == text(12288, 'W') + "more");
}

TEST_CASE("indices run freely over the end of 32 bits", "[channels][pipe]") {
    for (std::uint32_t slots : {1U, 2U, 16U, 512U}) {
        ring_of ring(slots);
        std::uint32_t before = ring.indices().head;
        bool good = true;
        for (int i = 0; i != 300; ++i) {
            good = good && write(ring, "first", packet) == 5;
            good = good && (slots == 1 || write(ring, "second", packet) == 6);
            good = good && read(ring, 9).bytes == "first";
            good = good && (slots == 1 || read(ring, 9).bytes == "second") && ring.consistent();
        }
        CHECK(good);
        CHECK(ring.indices().head < before);
    }
}

TEST_CASE("packets: one read takes one packet, and what does not fit is lost", "[channels][pipe]") {
    ring_of ring;
    REQUIRE(write(ring, "first", packet) == 5);
    REQUIRE(write(ring, "second", packet) == 6);
    CHECK(read(ring, 100).bytes == "first");
    CHECK(read(ring, 3).bytes == "sec");
    CHECK(ring.empty());
}

TEST_CASE("packets: a write of more than a page makes several, each takes a slot", "[channels][pipe]") {
    ring_of ring(4);
    REQUIRE(write(ring, text(9000), packet) == 9000);
    CHECK(read(ring, 9000).result == 4096);
    CHECK(read(ring, 9000).result == 4096);
    CHECK(read(ring, 9000).result == 808);
    for (int i = 0; i != 4; ++i)
        REQUIRE(write(ring, "x", packet) == 1);
    CHECK(write(ring, "x", packet) == -EAGAIN);
    CHECK(write(ring, "x") == -EAGAIN); // nothing merges into a packet
}

TEST_CASE("packets: a read of stream bytes goes on into the packet behind them and ends there",
          "[channels][pipe]") {
    ring_of ring;
    REQUIRE(write(ring, text(4096)) == 4096);
    REQUIRE(write(ring, "packet", packet) == 6);
    REQUIRE(write(ring, "later") == 5);
    CHECK(read(ring, 5000).bytes == text(4096) + "packet");
    CHECK(read(ring, 5000).bytes == "later");
}

TEST_CASE("V1 (vmsplice01): parts of a write and of a read may be cut anywhere", "[channels][pipe]") {
    ring_of ring;
    std::string all = text(10000);
    std::span<const std::byte> whole = bytes_of(all);
    std::vector<std::span<const std::byte>> parts = {
        whole.first(0), whole.subspan(0, 1), whole.subspan(1, 4099), {}, whole.subspan(4100, 5900), {}};
    page_list pages;
    REQUIRE(page_pool::of_this_thread().take(3, pages));
    nowait::detail::gather from(parts);
    CHECK(from.size() == 10000);
    CHECK(ring.write(from, false, pages) == 10000);
    CHECK(from.size() == 0);

    std::string back(10000, '?');
    std::span<std::byte> room = std::as_writable_bytes(std::span(back));
    std::vector<std::span<std::byte>> places = {
        {}, room.first(7777), room.subspan(7777, 0), room.subspan(7777)};
    nowait::detail::scatter to(places);
    CHECK(ring.read(to, pages) == 10000);
    CHECK(back == all);
}

TEST_CASE("S2 (splice03), T2 (tee02): a ring cannot be spliced or teed into itself", "[channels][pipe]") {
    ring_of ring;
    REQUIRE(write(ring, "x") == 1);
    CHECK(pipe_ring::splice(ring, ring, 1) == -EINVAL);
    CHECK(pipe_ring::tee(ring, ring, 1) == -EINVAL);
    CHECK(pipe_ring::splice(ring, ring, 0) == 0);
}

TEST_CASE("S3 (splice04): splice moves bytes unchanged and whole slots without copying", "[channels][pipe]") {
    for (std::size_t size : {1, 100, 4095, 4096, 4097, 10000, 65536}) {
        ring_of in, out;
        REQUIRE(write(in, text(size)) == static_cast<std::ptrdiff_t>(size));
        const nowait::detail::page* moved = in.slot(0).page;
        CHECK(pipe_ring::splice(in, out, 1 << 20) == static_cast<std::ptrdiff_t>(size));
        CHECK(in.empty());
        CHECK(out.slot(0).page == moved);
        CHECK(drain(out) == text(size));
    }
}

TEST_CASE("splice: a part of a slot shares its page, and only the source may append", "[channels][pipe]") {
    ring_of in, out;
    REQUIRE(write(in, "headtail") == 8);
    CHECK(pipe_ring::splice(in, out, 4) == 4);
    CHECK(in.slot(0).page == out.slot(0).page);
    CHECK(write(in, "+in") == 3);
    CHECK(write(out, "+out") == 4);
    CHECK(out.indices().occupancy() == 2);
    CHECK(drain(in) == "tail+in");
    CHECK(drain(out) == "head+out");
}

TEST_CASE("splice and tee: the order of refusals", "[channels][pipe]") {
    ring_of in, out(1);
    CHECK(pipe_ring::splice(in, out, 1) == -EAGAIN); // nothing there, writers exist
    CHECK(pipe_ring::tee(in, out, 1) == -EAGAIN);
    REQUIRE(write(in, text(5000)) == 5000);
    REQUIRE(write(out, text(4096)) == 4096);
    CHECK(pipe_ring::splice(in, out, 1) == -EAGAIN); // no room
    CHECK(pipe_ring::tee(in, out, 1) == -EAGAIN);
    out.drop_reader();
    CHECK(pipe_ring::splice(in, out, 1) == -EPIPE); // before the room is looked at
    CHECK(pipe_ring::tee(in, out, 1) == -EPIPE);
    CHECK(in.bytes_available() == 5000);

    ring_of ended, target;
    ended.drop_writer();
    CHECK(pipe_ring::splice(ended, target, 1) == 0);
    CHECK(pipe_ring::tee(ended, target, 1) == 0);
}

TEST_CASE("T1 (tee01): after a tee both copies equal the original", "[channels][pipe]") {
    for (std::size_t size : {1, 4097, 65536}) {
        ring_of in, out;
        REQUIRE(write(in, text(size)) == static_cast<std::ptrdiff_t>(size));
        CHECK(pipe_ring::tee(in, out, 1 << 20) == static_cast<std::ptrdiff_t>(size));
        CHECK(drain(in) == text(size));
        CHECK(drain(out) == text(size));
    }
}

TEST_CASE("T1: a tee stops at its size and at the other ring's room", "[channels][pipe]") {
    ring_of in, out(2);
    REQUIRE(write(in, text(12288)) == 12288);
    CHECK(pipe_ring::tee(in, out, 5000) == 5000);
    CHECK(out.full());
    CHECK(drain(out) == text(12288).substr(0, 5000));
    CHECK(pipe_ring::tee(in, out, 12288) == 8192);
    CHECK(drain(out) == text(12288).substr(0, 8192));
    CHECK(in.bytes_available() == 12288);
}

TEST_CASE("R (CVE-2022-0847): a slot used again carries no flag of its former life", "[channels][pipe]") {
    ring_of in, out(1);
    REQUIRE(write(out, "old") == 3); // slot 0 of `out` may be appended to
    REQUIRE(read(out, 3).result == 3);
    REQUIRE(write(in, "lent") == 4);
    REQUIRE(pipe_ring::tee(in, out, 4) == 4); // the same slot, a page that is not its own
    CHECK(write(out, "x") == -EAGAIN);
    CHECK(drain(in) == "lent");
}

TEST_CASE("R (tee kept can_merge): tee, then write to both: contents never mix", "[channels][pipe]") {
    std::mt19937 random(5);
    for (int round = 0; round != 200; ++round) {
        ring_of a, b, c;
        std::string sent_a = text(1 + random() % 3000), sent_b, sent_c;
        REQUIRE(write(a, sent_a) > 0);
        REQUIRE(pipe_ring::tee(a, b, sent_a.size()) > 0);
        REQUIRE(pipe_ring::tee(b, c, sent_a.size() / 2 + 1) > 0);
        sent_b = sent_a;
        sent_c = sent_a.substr(0, sent_a.size() / 2 + 1);
        pipe_ring* rings[] = {&a, &b, &c};
        std::string* sent[] = {&sent_a, &sent_b, &sent_c};
        for (int i = 0; i != 9; ++i) {
            auto which = random() % 3;
            std::string more = text(1 + random() % 300, static_cast<char>('0' + which * 20));
            REQUIRE(write(*rings[which], more) > 0);
            *sent[which] += more;
        }
        CHECK(drain(a) == sent_a);
        CHECK(drain(b) == sent_b);
        CHECK(drain(c) == sent_c);
    }
}

TEST_CASE("R (reference overflow): a page with too many references refuses one more", "[channels][pipe]") {
    ring_of in, out;
    REQUIRE(write(in, "much shared") == 11);
    auto& references = in.slot(0).page->references;
    references.store(nowait::detail::page::references_max);
    CHECK(pipe_ring::tee(in, out, 4) == -ENOMEM);
    CHECK(pipe_ring::splice(in, out, 4) == -ENOMEM);
    CHECK(references.load() == nowait::detail::page::references_max);
    CHECK(in.bytes_available() == 11);
    CHECK(out.empty());
    REQUIRE(write(in, text(4096)) == 4096);
    auto& behind = in.slot(1).page->references;
    behind.store(nowait::detail::page::references_max);
    CHECK(pipe_ring::splice(in, out, 12) == 11); // moving a slot needs no reference, the part behind it does
    references.store(1);
    behind.store(1);
    CHECK(drain(out) == "much shared");
    CHECK(drain(in) == text(4096));
}

TEST_CASE("R (zero-length slot): nothing empty is ever published", "[channels][pipe]") {
    ring_of in, out;
    CHECK(write(in, "", packet) == 0);
    CHECK(in.empty());
    CHECK(pipe_ring::splice(in, out, 0) == 0);
    REQUIRE(write(in, "ab") == 2);
    CHECK(read(in, 1).bytes == "a");
    CHECK(read(in, 0).result == 0);
    CHECK(pipe_ring::splice(in, out, 1) == 1);
    CHECK(in.empty());
    CHECK(out.indices().occupancy() == 1);
}

TEST_CASE("fast paths: they decline what is not simple, and then have done nothing", "[channels][pipe]") {
    ring_of ring(2);
    std::string room(5000, '?');
    auto to = std::as_writable_bytes(std::span(room));
    CHECK_FALSE(ring.write_one(bytes_of("first"), false)); // no page to spare yet
    CHECK(ring.read_one(to) == 0);                         // empty
    REQUIRE(write(ring, "first") == 5);
    CHECK(ring.write_one(bytes_of("second"), false)); // behind it
    CHECK_FALSE(ring.write_one(bytes_of(""), false));
    CHECK_FALSE(ring.write_one(bytes_of(text(4097)), false));
    CHECK(ring.read_one(to.first(0)) == 0);
    CHECK(ring.read_one(to.first(3)) == 3);
    CHECK(room.substr(0, 3) == "fir");
    CHECK(ring.read_one(to) == 8); // the page stays with the ring
    CHECK(ring.write_one(bytes_of("pack"), packet));
    CHECK_FALSE(ring.write_one(bytes_of("again"), packet)); // no page
    CHECK(ring.read_one(to.first(2)) == 0);                 // would lose bytes: not simple
    CHECK(ring.bytes_available() == 4);

    ring.hold_writes(true);
    CHECK_FALSE(ring.write_one(bytes_of("x"), false));
    CHECK(write(ring, "x") == 1); // who holds the others out may write
    ring.hold_writes(false);
    ring.hold_reads(true);
    CHECK(ring.read_one(to) == 0);
    ring.hold_reads(false);
    CHECK(ring.read_one(to) == 4);
    CHECK(ring.read_one(to) == 1);
}
