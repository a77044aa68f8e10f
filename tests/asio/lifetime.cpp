// Who may go first, and what is asked of objects that are closed, moved from, or whose runtime is over.
#include "asio_support.hpp"
#include "catch.hpp"

#include <thread>
#include <vector>

using tests::every_object;
using tests::host_world;
using tests::own_world;

namespace {

struct bomb {
    int* gone;
    explicit bomb(int& counter) : gone(&counter) {}
    bomb(bomb&& other) noexcept : gone(std::exchange(other.gone, nullptr)) {}
    ~bomb() {
        if (gone != nullptr)
            ++*gone;
    }
};

net::awaitable<void> own_pipe_and_wait(net::any_io_executor ex, bomb, int& began, int& went_on) {
    auto pipe = nowait::make_pipe().value();
    nowait::asio_readable_pipe in(ex, std::move(pipe.reader));
    nowait::asio_writable_pipe out(ex, std::move(pipe.writer));
    std::array<char, 4> buffer{};
    ++began;
    co_await in.async_read_some(net::buffer(buffer), net::use_awaitable);
    ++went_on;
}

nowait::task<void> wait_in_a_timer(net::any_io_executor ex, bomb, int& went_on) {
    net::steady_timer timer(ex, std::chrono::hours(1));
    auto wait = timer.async_wait(nowait::use_task);
    auto outcome = co_await std::move(wait);
    (void)outcome;
    ++went_on;
}

} // namespace

TEST_CASE("io_context and guest are destroyed in either order, with operations pending") {
    const bool context_first = GENERATE(true, false);
    const auto descriptors = tests::open_descriptors();
    constexpr int pending = 100;
    int gone = 0;
    int began = 0;
    int went_on = 0;
    {
        auto context = std::make_unique<net::io_context>();
        auto guest = std::make_unique<nowait::asio_guest>(*context);
        for (int i = 0; i < pending; ++i) {
            net::co_spawn(*context, own_pipe_and_wait(context->get_executor(), bomb(gone), began, went_on),
                          net::detached);
            static_cast<void>(guest->spawn(wait_in_a_timer(context->get_executor(), bomb(gone), went_on)));
        }
        while (began < pending)
            context->run_one();
        context->poll();
        CHECK(gone == 0);
        if (context_first) {
            context.reset();
            CHECK_FALSE(guest->alive());
            CHECK(gone == 2 * pending);
            guest.reset();
        } else {
            guest.reset();
            // The tasks have gone with their runtime, and so have the handlers that waited in it. The coroutines behind
            // these are unwound through their executor: Asio does it so.
            CHECK(gone >= pending);
            context->restart();
            context->poll();
            CHECK(gone == 2 * pending);
            context.reset();
        }
    }
    CHECK(gone == 2 * pending);
    CHECK(went_on == 0);
    CHECK(tests::open_descriptors() == descriptors);
}

TEST_CASE("an asio_runtime is destroyed with operations pending") {
    const auto descriptors = tests::open_descriptors();
    int gone = 0;
    int began = 0;
    int went_on = 0;
    {
        nowait::asio_runtime both;
        for (int i = 0; i < 100; ++i) {
            net::co_spawn(both.get_executor(),
                          own_pipe_and_wait(both.get_executor(), bomb(gone), began, went_on), net::detached);
            static_cast<void>(both.spawn(wait_in_a_timer(both.get_executor(), bomb(gone), went_on)));
        }
        net::post(both.get_executor(), [&both] { both.context().stop(); });
        while (began < 100) {
            both.context().restart();
            both.context().run_one();
        }
    }
    CHECK(gone == 200);
    CHECK(went_on == 0);
    CHECK(tests::open_descriptors() == descriptors);
}

TEMPLATE_LIST_TEST_CASE("what was never run is destroyed unrun", "", every_object) {
    int gone = 0;
    int called = 0;
    {
        TestType f;
        auto handler = [&] { return [kept = bomb(gone), &called](error_code, auto&&...) { ++called; }; };
        f.objects.send(handler());
        f.objects.receive(handler());
        f.objects.receive(handler());
        std::thread elsewhere([&] {
            f.objects.receive(handler());
            net::post(f.world.executor(), [kept = bomb(gone), &called] { ++called; });
        });
        elsewhere.join();
    }
    CHECK(called == 0);
    CHECK(gone == 5);
}

TEST_CASE("an executor whose runtime is over") {
    net::io_context context;
    auto guest = std::make_unique<nowait::asio_guest>(context);
    const auto ex = guest->get_executor();
    auto pipe = nowait::make_pipe().value();
    nowait::asio_readable_pipe in(context, std::move(pipe.reader));
    guest.reset();
    int gone = 0;
    bool called = false;
    net::post(ex, [kept = bomb(gone), &called] { called = true; });
    CHECK(gone == 1); // destroyed uncalled
    // An object that is left over completes with operation_aborted, through an executor that still runs.
    error_code outcome;
    std::array<char, 1> buffer{};
    in.async_read_some(net::buffer(buffer), [&](error_code error, std::size_t) { outcome = error; });
    context.run();
    CHECK_FALSE(called);
    CHECK(outcome == net::error::operation_aborted);
    in.close();
    CHECK_THROWS_AS(nowait::asio_readable_pipe(context), std::system_error);
    // The io_context may have another guest now.
    nowait::asio_guest next(context);
    CHECK_THROWS_AS(nowait::asio_guest(context), std::system_error);
    nowait::asio_readable_pipe again(context);
    CHECK(again.is_open());
}

TEST_CASE("an io_context without a guest, and a pool, are no place for our objects") {
    net::io_context context;
    net::thread_pool pool(1);
    CHECK_THROWS_AS(nowait::asio_readable_pipe(context), std::system_error);
    CHECK_THROWS_AS(nowait::asio_readable_pipe(pool.get_executor()), std::system_error);
    CHECK_THROWS_AS(nowait::asio_channel<int>(context, 1), std::system_error);
}

TEST_CASE("a host is run by one thread, always the same") {
    net::io_context context;
    nowait::asio_guest guest(context);
    auto sleeping = guest.spawn([]() -> nowait::task<void> { co_await nowait::yield(); });
    context.run();
    CHECK(sleeping.done());
    auto second = guest.spawn([]() -> nowait::task<void> { co_await nowait::yield(); });
    bool refused = false;
    std::thread elsewhere([&] {
        context.restart();
        try {
            context.run();
        } catch (const std::system_error& error) {
            refused = error.code() == std::errc::operation_not_permitted;
        }
    });
    elsewhere.join();
    CHECK(refused);
    CHECK_FALSE(second.done());
    context.restart();
    context.run();
    CHECK(second.done());
}

TEMPLATE_TEST_CASE("use after close, after a move, with null buffers, two reads at once", "", own_world,
                   host_world) {
    TestType world;
    const auto ex = world.executor();
    auto pipe = nowait::make_pipe().value();
    nowait::asio_readable_pipe in(ex, std::move(pipe.reader));
    nowait::asio_writable_pipe out(ex, std::move(pipe.writer));
    std::array<char, 4> buffer{};
    error_code outcome;
    auto note = [&](error_code error, std::size_t = 0) { outcome = error; };

    SECTION("closed with a read pending, then used") {
        in.async_read_some(net::buffer(buffer), note);
        net::post(ex, [&] {
            in.close();
            in.close();
            in.cancel();
        });
        world.run();
        CHECK(outcome == net::error::operation_aborted);
        CHECK_FALSE(in.is_open());
        in.async_read_some(net::buffer(buffer), note);
        world.run();
        CHECK(outcome == net::error::bad_descriptor);
        out.async_write_some(net::buffer("x", 1), note);
        world.run();
        CHECK(outcome == net::error::broken_pipe);
    }
    SECTION("moved from") {
        nowait::asio_readable_pipe taken(std::move(in));
        in.async_read_some(net::buffer(buffer), note);
        world.run();
        CHECK(outcome == net::error::bad_descriptor);
        taken.async_read_some(net::buffer(buffer), note);
        out.async_write_some(net::buffer("x", 1), [](error_code, std::size_t) {});
        world.run();
        CHECK(!outcome);
    }
    SECTION("null buffers") {
        in.async_read_some(net::mutable_buffer(nullptr, 4), note);
        out.async_write_some(net::buffer("x", 1), [](error_code, std::size_t) {});
        world.run();
        CHECK(outcome == net::error::fault);
        outcome = net::error::eof;
        in.async_read_some(net::mutable_buffer(), note);
        world.run();
        CHECK(!outcome); // nothing asked for, nothing done
        std::vector<net::mutable_buffer> none;
        in.async_read_some(none, note);
        world.run();
        CHECK(!outcome);
    }
    SECTION("two reads at once are served in turn") {
        std::string order;
        std::array<char, 1> first{};
        std::array<char, 1> second{};
        in.async_read_some(net::buffer(first), [&](error_code, std::size_t) { order += first[0]; });
        in.async_read_some(net::buffer(second), [&](error_code, std::size_t) { order += second[0]; });
        out.async_write_some(net::buffer("ab", 2), [](error_code, std::size_t) {});
        world.run();
        CHECK(order == "ab");
    }
    SECTION("waiting for readiness") {
        using wait = net::posix::descriptor_base;
        in.async_wait(wait::wait_read, note);
        out.async_write_some(net::buffer("x", 1), [](error_code, std::size_t) {});
        world.run();
        CHECK(!outcome);
        in.async_wait(wait::wait_write, note);
        world.run();
        CHECK(outcome == net::error::operation_not_supported);
        out.async_wait(wait::wait_write, note);
        world.run();
        CHECK(!outcome);
    }
    SECTION("several buffers, and Asio's own algorithms on top") {
        std::array<char, 3> head{};
        std::array<char, 20> tail{};
        std::array<net::mutable_buffer, 2> parts{net::buffer(head), net::buffer(tail)};
        std::string text;
        net::co_spawn(
            ex,
            [&]() -> net::awaitable<void> {
                const std::array<net::const_buffer, 2> pieces{net::buffer("one\n", 4),
                                                              net::buffer("two\n", 4)};
                co_await net::async_write(out, pieces, net::use_awaitable);
                auto n = co_await in.async_read_some(parts, net::use_awaitable);
                CHECK(n == 8);
                CHECK(std::string(head.data(), 3) == "one");
                CHECK(std::string(tail.data(), 5) == "\ntwo\n");
                co_await net::async_write(out, net::buffer("a line\nrest", 11), net::use_awaitable);
                auto length =
                    co_await net::async_read_until(in, net::dynamic_buffer(text), '\n', net::use_awaitable);
                CHECK(text.substr(0, length) == "a line\n");
                out.close();
                auto ended = co_await net::async_read(in, net::dynamic_buffer(text),
                                                      tests::as_tuple(net::use_awaitable));
                CHECK(std::get<0>(ended) == net::error::eof);
            },
            [](std::exception_ptr error) {
                if (error)
                    std::rethrow_exception(error);
            });
        world.run();
        CHECK(text == "a line\nrest");
    }
}

TEST_CASE("objects that others' threads close and destroy") {
    own_world world;
    auto guard = std::optional(net::make_work_guard(world.context()));
    int ended = 0;
    const auto descriptors = tests::open_descriptors();
    std::thread elsewhere([&] {
        for (int i = 0; i < 1000; ++i) {
            tests::kernel_pipe pipe(world.executor());
            auto count = [&](error_code error, std::size_t) {
                // On the runtime's thread. The write end may go first, and be seen to have gone.
                ended += error == net::error::operation_aborted || error == net::error::eof ? 1 : 0;
            };
            pipe.receive(count);
            if (i % 2 == 0)
                pipe.close();
        }
        guard.reset();
    });
    world.run();
    elsewhere.join();
    CHECK(ended == 1000);
    CHECK(tests::open_descriptors() <= descriptors + 4); // the io_context's and the driver's own
}
