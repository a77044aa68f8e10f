// What the tests of the adaptor share. They are compiled with the stand-alone Asio and with Boost.Asio.
#pragma once

#include "catch.hpp"

#include <nowait/asio.hpp>
#include <nowait/nowait.hpp>

#if NOWAIT_ASIO_BOOST
#include <boost/asio.hpp>
#include <boost/asio/experimental/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/experimental/deferred.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
namespace net = boost::asio;
using error_code = boost::system::error_code;
#else
#include <asio.hpp>
#include <asio/experimental/as_tuple.hpp>
#include <asio/experimental/awaitable_operators.hpp>
#include <asio/experimental/deferred.hpp>
#include <asio/experimental/parallel_group.hpp>
namespace net = asio;
using error_code = asio::error_code;
#endif

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include <dirent.h>

namespace tests {

#if NOWAIT_ASIO_VERSION >= 102600
using net::as_tuple;
using net::deferred;
#else
using net::experimental::as_tuple;
using net::experimental::deferred;
#endif

/// The two ways in which a runtime and an io_context live together.
struct own_world {
    nowait::asio_runtime both;
    [[nodiscard]] net::any_io_executor executor() { return both.get_executor(); }
    [[nodiscard]] net::io_context& context() { return both.context(); }
    [[nodiscard]] nowait::runtime& runtime() { return both.get_runtime(); }
    void run() {
        const auto ran = both.run(); // handlers may throw
        REQUIRE(ran.has_value());
    }
};
struct host_world {
    net::io_context host;
    nowait::asio_guest guest{host};
    [[nodiscard]] net::any_io_executor executor() { return host.get_executor(); }
    [[nodiscard]] net::io_context& context() { return host; }
    [[nodiscard]] nowait::runtime& runtime() { return guest.get_runtime(); }
    void run() {
        host.restart();
        host.run();
    }
};

// The objects, with one face: send() one small thing, receive() it.
template <class Reader, class Writer>
struct stream_pair {
    Reader in;
    Writer out;
    std::array<char, 1> buffer{};
    template <class Token>
    auto receive(Token&& token) {
        return in.async_read_some(net::buffer(buffer), std::forward<Token>(token));
    }
    template <class Token>
    auto send(Token&& token) {
        return out.async_write_some(net::buffer("x", 1), std::forward<Token>(token));
    }
    static bool right(std::size_t n) { return n == 1; }
    void cancel() {
        in.cancel();
        out.cancel();
    }
    void close() {
        in.close();
        out.close();
    }
    void end() { out.close(); }
    static error_code ended() { return net::error::eof; }
};
template <class Channel>
struct channel_pair {
    Channel channel;
    template <class Token>
    auto receive(Token&& token) {
        return channel.async_receive(std::forward<Token>(token));
    }
    template <class Token>
    auto send(Token&& token) {
        return channel.async_send(7, std::forward<Token>(token));
    }
    static bool right(int got) { return got == 7; }
    static bool right(const nowait::message<int>& got) { return got.value == 7 && got.priority == 0; }
    void cancel() { channel.cancel(); }
    void end() { channel.close(); }
    static error_code ended() { return net::experimental::error::channel_closed; }
};

struct kernel_pipe : stream_pair<nowait::asio_readable_pipe, nowait::asio_writable_pipe> {
    explicit kernel_pipe(const net::any_io_executor& ex) : kernel_pipe(ex, nowait::make_pipe().value()) {}
    kernel_pipe(const net::any_io_executor& ex, nowait::pipe_pair&& pipe)
        : stream_pair{nowait::asio_readable_pipe(ex, std::move(pipe.reader)),
                      nowait::asio_writable_pipe(ex, std::move(pipe.writer))} {}
};
struct memory_pipe : stream_pair<nowait::asio_pipe_channel_reader, nowait::asio_pipe_channel_writer> {
    explicit memory_pipe(const net::any_io_executor& ex)
        : memory_pipe(ex, nowait::pipe_channel::create().value()) {}
    memory_pipe(const net::any_io_executor& ex, nowait::pipe_channel&& pipe)
        : stream_pair{nowait::asio_pipe_channel_reader(ex, std::move(pipe.reader)),
                      nowait::asio_pipe_channel_writer(ex, std::move(pipe.writer))} {}
};
struct fifo_channel : channel_pair<nowait::asio_channel<int>> {
    explicit fifo_channel(const net::any_io_executor& ex) : channel_pair{nowait::asio_channel<int>(ex, 4)} {}
};
struct priority_channel : channel_pair<nowait::asio_mqueue_channel<int>> {
    explicit priority_channel(const net::any_io_executor& ex)
        : channel_pair{nowait::asio_mqueue_channel<int>(ex, 4)} {}
};

inline std::size_t entries(const char* folder) {
    std::size_t count = 0;
    DIR* const open = ::opendir(folder);
    while (::readdir(open) != nullptr)
        ++count;
    ::closedir(open);
    return count;
}
inline std::size_t open_descriptors() {
    return entries("/proc/self/fd");
}
inline std::size_t threads() {
    return entries("/proc/self/task") - 2;
}

/// Every kind of object, and each of the worlds. (All pairs would take minutes to compile and show no more: what differs between
/// worlds does not differ between kinds.)
template <class World, class Objects>
struct fixture {
    World world;
    Objects objects{world.executor()};
};
using every_object = std::tuple<fixture<own_world, kernel_pipe>, fixture<host_world, kernel_pipe>,
                                fixture<own_world, memory_pipe>, fixture<host_world, fifo_channel>,
                                fixture<own_world, priority_channel>>;

} // namespace tests
