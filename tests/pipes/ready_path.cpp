// Data ready, room ready: one system call, nothing else.
#include "counting_new.hpp"
#include "pipes_support.hpp"

#include <map>

#include <sys/ptrace.h>
#include <sys/syscall.h>

namespace pipes {
namespace {

/// A system call that nothing here makes, to mark a place in a trace.
void mark() noexcept {
    ::syscall(SYS_getpgid, 0);
}

constexpr int rounds = 50; // within one turn's budget

task<int> marked_rounds() {
    auto made = nowait::make_pipe();
    if (!made)
        co_return 2;
    std::array<char, 512> out{};
    std::array<char, 512> in{};
    for (int i = 0; i < 3; ++i) { // warm: bound to the loop, predictor at rest
        auto wrote = co_await made->writer.write(std::string_view(out.data(), out.size()));
        auto read = co_await made->reader.read(room_in(in));
        if (!wrote || !read)
            co_return 3;
    }
    co_await nowait::yield();
    mark();
    for (int i = 0; i < rounds; ++i) {
        auto wrote = co_await made->writer.write(std::string_view(out.data(), out.size()));
        auto read = co_await made->reader.read(room_in(in));
        if (!wrote || *wrote != out.size() || !read || *read != in.size())
            co_return 4;
    }
    mark();
    co_return 0;
}

/// Runs `marked_rounds` in a traced child. Returns: how often each system call was made between the marks.
std::map<long, int> traced_calls(int& exit_status) {
    std::map<long, int> calls;
    std::fflush(nullptr);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0)
            ::_exit(77);
        ::raise(SIGSTOP);
        auto got = nowait::run(marked_rounds());
        ::_exit(got ? *got : 5);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    bool inside = false;
    bool first = true;
    while (!WIFEXITED(status) && !WIFSIGNALED(status)) {
        if (std::exchange(first, false))
            ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
        int signal = 0;
        if (WIFSTOPPED(status) && WSTOPSIG(status) == (SIGTRAP | 0x80)) {
            __ptrace_syscall_info info{};
            ::ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info);
            if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
                const long number = static_cast<long>(info.entry.nr);
                if (number == SYS_getpgid)
                    inside = !inside;
                else if (inside)
                    ++calls[number];
            }
        } else if (WIFSTOPPED(status) && WSTOPSIG(status) != SIGSTOP) {
            signal = WSTOPSIG(status);
        }
        ::ptrace(PTRACE_SYSCALL, child, nullptr, signal);
        REQUIRE(::waitpid(child, &status, 0) == child);
    }
    exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return calls;
}

} // namespace

TEST_CASE("a ready read and a ready write are exactly one system call each") {
    int status = 0;
    const auto calls = traced_calls(status);
    if (status == 77) {
        WARN("tracing is not allowed here");
        return;
    }
    REQUIRE(status == 0);
    CHECK(calls == std::map<long, int>{{SYS_read, rounds},
                                       {SYS_write, rounds}}); // the reader is ours: no SIGPIPE to keep away
}

namespace {

struct spent {
    std::size_t allocations;
    nowait::runtime_stats before;
    nowait::runtime_stats after;
};

task<spent> counted_rounds(bool borrowed) {
    auto made = make_pipe();
    auto reader =
        borrowed ? nowait::pipe_reader::borrow(made.reader.native_handle()).value() : std::move(made.reader);
    auto writer =
        borrowed ? nowait::pipe_writer::borrow(made.writer.native_handle()).value() : std::move(made.writer);
    std::array<char, 512> block{};
    for (int i = 0; i < 3; ++i) {
        (void)co_await writer.write(std::string_view(block.data(), block.size()));
        (void)co_await reader.read(room_in(block));
    }
    co_await nowait::yield();
    spent s{};
    s.before = nowait::current_stats();
    s.allocations = nowait_test::allocations();
    for (int i = 0; i < rounds; ++i) {
        (void)co_await writer.write(std::string_view(block.data(), block.size()));
        (void)co_await reader.read(room_in(block));
    }
    s.allocations = nowait_test::allocations() - s.allocations;
    s.after = nowait::current_stats();
    co_return s;
}

} // namespace

TEST_CASE("the ready path allocates nothing, submits nothing, suspends nothing") {
    const bool borrowed = GENERATE(false, true);
    CAPTURE(borrowed);
    const auto s = nowait::run(counted_rounds(borrowed)).value();
    CHECK(s.allocations == 0);
    CHECK(s.after.submissions == s.before.submissions);
    CHECK(s.after.enters == s.before.enters);
    CHECK(s.after.turns == s.before.turns);
    CHECK(reads(s.after).inline_completions - reads(s.before).inline_completions == rounds);
    CHECK(writes(s.after).inline_completions - writes(s.before).inline_completions == rounds);
    CHECK(reads(s.after).armed == reads(s.before).armed);
    CHECK(reads(s.after).nowait_misses == 0);
}

namespace {

task<spent> suspended_rounds() {
    auto there = make_pipe();
    std::array<char, 64> block{};
    outcome out;
    spent s{};
    for (int i = 0; i < 120; ++i) {
        if (i == 20) { // frames, blocks and rings are warm by now
            s.before = nowait::current_stats();
            s.allocations = nowait_test::allocations();
        }
        out.done = false;
        auto waiting = nowait::spawn(read_into(there.reader, room_in(block), out));
        co_await nowait::yield();
        (void)co_await there.writer.write("wake up");
        (void)co_await waiting.join();
        if (!out.done)
            break;
    }
    s.allocations = nowait_test::allocations() - s.allocations;
    s.after = nowait::current_stats();
    co_return s;
}

} // namespace

TEST_CASE("a wait allocates nothing either") {
    const auto s = nowait::run(suspended_rounds()).value();
    CHECK(reads(s.after).armed - reads(s.before).armed == 100);
    CHECK(s.allocations == 0);
}

namespace {

task<int> busy_pair(nowait::pipe_pair& pair, const bool& stop) {
    std::array<char, 1> byte{};
    int rounds_made = 0;
    while (!stop) {
        auto wrote = co_await pair.writer.write("x");
        auto read = co_await pair.reader.read(room_in(byte));
        if (!wrote || !read)
            co_return -1;
        ++rounds_made;
    }
    co_return rounds_made;
}

task<> ticks(int& count) {
    for (int i = 0; i < 20; ++i) {
        auto slept = co_await nowait::sleep_for(1ms);
        if (!slept)
            co_return;
        ++count;
    }
}

task<> pass_on(nowait::pipe_pair& pair, int& count) {
    for (int i = 0; i < 200; ++i) {
        std::array<char, 1> byte{};
        outcome out;
        auto waiting = nowait::spawn(read_into(pair.reader, room_in(byte), out));
        co_await nowait::yield();
        (void)co_await pair.writer.write("y");
        (void)co_await waiting.join();
        count += out.value.value_or(0) == 1;
    }
}

task<> beside_a_busy_pair(int& ticked, int& passed, nowait::runtime_stats& stats) {
    auto busy = make_pipe();
    auto other = make_pipe();
    bool stop = false;
    auto endless = nowait::spawn(busy_pair(busy, stop));
    auto timers = nowait::spawn(ticks(ticked));
    auto passing = nowait::spawn(pass_on(other, passed));
    (void)co_await timers.join();
    (void)co_await passing.join();
    stop = true;
    auto rounds_made = co_await endless.join();
    CHECK(rounds_made.value() > 0);
    stats = nowait::current_stats();
}

} // namespace

TEST_CASE("a pair that always has data leaves a timer and another pipe their share") {
    int ticked = 0;
    int passed = 0;
    nowait::runtime_stats stats;
    REQUIRE(nowait::run(beside_a_busy_pair(ticked, passed, stats)));
    CHECK(ticked == 20);
    CHECK(passed == 200);
    CHECK(reads(stats).budget_yields + writes(stats).budget_yields > 0);
}

} // namespace pipes
