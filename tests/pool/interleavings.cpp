// The pool through every interleaving of its users: the code of the pool itself, over a lock and atomics at each of which
// another thread may go on, with workers that are threads of the scenario.
#include "interleavings.hpp"

#include "catch.hpp"
#include "core_support.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

using nowait::detail::job_removal;
using nowait::detail::worker_body;
using nowait::detail::worker_host;
using nowait::detail::worker_pool_limits;
using nowait::detail::worker_step;
using nowait_test::core_owner;
using nowait_test::explorer;

namespace {

/// Every operation that orders anything is a point at which another thread may go on.
struct stepping_sync {
    static inline thread_local bool inside = false; // a thread of the scenario
    static inline bool sleeps_time_out = false;

    static void point(std::memory_order order) {
        if (inside && order != std::memory_order_relaxed)
            explorer::point();
    }

    template <class T>
    class atomic {
    public:
        atomic() = default;
        atomic(T value) noexcept : value_(value) {}
        [[nodiscard]] T load(std::memory_order order) const noexcept {
            point(order);
            return value_;
        }
        void store(T value, std::memory_order order) noexcept {
            point(order);
            value_ = value;
        }
        T exchange(T value, std::memory_order order) noexcept {
            point(order);
            return std::exchange(value_, value);
        }
        bool compare_exchange_strong(T& expected, T desired, std::memory_order order,
                                     std::memory_order) noexcept {
            point(order);
            if (value_ != expected) {
                expected = value_;
                return false;
            }
            value_ = desired;
            return true;
        }
        T fetch_add(T n, std::memory_order order) noexcept {
            point(order);
            return std::exchange(value_, static_cast<T>(value_ + n));
        }
        T fetch_sub(T n, std::memory_order order) noexcept {
            point(order);
            return std::exchange(value_, static_cast<T>(value_ - n));
        }
        [[nodiscard]] T peek() const noexcept { return value_; }

    private:
        T value_{};
    };
    class mutex {
    public:
        void lock() {
            if (inside)
                (void)explorer::wait_until([this] { return !held_; });
            held_ = true;
        }
        void unlock() noexcept { held_ = false; }

    private:
        bool held_ = false;
    };

    static void wait(atomic<std::uint32_t>& word, std::uint32_t seen,
                     std::chrono::steady_clock::time_point until) noexcept {
        if (sleeps_time_out && until != std::chrono::steady_clock::time_point::max()) {
            explorer::point();
            return;
        }
        (void)explorer::wait_until([&word, seen] { return word.peek() != seen; });
    }
    static void wake(atomic<std::uint32_t>&) noexcept {}
};

using core = nowait::detail::worker_pool_core<stepping_sync>;
using job = nowait_test::basic_plain_job<stepping_sync>;
using region = nowait::detail::signal_region<stepping_sync>;
using parking = nowait::detail::parking<stepping_sync>;

/// Workers on threads of the scenario: the n-th thread runs the n-th worker that is started.
class explored_host final : public worker_host {
public:
    explicit explored_host(std::size_t threads) : slots_(threads) {}

    time_point now() noexcept override { return time_point(std::chrono::hours(1)); }
    int start(worker_body& body) noexcept override {
        if (used_ == slots_.size())
            return -EAGAIN;
        slots_[used_++].body = &body;
        return 0;
    }
    void wake(worker_body& body) noexcept override {
        for (slot& each : slots_) {
            if (each.body == &body)
                each.spot.unpark();
        }
    }
    void interrupt(worker_body& body) noexcept override {
        if (on_interrupt)
            on_interrupt(body);
    }
    std::uint32_t changes() noexcept override { return 0; }
    void changed() noexcept override {}
    void await_change(std::uint32_t, time_point) noexcept override {}

    /// What the n-th thread does.
    void work(std::size_t n) {
        slot& mine = slots_[n];
        if (!explorer::wait_until([&] { return mine.body != nullptr || finished; }) || mine.body == nullptr)
            return;
        bool woken = false;
        for (int steps = 0; steps < 1000; ++steps) {
            const worker_step did = mine.body->step(std::exchange(woken, false));
            if (did.what == worker_step::outcome::leave) {
                std::exchange(mine.body, nullptr)->left();
                return;
            }
            if (did.what == worker_step::outcome::idle)
                woken = mine.spot.park(did.until);
        }
    }

    bool finished = false; // nobody will be started any more
    std::function<void(worker_body&)> on_interrupt;

private:
    struct slot {
        worker_body* body = nullptr;
        parking spot;
    };
    std::deque<slot> slots_;
    std::size_t used_ = 0;
};

struct world {
    explicit world(std::size_t most)
        : host(most), pool(host, worker_pool_limits{most, 1, std::chrono::nanoseconds(0)}) {}
    ~world() { pool->reap(true); }

    explored_host host;
    std::deque<job> jobs;
    core_owner<core> pool;
    std::size_t taken_back = 0;
    std::size_t submitting = 0; // other threads that are at it

    /// The end of a scenario: everything submitted has ended, everybody goes.
    void finish() {
        (void)explorer::wait_until([this] {
            if (submitting != 0)
                return false;
            std::size_t ended = taken_back;
            for (const job& each : jobs)
                ended += static_cast<std::size_t>(each.ends);
            return ended == jobs.size();
        });
        pool->stop();
        host.finished = true;
    }
    [[nodiscard]] bool each_ended_once() const {
        for (const job& each : jobs) {
            if (each.runs > 1 || each.ends > 1 || each.runs > each.ends || each.releases != each.ends)
                return false;
        }
        return pool->present() == 0;
    }
};

explorer::body inside(std::function<void()> what) {
    return [what = std::move(what)] {
        stepping_sync::inside = true;
        what();
        stepping_sync::inside = false;
    };
}

/// Everything with at most so many preemptions.
explorer::findings walk(const std::function<explorer::scenario()>& make, std::size_t preemptions = 2) {
    explorer e;
    e.preemptions_max = preemptions;
    return e.explore(make);
}

} // namespace

TEST_CASE("interleavings: no wake of a parked thread is lost") {
    bool all = true;
    const auto found = walk([&]() -> explorer::scenario {
        auto spot = std::make_shared<parking>();
        auto wakes = std::make_shared<int>(0);
        explorer::scenario s;
        s.threads.push_back(inside([spot, wakes] {
            while (*wakes < 2) {
                if (spot->park(std::chrono::steady_clock::time_point::max()))
                    ++*wakes;
                else
                    return;
            }
        }));
        s.threads.push_back(inside([spot, wakes] {
            spot->unpark();
            (void)explorer::wait_until([wakes] { return *wakes == 1; });
            spot->unpark();
        }));
        s.at_end = [wakes, &all] { all = all && *wakes == 2; };
        return s;
    });
    REQUIRE(found.complete);
    REQUIRE(found.deadlocks == 0);
    REQUIRE(all);
}

TEST_CASE("interleavings: no signal is sent to a worker that has left the region") {
    int sent_in_all = 0;
    int sent_late = 0;
    const auto found = walk(
        [&]() -> explorer::scenario {
            struct shared {
                region where;
                bool left = false;
                int sent = 0;
                int late = 0;
            };
            auto both = std::make_shared<shared>();
            explorer::scenario s;
            s.threads.push_back(inside([both] {
                for (int round = 0; round < 2; ++round) {
                    both->left = false;
                    both->where.open();
                    both->where.leave();
                    both->left = true;
                    explorer::point();
                }
            }));
            for (int i = 0; i < 2; ++i) {
                s.threads.push_back(inside([both] {
                    if (!both->where.begin_send())
                        return;
                    explorer::point(); // the system call
                    both->late += both->left ? 1 : 0;
                    ++both->sent;
                    both->where.end_send();
                }));
            }
            s.at_end = [both, &sent_in_all, &sent_late] {
                sent_in_all += both->sent;
                sent_late += both->late;
            };
            return s;
        },
        8);
    REQUIRE(found.complete);
    REQUIRE(found.deadlocks == 0);
    REQUIRE(sent_in_all > 0);
    REQUIRE(sent_late == 0);
}

TEST_CASE("interleavings: two jobs that wait for each other both get a worker") {
    bool all = true;
    const auto found = walk([&]() -> explorer::scenario {
        auto w = std::make_shared<world>(2);
        auto inside_now = std::make_shared<int>(0);
        for (int i = 0; i < 2; ++i) {
            w->jobs.emplace_back([inside_now] {
                ++*inside_now;
                (void)explorer::wait_until([inside_now] { return *inside_now == 2; });
            });
        }
        explorer::scenario s;
        s.threads.push_back(inside([w] {
            (void)w->pool->submit(w->jobs[0]);
            (void)w->pool->submit(w->jobs[1]);
            w->finish();
        }));
        s.threads.push_back(inside([w] { w->host.work(0); }));
        s.threads.push_back(inside([w] { w->host.work(1); }));
        s.at_end = [w, inside_now, &all] { all = all && *inside_now == 2 && w->each_ended_once(); };
        return s;
    });
    REQUIRE(found.deadlocks == 0);
    REQUIRE(all);
    REQUIRE(found.complete);
}

TEST_CASE("interleavings: work is run or taken back, and nothing else") {
    bool all = true;
    std::size_t ran = 0;
    std::size_t removed = 0;
    const auto found = walk([&]() -> explorer::scenario {
        auto w = std::make_shared<world>(1);
        w->jobs.emplace_back();
        auto outcome = std::make_shared<job_removal>(job_removal::over);
        explorer::scenario s;
        s.threads.push_back(inside([w, outcome] {
            (void)w->pool->submit(w->jobs[0]);
            *outcome = w->pool->cancel(w->jobs[0]);
            w->taken_back = *outcome == job_removal::removed ? 1 : 0;
            w->finish();
        }));
        s.threads.push_back(inside([w] { w->host.work(0); }));
        s.at_end = [w, outcome, &all, &ran, &removed] {
            const bool gone = *outcome == job_removal::removed;
            ran += static_cast<std::size_t>(w->jobs[0].runs);
            removed += gone ? 1 : 0;
            all = all && w->each_ended_once() && w->jobs[0].runs == (gone ? 0 : 1);
        };
        return s;
    });
    REQUIRE(found.complete);
    REQUIRE(found.deadlocks == 0);
    REQUIRE(all);
    REQUIRE(ran > 0);
    REQUIRE(removed > 0);
}

TEST_CASE("interleavings: running work is signalled while it runs, or not at all") {
    bool all = true;
    std::size_t signals = 0;
    const auto found = walk([&]() -> explorer::scenario {
        auto w = std::make_shared<world>(1);
        struct state {
            bool in_job = false;
            bool other_job = false;
            bool hit_other = false;
            std::size_t signals = 0;
        };
        auto seen = std::make_shared<state>();
        w->host.on_interrupt = [seen](worker_body&) {
            explorer::point();
            ++seen->signals;
            seen->hit_other = seen->hit_other || seen->other_job;
        };
        w->jobs.emplace_back([] { explorer::point(); });
        w->jobs[0].interruptible = true;
        w->jobs.emplace_back([seen] {
            seen->other_job = true;
            explorer::point();
            seen->other_job = false;
        });
        explorer::scenario s;
        s.threads.push_back(inside([w] {
            (void)w->pool->submit(w->jobs[0]);
            (void)w->pool->submit(w->jobs[1]);
            w->taken_back = w->pool->cancel(w->jobs[0]) == job_removal::removed ? 1 : 0;
            w->finish();
        }));
        s.threads.push_back(inside([w] { w->host.work(0); }));
        s.at_end = [w, seen, &all, &signals] {
            signals += seen->signals;
            all = all && !seen->hit_other && w->each_ended_once() && w->jobs[1].runs == 1;
        };
        return s;
    });
    REQUIRE(found.complete);
    REQUIRE(found.deadlocks == 0);
    REQUIRE(all);
    REQUIRE(signals > 0);
}

TEST_CASE("interleavings: work of one key never overlaps, and all of it runs") {
    bool all = true;
    const auto found = walk(
        [&]() -> explorer::scenario {
            auto w = std::make_shared<world>(2);
            w->submitting = 1;
            auto state = std::make_shared<std::pair<int, bool>>(0, false);
            for (int i = 0; i < 2; ++i) {
                w->jobs.emplace_back([state] {
                    state->second = state->second || state->first != 0;
                    ++state->first;
                    explorer::point();
                    --state->first;
                });
                w->jobs.back().with_key(1);
                w->jobs.back().parallel = true; // two workers look for it at once
            }
            explorer::scenario s;
            s.threads.push_back(inside([w] {
                (void)w->pool->submit(w->jobs[0]);
                w->finish();
            }));
            s.threads.push_back(inside([w] {
                (void)w->pool->submit(w->jobs[1]);
                w->submitting = 0;
            }));
            s.threads.push_back(inside([w] { w->host.work(0); }));
            s.threads.push_back(inside([w] { w->host.work(1); }));
            s.at_end = [w, state, &all] {
                all = all && !state->second && w->jobs[0].runs == 1 && w->jobs[1].runs == 1 &&
                      w->each_ended_once();
            };
            return s;
        },
        1);
    REQUIRE(found.deadlocks == 0);
    REQUIRE(all);
    REQUIRE(found.complete);
}

TEST_CASE(
    "interleavings: of rationed work no more than may runs at once, and all of it runs or is taken back") {
    const bool takes_back = GENERATE(false, true);
    bool all = true;
    const auto found = walk(
        [&]() -> explorer::scenario {
            auto w = std::make_shared<world>(2); // so its ration is 1
            auto state = std::make_shared<std::pair<int, bool>>(0, false);
            for (int i = 0; i < 2; ++i) {
                w->jobs.emplace_back([state] {
                    state->second = state->second || state->first != 0;
                    ++state->first;
                    explorer::point();
                    --state->first;
                });
                w->jobs.back().with_ration().parallel = !takes_back; // two workers look for it at once
            }
            auto removed = std::make_shared<bool>(false);
            explorer::scenario s;
            s.threads.push_back(inside([w, removed, takes_back] {
                (void)w->pool->submit(w->jobs[0]);
                (void)w->pool->submit(w->jobs[1]);
                if (takes_back)
                    *removed = w->pool->cancel(w->jobs[0]) == job_removal::removed;
                w->taken_back = *removed ? 1 : 0;
                w->finish();
            }));
            s.threads.push_back(inside([w] { w->host.work(0); }));
            s.threads.push_back(inside([w] { w->host.work(1); }));
            s.at_end = [w, state, removed, &all] {
                all = all && !state->second && w->jobs[0].runs == (*removed ? 0 : 1) && w->jobs[1].runs == 1;
            };
            return s;
        },
        1);
    REQUIRE(found.deadlocks == 0);
    REQUIRE(all);
    REQUIRE(found.complete);
}

TEST_CASE("interleavings: a worker that leaves for want of work takes none with it") {
    stepping_sync::sleeps_time_out = true;
    bool all = true;
    std::size_t two_workers = 0;
    const auto found = walk(
        [&]() -> explorer::scenario {
            auto w = std::make_shared<world>(2);
            for (int i = 0; i < 3; ++i)
                w->jobs.emplace_back();
            w->jobs[1].parallel = true; // so that there are two, of which one may leave
            explorer::scenario s;
            s.threads.push_back(inside([w] {
                (void)w->pool->submit(w->jobs[0]);
                (void)w->pool->submit(w->jobs[1]);
                (void)w->pool->submit(w->jobs[2]);
                w->finish();
            }));
            s.threads.push_back(inside([w] { w->host.work(0); }));
            s.threads.push_back(inside([w] { w->host.work(1); }));
            s.at_end = [w, &all, &two_workers] {
                two_workers += w->pool->numbers(nowait::work_account::bounded).started == 2 ? 1 : 0;
                all = all && w->each_ended_once();
                for (const job& each : w->jobs)
                    all = all && each.ends == 1;
            };
            return s;
        },
        1);
    stepping_sync::sleeps_time_out = false;
    REQUIRE(found.deadlocks == 0);
    REQUIRE(all);
    REQUIRE(two_workers > 0);
    REQUIRE(found.complete);
}

TEST_CASE("interleavings: at the end work is refused, run, or told, and nobody stays") {
    bool all = true;
    std::size_t refused = 0;
    std::size_t told = 0;
    std::size_t ran = 0;
    const auto found = walk([&]() -> explorer::scenario {
        auto w = std::make_shared<world>(1);
        w->jobs.emplace_back();
        w->jobs[0].unbounded();
        auto error = std::make_shared<int>(0);
        explorer::scenario s;
        s.threads.push_back(inside([w, error] { *error = w->pool->submit(w->jobs[0]); }));
        s.threads.push_back(inside([w] {
            w->pool->stop();
            w->pool->drop_queued();
        }));
        s.threads.push_back(inside([w] {
            // It is started by the submission, if at all: by then nobody knows whether there will be one.
            w->host.work(0);
        }));
        s.at_end = [w, error, &all, &refused, &told, &ran] {
            const job& only = w->jobs[0];
            refused += *error == ECANCELED ? 1 : 0;
            told += only.error == ECANCELED ? 1 : 0;
            ran += static_cast<std::size_t>(only.runs);
            all = all && (*error != 0) + only.ends == 1 &&
                  only.runs + (only.error == ECANCELED) == only.ends && w->pool->present() == 0;
        };
        return s;
    });
    // Where the submission is refused, the worker's thread waits for a worker that never comes: the scenario's only dead end.
    REQUIRE(found.complete);
    REQUIRE(found.deadlocks == refused);
    REQUIRE(all);
    REQUIRE(refused > 0);
    REQUIRE(told > 0);
    REQUIRE(ran > 0);
}

TEST_CASE("interleavings: the end of abandonable work is told once, by the worker or by who abandons it") {
    bool all = true;
    std::size_t by_worker = 0;
    std::size_t by_other = 0;
    const auto found = walk([&]() -> explorer::scenario {
        auto w = std::make_shared<world>(1);
        w->jobs.emplace_back([] { explorer::point(); });
        w->jobs[0].abandonable = true;
        explorer::scenario s;
        s.threads.push_back(inside([w] {
            (void)w->pool->submit(w->jobs[0]);
            w->pool->abandon(nowait::work_account::bounded);
            w->finish();
        }));
        s.threads.push_back(inside([w] { w->host.work(0); }));
        s.at_end = [w, &all, &by_worker, &by_other] {
            const job& only = w->jobs[0];
            by_worker += only.error == 0 ? 1 : 0;
            by_other += only.error == ECANCELED ? 1 : 0;
            all = all && only.runs == 1 && w->each_ended_once();
        };
        return s;
    });
    REQUIRE(found.complete);
    REQUIRE(found.deadlocks == 0);
    REQUIRE(all);
    REQUIRE(by_worker > 0);
    REQUIRE(by_other > 0);
}
