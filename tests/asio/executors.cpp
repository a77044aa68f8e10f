// asio_executor, where handlers run, what they cost, and what happens when they throw.
#include "asio_support.hpp"
#include "catch.hpp"
#include "stack_probe.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

using tests::every_object;
using tests::host_world;
using tests::own_world;
using namespace std::chrono_literals;

namespace {

/// A handler with an allocator that counts, and an argument list that does not matter.
struct tally {
    std::size_t taken = 0;
    std::size_t held = 0;
};
template <class T>
struct tallying {
    using value_type = T;
    explicit tallying(tally& in) noexcept : counts(&in) {}
    template <class U>
    tallying(const tallying<U>& other) noexcept : counts(other.counts) {}
    T* allocate(std::size_t n) {
        ++counts->taken;
        ++counts->held;
        return std::allocator<T>().allocate(n);
    }
    void deallocate(T* memory, std::size_t n) noexcept {
        --counts->held;
        std::allocator<T>().deallocate(memory, n);
    }
    friend bool operator==(const tallying&, const tallying&) noexcept { return true; }
    tally* counts;
};
template <class Executor, class Function>
struct associated {
    using allocator_type = tallying<void>;
    using executor_type = Executor;
    using cancellation_slot_type = net::cancellation_slot;
    [[nodiscard]] allocator_type get_allocator() const noexcept { return tallying<void>(*counts); }
    [[nodiscard]] executor_type get_executor() const noexcept { return executor; }
    [[nodiscard]] cancellation_slot_type get_cancellation_slot() const noexcept { return slot; }
    template <class... Arguments>
    void operator()(Arguments&&... arguments) {
        function(std::forward<Arguments>(arguments)...);
    }
    tally* counts;
    Executor executor;
    net::cancellation_slot slot;
    Function function;
};

} // namespace

TEST_CASE("asio_executor is an executor") {
    own_world world;
    const nowait::asio_executor ex = world.both.get_executor();
    static_assert(net::execution::is_executor<nowait::asio_executor>::value);
    static_assert(std::is_convertible_v<nowait::asio_executor, net::any_io_executor>);
    static_assert(std::is_nothrow_copy_constructible_v<nowait::asio_executor>);
    static_assert(sizeof(nowait::asio_executor) == sizeof(void*));
    const net::any_io_executor any = ex;
    CHECK(any == net::any_io_executor(ex));
    CHECK(ex == world.both.get_executor());
    CHECK(&net::query(ex, net::execution::context) == &world.context());
    CHECK(net::query(any, net::execution::blocking) == net::execution::blocking.possibly);
    const auto never = net::require(ex, net::execution::blocking.never);
    CHECK(net::query(never, net::execution::blocking) == net::execution::blocking.never);
    const auto tracked = net::prefer(any, net::execution::outstanding_work.tracked);
    CHECK(net::query(tracked, net::execution::outstanding_work) == net::execution::outstanding_work.tracked);
    own_world other;
    CHECK(ex != other.both.get_executor());
    CHECK_FALSE(ex.running_in_this_thread());
}

TEST_CASE("post, defer and dispatch on a runtime") {
    own_world world;
    std::vector<int> order;
    const auto ex = world.both.get_executor();
    net::post(ex, [&] {
        CHECK(ex.running_in_this_thread());
        net::post(ex, [&] { order.push_back(3); });
        net::dispatch(ex, [&] { order.push_back(1); });
        net::defer(ex, [&] { order.push_back(4); });
        order.push_back(2);
    });
    CHECK(order.empty());
    world.run();
    CHECK(order == std::vector{1, 2, 3, 4});
    // Work keeps run() going: a guard that another thread lets go.
    auto guard = std::optional(net::make_work_guard(ex));
    bool came = false;
    std::thread elsewhere([&] {
        net::post(ex, [&] { came = true; });
        guard.reset();
    });
    world.run();
    elsewhere.join();
    CHECK(came);
}

TEMPLATE_TEST_CASE("timers, strands and coroutines on our loop, on one thread", "", own_world, host_world) {
    TestType world;
    auto strand = net::make_strand(world.executor());
    int ticks = 0;
    std::size_t seen = 0;
    const std::size_t before = tests::threads(); // one, or what a sanitizer has
    net::co_spawn(
        strand,
        [&]() -> net::awaitable<void> {
            net::steady_timer timer(co_await net::this_coro::executor);
            for (; ticks < 20; ++ticks) {
                timer.expires_after(100us);
                co_await timer.async_wait(net::use_awaitable);
                CHECK(strand.running_in_this_thread());
            }
            net::ip::tcp::acceptor acceptor(strand,
                                            net::ip::tcp::endpoint(net::ip::address_v4::loopback(), 0));
            net::ip::tcp::socket socket(strand);
            co_await socket.async_connect(acceptor.local_endpoint(), net::use_awaitable);
            seen = tests::threads();
        },
        net::detached);
    auto sleeping = world.runtime().spawn([]() -> nowait::task<void> { co_await nowait::sleep_for(3ms); });
    world.run();
    CHECK(sleeping.done()); // neither returns before the other has ended
    CHECK(ticks == 20);
    CHECK(seen == before);
}

TEMPLATE_TEST_CASE("run does not return while the other has work", "", own_world, host_world) {
    TestType world;
    auto pipe = nowait::make_pipe().value();
    int read = 0;
    auto reading = world.runtime().spawn([&]() -> nowait::task<void> {
        std::byte buffer[4];
        auto got = co_await pipe.reader.read(std::span<std::byte>(buffer));
        read = static_cast<int>(got.value());
    });
    net::steady_timer timer(world.executor(), 2ms);
    timer.async_wait([&](error_code) {
        const auto wrote = nowait::detail::direct_write(pipe.writer.native_handle(), "abc", 3);
        CHECK(wrote == 3);
    });
    world.run();
    CHECK(read == 3);
    CHECK(reading.done());
    // And the other way round: nothing of ours, something of theirs.
    bool late = false;
    timer.expires_after(1ms);
    timer.async_wait([&](error_code) { late = true; });
    REQUIRE(world.runtime().run().has_value());
    CHECK(late);
}

TEMPLATE_LIST_TEST_CASE("a coroutine stays on its strand, and on its pool, whichever thread the runtime has",
                        "", every_object) {
    TestType f;
    auto keep = std::optional(net::make_work_guard(f.world.context()));
    net::thread_pool pool(4);
    constexpr int rounds = 50'000; // of two awaits
    std::atomic<int> astray{0};
    std::atomic<int> awaited{0};
    std::atomic<int> running{2};
    auto strand = net::make_strand(pool.get_executor());
    auto spread = pool.get_executor();
    auto ends = [&](std::exception_ptr error) {
        if (error)
            ++astray;
        if (--running == 0)
            keep.reset();
    };
    net::co_spawn(
        strand,
        [&]() -> net::awaitable<void> {
            for (int i = 0; i < rounds; ++i) {
                co_await f.objects.send(net::use_awaitable);
                if (!strand.running_in_this_thread())
                    ++astray;
                ++awaited;
            }
        },
        ends);
    net::co_spawn(
        spread,
        [&]() -> net::awaitable<void> {
            for (int i = 0; i < rounds; ++i) {
                co_await f.objects.receive(net::use_awaitable);
                if (!spread.running_in_this_thread())
                    ++astray;
                ++awaited;
            }
        },
        ends);
    f.world.run();
    pool.join();
    CHECK(astray == 0);
    CHECK(awaited == 2 * rounds);
}

TEMPLATE_LIST_TEST_CASE("run does not return while an operation waits whose handler belongs elsewhere", "",
                        every_object) {
    TestType f;
    net::thread_pool pool(1);
    std::atomic<bool> runs{false};
    bool right = false;
    f.objects.receive(net::bind_executor(pool.get_executor(), [&](error_code error, auto got) {
        right = !error && f.objects.right(got) && pool.get_executor().running_in_this_thread();
    }));
    net::post(f.world.executor(), [&] { runs = true; });
    // Nothing but the receive is outstanding when this comes.
    std::thread elsewhere([&] {
        while (!runs)
            std::this_thread::yield();
        f.objects.send([](error_code, auto...) {});
    });
    f.world.run();
    elsewhere.join();
    f.world.run(); // the send, if it was late
    pool.join();
    CHECK(right);
}

TEMPLATE_LIST_TEST_CASE("what a handler is associated with is used", "", every_object) {
    TestType f;
    auto& objects = f.objects;
    tally counts;
    auto strand = net::make_strand(f.world.context());
    net::cancellation_signal signal;
    int called = 0;
    auto handler = [&] {
        return associated{&counts, strand, signal.slot(), [&](error_code error, auto&&...) {
                              CHECK(!error);
                              CHECK(counts.held == 0); // given back before the handler runs
                              CHECK(strand.running_in_this_thread());
                              ++called;
                          }};
    };
    // A receive that waits: one block.
    objects.receive(handler());
    CHECK(counts.held == 1);
    net::post(f.world.executor(), [&] { objects.send([&](error_code error, auto...) { CHECK(!error); }); });
    f.world.run();
    CHECK(called == 1);
    CHECK(counts.held == 0);
    // A send and a receive that end at once.
    const auto before = counts.taken;
    objects.send(handler());
    f.world.run();
    CHECK(called == 2);
    CHECK(counts.taken > before);
    objects.receive(handler());
    f.world.run();
    CHECK(called == 3);
    CHECK(counts.held == 0);
    // One that another thread initiates, and that is cancelled.
    error_code outcome;
    std::thread elsewhere([&] {
        objects.receive(associated{&counts, strand, signal.slot(), [&](error_code error, auto&&) {
                                       CHECK(counts.held == 0);
                                       outcome = error;
                                   }});
    });
    elsewhere.join();
    signal.emit(net::cancellation_type::terminal);
    f.world.run();
    CHECK(outcome == net::error::operation_aborted);
    CHECK(counts.held == 0);
}

TEMPLATE_TEST_CASE("and by waits for readiness, too", "", tests::kernel_pipe, tests::memory_pipe) {
    own_world world;
    TestType pipe(world.executor());
    tally counts;
    auto strand = net::make_strand(world.context());
    net::cancellation_signal signal;
    int called = 0;
    auto handler = [&] {
        return associated{&counts, strand, signal.slot(), [&](error_code error) {
                              CHECK(!error);
                              CHECK(counts.held == 0);
                              CHECK(strand.running_in_this_thread());
                              ++called;
                          }};
    };
    using wait = net::posix::descriptor_base;
    pipe.in.async_wait(wait::wait_read, handler());
    CHECK(counts.held == 1);
    pipe.send([](error_code, std::size_t) {});
    world.run();
    CHECK(called == 1);
    pipe.out.async_wait(wait::wait_write, handler());
    world.run();
    CHECK(called == 2);
    CHECK(counts.held == 0);
}

TEMPLATE_LIST_TEST_CASE("a handler that can only be moved", "", every_object) {
    TestType f;
    auto owned = std::make_unique<int>(1);
    int called = 0;
    f.objects.send([owned = std::move(owned), &called](error_code, auto...) { called += *owned; });
    f.objects.receive([owned = std::make_unique<int>(10), &called](error_code, auto&&) { called += *owned; });
    f.world.run();
    CHECK(called == 11);
}

TEMPLATE_LIST_TEST_CASE("a handler that throws: the exception leaves through run, and nothing is lost", "",
                        every_object) {
    TestType f;
    auto& objects = f.objects;
    int called = 0;
    for (int i = 0; i < 3; ++i) {
        objects.send([&](error_code, auto...) {
            ++called;
            throw std::runtime_error("sent");
        });
        objects.receive([&](error_code, auto&&) {
            ++called;
            throw std::runtime_error("received");
        });
    }
    int thrown = 0;
    for (;;) {
        try {
            f.world.run();
            break;
        } catch (const std::runtime_error&) {
            ++thrown;
        }
    }
    CHECK(called == 6);
    CHECK(thrown == 6);
    // The next ones are none the wiser.
    objects.send([&](error_code, auto...) { ++called; });
    f.world.run();
    CHECK(called == 7);
}

TEMPLATE_TEST_CASE("what a posted function throws leaves through run", "", own_world, host_world) {
    TestType world;
    int called = 0;
    const nowait::asio_executor ex(nowait::asio_detail::core_of(world.context()));
    for (int i = 0; i < 3; ++i) {
        net::post(ex, [&] {
            ++called;
            throw called;
        });
    }
    for (int expected = 1; expected <= 3; ++expected) {
        int thrown = 0;
        try {
            world.run();
        } catch (int which) {
            thrown = which;
        }
        CHECK(thrown == expected);
    }
    world.run();
    CHECK(called == 3);
}

TEMPLATE_LIST_TEST_CASE("a million immediate completions use constant stack", "", every_object) {
    TestType f;
    constexpr int rounds = 500'000; // of two operations
    int left = rounds;
    nowait_test::stack_probe probe;
    std::function<void()> step = [&] {
        f.objects.send([&](error_code, auto...) {
            probe.touch();
            f.objects.receive([&](error_code, auto&&) {
                probe.touch();
                if (--left > 0)
                    step();
            });
        });
    };
    step();
    f.world.run();
    CHECK(left == 0);
    CHECK(probe.depth() < 16'384);
}

TEMPLATE_TEST_CASE("posts from another thread to an otherwise idle loop: none is lost", "", own_world,
                   host_world) {
    TestType world;
    auto guard = std::optional(net::make_work_guard(world.context()));
    const nowait::asio_executor ex(nowait::asio_detail::core_of(world.context()));
    std::atomic<int> ran{0};
    constexpr int rounds = 500'000; // in two variants
    std::thread poster([&] {
        // How many may be on their way, and how long the poster waits until the next, changes all the time: now the loop has
        // gone to sleep in between, now it is about to.
        std::uint32_t random = 1;
        for (int i = 0; i < rounds; ++i) {
            net::post(ex,
                      [&] { ran.store(ran.load(std::memory_order_relaxed) + 1, std::memory_order_release); });
            random = random * 1664525u + 1013904223u;
            constexpr std::array<int, 4> ahead{0, 1, 8, 64};
            while (i + 1 - ran.load(std::memory_order_acquire) > ahead[random >> 30])
                std::this_thread::yield();
            for (std::uint32_t pause = (random >> 16) % 128; pause != 0; --pause)
                std::atomic_signal_fence(std::memory_order_seq_cst);
        }
        while (ran.load(std::memory_order_acquire) != rounds)
            std::this_thread::yield();
        guard.reset();
    });
    world.run();
    poster.join();
    CHECK(ran == rounds);
}
