// When workers are made, woken, and when they leave: on a clock and a scheduler that the test moves.
#include "catch.hpp"
#include "core_support.hpp"
#include "stepping_host.hpp"

#include <chrono>
#include <deque>
#include <string>
#include <vector>

using namespace std::chrono_literals;
using nowait::work_account;
using nowait::detail::job_removal;
using nowait::detail::worker_pool_limits;
using nowait_test::core_owner;
using nowait_test::plain_job;
using nowait_test::stepping_host;

namespace {

class counting_core final : public nowait::detail::worker_pool_core<nowait::detail::real_sync> {
public:
    using worker_pool_core::worker_pool_core;
    struct call {
        work_account which;
        std::size_t queued;
    };
    std::vector<call> exhaustions;

protected:
    void exhausted(work_account which, std::size_t queued) noexcept override {
        exhaustions.push_back({which, queued});
    }
};

worker_pool_limits limits(std::size_t bounded, std::size_t unbounded = 2) {
    worker_pool_limits given;
    given.bounded = bounded;
    given.unbounded = unbounded;
    return given;
}

struct world {
    explicit world(std::size_t bounded, std::size_t unbounded = 2) : core(host, limits(bounded, unbounded)) {}
    ~world() {
        core->stop();
        host.run();
        core->reap(true);
    }
    auto numbers(work_account which = work_account::bounded) { return core->numbers(which); }
    plain_job& add(std::function<void()> what = [] {}) { return jobs.emplace_back(std::move(what)); }
    int submit(std::function<void()> what = [] {}) { return core->submit(add(std::move(what))); }

    stepping_host host;
    std::deque<plain_job> jobs;
    core_owner<counting_core> core;
};

} // namespace

TEST_CASE("a job that does not block is run by one worker, which the first submission makes") {
    world w(4);
    for (int i = 0; i < 3; ++i) {
        REQUIRE(w.submit() == 0);
        w.host.run();
    }
    REQUIRE(w.host.started == std::vector<std::string>{"nowait-b1"});
    REQUIRE(w.numbers().taken == 3);
    for (const plain_job& job : w.jobs) {
        REQUIRE(job.runs == 1);
        REQUIRE(job.ends == 1);
        REQUIRE(job.error == 0);
        REQUIRE(job.releases == 1);
    }
}

TEST_CASE("work that waits behind a job that blocks gets another worker before that job runs") {
    world w(3);
    int inside = 0;
    int most = 0;
    auto blocks = [&] {
        most = std::max(most, ++inside);
        w.host.run(); // it waits, and the others go on
        --inside;
    };
    for (int i = 0; i < 5; ++i)
        REQUIRE(w.submit(blocks) == 0);
    REQUIRE(w.numbers().workers == 1); // the first one is on its way, and wakes the next
    w.host.run();
    REQUIRE(most == 3); // the maximum, and not one more
    REQUIRE(w.host.started.size() == 3);
    REQUIRE(w.numbers().taken == 5);
}

TEST_CASE("parallel work makes a worker for itself at once") {
    world w(3);
    for (int i = 0; i < 4; ++i) {
        w.add().parallel = true;
        REQUIRE(w.core->submit(w.jobs.back()) == 0);
    }
    REQUIRE(w.host.started.size() == 3);
    w.host.run();
    REQUIRE(w.numbers().taken == 4);
}

TEST_CASE("the worker that became idle last is woken first") {
    world w(3);
    for (int i = 0; i < 3; ++i)
        REQUIRE(w.submit([&] { w.host.run(); }) == 0);
    w.host.run();
    REQUIRE(w.numbers().idle == 3);
    // They leave from the other end of the list, so the one that is used stays.
    for (int i = 0; i < 4; ++i) {
        w.host.advance(2s);
        REQUIRE(w.submit() == 0);
        w.host.run();
    }
    REQUIRE(w.numbers().workers == 1);
    REQUIRE(w.numbers().taken == 7);
    REQUIRE(w.host.started.size() == 3);
}

TEST_CASE("after a burst and 5 s of idleness one worker is left in each account") {
    world w(8, 16);
    for (int i = 0; i < 100; ++i) {
        REQUIRE(w.submit([&] { w.host.run(); }) == 0);
        plain_job& other = w.add([&] { w.host.run(); }).unbounded();
        REQUIRE(w.core->submit(other) == 0);
    }
    w.host.run();
    REQUIRE(w.numbers().workers == 8);
    REQUIRE(w.numbers(work_account::unbounded).workers == 16);
    w.host.advance(4999ms);
    REQUIRE(w.host.alive() == 24);
    w.host.advance(1ms);
    REQUIRE(w.numbers().workers == 1);
    REQUIRE(w.numbers(work_account::unbounded).workers == 1);
    REQUIRE(w.host.alive() == 2);
    // Whoever leaves waits for the thread of the one before: at most one of them is left over.
    REQUIRE(w.host.reaped == 21);
    w.host.advance(1h);
    REQUIRE(w.host.alive() == 2);
    REQUIRE(w.submit() == 0);
    w.host.run();
    REQUIRE(w.host.started.size() == 24); // the warm one has done it
}

TEST_CASE("a worker that wakes for nothing goes back to its place and keeps its time") {
    world w(2);
    REQUIRE(w.submit([&] { w.host.run(); }) == 0);
    REQUIRE(w.submit() == 0);
    w.host.run();
    REQUIRE(w.numbers().idle == 2);
    w.host.clock += 3s;
    w.host.step_for_nothing(0);
    w.host.step_for_nothing(1);
    REQUIRE(w.numbers().idle == 2);
    w.host.advance(2s);
    REQUIRE(w.numbers().workers == 1);
}

TEST_CASE("a claimed worker does nothing before its wake has come") {
    world w(1);
    REQUIRE(w.submit() == 0);
    w.host.run();
    // The timer and the wake of one sleep meet: whoever wakes must find the worker where it was.
    struct late_host : nowait::detail::worker_host {
        stepping_host& inner;
        explicit late_host(stepping_host& of) : inner(of) {}
        nowait::detail::worker_body* woken = nullptr;
        time_point now() noexcept override { return inner.now(); }
        int start(nowait::detail::worker_body& body) noexcept override { return inner.start(body); }
        void wake(nowait::detail::worker_body& body) noexcept override { woken = &body; }
        std::uint32_t changes() noexcept override { return 0; }
        void changed() noexcept override {}
        void await_change(std::uint32_t, time_point) noexcept override {}
    } late(w.host);
    stepping_host& host = w.host;
    core_owner<counting_core> core(late, limits(1));
    plain_job first;
    plain_job second;
    REQUIRE(core->submit(first) == 0);
    host.run();
    REQUIRE(core->submit(second) == 0); // claims the idle worker, and has not woken it yet
    REQUIRE(late.woken != nullptr);
    auto step = late.woken->step(false); // its time-out comes first
    REQUIRE(step.what == nowait::detail::worker_step::outcome::idle);
    REQUIRE(step.until == nowait::detail::worker_host::time_point::max());
    REQUIRE(second.runs == 0);
    step = late.woken->step(true);
    REQUIRE(step.what == nowait::detail::worker_step::outcome::ran);
    REQUIRE(second.runs == 1);
    core->stop();
    host.step_for_nothing(1);
    REQUIRE(core->present() == 0);
    core->reap(true);
}

TEST_CASE("with a maximum of 1 everything is done, one after the other") {
    world w(1);
    int inside = 0;
    for (int i = 0; i < 4; ++i) {
        REQUIRE(w.submit([&] {
            REQUIRE(++inside == 1);
            w.host.run();
            --inside;
        }) == 0);
    }
    w.host.run();
    REQUIRE(w.numbers().taken == 4);
    REQUIRE(w.host.started.size() == 1);
}

TEST_CASE("work without any worker ends with the error of the thread that could not be made") {
    world w(4);
    w.host.refuse = 1;
    REQUIRE(w.submit() == 0);
    REQUIRE(w.jobs.front().error == EAGAIN);
    REQUIRE(w.jobs.front().runs == 0);
    REQUIRE(w.jobs.front().releases == 1);
    REQUIRE(w.numbers().workers == 0);
    REQUIRE(w.numbers().failed == 1);
    REQUIRE(w.core->present() == 0);
    // It is not asked for again at once, but soon.
    w.host.clock += 5ms;
    REQUIRE(w.submit() == 0);
    w.host.run();
    REQUIRE(w.jobs.back().error == 0);
    REQUIRE(w.host.started == std::vector<std::string>{"nowait-b2"});
}

TEST_CASE("work is kept for the workers there are when no further thread is to be had") {
    world w(4);
    REQUIRE(w.submit([&] {
        w.host.refuse = 1000;
        for (int i = 0; i < 20; ++i)
            REQUIRE(w.submit() == 0);
        w.host.run();
        REQUIRE(w.numbers().workers == 1);
        REQUIRE(w.numbers().queued == 20);
    }) == 0);
    w.host.run();
    REQUIRE(w.numbers().taken == 21);
    REQUIRE(w.numbers().failed == 0);
    REQUIRE(w.numbers().not_started == 1); // not once for each of them
    // And there are more again later.
    w.host.refuse = 0;
    w.host.advance(5ms);
    REQUIRE(w.submit([&] { w.host.run(); }) == 0);
    REQUIRE(w.submit() == 0);
    w.host.run();
    REQUIRE(w.host.started.size() == 2);
}

TEST_CASE("memory that fails instead of a thread is reported as such") {
    world w(2);
    w.host.refuse = 1;
    w.host.refusal = -ENOMEM;
    REQUIRE(w.submit() == 0);
    REQUIRE(w.jobs.front().error == ENOMEM);
}

TEST_CASE("exhaustion is told once for each time that it comes to it") {
    world w(2);
    auto fill = [&] {
        REQUIRE(w.submit([&] {
            REQUIRE(w.submit([&] { // runs inside, on the second worker
                for (int i = 0; i < 3; ++i)
                    REQUIRE(w.core->submit(w.add()) == 0);
            }) == 0);
            w.host.run();
        }) == 0);
        w.host.run();
    };
    fill();
    REQUIRE(w.core->exhaustions.size() == 1);
    REQUIRE(w.core->exhaustions[0].which == work_account::bounded);
    REQUIRE(w.core->exhaustions[0].queued == 1);
    REQUIRE(w.numbers().exhausted == 1);
    fill();
    REQUIRE(w.numbers().exhausted == 2);
    REQUIRE(w.numbers(work_account::unbounded).exhausted == 0);
}

TEST_CASE("pending work is taken back and never runs") {
    world w(1);
    plain_job second;
    REQUIRE(w.submit([&] {
        REQUIRE(w.core->cancel(second) == job_removal::removed);
        REQUIRE(w.core->cancel(second) == job_removal::over);
        REQUIRE(w.core->cancel(w.jobs.front()) == job_removal::running);
    }) == 0);
    REQUIRE(w.core->submit(second) == 0);
    w.host.run();
    REQUIRE(second.runs == 0);
    REQUIRE(second.ends == 0); // who takes it back knows
    REQUIRE(second.releases == 0);
    REQUIRE(w.numbers().cancelled == 1);
    REQUIRE(w.numbers().queued == 0);
}
