// Shared channels between runtimes and plain threads. Assertions are made on the test's own thread, afterwards.
#include "channel_support.hpp"

#include <nowait/wait.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <thread>

using namespace channel_tests;

#define EVERY_SHARED(T) nowait::mqueue_channel<T>, channel_tests::bitmap_channel<T>, nowait::channel<T>

namespace {

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif

#ifdef UNDER_TSAN
constexpr int messages_each = 3'000;
#else
constexpr int messages_each = 30'000;
#endif

/// What one thread has seen. Summed up when it has been joined.
struct tally {
    long long sum = 0;
    long count = 0;
    long errors = 0;
};

template <class C>
task<> send_many(C to, int from, int messages, tally& seen) {
    for (int i = 0; i < messages; ++i) {
        parcel p = wrap(from + i);
        const auto sent = co_await to.send(p);
        if (!sent || p != nullptr)
            ++seen.errors;
        seen.sum += from + i;
        ++seen.count;
    }
}

template <class C>
task<> receive_until_closed(C from, tally& seen) {
    for (;;) {
        const auto got = co_await from.receive();
        if (!got) {
            seen.errors += got.error() != std::errc::broken_pipe;
            co_return;
        }
        seen.sum += *content(*got);
        ++seen.count;
    }
}

/// A runtime on a thread of its own with several tasks of one kind.
template <class Make>
std::thread on_thread(int tasks, Make make_task) {
    return std::thread([tasks, make_task] {
        auto runtime = nowait::runtime::create();
        if (!runtime)
            std::abort();
        for (int i = 0; i < tasks; ++i)
            runtime->spawn(make_task(i)).detach();
        if (!runtime->run())
            std::abort();
    });
}

} // namespace

TEMPLATE_TEST_CASE(
    "channel: eight senders, eight receivers, an observer: every message once, all end at the close", "",
    EVERY_SHARED(parcel)) {
    auto channel = make<TestType>(4);
    constexpr int threads = 2;
    constexpr int tasks = 4;
    std::array<tally, threads * tasks> sent{};
    std::array<tally, threads * tasks> received{};
    std::vector<std::thread> senders;
    std::vector<std::thread> receivers;
    for (std::size_t t = 0; t < threads; ++t) {
        receivers.push_back(on_thread(tasks, [&, t](int i) {
            return receive_until_closed(channel, received[t * tasks + static_cast<std::size_t>(i)]);
        }));
        senders.push_back(on_thread(tasks, [&, t](int i) {
            const std::size_t at = t * tasks + static_cast<std::size_t>(i);
            return send_many(channel, static_cast<int>(at) * 1'000'000, messages_each / tasks, sent[at]);
        }));
    }
    std::atomic<bool> over = false;
    std::atomic<long> too_many = 0;
    std::thread observer([&] {
        while (!over.load()) {
            if (channel.size() > 4 || (channel.waiting_receivers() > 0 && channel.waiting_receivers() > 8))
                ++too_many;
            std::this_thread::yield();
        }
    });
    for (std::thread& each : senders)
        each.join();
    channel.close();
    for (std::thread& each : receivers)
        each.join();
    over = true;
    observer.join();

    tally in;
    tally out;
    for (std::size_t i = 0; i < sent.size(); ++i) {
        in.sum += sent[i].sum;
        in.count += sent[i].count;
        out.sum += received[i].sum;
        out.count += received[i].count;
        CHECK(sent[i].errors + received[i].errors == 0);
    }
    CHECK(in.count == out.count);
    CHECK(in.sum == out.sum);
    CHECK(too_many == 0);
    CHECK(channel.empty());
    CHECK(channel.sound());
}

TEMPLATE_TEST_CASE("channel: plain threads take part with the try_ forms", "", EVERY_SHARED(parcel)) {
    auto channel = make<TestType>(4);
    tally received;
    tally sent;
    std::thread receiving = on_thread(1, [&](int) { return receive_until_closed(channel, received); });
    std::array<std::thread, 2> plain;
    std::array<tally, 2> by_plain{};
    for (std::size_t t = 0; t < plain.size(); ++t) {
        plain[t] = std::thread([&, t] {
            for (int i = 0; i < messages_each / 2;) {
                parcel p = wrap(i);
                const auto done = channel.try_send(p);
                if (done) {
                    by_plain[t].sum += i;
                    ++by_plain[t].count;
                    ++i;
                } else if (p == nullptr || done.error() != std::errc::resource_unavailable_try_again) {
                    ++by_plain[t].errors;
                    break;
                } else {
                    std::this_thread::yield();
                }
            }
        });
    }
    for (std::thread& each : plain)
        each.join();
    channel.close();
    receiving.join();
    for (const tally& each : by_plain) {
        sent.sum += each.sum;
        sent.count += each.count;
        CHECK(each.errors == 0);
    }
    CHECK(received.count == sent.count);
    CHECK(received.sum == sent.sum);
    CHECK(received.errors == 0);
}

namespace {

/// Sends each value under a time-out that is now and then too short. What came back is counted as kept.
template <class C>
task<> send_impatiently(C to, int messages, tally& delivered, tally& kept) {
    for (int i = 0; i < messages; ++i) {
        parcel p = wrap(i);
        const auto sent =
            co_await nowait::with_timeout(to.send(p), std::chrono::microseconds(i % 3 == 0 ? 0 : 20));
        if (sent && p == nullptr) {
            delivered.sum += i;
            ++delivered.count;
        } else if (!sent && p != nullptr && sent.error() == std::errc::timed_out) {
            kept.sum += i;
            ++kept.count;
        } else {
            ++kept.errors; // both, or neither
        }
    }
}
template <class C>
task<> receive_impatiently(C from, tally& seen) {
    for (int i = 0;; ++i) {
        const auto got =
            co_await nowait::with_timeout(from.receive(), std::chrono::microseconds(i % 3 == 0 ? 0 : 20));
        if (got) {
            seen.sum += *content(*got);
            ++seen.count;
        } else if (got.error() == std::errc::broken_pipe) {
            co_return;
        } else if (got.error() == std::errc::timed_out) {
            co_await nowait::yield();
        } else {
            ++seen.errors;
        }
    }
}

} // namespace

TEMPLATE_TEST_CASE("channel: a hand-over that races a time-out delivers or keeps, never both, never neither",
                   "", EVERY_SHARED(parcel)) {
    for (const std::uint64_t capacity : {std::uint64_t{1}, std::uint64_t{8}}) {
        auto channel = make<TestType>(capacity);
        tally delivered;
        tally kept;
        tally seen;
        std::thread receiving = on_thread(1, [&](int) { return receive_impatiently(channel, seen); });
        std::thread sending =
            on_thread(1, [&](int) { return send_impatiently(channel, messages_each / 3, delivered, kept); });
        sending.join();
        channel.close();
        receiving.join();
        CHECK(delivered.count + kept.count == messages_each / 3);
        CHECK(kept.errors + delivered.errors + seen.errors == 0);
        CHECK(seen.count == delivered.count);
        CHECK(seen.sum == delivered.sum);
        CHECK(channel.sound());
    }
}

TEMPLATE_TEST_CASE("channel: plain threads wait asleep, in the same line as tasks", "",
                   EVERY_SHARED(parcel)) {
    auto channel = make<TestType>(2);
    tally received;
    tally sent;
    std::thread receiving([&] {
        for (;;) {
            const auto got = nowait::wait(channel.receive());
            if (!got) {
                received.errors += got.error() != std::errc::broken_pipe;
                return;
            }
            received.sum += *content(*got);
            ++received.count;
        }
    });
    std::thread sending =
        on_thread(2, [&](int i) { return send_many(channel, i * 100'000, messages_each / 6, sent); });
    for (int i = 0; i < messages_each / 6; ++i) {
        parcel p = wrap(i);
        const auto done = nowait::wait(channel.send(p));
        sent.errors += !done;
    }
    sending.join();
    channel.close();
    receiving.join();
    CHECK(sent.errors + received.errors == 0);
    CHECK(received.count == 3 * (messages_each / 6));
    parcel late = wrap(1);
    CHECK(code_of(nowait::wait(channel.send(late))) == EPIPE);
    CHECK(late != nullptr);
}

TEST_CASE("rendezvous: between two threads") {
    auto channel = make<nowait::channel<parcel>>(0);
    tally sent;
    tally received;
    std::thread receiving = on_thread(2, [&](int) { return receive_until_closed(channel, received); });
    std::thread sending = on_thread(1, [&](int) { return send_many(channel, 0, messages_each / 3, sent); });
    sending.join();
    channel.close();
    receiving.join();
    CHECK(sent.errors + received.errors == 0);
    CHECK(received.count == sent.count);
    CHECK(received.sum == sent.sum);
}

TEST_CASE("channel: the last handle goes while another runtime's tasks wait: they end there") {
    for (int round = 0; round < 200; ++round) {
        tally seen;
        std::optional<nowait::mqueue_channel<parcel>> channel = make<nowait::mqueue_channel<parcel>>(1);
        std::atomic<bool> waits = false;
        const auto receives = [](const nowait::mqueue_channel<parcel>& from, std::atomic<bool>& ready,
                                 tally& t) -> task<> {
            auto receiving = from.receive(); // the handle is not this task's
            ready = true;
            const auto got = co_await std::move(receiving);
            t.errors += !(got.error() == std::errc::broken_pipe);
            ++t.count;
        };
        std::thread other = on_thread(1, [&](int) { return receives(*channel, waits, seen); });
        while (!waits || channel->waiting_receivers() == 0)
            std::this_thread::yield();
        channel.reset();
        other.join();
        CHECK(seen.count == 1);
        CHECK(seen.errors == 0);
    }
}
