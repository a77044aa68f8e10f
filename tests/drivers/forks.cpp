// fork() and what the child may not do.
#include "drivers_support.hpp"
#include "sanitizers.hpp"

#include <atomic>
#include <memory>
#include <thread>

namespace drivers_tests {
namespace {

runtime_options by_turns() {
    runtime_options options;
    options.driver = GENERATE(driver_choice::uring, driver_choice::poll);
    return options;
}

int wait_for(pid_t child) {
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// In the child every operation that could be done at once is not done: its first await gives control back to the loop.
task<int> forks_and_goes_on(nowait::pipe_pair& pipe, pid_t& child) {
    const auto warm = co_await pipe.writer.write("w");
    const auto back = co_await read_text(pipe.reader);
    CHECK((warm && back == "w"));
    child = ::fork();
    if (child == 0) {
        (void)co_await pipe.writer.write("from the child");
        ::_exit(9); // never
    }
    const auto status = wait_for(child);
    CHECK(status == 0);
    std::array<char, 32> room{};
    const auto none = co_await nowait::with_timeout(pipe.reader.read(room_in(room)), 1ms);
    CHECK(error_of(none) == ETIMEDOUT);
    co_return 7;
}

} // namespace

TEST_CASE("a child that forked inside a task makes no attempt, not even one that would succeed") {
    const pid_t parent = ::getpid();
    runtime runs = make_runtime(by_turns());
    nowait::pipe_pair pipe = nowait::make_pipe().value();
    pid_t child = -1;
    const auto ran = runs.run(forks_and_goes_on(pipe, child));
    if (::getpid() != parent)
        ::_exit(!ran && ran.error() == std::errc::state_not_recoverable ? 0 : 1);
    CHECK(ran.value_or(0) == 7);
}

TEST_CASE("a child that returns and destroys everything, and one that became a daemon") {
    const pid_t parent = ::getpid();
    const runtime_options options = by_turns();
    auto runs = std::make_unique<runtime>(make_runtime(options));
    nowait::pipe_pair pipe = nowait::make_pipe().value();
    const auto wait_once = [](nowait::pipe_pair& p) -> task<std::string> {
        outcome one;
        auto waiting = nowait::spawn(read_into(p.reader, one));
        (void)co_await nowait::sleep_for(100us);
        (void)co_await p.writer.write("parent");
        (void)co_await waiting.join();
        co_return one.text;
    };
    REQUIRE(runs->run(wait_once(pipe)).value() == "parent");
    const pid_t child = ::fork();
    if (child == 0) {
        bool refused = error_of(runs->run()) == EPERM;
        const pid_t second = ::fork();
        if (second == 0) {
            refused = error_of(runs->run(wait_once(pipe))) == EPERM && refused;
            // "Make it anew after fork" works.
            runtime_options anew = options;
            runtime own = runtime::create(anew).value();
            nowait::pipe_pair fresh = nowait::make_pipe().value();
            const bool works = own.run(wait_once(fresh)).value_or("") == "parent";
            runs.reset();
            pipe = {};
            ::_exit(refused && works ? 0 : 1);
        }
        runs.reset(); // closes numbers, and nothing of the parent's
        pipe = {};
        ::_exit(wait_for(second) == 0 && refused ? 0 : 1);
    }
    CHECK(::getpid() == parent);
    CHECK(wait_for(child) == 0);
    for (int i = 0; i < 20; ++i)
        REQUIRE(runs->run(wait_once(pipe)).value() == "parent");
}

TEST_CASE("a child that closes every object takes nothing from its parent's epoll set or ring") {
    const pid_t parent = ::getpid();
    runtime runs = make_runtime(by_turns());
    std::vector<nowait::pipe_pair> pipes;
    for (int i = 0; i < 10; ++i)
        pipes.push_back(nowait::make_pipe().value());
    auto body = [](std::vector<nowait::pipe_pair>& all, pid_t& child) -> task<int> {
        std::vector<outcome> outcomes(all.size());
        std::vector<nowait::join_handle<void>> readers;
        for (std::size_t i = 0; i < all.size(); ++i)
            readers.push_back(nowait::spawn(read_into(all[i].reader, outcomes[i])));
        (void)co_await nowait::sleep_for(1ms); // all are armed
        child = ::fork();
        if (child == 0) {
            for (auto& pipe : all) {
                (void)pipe.reader.close();
                (void)pipe.writer.close();
            }
            ::_exit(0);
        }
        if (wait_for(child) != 0)
            co_return -1;
        int arrived = 0;
        for (std::size_t i = 0; i < all.size(); ++i) {
            (void)co_await all[i].writer.write("event");
            (void)co_await readers[i].join();
            arrived += outcomes[i].text == "event";
        }
        co_return arrived;
    };
    pid_t child = -1;
    const auto ran = runs.run(body(pipes, child));
    REQUIRE(::getpid() == parent);
    CHECK(ran.value_or(-1) == 10);
}

namespace {

/// How many processes the next test starts on each of the two drivers; 10,000 in all take about 6 s, unless NOWAIT_TEST_SPAWNS
/// says otherwise.
int spawns() {
    const char* asked = std::getenv("NOWAIT_TEST_SPAWNS");
    constexpr bool watched =
        nowait_test::address_sanitizer || nowait_test::thread_sanitizer; // each fork is dear
    return asked != nullptr ? std::atoi(asked) : watched ? 100 : 5000;
}

struct poster {
    std::atomic<bool> out{false}; // its last piece has not been run yet
    std::atomic<int> done{0};
};

/// Allocates and posts what it has allocated to the loop, one piece after the other.
void post_on_and_on(const nowait::remote_runtime& to, const std::atomic<bool>& over, poster& self) {
    while (!over) {
        self.out = true;
        std::string made(1000, 'm');
        const bool taken = to.post([&self, text = std::move(made)] {
            self.out = text.empty();
            self.out.notify_one();
        });
        if (taken)
            self.out.wait(true);
        ++self.done;
    }
}

/// A few children at a time. Returns: those that were executed and ended well.
task<int> fork_and_exec(int count) {
    constexpr std::size_t at_once = 4;
    std::array<pid_t, at_once> children{};
    int good = 0;
    for (int i = 0; i < count + static_cast<int>(at_once); ++i) {
        pid_t& place = children[static_cast<std::size_t>(i) % at_once];
        if (place > 0)
            good += wait_for(place) == 0;
        place = i < count ? ::fork() : 0;
        if (place == 0 && i < count) {
            ::execl("/bin/true", "true", static_cast<char*>(nullptr));
            ::_exit(1);
        }
        co_await nowait::yield();
    }
    co_return good;
}

} // namespace

TEST_CASE("fork and exec thousands of times beside eight threads that allocate and post") {
    std::array<poster, 8> posters{};
    runtime runs = make_runtime(by_turns());
    const nowait::remote_runtime remote = runs.remote();
    const int count = spawns();
    std::atomic<bool> over{false};
    std::atomic<std::size_t> at_work{posters.size()};
    std::vector<std::thread> threads;
    for (poster& one : posters) {
        threads.emplace_back([&] {
            post_on_and_on(remote, over, one);
            --at_work;
        });
    }
    const auto ran = runs.run([](int n, std::atomic<bool>& end, std::atomic<std::size_t>& left) -> task<int> {
        const int good = co_await fork_and_exec(n);
        end = true;
        while (left != 0) // what they have posted is run
            co_await nowait::yield();
        co_return good;
    }(count, over, at_work));
    for (std::thread& thread : threads)
        thread.join();
    CHECK(ran.value_or(-1) == count);
    for (const poster& one : posters)
        CHECK(one.done > 0);
}

} // namespace drivers_tests
