// Pages: taken lazily, recycled, shared across threads, and refused: an allocation that fails anywhere is
// ENOMEM and leaves the ring as it was.
#include "catch.hpp"
#include "tests/channels/pipe_ring_helpers.hpp"

#include <nowait/detail/sync.hpp>

#include <algorithm>
#include <thread>

using namespace nowait_test;

namespace {

// Grants so many allocations of this thread, then none.
class allowance {
public:
    explicit allowance(int count) : left_(count) {
        page_pool::of_this_thread().set_gate(
            [](void* self) noexcept { return --static_cast<allowance*>(self)->left_ >= 0; }, this);
    }
    ~allowance() { page_pool::of_this_thread().set_gate(nullptr, nullptr); }

private:
    int left_;
};

std::uint64_t pages_seen() {
    page_pool& pool = page_pool::of_this_thread();
    return pool.allocated.get() + pool.recycled.get();
}

} // namespace

TEST_CASE("pages: an unused ring has none, and a used one keeps two", "[channels][pipe]") {
    page_pool& pool = page_pool::of_this_thread();
    pool.trim();
    std::uint64_t before = pages_seen();
    ring_of ring;
    CHECK(read(ring, 1).result == -EAGAIN);
    CHECK(pages_seen() == before);
    REQUIRE(write(ring, text(65536)) == 65536);
    CHECK(pages_seen() == before + 16);
    CHECK(drain(ring) == text(65536));
    CHECK(pool.cached() == 14);
    page_list kept;
    ring.trim(kept);
    CHECK(kept.size() == 2);
}

TEST_CASE("pages: once warm, nothing is allocated", "[channels][pipe]") {
    ring_of ring;
    page_pool& pool = page_pool::of_this_thread();
    std::uint64_t allocated = 0;
    for (int round = 0; round != 100; ++round) {
        if (round == 1)
            allocated = pool.allocated.get();
        REQUIRE(write(ring, text(65536)) == 65536);
        REQUIRE(read(ring, 65536).result == 65536);
        REQUIRE(write(ring, text(512)) == 512);
        REQUIRE(read(ring, 512).result == 512);
    }
    CHECK(pool.allocated.get() == allocated);
}

TEST_CASE("pages: the hint outside the lock covers what a write takes inside", "[channels][pipe]") {
    ring_of ring(4);
    for (std::size_t size : {0, 1, 4096, 4097, 9000, 100'000}) {
        CHECK(ring.pages_hint(size) >= ring.pages_needed(size));
        page_list pages;
        REQUIRE(page_pool::of_this_thread().take(ring.pages_needed(size), pages));
        std::string all = text(size);
        nowait::detail::gather from(bytes_of(all));
        std::ptrdiff_t n = ring.write(from, false, pages);
        CHECK(n == static_cast<std::ptrdiff_t>(std::min<std::size_t>(size, 16384)));
        CHECK(pages.empty()); // and not one too many
        drain(ring);
    }
}

TEST_CASE("pages: with too few a write is short, and what is missing is said", "[channels][pipe]") {
    ring_of ring;
    page_list pages;
    REQUIRE(page_pool::of_this_thread().take(1, pages));
    std::string all = text(9000);
    nowait::detail::gather from(bytes_of(all));
    CHECK(ring.write(from, false, pages) == 4096);
    CHECK(ring.write(from, false, pages) == -ENOMEM);
    CHECK_FALSE(ring.full()); // so it was not room that lacked
    CHECK(ring.pages_needed(from.size()) == 2);
    REQUIRE(page_pool::of_this_thread().take(2, pages));
    CHECK(ring.write(from, false, pages) == 4904);
    CHECK(drain(ring) == all);
}

TEST_CASE("allocation failure: a write is ENOMEM and the ring as before", "[channels][pipe]") {
    for (int granted = 0; granted != 4; ++granted) {
        ring_of ring;
        REQUIRE(write(ring, "before") == 6);
        std::string all = text(20000);
        {
            allowance limit(granted);
            page_list pages;
            CHECK_FALSE(page_pool::of_this_thread().take(ring.pages_needed(all.size()), pages));
            CHECK(pages.size() == static_cast<std::uint32_t>(granted));
            // A layer stops here with ENOMEM. One that goes on with what it got writes that much.
            nowait::detail::gather from(bytes_of(all));
            std::ptrdiff_t n = ring.write(from, false, pages);
            CHECK(n == 3616 + granted * 4096); // 3616 fit behind the first bytes and need no page
        }
        CHECK(ring.consistent());
        CHECK(write(ring, "after") == 5);
        CHECK(drain(ring) ==
              "before" + all.substr(0, static_cast<std::size_t>(3616 + granted * 4096)) + "after");
    }
}

TEST_CASE("allocation failure: atomic writes, packets, reservations, rings, resize", "[channels][pipe]") {
    ring_of ring;
    {
        allowance none(0);
        CHECK(write(ring, "x") == -ENOMEM);
        CHECK(write(ring, text(4096), packet) == -ENOMEM);
        page_list pages;
        std::span<std::byte> part;
        CHECK(ring.reserve(100, false, std::span(&part, 1), pages) == -ENOMEM);
        CHECK(ring.commit(0, pages) == -EINVAL); // none came to be
        CHECK_FALSE(slot_array::create(16));
        CHECK(set_capacity(ring, 4096) == -ENOMEM);
    }
    CHECK(ring.empty());
    CHECK(ring.consistent());
    CHECK(ring.capacity_bytes() == 65536);
    CHECK(write(ring, "fine") == 4);
    CHECK(drain(ring) == "fine");
}

TEST_CASE("allocation failure: splice, tee and reading need no memory", "[channels][pipe]") {
    ring_of in, out;
    REQUIRE(write(in, text(10000)) == 10000);
    allowance none(0);
    CHECK(pipe_ring::tee(in, out, 5000) == 5000);
    CHECK(pipe_ring::splice(in, out, 6000) == 6000);
    CHECK(drain(out) == text(10000).substr(0, 5000) + text(10000).substr(0, 6000));
    CHECK(drain(in) == text(10000).substr(6000));
}

TEST_CASE("threads: a look from outside is never at a torn pair of indices", "[channels][pipe][threads]") {
    ring_of ring(2);
    nowait::detail::real_sync::atomic<bool> done{false};
    bool good = true;
    std::thread watcher([&] {
        // Head before tail, in two loads, would now and then see a negative distance.
        while (!done.load(std::memory_order_relaxed))
            good = good && ring.indices().occupancy() <= 1 && !ring.full();
    });
    bool moved = true;
    for (int i = 0; i != 100'000; ++i)
        moved = moved && write(ring, "token", packet) == 5 && read(ring, 5).result == 5;
    done.store(true, std::memory_order_relaxed);
    watcher.join();
    CHECK(moved);
    CHECK(good);
}

TEST_CASE("threads: pages shared by tee are let go by two threads, each with its own ring",
          "[channels][pipe][threads]") {
    for (int round = 0; round != 200; ++round) {
        ring_of a, b;
        REQUIRE(write(a, text(30000)) == 30000);
        REQUIRE(pipe_ring::tee(a, b, 30000) == 30000);
        auto use = [](pipe_ring& ring, std::string& all) {
            all = drain(ring);
            for (int i = 0; i != 20; ++i) { // the pages are written again as soon as they are free
                write(ring, text(4096, 'X'));
                drain(ring);
            }
        };
        std::string from_a, from_b;
        std::thread other([&] { use(b, from_b); });
        use(a, from_a);
        other.join();
        bool good = from_a == text(30000) && from_b == text(30000);
        CHECK(good);
    }
}

TEST_CASE("threads: pages that wander from one thread to another come back through the depot",
          "[channels][pipe][threads]") {
    page_pool::of_this_thread().trim();
    // 100 rounds of 32 pages, each filled here and freed there. Without the way back, 3200 pages would be
    // allocated.
    std::uint64_t allocated = page_pool::of_this_thread().allocated.get();
    for (int round = 0; round != 100; ++round) {
        page_list pages;
        REQUIRE(page_pool::of_this_thread().take(32, pages));
        std::thread other([&] { page_list taken(std::move(pages)); }); // its pool is emptied when it ends
        other.join();
    }
    CHECK(page_pool::of_this_thread().allocated.get() - allocated == 32);
    page_pool::of_this_thread().trim();
    CHECK(page_pool::of_this_thread().cached() == 0);
}
