// Frames: recycled by size, returned to where they came from, given back on request.
#include "runs.hpp"

#include <nowait/detail/frame_pool.hpp>
#include <nowait/sleep.hpp>

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

using nowait::runtime;
using nowait::task;
using nowait::detail::frame_pool;
using nowait_test::make_runtime;

namespace {

/// A pool that is the current one of this thread for a scope.
class current_pool {
public:
    current_pool() : outer_(frame_pool::exchange_current(pool)) {}
    current_pool(const current_pool&) = delete;
    current_pool& operator=(const current_pool&) = delete;
    ~current_pool() {
        frame_pool::exchange_current(outer_);
        frame_pool::retire(pool);
    }
    frame_pool* pool = new frame_pool;

private:
    frame_pool* outer_;
};

task<int> small(int n) {
    co_return n;
}

/// A task with a frame of more than 8 KiB, above what is recycled.
task<int> big(int n) {
    std::array<char, 8192> local{};
    std::memset(local.data(), n & 0x7f, local.size());
    co_await nowait::yield();
    co_return local[static_cast<std::size_t>(n)];
}

} // namespace

TEST_CASE("a freed block is the next one of its size class") {
    current_pool current;
    void* first = frame_pool::allocate(100);
    frame_pool::deallocate(first);
    void* other_class = frame_pool::allocate(1000);
    CHECK(other_class != first);
    void* again = frame_pool::allocate(101); // the same class
    CHECK(again == first);
    CHECK(current.pool->allocated() == 2);
    CHECK(current.pool->recycled() == 1);
    frame_pool::deallocate(again);
    frame_pool::deallocate(other_class);
}

TEST_CASE("blocks are aligned for anything that g++ 12 puts into a frame") {
    current_pool current;
    std::vector<void*> blocks;
    for (std::size_t size = 1; size < 6000; size += 37) {
        void* block = frame_pool::allocate(size);
        CHECK(reinterpret_cast<std::uintptr_t>(block) % alignof(std::max_align_t) == 0);
        std::memset(block, 0x5a, size);
        blocks.push_back(block);
    }
    for (void* block : blocks)
        frame_pool::deallocate(block);
}

TEST_CASE("without a pool blocks come from the allocator and go back there") {
    void* block = frame_pool::allocate(64);
    std::memset(block, 1, 64);
    frame_pool::deallocate(block);
}

TEST_CASE("a block freed by another thread comes back to its pool") {
    current_pool current;
    std::vector<void*> blocks;
    for (int i = 0; i < 100; ++i)
        blocks.push_back(frame_pool::allocate(200));
    std::thread([&] {
        for (void* block : blocks)
            frame_pool::deallocate(block);
    }).join();
    CHECK(current.pool->allocated() == 100);
    std::vector<void*> again;
    for (int i = 0; i < 100; ++i)
        again.push_back(frame_pool::allocate(200));
    CHECK(current.pool->allocated() == 100);
    CHECK(current.pool->recycled() == 100);
    for (void* block : again)
        frame_pool::deallocate(block);
}

TEST_CASE("two threads pass blocks while the owner goes on allocating") {
    current_pool current;
    constexpr int rounds = 20'000;
    std::array<std::atomic<void*>, 64> slots{};
    std::thread other([&] {
        int freed = 0;
        while (freed < rounds) {
            for (auto& slot : slots) {
                if (void* block = slot.exchange(nullptr, std::memory_order_acquire)) {
                    frame_pool::deallocate(block);
                    ++freed;
                }
            }
        }
    });
    int given = 0;
    while (given < rounds) {
        for (auto& slot : slots) {
            if (given < rounds && slot.load(std::memory_order_relaxed) == nullptr) {
                void* block = frame_pool::allocate(static_cast<std::size_t>(64 + given % 512));
                std::memset(block, given & 0xff, 64);
                slot.store(block, std::memory_order_release);
                ++given;
            }
        }
    }
    other.join();
    CHECK(current.pool->allocated() + current.pool->recycled() == rounds);
    CHECK(current.pool->recycled() > 0);
}

TEST_CASE("a pool outlives its owner while blocks are out, whoever frees them") {
    std::vector<void*> blocks;
    {
        current_pool current;
        for (int i = 0; i < 10; ++i)
            blocks.push_back(frame_pool::allocate(128));
    }
    std::thread([&] {
        for (int i = 0; i < 5; ++i)
            frame_pool::deallocate(blocks[static_cast<std::size_t>(i)]);
    }).join();
    for (std::size_t i = 5; i < 10; ++i)
        frame_pool::deallocate(blocks[i]);
    // The leak checker has the last word: the pool went with its last block.
}

TEST_CASE("frames are recycled, and the counters say so") {
    runtime runs = make_runtime();
    REQUIRE(runs.run([]() -> task<> {
                    (void)co_await small(1);
                    const auto before = nowait::current_stats();
                    for (int i = 0; i < 1000; ++i)
                        (void)co_await small(i);
                    const auto after = nowait::current_stats();
                    CHECK(after.frames_allocated == before.frames_allocated);
                    CHECK(after.frames_recycled == before.frames_recycled + 1000);
                }())
                .has_value());
}

TEST_CASE("frames above the largest class work and are counted as allocated") {
    runtime runs = make_runtime();
    REQUIRE(runs.run([]() -> task<> {
                    const auto before = nowait::current_stats();
                    for (int i = 0; i < 10; ++i) {
                        const int n = co_await big(i);
                        CHECK(n == i);
                    }
                    const auto after = nowait::current_stats();
                    CHECK(after.frames_allocated == before.frames_allocated + 10);
                    CHECK(after.frames_recycled == before.frames_recycled);
                }())
                .has_value());
}

TEST_CASE("trim gives the cached frames back") {
    runtime runs = make_runtime();
    auto many = [](auto self, int depth) -> task<int> {
        if (depth == 0)
            co_return 0;
        co_return 1 + co_await self(self, depth - 1);
    };
    CHECK(runs.run(many(many, 500)).value() == 500);
    const auto warm = runs.stats();
    CHECK(runs.run(many(many, 500)).value() == 500);
    CHECK(runs.stats().frames_allocated - warm.frames_allocated <= 2); // the root is made outside the loop
    runs.trim();
    const auto trimmed = runs.stats();
    CHECK(runs.run(many(many, 500)).value() == 500);
    CHECK(runs.stats().frames_allocated - trimmed.frames_allocated >= 499);
}

TEST_CASE("a task made by one runtime and destroyed unstarted on another thread") {
    runtime runs = make_runtime();
    auto made = std::make_unique<std::vector<task<int>>>();
    REQUIRE(runs.run([](std::vector<task<int>>& to) -> task<> {
                    for (int i = 0; i < 100; ++i)
                        to.push_back(small(i));
                    co_return;
                }(*made))
                .has_value());
    std::thread([&] { made.reset(); }).join();
    REQUIRE(runs.run([]() -> task<> {
                    const auto before = nowait::current_stats();
                    std::vector<task<int>> again;
                    for (int i = 0; i < 50; ++i)
                        again.push_back(small(i));
                    CHECK(nowait::current_stats().frames_allocated == before.frames_allocated);
                    co_return;
                }())
                .has_value());
}

TEST_CASE("a task that outlives the runtime it was made in can be run by another") {
    task<int> kept;
    {
        runtime runs = make_runtime();
        REQUIRE(runs.run([](task<int>& to) -> task<> {
                        to = small(77);
                        co_return;
                    }(kept))
                    .has_value());
    }
    CHECK(nowait_test::run_on_new(std::move(kept)) == 77);
}
