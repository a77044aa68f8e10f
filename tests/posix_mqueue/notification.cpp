// mq_notify by netlink, awaited.
#include "queue_support.hpp"

#include <dirent.h>

namespace queues {
namespace {

struct noticed {
    bool done = false;
    int error = -1;
};

task<> wait_for(const nowait::mqueue_notification& notice, noticed& out) {
    auto got = co_await notice.arrived();
    out.error = error_of(got);
    out.done = true;
}

std::size_t threads() {
    std::size_t count = 0;
    DIR* const tasks = ::opendir("/proc/self/task");
    while (const dirent* const entry = ::readdir(tasks))
        count += entry->d_name[0] != '.';
    ::closedir(tasks);
    return count;
}

task<> comes_once(const posix_mqueue& queue) {
    const std::size_t before = threads();
    auto notice = queue.notify();
    CHECK(notice);
    noticed out;
    auto waiting = nowait::spawn(wait_for(*notice, out));
    co_await settle();
    CHECK(!out.done);
    CHECK(queue.try_send("1"));
    (void)co_await waiting.join();
    CHECK(out.error == 0);
    CHECK(threads() == before); // no thread was made for it

    // It was for one message: nothing more comes, until it is renewed and the queue was empty.
    noticed again;
    waiting = nowait::spawn(wait_for(*notice, again));
    buffer room;
    CHECK(queue.try_receive(room));
    CHECK(queue.try_send("2"));
    co_await settle();
    CHECK(!again.done);
    CHECK(notice->renew());
    CHECK(error_of(notice->renew()) == EBUSY);
    CHECK(queue.try_send("3")); // the queue was not empty
    co_await settle();
    CHECK(!again.done);
    CHECK(queue.try_receive(room));
    CHECK(queue.try_receive(room));
    CHECK(queue.try_send("4"));
    (void)co_await waiting.join();
    CHECK(again.error == 0);
}

task<> came_before(const posix_mqueue& queue) {
    auto notice = queue.notify();
    CHECK(queue.try_send("1"));
    auto got = co_await notice->arrived();
    CHECK(got);
    // Of an older registration nothing is left over.
    CHECK(notice->renew());
    buffer room;
    CHECK(queue.try_receive(room));
    CHECK(queue.try_send("2")); // fires, and nobody takes the notification
    CHECK(notice->renew());
    got = co_await nowait::with_timeout(notice->arrived(), 0s);
    CHECK(error_of(got) == ETIMEDOUT);
    CHECK(queue.try_receive(room));
    CHECK(queue.try_send("3"));
    got = co_await notice->arrived();
    CHECK(got);
}

task<> one_registration(const owned_posix_mqueue& queue) {
    const posix_mqueue other = reopen(queue);
    {
        auto first = queue.notify();
        CHECK(first);
        CHECK(error_of(queue.notify()) == EBUSY);
        CHECK(error_of(other.notify()) == EBUSY);
        auto moved = std::move(*first);
        CHECK(error_of(other.notify()) == EBUSY);
        moved.cancel();
        CHECK(error_of(moved.renew()) == EBADF);
        auto got = co_await moved.arrived();
        CHECK(error_of(got) == EBADF);
        auto second = other.notify();
        CHECK(second);
    }
    // One that has fired does not take another one's registration away when it goes.
    auto third = queue.notify();
    CHECK(third);
    {
        auto fired = std::move(third);
        CHECK(queue.try_send("x"));
        third = other.notify();
        CHECK(third);
    }
    buffer room;
    CHECK(queue.try_receive(room));
    CHECK(queue.try_send("y"));
    auto got = co_await third->arrived();
    CHECK(got);
}

task<> stopped_and_cancelled(const posix_mqueue& queue) {
    auto notice = queue.notify();
    auto got = co_await nowait::with_timeout(notice->arrived(), 1ms);
    CHECK(error_of(got) == ETIMEDOUT);
    CHECK(error_of(queue.notify()) == EBUSY); // it stands
    noticed out;
    auto waiting = nowait::spawn(wait_for(*notice, out));
    co_await settle();
    auto moved = std::move(*notice); // also while somebody waits
    co_await settle();
    CHECK(!out.done);
    moved.cancel();
    (void)co_await waiting.join();
    CHECK(out.error == ECANCELED);
    CHECK(queue.notify());
}

task<> taken_away_by_a_close(const owned_posix_mqueue& queue) {
    auto notice = queue.notify();
    noticed out;
    auto waiting = nowait::spawn(wait_for(*notice, out));
    co_await settle();
    {
        const posix_mqueue other = reopen(queue); // any descriptor of the queue
    }
    (void)co_await waiting.join();
    CHECK(out.error == EIDRM);
    CHECK(notice->renew());
    CHECK(queue.try_send("x"));
    auto got = co_await notice->arrived();
    CHECK(got);
}

task<> not_while_somebody_is_blocked(const posix_mqueue& queue, other_process& blocked) {
    CHECK(sleeps_in(blocked.pid(), SYS_mq_timedreceive));
    auto notice = queue.notify();
    CHECK(queue.try_send("theirs"));
    CHECK(blocked.wait() == 0);
    auto got = co_await nowait::with_timeout(notice->arrived(), 0s);
    CHECK(error_of(got) == ETIMEDOUT);
    CHECK(queue.try_send("news"));
    got = co_await notice->arrived();
    CHECK(got);
}

} // namespace

TEST_CASE("a notification comes once for each registration, without a thread") {
    const auto queue = make_queue();
    run_on_new(comes_once(queue));
}

TEST_CASE("a notification that came before is there at once, and never a second time") {
    const auto queue = make_queue();
    run_on_new(came_before(queue));
}

TEST_CASE("one registration for each queue, taken away with its object and only then") {
    const auto queue = make_queue();
    run_on_new(one_registration(queue));
}

TEST_CASE("a stopped wait leaves the registration, cancel takes it away") {
    const auto queue = make_queue();
    run_on_new(stopped_and_cancelled(queue));
}

TEST_CASE("closing any descriptor of the queue takes the notification away, and it says so") {
    const auto queue = make_queue();
    run_on_new(taken_away_by_a_close(queue));
}

TEST_CASE("no notification of a message that a blocked receiver gets") {
    const auto queue = make_queue();
    other_process blocked([&] {
        const mqd_t number = ::mq_open(queue.name().c_str(), O_RDONLY);
        std::array<char, message_bytes> room;
        return ::mq_receive(number, room.data(), room.size(), nullptr) > 0 ? 0 : 1;
    });
    run_on_new(not_while_somebody_is_blocked(queue, blocked));
}

} // namespace queues
