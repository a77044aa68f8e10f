// The table of docs/cancellation.md, row by row: what waits and is stopped ends at once, says so, and has touched nothing. "At once" is:
// before anybody who becomes ready after the stop.
#include "catch.hpp"

#include <nowait/broadcast.hpp>
#include <nowait/mqueue_notification.hpp>
#include <nowait/nowait.hpp>
#include <nowait/simulation.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <system_error>
#include <utility>

using namespace std::chrono_literals;
using nowait::result;
using nowait::task;

namespace {

template <class Error>
std::error_code code_in(const Error& error) {
    if constexpr (requires { error.code; })
        return error.code;
    else
        return error;
}

template <class What>
task<std::error_code> ends_with(What what) {
    auto got = co_await std::move(what);
    co_return got ? std::error_code() : code_in(got.error());
}

/// Waits, is stopped, and has ended when the one who stopped it comes to its turn again.
template <class What>
task<> ends_at_once(What what) {
    nowait::inplace_stop_source stop;
    auto limited = nowait::with_stop(std::move(what), stop.get_token());
    auto waiting = nowait::spawn(ends_with(std::move(limited)));
    (void)co_await nowait::sleep_for(1ms);
    CHECK_FALSE(waiting.done());
    stop.request_stop();
    co_await nowait::yield();
    CHECK(waiting.done());
    auto code = co_await waiting.join();
    CHECK(*code == std::errc::operation_canceled);
}

void in_simulation(task<> (*body)()) {
    nowait::simulation sim({.any_order = false});
    CHECK(sim.run(body()).has_value());
    CHECK(sim.open_descriptors() == 0);
}

std::span<std::byte> room() {
    static std::array<std::byte, 64> bytes;
    return bytes;
}
std::span<const std::byte> data() {
    static constexpr std::array<std::byte, 64> bytes{};
    return bytes;
}

} // namespace

TEST_CASE("stops: time") {
    in_simulation([]() -> task<> {
        co_await ends_at_once(nowait::sleep_for(1h));
        co_await ends_at_once(nowait::sleep_until(std::chrono::steady_clock::time_point::max()));
        nowait::interval every(1h);
        co_await ends_at_once(every.tick());
        auto tick = co_await every.tick(); // the same one, still to come
        CHECK(tick.value_or(0) == 1);
    });
}

TEST_CASE("stops: kernel pipes") {
    in_simulation([]() -> task<> {
        auto empty = *nowait::make_pipe();
        auto full = *nowait::make_pipe({.capacity = 4096});
        const std::string page(4096, 'x');
        (void)co_await full.writer.write(page);
        co_await ends_at_once(empty.reader.read(room()));
        co_await ends_at_once(empty.reader.readable());
        co_await ends_at_once(full.writer.write(data()));
        co_await ends_at_once(full.writer.writable());
        co_await ends_at_once(nowait::splice(empty.reader, full.writer, 10));
        co_await ends_at_once(nowait::tee(empty.reader, full.writer, 10));
        auto other = *nowait::make_pipe();
        (void)co_await other.writer.write("abc");
        co_await ends_at_once(nowait::splice(other.reader, full.writer, 10)); // data, and no room
        CHECK(other.reader.available().value_or(0) == 3);
        CHECK(full.reader.available().value_or(0) == 4096);
        CHECK(empty.reader.available().value_or(1) == 0);
    });
}

TEST_CASE("stops: POSIX queues") {
    in_simulation([]() -> task<> {
        auto made = nowait::posix_mqueue::open(
            "/stops", {.how = nowait::mqueue_open::replace, .capacity = 1, .message_bytes = 64});
        auto& queue = *made;
        co_await ends_at_once(queue.receive(room()));
        co_await ends_at_once(queue.readable());
        auto notice = *queue.notify();
        co_await ends_at_once(notice.arrived());
        CHECK(queue.try_send(data(), 1).has_value());
        auto arrived = co_await notice.arrived(); // the registration stands
        CHECK(arrived.has_value());
        co_await ends_at_once(queue.send(data(), 2));
        co_await ends_at_once(queue.writable());
        CHECK(queue.attributes()->messages == 1);
        (void)nowait::posix_mqueue::unlink("/stops");
    });
}

TEST_CASE("stops: pipe channels") {
    in_simulation([]() -> task<> {
        auto empty = *nowait::pipe_channel::create();
        auto full = *nowait::pipe_channel::create({.capacity = 4096});
        const std::string page(4096, 'x');
        (void)co_await full.writer.write(page);
        co_await ends_at_once(empty.reader.read(room()));
        co_await ends_at_once(empty.reader.readable());
        co_await ends_at_once(empty.reader.peek());
        co_await ends_at_once(full.writer.write(data()));
        co_await ends_at_once(full.writer.writable());
        co_await ends_at_once(full.writer.reserve(10));
        co_await ends_at_once(nowait::splice(empty.reader, full.writer, 10));
        co_await ends_at_once(nowait::tee(empty.reader, full.writer, 10));
        auto pipe = *nowait::make_pipe({.capacity = 4096});
        co_await ends_at_once(nowait::splice(empty.reader, pipe.writer, 10)); // the bridges
        co_await ends_at_once(nowait::splice(pipe.reader, full.writer, 10));
        CHECK(full.reader.available().value_or(0) == 4096);
        CHECK(empty.writer.try_write("whole").value_or(0) == 5);
    });
}

TEST_CASE("stops: channels of messages") {
    in_simulation([]() -> task<> {
        auto channel = *nowait::channel<int>::create(1);
        auto queue = *nowait::mqueue_channel<int>::create({.capacity = 1});
        int one = 1;
        co_await ends_at_once(channel.receive());
        co_await ends_at_once(queue.receive());
        co_await ends_at_once(channel.notified());
        co_await ends_at_once(queue.notified());
        CHECK(channel.try_send(one).has_value());
        CHECK(queue.try_send(one, 3).has_value());
        co_await ends_at_once(channel.send(one));
        co_await ends_at_once(queue.send(one, 5));
        co_await ends_at_once(channel.send_owned(7));
        co_await ends_at_once(queue.send_owned(7, 5));
        co_await ends_at_once(channel.reserve());
        co_await ends_at_once(queue.reserve(2));
        auto [to, from] = *nowait::make_oneshot<int>();
        co_await ends_at_once(from.receive());
        auto all = *nowait::broadcast<int>::create(2);
        auto reader = *all.subscribe();
        co_await ends_at_once(reader.receive());
        CHECK(all.send(8).has_value());
        auto heard = co_await reader.receive();
        CHECK(heard.has_value()); // nothing was skipped
        CHECK((channel.size() == 1 && queue.size() == 1));
        CHECK((channel.waiting_senders() == 0 && queue.waiting_senders() == 0));
        CHECK((channel.waiting_receivers() == 0 && queue.waiting_receivers() == 0));
    });
}

TEST_CASE("stops: locks, permits, events") {
    in_simulation([]() -> task<> {
        nowait::semaphore permits(0);
        nowait::async_mutex mutex;
        nowait::event event;
        nowait::latch latch(1);
        auto pipe = *nowait::make_pipe();
        nowait::write_lock writing;
        auto held = co_await mutex.lock();
        auto turn = co_await writing.acquire();
        co_await ends_at_once(permits.acquire());
        co_await ends_at_once(mutex.lock());
        co_await ends_at_once(writing.acquire());
        co_await ends_at_once(event.wait());
        co_await ends_at_once(latch.wait());
        CHECK_FALSE(permits.contended());
        permits.release();
        CHECK(permits.available() == 1);
    });
}

TEST_CASE("stops: a join ends at once, and the task goes on") {
    in_simulation([]() -> task<> {
        auto child = nowait::spawn([]() -> task<int> {
            (void)co_await nowait::sleep_for(1h);
            co_return 7;
        }());
        co_await ends_at_once(child.join());
        auto joined = co_await child.join();
        CHECK(joined.value_or(0) == 7);
    });
}
