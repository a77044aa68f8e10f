// Asio's algorithms and stream adaptors over our pipes, and ours over themselves.
#include "asio_support.hpp"
#include "catch.hpp"

#if NOWAIT_ASIO_BOOST
#include <boost/asio/buffered_read_stream.hpp>
#include <boost/asio/buffered_write_stream.hpp>
#else
#include <asio/buffered_read_stream.hpp>
#include <asio/buffered_write_stream.hpp>
#endif

#include <string>

TEMPLATE_TEST_CASE("Asio's buffered streams over our pipes", "", tests::kernel_pipe, tests::memory_pipe) {
    tests::host_world world;
    TestType pipe(world.executor());
    std::string text;
    int steps = 0;
    auto user = [&]() -> net::awaitable<void> {
        net::buffered_write_stream<decltype((pipe.out))> out(pipe.out);
        net::buffered_read_stream<decltype((pipe.in))> in(pipe.in);
        for (const char* word : {"one ", "two ", "three\n", "rest"})
            co_await net::async_write(out, net::buffer(word, std::char_traits<char>::length(word)),
                                      net::use_awaitable);
        // Nothing has come through so far: it is in the buffer.
        auto peeked = in.async_fill(net::use_awaitable);
        co_await out.async_flush(net::use_awaitable);
        co_await std::move(peeked);
        CHECK(in.in_avail() == 18);
        ++steps;
        const std::size_t line =
            co_await net::async_read_until(in, net::dynamic_buffer(text), '\n', net::use_awaitable);
        CHECK(text.substr(0, line) == "one two three\n");
        ++steps;
        pipe.out.close();
        auto ended =
            co_await net::async_read(in, net::dynamic_buffer(text), tests::as_tuple(net::use_awaitable));
        CHECK(std::get<0>(ended) == net::error::eof);
        ++steps;
    };
    net::co_spawn(world.executor(), user, [](std::exception_ptr error) {
        if (error)
            std::rethrow_exception(error);
    });
    world.run();
    CHECK(steps == 3);
    CHECK(text == "one two three\nrest");
}

TEMPLATE_TEST_CASE("tasks await our own pipes through Asio's algorithms", "", tests::kernel_pipe,
                   tests::memory_pipe) {
    tests::own_world world;
    TestType pipe(world.executor());
    std::string sent(300'000, 's');
    std::string got(300'000, ' ');
    auto writing = world.runtime().spawn([&]() -> nowait::task<void> {
        auto text = net::buffer(sent);
        auto wrote = co_await net::async_write(pipe.out, text, nowait::use_task_progress);
        CHECK(wrote.ok());
        CHECK(wrote.bytes == sent.size());
        pipe.out.close();
    });
    auto reading = world.runtime().spawn([&]() -> nowait::task<void> {
        auto room = net::buffer(got);
        auto read = co_await net::async_read(pipe.in, room, nowait::use_task);
        CHECK(read.value() == got.size());
        auto ended = co_await pipe.in.async_read_some(room, nowait::use_task);
        CHECK(ended.value() == 0); // the end is no error
        auto waits = pipe.in.async_wait(net::posix::descriptor_base::wait_read, nowait::use_task);
        auto ready = co_await std::move(waits);
        CHECK(ready.has_value());
    });
    world.run();
    CHECK(writing.done());
    CHECK(reading.done());
    CHECK(got == sent);
}
