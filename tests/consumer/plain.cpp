// A program of somebody else's that does without exceptions and run-time type information: errors are values.
//
//     consumer_plain            one sentence, through everything
//     consumer_plain exhaust    a line that memory does not suffice for: the program ends where it is refused
#include <nowait/nowait.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#if defined(__cpp_exceptions) || defined(__cpp_rtti)
#error "compile this with -fno-exceptions -fno-rtti"
#endif

using namespace std::chrono_literals;

namespace {

nowait::task<nowait::result<void>> spell(nowait::mqueue_channel<std::string> jobs, nowait::pipe_writer out) {
    nowait::buffered_writer words(out);
    for (;;) {
        auto job = co_await jobs.receive();
        if (!job)
            break; // closed, and empty
        auto accepted = co_await words.write(std::string_view(job->value));
        if (!accepted)
            co_return nowait::fail(accepted.error());
    }
    auto closed = co_await words.close();
    if (!closed)
        co_return nowait::fail(closed.error());
    co_return nowait::result<void>();
}

/// Through a pipe of the kernel, an in-process one, and a channel.
nowait::task<nowait::result<void>> carry(nowait::pipe_reader in, nowait::pipe_channel_writer out) {
    std::array<std::byte, 16> buffer{};
    for (;;) {
        auto got = co_await in.read(std::span<std::byte>(buffer));
        if (!got)
            co_return nowait::fail(got.error());
        if (*got == 0)
            break;
        auto part = std::span<const std::byte>(buffer).first(*got);
        auto put = co_await nowait::write_all(out, part);
        if (!put.ok())
            co_return nowait::fail(put.error);
    }
    co_return nowait::result<void>();
}

nowait::task<int> converse() {
    auto pipe = nowait::make_pipe();
    auto inside = nowait::pipe_channel::create();
    auto jobs = nowait::mqueue_channel<std::string>::create({.capacity = 4});
    auto never = nowait::channel<int>::create(1);
    if (!pipe || !inside || !jobs || !never)
        co_return 1;

    nowait::task_scope scope;
    scope.spawn(spell(*jobs, std::move(pipe->writer)));
    scope.spawn(carry(std::move(pipe->reader), std::move(inside->writer)));
    std::string last = "nowait\n";
    std::string first = "hello, ";
    auto one = co_await jobs->send(last, 1);
    auto two = co_await jobs->send(first, 2);
    if (!one || !two)
        co_return 2;
    jobs->close();

    // What comes first, and what is bounded in time.
    nowait::line_reader lines(inside->reader);
    auto race = co_await nowait::when_any(lines.next(), never->receive());
    auto& line = race.get<0>();
    if (!line || !*line)
        co_return 3;
    std::printf("consumer: %zu bytes: %.*s\n", (*line)->size(), static_cast<int>((*line)->size()),
                (*line)->data());
    auto bounded = nowait::with_timeout(never->receive(), 1ms);
    auto late = co_await std::move(bounded);
    if (late || late.error() != std::errc::timed_out)
        co_return 4;
    auto ended = co_await scope.join();
    if (!ended)
        co_return 5;

    // Work that blocks, with its error as a value.
    auto failing = []() -> nowait::result<int> { return nowait::fail(std::errc::host_unreachable); };
    auto computing = [] { return 7; };
    auto failed = co_await nowait::blocking(failing);
    auto computed = co_await nowait::blocking(computing);
    if (failed || failed.error() != std::errc::host_unreachable || !computed || *computed != 7)
        co_return 6;
    // Misuse, too.
    const nowait::pipe_reader nothing;
    std::byte byte{};
    auto refused = co_await nothing.read(std::span(&byte, 1));
    if (refused || refused.error() != std::errc::bad_file_descriptor)
        co_return 7;
    co_return 0;
}

nowait::task<int> exhaust() {
    auto input = nowait::standard_input();
    if (!input)
        co_return 1;
    nowait::line_reader lines(*input, {.max_length = std::size_t(1) << 40});
    auto line = co_await lines.next();
    co_return line ? 2 : 3;
}

} // namespace

int main(int argc, char**) {
    auto status = argc > 1 ? nowait::run(exhaust()) : nowait::run(converse());
    if (!status) {
        std::fprintf(stderr, "consumer: %s\n", status.error().message().c_str());
        return 1;
    }
    return *status;
}
