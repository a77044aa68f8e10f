// A program of somebody else's, built against the installed package: a pipe, two tasks, one sentence.
#include <nowait/nowait.hpp>

#include <array>
#include <cstdio>
#include <string_view>

namespace {

nowait::task<void> say(nowait::pipe_writer out) {
    auto sent = co_await out.write(std::string_view("hello, nowait"));
    if (!sent)
        std::fprintf(stderr, "write: %s\n", sent.error().message().c_str());
} // `out` closes here, before whoever joins this task goes on

nowait::task<int> converse() {
    auto made = nowait::make_pipe();
    if (!made)
        co_return 1;
    auto speaker = nowait::spawn(say(std::move(made->writer)));
    std::array<std::byte, 64> buffer;
    std::size_t filled = 0;
    for (;;) {
        auto room = std::span(buffer).subspan(filled);
        auto got = co_await made->reader.read(room);
        if (!got)
            co_return 1;
        if (*got == 0)
            break;
        filled += *got;
    }
    auto joined = co_await speaker.join();
    if (!joined)
        co_return 1;
    std::printf("consumer: %zu bytes: %.*s\n", filled, static_cast<int>(filled),
                reinterpret_cast<const char*>(buffer.data()));
    co_return 0;
}

} // namespace

int main() {
    auto status = nowait::run(converse());
    if (!status) {
        std::fprintf(stderr, "consumer: %s\n", status.error().message().c_str());
        return 1;
    }
    return *status;
}
