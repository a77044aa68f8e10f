// An Asio TCP server whose requests wait in an mqueue_channel: the urgent ones overtake.
//
// A request is a line, "PRIORITY WORK"; the answer is the work in capitals, with the place in which it was done. One worker
// serves all connections. Without arguments the program is its own client: it sends three batches before the worker begins,
// and shows in which order they were served.
//
//     asio_priority_server           the demonstration
//     asio_priority_server PORT      serves 127.0.0.1:PORT until it is killed:  printf '9 now\n1 later\n' | nc 127.0.0.1 PORT
//                                    (0 is a free one: it says which)
#include <nowait/asio.hpp>
#include <nowait/nowait.hpp>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <asio.hpp>

using namespace std::chrono_literals;

namespace {

using asio::ip::tcp;

struct connection {
    explicit connection(tcp::socket from) : socket(std::move(from)) {}
    tcp::socket socket;
};

struct request {
    std::shared_ptr<connection> from;
    std::string work;
};
using queue = nowait::asio_mqueue_channel<request>;

// Reads requests of one client and queues them. A full queue holds the reader back, and so the client.
asio::awaitable<void> read_requests(std::shared_ptr<connection> client, queue& requests) {
    std::string text;
    try {
        for (;;) {
            const std::size_t length = co_await asio::async_read_until(
                client->socket, asio::dynamic_buffer(text, 4096), '\n', asio::use_awaitable);
            const std::string line = text.substr(0, length - 1);
            text.erase(0, length);
            unsigned priority = 0;
            const auto [rest, bad] = std::from_chars(line.data(), line.data() + line.size(), priority);
            if (bad != std::errc() || priority >= nowait::priority_limit) {
                constexpr std::string_view usage = "? PRIORITY WORK\n";
                co_await asio::async_write(client->socket, asio::buffer(usage), asio::use_awaitable);
                continue;
            }
            request asked{client, std::string(rest, line.data() + line.size())};
            co_await requests.async_send(std::move(asked), priority, asio::use_awaitable);
        }
    } catch (const asio::system_error&) {
        // the client has gone, or the queue is closed
    }
}

asio::awaitable<void> accept_clients(tcp::acceptor& acceptor, queue& requests) {
    for (;;) {
        asio::error_code error;
        tcp::socket socket = co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, error));
        if (error == asio::error::operation_aborted || error == asio::error::bad_descriptor)
            co_return; // closed
        if (error) {   // no descriptors, say: those who have been let in may leave
            asio::steady_timer pause(acceptor.get_executor(), 100ms);
            co_await pause.async_wait(asio::use_awaitable);
            continue;
        }
        auto client = std::make_shared<connection>(std::move(socket));
        asio::co_spawn(acceptor.get_executor(), read_requests(std::move(client), requests), asio::detached);
    }
}

// The worker: a nowait task. It takes the most urgent request, whoever has sent it.
nowait::task<void> work(nowait::mqueue_channel<request> requests, int& done) {
    for (;;) {
        auto next = co_await requests.receive();
        if (!next)
            co_return;
        std::string answer = std::to_string(++done) + next->value.work + "\n";
        std::transform(answer.begin(), answer.end(), answer.begin(),
                       [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
        tcp::socket& to = next->value.from->socket;
        auto sending = asio::async_write(to, asio::buffer(answer), nowait::use_task);
        auto sent = co_await nowait::with_timeout(std::move(sending), 5s);
        if (!sent) { // a client that has gone, or reads nothing, does not stop the others
            asio::error_code ignored;
            to.close(ignored);
        }
    }
}

asio::awaitable<void> demonstrate(tcp::endpoint where, queue& requests, nowait::asio_runtime& both,
                                  int& done) {
    tcp::socket socket(co_await asio::this_coro::executor);
    co_await socket.async_connect(where, asio::use_awaitable);
    constexpr std::string_view batch = "1 sweep\n5 cook\n1 dust\n9 put the fire out\n5 eat\n";
    co_await asio::async_write(socket, asio::buffer(batch), asio::use_awaitable);
    while (requests.native().size() < 5)
        co_await asio::post(asio::use_awaitable);
    auto worker = both.spawn(work(requests.native(), done));
    std::string answers;
    for (int i = 0; i < 5; ++i) {
        const std::size_t length =
            co_await asio::async_read_until(socket, asio::dynamic_buffer(answers), '\n', asio::use_awaitable);
        std::printf("%.*s", static_cast<int>(length), answers.c_str());
        answers.erase(0, length);
    }
    requests.close();
}

} // namespace

int main(int argc, char** argv) {
    const std::string_view argument = argc == 2 ? argv[1] : "";
    std::uint16_t port = 0;
    const auto [end, bad] = std::from_chars(argument.data(), argument.data() + argument.size(), port);
    if (argc > 2 || (argc == 2 && (bad != std::errc() || end != argument.data() + argument.size()))) {
        std::fprintf(stderr, "Usage: asio_priority_server [PORT]\n");
        return argument == "-h" || argument == "--help" ? 0 : 2;
    }
    try {
        nowait::asio_runtime both;
        queue requests(both.get_executor(), 64);
        tcp::acceptor acceptor(both.get_executor(), tcp::endpoint(asio::ip::address_v4::loopback(), port));
        int done = 0;
        asio::co_spawn(both.get_executor(), accept_clients(acceptor, requests), asio::detached);
        if (argc == 2) {
            std::fprintf(stderr, "serving 127.0.0.1:%u\n", unsigned{acceptor.local_endpoint().port()});
            auto ran = both.run(work(requests.native(), done));
            return ran ? 0 : 1;
        }
        asio::co_spawn(both.get_executor(), demonstrate(acceptor.local_endpoint(), requests, both, done),
                       [&](std::exception_ptr error) {
                           acceptor.close();
                           if (error)
                               std::rethrow_exception(error);
                       });
        const auto ran = both.run();
        return ran && done == 5 ? 0 : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "asio_priority_server: %s\n", error.what());
        return 1;
    }
}
