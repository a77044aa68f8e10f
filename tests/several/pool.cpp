// runtime_pool: threads, spawning from anywhere, channels between them, the end.
#include "several_support.hpp"

#include <csignal>
#include <cstdio>
#include <fstream>

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace several_test;

namespace {

/// Names of this process's threads that begin with `start`.
std::vector<std::string> threads_called(const std::string& start) {
    std::vector<std::string> found;
    DIR* const tasks = ::opendir("/proc/self/task");
    while (const dirent* const entry = ::readdir(tasks)) {
        std::ifstream file(std::string("/proc/self/task/") + entry->d_name + "/comm");
        std::string name;
        if (std::getline(file, name) && name.rfind(start, 0) == 0)
            found.push_back(name);
    }
    ::closedir(tasks);
    std::sort(found.begin(), found.end());
    return found;
}

task<int> seven() {
    co_await nowait::yield();
    co_return 7;
}

} // namespace

TEST_CASE("a pool has as many runtimes as asked for, on named threads, and they end with it") {
    {
        nowait::runtime_pool_options options;
        options.count = 3;
        options.name = "several";
        auto pool = runtime_pool::create(options);
        REQUIRE(pool.has_value());
        CHECK(pool->size() == 3);
        for (std::size_t i = 0; i < 3; ++i)
            (void)thread_of(pool->at(i)); // it runs, so it has its name
        CHECK(threads_called("several") == std::vector<std::string>{"several/0", "several/1", "several/2"});
        CHECK(thread_of(pool->at(0)) != thread_of(pool->at(1)));
        CHECK(thread_of(pool->at(1)) == thread_of(pool->at(4)));
    }
    CHECK(threads_called("several").empty());
}

TEST_CASE("a pool has one runtime for each usable CPU by default, and may pin them") {
    cpu_set_t usable;
    CPU_ZERO(&usable);
    REQUIRE(::sched_getaffinity(0, sizeof usable, &usable) == 0);
    nowait::runtime_pool_options options;
    options.pin = true;
    auto pool = runtime_pool::create(options);
    REQUIRE(pool.has_value());
    CHECK(pool->size() == static_cast<std::size_t>(CPU_COUNT(&usable)));
    cpu_set_t all;
    CPU_ZERO(&all);
    for (std::size_t i = 0; i < pool->size(); ++i) {
        auto handle = pool->spawn_on(i, []() -> task<cpu_set_t> {
            cpu_set_t mine;
            CPU_ZERO(&mine);
            ::sched_getaffinity(0, sizeof mine, &mine);
            co_return mine;
        }());
        const cpu_set_t mine = nowait::wait(handle.join()).value();
        CHECK(CPU_COUNT(&mine) == 1);
        CPU_OR(&all, &all, &mine);
    }
    CHECK(CPU_EQUAL(&all, &usable));
}

TEST_CASE("options that cannot be are error values") {
    nowait::runtime_pool_options options;
    options.count = 5'000;
    CHECK(runtime_pool::create(options).error() == std::errc::invalid_argument);
    options.count = 2;
    options.each.budget = 0;
    CHECK(runtime_pool::create(options).error() == std::errc::invalid_argument);
}

TEST_CASE("a pool for which there are not threads enough is an error value") {
    if (nowait_test::address_sanitizer || nowait_test::thread_sanitizer) {
        WARN("not under a sanitizer: they need address space without limits");
        return;
    }
    const auto end = in_child([] {
        rlimit limit{};
        limit.rlim_cur = limit.rlim_max = std::size_t{1} << 30; // bytes of address space; a stack takes 8 MiB
        ::setrlimit(RLIMIT_AS, &limit);
        nowait::runtime_pool_options options;
        options.count = 400;
        options.each.driver = nowait::driver_choice::poll;
        const auto pool = runtime_pool::create(options);
        return !pool && pool.error() == std::errc::resource_unavailable_try_again ? 0 : 1;
    });
    CHECK(end.exit_code == 0);
}

TEST_CASE("values and exceptions come back to plain threads and to other runtimes") {
    runtime_pool pool = make_pool(2);
    CHECK(pool.run(seven()).value() == 7);
    CHECK_THROWS_AS(pool.run([]() -> task<int> {
        co_await nowait::yield();
        throw std::out_of_range("far");
    }()),
                    std::out_of_range);
    const auto joined = pool.run([](runtime_pool& all) -> task<int> {
        auto one = all.spawn_on(0, seven());
        auto two = all.spawn_on(1, seven());
        auto bad = all.spawn_on(1, []() -> task<int> {
            co_await nowait::yield();
            throw std::out_of_range("far");
        }());
        const auto first = co_await one.join();
        const auto second = co_await two.join();
        int caught = 0;
        try {
            (void)co_await bad.join();
        } catch (const std::out_of_range&) {
            caught = 1;
        }
        co_return first.value_or(0) + second.value_or(0) + caught;
    }(pool));
    CHECK(joined.value() == 15);
}

TEST_CASE("a callable is kept until its task has ended") {
    runtime_pool pool = make_pool(1);
    auto shared = std::make_shared<int>(5);
    std::weak_ptr<int> watch = shared;
    auto handle = pool.spawn([kept = std::move(shared)]() -> task<int> {
        co_await nowait::yield();
        co_return *kept;
    });
    CHECK(nowait::wait(handle.join()).value() == 5);
    CHECK(watch.expired());
}

TEST_CASE("any means each in turn") {
    runtime_pool pool = make_pool(3);
    std::vector<thread_id> seen;
    for (int i = 0; i < 6; ++i) {
        auto handle = pool.spawn(where_am_i());
        seen.push_back(nowait::wait(handle.join()).value());
    }
    CHECK(seen[0] != seen[1]);
    CHECK(seen[1] != seen[2]);
    CHECK(seen[0] == seen[3]);
    CHECK(seen[2] == seen[5]);
}

TEST_CASE("run and shutdown inside a task say that it would wait for itself") {
    runtime_pool pool = make_pool(1);
    const auto inside = pool.run([](runtime_pool& own) -> task<bool> {
        const auto ran = own.run(seven());
        const auto down = own.shutdown(1s);
        co_return ran.error() == std::errc::resource_deadlock_would_occur&& down.error() ==
            std::errc::resource_deadlock_would_occur;
    }(pool));
    CHECK(inside.value());
}

TEST_CASE("a channel connects all runtimes of a pool") {
    constexpr int senders = 3;
    constexpr int each = 2'000;
    runtime_pool pool = make_pool(4);
    auto messages = nowait::channel<int>::create(16).value();
    std::vector<nowait::join_handle<int>> handles;
    for (int s = 0; s < senders; ++s) {
        handles.push_back(
            pool.spawn_on(static_cast<std::size_t>(s), [](nowait::channel<int> to) -> task<int> {
                int sent = 0;
                for (int i = 1; i <= each; ++i) {
                    int value = i;
                    const auto done = co_await to.send(value);
                    sent += done ? 1 : 0;
                }
                co_return sent;
            }(messages)));
    }
    auto sum = pool.spawn_on(3, [](nowait::channel<int> from) -> task<long> {
        long total = 0;
        for (int i = 0; i < senders * each; ++i) {
            const auto got = co_await from.receive();
            total += got.value_or(0);
        }
        co_return total;
    }(messages));
    for (auto& handle : handles)
        CHECK(nowait::wait(handle.join()).value() == each);
    CHECK(nowait::wait(sum.join()).value() == long{senders} * each * (each + 1) / 2);
}

TEST_CASE("two runtimes of a pool answer each other, with every way to wait") {
    for (const auto patience : {0us, 50us}) {
        nowait::runtime_options each;
        each.spin = patience;
        runtime_pool pool = make_pool(2, each);
        auto there = nowait::channel<int>::create(1).value();
        auto back = nowait::channel<int>::create(1).value();
        auto echo = pool.spawn_on(1, [](nowait::channel<int> from, nowait::channel<int> to) -> task<> {
            while (true) {
                auto got = co_await from.receive();
                if (!got)
                    break;
                (void)co_await to.send(*got);
            }
        }(there, back));
        auto asks = pool.spawn_on(0, [](nowait::channel<int> to, nowait::channel<int> from) -> task<int> {
            int right = 0;
            for (int i = 0; i < 1'000; ++i) {
                int value = i;
                (void)co_await to.send(value);
                const auto got = co_await from.receive();
                right += got.value_or(-1) == i ? 1 : 0;
            }
            to.close();
            co_return right;
        }(there, back));
        CHECK(nowait::wait(asks.join()).value() == 1'000);
        CHECK(nowait::wait(echo.join()).has_value());
    }
}

TEST_CASE("shutdown stops what hears it and reports what does not") {
    runtime_pool pool = make_pool(2);
    std::atomic<int> running{0};
    auto sleeps = [](std::atomic<int>& up) -> task<bool> {
        ++up;
        const auto slept = co_await nowait::sleep_for(1h);
        co_return !slept;
    };
    auto stubborn = [](std::atomic<int>& up) -> task<> {
        ++up;
        while (true)
            co_await nowait::yield();
    };
    auto one = pool.spawn_on(0, sleeps(running));
    auto two = pool.spawn_on(1, sleeps(running));
    auto never = pool.spawn_on(1, stubborn(running));
    while (running != 3)
        std::this_thread::yield();
    const auto report = pool.shutdown(5ms);
    REQUIRE(report.has_value());
    CHECK(report->unfinished == 1);
    CHECK(nowait::wait(one.join()).value());
    CHECK(nowait::wait(two.join()).value());
    CHECK(nowait::wait(never.join()).error() == std::errc::operation_canceled);
    CHECK(pool.shutdown(5ms).value().complete()); // there is nothing left
}

TEST_CASE("what is spawned on a pool that has ended is cancelled") {
    runtime_pool pool = make_pool(2);
    const remote_runtime reach = pool.at(0);
    CHECK(pool.shutdown(1s).value().complete());
    std::atomic<bool> ran{false};
    auto late = pool.spawn([](std::atomic<bool>& flag) -> task<> {
        flag = true;
        co_return;
    }(ran));
    CHECK(nowait::wait(late.join()).error() == std::errc::operation_canceled);
    CHECK(pool.run(seven()).error() == std::errc::operation_canceled);
    CHECK_FALSE(reach.post([] {}));
    CHECK_FALSE(ran);
    nowait::spawn_on(reach, seven()).detach();
}

TEST_CASE("tasks that are spawned while the pool ends have ended or are cancelled, and none is lost") {
    for (int round = 0; round < 20; ++round) {
        std::atomic<int> alive{0};
        struct counted {
            explicit counted(std::atomic<int>& of) : alive(&of) { ++*alive; }
            counted(counted&& other) noexcept : alive(std::exchange(other.alive, nullptr)) {}
            ~counted() {
                if (alive != nullptr)
                    --*alive;
            }
            std::atomic<int>* alive;
        };
        auto pool = std::make_unique<runtime_pool>(make_pool(2));
        const std::array<remote_runtime, 2> reach{pool->at(0), pool->at(1)};
        std::atomic<bool> started{false};
        int answered = 0;
        std::thread spawns([&] {
            std::vector<nowait::join_handle<int>> handles;
            for (std::size_t i = 0; i < 300; ++i) {
                handles.push_back(nowait::spawn_on(reach[i % 2], [](counted) -> task<int> {
                    co_await nowait::yield();
                    co_return 1;
                }(counted(alive))));
                if (i == 50)
                    started = true;
            }
            for (auto& handle : handles) {
                const auto got = nowait::wait(handle.join());
                answered += got || got.error() == std::errc::operation_canceled ? 1 : 0;
            }
        });
        while (!started)
            std::this_thread::yield();
        pool.reset();
        spawns.join();
        CHECK(answered == 300);
        CHECK(alive == 0);
    }
}

TEST_CASE("a pool ends with everything in flight between its runtimes") {
    for (int round = 0; round < 10; ++round) {
        std::atomic<int> moving{0};
        runtime_pool pool = make_pool(3);
        auto messages = nowait::channel<int>::create(4).value();
        for (std::size_t i = 0; i < 30; ++i) {
            pool.spawn_on(i,
                          [](runtime_pool& all, std::size_t start, std::atomic<int>& count) -> task<> {
                              auto child = [](runtime_pool& through, std::size_t at,
                                              std::atomic<int>& up) -> task<> {
                                  ++up;
                                  for (std::size_t n = at;; ++n) {
                                      const auto moved = co_await resume_on(through.at(n));
                                      if (!moved)
                                          co_return;
                                  }
                              };
                              co_await child(all, start, count);
                          }(pool, i, moving))
                .detach();
            pool.spawn_on(i,
                          [](nowait::channel<int> through) -> task<> {
                              while (true) {
                                  int value = 1;
                                  const auto sent = co_await through.send(value);
                                  const auto got = co_await through.receive();
                                  if (!sent || !got)
                                      break;
                              }
                          }(messages))
                .detach();
        }
        while (moving != 30)
            std::this_thread::yield();
        const auto report = pool.shutdown(20s);
        CHECK(report->complete());
    }
}

TEST_CASE("threads of a pool block the signals that its maker blocks, and their children, too") {
    sigset_t one;
    sigset_t before;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &one, &before);
    runtime_pool pool = make_pool(1);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    auto handle = pool.spawn([]() -> task<std::pair<int, int>> {
        sigset_t now;
        pthread_sigmask(SIG_SETMASK, nullptr, &now);
        int blocked = 0;
        for (int number = 1; number < 32; ++number)
            blocked += sigismember(&now, number) == 1 ? 1 : 0;
        const pid_t child = ::fork();
        if (child == 0) {
            sigset_t there;
            pthread_sigmask(SIG_SETMASK, nullptr, &there);
            ::_exit(sigismember(&there, SIGUSR2) == 1 && sigismember(&there, SIGTERM) == 0 ? 0 : 1);
        }
        int status = -1;
        while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
        co_return std::pair(sigismember(&now, SIGUSR2) == 1 ? blocked : -1, status);
    }());
    const auto seen = nowait::wait(handle.join()).value();
    CHECK(seen.first == 1);
    CHECK(seen.second == 0);
}

TEST_CASE("a child after fork may destroy its copy of a pool, and cannot reach the parent's") {
    runtime_pool pool = make_pool(2);
    CHECK(pool.run(seven()).value() == 7);
    for (int i = 0; i < 5; ++i) {
        const auto end = in_child([&pool] {
            if (pool.run(seven()).error() != std::errc::operation_canceled)
                return 1;
            if (pool.at(0).post([] {}))
                return 2;
            pool.request_stop(); // nobody hears it
            {
                const runtime_pool copy = std::move(pool);
            }
            if (nowait_test::thread_sanitizer)
                return 0; // it lets a child like this one start no threads
            auto own = runtime_pool::create({.count = 2, .pin = false, .name = "child", .each = {}});
            return own && own->run(seven()).value_or(-1) == 7 ? 0 : 3;
        });
        CHECK(end.exit_code == 0);
        CHECK(pool.run(seven()).value() == 7);
    }
}

TEST_CASE("a child that closes every object takes nothing away from the parent") {
    nowait::runtime_options poll;
    poll.driver = nowait::driver_choice::poll;
    runtime runs = make_runtime(poll);
    std::array<nowait::pipe_pair, 3> pipes;
    for (auto& pipe : pipes)
        pipe = nowait::make_pipe().value();
    auto round_trip = [](nowait::pipe_pair& pipe) -> task<bool> {
        auto writes = nowait::spawn([](nowait::pipe_writer& to) -> task<> {
            co_await nowait::yield();
            co_await nowait::yield();
            (void)co_await to.write("x");
        }(pipe.writer));
        std::array<std::byte, 1> byte{};
        const auto got = co_await pipe.reader.read(byte);
        (void)co_await writes.join();
        co_return got && *got == 1;
    };
    for (auto& pipe : pipes)
        REQUIRE(runs.run(round_trip(pipe)).value());
    const auto end = in_child([&] {
        for (auto& pipe : pipes) {
            (void)pipe.reader.close();
            (void)pipe.writer.close();
        }
        const runtime last = std::move(runs);
        return 0;
    });
    CHECK(end.exit_code == 0);
    for (auto& pipe : pipes)
        CHECK(runs.run(round_trip(pipe)).value());
}

TEST_CASE("fork and exec while eight threads allocate and post") {
    runtime_pool pool = make_pool(2);
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
        threads.emplace_back([&pool, &over] {
            while (!over) {
                auto text = std::make_unique<std::string>(200, 'x');
                (void)pool.next().post([kept = std::move(text)] {});
                std::this_thread::yield();
            }
        });
    }
    int good = 0;
    for (int i = 0; i < 100; ++i) {
        const pid_t child = ::fork();
        if (child == 0) {
            ::execl("/bin/true", "true", static_cast<char*>(nullptr));
            ::_exit(127);
        }
        int status = -1;
        while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
        good += status == 0 ? 1 : 0;
    }
    over = true;
    for (std::thread& thread : threads)
        thread.join();
    CHECK(good == 100);
    CHECK(pool.run(seven()).value() == 7);
}
