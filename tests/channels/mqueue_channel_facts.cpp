// What POSIX says of message queues, and the kernel does, for the in-process queue: order, sizes, limits, notification. The
// names are those of the conformance suite.
#include "channel_support.hpp"

#include <algorithm>
#include <cerrno>
#include <string>

using namespace channel_tests;
using nowait_test::run_on_new;

#define EVERY_QUEUE(T)                                                                            \
    nowait::mqueue_channel<T>, nowait::local_mqueue_channel<T>, channel_tests::bitmap_channel<T>, \
        channel_tests::local_bitmap_channel<T>

namespace {

std::uint64_t length(const std::string& text) noexcept {
    return text.size();
}

template <class C>
C make_text(std::uint64_t capacity, std::uint64_t message_bytes, std::uint64_t total_bytes = 0) {
    typename C::options wanted;
    wanted.capacity = capacity;
    wanted.message_bytes = message_bytes;
    wanted.total_bytes = total_bytes;
    wanted.size_of = &length;
    auto made = C::create(wanted);
    if (!made)
        FAIL("no queue: " << made.error().message());
    return std::move(*made);
}

template <class C>
int create_code(std::uint64_t capacity, std::uint64_t message_bytes, std::uint64_t total_bytes = 0) {
    typename C::options wanted;
    wanted.capacity = capacity;
    wanted.message_bytes = message_bytes;
    wanted.total_bytes = total_bytes;
    return code_of(C::create(wanted));
}

template <class C>
task<> send_text(const C& to, std::string& text, int& outcome) {
    const auto sent = co_await to.send(text);
    outcome = code_of(sent);
}
template <class C>
task<> send_text(const C& to, std::string& text, int& outcome, nowait::inplace_stop_token token) {
    const auto sent = co_await nowait::with_stop(to.send(text), token);
    outcome = code_of(sent);
}

} // namespace

TEMPLATE_TEST_CASE("mqueue_channel: mq_receive 1-1, mq_send 3-1, 3-2: highest priority first, FIFO inside",
                   "", EVERY_QUEUE(int)) {
    auto queue = make<TestType>(100);
    const unsigned priorities[] = {3, 0, 32767, 3, 17, 0, 32767, 9};
    int number = 0;
    for (unsigned p : priorities) {
        REQUIRE(queue.try_send(number, p));
        ++number;
    }
    const int order[] = {2, 6, 4, 7, 0, 3, 1, 5};
    for (int expected : order) {
        const auto got = queue.try_receive();
        REQUIRE(got);
        CHECK(got->value == expected);
        CHECK(got->priority == priorities[expected]);
    }
    CHECK(queue.sound());
}

TEMPLATE_TEST_CASE("mqueue_channel: mq_send 4-1, 4-2, 4-3, 9-1, 13-1: priorities are 0 to 32767", "",
                   EVERY_QUEUE(parcel)) {
    auto queue = make<TestType>(4);
    run_on_new([](const TestType& q) -> task<> {
        parcel p = wrap(1);
        CHECK(code_of(q.try_send(p, 32768)) == EINVAL);
        CHECK(code_of(q.try_send(p, -1)) == EINVAL);
        CHECK(code_of(q.try_send(p, std::uint64_t{1} << 32)) == EINVAL);
        const auto high = co_await q.send(p, 32768);
        CHECK(code_of(high) == EINVAL);
        const auto low = co_await q.send(p, -1);
        CHECK(code_of(low) == EINVAL);
        const auto owned = co_await q.send_owned(wrap(2), 32768U);
        REQUIRE(code_of(owned) == EINVAL);
        CHECK(*owned.error().value == 2);
        CHECK(p != nullptr);
        CHECK(q.empty());
        const auto most = co_await q.send(p, 32767);
        CHECK(code_of(most) == 0);
        const auto got = co_await q.receive();
        REQUIRE(got);
        CHECK(got->priority == 32767);
    }(queue));
}

TEMPLATE_TEST_CASE("mqueue_channel: mq_send 2-1, 14-1: a message larger than the limit is refused and kept",
                   "", EVERY_QUEUE(std::string)) {
    auto queue = make_text<TestType>(4, 128);
    run_on_new([](const TestType& q) -> task<> {
        for (std::size_t size : {std::size_t{0}, std::size_t{10}, std::size_t{128}}) {
            std::string text(size, 'x');
            const auto sent = co_await q.send(text);
            CHECK(code_of(sent) == 0);
            const auto got = co_await q.receive();
            REQUIRE(got);
            CHECK(got->value.size() == size); // never truncated
        }
        std::string text(129, 'x');
        const auto sent = co_await q.send(text);
        CHECK(code_of(sent) == EMSGSIZE);
        CHECK(code_of(q.try_send(text)) == EMSGSIZE);
        CHECK(text.size() == 129);
        CHECK(q.empty());
    }(queue));
}

TEMPLATE_TEST_CASE("mqueue_channel: each limit is checked by itself", "", EVERY_QUEUE(int)) {
    constexpr std::uint64_t huge = std::uint64_t{1} << 33;
    CHECK(create_code<TestType>(huge, huge) == EINVAL);
    CHECK(create_code<TestType>(huge, 4) == EINVAL);
    CHECK(create_code<TestType>(10, sizeof(int) - 1) == EINVAL); // nothing could ever be sent
    CHECK(create_code<TestType>(1, huge << 20) == EINVAL);
    CHECK(create_code<TestType>(0, 8192) == EINVAL);
    CHECK(create_code<TestType>(10, 0) == EINVAL);
    CHECK(create_code<TestType>(10, 8192, 8191) == EINVAL);
    CHECK(create_code<TestType>(10, 8192, huge << 30) == EINVAL);
    CHECK(create_code<TestType>(std::uint64_t{1} << 26, std::uint64_t{1} << 40) == 0);
}

TEMPLATE_TEST_CASE("mqueue_channel: ten thousand messages in four priorities leave in order", "",
                   EVERY_QUEUE(int)) {
    auto queue = make<TestType>(10'000);
    for (int i = 0; i < 10'000; ++i) {
        int message = i;
        REQUIRE(queue.try_send(message, i % 4));
    }
    for (int priority = 3; priority >= 0; --priority) {
        for (int i = priority; i < 10'000; i += 4) {
            const auto got = queue.try_receive();
            REQUIRE(got);
            REQUIRE(got->value == i);
        }
    }
    CHECK(queue.empty());
}

TEMPLATE_TEST_CASE(
    "mqueue_channel: a waiting message takes its place when it enters, not when its sender came", "",
    EVERY_QUEUE(parcel)) {
    auto queue = make<TestType>(1);
    const auto send_with = [](const TestType& q, parcel& p, unsigned priority) -> task<> {
        (void)co_await q.send(p, priority);
    };
    run_on_new([](const TestType& q, auto sends) -> task<> {
        parcel first = wrap(0);
        parcel low = wrap(1);
        parcel high = wrap(2);
        (void)co_await q.send(first, 5);
        nowait::spawn(sends(q, low, 1)).detach();
        nowait::spawn(sends(q, high, 9)).detach();
        co_await settle();
        // Senders are let in by their own order: the low one came first.
        for (int expected : {0, 1, 2}) {
            const auto got = co_await q.receive();
            CHECK(number_of(got) == expected);
        }
        co_await settle();
    }(queue, send_with));
    CHECK(queue.sound());
}

TEMPLATE_TEST_CASE("mqueue_channel: one place, several senders and receivers, priorities mixed", "",
                   EVERY_QUEUE(int)) {
    auto queue = make<TestType>(1);
    const auto sends = [](const TestType& q, int from) -> task<> {
        for (int i = 0; i < 100; ++i) {
            int message = from * 1000 + i;
            const auto sent = co_await q.send(message, from);
            REQUIRE(sent);
        }
    };
    const auto receives = [](const TestType& q, std::vector<int>& seen) -> task<> {
        for (int i = 0; i < 100; ++i) {
            const auto got = co_await q.receive();
            REQUIRE(got);
            REQUIRE(got->priority == static_cast<unsigned>(got->value / 1000));
            seen.push_back(got->value);
        }
    };
    // What each receiver has seen: how their tasks alternate is not the queue's order.
    std::vector<int> seen[3];
    auto runtime = nowait_test::make_runtime();
    for (int i = 0; i < 3; ++i) {
        runtime.spawn(sends(queue, i)).detach();
        runtime.spawn(receives(queue, seen[i])).detach();
    }
    REQUIRE(runtime.run());
    std::vector<int> all;
    for (const auto& each : seen) {
        REQUIRE(each.size() == 100);
        int last[3] = {-1, -1, -1};
        for (int message : each) {
            CHECK(message % 1000 > last[message / 1000]); // FIFO for each sender
            last[message / 1000] = message % 1000;
        }
        all.insert(all.end(), each.begin(), each.end());
    }
    std::sort(all.begin(), all.end());
    CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
    CHECK(queue.empty());
    CHECK(queue.sound());
}

TEMPLATE_TEST_CASE("mqueue_channel: the limit by bytes holds back the large, and nobody small passes it", "",
                   EVERY_QUEUE(std::string)) {
    auto queue = make_text<TestType>(100, 10, 20);
    run_on_new([](const TestType& q) -> task<> {
        std::string a(8, 'a');
        std::string b(8, 'b');
        (void)co_await q.send(a);
        (void)co_await q.send(b);
        CHECK(q.bytes() == 16);
        std::string large(10, 'l');
        std::string small(2, 's');
        int large_outcome = -1;
        int small_outcome = -1;
        nowait::spawn(send_text(q, large, large_outcome)).detach();
        nowait::spawn(send_text(q, small, small_outcome)).detach();
        co_await settle();
        CHECK(q.waiting_senders() == 2); // 2 bytes would fit, but the large one came first
        CHECK(code_of(q.try_send(small)) == EAGAIN);
        const auto got = co_await q.receive();
        CHECK(got->value == std::string(8, 'a'));
        CHECK(q.bytes() == 20); // both are in
        co_await settle();
        CHECK(large_outcome == 0);
        CHECK(small_outcome == 0);
    }(queue));
    CHECK(queue.sound());
}

TEMPLATE_TEST_CASE(
    "mqueue_channel: when the large sender at the head is cancelled, the small one behind it enters", "",
    EVERY_QUEUE(std::string)) {
    auto queue = make_text<TestType>(100, 10, 20);
    run_on_new([](const TestType& q) -> task<> {
        std::string a(10, 'a');
        std::string b(6, 'b');
        (void)co_await q.send(a);
        (void)co_await q.send(b);
        nowait::inplace_stop_source stop;
        std::string large(10, 'l');
        std::string small(2, 's');
        int large_outcome = -1;
        int small_outcome = -1;
        nowait::spawn(send_text(q, large, large_outcome, stop.get_token())).detach();
        nowait::spawn(send_text(q, small, small_outcome)).detach();
        co_await settle();
        CHECK(q.waiting_senders() == 2);
        stop.request_stop();
        co_await settle();
        CHECK(large_outcome == ECANCELED);
        CHECK(large == std::string(10, 'l'));
        CHECK(small_outcome == 0);
        CHECK(q.bytes() == 18);
    }(queue));
    CHECK(queue.sound());
}

namespace {

template <class C>
task<> wait_for_notice(const C& queue, int& outcome) {
    const auto told = co_await queue.notified();
    outcome = code_of(told);
}
template <class C>
task<> wait_for_notice(const C& queue, int& outcome, nowait::inplace_stop_token token) {
    const auto told = co_await nowait::with_stop(queue.notified(), token);
    outcome = code_of(told);
}

} // namespace

TEMPLATE_TEST_CASE("mqueue_channel: mq_notify 1-1, 4-1: told once, when a message reaches the empty queue",
                   "", EVERY_QUEUE(int)) {
    auto queue = make<TestType>(4);
    run_on_new([](const TestType& q) -> task<> {
        int message = 1;
        (void)co_await q.send(message);
        int outcome = -1;
        nowait::spawn(wait_for_notice(q, outcome)).detach();
        co_await settle();
        (void)co_await q.send(message); // not empty
        co_await settle();
        CHECK(outcome == -1);
        (void)co_await q.receive();
        (void)co_await q.receive();
        co_await settle();
        CHECK(outcome == -1);
        (void)co_await q.send(message);
        CHECK(outcome == -1); // not inside this call
        co_await settle();
        CHECK(outcome == 0);
        CHECK(q.size() == 1); // the message stays

        (void)co_await q.receive();
        outcome = -1;
        nowait::spawn(wait_for_notice(q, outcome)).detach(); // again
        co_await settle();
        CHECK(code_of(q.try_send(message)) == 0);
        co_await settle();
        CHECK(outcome == 0);
    }(queue));
}

TEMPLATE_TEST_CASE(
    "mqueue_channel: mq_notify 2-1, 9-1, 3-1: one registration at a time, and it can be taken back", "",
    EVERY_QUEUE(int)) {
    auto queue = make<TestType>(4);
    run_on_new([](const TestType& q) -> task<> {
        nowait::inplace_stop_source stop;
        int first = -1;
        int second = -1;
        nowait::spawn(wait_for_notice(q, first, stop.get_token())).detach();
        co_await settle();
        const auto busy = co_await q.notified();
        CHECK(code_of(busy) == EBUSY);
        stop.request_stop();
        nowait::spawn(wait_for_notice(q, second)).detach();
        co_await settle();
        CHECK(first == ECANCELED);
        CHECK(second == -1);
        int message = 1;
        (void)co_await q.send(message);
        co_await settle();
        CHECK(second == 0);
    }(queue));
}

TEMPLATE_TEST_CASE("mqueue_channel: mq_notify 5-1: a waiting receiver takes the message, and nobody is told",
                   "", EVERY_QUEUE(int)) {
    auto queue = make<TestType>(4);
    run_on_new([](const TestType& q) -> task<> {
        int outcome = -1;
        int received = -1;
        const auto receives = [](const TestType& from, int& into) -> task<> {
            const auto got = co_await from.receive();
            into = number_of(got);
        };
        nowait::spawn(wait_for_notice(q, outcome)).detach();
        nowait::spawn(receives(q, received)).detach();
        co_await settle();
        int message = 7;
        (void)co_await q.send(message);
        co_await settle();
        CHECK(received == 7);
        CHECK(outcome == -1);
        q.close();
        co_await settle();
        CHECK(outcome == EPIPE);
        const auto late = co_await q.notified();
        CHECK(code_of(late) == EPIPE);
    }(queue));
}

TEST_CASE("mqueue_channel: a place that a waiting sender fills at once is no notice, even with one place") {
    auto queue = make<nowait::mqueue_channel<int>>(1);
    run_on_new([](const nowait::mqueue_channel<int>& q) -> task<> {
        int first = 1;
        (void)co_await q.send(first);
        int outcome = -1;
        nowait::spawn(wait_for_notice(q, outcome)).detach();
        const auto sends = [](const nowait::mqueue_channel<int>& to) -> task<> {
            int second = 2;
            (void)co_await to.send(second);
        };
        nowait::spawn(sends(q)).detach();
        co_await settle();
        const auto got = co_await q.receive();
        CHECK(number_of(got) == 1);
        co_await settle();
        CHECK(outcome == -1);
        q.abort();
        co_await settle();
        CHECK(outcome == EPIPE);
    }(queue));
}

TEST_CASE("mqueue_channel: abort after close drops what is left, and each message dies once") {
    struct counted {
        explicit counted(int& in) : alive(&in) { ++*alive; }
        counted(counted&& other) noexcept : alive(other.alive) { ++*alive; }
        counted& operator=(counted&&) = delete;
        ~counted() { --*alive; }
        int* alive;
    };
    int alive = 0;
    auto queue = make<nowait::mqueue_channel<counted>>(100);
    for (int i = 0; i < 60; ++i) {
        counted c(alive);
        REQUIRE(queue.try_send(c, i % 7));
    }
    CHECK(alive == 60);
    queue.close();
    CHECK(queue.size() == 60);
    (void)queue.try_receive();
    CHECK(alive == 59);
    queue.abort();
    CHECK(alive == 0);
    CHECK(queue.empty());
    CHECK(queue.try_receive().error() == std::errc::broken_pipe);
    CHECK(queue.sound());
}

TEST_CASE("mqueue_channel: fair order gives the longest waiting its turn, strict order does not") {
    nowait::channel_options<int, nowait::fair_order> wanted;
    wanted.capacity = 100;
    wanted.order = nowait::fair_order::one_in(4);
    auto fair = fair_channel<int>::create(wanted);
    REQUIRE(fair);
    auto strict = make<nowait::mqueue_channel<int>>(100);
    int low = -1;
    REQUIRE(fair->try_send(low, 0));
    REQUIRE(strict.try_send(low, 0));
    bool fair_got_it = false;
    for (int i = 0; i < 8; ++i) {
        int high = i;
        REQUIRE(fair->try_send(high, 9));
        REQUIRE(strict.try_send(high, 9));
        fair_got_it = fair_got_it || fair->try_receive()->value == -1;
        CHECK(strict.try_receive()->value == i);
    }
    CHECK(fair_got_it);
    CHECK(strict.size() == 1);
}
