// What nowait-first means, in counters: data that is there is read at once, only what is not there is waited for.
//
//     build/release/examples/hello_stats
#include <nowait/nowait.hpp>

#include <array>
#include <cinttypes>
#include <cstdio>

static void print(const char* when) {
    const auto reads = nowait::current_stats().of(nowait::operation_kind::read);
    std::printf("%-28s %3" PRIu64 " inline, %3" PRIu64 " armed, %3" PRIu64 " attempts found nothing\n", when,
                reads.inline_completions, reads.armed, reads.nowait_misses);
}

static nowait::task<void> late(const nowait::pipe_writer& to) {
    (void)co_await to.write("x");
}

static nowait::task<void> count() {
    auto pipe = nowait::make_pipe().value();
    std::array<std::byte, 1> byte{};
    for (int i = 0; i < 100; ++i) {
        (void)co_await pipe.writer.write("x");
        (void)co_await pipe.reader.read(byte); // one system call, no suspension
    }
    print("data first, 100 reads:");
    for (int i = 0; i < 100; ++i) {
        auto writing = nowait::spawn(late(pipe.writer));
        (void)co_await pipe.reader.read(byte); // empty: suspended until the other task has written
        (void)co_await writing.join();
    }
    print("then readers first, 100 more:");
}

int main() {
    return nowait::run(count()) ? 0 : 1;
}
