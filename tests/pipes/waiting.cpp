// Waiting for data and for room, in what order, and what ends a wait.
#include "pipes_support.hpp"

namespace pipes {
namespace {

task<> fill(const nowait::pipe_writer& writer) {
    result<std::size_t> n;
    const std::string block(4096, 'f');
    const auto capacity = writer.capacity().value();
    for (std::size_t done = 0; done < capacity; done += block.size()) {
        n = co_await writer.write(block);
        CHECK(n.value_or(0) == block.size());
    }
}

// --- one waiter --------------------------------------------------------------------------------------------------------

task<> read_waits_for_data() {
    auto p = make_pipe();
    std::array<char, 16> room{};
    outcome out;
    auto waiting = nowait::spawn(read_into(p.reader, room_in(room), out));
    co_await settle();
    CHECK_FALSE(out.done);
    CHECK(reads(nowait::current_stats()).armed == 1);
    (void)co_await p.writer.write("hello");
    CHECK_FALSE(out.done); // never resumed inside somebody else's write
    (void)co_await waiting.join();
    CHECK(out.value.value_or(0) == 5);
    CHECK(std::string_view(room.data(), 5) == "hello");
}

task<> write_waits_for_room() {
    result<std::size_t> n;
    auto p = make_pipe({.capacity = 4096});
    co_await fill(p.writer);
    outcome out;
    auto waiting = nowait::spawn(write_from(p.writer, "one more", out));
    co_await settle();
    CHECK_FALSE(out.done);
    std::string room(5000, '\0');
    n = co_await p.reader.read(room_in(room));
    CHECK(n.value_or(0) == 4096);
    (void)co_await waiting.join();
    CHECK(out.value.value_or(0) == 8);
    n = co_await p.reader.read(room_in(room));
    CHECK(n.value_or(0) == 8);
    CHECK(room.substr(0, 8) == "one more");
}

task<> readable_and_writable() {
    result<std::size_t> n;
    result<void> ready;
    auto p = make_pipe({.capacity = 4096});
    ready = co_await p.writer.writable();
    CHECK(ready.has_value());
    auto early = co_await nowait::with_timeout(p.reader.readable(), 0ms);
    CHECK(error_of(early) == ETIMEDOUT);
    (void)co_await p.writer.write("x");
    ready = co_await p.reader.readable();
    CHECK(ready.has_value());
    ready = co_await p.reader.readable();
    CHECK(ready.has_value()); // it takes nothing
    CHECK(p.reader.available().value() == 1);
    std::array<char, 8> room{};
    (void)co_await p.reader.read(room_in(room));
    co_await fill(p.writer);
    auto full = co_await nowait::with_timeout(p.writer.writable(), 1ms);
    CHECK(error_of(full) == ETIMEDOUT);
    p.reader = {};
    ready = co_await p.writer.writable();
    CHECK(ready.has_value()); // the write will say EPIPE, without waiting
    n = co_await p.writer.write("x");
    CHECK(error_of(n) == EPIPE);
}

} // namespace

TEST_CASE("a read of an empty pipe waits for data") {
    REQUIRE(nowait::run(read_waits_for_data()));
}
TEST_CASE("a write to a full pipe waits for room") {
    REQUIRE(nowait::run(write_waits_for_room()));
}
TEST_CASE("readable and writable wait and take nothing") {
    REQUIRE(nowait::run(readable_and_writable()));
}

// --- closing under a wait --------------------------------------------------------------------------------------------------

namespace {

int poll_now(int fd, short events) {
    pollfd one{fd, events, 0};
    return ::poll(&one, 1, 0) < 0 ? -1 : one.revents;
}

task<> close_reader_under_read(bool by_destructor) {
    result<std::size_t> n;
    auto p = make_pipe();
    std::array<char, 8> room{};
    outcome out;
    auto waiting = nowait::spawn(read_into(p.reader, room_in(room), out));
    co_await settle();
    const unique_fd peer(p.writer.native_handle() >= 0 ? ::dup(p.writer.native_handle()) : -1);
    // The kernel has let go when close() is back: the peer sees it without any further pass of the loop.
    if (by_destructor)
        p.reader = {};
    else
        CHECK(p.reader.close().has_value());
    CHECK((poll_now(peer.get(), POLLOUT) & POLLERR) != 0);
    CHECK_FALSE(p.reader.is_open());
    CHECK(p.reader.native_handle() == -1);
    CHECK_FALSE(out.done);
    (void)co_await waiting.join();
    CHECK(error_of(out.value) == ECANCELED);
    n = co_await p.writer.write("x");
    CHECK(error_of(n) == EPIPE);
    n = co_await p.reader.read(room_in(room));
    CHECK(error_of(n) == EBADF);
    CHECK(error_of(p.reader.close()) == EBADF);
}

task<> close_writer_under_write(bool by_destructor) {
    auto p = make_pipe({.capacity = 4096});
    co_await fill(p.writer);
    outcome out;
    auto waiting = nowait::spawn(write_from(p.writer, "too much", out));
    co_await settle();
    CHECK_FALSE(out.done);
    if (by_destructor)
        p.writer = {};
    else
        CHECK(p.writer.close().has_value());
    std::string room(4096, '\0');
    CHECK(::read(p.reader.native_handle(), room.data(), room.size()) == 4096);
    CHECK(::read(p.reader.native_handle(), room.data(), room.size()) == 0); // the end, at once
    (void)co_await waiting.join();
    CHECK(error_of(out.value) == ECANCELED);
}

task<> peer_goes_under_wait() {
    auto p = make_pipe({.capacity = 4096});
    std::array<char, 8> room{};
    std::array<outcome, 3> out;
    for (auto& one : out)
        (void)nowait::spawn(read_into(p.reader, room_in(room), one));
    co_await settle();
    p.writer = {};
    co_await settle();
    for (auto& one : out) // the end of the stream is for everybody
        CHECK((one.done && one.value.has_value() && *one.value == 0));

    auto q = make_pipe({.capacity = 4096});
    co_await fill(q.writer);
    std::array<outcome, 3> sent;
    for (auto& one : sent)
        (void)nowait::spawn(write_from(q.writer, "never read", one));
    co_await settle();
    q.reader = {};
    co_await settle();
    for (auto& one : sent)
        CHECK((one.done && error_of(one.value) == EPIPE));
}

} // namespace

TEST_CASE("closing an end ends its waits, and the peer sees it at once") {
    const bool by_destructor = GENERATE(false, true);
    REQUIRE(nowait::run(close_reader_under_read(by_destructor)));
    REQUIRE(nowait::run(close_writer_under_write(by_destructor)));
}
TEST_CASE("when the peer goes, all waiters hear of it") {
    REQUIRE(nowait::run(peer_goes_under_wait()));
}

// --- order ----------------------------------------------------------------------------------------------------------------

namespace {

task<> note_read(const nowait::pipe_reader& reader, std::string& order, char name) {
    std::array<char, 1> room{};
    auto n = co_await reader.read(room_in(room));
    order += name;
    order += n ? (*n == 0 ? '.' : room[0]) : '!';
}

task<> fifo_readers() {
    auto p = make_pipe();
    std::string order;
    for (char name : {'a', 'b', 'c'})
        (void)nowait::spawn(note_read(p.reader, order, name));
    co_await settle();
    (void)co_await p.writer.write("1");
    co_await settle();
    CHECK(order == "a1");
    (void)co_await p.writer.write("23");
    co_await settle();
    CHECK(order == "a1b2c3");
}

task<> no_barging() {
    auto p = make_pipe();
    std::string order;
    (void)nowait::spawn(note_read(p.reader, order, 'a'));
    co_await settle();
    (void)co_await p.writer.write("1");
    // The waiter has not run yet. A fresh read queues behind it although there is data.
    (void)nowait::spawn(note_read(p.reader, order, 'b'));
    std::array<char, 1> room{};
    auto late = co_await nowait::with_timeout(p.reader.read(room_in(room)), 0ms);
    CHECK(error_of(late) == ETIMEDOUT);
    co_await settle();
    CHECK(order == "a1");
    (void)co_await p.writer.write("2");
    co_await settle();
    CHECK(order == "a1b2");
}

task<> cancelled_in_the_middle() {
    auto p = make_pipe();
    std::string order;
    nowait::inplace_stop_source stop;
    (void)nowait::spawn(note_read(p.reader, order, 'a'));
    co_await nowait::yield();
    auto middle = [](const nowait::pipe_reader& reader, std::string& into,
                     nowait::inplace_stop_token token) -> task<> {
        (void)co_await nowait::with_stop(note_read(reader, into, 'b'), token);
    };
    (void)nowait::spawn(middle(p.reader, order, stop.get_token()));
    co_await nowait::yield();
    co_await nowait::yield();
    (void)nowait::spawn(note_read(p.reader, order, 'c'));
    co_await settle();
    stop.request_stop();
    co_await settle();
    CHECK(order == "b!");
    (void)co_await p.writer.write("12");
    co_await settle();
    CHECK(order == "b!a1c2");
}

} // namespace

TEST_CASE("waiting readers are served in the order in which they came") {
    REQUIRE(nowait::run(fifo_readers()));
}
TEST_CASE("a fresh read does not pass a waiter that has been chosen") {
    REQUIRE(nowait::run(no_barging()));
}
TEST_CASE("a waiter that leaves from the middle takes nothing with it") {
    REQUIRE(nowait::run(cancelled_in_the_middle()));
}

// --- cancelling ------------------------------------------------------------------------------------------------------------

namespace {

task<> stopped_read(const nowait::pipe_reader& reader, nowait::inplace_stop_token token,
                    std::span<std::byte> room, outcome& out) {
    auto n = co_await nowait::with_stop(reader.read(room), token);
    out.value = n;
    out.done = true;
}

task<> cancel_takes_nothing() {
    result<std::size_t> n;
    auto p = make_pipe();
    nowait::inplace_stop_source stop;
    auto room = std::make_unique<std::array<char, 64>>();
    outcome out;
    auto waiting = nowait::spawn(stopped_read(p.reader, stop.get_token(), room_in(*room), out));
    co_await settle();
    stop.request_stop();
    CHECK_FALSE(out.done); // never from inside somebody else's call
    (void)co_await waiting.join();
    CHECK(error_of(out.value) == ECANCELED);
    room.reset(); // nothing may write there from now on
    (void)co_await p.writer.write("after the cancel");
    co_await settle();
    CHECK(p.reader.available().value() == 16);
    std::array<char, 64> next{};
    n = co_await p.reader.read(room_in(next));
    CHECK(n.value_or(0) == 16);
}

// The cancel and the data come in the same turn, in both orders: either outcome is right, losing a byte is not.
task<> cancel_meets_data(bool data_first, int looks, int& cancelled, int& served) {
    result<std::size_t> n;
    auto p = make_pipe();
    nowait::inplace_stop_source stop;
    std::array<char, 8> room{};
    outcome out;
    auto waiting = nowait::spawn(stopped_read(p.reader, stop.get_token(), room_in(room), out));
    co_await settle(3);
    if (data_first)
        (void)co_await p.writer.write("data");
    for (int i = 0; i < looks; ++i)
        co_await nowait::yield();
    stop.request_stop();
    if (!data_first)
        (void)co_await p.writer.write("data");
    (void)co_await waiting.join();
    if (out.value) {
        ++served;
        CHECK(*out.value == 4);
        CHECK(p.reader.available().value() == 0);
    } else {
        ++cancelled;
        CHECK(out.value.error() == std::errc::operation_canceled);
        n = co_await p.reader.read(room_in(room));
        CHECK(n.value_or(0) == 4);
    }
    CHECK(std::string_view(room.data(), 4) == "data");
}

task<> chosen_then_cancelled(int looks) {
    auto p = make_pipe();
    nowait::inplace_stop_source stop;
    std::array<char, 8> first_room{};
    std::array<char, 8> second_room{};
    outcome first;
    outcome second;
    (void)nowait::spawn(stopped_read(p.reader, stop.get_token(), room_in(first_room), first));
    co_await settle(3);
    (void)nowait::spawn(read_into(p.reader, room_in(second_room), second));
    co_await settle(3);
    (void)co_await p.writer.write("!");
    for (int i = 0; i < looks; ++i)
        co_await nowait::yield();
    stop.request_stop();
    co_await settle();
    // Whoever was woken, one of the two has the byte: a chosen one that leaves passes the wake on.
    CHECK(first.done);
    if (!first.value) {
        CHECK(second.done);
        CHECK(second.value.value_or(0) == 1);
    } else {
        CHECK_FALSE(second.done);
        (void)co_await p.writer.write("?");
        co_await settle();
        CHECK(second.done);
    }
}

task<> never_started() {
    result<std::size_t> n;
    auto p = make_pipe();
    std::array<char, 8> room{};
    {
        auto read = p.reader.read(room_in(room));
        auto write = p.writer.write("never sent");
        auto bounded = nowait::with_timeout(p.reader.read(room_in(room)), 1ms);
        (void)read;
        (void)write;
        (void)bounded;
        auto unstarted = read_to_end(p.reader, *std::make_unique<std::string>());
        (void)unstarted;
    }
    CHECK(p.reader.available().value() == 0);
    // A description outlives the move of its handle: the block stays.
    auto read = p.reader.read(room_in(room));
    auto moved = std::move(p.reader);
    (void)co_await p.writer.write("x");
    n = co_await std::move(read);
    CHECK(n.value_or(0) == 1);
}

task<> already_stopped() {
    auto p = make_pipe();
    nowait::inplace_stop_source stop;
    stop.request_stop();
    std::array<char, 8> room{};
    (void)co_await p.writer.write("x");
    auto n = co_await nowait::with_stop(p.reader.read(room_in(room)), stop.get_token());
    CHECK(error_of(n) == ECANCELED);
    auto sent = co_await nowait::with_stop(p.writer.write("y"), stop.get_token());
    CHECK(error_of(sent) == ECANCELED);
    CHECK(p.reader.available().value() == 1);
}

} // namespace

TEST_CASE("a cancelled read takes nothing, and its buffer may go at once") {
    REQUIRE(nowait::run(cancel_takes_nothing()));
}
TEST_CASE("a cancel that meets the data loses no byte, whoever is first") {
    int cancelled = 0;
    int served = 0;
    for (int looks = 0; looks < 140; ++looks) {
        REQUIRE(nowait::run(cancel_meets_data(true, looks, cancelled, served)));
        if (looks < 3)
            REQUIRE(nowait::run(cancel_meets_data(false, looks, cancelled, served)));
    }
    CHECK(cancelled >= 3);
    CHECK(served >= 1); // after enough passes of the loop the read had its data before the stop
}
TEST_CASE("a chosen waiter that is cancelled passes the wake on") {
    for (int looks = 0; looks < 140; ++looks)
        REQUIRE(nowait::run(chosen_then_cancelled(looks)));
}
TEST_CASE("a description that is never awaited does nothing") {
    REQUIRE(nowait::run(never_started()));
}
TEST_CASE("under a stop that has been requested nothing is tried") {
    REQUIRE(nowait::run(already_stopped()));
}

// --- timeouts ---------------------------------------------------------------------------------------------------------------

namespace {

task<> timeout_zero_is_one_attempt() {
    auto p = make_pipe();
    std::array<char, 8> room{};
    for (int i = 0; i < 100; ++i) {
        // However often nothing was there: one attempt is made, and it finds what is there now.
        for (int misses = 0; misses < 5; ++misses) {
            auto none = co_await nowait::with_timeout(p.reader.read(room_in(room)), 0ms);
            CHECK(error_of(none) == ETIMEDOUT);
        }
        CHECK(::write(p.writer.native_handle(), "now", 3) == 3);
        auto some = co_await nowait::with_timeout(p.reader.read(room_in(room)), 0ms);
        CHECK(some.value_or(0) == 3);
        auto gone = co_await nowait::with_timeout(p.reader.read(room_in(room)), -5s);
        CHECK(error_of(gone) == ETIMEDOUT);
    }
}

task<> timeout_huge() {
    auto p = make_pipe();
    std::array<char, 8> room{};
    outcome out;
    auto body = [](const nowait::pipe_reader& reader, std::span<std::byte> into, outcome& to) -> task<> {
        auto n = co_await nowait::with_timeout(reader.read(into), std::chrono::hours::max());
        to.value = n;
        to.done = true;
    };
    auto waiting = nowait::spawn(body(p.reader, room_in(room), out));
    co_await settle();
    CHECK_FALSE(out.done);
    (void)co_await p.writer.write("x");
    (void)co_await waiting.join();
    CHECK(out.value.value_or(0) == 1);
}

} // namespace

TEST_CASE("a time-out of zero is one attempt, also after many misses") {
    REQUIRE(nowait::run(timeout_zero_is_one_attempt()));
}
TEST_CASE("a time-out beyond the clock waits for the data") {
    REQUIRE(nowait::run(timeout_huge()));
}

// --- handles move and go ------------------------------------------------------------------------------------------------------

namespace {

task<> handle_moves_under_wait() {
    result<std::size_t> n;
    auto p = make_pipe();
    std::array<char, 8> room{};
    outcome out;
    auto waiting = nowait::spawn(read_into(p.reader, room_in(room), out));
    co_await settle();
    nowait::pipe_reader elsewhere = std::move(p.reader);
    CHECK_FALSE(p.reader.is_open());
    auto third = std::make_unique<nowait::pipe_reader>(std::move(elsewhere));
    (void)co_await p.writer.write("x");
    (void)co_await waiting.join();
    CHECK(out.value.value_or(0) == 1);
    n = co_await p.reader.read(room_in(room));
    CHECK(error_of(n) == EBADF);
    n = co_await elsewhere.read(room_in(room));
    CHECK(error_of(n) == EBADF);
}

task<> consume(nowait::pipe_reader reader, std::size_t& got) {
    std::array<char, 8> room{};
    auto n = co_await reader.read(room_in(room));
    got = n.value_or(99);
}

task<> ends_passed_by_value() {
    result<std::size_t> n;
    auto p = make_pipe();
    std::size_t got = 0;
    auto reading = nowait::spawn(consume(std::move(p.reader), got));
    co_await settle();
    (void)co_await p.writer.write("abc");
    (void)co_await reading.join();
    CHECK(got == 3);
    n = co_await p.writer.write("x");
    CHECK(error_of(n) == EPIPE); // its frame is gone, and the end with it
}

task<> assigned_over_itself() {
    result<std::size_t> n;
    auto p = make_pipe();
    auto q = make_pipe();
    std::array<char, 8> room{};
    outcome out;
    auto waiting = nowait::spawn(read_into(p.reader, room_in(room), out));
    co_await settle();
    auto& same = p.reader;
    p.reader = std::move(same);
    CHECK(p.reader.is_open());
    p.reader = std::move(q.reader); // the old end goes, its wait with it
    (void)co_await waiting.join();
    CHECK(error_of(out.value) == ECANCELED);
    (void)co_await q.writer.write("q");
    n = co_await p.reader.read(room_in(room));
    CHECK(n.value_or(0) == 1);
}

} // namespace

TEST_CASE("a handle may move while its operation waits") {
    REQUIRE(nowait::run(handle_moves_under_wait()));
}
TEST_CASE("an end passed by value closes with the frame that has it") {
    REQUIRE(nowait::run(ends_passed_by_value()));
}
TEST_CASE("assigning over an end closes what it was") {
    REQUIRE(nowait::run(assigned_over_itself()));
}

// --- numbers that come back -----------------------------------------------------------------------------------------------------

namespace {

task<> number_comes_back() {
    auto a = make_pipe();
    const int number = a.reader.native_handle();
    std::array<char, 16> a_room{};
    outcome a_out;
    auto a_waiting = nowait::spawn(read_into(a.reader, room_in(a_room), a_out));
    co_await settle();
    (void)a.reader.close();
    auto b = make_pipe();
    CHECK(b.reader.native_handle() == number);
    std::array<char, 16> b_room{};
    outcome b_out;
    auto b_waiting = nowait::spawn(read_into(b.reader, room_in(b_room), b_out));
    (void)co_await b.writer.write("for b");
    (void)co_await a_waiting.join();
    (void)co_await b_waiting.join();
    CHECK(error_of(a_out.value) == ECANCELED);
    CHECK(a_room == std::array<char, 16>{});
    CHECK(b_out.value.value_or(0) == 5);
}

// Waits, closes, and opens again in every distance, so that events of the old number meet the new one.
task<> numbers_in_turn() {
    for (int i = 0; i < 300; ++i) {
        auto p = make_pipe();
        std::array<char, 8> room{};
        outcome out;
        auto waiting = nowait::spawn(read_into(p.reader, room_in(room), out));
        co_await settle(i % 7);
        if (i % 3 == 0)
            (void)co_await p.writer.write("x");
        co_await settle(i % 5);
        if (i % 2 == 0)
            p.writer = {};
        else
            p.reader = {};
        (void)co_await waiting.join();
        if (out.value)
            CHECK(*out.value == (i % 3 == 0 ? 1u : 0u));
        else // closed under the read, or before it began
            CHECK((error_of(out.value) == ECANCELED || (i % 7 == 0 && error_of(out.value) == EBADF)));
    }
}

task<> write_close_read_to_end(int count, int& right) {
    for (int i = 0; i < count; ++i) {
        auto p = make_pipe();
        std::string got;
        // In turn: all there before the reader looks; the reader waits first.
        if (i % 2 == 0) {
            (void)co_await p.writer.write("6bytes");
            p.writer = {};
            (void)co_await read_to_end(p.reader, got, 6);
        } else {
            auto reading = nowait::spawn(read_to_end(p.reader, got, 6));
            co_await nowait::yield();
            (void)co_await p.writer.write("6bytes");
            p.writer = {};
            (void)co_await reading.join();
        }
        right += got == "6bytes";
    }
}

} // namespace

TEST_CASE("a number that comes back does not meet the operations of its past") {
    const auto before = open_descriptors();
    REQUIRE(nowait::run(number_comes_back()));
    REQUIRE(nowait::run(numbers_in_turn()));
    CHECK(open_descriptors() == before);
}
TEST_CASE("written, closed, read to the end: the end comes every time") {
    const int count = sanitized ? 5'000 : 100'000;
    int right = 0;
    REQUIRE(nowait::run(write_close_read_to_end(count, right)));
    CHECK(right == count);
}

// --- many -----------------------------------------------------------------------------------------------------------------------

namespace {

task<> many_waits(std::size_t count) {
    std::vector<nowait::pipe_pair> all;
    std::vector<outcome> out(count);
    std::vector<std::array<char, 8>> rooms(count);
    for (std::size_t i = 0; i < count; ++i)
        all.push_back(make_pipe());
    for (std::size_t i = 0; i < count; ++i)
        (void)nowait::spawn(read_into(all[i].reader, room_in(rooms[i]), out[i]));
    co_await settle();
    CHECK(reads(nowait::current_stats()).armed == count);
    for (std::size_t i = count; i-- > 0;)
        (void)co_await all[i].writer.write("x");
    co_await all_done(out);
    std::size_t served = 0;
    for (auto& one : out)
        served += one.done && one.value.value_or(0) == 1;
    CHECK(served == count);
    // And all at once into a close.
    for (std::size_t i = 0; i < count; ++i) {
        out[i] = {};
        (void)nowait::spawn(read_into(all[i].reader, room_in(rooms[i]), out[i]));
    }
    co_await settle();
    for (auto& one : all)
        one.reader = {};
    co_await all_done(out);
    std::size_t cancelled = 0;
    for (auto& one : out)
        cancelled += one.done && error_of(one.value) == ECANCELED;
    CHECK(cancelled == count);
}

} // namespace

TEST_CASE("a thousand pipes wait, are served, and close under their waits") {
    const no_new_workers watch;
    const auto before = open_descriptors();
    REQUIRE(nowait::run(many_waits(1000)));
    CHECK(open_descriptors() == before);
}
TEST_CASE("more operations than the ring has entries") {
    REQUIRE(nowait::run(many_waits(500), {.ring_entries = 4}));
    REQUIRE(nowait::run(many_waits(500), {.ring_entries = 4, .completion_entries = 8}));
    REQUIRE(nowait::run(many_waits(3), {.ring_entries = 1}));
}

// --- the end of the runtime -------------------------------------------------------------------------------------------------------

TEST_CASE("a runtime that goes takes its waits along and leaves the handles usable") {
    auto p = make_pipe();
    std::array<char, 8> room{};
    const auto before = open_descriptors();
    outcome out;
    {
        auto rt = make_runtime();
        (void)rt.spawn(read_into(p.reader, room_in(room), out));
        auto report = rt.shutdown(0s);
        (void)report;
        (void)rt.spawn(read_into(p.reader, room_in(room), out)); // never runs
    }
    CHECK(open_descriptors() == before);
    CHECK(p.reader.is_open());
    out = {};
    auto again = make_runtime();
    REQUIRE(again.run(write_whole(p.writer, "again")));
    REQUIRE(again.run(read_into(p.reader, room_in(room), out)));
    CHECK(out.value.value_or(0) == 5);
    CHECK(again.stats().of(nowait::operation_kind::read).nowait_misses == 0);
}

namespace {

task<> leave_unfinished(nowait::runtime& rt, nowait::pipe_reader& reader, std::span<std::byte> room,
                        outcome& out) {
    (void)rt;
    (void)nowait::spawn(read_into(reader, room, out));
    co_await settle();
    nowait::current_remote().request_stop();
}

} // namespace

TEST_CASE("handles travel from a runtime to the next, wherever the first has left them") {
    auto p = make_pipe();
    std::array<char, 8> room{};
    for (int i = 0; i < 20; ++i) {
        outcome out;
        auto rt = make_runtime();
        REQUIRE(rt.run(leave_unfinished(rt, p.reader, room_in(room), out)));
        CHECK((out.done && error_of(out.value) == ECANCELED));
    }
    outcome out;
    REQUIRE(nowait::run(write_whole(p.writer, "still")));
    REQUIRE(nowait::run(read_into(p.reader, room_in(room), out)));
    CHECK(out.value.value_or(0) == 5);
}

TEST_CASE("a wait is destroyed with its runtime, its handles in the same frame") {
    const auto before = open_descriptors();
    {
        auto rt = make_runtime();
        auto body = []() -> task<> {
            auto p = make_pipe();
            std::array<char, 8> room{};
            (void)co_await p.reader.read(room_in(room));
        };
        for (int i = 0; i < 10; ++i)
            (void)rt.spawn(body());
        auto stop = [](nowait::remote_runtime) -> task<> { co_await settle(); };
        (void)stop;
        // Run one pass only: the waits are armed, nothing ends them.
        rt.get_loop().destructor_wait = 1s;
        REQUIRE(rt.get_loop().enter() == 0);
        rt.get_loop().run_until_idle(std::chrono::steady_clock::now());
        rt.get_loop().leave();
    }
    CHECK(open_descriptors() == before);
}

} // namespace pipes
