// A kernel that is short of memory: smaller rings, submissions that are taken in part.
#include "drivers_support.hpp"

#include <nowait/detail/system.hpp>

#include <atomic>
#include <thread>

#include <dlfcn.h>
#include <liburing.h>

namespace {

// While set: each call takes one entry at most, and after so many calls none at all (EAGAIN, EBUSY).
std::atomic<bool> short_submits{false};
std::atomic<int> refuse_every{0};
std::atomic<int> short_calls{0};
std::atomic<int> refused_calls{0};
std::atomic<int> cut_short{0};
// While set: the kernel does not know multishot polls (a flag that none knows makes it say so).
std::atomic<bool> no_multishot{false};
std::atomic<int> multishots{0};

// The rings of this program by their numbers: what is mapped stays where it is when a driver moves the description.
std::array<io_uring, 1024> rings;

void spoil_multishots(const io_uring& ring, unsigned tail) {
    const unsigned mask = *ring.sq.kring_mask;
    for (unsigned at = __atomic_load_n(ring.sq.khead, __ATOMIC_ACQUIRE); at != tail; ++at) {
        io_uring_sqe& entry = ring.sq.sqes[at & mask];
        if (entry.opcode == IORING_OP_POLL_ADD && entry.len == IORING_POLL_ADD_MULTI) {
            entry.len |= 1u << 20;
            multishots.fetch_add(1);
        }
    }
}

/// An error instead of this call, or 0.
int refused_now() {
    const int call = short_calls.fetch_add(1) + 1;
    const int every = refuse_every.load();
    if (every == 0 || call % every == 0)
        return 0;
    refused_calls.fetch_add(1);
    return call % 2 == 0 ? -EAGAIN : -EBUSY;
}

template <class Function>
Function original(const char* name) {
    return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

} // namespace

// In place of liburing's own: a submission that the kernel cuts short is one that offers less.

extern "C" int io_uring_queue_init_params(unsigned entries, io_uring* ring, io_uring_params* parameters) {
    static const auto real =
        original<int (*)(unsigned, io_uring*, io_uring_params*)>("io_uring_queue_init_params");
    const int outcome = real(entries, ring, parameters);
    if (outcome == 0 && static_cast<std::size_t>(ring->ring_fd) < rings.size())
        rings[static_cast<std::size_t>(ring->ring_fd)] = *ring;
    return outcome;
}

extern "C" int io_uring_submit_and_get_events(io_uring* ring) {
    if (no_multishot.load(std::memory_order_relaxed))
        spoil_multishots(*ring, ring->sq.sqe_tail);
    if (!short_submits.load(std::memory_order_relaxed)) {
        static const auto real = original<int (*)(io_uring*)>("io_uring_submit_and_get_events");
        return real(ring);
    }
    if (const int error = refused_now(); error != 0)
        return error;
    // Publishes everything that is queued, as the original does, and then offers one entry.
    io_uring_sq& sq = ring->sq;
    unsigned tail = *sq.ktail;
    const unsigned mask = *sq.kring_mask;
    for (unsigned at = sq.sqe_head; at != sq.sqe_tail; ++at, ++tail)
        sq.array[tail & mask] = at & mask;
    sq.sqe_head = sq.sqe_tail;
    __atomic_store_n(sq.ktail, tail, __ATOMIC_RELEASE);
    const unsigned queued = tail - __atomic_load_n(sq.khead, __ATOMIC_ACQUIRE);
    cut_short.fetch_add(queued > 1);
    const long n = ::syscall(SYS_io_uring_enter, ring->ring_fd, queued != 0 ? 1 : 0, 0,
                             IORING_ENTER_GETEVENTS, nullptr, 0);
    return n >= 0 ? static_cast<int>(n) : -errno;
}

extern "C" int io_uring_enter2(unsigned fd, unsigned queued, unsigned wanted, unsigned flags, sigset_t* extra,
                               std::size_t size) {
    static const auto real =
        original<int (*)(unsigned, unsigned, unsigned, unsigned, sigset_t*, std::size_t)>("io_uring_enter2");
    if (queued != 0 && no_multishot.load(std::memory_order_relaxed)) {
        const io_uring& ring = rings.at(fd);
        spoil_multishots(ring, __atomic_load_n(ring.sq.ktail, __ATOMIC_ACQUIRE));
    }
    if (queued != 0 && short_submits.load(std::memory_order_relaxed)) {
        if (const int error = refused_now(); error != 0)
            return error;
        if (queued > 1) { // then the kernel does not wait either
            cut_short.fetch_add(1);
            return real(fd, 1, 0, flags, extra, size);
        }
    }
    return real(fd, queued, wanted, flags, extra, size);
}

namespace drivers_tests {

namespace {

int work_is_done(const runtime_options& options, std::string_view expected) {
    auto made = runtime::create(options);
    CHILD_REQUIRE(made && made->driver() == expected);
    const auto ran = made->run([]() -> task<int> {
        nowait::pipe_pair pipe = nowait::make_pipe().value();
        outcome one;
        auto waiting = nowait::spawn(read_into(pipe.reader, one));
        (void)co_await nowait::sleep_for(1ms);
        (void)co_await pipe.writer.write("x");
        (void)co_await waiting.join();
        co_return one.text == "x" ? 0 : 1;
    }());
    CHILD_REQUIRE(ran.value_or(1) == 0);
    return 0;
}

} // namespace

TEST_CASE("ENOMEM for rings above 256 entries: a smaller ring, sixty-four times") {
    expect_success(in_child([] {
        ::unsetenv("NOWAIT_DRIVER");
        CHILD_REQUIRE(nowait_test::refuse_above(SYS_io_uring_setup, 256, ENOMEM));
        std::vector<runtime> many;
        for (int i = 0; i < 64; ++i) {
            runtime_options options;
            options.ring_entries = 4096;
            auto made = runtime::create(options);
            CHILD_REQUIRE(made && made->driver() == "uring" && made->stats().driver_fallbacks == 0);
            many.push_back(std::move(*made));
        }
        runtime_options options;
        options.ring_entries = 4096;
        options.driver = driver_choice::uring;
        return work_is_done(options, "uring");
    }));
}

TEST_CASE("ENOMEM for every ring: epoll, unless the ring was asked for by name") {
    expect_success(in_child([] {
        ::unsetenv("NOWAIT_DRIVER");
        CHILD_REQUIRE(refuse(SYS_io_uring_setup, ENOMEM));
        runtime_options options;
        CHILD_REQUIRE(work_is_done(options, "poll") == 0);
        CHILD_REQUIRE(runtime::create(options)->driver_reason() == "because io_uring_setup: ENOMEM");
        options.driver = driver_choice::uring;
        CHILD_REQUIRE(error_of(runtime::create(options)) == ENOMEM);
        return 0;
    }));
}

TEST_CASE("the error of a refused ring is the kernel's, whatever errno says") {
    expect_success(in_child([] {
        CHILD_REQUIRE(refuse(SYS_io_uring_setup, EPERM));
        runtime_options options;
        options.driver = driver_choice::uring;
        for (const int stale : {0, ENOENT}) {
            errno = stale;
            const auto made = runtime::create(options);
            CHILD_REQUIRE(error_of(made) == EPERM);
            CHILD_REQUIRE(nowait::explain(made.error(), nowait::subject::runtime).find("io_uring_disabled") !=
                          std::string::npos);
        }
        return 0;
    }));
}

TEST_CASE("without any right, and with little memory to lock") {
    expect_success(in_child([] {
        // Root is root by its capabilities: another user has none.
        if (::getuid() == 0)
            CHILD_REQUIRE(::setgid(65534) == 0 && ::setuid(65534) == 0);
        const char* asked = std::getenv("NOWAIT_DRIVER");
        return work_is_done({}, asked == nullptr || *asked == '\0' ? "uring" : asked);
    }));
}

namespace {

/// Many reads wait at once, and all of them end.
task<int> many_waits(int count) {
    std::vector<nowait::pipe_pair> pipes;
    std::vector<outcome> outcomes(static_cast<std::size_t>(count));
    std::vector<nowait::join_handle<void>> readers;
    for (int i = 0; i < count; ++i)
        pipes.push_back(nowait::make_pipe().value());
    for (std::size_t i = 0; i < pipes.size(); ++i)
        readers.push_back(nowait::spawn(read_into(pipes[i].reader, outcomes[i])));
    while (nowait::current_stats().of(nowait::operation_kind::read).armed < pipes.size())
        co_await nowait::yield();
    // Another thread writes, and there is no timer: the loop sleeps, and may not do so on entries that were not taken.
    std::thread writer([&pipes] {
        for (auto& pipe : pipes)
            (void)!::write(pipe.writer.native_handle(), "x", 1);
    });
    for (auto& reader : readers)
        (void)co_await reader.join();
    writer.join();
    for (const outcome& one : outcomes) {
        if (one.text != "x")
            co_return 2;
    }
    // Removals are submissions, too.
    for (auto& pipe : pipes)
        (void)pipe.reader.close();
    co_return 0;
}

} // namespace

TEST_CASE("submissions that are cut short, or not taken at all for a while, lose nothing") {
    struct case_of {
        unsigned entries;
        int refuse;
    };
    const case_of one = GENERATE(case_of{256, 0}, case_of{8, 0}, case_of{256, 3}, case_of{4, 4});
    CAPTURE(one.entries, one.refuse);
    runtime_options options;
    options.driver = driver_choice::uring;
    options.ring_entries = one.entries;
    runtime runs = make_runtime(options);
    short_calls = refused_calls = cut_short = 0;
    refuse_every = one.refuse;
    short_submits = true;
    const auto ran = runs.run(many_waits(50));
    short_submits = false;
    CHECK(ran.value_or(9) == 0);
    CHECK(cut_short.load() > 0);
    CHECK((refused_calls.load() > 0) == (one.refuse != 0));
}

namespace {

task<bool> sleeps() {
    const auto slept = co_await nowait::sleep_for(20ms);
    co_return slept.has_value();
}

} // namespace

TEST_CASE(
    "epoll_pwait2 refused, as by sandboxes that are older than it: sleeps are sleeps, and not too short") {
    static int error = 0;
    error = GENERATE(ENOSYS, EPERM);
    expect_success(in_child([] {
        CHILD_REQUIRE(refuse(SYS_epoll_pwait2, error));
        runtime_options options;
        options.driver = driver_choice::poll;
        auto made = runtime::create(options);
        CHILD_REQUIRE(made);
        const auto began = std::chrono::steady_clock::now();
        const auto before = made->stats();
        const auto ran = made->run(sleeps());
        const auto after = made->stats();
        CHILD_REQUIRE(ran.value_or(false));
        CHILD_REQUIRE(std::chrono::steady_clock::now() - began >= 20ms);
        CHILD_REQUIRE(after.enters - before.enters < 10); // it has not spun
        return work_is_done(options, "poll");
    }));
}

TEST_CASE("a kernel that does not know multishot polls: one downgrade, no unbounded retry") {
    runtime_options options;
    options.driver = driver_choice::uring;
    runtime runs = make_runtime(options);
    multishots = 0;
    no_multishot = true;
    const auto first = runs.run(many_waits(20));
    const int until_known = multishots;
    const auto before = runs.stats();
    const auto second = runs.run(many_waits(20));
    const auto after = runs.stats();
    no_multishot = false;
    CHECK(first.value_or(9) == 0);
    CHECK(second.value_or(9) == 0);
    // Where the feature is masked, none is tried.
    CHECK((until_known >= 1) == nowait::detail::real_system().has(nowait::detail::feature::multishot_poll));
    CHECK(until_known <= 21); // those that were on their way, and the one that wakes the loop
    CHECK(multishots == until_known);
    CHECK(after.submissions - before.submissions <= 3 * 20 + 10); // a poll each, and its removal at most
}

} // namespace drivers_tests
