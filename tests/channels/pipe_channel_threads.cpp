// Several runtimes and plain threads on one shared channel. What must hold is counted at the end: every record once, whole,
// in its writer's order; nobody left waiting. Run under the thread sanitizer, too.
#include "pipe_channel_support.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <thread>

namespace nowait_test::channels {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr int scale = 1;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr int scale = 1;
#else
constexpr int scale = 4;
#endif
#else
constexpr int scale = 4;
#endif

struct record {
    std::uint32_t writer;
    std::uint32_t number;
    std::uint64_t check;
    [[nodiscard]] bool good() const noexcept {
        return check == (std::uint64_t{writer} << 32 | number) * 11400714819323198485u;
    }
};
record make_record(std::uint32_t writer, std::uint32_t number) noexcept {
    return {writer, number, (std::uint64_t{writer} << 32 | number) * 11400714819323198485u};
}

/// What was read, by whom does not matter: counts per writer, and the order within each reader.
struct tally {
    std::map<std::uint32_t, std::uint64_t> count;
    std::map<std::uint32_t, std::int64_t> last;
    bool good = true;
    void add(const record& r) {
        good = good && r.good();
        auto [at, fresh] = last.try_emplace(r.writer, -1);
        good = good && std::int64_t{r.number} > at->second;
        at->second = r.number;
        ++count[r.writer];
        (void)fresh;
    }
};

task<> write_records(const nowait::pipe_channel_writer& writer, std::uint32_t id, std::uint32_t records) {
    for (std::uint32_t i = 0; i < records; ++i) {
        const record r = make_record(id, i);
        const std::span<const std::byte> data = std::as_bytes(std::span(&r, 1));
        auto n = co_await writer.write(data);
        if (!n || *n != sizeof r)
            co_return;
    }
}
task<> read_records(const nowait::pipe_channel_reader& reader, tally& into, std::size_t at_once) {
    std::vector<record> buffer(at_once);
    for (;;) {
        const std::span<std::byte> space = std::as_writable_bytes(std::span(buffer));
        auto n = co_await reader.read(space);
        if (!n || *n == 0)
            co_return;
        into.good = into.good && *n % sizeof(record) == 0;
        for (std::size_t i = 0; i < *n / sizeof(record); ++i)
            into.add(buffer[i]);
    }
}

template <class Body>
std::thread on_a_runtime(Body body) {
    return std::thread([body = std::move(body)] {
        auto made = nowait::runtime::create();
        if (!made)
            std::terminate();
        body(*made);
    });
}

void hammer(std::size_t capacity, std::size_t at_once, std::uint32_t records) {
    auto channel = make<nowait::pipe_channel>({.capacity = capacity});
    std::array<tally, 4> tallies;
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < 2; ++t) {
        auto writer = channel.writer.duplicate();
        REQUIRE(writer);
        threads.push_back(on_a_runtime([w = std::make_shared<nowait::pipe_channel_writer>(std::move(*writer)),
                                        t, records](nowait::runtime& runtime) {
            auto a = runtime.spawn(write_records(*w, t * 2, records));
            (void)runtime.run(write_records(*w, t * 2 + 1, records));
            *w = {}; // on this thread, while others wait
        }));
    }
    channel.writer = {};
    for (std::size_t t = 0; t < 2; ++t)
        threads.push_back(on_a_runtime([&channel, &tallies, t, at_once](nowait::runtime& runtime) {
            auto a = runtime.spawn(read_records(channel.reader, tallies[t * 2], at_once));
            (void)runtime.run(read_records(channel.reader, tallies[t * 2 + 1], at_once));
        }));
    for (std::thread& t : threads)
        t.join();
    std::map<std::uint32_t, std::uint64_t> total;
    for (const tally& t : tallies) {
        CHECK(t.good);
        for (auto [writer, n] : t.count)
            total[writer] += n;
    }
    for (std::uint32_t writer = 0; writer < 4; ++writer)
        CHECK(total[writer] == records);
}

} // namespace

TEST_CASE("two runtimes write and two read: every record once, whole and in order", "[pipe_channel]") {
    hammer(default_capacity, 16, 5000 * scale);
}
TEST_CASE("the same through one page, where everybody waits all the time", "[pipe_channel]") {
    hammer(page, 1, 2500 * scale);
    hammer(page, 300, 2500 * scale);
}

TEST_CASE("plain threads take part through try_read and try_write", "[pipe_channel]") {
    auto channel = make<nowait::pipe_channel>({.capacity = page});
    const auto records = static_cast<std::uint32_t>(5000 * scale);
    tally plain, awaited;
    std::thread reader([&] {
        std::array<record, 8> buffer;
        for (;;) {
            auto n = channel.reader.try_read(std::as_writable_bytes(std::span(buffer)));
            if (n && *n == 0)
                return;
            if (!n) {
                if (n.error() != std::errc::resource_unavailable_try_again)
                    std::terminate();
                std::this_thread::yield();
                continue;
            }
            for (std::size_t i = 0; i < *n / sizeof(record); ++i)
                plain.add(buffer[i]);
        }
    });
    auto second = channel.writer.duplicate();
    REQUIRE(second);
    std::thread writer([&] {
        for (std::uint32_t i = 0; i < records;) {
            const record r = make_record(1, i);
            auto n = second->try_write(std::as_bytes(std::span(&r, 1)));
            if (n)
                ++i;
            else
                std::this_thread::yield();
        }
        *second = {};
    });
    auto body = [](nowait::pipe_channel& c, std::uint32_t n, tally& into) -> task<> {
        auto reads = nowait::spawn(read_records(c.reader, into, 8));
        co_await write_records(c.writer, 2, n);
        (void)c.writer.close();
        auto joined = co_await reads.join();
        CHECK(joined);
    };
    run_on_new(body(channel, records, awaited));
    reader.join();
    writer.join();
    CHECK((plain.good && awaited.good));
    CHECK(plain.count[1] + awaited.count[1] == records);
    CHECK(plain.count[2] + awaited.count[2] == records);
}

TEST_CASE("resizing while others read and write loses nothing", "[pipe_channel]") {
    auto channel = make<nowait::pipe_channel>({.capacity = page});
    const auto records = static_cast<std::uint32_t>(10'000 * scale);
    tally got;
    std::thread writes = on_a_runtime([&](nowait::runtime& runtime) {
        (void)runtime.run(write_records(channel.writer, 0, records));
        channel.writer = {};
    });
    std::thread reads = on_a_runtime(
        [&](nowait::runtime& runtime) { (void)runtime.run(read_records(channel.reader, got, 5)); });
    auto third = channel.reader.duplicate();
    REQUIRE(third);
    std::size_t capacity = page;
    bool only_busy = true;
    while (third->available().value_or(0) != 0 || channel.writer.is_open()) {
        capacity = capacity >= 32 * page ? page : capacity * 2;
        auto resized = third->set_capacity(capacity);
        only_busy = only_busy && (resized || error_of(resized) == EBUSY);
        std::this_thread::yield();
    }
    writes.join();
    reads.join();
    CHECK(only_busy);
    CHECK(got.good);
    CHECK(got.count[0] == records);
}

TEST_CASE("stops that race with the data: a read delivers or has taken nothing", "[pipe_channel]") {
    auto channel = make<nowait::pipe_channel>({.capacity = page});
    const auto records = static_cast<std::uint32_t>(10'000 * scale);
    std::thread writes = on_a_runtime([&](nowait::runtime& runtime) {
        (void)runtime.run(write_records(channel.writer, 0, records));
        channel.writer = {};
    });
    auto impatient = [](const nowait::pipe_channel_reader& reader, tally& into,
                        std::uint64_t& stopped) -> task<> {
        record r;
        const std::span<std::byte> space = std::as_writable_bytes(std::span(&r, 1));
        for (;;) {
            nowait::inplace_stop_source stop;
            auto stopper = [](nowait::inplace_stop_source& source) -> task<> {
                source.request_stop();
                co_return;
            };
            auto stops = nowait::spawn(stopper(stop)); // runs as soon as the read waits
            auto n = co_await nowait::with_stop(reader.read(space), stop.get_token());
            auto joined = co_await stops.join();
            if (!joined)
                co_return;
            if (n && *n == 0)
                co_return;
            if (n)
                into.add(r);
            else
                ++stopped;
        }
    };
    std::array<tally, 2> got;
    std::array<std::uint64_t, 2> stopped{};
    auto runtime = make_runtime();
    auto other = runtime.spawn(impatient(channel.reader, got[0], stopped[0]));
    REQUIRE(runtime.run(impatient(channel.reader, got[1], stopped[1])));
    writes.join();
    CHECK((got[0].good && got[1].good));
    CHECK(got[0].count[0] + got[1].count[0] == records);
    CHECK(stopped[0] + stopped[1] != 0);
}

TEST_CASE("ends that close while others wait through them, on several threads", "[pipe_channel]") {
    for (int round = 0; round < 100 * scale; ++round) {
        auto channel = make<nowait::pipe_channel>({.capacity = page});
        fill(channel);
        std::atomic<int> begun{0};
        std::array<outcome, 4> outs;
        auto reader = channel.reader.duplicate();
        auto writer = channel.writer.duplicate();
        REQUIRE((reader && writer));
        auto waiter = [&](nowait::runtime& runtime, outcome& a, outcome& b) {
            auto one = runtime.spawn(write_once(channel.writer, "x", a));
            auto two = runtime.spawn(write_once(*writer, "y", b));
            ++begun;
            (void)runtime.run();
        };
        std::thread first = on_a_runtime([&](nowait::runtime& r) { waiter(r, outs[0], outs[1]); });
        std::thread second = on_a_runtime([&](nowait::runtime& r) { waiter(r, outs[2], outs[3]); });
        while (begun != 2)
            std::this_thread::yield();
        (void)channel.writer.close();
        (void)channel.reader.close();
        (void)reader->close(); // the last reader: nobody may be left waiting
        first.join();
        second.join();
        for (const outcome& out : outs) {
            REQUIRE(out.done);
            REQUIRE((out.error == ECANCELED || out.error == EBADF || out.error == EPIPE));
        }
    }
}

TEST_CASE("splices on two runtimes pass every record on", "[pipe_channel]") {
    auto source = make<nowait::pipe_channel>({.capacity = page});
    auto middle = make<nowait::pipe_channel>({.capacity = 2 * page});
    const auto records = static_cast<std::uint32_t>(5000 * scale);
    auto pass_on = [](const nowait::pipe_channel_reader& from,
                      const nowait::pipe_channel_writer& to) -> task<> {
        for (;;) {
            auto n = co_await nowait::splice(from, to, 64 * sizeof(record));
            if (!n || *n == 0)
                co_return;
        }
    };
    tally got;
    std::thread writes = on_a_runtime([&](nowait::runtime& runtime) {
        (void)runtime.run(write_records(source.writer, 0, records));
        source.writer = {};
    });
    std::atomic<int> left{2};
    std::vector<std::thread> splices;
    for (int i = 0; i < 2; ++i)
        splices.push_back(on_a_runtime([&](nowait::runtime& runtime) {
            auto a = runtime.spawn(pass_on(source.reader, middle.writer));
            (void)runtime.run(pass_on(source.reader, middle.writer));
            if (--left == 0)
                middle.writer = {};
        }));
    std::thread reads = on_a_runtime(
        [&](nowait::runtime& runtime) { (void)runtime.run(read_records(middle.reader, got, 7)); });
    writes.join();
    for (std::thread& t : splices)
        t.join();
    reads.join();
    CHECK(got.good);
    CHECK(got.count[0] == records);
}

// --- the token program -------------------------------------------------------------------------------------------------------

namespace {

/// Reads tokens, ignores negative ones, and passes the others on, one larger; on odd ones with a second that nobody wants.
template <class Channel>
task<> pass_tokens(Channel& channel, int limit, std::uint64_t& reads) {
    for (;;) {
        int token = 0;
        const std::span<std::byte> space = std::as_writable_bytes(std::span(&token, 1));
        auto n = co_await channel.reader.read(space);
        if (!n || *n != sizeof token)
            co_return;
        ++reads;
        if (token < 0)
            continue;
        if (token >= limit) {
            (void)channel.writer.close(); // everybody else ends with the stream
            co_return;
        }
        const int both[2] = {token + 1, -1};
        const auto data = std::as_bytes(std::span(both, (token + 1) % 2 != 0 ? 2 : 1));
        auto written = co_await channel.writer.write(data);
        if (!written)
            co_return;
    }
}

} // namespace

TEMPLATE_TEST_CASE("the token program: one wake for each token that is read, and fair shares",
                   "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        const int first[2] = {0, -1};
        REQUIRE(channel.writer.try_write(std::as_bytes(std::span(first))));
        std::vector<std::uint64_t> reads(64);
        std::vector<nowait::join_handle<void>> jobs;
        const auto before = nowait::current_stats().of(nowait::operation_kind::channel).armed;
        for (std::uint64_t& mine : reads)
            jobs.push_back(nowait::spawn(pass_tokens(channel, 60'000, mine)));
        for (auto& job : jobs) {
            auto joined = co_await job.join();
            REQUIRE(joined);
        }
        const auto waits = nowait::current_stats().of(nowait::operation_kind::channel).armed - before;
        std::uint64_t total = 0, least = reads[0], most = reads[0];
        for (std::uint64_t n : reads) {
            total += n;
            least = std::min(least, n);
            most = std::max(most, n);
        }
        CHECK(total >= 90'000u);
        CHECK(waits * 100 <= total * 102);
        CHECK(least * 10 >= most * 9);
    };
    run_on_new(body());
}

TEST_CASE("the token program on two runtimes ends", "[pipe_channel]") {
    auto channel = make<nowait::pipe_channel>();
    const int first[2] = {0, -1};
    REQUIRE(channel.writer.try_write(std::as_bytes(std::span(first))));
    std::array<std::uint64_t, 16> reads{};
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 2; ++t)
        threads.push_back(on_a_runtime([&, t](nowait::runtime& runtime) {
            std::vector<nowait::join_handle<void>> jobs;
            for (std::size_t i = 0; i < 8; ++i)
                jobs.push_back(runtime.spawn(pass_tokens(channel, 5000 * scale, reads[t * 8 + i])));
            (void)runtime.run();
        }));
    for (std::thread& t : threads)
        t.join();
    std::uint64_t total = 0;
    for (std::uint64_t n : reads)
        total += n;
    CHECK(total >= static_cast<std::uint64_t>(5000 * scale));
}

} // namespace nowait_test::channels
