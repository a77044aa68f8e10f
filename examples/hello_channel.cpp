// Two tasks talk through an in-process pipe: a producer that writes lines in place, and a consumer that reads to the end.
#include <nowait/nowait.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

nowait::task<> produce(nowait::pipe_channel_writer writer) {
    for (int i = 1; i <= 3; ++i) {
        auto room = co_await writer.reserve(64);
        if (!room)
            co_return; // nobody reads any more
        const std::string line = "hello " + std::to_string(i) + "\n";
        std::ranges::copy(std::as_bytes(std::span(line)), room->parts().front().begin());
        (void)room->commit(line.size());
    }
} // the writer dies here: end of stream

nowait::task<int> consume(nowait::pipe_channel_reader reader) {
    std::array<char, 256> buffer;
    const std::span<std::byte> space = std::as_writable_bytes(std::span(buffer));
    for (;;) {
        auto n = co_await reader.read(space);
        if (!n || *n == 0)
            co_return n ? 0 : 1;
        std::fwrite(buffer.data(), 1, *n, stdout);
    }
}

nowait::task<int> hello(nowait::pipe_channel channel) {
    auto producer = nowait::spawn(produce(std::move(channel.writer)));
    co_return co_await consume(std::move(channel.reader));
}

int main() {
    auto channel = nowait::pipe_channel::create();
    return channel ? nowait::run(hello(std::move(*channel))).value_or(1) : 1;
}
