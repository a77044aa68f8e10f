// A kernel pipe between two tasks: one writes, the other reads until the first has gone.
//
//     build/release/examples/hello_pipe
#include <nowait/nowait.hpp>

#include <array>
#include <cstdio>
#include <span>
#include <string_view>

// The writer is a parameter by value: it is closed when this task ends, and the reader sees the end of the stream.
static nowait::task<void> greet(nowait::pipe_writer to) {
    for (std::string_view word : {"hello", " from", " the", " other", " task\n"}) {
        const auto written = co_await to.write(word); // returns at once while there is room
        if (!written)
            co_return;
        co_await nowait::yield();
    }
}

static nowait::task<bool> listen() {
    auto pipe = nowait::make_pipe();
    if (!pipe)
        co_return false;
    auto greeter = nowait::spawn(greet(std::move(pipe->writer)));
    std::array<std::byte, 16> buffer{};
    for (;;) {
        const auto got = co_await pipe->reader.read(buffer);
        if (!got || *got == 0) // an error, or the end
            co_return got.has_value();
        std::fwrite(buffer.data(), 1, *got, stdout);
    }
}

int main() {
    return nowait::run(listen()).value_or(false) ? 0 : 1;
}
