#include "several.hpp"

#include "bench/support/process.hpp"
#include "contenders.hpp"

#include <nowait/channel.hpp>
#include <nowait/resume_on.hpp>
#include <nowait/runtime_pool.hpp>
#include <nowait/wait.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <asio.hpp>

namespace bench::runtime {
namespace {

using nowait::task;
using namespace std::chrono_literals;

// Rounds before the clock starts: the threads have slept since the last slice.
constexpr std::size_t rounds_to_wake_up = 32;

// One message to the other runtime and one back, `rounds` times.
class two_runtimes {
public:
    two_runtimes(bool two_cpus, std::chrono::microseconds spin) {
        if (two_cpus) {
            unpin();
        } else {
            pin_to_one_cpu();
        }
        nowait::runtime_pool_options options;
        options.count = 2;
        options.pin = true;
        options.each.spin = spin;
        auto made = nowait::runtime_pool::create(options);
        require(made.has_value(), "runtime_pool::create");
        pool_.emplace(std::move(*made));
    }

    [[nodiscard]] measurement answers(std::size_t rounds) {
        auto there = nowait::channel<int>::create(1).value();
        auto back = nowait::channel<int>::create(1).value();
        auto echo = pool_->spawn_on(1, echoes(there, back));
        auto asker = pool_->spawn_on(0, asks(there, back, rounds));
        const auto seen = nowait::wait(asker.join());
        there.close();
        (void)nowait::wait(echo.join());
        return seen.value();
    }
    [[nodiscard]] measurement moves(std::size_t rounds) {
        auto mover = pool_->spawn_on(0, wanders(pool_->at(1), pool_->at(0), rounds));
        return nowait::wait(mover.join()).value();
    }
    [[nodiscard]] measurement spawns(std::size_t rounds) {
        auto spawner = pool_->spawn_on(0, spawns_there(pool_->at(1), rounds));
        return nowait::wait(spawner.join()).value();
    }

private:
    using ints = nowait::channel<int>;
    static task<> echoes(ints from, ints to) {
        for (;;) {
            auto got = co_await from.receive();
            if (!got) {
                break;
            }
            (void)co_await to.send(*got);
        }
    }
    static task<measurement> asks(ints to, ints from, std::size_t rounds) {
        stopwatch clock;
        for (std::size_t i = 0; i < rounds_to_wake_up + rounds; ++i) {
            if (i == rounds_to_wake_up) {
                clock.start();
            }
            int message = 1;
            (void)co_await to.send(message);
            (void)co_await from.receive();
        }
        co_return measurement{rounds, clock.elapsed()};
    }
    static task<measurement> wanders(const nowait::remote_runtime& there, const nowait::remote_runtime& home,
                                     std::size_t rounds) {
        stopwatch clock;
        for (std::size_t i = 0; i < rounds_to_wake_up + rounds; ++i) {
            if (i == rounds_to_wake_up) {
                clock.start();
            }
            (void)co_await nowait::resume_on(there);
            (void)co_await nowait::resume_on(home);
        }
        co_return measurement{rounds, clock.elapsed()};
    }
    static task<> nothing() { co_return; }
    static task<measurement> spawns_there(const nowait::remote_runtime& there, std::size_t rounds) {
        stopwatch clock;
        for (std::size_t i = 0; i < rounds_to_wake_up + rounds; ++i) {
            if (i == rounds_to_wake_up) {
                clock.start();
            }
            auto handle = nowait::spawn_on(there, nothing());
            (void)co_await handle.join();
        }
        co_return measurement{rounds, clock.elapsed()};
    }

    std::optional<nowait::runtime_pool> pool_;
};

using work = measurement (two_runtimes::*)(std::size_t);

contender ours_several(std::string name, bool two_cpus, std::chrono::microseconds spin, work what) {
    return {std::move(name), [two_cpus, spin, what] {
                auto bed = std::make_shared<two_runtimes>(two_cpus, spin);
                return [bed, what](std::size_t rounds) { return ((*bed).*what)(rounds); };
            }};
}

// Asio's coroutines stay on their executor; what they have done elsewhere is a coroutine that is spawned there and awaited.
class two_contexts {
public:
    two_contexts() {
        unpin();
        threads_[0] = std::thread([this] { run(here_, 0); });
        threads_[1] = std::thread([this] { run(there_, 1); });
    }
    two_contexts(const two_contexts&) = delete;
    two_contexts& operator=(const two_contexts&) = delete;
    ~two_contexts() {
        here_.stop();
        there_.stop();
        for (std::thread& thread : threads_) {
            thread.join();
        }
    }
    [[nodiscard]] measurement spawns(std::size_t rounds) {
        return asio::co_spawn(here_, spawns_there(there_, rounds), asio::use_future).get();
    }

private:
    static void run(asio::io_context& context, unsigned nth) {
        require(nowait::detail::real_system().pin_to_cpu(nth) == 0, "sched_setaffinity");
        const auto stays = asio::make_work_guard(context);
        context.run();
    }
    static asio::awaitable<void> nothing() { co_return; }
    static asio::awaitable<measurement> spawns_there(asio::io_context& there, std::size_t rounds) {
        stopwatch clock;
        for (std::size_t i = 0; i < rounds_to_wake_up + rounds; ++i) {
            if (i == rounds_to_wake_up) {
                clock.start();
            }
            co_await asio::co_spawn(there, nothing(), asio::use_awaitable);
        }
        co_return measurement{rounds, clock.elapsed()};
    }

    asio::io_context here_{1};
    asio::io_context there_{1};
    std::thread threads_[2];
};

contender asio_several() {
    return {"Asio, co_spawn on another io_context", [] {
                auto bed = std::make_shared<two_contexts>();
                return [bed](std::size_t rounds) { return bed->spawns(rounds); };
            }};
}

} // namespace

void compare_several(suite& run) {
    const auto sleeps = 0us;
    const auto looks = 50us;
    run.section("several runtimes, two CPUs: reported");
    run.compare({"answer_spin_vs_sleep",
                 ours_several("channel there and back, spin 50 us", true, looks, &two_runtimes::answers),
                 ours_several("the same, spin 0", true, sleeps, &two_runtimes::answers),
                 {}});
    run.compare({"spawn_on_join_vs_asio",
                 ours_several("ours, spawn_on and join", true, looks, &two_runtimes::spawns),
                 asio_several(),
                 {}});
    run.compare({"resume_on_there_and_back_vs_asio",
                 ours_several("ours, resume_on twice", true, looks, &two_runtimes::moves),
                 asio_several(),
                 {}});
    run.section("several runtimes, one CPU: reported");
    run.compare({"answer_spin_vs_sleep_one_cpu",
                 ours_several("channel there and back, spin 50 us", false, looks, &two_runtimes::answers),
                 ours_several("the same, spin 0", false, sleeps, &two_runtimes::answers),
                 {}});
}

} // namespace bench::runtime
