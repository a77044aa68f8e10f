// Both directions at once: an Asio coroutine reads one of our pipes, and one of our tasks serves an Asio socket.
//
//     client (Asio)  --tcp-->  server (a nowait task)  --kernel pipe-->  logger (Asio)
//
// One thread, one place to wait.
#include <nowait/asio.hpp>
#include <nowait/nowait.hpp>

#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include <asio.hpp>
#include <asio/experimental/as_tuple.hpp>

namespace {

using asio::ip::tcp;

// Ours: a task that awaits Asio's sockets with use_task, and our own writer as always.
nowait::task<void> serve(tcp::acceptor& acceptor, nowait::pipe_writer log) {
    auto accepted = co_await acceptor.async_accept(nowait::use_task);
    if (!accepted)
        co_return;
    tcp::socket peer = std::move(*accepted);
    std::array<char, 256> buffer;
    for (;;) {
        auto got = co_await peer.async_read_some(asio::buffer(buffer), nowait::use_task);
        if (!got || *got == 0)
            co_return; // an error, or the end; either way `log` closes here
        auto bytes = std::as_bytes(std::span(buffer).first(*got));
        auto logged = co_await nowait::write_all(log, bytes);
        if (!logged)
            co_return;
    }
}

// Asio's: a coroutine that reads our pipe line by line with Asio's own algorithm.
asio::awaitable<void> print_lines(nowait::asio_readable_pipe from, int& lines) {
    std::string text;
    for (;;) {
        auto [error, length] = co_await asio::async_read_until(
            from, asio::dynamic_buffer(text), '\n', asio::experimental::as_tuple(asio::use_awaitable));
        if (error == asio::error::eof)
            co_return;
        if (error)
            throw asio::system_error(error);
        std::printf("%.*s", static_cast<int>(length), text.c_str());
        text.erase(0, length);
        ++lines;
    }
}

asio::awaitable<void> talk(tcp::endpoint where) {
    tcp::socket socket(co_await asio::this_coro::executor);
    co_await socket.async_connect(where, asio::use_awaitable);
    for (const char* line :
         {"a line through a socket,\n", "a nowait task,\n", "a kernel pipe,\n", "and an Asio coroutine\n"}) {
        const auto text = asio::buffer(line, std::char_traits<char>::length(line));
        co_await asio::async_write(socket, text, asio::use_awaitable);
    }
}

} // namespace

int main() {
    nowait::asio_runtime both;
    auto pipe = nowait::make_pipe();
    if (!pipe) {
        std::fprintf(stderr, "asio_bridge: %s\n", pipe.error().message().c_str());
        return 1;
    }
    tcp::acceptor acceptor(both.get_executor(), tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    int lines = 0;
    auto rethrow = [](std::exception_ptr error) {
        if (error)
            std::rethrow_exception(error);
    };
    nowait::asio_readable_pipe log(both.get_executor(), std::move(pipe->reader));
    asio::co_spawn(both.get_executor(), print_lines(std::move(log), lines), rethrow);
    asio::co_spawn(both.get_executor(), talk(acceptor.local_endpoint()), rethrow);
    auto served = both.run(serve(acceptor, std::move(pipe->writer)));
    return served && lines == 4 ? 0 : 1;
}
