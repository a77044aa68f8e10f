// What happens when there is nothing yet: order of waiters, time-outs, stops, closing, other processes.
#include "queue_support.hpp"

#include <limits>
#include <stop_token>
#include <thread>

namespace queues {
namespace {

bool on_ring() {
    const char* asked = std::getenv("NOWAIT_DRIVER");
    return asked == nullptr || std::string_view(asked) != "poll";
}

const std::string timed_out = "error " + std::to_string(ETIMEDOUT);
const std::string canceled = "error " + std::to_string(ECANCELED);

task<> a_receiver_waits(const owned_posix_mqueue& queue) {
    received out;
    auto waiting = nowait::spawn(receive_into(queue, out));
    co_await settle();
    CHECK(!out.done);
    const posix_mqueue other = reopen(queue, mqueue_access::send);
    CHECK(other.try_send("late", 7));
    (void)co_await waiting.join();
    CHECK(out.what == "7:late");
}

task<> a_sender_waits(const posix_mqueue& queue) {
    CHECK(queue.try_send("1"));
    CHECK(queue.try_send("2"));
    sent out;
    auto waiting = nowait::spawn(send_from(queue, "3", 9, out));
    co_await settle();
    CHECK(!out.done);
    buffer room;
    auto got = co_await queue.receive(room);
    CHECK(shown(got) == "0:1");
    (void)co_await waiting.join();
    CHECK(out.error == 0);
    got = co_await queue.receive(room);
    CHECK(shown(got) == "9:3"); // its place in the order is found when it gets in
    got = co_await queue.receive(room);
    CHECK(shown(got) == "0:2");
}

task<> receivers_in_order(const owned_posix_mqueue& queue) {
    std::array<received, 5> outs;
    std::vector<nowait::join_handle<void>> waiting;
    for (received& out : outs)
        waiting.push_back(nowait::spawn(receive_into(queue, out)));
    co_await settle();
    const posix_mqueue other = reopen(queue, mqueue_access::send);
    for (std::size_t i = 0; i < outs.size(); ++i) {
        CHECK(other.try_send(std::to_string(i)));
        co_await until_done(outs[i]);
        co_await settle(20);
        for (std::size_t later = i + 1; later < outs.size(); ++later)
            CHECK(!outs[later].done); // one message wakes one
        CHECK(outs[i].what == "0:" + std::to_string(i));
    }
    for (auto& one : waiting)
        (void)co_await one.join();
}

task<> senders_in_order(const posix_mqueue& queue) {
    CHECK(queue.try_send("full"));
    std::array<sent, 5> outs;
    std::vector<nowait::join_handle<void>> waiting;
    const std::array<std::string, 5> texts{"a", "b", "c", "d", "e"};
    for (std::size_t i = 0; i < outs.size(); ++i)
        waiting.push_back(nowait::spawn(send_from(queue, texts[i], 0, outs[i])));
    co_await settle();
    buffer room;
    std::string order;
    for (int i = 0; i < 6; ++i) {
        auto got = co_await queue.receive(room);
        order += shown(got) + " ";
    }
    CHECK(order == "0:full 0:a 0:b 0:c 0:d 0:e ");
    for (auto& one : waiting)
        (void)co_await one.join();
}

task<> nobody_barges(const owned_posix_mqueue& queue) {
    received first;
    auto waiting = nowait::spawn(receive_into(queue, first));
    co_await settle();
    const posix_mqueue other = reopen(queue, mqueue_access::send);
    CHECK(other.try_send("one"));
    // The waiter has not run yet: whoever comes now stands behind it, with and without waiting.
    buffer room;
    CHECK(error_of(queue.try_receive(room)) == EAGAIN);
    CHECK(other.try_send("two"));
    auto got = co_await queue.receive(room);
    CHECK(first.what == "0:one");
    CHECK(shown(got) == "0:two");
    (void)co_await waiting.join();
}

task<> time_outs(const posix_mqueue& queue) {
    buffer room;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    using seconds = std::chrono::duration<double>;
    for (int round = 0; round < 4; ++round) { // misses make the predictor expect a wait
        auto got = co_await nowait::with_timeout(queue.receive(room), 1ms);
        CHECK(shown(got) == timed_out);
        got = co_await nowait::with_timeout(queue.receive(room), 0s);
        CHECK(shown(got) == timed_out);
        got = co_await nowait::with_timeout(queue.receive(room), -5h);
        CHECK(shown(got) == timed_out);
        got = co_await nowait::with_timeout(queue.receive(room), seconds(nan));
        CHECK(shown(got) == timed_out);
        got = co_await nowait::with_timeout(queue.receive(room), seconds(-1e300));
        CHECK(shown(got) == timed_out);
        got = co_await nowait::with_deadline(queue.receive(room), std::chrono::steady_clock::time_point());
        CHECK(shown(got) == timed_out);
        got =
            co_await nowait::with_deadline(queue.receive(room), std::chrono::steady_clock::time_point::min());
        CHECK(shown(got) == timed_out);
        auto owned = co_await nowait::with_timeout(queue.receive(), 0s);
        CHECK(shown(owned) == timed_out);
        // A deadline that has passed is one attempt: it takes what is there.
        CHECK(queue.try_send("there"));
        got = co_await nowait::with_timeout(queue.receive(room), -1s);
        CHECK(shown(got) == "0:there");
        CHECK(queue.try_send("there"));
        got = co_await nowait::with_timeout(queue.receive(room), std::chrono::hours::max());
        CHECK(shown(got) == "0:there");
    }
    CHECK(queue.try_send("1"));
    CHECK(queue.try_send("2"));
    for (int round = 0; round < 4; ++round) {
        auto done = co_await nowait::with_timeout(queue.send("3"), 1ms);
        CHECK(error_of(done) == ETIMEDOUT);
        done = co_await nowait::with_timeout(queue.send("3"), seconds(nan));
        CHECK(error_of(done) == ETIMEDOUT);
    }
    CHECK(queue.attributes()->messages == 2); // nothing was sent
    // And no waiter was left behind: the next ones are served.
    auto got = co_await queue.receive(room);
    CHECK(shown(got) == "0:1");
    auto done = co_await queue.send("4");
    CHECK(error_of(done) == 0);
}

task<> stop_soon(nowait::inplace_stop_source& source) {
    co_await settle(5);
    source.request_stop();
}

task<> stops(const posix_mqueue& queue) {
    buffer room;
    nowait::inplace_stop_source source;
    auto stopped_later = nowait::spawn(stop_soon(source));
    auto got = co_await nowait::with_stop(queue.receive(room), source.get_token());
    CHECK(shown(got) == canceled);
    (void)co_await stopped_later.join();
    got = co_await nowait::with_stop(queue.receive(room), source.get_token());
    CHECK(shown(got) == canceled);
    std::stop_source foreign;
    std::thread stops_it([&] { foreign.request_stop(); });
    got = co_await nowait::with_stop(queue.receive(room), foreign.get_token());
    CHECK(shown(got) == canceled);
    stops_it.join();
    CHECK(queue.try_send("untouched"));
    got = co_await queue.receive(room);
    CHECK(shown(got) == "0:untouched");
}

task<> receive_until(const posix_mqueue& queue, nowait::inplace_stop_source& source, received& out) {
    buffer room;
    auto got = co_await nowait::with_stop(queue.receive(room), source.get_token());
    out.what = shown(got);
    out.done = true;
}

/// A chosen waiter is stopped before it has run: the message goes to the next, or stays.
task<> stopped_when_chosen(const owned_posix_mqueue& queue) {
    const posix_mqueue other = reopen(queue, mqueue_access::send);
    for (int rounds_until_the_stop = 0; rounds_until_the_stop < 12; ++rounds_until_the_stop) {
        nowait::inplace_stop_source source;
        received first;
        received second;
        auto one = nowait::spawn(receive_until(queue, source, first));
        co_await settle(3);
        auto two = nowait::spawn(receive_into(queue, second));
        co_await settle(3);
        CHECK(other.try_send("m"));
        co_await settle(rounds_until_the_stop);
        source.request_stop();
        co_await until_done(first);
        if (first.what == canceled) {
            co_await until_done(second);
            CHECK(second.what == "0:m");
        } else {
            CHECK(first.what == "0:m");
            CHECK(other.try_send("n"));
            co_await until_done(second);
            CHECK(second.what == "0:n");
        }
        (void)co_await one.join();
        (void)co_await two.join();
        CHECK(queue.attributes()->messages == 0);
    }
}

task<> closed_under_waiters(posix_mqueue queue, posix_mqueue full) {
    received in;
    sent out;
    auto one = nowait::spawn(receive_into(queue, in));
    CHECK(full.try_send("full"));
    auto two = nowait::spawn(send_from(full, "x", 0, out));
    co_await settle();
    CHECK(queue.close());
    CHECK(full.close());
    (void)co_await one.join();
    (void)co_await two.join();
    CHECK(in.what == canceled);
    CHECK(out.error == ECANCELED);
}

task<> destroyed_under_waiters(const owned_posix_mqueue& queue) {
    received in;
    {
        posix_mqueue short_lived = reopen(queue);
        auto one = nowait::spawn(receive_into(short_lived, in));
        co_await settle();
        const posix_mqueue moved = std::move(short_lived); // handles may move while operations wait
        co_await settle();
        CHECK(!in.done);
        one.detach();
    }
    co_await until_done(in);
    CHECK(in.what == canceled);
}

/// A receive wakes the queue's pollers, our own too. What the poll finds is nothing, and it says nothing; a removal that comes at
/// this moment is refused, and has to be asked for again.
task<> closed_after_own_receive(const owned_posix_mqueue& queue) {
    for (int received_between = 0; received_between < 4; ++received_between) {
        posix_mqueue one = reopen(queue);
        received out;
        auto waiting = nowait::spawn(receive_into(one, out));
        co_await settle(3);
        CHECK(queue.try_send("x"));
        (void)co_await waiting.join();
        for (int i = 0; i < received_between; ++i) {
            CHECK(queue.try_send("y"));
            buffer room;
            CHECK(one.try_receive(room));
        }
        const int number = one.native_handle();
        CHECK(one.close());
        CHECK(::fcntl(number, F_GETFD) == -1); // the kernel let go inside the call
    }
}

task<> unlinked_under_a_waiter(owned_posix_mqueue queue) {
    const posix_mqueue sender = reopen(queue, mqueue_access::send);
    const std::string name = queue.name();
    received out;
    auto waiting = nowait::spawn(receive_into(queue, out));
    co_await settle();
    CHECK(posix_mqueue::unlink(name));
    co_await settle();
    CHECK(!out.done);
    const auto successor = owned_posix_mqueue::open(name, small()); // another queue
    CHECK(successor);
    CHECK(successor->try_send("not for the waiter"));
    co_await settle();
    CHECK(!out.done);
    CHECK(sender.try_send("for the waiter"));
    (void)co_await waiting.join();
    CHECK(out.what == "0:for the waiter");
    CHECK(error_of(queue.unlink()) == ENOENT); // the name is the successor's
}

task<> both_in_when_all(const posix_mqueue& queue) {
    buffer room;
    auto both = co_await nowait::when_all(queue.receive(room), queue.send("to itself", 5));
    CHECK(shown(std::get<0>(both)) == "5:to itself");
    CHECK(error_of(std::get<1>(both)) == 0);
}

/// The loser of a choice between two queues has taken nothing.
task<> either_of_two(const posix_mqueue& one, const posix_mqueue& other) {
    buffer first;
    buffer second;
    for (int i = 0; i < 4; ++i) {
        const bool from_other = i % 2 != 0;
        CHECK((from_other ? other : one).try_send(std::to_string(i), 3));
        auto got = co_await nowait::when_any(one.receive(first), other.receive(second));
        CHECK(got.index == (from_other ? 1u : 0u));
        CHECK(shown(from_other ? got.get<1>() : got.get<0>()) == "3:" + std::to_string(i));
        CHECK(shown(from_other ? got.get<0>() : got.get<1>()) == canceled);
    }
    // Both are there: what is not taken stays, or was taken and is reported.
    CHECK(one.try_send("a"));
    CHECK(other.try_send("b"));
    auto got = co_await nowait::when_any(nowait::biased, one.receive(first), other.receive(second));
    CHECK(got.index == 0);
    CHECK(shown(got.get<0>()) == "0:a");
    if (shown(got.get<1>()) != "0:b")
        CHECK(shown(other.try_receive(second)) == "0:b");
    auto none = co_await nowait::when_any(one.receive(first), nowait::sleep_for(1ms), other.receive(second));
    CHECK(none.index == 1);
    CHECK(shown(none.get<0>()) == canceled);
    CHECK(shown(none.get<2>()) == canceled);
}

task<> readiness(const posix_mqueue& queue) {
    auto ready = co_await queue.writable();
    CHECK(ready);
    ready = co_await nowait::with_timeout(queue.readable(), 0s);
    CHECK(error_of(ready) == ETIMEDOUT);
    auto waiting = nowait::spawn([](const posix_mqueue& of) -> task<int> {
        auto seen = co_await of.readable();
        co_return error_of(seen);
    }(queue));
    co_await settle();
    CHECK(!waiting.done());
    CHECK(queue.try_send("x"));
    auto seen = co_await waiting.join();
    CHECK((seen && *seen == 0));
    CHECK(queue.try_send("y"));
    ready = co_await nowait::with_timeout(queue.writable(), 0s);
    CHECK(error_of(ready) == ETIMEDOUT);
}

task<> one_poll_for_all(const owned_posix_mqueue& queue) {
    constexpr std::size_t many = 50;
    std::vector<received> outs(many);
    std::vector<nowait::join_handle<void>> waiting;
    const auto before = nowait::current_stats();
    for (received& out : outs)
        waiting.push_back(nowait::spawn(receive_into(queue, out)));
    co_await settle();
    const auto armed = nowait::current_stats();
    const auto kind = nowait::operation_kind::queue_receive;
    CHECK(armed.of(kind).armed - before.of(kind).armed == many);
    CHECK(armed.of(kind).nowait_misses - before.of(kind).nowait_misses == 1);
    if (on_ring())
        CHECK(armed.submissions - before.submissions == 1);
    const posix_mqueue other = reopen(queue, mqueue_access::send);
    for (std::size_t i = 0; i < many; ++i) {
        while (!other.try_send("x"))
            co_await nowait::yield();
    }
    for (auto& one : waiting)
        (void)co_await one.join();
}

task<> set(bool& flag) {
    flag = true;
    co_return;
}

task<> budget(const posix_mqueue& queue) {
    bool other_ran = false;
    auto other = nowait::spawn(set(other_ran));
    buffer room;
    int rounds = 0;
    while (!other_ran && rounds < 1000) {
        auto done = co_await queue.send("x");
        auto got = co_await queue.receive(room);
        if (!done || !got)
            break;
        ++rounds;
    }
    CHECK(rounds == 65); // 128 units, one for each operation, and the round in which they were spent
    (void)co_await other.join();
}

task<> flags_stay(const owned_posix_mqueue& queue) {
    for (const int flags : {O_RDWR, O_RDWR | O_NONBLOCK}) {
        const mqd_t number = ::mq_open(queue.name().c_str(), flags);
        const int before = ::fcntl(number, F_GETFL);
        const auto shared = posix_mqueue::borrow(number);
        CHECK(shared);
        received out;
        auto waiting = nowait::spawn(receive_into(*shared, out));
        co_await settle();
        CHECK(!out.done);
        CHECK(::fcntl(number, F_GETFL) == before);
        mq_attr seen{};
        CHECK(::mq_getattr(number, &seen) == 0);
        CHECK((seen.mq_flags & O_NONBLOCK) == (flags & O_NONBLOCK));
        auto done = co_await shared->send("x");
        CHECK(done);
        (void)co_await waiting.join();
        CHECK(out.what == "0:x");
        CHECK(::fcntl(number, F_GETFL) == before);
        ::mq_close(number);
    }
}

task<> borrowed_twice(const owned_posix_mqueue& queue) {
    const mqd_t number = ::mq_open(queue.name().c_str(), O_RDWR);
    const auto one = posix_mqueue::borrow(number);
    const auto two = posix_mqueue::borrow(number);
    CHECK((one && two));
    received first;
    received second;
    auto a = nowait::spawn(receive_into(*one, first));
    co_await settle(3);
    auto b = nowait::spawn(receive_into(*two, second));
    co_await settle(3);
    CHECK(queue.try_send("1"));
    co_await until_done(first);
    CHECK(!second.done);
    CHECK(queue.try_send("2"));
    (void)co_await a.join();
    (void)co_await b.join();
    CHECK(second.what == "0:2");
    ::mq_close(number);
}

/// Each token goes there and back: every receive waits.
task<int> play(const posix_mqueue& in, const posix_mqueue& out, int rounds, bool serves) {
    buffer room;
    for (int i = 0; i < rounds; ++i) {
        if (serves || i > 0) {
            auto done = co_await out.send(std::to_string(i));
            if (!done)
                co_return 1;
        }
        auto got = co_await in.receive(room);
        if (!got)
            co_return 2;
    }
    if (!serves) {
        auto done = co_await out.send("last");
        if (!done)
            co_return 3;
    }
    co_return 0;
}

} // namespace

TEST_CASE("a receiver waits until another description sends") {
    const auto queue = make_queue();
    run_on_new(a_receiver_waits(queue));
}

TEST_CASE("a sender waits while the queue is full, and its priority counts when it gets in") {
    const auto queue = make_queue(2);
    run_on_new(a_sender_waits(queue));
}

TEST_CASE("receivers are served in the order of their coming, one for each message") {
    const auto queue = make_queue();
    run_on_new(receivers_in_order(queue));
}

TEST_CASE("senders are served in the order of their coming") {
    const auto queue = make_queue(1);
    run_on_new(senders_in_order(queue));
}

TEST_CASE("nobody overtakes a waiter of the same handle") {
    const auto queue = make_queue();
    run_on_new(nobody_barges(queue));
}

TEST_CASE("time-outs and deadlines, invalid ones too, touch nothing") {
    const auto queue = make_queue(2);
    run_on_new(time_outs(queue));
}

TEST_CASE("stops touch nothing") {
    const auto queue = make_queue();
    run_on_new(stops(queue));
}

TEST_CASE("a waiter stopped when it was chosen passes the message on") {
    const auto queue = make_queue();
    run_on_new(stopped_when_chosen(queue));
}

TEST_CASE("closing ends those who wait") {
    const auto queue = make_queue();
    const auto other = make_queue(1);
    run_on_new(closed_under_waiters(reopen(queue), reopen(other)));
}

TEST_CASE("the last handle ends those who wait, and moving one does not") {
    const auto queue = make_queue();
    run_on_new(destroyed_under_waiters(queue));
}

TEST_CASE("a poll that was woken for nothing does not keep a closed queue") {
    const auto queue = make_queue();
    run_on_new(closed_after_own_receive(queue));
}

TEST_CASE("a queue unlinked under a waiter is the same queue for it") {
    run_on_new(unlinked_under_a_waiter(make_queue()));
}

TEST_CASE("send and receive in when_all") {
    const auto queue = make_queue();
    run_on_new(both_in_when_all(queue));
}

TEST_CASE("the loser of when_any has taken nothing") {
    const auto one = make_queue();
    const auto other = make_queue();
    run_on_new(either_of_two(one, other));
}

TEST_CASE("readable and writable") {
    const auto queue = make_queue(2);
    run_on_new(readiness(queue));
}

TEST_CASE("fifty receivers share one poll and one attempt") {
    const auto queue = make_queue();
    run_on_new(one_poll_for_all(queue));
}

TEST_CASE("a chain of ready operations gives way when the turn has spent its budget") {
    const auto queue = make_queue();
    run_on_new(budget(queue));
}

TEST_CASE("the flags of a shared description are never changed, nor do they matter") {
    const auto queue = make_queue();
    run_on_new(flags_stay(queue));
}

TEST_CASE("a number borrowed twice is one queue of waiters") {
    const auto queue = make_queue();
    run_on_new(borrowed_twice(queue));
}

TEST_CASE("a shutdown ends those who wait, and the queue can be used again") {
    const auto queue = make_queue();
    received out;
    {
        auto runs = make_runtime();
        auto waiting = runs.spawn(receive_into(queue, out));
        waiting.detach();
        CHECK(runs.shutdown(5s).complete());
        CHECK(out.what == canceled);
    }
    run_on_new([](const posix_mqueue& again) -> task<> {
        CHECK(again.try_send("x"));
        buffer room;
        auto got = co_await again.receive(room);
        CHECK(shown(got) == "0:x");
    }(queue));
}

TEST_CASE("a runtime destroyed under a waiter leaves the queue as it was") {
    const auto queue = make_queue();
    received out;
    {
        auto runs = make_runtime();
        auto waiting = runs.spawn(receive_into(queue, out));
        waiting.detach();
        REQUIRE(runs.get_loop().enter() == 0);
        while (runs.stats().of(nowait::operation_kind::queue_receive).armed == 0)
            runs.get_loop().run_until_idle(std::chrono::steady_clock::now() + 1ms);
        runs.get_loop().leave();
    }
    CHECK(!out.done);
    CHECK(queue.try_send("x"));
    run_on_new([](const posix_mqueue& again) -> task<> {
        buffer room;
        auto got = co_await again.receive(room);
        CHECK(shown(got) == "0:x");
    }(queue));
}

TEST_CASE("a queue belongs to one runtime, its description to any number of handles") {
    const auto there = make_queue(1);
    const auto back = make_queue(1);
    const posix_mqueue there_too = reopen(there);
    const posix_mqueue back_too = reopen(back);
    constexpr int rounds = 500;
    int other = -1;
    std::thread plays([&] {
        auto runs = nowait::runtime::create();
        auto ran = runs->run(play(there_too, back_too, rounds, false));
        other = ran ? *ran : 9;
    });
    CHECK(run_on_new(play(back, there, rounds, true)) == 0);
    plays.join();
    CHECK(other == 0);

    // Used by one runtime, it is not another one's.
    auto first = make_runtime();
    auto second = make_runtime();
    const auto uses = [](const posix_mqueue& queue) -> task<int> {
        auto done = co_await nowait::with_timeout(queue.writable(), 0s);
        co_return error_of(done);
    };
    const auto mine = make_queue();
    CHECK(first.run(uses(mine)) == 0);
    CHECK(second.run(uses(mine)) == EPERM);
}

TEST_CASE("messages go to and fro between processes") {
    const auto there = make_queue(1);
    const auto back = make_queue(1);
    constexpr int rounds = 500;
    other_process plays([&] {
        const posix_mqueue in = reopen(there);
        const posix_mqueue out = reopen(back);
        auto ran = nowait::run(play(in, out, rounds, false));
        return ran ? *ran : 9;
    });
    CHECK(run_on_new(play(back, there, rounds, true)) == 0);
    CHECK(plays.wait() == 0);
}

TEST_CASE("a message taken by a blocked process leaves the coroutine waiting in its place") {
    const auto queue = make_queue();
    other_process thief([&] {
        const mqd_t number = ::mq_open(queue.name().c_str(), O_RDONLY);
        std::array<char, message_bytes> room;
        return ::mq_receive(number, room.data(), room.size(), nullptr) == 1 && room[0] == 'a' ? 0 : 1;
    });
    run_on_new([](const posix_mqueue& shared, other_process& other) -> task<> {
        received out;
        auto waiting = nowait::spawn(receive_into(shared, out));
        co_await settle();
        CHECK(sleeps_in(other.pid(), SYS_mq_timedreceive));
        CHECK(shared.try_send("a")); // from hand to hand, past every poll
        CHECK(other.wait() == 0);
        co_await settle();
        CHECK(!out.done);
        CHECK(shared.try_send("b"));
        (void)co_await waiting.join();
        CHECK(out.what == "0:b");
    }(queue, thief));
}

} // namespace queues
