// Memory of the priority queue: where it may fail, what a promise guarantees, what a payload lives through.
#include "catch.hpp"
#include "priority_support.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

namespace {

using namespace priority_tests;

/// Priorities that make a queue ask for everything it can be short of: nodes, lists, tree nodes.
unsigned spread(unsigned n) {
    return n * 8191 % priority_levels;
}

template <class Queue>
std::size_t fill(Queue& queue, unsigned messages) {
    std::size_t sent = 0;
    for (unsigned n = 0; n < messages; ++n) {
        if (!queue.reserve(spread(n)))
            continue;
        queue.push(std::uint64_t{n}, spread(n), 1);
        ++sent;
    }
    return sent;
}

} // namespace

TEMPLATE_TEST_CASE("priority queue: a failure at any allocation fails one send and changes nothing",
                   "[priority]", tree_queue<std::uint64_t>, bitmap_queue<std::uint64_t>,
                   uncached_tree_queue<std::uint64_t>, frontless_bitmap_queue<std::uint64_t>) {
    constexpr unsigned messages = 700;
    std::size_t sites = 0;
    {
        counting_source source;
        TestType queue(limits_of(messages, 1), source);
        REQUIRE(fill(queue, messages) == messages);
        sites = source.taken;
    }
    REQUIRE(sites > 3);
    for (std::size_t site = 0; site < sites; ++site) {
        INFO("allocation " << site << " of " << sites);
        counting_source source;
        source.refuse_at = site;
        {
            TestType queue(limits_of(messages, 1), source);
            REQUIRE(fill(queue, messages) == messages - 1);
            REQUIRE(source.refused == 1);
            REQUIRE(queue.size() == messages - 1);
            REQUIRE(queue.sound());

            std::multimap<unsigned, unsigned, std::greater<>> expected;
            for (unsigned n = 0; n < messages; ++n)
                expected.emplace(spread(n), n);
            std::size_t missing = 0;
            for (auto next = expected.begin(); next != expected.end(); ++next) {
                if (queue.empty() || *queue.front() != next->second)
                    ++missing;
                else
                    static_cast<void>(queue.pop());
            }
            REQUIRE(missing == 1);
            REQUIRE(queue.empty());
        }
        REQUIRE(source.out.empty());
        REQUIRE_FALSE(source.confused);
    }
}

TEMPLATE_TEST_CASE("priority queue: without any memory every send fails, and works again when there is some",
                   "[priority]", tree_queue<std::uint64_t>, bitmap_queue<std::uint64_t>,
                   fifo_queue<std::uint64_t>) {
    counting_source source;
    source.refuses_all = true;
    TestType queue(limits_of(10, 1), source);
    CHECK_FALSE(queue.reserve(0));
    CHECK_FALSE(queue.reserve(0));
    CHECK(queue.empty());
    CHECK(queue.front() == nullptr);
    source.refuses_all = false;
    REQUIRE(queue.reserve(0));
    queue.push(5, 0, 1);
    CHECK(queue.pop().value == 5);
}

TEMPLATE_TEST_CASE("priority queue: once warm it allocates nothing", "[priority]", tree_queue<std::uint64_t>,
                   bitmap_queue<std::uint64_t>, frontless_bitmap_queue<std::uint64_t>) {
    constexpr unsigned depth = 40'000;
    counting_source source;
    TestType queue(limits_of(depth, 1), source);
    REQUIRE(fill(queue, depth) == depth);
    const std::size_t warm = source.taken;
    std::mt19937 random(1);
    for (int round = 0; round < 3; ++round) {
        while (!queue.empty())
            static_cast<void>(queue.pop());
        for (unsigned n = 0; n < depth; ++n) {
            const unsigned priority = spread(static_cast<unsigned>(random()) % priority_levels);
            REQUIRE(queue.reserve(priority));
            queue.push(std::uint64_t{n}, priority, 1);
        }
    }
    CHECK(source.taken == warm);
}

TEMPLATE_TEST_CASE("priority queue: a promise is kept without memory, whatever happened in between",
                   "[priority]", tree_queue<std::uint64_t>, bitmap_queue<std::uint64_t>,
                   uncached_tree_queue<std::uint64_t>, fifo_queue<std::uint64_t>) {
    constexpr std::uint64_t depth = 5;
    std::mt19937 random(7);
    for (int round = 0; round < 200; ++round) {
        counting_source source;
        TestType queue(limits_of(depth, 1), source);
        std::vector<unsigned> waiting; // priorities of senders that found the queue full
        std::multimap<unsigned, std::uint64_t, std::greater<>> expected;
        for (std::uint64_t step = 0; step < 300; ++step) {
            source.refuses_all = random() % 3 == 0;
            const unsigned priority = static_cast<unsigned>(random()) % TestType::levels;
            const unsigned what = static_cast<unsigned>(random() % 10);
            if (what < 5) { // a sender
                const bool reserved = queue.reserve(priority);
                if (queue.admits(1) && reserved) {
                    queue.push(std::uint64_t{step}, priority, 1);
                    expected.emplace(priority, step);
                } else if (reserved) {
                    queue.promise(priority);
                    waiting.push_back(priority);
                }
            } else if (what < 6 && !waiting.empty()) { // a waiting sender goes away
                queue.retract();
                waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(random() % waiting.size()));
            } else if (!queue.empty()) { // a receiver; or one that takes everything
                source.refuses_all = true;
                const bool all = what == 9;
                do {
                    REQUIRE(queue.pop().value == expected.begin()->second);
                    expected.erase(expected.begin());
                } while (all && !queue.empty());
                while (!waiting.empty() && queue.admits(1)) {
                    queue.push_promised(std::uint64_t{step}, waiting.front(), 1);
                    expected.emplace(waiting.front(), step);
                    waiting.erase(waiting.begin());
                }
            }
            REQUIRE(queue.promised() == waiting.size());
            REQUIRE(queue.size() == expected.size());
            REQUIRE(queue.sound());
        }
    }
}

TEMPLATE_TEST_CASE("priority queue: a node is promised once", "[priority]", tree_queue<int>,
                   bitmap_queue<int>, fifo_queue<int>) {
    counting_source source;
    TestType queue(limits_of(1000, 100, 100), source);
    REQUIRE(queue.reserve(0));
    queue.push(0, 0, 100); // full by bytes, with room for more messages in the first chunk
    source.refuses_all = true;
    while (queue.reserve(0))
        queue.promise(0);
    const std::size_t waiting = queue.promised();
    CHECK(waiting > 0);
    CHECK(queue.pop().bytes == 100);
    for (std::size_t n = 0; n < waiting; ++n)
        queue.push_promised(1, 0, 0);
    CHECK(queue.size() == waiting);
    CHECK(queue.sound());
    while (!queue.empty())
        CHECK(queue.pop().value == 1);
}

TEMPLATE_TEST_CASE("priority queue: with all priorities present there are promises without end", "[priority]",
                   tree_queue<unsigned>, bitmap_queue<unsigned>) {
    TestType queue(limits_of(priority_levels + 10, 1));
    for (unsigned priority = 0; priority < priority_levels; ++priority) {
        REQUIRE(queue.reserve(priority));
        queue.push(std::move(priority), priority, 1);
    }
    for (unsigned n = 0; n < 10; ++n) {
        REQUIRE(queue.reserve(n));
        queue.promise(n);
    }
    CHECK(queue.sound());
    for (unsigned n = 0; n < 10; ++n)
        queue.push_promised(std::move(n), n, 1);
    CHECK(queue.sound());
    std::size_t wrong = 0;
    for (unsigned priority = priority_levels; priority-- > 0;) {
        wrong += queue.pop().value != priority;
        if (priority < 10)
            wrong += queue.pop().value != priority;
    }
    CHECK(wrong == 0);
    CHECK(queue.empty());
}

TEMPLATE_TEST_CASE("priority queue: the blocks for a send are bought apart from the queue", "[priority]",
                   tree_queue<std::uint64_t>, bitmap_queue<std::uint64_t>) {
    counting_source source;
    {
        TestType queue(limits_of(10, 1), source);
        REQUIRE_FALSE(queue.ready(3));
        const queue_need need = queue.shortage(3);
        CHECK(source.taken == 0);

        // Two senders found the same shortage; both bought.
        queue_supply mine;
        queue_supply other;
        REQUIRE(mine.buy(source, need));
        REQUIRE(other.buy(source, need));
        const std::size_t bought = source.taken;
        source.refuses_all = true;

        queue.adopt(3, mine);
        CHECK(queue.ready(3));
        queue.adopt(3, other); // too late: it keeps its blocks
        CHECK(other.slab);
        CHECK(other.index);
        CHECK(source.taken == bought);
        queue.push(1, 3, 1);
        CHECK(queue.pop().value == 1);
    }
    CHECK(source.out.empty()); // the second sender's blocks, too
    CHECK_FALSE(source.confused);
}

TEST_CASE("priority queue: a supply is bought whole or not at all", "[priority]") {
    counting_source source;
    source.refuse_at = 1;
    {
        bitmap_queue<std::uint64_t> queue(limits_of(10, 1), source);
        queue_supply supply;
        CHECK_FALSE(supply.buy(source, queue.shortage(3)));
        CHECK(source.taken == 1);
    }
    CHECK(source.out.empty());
}

// --- payloads ----------------------------------------------------------------------------------------------

namespace {

/// Counts the living and refuses to die twice.
struct tracked {
    explicit tracked(int v, std::set<const tracked*>& a) noexcept : value(v), alive(&a) {
        alive->insert(this);
    }
    tracked(tracked&& other) noexcept : value(other.value), alive(other.alive) {
        other.value = -1;
        alive->insert(this);
    }
    tracked& operator=(tracked&&) = delete;
    ~tracked() { died_twice = died_twice || alive->erase(this) != 1; }

    int value;
    std::set<const tracked*>* alive;
    static inline bool died_twice = false;
};

struct alignas(64) wide {
    std::array<std::uint64_t, 9> words;
};

} // namespace

TEMPLATE_TEST_CASE("priority queue: every payload is destroyed exactly once", "[priority]",
                   tree_queue<tracked>, bitmap_queue<tracked>, uncached_tree_queue<tracked>,
                   fifo_queue<tracked>) {
    std::set<const tracked*> alive;
    {
        TestType queue(limits_of(1000, 1));
        const auto send = [&](unsigned n) {
            const unsigned priority = n % std::min(TestType::levels, 20u);
            REQUIRE(queue.reserve(priority));
            queue.push(tracked(static_cast<int>(n), alive), priority, 1);
        };
        for (unsigned n = 0; n < 1000; ++n)
            send(n);
        CHECK(alive.size() == 1000);
        for (int n = 0; n < 100; ++n)
            CHECK(queue.pop().value.value >= 0);
        CHECK(alive.size() == 900);

        const auto drained = queue.drain();
        CHECK(queue.empty());
        CHECK(drained.count == 900);
        CHECK(alive.size() == 900); // they wait for their destruction outside the lock
        for (unsigned n = 0; n < 500; ++n)
            send(n); // meanwhile others go on
        queue.destroy(drained);
        CHECK(alive.size() == 500);
        queue.release(drained);
        CHECK(queue.sound());
        for (unsigned n = 0; n < 500; ++n)
            send(n);
    }
    CHECK(alive.empty());
    CHECK_FALSE(tracked::died_twice);
}

TEST_CASE("priority queue: payloads that only move, and that want a cache line of their own", "[priority]") {
    bitmap_queue<std::unique_ptr<int>> pointers(limits_of(10, 1));
    REQUIRE(pointers.reserve(4));
    pointers.push(std::make_unique<int>(4), 4, 1);
    CHECK(**pointers.front() == 4);
    CHECK(*pointers.pop().value == 4);

    tree_queue<wide> aligned(limits_of(300, 1));
    for (unsigned n = 0; n < 300; ++n) {
        REQUIRE(aligned.reserve(n));
        aligned.push(wide{{n, 1, 2, 3, 4, 5, 6, 7, n}}, n, 1);
        REQUIRE(reinterpret_cast<std::uintptr_t>(aligned.front()) % alignof(wide) == 0);
    }
    for (unsigned n = 300; n-- > 0;) {
        const received<wide> got = aligned.pop();
        REQUIRE(got.value.words.front() == n);
        REQUIRE(got.value.words.back() == n);
    }
}

// --- the slab ----------------------------------------------------------------------------------------------

TEST_CASE("message slab: chunks double and stop at what is expected", "[priority]") {
    counting_source source;
    message_slab slab({32, 8}, 1000, source);
    std::vector<std::size_t> totals;
    while (slab.total() < 1000) {
        memory_block block;
        REQUIRE(block.buy(source, slab.shortage()));
        slab.adopt(block);
        REQUIRE_FALSE(block);
        totals.push_back(slab.total());
    }
    CHECK(totals == std::vector<std::size_t>{127, 254, 508, 1000});
    CHECK(slab.available() == 1000);

    std::set<message_node*> places;
    std::vector<message_ref> claimed;
    while (slab.available() > 0) {
        claimed.push_back(slab.claim());
        REQUIRE(claimed.back().link != no_message);
        REQUIRE(&slab[claimed.back().link] == claimed.back().node);
        places.insert(claimed.back().node);
    }
    CHECK(places.size() == 1000);

    // More than expected is possible: nodes may be out with somebody.
    memory_block more;
    REQUIRE(more.buy(source, slab.shortage()));
    slab.adopt(more);
    CHECK(slab.available() > 0);
}

TEST_CASE("message slab: after a deep use, memory is handed out in its order again", "[priority]") {
    message_slab slab({32, 8}, 1000, heap_blocks());
    while (slab.total() < 1000) {
        memory_block block;
        REQUIRE(block.buy(heap_blocks(), slab.shortage()));
        slab.adopt(block);
    }
    const auto claim_all = [&] {
        std::vector<message_ref> all;
        while (slab.available() > 0)
            all.push_back(slab.claim());
        return all;
    };
    const auto by_link = [](const message_ref& a, const message_ref& b) { return a.link < b.link; };
    std::vector<message_ref> all = claim_all();
    CHECK(std::is_sorted(all.begin(), all.end(), by_link));
    std::shuffle(all.begin(), all.end(), std::mt19937(5));
    for (const message_ref& one : all)
        slab.release(one);
    all = claim_all();
    CHECK(all.size() == 1000);
    CHECK(std::is_sorted(all.begin(), all.end(), by_link));
}

TEST_CASE("message slab: the node released last is claimed first", "[priority]") {
    message_slab slab({32, 8}, 100, heap_blocks());
    memory_block block;
    REQUIRE(block.buy(heap_blocks(), slab.shortage()));
    slab.adopt(block);
    const message_ref first = slab.claim();
    const message_ref second = slab.claim();
    slab.release(first);
    slab.release(second);
    CHECK(slab.claim().node == second.node);
    CHECK(slab.claim().node == first.node);
}

TEST_CASE("message slab: a chunk that is no longer wanted is left", "[priority]") {
    message_slab slab({32, 8}, 200, heap_blocks());
    memory_block early;
    memory_block late;
    REQUIRE(early.buy(heap_blocks(), slab.shortage()));
    REQUIRE(late.buy(heap_blocks(), slab.shortage()));
    slab.adopt(early);
    slab.adopt(late); // the next chunk has another size
    CHECK_FALSE(early);
    CHECK(late);
    CHECK(slab.total() == 127);
}

TEST_CASE("message slab: it runs out of chunks with an error, not with a wrap", "[priority]") {
    // A source that hands out the same small block for every chunk: only heads are written, no node is
    // claimed.
    struct pretending : block_source {
        pretending()
            : block_source{[](block_source& self, std::size_t, std::size_t) noexcept -> void* {
                               auto& me = static_cast<pretending&>(self);
                               return me.heads[me.used++ % me.heads.size()].data();
                           },
                           [](block_source&, void*, std::size_t, std::size_t) noexcept {}} {}
        struct alignas(64) head : std::array<std::byte, 64> {};
        std::array<head, 40> heads{};
        std::size_t used = 0;
    } source;
    message_slab slab({std::size_t{1} << 20, 8}, std::size_t{1} << 26, source);
    unsigned chunks = 0;
    memory_block block;
    while (block.buy(source, slab.shortage())) {
        slab.adopt(block);
        REQUIRE_FALSE(block);
        REQUIRE(++chunks <= 32);
    }
    CHECK(chunks == 32);
    CHECK(slab.total() < 32 * 1024);
}
