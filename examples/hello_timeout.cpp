// Time-outs: around one operation, around a task, around everything.
//
//     hello_timeout
#include <nowait/nowait.hpp>

#include <array>
#include <chrono>
#include <cstdio>

using namespace std::chrono_literals;

namespace {

/// Gives an answer after a while. It listens: a stop ends the sleep, and the task says so.
nowait::task<nowait::result<int>> slow_answer(std::chrono::milliseconds takes) {
    auto slept = co_await nowait::sleep_for(takes);
    if (!slept)
        co_return nowait::fail(slept.error());
    co_return 42;
}

nowait::task<int> hello() {
    // An operation: a read of a pipe in which nothing is.
    nowait::pipe_pair pipe = nowait::make_pipe().value();
    std::array<std::byte, 16> buffer{};
    auto got = co_await nowait::with_timeout(pipe.reader.read(buffer), 10ms);
    std::printf("read:        %s\n", got ? "data" : got.error().message().c_str());

    // It has taken nothing: what comes later is there.
    (void)co_await pipe.writer.write("late");
    auto again = co_await nowait::with_timeout(pipe.reader.read(buffer), 10ms);
    std::printf("read again:  %zu bytes\n", again.value_or(0));

    // A task: it is asked to stop when the time is up, and awaited.
    auto quick = co_await nowait::with_timeout(slow_answer(5ms), 1s);
    auto slow = co_await nowait::with_timeout(slow_answer(1h), 10ms);
    std::printf("quick task:  %d\n", quick.value_or(0));
    std::printf("slow task:   %s\n", slow ? "an answer" : slow.error().message().c_str());

    // Everything at once, until a point in time.
    const auto until = std::chrono::steady_clock::now() + 20ms;
    auto both = nowait::when_all(slow_answer(1ms), slow_answer(1h));
    auto all = co_await nowait::with_deadline(std::move(both), until);
    const auto& [first, second] = *all; // each part has its own result: nothing that was done is lost
    std::printf("both:        %d, %s\n", first.value_or(0), second.error().message().c_str());
    co_return got || slow || second ? 1 : 0;
}

} // namespace

int main() {
    auto ran = nowait::run(hello());
    return ran ? *ran : 1;
}
