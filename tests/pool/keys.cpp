// Work with keys: in order, never two at a time, and nobody else held up by it.
#include "catch.hpp"
#include "core_support.hpp"
#include "stepping_host.hpp"

#include <deque>
#include <map>
#include <random>
#include <vector>

using nowait::work_account;
using nowait::detail::job_removal;
using nowait_test::core_owner;
using nowait_test::plain_job;
using nowait_test::stepping_host;

namespace {

using core = nowait::detail::worker_pool_core<nowait::detail::real_sync>;

struct world {
    explicit world(std::size_t most) : pool(host, nowait::detail::worker_pool_limits{most, 2}) {}
    ~world() {
        pool->stop();
        host.run();
        pool->reap(true);
    }
    stepping_host host;
    std::deque<plain_job> jobs;
    core_owner<core> pool;
};

} // namespace

TEST_CASE("work with one key runs one at a time and in order, whatever blocks") {
    world w(4);
    std::vector<int> order;
    int inside = 0;
    for (int i = 0; i < 6; ++i) {
        w.jobs.emplace_back([&, i] {
            REQUIRE(++inside == 1);
            w.host.run();
            order.push_back(i);
            --inside;
        });
        REQUIRE(w.pool->submit(w.jobs.back().with_key(7)) == 0);
    }
    w.host.run();
    REQUIRE(order == std::vector<int>{0, 1, 2, 3, 4, 5});
    REQUIRE(w.host.started.size() == 1); // nobody was woken for work that could not run
}

TEST_CASE("work with another key or none is not held up, key 0 is a key like others") {
    world w(4);
    std::vector<int> order;
    w.jobs.emplace_back([&] {
        w.host.run();
        order.push_back(1);
    });
    REQUIRE(w.pool->submit(w.jobs.back().with_key(0)) == 0);
    w.jobs.emplace_back([&] { order.push_back(2); });
    REQUIRE(w.pool->submit(w.jobs.back().with_key(0)) == 0);
    w.jobs.emplace_back([&] { order.push_back(3); });
    REQUIRE(w.pool->submit(w.jobs.back().with_key(64)) == 0);
    w.jobs.emplace_back([&] { order.push_back(4); });
    REQUIRE(w.pool->submit(w.jobs.back()) == 0);
    w.host.run();
    REQUIRE(order == std::vector<int>{3, 4, 1, 2});
}

TEST_CASE("the end of work without a key lets nobody of a key run early") {
    world w(4);
    bool first_is_over = false;
    w.jobs.emplace_back([&] {
        w.host.run();
        first_is_over = true;
    });
    REQUIRE(w.pool->submit(w.jobs.back().with_key(0)) == 0);
    w.jobs.emplace_back();
    REQUIRE(w.pool->submit(w.jobs.back()) == 0); // no key, which is not the key 0
    w.jobs.emplace_back([&] { REQUIRE(first_is_over); });
    REQUIRE(w.pool->submit(w.jobs.back().with_key(0)) == 0);
    w.host.run();
    REQUIRE(w.jobs.back().runs == 1);
}

TEST_CASE("the accounts have keys of their own") {
    world w(2);
    std::vector<int> order;
    w.jobs.emplace_back([&] {
        w.host.run();
        order.push_back(1);
    });
    REQUIRE(w.pool->submit(w.jobs.back().with_key(5)) == 0);
    w.jobs.emplace_back([&] { order.push_back(2); });
    REQUIRE(w.pool->submit(w.jobs.back().with_key(5).unbounded()) == 0);
    w.host.run();
    REQUIRE(order == std::vector<int>{2, 1});
}

TEST_CASE("taking back the first, a middle and the last of a key leaves the others in order") {
    for (int removed = 0; removed < 4; ++removed) {
        world w(1);
        std::vector<int> order;
        plain_job before([&] {
            REQUIRE(w.pool->cancel(w.jobs[static_cast<std::size_t>(removed)]) == job_removal::removed);
        });
        REQUIRE(w.pool->submit(before) == 0);
        for (int i = 0; i < 4; ++i) {
            w.jobs.emplace_back([&order, i] { order.push_back(i); });
            REQUIRE(w.pool->submit(w.jobs.back().with_key(9)) == 0);
        }
        w.jobs.emplace_back([&order] { order.push_back(4); });
        REQUIRE(w.pool->submit(w.jobs.back()) == 0);
        w.host.run();
        // The unkeyed one stands behind the key's first place only.
        std::vector<int> expected{removed == 0 ? 1 : 0, 4};
        for (int i = 0; i < 4; ++i) {
            if (i != removed && i != expected.front())
                expected.push_back(i);
        }
        REQUIRE(order == expected);
    }
}

TEST_CASE("at the end all pending work of a key is told, also behind one that runs") {
    stepping_host host;
    core_owner<core> pool(host, nowait::detail::worker_pool_limits{2, 2});
    std::deque<plain_job> jobs;
    jobs.emplace_back([&] {
        pool->stop();
        for (std::size_t i = 1; i < jobs.size(); ++i)
            REQUIRE(jobs[i].error == ECANCELED);
    });
    for (int i = 0; i < 4; ++i)
        jobs.emplace_back();
    for (plain_job& job : jobs)
        REQUIRE(pool->submit(job.with_key(3).unbounded()) == 0);
    host.run();
    REQUIRE(jobs[0].error == 0);
    for (std::size_t i = 1; i < jobs.size(); ++i) {
        REQUIRE(jobs[i].runs == 0);
        REQUIRE(jobs[i].ends == 1);
        REQUIRE(jobs[i].releases == 1);
    }
    REQUIRE(pool->present() == 0);
    pool->reap(true);
}

TEST_CASE("random work with keys: each once, in order, never two of a key") {
    std::mt19937 random(20);
    for (int round = 0; round < 200; ++round) {
        world w(1 + random() % 4);
        std::map<std::uint64_t, int> inside;
        std::map<std::uint64_t, int> last;
        std::size_t removed = 0;
        for (int i = 0; i < 40; ++i) {
            const std::uint64_t key = random() % 3;
            const bool keyed = random() % 4 != 0;
            const std::size_t waits = random() % 3;
            w.jobs.emplace_back([&w, &inside, &last, key, keyed, waits, i] {
                if (keyed) {
                    REQUIRE(inside[key]++ == 0);
                    REQUIRE(last[key] <= i);
                    last[key] = i;
                }
                for (std::size_t n = 0; n < waits; ++n)
                    w.host.step_one();
                if (keyed)
                    --inside[key];
            });
            if (keyed)
                w.jobs.back().with_key(key);
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
        REQUIRE(w.pool->numbers(work_account::bounded).queued == 0);
    }
}
