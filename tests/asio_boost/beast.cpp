// Boost.Beast's HTTP over our streams, unchanged.
#include "catch.hpp"
#include "tests/asio/asio_support.hpp"

#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

namespace http = boost::beast::http;

TEMPLATE_TEST_CASE("Beast reads and writes HTTP messages over our pipes", "", tests::kernel_pipe,
                   tests::memory_pipe) {
    tests::own_world world;
    TestType pipe(world.executor());
    std::string body;
    net::co_spawn(
        world.executor(),
        [&]() -> net::awaitable<void> {
            http::request<http::string_body> request(http::verb::post, "/jobs", 11);
            request.set(http::field::host, "nowhere");
            request.body() = std::string(10'000, 'b');
            request.prepare_payload();
            co_await http::async_write(pipe.out, request, net::use_awaitable);
            pipe.out.close();
        },
        [](std::exception_ptr error) {
            if (error)
                std::rethrow_exception(error);
        });
    net::co_spawn(
        world.executor(),
        [&]() -> net::awaitable<void> {
            boost::beast::flat_buffer buffer;
            http::request<http::string_body> request;
            co_await http::async_read(pipe.in, buffer, request, net::use_awaitable);
            CHECK(request.target() == "/jobs");
            body = request.body();
            error_code ended;
            co_await http::async_read(pipe.in, buffer, request,
                                      net::redirect_error(net::use_awaitable, ended));
            CHECK(ended == http::error::end_of_stream);
        },
        [](std::exception_ptr error) {
            if (error)
                std::rethrow_exception(error);
        });
    world.run();
    CHECK(body == std::string(10'000, 'b'));
}
