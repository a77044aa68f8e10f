// A system that gives no threads, or none any more: as it does at a limit of processes.
#include "catch.hpp"
#include "child_process.hpp"
#include "pool_support.hpp"
#include "runs.hpp"
#include "sandbox.hpp"
#include "sanitizers.hpp"

#include <nowait/fifo.hpp>
#include <nowait/pipe.hpp>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>
#include <vector>

#include <sys/syscall.h>

using nowait::blocking;
using nowait::task;
using nowait::work_account;
using nowait_test::gate;
using nowait_test::make_pool;
using nowait_test::make_runtime;

namespace {

/// The rest of the test runs in a process that may refuse itself threads. False: this is not it, and it has ended well.
bool in_a_process_of_its_own(const char* name) {
    if (std::getenv("NOWAIT_TEST_ALONE") != nullptr)
        return true;
    const auto end = nowait_test::run_again({name}, {{"NOWAIT_TEST_ALONE", "1"}});
    INFO(end.errors);
    REQUIRE(end.signal == 0);
    REQUIRE(end.exit_code == 0);
    REQUIRE(end.errors.find("All tests passed") != std::string::npos);
    return false;
}

nowait::runtime_options on(nowait::worker_pool& pool) {
    nowait::runtime_options options;
    options.pool = &pool;
    return options;
}

template <class Description>
task<void> keep(Description what, int& to) {
    auto got = co_await std::move(what);
    to = got ? 0 : got.error().value();
}

} // namespace

TEST_CASE("without any thread work ends with the system's error, and everything else goes on",
          "[alone_none]") {
    if (!in_a_process_of_its_own("[alone_none]"))
        return;
    REQUIRE(nowait_test::refuse(SYS_clone3, EAGAIN));
    auto pool = make_pool();
    auto runtime = make_runtime(on(pool));
    auto work = [] { return 1; };
    std::vector<int> ends(5, -1);
    for (std::size_t i = 0; i < ends.size(); ++i) {
        if (i == 4)
            runtime.spawn(keep(blocking(nowait::interruptible, work), ends[i])).detach();
        else
            runtime.spawn(keep(blocking(work), ends[i])).detach();
    }
    REQUIRE(runtime.run());
    REQUIRE(ends == std::vector<int>(5, EAGAIN));
    REQUIRE(pool.stats().bounded.failed == 4);
    REQUIRE(pool.stats().bounded.threads_not_started >= 1);
    REQUIRE(pool.stats().bounded.queued == 0);

    // An opening that would have to wait says so, one that need not succeeds; pipes need nobody.
    const std::string path = "/tmp/nowait-no-threads-" + std::to_string(::getpid());
    REQUIRE(nowait::make_fifo(path));
    auto opens = runtime.run([](const std::string& of) -> task<int> {
        auto first = co_await nowait::open_writer(of);
        REQUIRE((!first && first.error() == std::errc::resource_unavailable_try_again));
        auto reader = nowait::open_reader(of);
        auto second = co_await nowait::open_writer(of);
        REQUIRE((reader && second));
        auto sent = co_await second->write("x");
        std::array<std::byte, 4> room{};
        auto got = co_await reader->read(room);
        co_return sent&& got ? static_cast<int>(*got) : -1;
    }(path));
    ::unlink(path.c_str());
    REQUIRE(opens.value() == 1);
}

namespace {

struct crowd {
    gate go_on;
    std::vector<int> ends = std::vector<int>(20, -1);
    int ran = 0; // no lock: it is always the same thread
};

task<void> submit_behind_one(nowait::worker_pool& pool, crowd& all) {
    while (pool.stats().bounded.taken != 1)
        co_await nowait::yield();
    REQUIRE(nowait_test::refuse(SYS_clone3, EAGAIN));
    auto work = [&all] { ++all.ran; };
    std::vector<nowait::join_handle<void>> waiting;
    for (int& end : all.ends)
        waiting.push_back(nowait::spawn(keep(blocking(work), end)));
    while (pool.stats().bounded.submitted != 21)
        co_await nowait::yield();
    REQUIRE(pool.stats().bounded.queued == 20);
    all.go_on.open();
    for (auto& each : waiting)
        (void)co_await each.join();
}

} // namespace

TEST_CASE("with a thread and no second one all work is done by that one", "[alone_one]") {
    if (!in_a_process_of_its_own("[alone_one]"))
        return;
    int told = 0;
    auto pool = make_pool({.bounded_max = 4, .on_exhausted = [&told](const nowait::pool_exhaustion& what) {
                               told += what.account == work_account::bounded && what.workers == 1 ? 1 : 100;
                           }});
    auto runtime = make_runtime(on(pool));
    crowd all;
    int first = -1;
    auto holds = [&all] { all.go_on.pass(); };
    runtime.spawn(keep(blocking(holds), first)).detach();
    REQUIRE(runtime.run(submit_behind_one(pool, all)));
    REQUIRE(first == 0);
    REQUIRE(all.ends == std::vector<int>(20, 0));
    REQUIRE(all.ran == 20);
    REQUIRE(told == 1);
    REQUIRE(pool.stats().bounded.exhausted == 1);
    REQUIRE(pool.stats().bounded.threads_started == 1);
    REQUIRE(pool.stats().bounded.threads_not_started >= 1);
    REQUIRE(pool.stats().bounded.failed == 0);
}
