// Work that may have half of the workers: the rest of it waits, and holds nobody else up.
#include "catch.hpp"
#include "core_support.hpp"
#include "stepping_host.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <deque>
#include <functional>
#include <random>
#include <utility>
#include <vector>

using nowait::work_account;
using nowait::detail::job_removal;
using nowait_test::core_owner;
using nowait_test::plain_job;
using nowait_test::stepping_host;

namespace {

class telling_core final : public nowait::detail::worker_pool_core<nowait::detail::real_sync> {
public:
    using worker_pool_core::worker_pool_core;
    std::vector<std::size_t> told; // how much waited

protected:
    void exhausted(work_account, std::size_t queued) noexcept override { told.push_back(queued); }
};

struct world {
    explicit world(std::size_t most) : pool(host, nowait::detail::worker_pool_limits{most, 2}) {}
    ~world() {
        pool->stop();
        host.run();
        pool->reap(true);
    }
    auto numbers() { return pool->numbers(work_account::bounded); }
    plain_job& add(std::function<void()> what) { return jobs.emplace_back(std::move(what)); }

    stepping_host host;
    std::deque<plain_job> jobs;
    core_owner<telling_core> pool;
};

} // namespace

TEST_CASE("rationed work has half of the workers, in order, and other work runs beside it") {
    world w(4);
    std::vector<int> order;
    int inside = 0;
    int most = 0;
    int others = 0;
    for (int i = 0; i < 6; ++i) {
        w.add([&, i] {
            most = std::max(most, ++inside);
            order.push_back(i);
            REQUIRE(w.pool->submit(w.add([&] { ++others; })) == 0);
            w.host.run();        // whoever can, does
            REQUIRE(others > i); // its own, at least
            --inside;
        });
        REQUIRE(w.pool->submit(w.jobs.back().with_ration()) == 0);
    }
    REQUIRE(w.numbers().queued == 6);
    w.host.run();
    REQUIRE(most == 2);
    REQUIRE(order == std::vector<int>{0, 1, 2, 3, 4, 5});
    REQUIRE(w.numbers().taken == 12);
}

TEST_CASE("with a maximum of 1 the ration is 1") {
    world w(1);
    int ran = 0;
    for (int i = 0; i < 3; ++i) {
        w.add([&ran] { ++ran; });
        REQUIRE(w.pool->submit(w.jobs.back().with_ration()) == 0);
    }
    w.host.run();
    REQUIRE(ran == 3);
}

TEST_CASE("rationed work that would wait for its own ration is refused") {
    world w(4);
    int refused = 0;
    int children = 0;
    for (int i = 0; i < 2; ++i) { // both places
        w.add([&] {
            plain_job& child = w.add([&children] { ++children; });
            const int error = w.pool->submit(child.with_ration());
            REQUIRE((error == 0 || error == EDEADLK));
            refused += error != 0 ? 1 : 0;
            w.host.run(); // the other one begins, while this one waits
            REQUIRE(w.pool->submit(w.add([&children] { ++children; })) == 0); // others are no matter
        });
        REQUIRE(w.pool->submit(w.jobs.back().with_ration()) == 0);
    }
    w.host.run();
    REQUIRE(refused == 1);
    REQUIRE(children == 3);
    // What has ended is forgotten.
    w.add([&] { REQUIRE(w.pool->submit(w.add([&children] { ++children; }).with_ration()) == 0); });
    REQUIRE(w.pool->submit(w.jobs.back().with_ration()) == 0);
    w.host.run();
    REQUIRE(children == 4);

    world narrow(2);
    narrow.add([&] { REQUIRE(narrow.pool->submit(narrow.add([] {}).with_ration()) == EDEADLK); });
    REQUIRE(narrow.pool->submit(narrow.jobs.back().with_ration()) == 0);
    narrow.host.run();
}

TEST_CASE("that a ration is used up is told once until it has room again") {
    world w(4);
    auto round = [&w] {
        plain_job extra;
        plain_job again;
        for (int i = 0; i < 2; ++i) {
            w.add([&w, &extra, &again, i] {
                if (i == 0) {
                    w.host.run(); // the second one begins
                    return;
                }
                REQUIRE(w.pool->submit(extra.with_ration()) == 0);
                REQUIRE(w.pool->cancel(extra) == job_removal::removed);
                REQUIRE(w.pool->submit(again.with_ration()) == 0);
            });
            REQUIRE(w.pool->submit(w.jobs.back().with_ration()) == 0);
        }
        w.host.run();
        REQUIRE(again.runs == 1);
    };
    round();
    REQUIRE(w.pool->told == std::vector<std::size_t>{1});
    REQUIRE(w.numbers().exhausted == 1);
    round();
    REQUIRE(w.numbers().exhausted == 2);
}

TEST_CASE("rationed work is taken back from the queue, from the line, and lets the next one in") {
    world w(4);
    std::vector<int> order;
    for (int i = 0; i < 6; ++i) {
        w.add([&order, i] { order.push_back(i); });
        REQUIRE(w.pool->submit(w.jobs.back().with_ration()) == 0);
    }
    REQUIRE(w.pool->cancel(w.jobs[0]) == job_removal::removed); // was ready: 2 takes its place
    REQUIRE(w.pool->cancel(w.jobs[4]) == job_removal::removed); // stood in the line
    REQUIRE(w.pool->cancel(w.jobs[4]) == job_removal::over);
    w.host.run();
    REQUIRE(order == std::vector<int>{2, 1, 3, 5});
    REQUIRE(w.numbers().queued == 0);
    REQUIRE(w.numbers().cancelled == 2);
    // Every place is free again.
    order.clear();
    int inside = 0;
    for (int i = 0; i < 2; ++i) {
        w.add([&w, &inside] {
            ++inside;
            w.host.run();
            REQUIRE(inside == 2);
        });
        REQUIRE(w.pool->submit(w.jobs.back().with_ration()) == 0);
    }
    w.host.run();
    REQUIRE(inside == 2);
}

TEST_CASE("at the end rationed work is told wherever it waits, and the ration is free") {
    stepping_host host;
    std::deque<plain_job> jobs(5);
    core_owner<telling_core> pool(host, nowait::detail::worker_pool_limits{4, 4});
    host.refuse = 10; // no worker: all of it stays where it is, or fails
    for (plain_job& job : jobs)
        REQUIRE(pool->submit(job.with_ration()) == 0);
    for (const plain_job& job : jobs) {
        REQUIRE(job.ends == 1);
        REQUIRE(job.error == EAGAIN);
    }
    host.refuse = 0;
    std::deque<plain_job> later(5);
    for (plain_job& job : later)
        REQUIRE(pool->submit(job.with_ration()) == 0);
    pool->stop();
    pool->drop_queued();
    for (const plain_job& job : later) {
        REQUIRE(job.runs == 0);
        REQUIRE(job.error == ECANCELED);
    }
    REQUIRE(pool->numbers(work_account::bounded).queued == 0);
    host.run();
    REQUIRE(pool->present() == 0);
    pool->reap(true);
}

TEST_CASE("random work with and without a ration: each once, never more than half of it at a time") {
    std::mt19937 random(21);
    for (int round = 0; round < 200; ++round) {
        const std::size_t workers = 1 + random() % 5;
        const std::size_t ration = workers > 1 ? workers / 2 : 1;
        world w(workers);
        std::size_t inside = 0;
        std::size_t removed = 0;
        for (int i = 0; i < 40; ++i) {
            const bool rationed = random() % 3 != 0;
            const std::size_t waits = random() % 4;
            w.add([&w, &inside, ration, rationed, waits] {
                if (rationed)
                    REQUIRE(++inside <= ration);
                for (std::size_t n = 0; n < waits; ++n)
                    w.host.step_one();
                if (rationed)
                    --inside;
            });
            w.jobs.back().rationed = rationed;
            w.jobs.back().parallel = random() % 5 == 0;
            REQUIRE(w.pool->submit(w.jobs.back()) == 0);
            for (std::size_t n = random() % 3; n > 0; --n)
                w.host.step_one();
            if (random() % 6 == 0 && w.pool->cancel(w.jobs[random() % w.jobs.size()]) == job_removal::removed)
                ++removed;
        }
        w.host.run();
        std::size_t ran = 0;
        for (const plain_job& job : w.jobs) {
            REQUIRE(job.runs <= 1);
            REQUIRE(job.runs == job.ends);
            ran += static_cast<std::size_t>(job.runs);
        }
        REQUIRE(ran + removed == w.jobs.size());
        REQUIRE(w.numbers().queued == 0);
    }
}
