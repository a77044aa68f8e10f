// The priority queue against a stable multimap: long random runs, as deep as a queue gets, with the patterns
// of priorities that the indexes treat differently. All invariants are looked at on the way.
#include "catch.hpp"
#include "priority_support.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <vector>

namespace {

using namespace priority_tests;

enum class pattern { one, few, rising, falling, wandering, ends, any };

class priority_source {
public:
    explicit priority_source(std::uint64_t seed) : random_(seed) {}

    unsigned next(pattern kind) {
        switch (kind) {
        case pattern::one:
            return 7;
        case pattern::few:
            return below(4) * 8191;
        case pattern::rising:
            return here_ = (here_ + 1) % priority_levels;
        case pattern::falling:
            return here_ = (here_ + priority_levels - 1) % priority_levels;
        case pattern::wandering:
            return here_ = (here_ + priority_levels + below(129) - 64) % priority_levels;
        case pattern::ends:
            return below(2) == 0 ? below(3) : priority_levels - 1 - below(3);
        case pattern::any:
            break;
        }
        return below(priority_levels);
    }

    unsigned below(unsigned bound) { return static_cast<unsigned>(random_() % bound); }

private:
    std::mt19937_64 random_;
    unsigned here_ = 0;
};

using model =
    std::multimap<unsigned, std::uint64_t, std::greater<>>; // equal keys keep the order of insertion

template <class Queue>
void agree(Queue& queue, std::size_t deepest, std::size_t steps, std::uint64_t seed) {
    INFO("seed " << seed);
    model expected;
    priority_source random(seed);
    std::uint64_t next_number = 0;
    std::size_t failures = 0;
    for (std::size_t step = 0; step < steps && failures == 0;) {
        const auto kind = static_cast<pattern>(random.below(7));
        const unsigned percent_sends = 20 + random.below(7) * 10;
        const std::size_t end = step + 1 + random.below(static_cast<unsigned>(deepest) * 2);
        for (; step < end && failures == 0; ++step) {
            if (random.below(100) < percent_sends) {
                if (!queue.admits(1)) {
                    failures += expected.size() != deepest;
                    continue;
                }
                const unsigned priority = random.next(kind);
                std::uint64_t number = next_number;
                // The short way if it is open, as for channels on which nobody waits: it says no only for want of memory.
                if (random.below(2) == 0 || !queue.try_push(number, priority, 1)) {
                    failures += !queue.reserve(priority);
                    queue.push(std::move(number), priority, 1);
                }
                expected.emplace(priority, next_number++);
            } else if (!expected.empty()) {
                const auto first = expected.begin();
                failures += queue.front() == nullptr || *queue.front() != first->second;
                failures += queue.front_priority() != first->first;
                const received<std::uint64_t> got = queue.pop();
                failures += got.value != first->second || got.priority != first->first || got.bytes != 1;
                expected.erase(first);
            } else {
                failures += !queue.empty() || queue.front() != nullptr;
            }
            failures += queue.size() != expected.size() || queue.bytes() != expected.size();
        }
        failures += !queue.sound();
        if (random.below(8) == 0) {
            const auto drained = queue.drain();
            failures += drained.count != expected.size() || !queue.empty() || queue.bytes() != 0;
            queue.destroy(drained);
            queue.release(drained);
            expected.clear();
        }
        INFO("step " << step);
        REQUIRE(failures == 0);
    }
    for (const auto& [priority, number] : expected) {
        const received<std::uint64_t> got = queue.pop();
        failures += got.value != number || got.priority != priority;
    }
    CHECK(failures == 0);
    CHECK(queue.empty());
    CHECK(queue.sound());
}

} // namespace

TEMPLATE_TEST_CASE("priority queue: shallow, it agrees with a stable multimap", "[priority]",
                   tree_queue<std::uint64_t>, bitmap_queue<std::uint64_t>, uncached_tree_queue<std::uint64_t>,
                   frontless_bitmap_queue<std::uint64_t>) {
    for (const std::uint64_t depth : {1u, 2u, 10u, 100u, 1000u}) {
        counting_source source;
        {
            TestType queue(limits_of(depth, 1), source);
            agree(queue, depth, 30'000, 1000 + depth);
        }
        CHECK(source.out.empty());
        CHECK_FALSE(source.confused);
    }
}

TEMPLATE_TEST_CASE("priority queue: 65,536 deep, it agrees with a stable multimap", "[priority]",
                   tree_queue<std::uint64_t>, bitmap_queue<std::uint64_t>, uncached_tree_queue<std::uint64_t>,
                   frontless_bitmap_queue<std::uint64_t>) {
    TestType queue(limits_of(65'536, 1));
    agree(queue, 65'536, 1'000'000, 42);
}

TEMPLATE_TEST_CASE("priority queue: full of all priorities in every order, it comes out sorted and stable",
                   "[priority]", tree_queue<std::uint64_t>, bitmap_queue<std::uint64_t>,
                   uncached_tree_queue<std::uint64_t>, frontless_bitmap_queue<std::uint64_t>) {
    TestType queue(limits_of(65'536, 1));
    for (const pattern kind :
         {pattern::one, pattern::rising, pattern::falling, pattern::wandering, pattern::any}) {
        model expected;
        priority_source random(static_cast<std::uint64_t>(kind));
        for (std::uint64_t n = 0; n < 65'536; ++n) {
            const unsigned priority = random.next(kind);
            REQUIRE(queue.reserve(priority));
            queue.push(std::uint64_t{n}, priority, 1);
            expected.emplace(priority, n);
        }
        CHECK_FALSE(queue.admits(0));
        CHECK(queue.sound());
        std::size_t wrong = 0;
        for (const auto& [priority, number] : expected) {
            const received<std::uint64_t> got = queue.pop();
            wrong += got.value != number || got.priority != priority;
        }
        CHECK(wrong == 0);
        CHECK(queue.empty());
    }
}

TEST_CASE("fifo queue: it agrees with a deque", "[priority]") {
    fifo_queue<std::uint64_t> queue(limits_of(100, 1));
    std::deque<std::uint64_t> expected;
    std::mt19937_64 random(3);
    std::size_t wrong = 0;
    for (std::uint64_t step = 0; step < 200'000; ++step) {
        const bool sends = random() % 100 < (step / 1000 % 2 == 0 ? 70 : 30);
        if (sends && queue.admits(1)) {
            wrong += !queue.reserve(0);
            queue.push(std::uint64_t{step}, 0, 1);
            expected.push_back(step);
        } else if (!sends && !queue.empty()) {
            wrong += queue.pop().value != expected.front();
            expected.pop_front();
        }
        wrong += queue.size() != expected.size() || queue.admits(1) != (expected.size() < 100);
    }
    CHECK(wrong == 0);
    CHECK(queue.sound());
}

// --- fair order --------------------------------------------------------------------------------------------

namespace {

/// The rule of fair_order, by looking at every message.
struct fair_model {
    struct entry {
        unsigned priority;
        std::uint64_t number;
        std::uint64_t received_before;
        std::uint64_t time;
    };

    std::uint64_t ratio = 0;
    std::uint64_t most_messages = 0;
    std::uint64_t most_time = 0;
    std::uint64_t received = 0;
    std::uint64_t since_oldest = 0;
    std::vector<entry> waiting; // in order of arrival

    std::size_t next(std::uint64_t now) const {
        const entry& oldest = waiting.front();
        const bool by_ratio = ratio != 0 && since_oldest + 1 >= ratio;
        const bool by_messages = most_messages != 0 && received - oldest.received_before > most_messages;
        const bool by_time = most_time != 0 && now - oldest.time > most_time;
        std::size_t best = 0;
        for (std::size_t i = 1; i < waiting.size() && !by_ratio && !by_messages && !by_time; ++i)
            if (waiting[i].priority > waiting[best].priority)
                best = i;
        return best;
    }
    std::uint64_t pop(std::uint64_t now) {
        const std::size_t taken = next(now);
        const std::uint64_t number = waiting[taken].number;
        since_oldest = taken == 0 ? 0 : since_oldest + 1;
        ++received;
        waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(taken));
        return number;
    }
};

template <class Queue>
void agree(Queue& queue, fair_model expected, std::uint64_t seed) {
    priority_source random(seed);
    std::uint64_t now = 1'000'000;
    std::size_t wrong = 0;
    for (std::uint64_t step = 0; step < 40'000 && wrong == 0; ++step) {
        now += random.below(5);
        const auto kind = static_cast<pattern>(step / 500 % 7);
        if (random.below(100) < (step / 400 % 2 == 0 ? 65u : 40u) && queue.admits(1)) {
            const unsigned priority = random.next(kind);
            wrong += !queue.reserve(priority);
            queue.push(std::uint64_t{step}, priority, 1, now);
            expected.waiting.push_back({priority, step, expected.received, now});
        } else if (!queue.empty()) {
            const std::uint64_t* const front = queue.front(now);
            wrong += front == nullptr || *front != expected.waiting[expected.next(now)].number;
            wrong += queue.pop(now).value != expected.pop(now);
        }
        if (step % 5000 == 4999) {
            const auto drained = queue.drain();
            queue.destroy(drained);
            queue.release(drained);
            expected.waiting.clear();
        }
        wrong += queue.size() != expected.waiting.size() || (step % 64 == 0 && !queue.sound());
    }
    CHECK(wrong == 0);
}

} // namespace

TEMPLATE_TEST_CASE("fair order: it agrees with a queue that looks at every message", "[priority]", tree_index,
                   bitmap_index) {
    using queue = priority_queue<std::uint64_t, TestType, fair_order>;
    for (const std::uint32_t ratio : {1u, 2u, 5u}) {
        queue fair(limits_of(150, 1), heap_blocks(), fair_order::one_in(ratio));
        fair_model expected;
        expected.ratio = ratio;
        agree(fair, expected, ratio);
    }
    for (const std::uint64_t limit : {1u, 20u, 400u}) {
        queue by_messages(limits_of(150, 1), heap_blocks(), fair_order::after_messages(limit));
        fair_model expected;
        expected.most_messages = limit;
        agree(by_messages, expected, 10 + limit);

        queue by_time(limits_of(150, 1), heap_blocks(), fair_order::after_time(limit));
        expected.most_messages = 0;
        expected.most_time = limit;
        agree(by_time, expected, 20 + limit);
    }
}

TEMPLATE_TEST_CASE("fair order: switched off it is strict order", "[priority]", tree_index, bitmap_index) {
    priority_queue<std::uint64_t, TestType, fair_order> queue(limits_of(1000, 1));
    agree(queue, 1000, 50'000, 5);
}

TEMPLATE_TEST_CASE(
    "fair order: under an endless stream of urgent messages a low one comes out within its bound",
    "[priority]", tree_index, bitmap_index) {
    constexpr std::uint32_t ratio = 4;
    priority_queue<int, TestType, fair_order> fair(limits_of(100, 1), heap_blocks(),
                                                   fair_order::one_in(ratio));
    priority_queue<int, TestType> strict(limits_of(100, 1));
    const auto received_before_low = [](auto& queue) {
        for (int i = 0; i < 9; ++i) {
            REQUIRE(queue.reserve(9));
            queue.push(0, 9, 1);
        }
        REQUIRE(queue.reserve(1));
        queue.push(1, 1, 1);
        for (unsigned received = 0; received < 1000; ++received) {
            if (queue.pop().value == 1)
                return received;
            REQUIRE(queue.reserve(9));
            queue.push(0, 9, 1);
        }
        return 1000u;
    };
    CHECK(received_before_low(fair) < (9 + 1) * ratio);
    CHECK(received_before_low(strict) == 1000); // what strict order does, and why it is a choice
}
