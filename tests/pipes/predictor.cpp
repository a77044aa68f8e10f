// When attempts are left out, and that this never loses or delays anything for good.
#include "pipes_support.hpp"

#include <thread>

#include <sys/time.h>

namespace pipes {
namespace {

// Each read finds nothing, each write comes after: the lock step that switches attempts off.
task<> lock_step(std::size_t pipes, int rounds, nowait::runtime_stats& before, nowait::runtime_stats& after) {
    std::vector<nowait::pipe_pair> all;
    std::vector<std::array<char, 64>> rooms(pipes);
    std::vector<outcome> out(pipes);
    for (std::size_t i = 0; i < pipes; ++i)
        all.push_back(make_pipe());
    for (int round = -4; round < rounds; ++round) {
        if (round == 0)
            before = nowait::current_stats();
        for (std::size_t i = 0; i < pipes; ++i) {
            out[i].done = false;
            (void)nowait::spawn(read_into(all[i].reader, room_in(rooms[i]), out[i]));
        }
        co_await nowait::yield();
        for (auto& one : all)
            (void)co_await one.writer.write("x");
        co_await all_done(out);
    }
    after = nowait::current_stats();
    for (auto& one : out)
        CHECK(one.value.value_or(0) == 1);
}

} // namespace

TEST_CASE("lock step: every read is armed, and each wake costs one attempt") {
    const no_new_workers watch;
    constexpr std::size_t pipes_count = 128;
    constexpr int rounds = 32;
    nowait::runtime_stats before;
    nowait::runtime_stats after;
    REQUIRE(nowait::run(lock_step(pipes_count, rounds, before, after), {.budget = 1 << 20}));
    const std::uint64_t operations = pipes_count * rounds;
    CHECK(reads(after).armed - reads(before).armed == operations);
    CHECK(reads(after).inline_completions == reads(before).inline_completions);
    // One in 32 is a probe; the rest are left out, and nothing else is submitted for them.
    CHECK(reads(after).predictor_skips - reads(before).predictor_skips >= operations * 30 / 32);
    CHECK(reads(after).nowait_misses - reads(before).nowait_misses <= operations * 2 / 32);
    // A poll that reports once, as old kernels have it, is armed again for each wait.
    const bool once =
        on_ring() && !nowait::detail::real_system().has(nowait::detail::feature::multishot_poll);
    CHECK(after.submissions - before.submissions <= (once ? operations : 0) + operations / 8);
    CHECK(after.completions - before.completions <= operations + operations / 8);
}

namespace {

// Leaves attempts of `reader` switched off, its poll armed.
task<> teach_to_wait(const nowait::pipe_pair& p) {
    std::array<char, 64> room{};
    for (int i = 0; i < 6; ++i) {
        outcome out;
        auto waiting = nowait::spawn(read_into(p.reader, room_in(room), out));
        co_await settle(3);
        CHECK(::write(p.writer.native_handle(), "x", 1) == 1);
        (void)co_await waiting.join();
    }
}

task<> data_before_a_skipped_attempt(int looks, std::size_t room_size) {
    auto p = make_pipe();
    co_await teach_to_wait(p);
    // The data is there before the read, its event seen or not: whatever the predictor thinks, the read ends.
    CHECK(::write(p.writer.native_handle(), "already", 7) == 7);
    for (int i = 0; i < looks; ++i)
        co_await nowait::yield();
    std::string room(room_size, '\0');
    auto n = co_await p.reader.read(room_in(room));
    CHECK(n.value_or(0) == std::min<std::size_t>(room_size, 7));
    // What is left is found too, without any further event, and in pieces that fill the buffer exactly.
    std::size_t left = 7 - std::min<std::size_t>(room_size, 7);
    while (left > 0) {
        n = co_await p.reader.read(room_in(room));
        CHECK(n.value_or(0) > 0);
        if (!n || *n == 0)
            break;
        left -= *n;
    }
    p.writer = {};
    n = co_await p.reader.read(room_in(room));
    CHECK(n.value_or(9) == 0);
    n = co_await p.reader.read(room_in(room)); // the end does not wear out
    CHECK(n.value_or(9) == 0);
}

task<> spin_until(const bool& stop) {
    while (!stop)
        co_await nowait::yield();
}

task<> unproved_beside_a_busy_task() {
    auto p = make_pipe();
    co_await teach_to_wait(p);
    bool stop = false;
    auto busy = nowait::spawn(spin_until(stop));
    for (int i = 0; i < 100; ++i) {
        CHECK(::write(p.writer.native_handle(), "ab", 2) == 2);
        std::array<char, 1> room{};
        for (int part = 0; part < 2; ++part) {
            auto n = co_await p.reader.read(room_in(room)); // the loop never sleeps; this ends all the same
            CHECK(n.value_or(0) == 1);
        }
    }
    stop = true;
    (void)co_await busy.join();
}

} // namespace

TEST_CASE("an attempt that was left out while there was data is made up for") {
    for (int looks = 0; looks < 140; looks += looks < 4 ? 1 : 17)
        for (const std::size_t room : {std::size_t{1}, std::size_t{3}, std::size_t{7}, std::size_t{64}})
            REQUIRE(nowait::run(data_before_a_skipped_attempt(looks, room)));
}
TEST_CASE("a busy loop does not starve a wait that was never tried") {
    REQUIRE(nowait::run(unproved_beside_a_busy_task()));
}

namespace {

task<> idle_events_end() {
    auto p = make_pipe();
    std::array<char, 64> room{};
    outcome out;
    auto waiting = nowait::spawn(read_into(p.reader, room_in(room), out));
    co_await settle();
    (void)co_await p.writer.write("x");
    (void)co_await waiting.join();
    co_await settle();
    // Nobody waits from now on: data is there whenever it is asked for. The poll is dropped, and events cease.
    for (int i = 0; i < 10; ++i) {
        (void)co_await p.writer.write("x");
        (void)co_await p.reader.read(room_in(room));
        co_await settle(); // events are looked at
    }
    const auto before = nowait::current_stats();
    for (int i = 0; i < 20; ++i) {
        (void)co_await p.writer.write("x");
        (void)co_await p.reader.read(room_in(room));
        co_await settle();
    }
    const auto after = nowait::current_stats();
    CHECK(after.completions == before.completions);
    CHECK(after.submissions == before.submissions);
    // Nothing is armed, so nothing is looked for, also where a look is a call. epoll says nothing of what was read before the look:
    // there the poll has stayed.
    CHECK(after.enters - before.enters <= (on_ring() ? 0 : after.passes - before.passes));
    // And it can wait again.
    out = {};
    auto again = nowait::spawn(read_into(p.reader, room_in(room), out));
    co_await settle();
    CHECK_FALSE(out.done);
    (void)co_await p.writer.write("again");
    (void)co_await again.join();
    CHECK(out.value.value_or(0) == 5);
}

// In every distance between the idle event that drops the poll and the next wait.
task<> dropped_and_armed_again(int looks) {
    auto p = make_pipe();
    std::array<char, 64> room{};
    outcome out;
    auto waiting = nowait::spawn(read_into(p.reader, room_in(room), out));
    co_await settle();
    for (int i = 0; i < 4; ++i) { // the third that nobody waits for drops it
        (void)co_await p.writer.write("x");
        if (i == 0)
            (void)co_await waiting.join();
        else
            (void)co_await p.reader.read(room_in(room));
        co_await settle(i == 3 ? looks : 130);
    }
    out = {};
    auto again = nowait::spawn(read_into(p.reader, room_in(room), out));
    co_await settle(looks % 5);
    (void)co_await p.writer.write("again");
    (void)co_await again.join();
    CHECK(out.value.value_or(0) == 5);
    out = {};
    auto last = nowait::spawn(read_into(p.reader, room_in(room), out));
    co_await settle(looks % 3);
    if (looks % 2 == 0) {
        p.writer = {};
        (void)co_await last.join();
        CHECK(((out.value && *out.value == 0)));
    } else {
        (void)p.reader.close();
        (void)co_await last.join();
        CHECK((error_of(out.value) == ECANCELED || error_of(out.value) == EBADF));
    }
}

} // namespace

TEST_CASE("events that nobody waits for drop the poll") {
    REQUIRE(nowait::run(idle_events_end()));
}
TEST_CASE("a poll that is being dropped is armed again for who comes") {
    for (int looks = 0; looks < 200; ++looks)
        REQUIRE(nowait::run(dropped_and_armed_again(looks)));
}

// --- several writers, several readers, from outside -------------------------------------------------------------------------------

namespace {

task<> take_all(const nowait::pipe_reader& reader, std::size_t room_size, std::size_t& total, unsigned& sum) {
    std::string room(room_size, '\0');
    for (;;) {
        auto n = co_await reader.read(room_in(room));
        if (!n || *n == 0)
            co_return;
        total += *n;
        for (std::size_t i = 0; i < *n; ++i)
            sum += static_cast<unsigned char>(room[i]);
    }
}

} // namespace

TEST_CASE("writers on other threads, readers in tasks: every byte arrives, the end comes to all") {
    constexpr int writers = 4;
    constexpr int messages = sanitized ? 500 : 4000;
    auto raw = make_raw_pipe();
    auto reader = nowait::pipe_reader::adopt(raw.read.release()).value();
    std::vector<std::thread> threads;
    unsigned expected_sum = 0;
    std::size_t expected = 0;
    for (int w = 0; w < writers; ++w) {
        for (int i = 0; i < messages; ++i) {
            const std::size_t size = 1 + static_cast<std::size_t>(i + w) % 90;
            expected += size;
            expected_sum += static_cast<unsigned>(size * static_cast<std::size_t>('a' + w));
        }
    }
    for (int w = 0; w < writers; ++w) {
        threads.emplace_back([w, fd = ::dup(raw.write.get())] {
            const std::string text(100, static_cast<char>('a' + w));
            for (int i = 0; i < messages; ++i)
                (void)!::write(fd, text.data(), 1 + static_cast<std::size_t>(i + w) % 90);
            ::close(fd);
        });
    }
    raw.write.reset();
    std::size_t total = 0;
    unsigned sum = 0;
    auto body = [](const nowait::pipe_reader& from, std::size_t& count, unsigned& check) -> task<> {
        std::vector<task<>> all;
        for (const std::size_t room : {std::size_t{1}, std::size_t{16}, std::size_t{64}, std::size_t{4096}})
            all.push_back(take_all(from, room, count, check));
        (void)co_await nowait::when_all(std::move(all));
    };
    REQUIRE(nowait::run(body(reader, total, sum)));
    for (auto& one : threads)
        one.join();
    CHECK(total == expected);
    CHECK(sum == expected_sum);
}

TEST_CASE("a reader on another thread, writers in tasks that mostly find the pipe full") {
    const std::size_t each = sanitized ? 50'000 : 400'000;
    auto raw = make_raw_pipe();
    ::fcntl(raw.write.get(), F_SETPIPE_SZ, 4096);
    auto writer = nowait::pipe_writer::adopt(raw.write.release()).value();
    std::size_t total = 0;
    std::thread reading([&total, fd = raw.read.get()] {
        std::string room(5000, '\0');
        for (std::size_t i = 0;; ++i) {
            const ssize_t n = ::read(fd, room.data(), 1 + (i * 37) % room.size());
            if (n <= 0)
                return;
            total += static_cast<std::size_t>(n);
        }
    });
    auto one = [](const nowait::pipe_writer& to, std::size_t bytes, std::size_t step) -> task<> {
        const std::string text(step, 'w');
        while (bytes > 0) {
            auto n = co_await to.write(std::string_view(text).substr(0, std::min(step, bytes)));
            if (!n)
                co_return;
            bytes -= *n;
        }
    };
    auto body = [](decltype(one) send, nowait::pipe_writer& to, std::size_t bytes) -> task<> {
        std::vector<task<>> all;
        for (const std::size_t step :
             {std::size_t{7}, std::size_t{500}, std::size_t{4096}, std::size_t{20'000}})
            all.push_back(send(to, bytes, step));
        (void)co_await nowait::when_all(std::move(all));
        to = {};
    };
    REQUIRE(nowait::run(body(one, writer, each)));
    reading.join();
    CHECK(total == 4 * each);
}

// --- everything at random ------------------------------------------------------------------------------------------------------------

namespace {

/// A small generator, the same everywhere.
class dice {
public:
    explicit dice(unsigned seed) noexcept : state_(seed * 2654435761u + 12345u) {}
    unsigned operator()(unsigned sides) noexcept {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 17;
        state_ ^= state_ << 5;
        return state_ % sides;
    }

private:
    unsigned state_;
};

task<> random_reader(const nowait::pipe_reader& reader, unsigned seed, const bool& stop, std::size_t& got,
                     int& errors) {
    dice roll(seed);
    std::string room(32, '\0');
    while (!stop) {
        const auto part = room_in(room).first(1 + roll(32));
        result<std::size_t> n;
        if (roll(3) == 0)
            n = co_await nowait::with_timeout(reader.read(part), std::chrono::microseconds(roll(4) * 20));
        else
            n = co_await reader.read(part);
        if (n)
            got += *n;
        if (n && *n == 0)
            co_return;
        if (!n && n.error() != std::errc::timed_out) {
            errors +=
                n.error() != std::errc::operation_canceled && n.error() != std::errc::bad_file_descriptor;
            co_return;
        }
        for (unsigned i = roll(3); i > 0; --i)
            co_await nowait::yield();
    }
}

task<> random_life(unsigned seed, int& errors) {
    dice roll(seed);
    auto p = make_pipe({.capacity = 4096});
    bool stop = false;
    std::size_t sent = 0;
    std::array<std::size_t, 3> got{};
    std::vector<nowait::join_handle<void>> readers;
    for (std::size_t i = 0; i < got.size(); ++i)
        readers.push_back(nowait::spawn(
            random_reader(p.reader, seed * 7 + static_cast<unsigned>(i), stop, got[i], errors)));
    const std::string text(300, 't');
    const int steps = 30 + static_cast<int>(roll(60));
    for (int i = 0; i < steps; ++i) {
        switch (roll(6)) {
        case 0:
        case 1:
        case 2: {
            auto n =
                co_await nowait::with_timeout(p.writer.write(std::string_view(text).substr(0, 1 + roll(299))),
                                              std::chrono::microseconds(roll(50)));
            if (n)
                sent += *n;
            break;
        }
        case 3:
            co_await settle(static_cast<int>(roll(130)));
            break;
        case 4: {
            auto other = std::move(p.reader); // handles move about
            p.reader = std::move(other);
            break;
        }
        default:
            co_await nowait::yield();
        }
    }
    const bool by_end = roll(2) == 0;
    const std::size_t left = p.reader.available().value_or(0);
    if (by_end) {
        p.writer = {};
    } else {
        (void)p.reader.close();
    }
    for (auto& one : readers)
        (void)co_await one.join();
    const std::size_t total = got[0] + got[1] + got[2];
    errors += by_end ? total != sent : total > sent || total + left < sent;
}

} // namespace

TEST_CASE("random reads, time-outs, moves and ends: every byte is accounted for") {
    const unsigned lives = sanitized ? 150 : 600;
    for (unsigned seed = 1; seed <= lives; ++seed) {
        int errors = 0;
        CAPTURE(seed);
        REQUIRE(nowait::run(random_life(seed, errors), {.ring_entries = seed % 3 == 0 ? 2u : 64u,
                                                        .budget = 1 + static_cast<int>(seed % 40)}));
        REQUIRE(errors == 0);
    }
}

// --- signals ----------------------------------------------------------------------------------------------------------------------------

namespace {

volatile sig_atomic_t ticks_seen = 0;

task<> pipes_under_signals(int rounds) {
    for (int i = 0; i < rounds || ticks_seen < 20; ++i) {
        auto p = nowait::make_pipe({.capacity = 8192, .packets = i % 2 == 0});
        CHECK(p.has_value());
        if (!p)
            co_return;
        std::array<char, 8> room{};
        outcome out;
        auto waiting = nowait::spawn(read_into(p->reader, room_in(room), out));
        co_await nowait::yield();
        auto sent = co_await p->writer.write("x");
        CHECK(sent.value_or(0) == 1);
        (void)co_await waiting.join();
        CHECK(out.value.value_or(0) == 1);
        auto slept = co_await nowait::sleep_for(100us);
        CHECK(slept.has_value());
        auto borrowed = nowait::pipe_reader::borrow(p->reader.native_handle());
        CHECK(borrowed.has_value());
        CHECK(p->writer.close().has_value());
    }
}

} // namespace

TEST_CASE("a profiler's signal every millisecond, without SA_RESTART, fails no call") {
    struct sigaction tick{};
    struct sigaction before{};
    tick.sa_handler = [](int) { ticks_seen = ticks_seen + 1; };
    REQUIRE(::sigaction(SIGALRM, &tick, &before) == 0);
    ticks_seen = 0;
    const itimerval every{{0, 1000}, {0, 1000}};
    REQUIRE(::setitimer(ITIMER_REAL, &every, nullptr) == 0);
    for (int i = 0; i < 20; ++i) {
        auto rt = nowait::runtime::create();
        CHECK(rt.has_value());
        if (rt)
            CHECK(rt->run(pipes_under_signals(10)).has_value());
    }
    const itimerval off{};
    ::setitimer(ITIMER_REAL, &off, nullptr);
    ::sigaction(SIGALRM, &before, nullptr);
    CHECK(ticks_seen >= 20);
}

} // namespace pipes
