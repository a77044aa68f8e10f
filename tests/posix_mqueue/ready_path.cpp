// A message there, a place free: one system call each, nothing else. Nothing there: one, and no timer in the kernel.
#include "counting_new.hpp"
#include "queue_support.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include <sys/ptrace.h>

namespace queues {
namespace {

/// A system call that nothing here makes, to mark a place in a trace.
void mark() noexcept {
    ::syscall(SYS_getpgid, 0);
}

constexpr int rounds = 50; // within one turn's budget

task<int> marked_rounds(const posix_mqueue& queue) {
    buffer room;
    const std::string text(100, 'x');
    for (int i = 0; i < 3; ++i) { // warm: bound to the loop, predictor at rest
        auto done = co_await queue.send(text, 2);
        auto got = co_await queue.receive(room);
        if (!done || !got)
            co_return 3;
    }
    co_await nowait::yield();
    mark();
    for (int i = 0; i < rounds; ++i) {
        auto done = co_await queue.send(text, 2);
        auto got = co_await queue.receive(room);
        if (!done || !got || got->value.size() != text.size() || got->priority != 2)
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
            ::_exit(not_allowed);
        ::raise(SIGSTOP);
        const auto queue = make_queue();
        auto got = nowait::run(marked_rounds(queue));
        (void)posix_mqueue::unlink(queue.name());
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

task<> counted_rounds(const posix_mqueue& queue) {
    buffer room;
    auto done = co_await queue.send("warm");
    auto got = co_await queue.receive(room);
    const auto before = nowait::current_stats();
    const std::size_t allocations = nowait_test::allocations();
    int failures = 0;
    for (int i = 0; i < rounds; ++i) {
        done = co_await queue.send("message", 5);
        got = co_await queue.receive(room);
        failures += !done || !got;
    }
    const std::size_t allocated = nowait_test::allocations() - allocations;
    const auto after = nowait::current_stats();
    CHECK(failures == 0);
    CHECK(allocated == 0);
    for (const auto kind : {nowait::operation_kind::queue_send, nowait::operation_kind::queue_receive}) {
        CHECK(after.of(kind).inline_completions - before.of(kind).inline_completions == rounds);
        CHECK(after.of(kind).armed == before.of(kind).armed);
        CHECK(after.of(kind).nowait_misses == before.of(kind).nowait_misses);
    }
    CHECK(after.turns == before.turns);
    CHECK(after.submissions == before.submissions);
}

/// The suspended path: every receive waits for a message that the other task sends.
task<> answers(const posix_mqueue& questions, const posix_mqueue& replies, int count) {
    buffer room;
    for (int i = 0; i < count; ++i) {
        auto got = co_await questions.receive(room);
        auto done = co_await replies.send("reply");
        if (!got || !done)
            co_return;
    }
}

task<> waits_without_memory(const posix_mqueue& questions, const posix_mqueue& replies) {
    auto other = nowait::spawn(answers(questions, replies, rounds + 5));
    buffer room;
    std::size_t allocations = 0;
    int failures = 0;
    for (int i = 0; i < rounds + 5; ++i) {
        if (i == 5)
            allocations = nowait_test::allocations();
        auto done = co_await questions.send("question");
        auto got = co_await replies.receive(room);
        failures += !done || !got;
    }
    const std::size_t allocated = nowait_test::allocations() - allocations;
    (void)co_await other.join();
    CHECK(failures == 0);
    CHECK(allocated == 0);
    CHECK(nowait::current_stats().of(nowait::operation_kind::queue_receive).armed >= rounds);
}

/// Nanoseconds of one call, the best of many batches: what else runs on the machine only makes a batch longer.
template <class Call>
double best_of(Call call) {
    double best = std::numeric_limits<double>::max();
    for (int batch = 0; batch < 201; ++batch) {
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < 100; ++i)
            call();
        const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
        best = std::min(best, took.count() / 100);
    }
    return best;
}

} // namespace

TEST_CASE("a ready send and a ready receive are one system call each") {
    int status = 0;
    const auto calls = traced_calls(status);
    if (status == not_allowed) {
        WARN("ptrace is not allowed here");
        return;
    }
    CHECK(status == 0);
    const std::map<long, int> expected{{SYS_mq_timedsend, rounds}, {SYS_mq_timedreceive, rounds}};
    CHECK(calls == expected);
}

TEST_CASE("a ready send and a ready receive allocate nothing and leave the loop alone") {
    const auto queue = make_queue();
    run_on_new(counted_rounds(queue));
}

TEST_CASE("a receive that waits allocates nothing either") {
    const auto questions = make_queue();
    const auto replies = make_queue();
    run_on_new(waits_without_memory(questions, replies));
}

// Not a test but figures, by name: test_posix_mqueue "[miss]"
TEST_CASE("what a miss costs, by its deadline", "[.][miss]") {
    const auto queue = make_queue(1);
    std::array<char, message_bytes> room;
    const auto receive = [&](timespec deadline) {
        return best_of([&, deadline] {
            (void)::mq_timedreceive(queue.native_handle(), room.data(), room.size(), nullptr, &deadline);
        });
    };
    std::printf("empty system call %.0f ns, deadline {0, 0} %.0f ns, {0, 1} %.0f ns, {1, 0} %.0f ns\n",
                best_of([] { ::syscall(SYS_getppid); }), receive({0, 0}), receive({0, 1}), receive({1, 0}));
}

TEST_CASE("a miss costs no timer: less than four empty system calls") {
    const auto queue = make_queue(1);
    auto& calls = nowait::detail::real_system();
    const double empty = best_of([] { ::syscall(SYS_getppid); });
    buffer room;
    unsigned priority = 0;
    const double miss = best_of(
        [&] { (void)calls.queue_receive(queue.native_handle(), room.data(), room.size(), priority); });
    REQUIRE(queue.try_send("full"));
    const double full =
        best_of([&] { (void)calls.queue_send(queue.native_handle(), room.data(), room.size(), 0); });
    // Sending, the kernel copies the message before it looks for room. So it does where O_NONBLOCK keeps it from waiting.
    const mqd_t nonblocking = ::mq_open(queue.name().c_str(), O_WRONLY | O_NONBLOCK);
    const double refused = best_of(
        [&] { (void)::mq_send(nonblocking, reinterpret_cast<const char*>(room.data()), room.size(), 0); });
    ::mq_close(nonblocking);
    CAPTURE(empty, miss, full, refused);
    CHECK(miss < 4 * empty);
    CHECK(full < 3 * refused); // a timer would be twenty times as much
}

} // namespace queues
