// resume_on: where a task runs, what follows it, and what happens when one of its runtimes goes.
#include "several_support.hpp"

using namespace several_test;
using nowait_test::thread_sanitizer;

namespace several_test {

thread_id this_thread() noexcept {
    return std::this_thread::get_id();
}

} // namespace several_test

namespace {

/// Moves, looks where it is, and ends there.
task<thread_id> visits(const remote_runtime& where) {
    const auto moved = co_await resume_on(where);
    co_return moved ? this_thread() : thread_id();
}

task<int> throws_there(const remote_runtime& where) {
    (void)co_await resume_on(where);
    throw std::runtime_error("from there");
}

/// Sleeps on another runtime until somebody stops it.
task<std::error_code> sleeps_there(const remote_runtime& where, std::atomic<bool>* is_there = nullptr) {
    const auto moved = co_await resume_on(where);
    if (!moved)
        co_return moved.error();
    if (is_there != nullptr)
        *is_there = true;
    const auto slept = co_await nowait::sleep_for(1h);
    co_return slept ? std::error_code() : slept.error();
}

/// Counts how many are alive.
struct counted {
    explicit counted(std::atomic<int>& of) : alive(&of) { ++*alive; }
    counted(counted&& other) noexcept : alive(std::exchange(other.alive, nullptr)) {}
    ~counted() {
        if (alive != nullptr)
            --*alive;
    }
    std::atomic<int>* alive;
};

} // namespace

TEST_CASE("the rest of a task runs on the other runtime, and its parent goes on at home") {
    runtime_pool pool = make_pool(2);
    const thread_id there = thread_of(pool.at(1));
    const thread_id home = thread_of(pool.at(0));
    REQUIRE(there != home);
    auto handle = pool.spawn_on(0, [](const remote_runtime& to) -> task<std::vector<thread_id>> {
        std::vector<thread_id> seen;
        seen.push_back(this_thread());
        const thread_id visited = co_await visits(to);
        seen.push_back(visited);
        seen.push_back(this_thread());
        co_return seen;
    }(pool.at(1)));
    const auto seen = nowait::wait(handle.join()).value();
    CHECK(seen == std::vector<thread_id>{home, there, home});
}

TEST_CASE("a task moves on, back, and to where it is already") {
    runtime_pool pool = make_pool(3);
    auto handle = pool.spawn_on(0, [](runtime_pool& all) -> task<std::vector<thread_id>> {
        std::vector<thread_id> seen;
        for (const std::size_t to : {0u, 1u, 1u, 2u, 0u, 2u, 1u, 0u}) {
            const auto moved = co_await resume_on(all.at(to));
            if (!moved)
                break;
            seen.push_back(this_thread());
        }
        co_return seen;
    }(pool));
    const auto seen = nowait::wait(handle.join()).value();
    const std::array<thread_id, 3> of{thread_of(pool.at(0)), thread_of(pool.at(1)), thread_of(pool.at(2))};
    CHECK(seen == std::vector<thread_id>{of[0], of[1], of[1], of[2], of[0], of[2], of[1], of[0]});
}

TEST_CASE("what a task throws over there arrives at home") {
    runtime_pool pool = make_pool(2);
    auto handle = pool.spawn_on(0, [](const remote_runtime& to) -> task<bool> {
        const thread_id home = this_thread();
        try {
            (void)co_await throws_there(to);
        } catch (const std::runtime_error& error) {
            co_return std::string(error.what()) == "from there" && this_thread() == home;
        }
        co_return false;
    }(pool.at(1)));
    CHECK(nowait::wait(handle.join()).value());
}

TEST_CASE("the root of a run may move, and run gives its value") {
    runtime_pool pool = make_pool(1);
    runtime runs = make_runtime();
    CHECK(runs.run(visits(pool.at(0))).value() == thread_of(pool.at(0)));
    CHECK_THROWS_AS(runs.run(throws_there(pool.at(0))), std::runtime_error);
}

TEST_CASE("a task that has moved awaits children, timers and pipes there") {
    runtime_pool pool = make_pool(2);
    auto handle = pool.spawn_on(0, [](const remote_runtime& to) -> task<int> {
        (void)co_await resume_on(to);
        const thread_id there = this_thread();
        auto pipe = nowait::make_pipe().value();
        auto writer = nowait::spawn([](nowait::pipe_writer w, thread_id expected) -> task<bool> {
            (void)co_await nowait::sleep_for(100us);
            const auto wrote = co_await w.write("abc");
            co_return wrote&& this_thread() == expected;
        }(std::move(pipe.writer), there));
        int bytes = 0;
        std::array<std::byte, 2> buffer{};
        while (true) {
            const auto got = co_await pipe.reader.read(buffer);
            if (!got || *got == 0)
                break;
            bytes += static_cast<int>(*got);
        }
        const auto wrote = co_await writer.join();
        const thread_id child = co_await where_am_i();
        co_return wrote.value_or(false) && child == there ? bytes : -1;
    }(pool.at(1)));
    CHECK(nowait::wait(handle.join()).value() == 3);
}

TEST_CASE("kernel objects stay behind") {
    runtime_pool pool = make_pool(2);
    auto handle = pool.spawn_on(0, [](const remote_runtime& home, const remote_runtime& to) -> task<bool> {
        auto pipe = nowait::make_pipe().value();
        auto untouched = nowait::make_pipe().value();
        std::array<std::byte, 1> byte{};
        bool good = true;
        const auto first = co_await pipe.writer.write("ab");
        const auto read = co_await pipe.reader.read(byte);
        (void)co_await resume_on(to);
        const auto foreign_write = co_await pipe.writer.write("x");
        const auto foreign_read = co_await pipe.reader.read(byte);
        const auto foreign_close = pipe.writer.close();
        good &= first && read;
        good &= !foreign_write && foreign_write.error() == std::errc::operation_not_permitted;
        good &= !foreign_read && foreign_read.error() == std::errc::operation_not_permitted;
        good &= !foreign_close && foreign_close.error() == std::errc::operation_not_permitted;
        const auto own = co_await untouched.writer.write("y"); // belongs to the runtime of its first use
        good &= own.has_value();
        (void)co_await resume_on(home);
        const auto rest = co_await pipe.reader.read(byte);
        good &= rest && *rest == 1;
        co_return good;
    }(pool.at(0), pool.at(1)));
    CHECK(nowait::wait(handle.join()).value());
}

TEST_CASE("a frame that ends over there has died, parameters included, before its parent goes on") {
    runtime_pool pool = make_pool(2);
    std::atomic<int> alive{0};
    auto handle = pool.spawn_on(0, [](const remote_runtime& to, std::atomic<int>& count) -> task<int> {
        auto child = [](counted, const remote_runtime& where) -> task<> { (void)co_await resume_on(where); };
        co_await child(counted(count), to);
        co_return count.load();
    }(pool.at(1), alive));
    CHECK(nowait::wait(handle.join()).value() == 0);
}

TEST_CASE("a time-out at home reaches the task over there") {
    runtime_pool pool = make_pool(2);
    auto handle = pool.spawn_on(0, [](const remote_runtime& to) -> task<bool> {
        const thread_id home = this_thread();
        const auto ended = co_await nowait::with_timeout(sleeps_there(to), 2ms);
        co_return ended && *ended == std::errc::operation_canceled&& this_thread() == home;
    }(pool.at(1)));
    CHECK(nowait::wait(handle.join()).value());
}

TEST_CASE("a stop that comes while the task travels is not lost") {
    runtime_pool pool = make_pool(3);
    auto handle = pool.spawn_on(0, [](runtime_pool& all) -> task<int> {
        int stopped = 0;
        for (int i = 0; i < 200; ++i) {
            auto hops = [](runtime_pool& through) -> task<std::error_code> {
                for (std::size_t n = 1;; ++n) {
                    const auto moved = co_await resume_on(through.at(n));
                    if (!moved)
                        co_return moved.error();
                }
            };
            const auto ended =
                co_await nowait::with_timeout(hops(all), std::chrono::microseconds(10 * (i % 20)));
            stopped += ended && *ended == std::errc::operation_canceled ? 1 : 0;
        }
        co_return stopped;
    }(pool));
    CHECK(nowait::wait(handle.join()).value() == 200);
}

TEST_CASE("a stop requested before is an error, and the task goes on where it is") {
    runtime_pool pool = make_pool(1);
    runtime runs = make_runtime();
    auto handle = runs.spawn([](const remote_runtime& to) -> task<std::error_code> {
        nowait::current_remote().request_stop();
        (void)co_await nowait::sleep_for(1h); // until it is heard
        const auto moved = co_await resume_on(to);
        co_return moved ? std::error_code() : moved.error();
    }(pool.at(0)));
    REQUIRE(runs.run().has_value());
    CHECK(nowait::wait(handle.join()).value() == std::errc::operation_canceled);
}

TEST_CASE("the stop of the runtime where the task is ends what it awaits") {
    auto pool = std::make_unique<runtime_pool>(make_pool(1));
    runtime runs = make_runtime();
    std::atomic<bool> is_there{false};
    std::thread stops([&] {
        while (!is_there)
            std::this_thread::yield();
        pool->request_stop();
    });
    CHECK(runs.run(sleeps_there(pool->at(0), &is_there)).value() == std::errc::operation_canceled);
    stops.join();
}

TEST_CASE("a runtime that has gone refuses, and the task goes on where it is") {
    std::optional<remote_runtime> gone;
    {
        runtime short_lived = make_runtime();
        gone.emplace(short_lived.remote());
    }
    runtime runs = make_runtime();
    const bool good = runs.run([](const remote_runtime& to) -> task<bool> {
                              const thread_id home = this_thread();
                              auto tries = [](const remote_runtime& where) -> task<std::error_code> {
                                  const auto moved = co_await resume_on(where);
                                  const auto again = co_await resume_on(where);
                                  (void)co_await nowait::sleep_for(10us);
                                  co_return !moved && !again ? moved.error() : std::error_code();
                              };
                              const auto error = co_await tries(to);
                              co_return error == std::errc::operation_canceled&& this_thread() == home;
                          }(*gone))
                          .value();
    CHECK(good);
}

TEST_CASE("a runtime that is destroyed with a guest tells the guest's parent") {
    std::atomic<bool> is_there{false};
    std::atomic<int> alive{0};
    auto stubborn = [](counted, const remote_runtime& where, std::atomic<bool>& there) -> task<int> {
        (void)co_await resume_on(where);
        there = true;
        while (true)
            co_await nowait::yield(); // hears no stop
    };
    auto pool = std::make_unique<runtime_pool>(make_pool(1));
    runtime runs = make_runtime();
    std::thread ends([&] {
        while (!is_there)
            std::this_thread::yield();
        CHECK_NOTHROW(pool->shutdown(1ms).value().complete());
    });
    const bool told = runs.run([](task<int> child) -> task<bool> {
                              try {
                                  (void)co_await std::move(child);
                              } catch (const std::system_error& error) {
                                  co_return error.code() == std::errc::operation_canceled;
                              }
                              co_return false;
                          }(stubborn(counted(alive), pool->at(0), is_there)))
                          .value();
    ends.join();
    CHECK(told);
    CHECK(alive == 0);
}

TEST_CASE("a guest that nobody joins goes with its host, silently") {
    std::atomic<bool> is_there{false};
    std::atomic<int> alive{0};
    {
        runtime_pool pool = make_pool(1);
        runtime runs = make_runtime();
        auto handle =
            runs.spawn([](counted, const remote_runtime& where, std::atomic<bool>& there) -> task<> {
                (void)co_await resume_on(where);
                there = true;
                while (true)
                    co_await nowait::yield();
            }(counted(alive), pool.at(0), is_there));
        std::thread ends([&] {
            while (!is_there)
                std::this_thread::yield();
            (void)pool.shutdown(0ms);
        });
        REQUIRE(runs.run().has_value());
        ends.join();
        CHECK(nowait::wait(handle.join()).error() == std::errc::operation_canceled);
    }
    CHECK(alive == 0);
}

TEST_CASE("the destructor stops tasks that are away and waits until they are home") {
    // The runtime is left in the middle of things: its only run is ended by a deadline.
    std::atomic<bool> is_there{false};
    std::atomic<int> alive{0};
    std::atomic<int> ended{0};
    runtime_pool pool = make_pool(1);
    {
        runtime runs = make_runtime();
        runs.spawn([](counted own, const remote_runtime& to, std::atomic<bool>& there,
                      std::atomic<int>& over) -> task<> {
                auto child = [](std::atomic<int>*& of_parent, const remote_runtime& where,
                                std::atomic<bool>& flag, std::atomic<int>& count) -> task<> {
                    (void)co_await resume_on(where);
                    flag = true;
                    const auto slept = co_await nowait::sleep_for(1h);
                    // The parent's frame, and with it what we were lent, is still there.
                    count = !slept && of_parent->load() == 1 ? 1 : -1;
                };
                co_await child(own.alive, to, there, over);
                over = -2; // never resumed
            }(counted(alive), pool.at(0), is_there, ended))
            .detach();
        runs.spawn([](runtime& of, std::atomic<bool>& there) -> task<> {
                while (!there)
                    co_await nowait::yield();
                of.get_loop().end_run_by(std::chrono::steady_clock::time_point::min());
            }(runs, is_there))
            .detach();
        (void)runs.run();
    }
    CHECK(ended == 1);
    CHECK(alive == 0);
}

TEST_CASE("a child of a guest may move, too") {
    runtime_pool pool = make_pool(3);
    auto handle = pool.spawn_on(0, [](runtime_pool& all) -> task<bool> {
        const thread_id home = this_thread();
        auto outer = [](runtime_pool& through) -> task<bool> {
            (void)co_await resume_on(through.at(1));
            const thread_id here = this_thread();
            const thread_id there = co_await visits(through.at(2));
            co_return here == this_thread() && here != there&& there != thread_id();
        };
        const bool good = co_await outer(all);
        co_return good&& this_thread() == home;
    }(pool));
    CHECK(nowait::wait(handle.join()).value());
}

TEST_CASE("members of when_all may move each to another runtime") {
    runtime_pool pool = make_pool(3);
    auto handle = pool.spawn_on(0, [](runtime_pool& all) -> task<bool> {
        const thread_id home = this_thread();
        auto [one, two, three] =
            co_await nowait::when_all(visits(all.at(1)), visits(all.at(2)), visits(all.at(0)));
        co_return one != two&& two != home&& one != home&& three == home&& this_thread() == home;
    }(pool));
    CHECK(nowait::wait(handle.join()).value());
}

TEST_CASE("a thousand tasks wander over all runtimes") {
    constexpr int tasks = 1'000;
    runtime_pool pool = make_pool(4);
    std::atomic<int> alive{0};
    std::vector<nowait::join_handle<int>> handles;
    for (int i = 0; i < tasks; ++i) {
        handles.push_back(pool.spawn([](counted, runtime_pool& all, int start) -> task<int> {
            auto inner = [](runtime_pool& through, int from) -> task<int> {
                int hops = 0;
                for (int n = 0; n < 5; ++n) {
                    const auto moved =
                        co_await resume_on(through.at(static_cast<std::size_t>(from * 7 + n * 3)));
                    hops += moved ? 1 : 0;
                }
                co_return hops;
            };
            int sum = 0;
            for (int n = 0; n < 3; ++n) {
                const int hops = co_await inner(all, start + n);
                sum += hops;
                (void)co_await resume_on(all.at(static_cast<std::size_t>(start + n)));
            }
            co_return sum;
        }(counted(alive), pool, i)));
    }
    int sum = 0;
    for (auto& handle : handles)
        sum += nowait::wait(handle.join()).value_or(-1000);
    CHECK(sum == tasks * 15);
    CHECK(alive == 0);
}

TEST_CASE("after each of 100,000 hops thread, thread-locals and runtime are the new ones") {
    constexpr int hops = thread_sanitizer ? 10'000 : 100'000;
    runtime_pool pool = make_pool(2);
    struct place {
        thread_id thread;
        const nowait::detail::loop* loop = nullptr;
    };
    struct tally {
        int right = 0;
        int elsewhere = 0; // than before the hop
    };
    const std::array<thread_id, 2> threads{thread_of(pool.at(0)), thread_of(pool.at(1))};
    REQUIRE(threads[0] != threads[1]);
    auto handle = pool.spawn_on(0, [](runtime_pool& all, std::array<thread_id, 2> expected) -> task<tally> {
        tally seen;
        std::array<const nowait::detail::loop*, 2> loops{nowait::detail::loop::current(), nullptr};
        thread_id before = this_thread();
        for (int n = 1; n <= hops; ++n) {
            const auto to = static_cast<std::size_t>(n % 2);
            const auto moved = co_await resume_on(all.at(to));
            if (!moved)
                break;
            const place now{this_thread(), nowait::detail::loop::current()};
            if (loops[to] == nullptr)
                loops[to] = now.loop;
            seen.right += now.thread == expected[to] && now.loop == loops[to] ? 1 : 0;
            seen.elsewhere += now.thread != before && loops[0] != loops[1] ? 1 : 0;
            before = now.thread;
        }
        co_return seen;
    }(pool, threads));
    const auto seen = nowait::wait(handle.join());
    REQUIRE(seen);
    CHECK(seen->right == hops);
    CHECK(seen->elsewhere == hops);
}

TEST_CASE("a task in the inbox of a runtime that goes before it runs it comes home") {
    std::atomic<int> alive{0};
    auto host = std::make_unique<runtime>(make_runtime());
    runtime runs = make_runtime();
    std::thread ends;
    const bool told =
        runs.run([](counted own, std::unique_ptr<runtime>& to, std::thread& destroys) -> task<bool> {
                auto child = [](counted, const remote_runtime& where) -> task<bool> {
                    const thread_id home = this_thread();
                    const auto moved = co_await resume_on(where);
                    co_return !moved && moved.error() == std::errc::operation_canceled &&
                        this_thread() == home;
                };
                const remote_runtime there = to->remote();
                auto waits = nowait::spawn([](std::unique_ptr<runtime>& which, std::thread& by) -> task<> {
                    co_await nowait::yield();
                    co_await nowait::yield();
                    by = std::thread([&which] { which.reset(); });
                }(to, destroys));
                const bool came_home = co_await child(std::move(own), there);
                (void)co_await waits.join();
                co_return came_home;
            }(counted(alive), host, ends))
            .value();
    ends.join();
    CHECK(told);
    CHECK(alive == 0);
}

TEST_CASE("a runtime that waits in vain for its tasks leaves their frames alone") {
    // What it leaves is leaked, on purpose: so in a child, which ends without anybody looking.
    const auto end = in_child([] {
        auto host = std::make_unique<runtime>(make_runtime());
        nowait::runtime_options impatient;
        impatient.destructor_wait = 5ms;
        auto runs = std::make_unique<runtime>(make_runtime(impatient));
        int state = 0;
        const remote_runtime there = host->remote();
        runs->spawn([](const remote_runtime& to, int& out) -> task<> {
                std::string mine(100, 'x');
                auto child = [](std::string& of_parent, const remote_runtime& where, int& result) -> task<> {
                    (void)co_await resume_on(where);
                    result = of_parent == std::string(100, 'x') ? 1 : 2;
                };
                co_await child(mine, to, out);
                out = 3;
            }(there, state))
            .detach();
        runs->spawn([](runtime& of) -> task<> {
                co_await nowait::yield();
                co_await nowait::yield();
                of.get_loop().end_run_by(std::chrono::steady_clock::time_point::min());
            }(*runs))
            .detach();
        (void)runs->run();
        runs.reset();
        // Only now somebody runs the other one: the task goes on there, over frames that are still good.
        auto ran = host->run([]() -> task<> { co_await nowait::yield(); }());
        host.reset();
        return ran && state == 1 ? 0 : 10 + state;
    });
    INFO(end.errors);
    CHECK(end.exit_code == 0);
}
