#include "catch.hpp"

#include <nowait/asio.hpp>
#include <nowait/nowait.hpp>

#include <array>
#include <string>

#include <asio.hpp>
#include <asio/experimental/awaitable_operators.hpp>

using namespace asio::experimental::awaitable_operators;

namespace {

nowait::pipe_pair new_pipe() {
    auto made = nowait::make_pipe();
    REQUIRE(made.has_value());
    return std::move(*made);
}

} // namespace

TEST_CASE("a pipe with callbacks on a runtime that owns its io_context") {
    nowait::asio_runtime both;
    auto pipe = new_pipe();
    nowait::asio_readable_pipe in(both.get_executor(), std::move(pipe.reader));
    nowait::asio_writable_pipe out(both.get_executor(), std::move(pipe.writer));
    std::array<char, 16> buffer{};
    std::string got;
    in.async_read_some(asio::buffer(buffer), [&](asio::error_code error, std::size_t n) {
        CHECK(!error);
        got.assign(buffer.data(), n);
        out.close();
        in.async_read_some(asio::buffer(buffer), [&](asio::error_code again, std::size_t none) {
            CHECK(again == asio::error::eof);
            CHECK(none == 0);
            got += "|eof";
        });
    });
    out.async_write_some(asio::buffer("hello", 5), [&](asio::error_code error, std::size_t n) {
        CHECK(!error);
        CHECK(n == 5);
    });
    CHECK(got.empty());
    REQUIRE(both.run().has_value());
    CHECK(got == "hello|eof");
}

TEST_CASE("a pipe with coroutines on a host") {
    asio::io_context context;
    nowait::asio_guest guest(context);
    auto pipe = new_pipe();
    nowait::asio_readable_pipe in(context, std::move(pipe.reader));
    nowait::asio_writable_pipe out(context, std::move(pipe.writer));
    int rounds = 0;
    asio::co_spawn(
        context,
        [&]() -> asio::awaitable<void> {
            std::array<char, 4> buffer{};
            while (rounds < 1000) {
                std::size_t n = co_await in.async_read_some(asio::buffer(buffer), asio::use_awaitable);
                rounds += static_cast<int>(n);
            }
        },
        asio::detached);
    asio::co_spawn(
        context,
        [&]() -> asio::awaitable<void> {
            asio::steady_timer timer(context);
            for (int i = 0; i < 1000; ++i) {
                if (i % 100 == 0) {
                    timer.expires_after(std::chrono::milliseconds(1));
                    co_await timer.async_wait(asio::use_awaitable);
                }
                co_await asio::async_write(out, asio::buffer("x", 1), asio::use_awaitable);
                if (i % 3 == 0)
                    co_await asio::post(asio::use_awaitable);
            }
        },
        asio::detached);
    context.run();
    CHECK(rounds == 1000);
}
