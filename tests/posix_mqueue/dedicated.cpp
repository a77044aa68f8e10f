// The dedicated receiver: a worker blocked in mq_receive, on an equal footing with processes that block there.
#include "queue_support.hpp"

namespace queues {
namespace {

posix_mqueue_options dedicated(std::size_t capacity = 8) {
    posix_mqueue_options options = small(capacity);
    options.dedicated_receiver = true;
    return options;
}

owned_posix_mqueue make_dedicated() {
    auto made = owned_posix_mqueue::open(fresh_name(), dedicated());
    if (!made)
        throw std::system_error(made.error());
    return std::move(*made);
}

std::uint64_t punted() {
    return nowait::current_stats().of(nowait::operation_kind::queue_receive).punted;
}

/// Waits until a worker of this process is blocked in mq_receive.
bool worker_blocks(int looks = 20'000) {
    const std::string tasks = "/proc/self/task/";
    for (int i = 0; i < looks; ++i) {
        DIR* const list = ::opendir(tasks.c_str());
        bool found = false;
        while (const dirent* const entry = ::readdir(list)) {
            long number = -1;
            if (std::FILE* const file = std::fopen((tasks + entry->d_name + "/syscall").c_str(), "r")) {
                found = found || (std::fscanf(file, "%ld", &number) == 1 && number == SYS_mq_timedreceive);
                std::fclose(file);
            }
        }
        ::closedir(list);
        if (found)
            return true;
        ::sched_yield();
    }
    return false;
}

task<> tries_first(const posix_mqueue& queue) {
    CHECK(queue.try_send("there", 3));
    buffer room;
    auto got = co_await queue.receive(room);
    CHECK(shown(got) == "3:there");
    got = co_await nowait::with_timeout(queue.receive(room), 0s);
    CHECK(shown(got) == "error " + std::to_string(ETIMEDOUT));
    auto owned = co_await nowait::with_timeout(queue.receive(), 1ms);
    CHECK(shown(owned) == "error " + std::to_string(ETIMEDOUT));
}

task<> waits_blocked(const owned_posix_mqueue& queue) {
    const std::uint64_t before = punted();
    std::array<received, 3> outs;
    std::vector<nowait::join_handle<void>> waiting;
    for (received& out : outs)
        waiting.push_back(nowait::spawn(receive_into(queue, out)));
    co_await settle();
    CHECK(worker_blocks());
    CHECK(punted() - before == 1); // one worker, for the first of them
    for (std::size_t i = 0; i < outs.size(); ++i) {
        CHECK(queue.try_send(std::to_string(i), 4));
        co_await until_done(outs[i]);
        CHECK(outs[i].what == "4:" + std::to_string(i));
    }
    for (auto& one : waiting)
        (void)co_await one.join();
}

task<> stopped(const posix_mqueue& queue) {
    for (int i = 0; i < 10; ++i) {
        received out;
        auto waiting = nowait::spawn(receive_into(queue, out));
        buffer room;
        auto got = co_await nowait::with_timeout(queue.receive(room), 1ms); // behind the first
        CHECK(shown(got) == "error " + std::to_string(ETIMEDOUT));
        CHECK(queue.try_send("x"));
        (void)co_await waiting.join();
        CHECK(out.what == "0:x");
        got = co_await nowait::with_timeout(queue.receive(room),
                                            std::chrono::microseconds(50 * i)); // the first
        CHECK(shown(got) == "error " + std::to_string(ETIMEDOUT));
    }
    CHECK(queue.attributes()->messages == 0);
}

/// A stop and a message at the same time: the message is received, or it is still there.
task<> stopped_as_it_comes(const posix_mqueue& queue) {
    int got_it = 0;
    for (int i = 0; i < 200; ++i) {
        received out;
        nowait::inplace_stop_source source;
        auto waiting = nowait::spawn(
            [](const posix_mqueue& from, nowait::inplace_stop_source& stop, received& to) -> task<> {
                buffer room;
                auto got = co_await nowait::with_stop(from.receive(room), stop.get_token());
                to.what = shown(got);
                to.done = true;
            }(queue, source, out));
        co_await settle(i % 20);
        if (i % 20 == 1)
            CHECK(worker_blocks()); // then the message is faster than the stop
        if (i % 3 == 0)
            source.request_stop();
        CHECK(queue.try_send("m"));
        if (i % 3 != 0)
            source.request_stop();
        (void)co_await waiting.join();
        if (out.what == "0:m") {
            ++got_it;
        } else {
            CHECK(out.what == "error " + std::to_string(ECANCELED));
            buffer room;
            CHECK(shown(queue.try_receive(room)) == "0:m");
        }
        CHECK(queue.attributes()->messages == 0);
    }
    CHECK(got_it > 0);
}

task<> closed(posix_mqueue queue) {
    received first;
    received second;
    auto one = nowait::spawn(receive_into(queue, first));
    auto two = nowait::spawn(receive_into(queue, second));
    co_await settle();
    CHECK(worker_blocks());
    CHECK(queue.close());
    (void)co_await one.join();
    (void)co_await two.join();
    CHECK(first.what == "error " + std::to_string(ECANCELED));
    CHECK(second.what == "error " + std::to_string(ECANCELED));
}

/// Both of a queue's blocked receivers get their share: strictly in turn, because each blocks again before the next is sent.
task<> shares(const owned_posix_mqueue& queue, const owned_posix_mqueue& theirs, other_process& other) {
    int others = 0;
    received seen; // what the other process says when it has got one
    auto watching = nowait::spawn(receive_into(theirs, seen));
    for (int i = 0; i < 40; ++i) {
        received out;
        auto waiting = nowait::spawn(receive_into(queue, out));
        co_await settle();
        CHECK(worker_blocks());
        CHECK(sleeps_in(other.pid(), SYS_mq_timedreceive));
        CHECK(queue.try_send("m"));
        while (!out.done && !seen.done)
            co_await nowait::yield();
        if (seen.done) {
            ++others;
            CHECK(!out.done);
            (void)co_await watching.join();
            seen = {};
            watching = nowait::spawn(receive_into(theirs, seen));
            CHECK(queue.try_send("ours: the other has only just begun to wait"));
        }
        (void)co_await waiting.join();
        CHECK(out.done);
    }
    CHECK(theirs.try_send("that was all"));
    (void)co_await watching.join();
    CHECK(others >= 1); // it was blocked before our first worker
}

/// A consumer that takes what it can get until an empty message comes, and says how much it was.
int consume_blocked(const std::string& name, const std::string& totals) {
    const mqd_t in = ::mq_open(name.c_str(), O_RDONLY);
    const mqd_t out = ::mq_open(totals.c_str(), O_WRONLY);
    std::array<char, message_bytes> room;
    int count = 0;
    while (::mq_receive(in, room.data(), room.size(), nullptr) > 0)
        ++count;
    const std::string text = "blocked " + std::to_string(count);
    return ::mq_send(out, text.data(), text.size(), 0);
}

task<> consume_awaited(const posix_mqueue& in, const posix_mqueue& out, std::string how) {
    buffer room;
    int count = 0;
    for (;;) {
        auto got = co_await in.receive(room);
        if (!got || got->value.empty())
            break;
        ++count;
    }
    (void)out.try_send(how + " " + std::to_string(count));
}

int consume_awaited_in_child(const std::string& name, const std::string& totals, bool with_receiver) {
    posix_mqueue_options options;
    options.dedicated_receiver = with_receiver;
    const auto in = posix_mqueue::open(name, options);
    options.dedicated_receiver = false;
    const auto out = posix_mqueue::open(totals, options);
    return in && out && nowait::run(consume_awaited(*in, *out, with_receiver ? "dedicated" : "polling")) ? 0
                                                                                                         : 1;
}

task<> without_workers(const owned_posix_mqueue& queue) {
    received out;
    auto waiting = nowait::spawn(receive_into(queue, out));
    co_await settle();
    CHECK(!out.done);
    CHECK(queue.try_send("by a poll", 6));
    (void)co_await waiting.join();
    CHECK(out.what == "6:by a poll");
}

} // namespace

TEST_CASE("a dedicated receiver is asked only when nothing is there") {
    const auto queue = make_dedicated();
    run_on_new(tries_first(queue));
}

TEST_CASE("one worker is blocked in mq_receive, for the first of those who wait") {
    const auto queue = make_dedicated();
    run_on_new(waits_blocked(queue));
}

TEST_CASE("a dedicated receiver can be stopped, first in line or not") {
    const auto queue = make_dedicated();
    run_on_new(stopped(queue));
}

TEST_CASE("a dedicated receiver stopped as a message comes loses none") {
    const auto queue = make_dedicated();
    run_on_new(stopped_as_it_comes(queue));
}

TEST_CASE("closing ends a dedicated receiver and those behind it") {
    auto queue = make_dedicated();
    posix_mqueue_options options;
    options.dedicated_receiver = true;
    auto other = posix_mqueue::open(queue.name(), options);
    REQUIRE(other);
    run_on_new(closed(std::move(*other)));
}

TEST_CASE("a dedicated receiver gets its share beside a process that blocks") {
    const auto queue = make_dedicated();
    const auto theirs = make_queue();
    other_process other([&] {
        const mqd_t in = ::mq_open(queue.name().c_str(), O_RDONLY);
        const mqd_t out = ::mq_open(theirs.name().c_str(), O_WRONLY);
        std::array<char, message_bytes> room;
        for (;;) {
            if (::mq_receive(in, room.data(), room.size(), nullptr) < 0 || ::mq_send(out, "got", 3, 0) != 0)
                return 1;
        }
    });
    run_on_new(shares(queue, theirs, other));
}

// Not a test but a figure, by name: test_posix_mqueue "[share]"
TEST_CASE("shares of a consumer that awaits beside one that blocks", "[.][share]") {
    for (const bool with_receiver : {false, true}) {
        const auto queue = make_queue(1);
        const auto totals = make_queue();
        const other_process blocked([&] { return consume_blocked(queue.name(), totals.name()); });
        const other_process awaiting(
            [&] { return consume_awaited_in_child(queue.name(), totals.name(), with_receiver); });
        const mqd_t out = ::mq_open(queue.name().c_str(), O_WRONLY);
        for (int i = 0; i < 20'000; ++i)
            REQUIRE(::mq_send(out, "x", 1, 0) == 0);
        REQUIRE(::mq_send(out, "", 0, 0) == 0);
        REQUIRE(::mq_send(out, "", 0, 0) == 0);
        ::mq_close(out);
        const mqd_t in = ::mq_open(totals.name().c_str(), O_RDONLY);
        for (int i = 0; i < 2; ++i) {
            std::array<char, message_bytes> room;
            const ssize_t n = ::mq_receive(in, room.data(), room.size(), nullptr);
            REQUIRE(n > 0);
            std::printf("%.*s  ", static_cast<int>(n), room.data());
        }
        std::printf("\n");
        ::mq_close(in);
    }
}

TEST_CASE("a dedicated receiver without a worker waits by a poll") {
    const auto queue = make_dedicated();
    auto pool = nowait::worker_pool::create();
    REQUIRE(pool);
    CHECK(pool->shutdown(1s).complete());
    nowait::runtime_options options;
    options.pool = &*pool;
    run_on_new(without_workers(queue), options);
}

TEST_CASE("a runtime destroyed over a dedicated receiver waits for its worker") {
    const auto queue = make_dedicated();
    received out;
    {
        auto runs = make_runtime();
        auto waiting = runs.spawn(receive_into(queue, out));
        waiting.detach();
        REQUIRE(runs.get_loop().enter() == 0);
        do
            runs.get_loop().run_until_idle(std::chrono::steady_clock::now() + 1ms);
        while (!worker_blocks(1));
        runs.get_loop().leave();
    }
    CHECK(!out.done);
    CHECK(queue.try_send("nobody takes it"));
    CHECK(queue.attributes()->messages == 1);
}

} // namespace queues
