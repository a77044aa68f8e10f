// A program that compiles Asio separately, uses the adaptor itself, and has two libraries that do so too: one set of statics.
#include "asio.hpp"

#include <nowait/asio.hpp>
#include <nowait/nowait.hpp>

#include <asio.hpp>
#if defined(ASIO_SEPARATE_COMPILATION)
#include <asio/impl/src.hpp>
#endif

#include <array>
#include <cstdio>
#include <string>
#include <utility>

int main() {
    nowait::asio_runtime both;
    auto pipe = nowait::make_pipe();
    if (!pipe)
        return 1;
    nowait::asio_readable_pipe in(both.get_executor(), std::move(pipe->reader));
    nowait::asio_writable_pipe out(both.get_executor(), std::move(pipe->writer));
    std::array<char, 64> buffer{};
    std::string got;
    in.async_read_some(asio::buffer(buffer),
                       [&](asio::error_code, std::size_t n) { got.assign(buffer.data(), n); });
    out.async_write_some(asio::buffer("hello, nowait", 13), [](asio::error_code, std::size_t) {});
    const std::string first = first_library(both.get_executor());
    const std::string second = second_library(both.get_executor());
    if (!both.run() || first != "found" || second != "found") {
        std::fprintf(stderr, "consumer: %s, %s\n", first.c_str(), second.c_str());
        return 1;
    }
    std::printf("consumer: %zu bytes: %s\n", got.size(), got.c_str());
}
