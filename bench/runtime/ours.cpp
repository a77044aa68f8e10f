#include "bench/support/keep.hpp"
#include "contenders.hpp"
#include "posting.hpp"

#include <nowait/channel.hpp>
#include <nowait/runtime.hpp>
#include <nowait/sleep.hpp>
#include <nowait/task.hpp>
#include <nowait/task_scope.hpp>
#include <nowait/when_any.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <malloc.h>

namespace bench::runtime {
namespace {

using nowait::task;
using namespace std::chrono_literals;

struct bed {
    bed() {
        auto made = nowait::runtime::create();
        require(made.has_value(), "runtime::create");
        loop.emplace(std::move(*made));
    }
    void run(task<> what) { require(loop->run(std::move(what)).has_value(), "run"); }

    std::optional<nowait::runtime> loop;
};

// The time is taken outside of the loop: starting and ending a run is a part of it, as it is for the twin.
contender one_task(std::string name, task<> (*rounds_of)(std::size_t)) {
    return {std::move(name), [rounds_of] {
                auto b = std::make_shared<bed>();
                return [b, rounds_of](std::size_t rounds) -> measurement {
                    const stopwatch clock;
                    b->run(rounds_of(rounds));
                    return {rounds, clock.elapsed()};
                };
            }};
}

task<int> child(int n) {
    co_return n;
}

task<> empty() {
    co_return;
}

task<> spawns_many(std::size_t rounds) {
    for (std::size_t left = rounds; left != 0;) {
        const std::size_t now = std::min(left, tasks_at_once);
        nowait::task_scope scope;
        for (std::size_t i = 0; i < now; ++i) {
            scope.spawn(empty());
        }
        const auto joined = co_await scope.join();
        require(joined.has_value(), "join");
        left -= now;
    }
}

task<> spawns(std::size_t rounds) {
    for (std::size_t i = 0; i < rounds; ++i) {
        auto handle = nowait::spawn(empty());
        const auto joined = co_await handle.join();
        require(joined.has_value(), "join");
    }
}

task<> yields(std::size_t rounds) {
    for (std::size_t i = 0; i < rounds; ++i) {
        co_await nowait::yield();
    }
}

task<> yields_together(std::size_t rounds) {
    nowait::task_scope scope;
    for (std::size_t i = 0; i < yielding_tasks; ++i) {
        scope.spawn(yields(rounds / yielding_tasks + 1));
    }
    const auto joined = co_await scope.join();
    require(joined.has_value(), "join");
}

task<> awaits_children(std::size_t rounds) {
    for (std::size_t i = 0; i < rounds; ++i) {
        const int n = co_await child(static_cast<int>(i));
        keep(n);
    }
}

// The far one is set first, so that both have been set when the due one ends.
task<> races(std::size_t rounds) {
    const auto past = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < rounds; ++i) {
        auto first =
            co_await nowait::when_any(nowait::biased, nowait::sleep_for(1h), nowait::sleep_until(past));
        require(first.index == 1, "when_any");
        keep(first);
    }
}

// Timers without a coroutine: an operation each, and a function that is called at its end.
struct timers {
    struct entry {
        explicit entry(nowait::detail::sleep_description what) : operation(what) {}
        nowait::detail::sleep_operation operation;
        bool ended = false;
    };
    using cell = std::optional<entry>;

    timers() : cells(pending_timers) {
        for (std::size_t i = 0; i < pending_timers; ++i) {
            set(i);
        }
    }
    ~timers() {
        for (cell& each : cells) {
            each->operation.cancel();
        }
        b.run(empty());
    }
    void set(std::size_t i) {
        entry& made = cells[i].emplace(nowait::sleep_for(timer_span(i)));
        made.operation.bind(
            b.loop->get_loop(), never,
            [](nowait::detail::operation_base& ended) noexcept {
                *static_cast<bool*>(ended.context()) = true;
            },
            &made.ended);
        require(!made.operation.start(), "a timer that has ended at once");
    }

    bed b;
    nowait::inplace_stop_source never;
    std::vector<cell> cells;
    std::size_t at = 0;
};

contender ours_timer() {
    return {"ours, timer wheel", [] {
                auto b = std::make_shared<timers>();
                return [b](std::size_t rounds) -> measurement {
                    const stopwatch clock;
                    std::size_t done = 0;
                    while (done < rounds) {
                        const std::size_t first = b->at;
                        for (std::size_t i = 0; i < timer_batch; ++i) {
                            b->cells[first + i]->operation.cancel();
                        }
                        b->b.run(empty()); // their ends arrive
                        for (std::size_t i = 0; i < timer_batch; ++i) {
                            require(b->cells[first + i]->ended, "a cancelled timer that has not ended");
                            b->set(first + i);
                        }
                        b->at = (first + timer_batch) % pending_timers;
                        done += timer_batch;
                    }
                    return {done, clock.elapsed()};
                };
            }};
}

contender ours_post() {
    struct receiver {
        receiver()
            : thread([this] {
                  pin_receiver();
                  auto made = nowait::runtime::create();
                  require(made.has_value(), "runtime::create");
                  reach.store(new nowait::remote_runtime(made->remote()));
                  require(made->run(busy(&over)).has_value(), "run");
              }) {
            while (reach.load() == nullptr) {
                std::this_thread::yield();
            }
        }
        ~receiver() {
            over.store(true);
            thread.join();
            delete reach.load();
        }
        static task<> busy(const std::atomic<bool>* until) {
            while (!until->load(std::memory_order_relaxed)) {
                co_await nowait::yield();
            }
        }
        std::atomic<bool> over{false};
        std::atomic<nowait::remote_runtime*> reach{nullptr};
        std::thread thread;
    };
    return {"ours, remote_runtime::post", [] {
                return [](std::size_t rounds) -> measurement {
                    receiver to; // for this slice alone: two busy threads would share a CPU
                    return post_all(rounds,
                                    [&](auto function) { require(to.reach.load()->post(function), "post"); });
                };
            }};
}

} // namespace

contender ours(subject what) {
    switch (what) {
    case subject::spawn_join:
        return one_task("ours, task_scope", &spawns_many);
    case subject::spawn_join_one:
        return one_task("ours, spawn and join", &spawns);
    case subject::yield:
        return one_task("ours, yield", &yields_together);
    case subject::yield_alone:
        return one_task("ours, yield", &yields);
    case subject::child_await:
        return one_task("ours, child task", &awaits_children);
    case subject::when_any:
        return one_task("ours, when_any", &races);
    case subject::timer:
        return ours_timer();
    case subject::post:
        return ours_post();
    }
    give_up("ours");
}

footprint measure_footprint(std::size_t how_many) {
    footprint found;
    found.timer = sizeof(nowait::detail::sleep_operation);
    using channel = nowait::local_channel<int>;
    found.channel_wait = sizeof(decltype(std::declval<channel>().receive())::operation);

    const auto in_use = [] {
        const struct mallinfo2 info = ::mallinfo2();
        return static_cast<double>(info.uordblks) + static_cast<double>(info.hblkhd);
    };
    const double each = static_cast<double>(how_many);
    {
        std::vector<task<>> tasks(how_many);
        const double before = in_use();
        for (auto& one : tasks) {
            one = empty();
        }
        found.task = (in_use() - before) / each;
    }
    const auto suspended = [&](auto make) {
        bed b;
        double bytes = 0;
        b.run([](std::size_t n, auto make_one, auto look, double& result) -> task<> {
            nowait::task_scope scope;
            const double before = look();
            for (std::size_t i = 0; i < n; ++i) {
                scope.spawn(make_one());
            }
            co_await nowait::yield(); // all have had their turn, and wait
            result = look() - before;
            scope.request_stop();
            const auto joined = co_await scope.join();
            require(joined.has_value(), "join");
        }(how_many, make, in_use, bytes));
        return bytes / each;
    };
    auto made = channel::create(1);
    require(made.has_value(), "channel::create");
    struct waits {
        static task<> on_channel(const channel* from) {
            const auto got = co_await from->receive();
            keep(got.has_value());
        }
        static task<> on_timer() {
            const auto slept = co_await nowait::sleep_for(24h);
            keep(slept.has_value());
        }
    };
    const channel* const from = &*made;
    found.waits_on_channel = suspended([from] { return waits::on_channel(from); });
    found.waits_on_timer = suspended([] { return waits::on_timer(); });
    return found;
}

} // namespace bench::runtime
