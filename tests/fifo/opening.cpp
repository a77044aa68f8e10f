// A FIFO that is opened for writing: until a reader comes, or somebody says stop.
#include "fifo_support.hpp"

#include <atomic>
#include <cerrno>
#include <memory>
#include <thread>

namespace fifo_tests {
namespace {

struct opening {
    bool done = false;
    result<pipe_writer> end = nowait::fail(std::errc::operation_in_progress);
};
task<> open_into(std::string path, opening& out) {
    out.end = co_await nowait::open_writer(std::move(path));
    out.done = true;
}

nowait::worker_pool small_pool(std::size_t each) {
    nowait::worker_pool_options options;
    options.bounded_max = options.unbounded_max = each;
    auto made = nowait::worker_pool::create(options);
    REQUIRE(made);
    return std::move(*made);
}

/// Looks at the loop's world until `true_at_last()`.
template <class Condition>
task<> until(Condition& true_at_last) {
    while (!true_at_last())
        (void)co_await nowait::sleep_for(200us);
}

/// Nobody has opened the FIFO for writing since this reader opened it: its end would be known.
bool has_seen_no_writer(const std::string& path, int reader) {
    (void)path;
    pollfd look{reader, POLLIN, 0};
    return ::poll(&look, 1, 0) == 0;
}

} // namespace

TEST_CASE("an opening that nobody answers is stopped: nothing was opened, and nothing will be") {
    scratch dir;
    const std::string path = dir.fifo();
    nowait::worker_pool pool = small_pool(2);
    nowait::runtime_options options = each_driver();
    options.pool = &pool;
    const std::size_t before = open_descriptors();
    {
        nowait::runtime runs = nowait_test::make_runtime(options);
        const auto ran = runs.run([](const std::string& of) -> task<int> {
            auto what = nowait::open_writer(of);
            const auto end = co_await nowait::with_timeout(std::move(what), 5ms);
            co_return error_of(end);
        }(path));
        CHECK(ran.value() == ETIMEDOUT);
        CHECK(runs.stats().of(nowait::operation_kind::blocking).punted >= 1);
        CHECK(runs.shutdown(10s).complete());
    }
    // No thread is stuck in open(2): a reader that comes now sees nobody.
    const unique_fd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    CHECK(pool.shutdown(10s).complete());
    CHECK(has_seen_no_writer(path, reader.get()));
    CHECK(open_descriptors() <= before + 1);
}

TEST_CASE("an opening waits, and is there when a reader comes") {
    scratch dir;
    const std::string path = dir.fifo();
    nowait_test::run_on_new(
        [](const std::string& of) -> task<> {
            opening one;
            auto waiting = nowait::spawn(open_into(of, one));
            (void)co_await nowait::sleep_for(2ms);
            CHECK_FALSE(one.done);
            auto reader = nowait::open_reader(of).value();
            (void)co_await waiting.join();
            CHECK(one.end);
            if (!one.end)
                co_return;
            const int fd = one.end->native_handle();
            CHECK((::fcntl(fd, F_GETFL) & (O_ACCMODE | O_NONBLOCK)) == (O_WRONLY | O_NONBLOCK));
            CHECK(::fcntl(fd, F_GETFD) == FD_CLOEXEC);
            const auto n = co_await one.end->write("hello");
            CHECK(n.value_or(0) == 5);
            const auto text = co_await read_text(reader);
            CHECK(text == "hello");
            (void)one.end->close();
            const auto end = co_await read_text(reader);
            CHECK(end.empty());
        }(path),
        each_driver());
}

TEST_CASE("a reader that comes before is found at once, without a thread") {
    scratch dir;
    const std::string path = dir.fifo();
    nowait_test::run_on_new(
        [](const std::string& of) -> task<> {
            auto reader = nowait::open_reader(of).value();
            const auto end = co_await nowait::open_writer(of);
            CHECK(end);
            CHECK(nowait::current_stats().of(nowait::operation_kind::blocking).punted == 0);
        }(path),
        each_driver());
}

TEST_CASE("four times the maximum of openings without peers, then a file: the file is read, and every "
          "peer is answered") {
    static constexpr std::size_t maximum = 4;
    static constexpr std::size_t places = maximum / 2; // what openings may take of them
    static constexpr std::size_t count = 4 * maximum;
    scratch dir;
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < count; ++i)
        paths.push_back(dir.fifo("fifo" + std::to_string(i)));
    const std::string file = dir.name("file");
    {
        const unique_fd out(::open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        REQUIRE(::write(out.get(), "content", 7) == 7);
    }
    nowait::worker_pool pool = small_pool(maximum);
    nowait::runtime_options options = each_driver();
    options.pool = &pool;
    nowait_test::run_on_new(
        [](const std::vector<std::string>& of, const std::string& regular,
           nowait::worker_pool& workers) -> task<> {
            std::vector<opening> openings(of.size());
            std::vector<nowait::join_handle<void>> tasks;
            for (std::size_t i = 0; i < of.size(); ++i)
                tasks.push_back(nowait::spawn(open_into(of[i], openings[i])));
            auto all_wait = [&] {
                const auto s = workers.stats().unbounded;
                return s.workers == places && s.idle == 0 && s.queued == count - places;
            };
            co_await until(all_wait);
            const auto open_so_far = [&] {
                std::size_t n = 0;
                for (const opening& one : openings)
                    n += one.done;
                return n;
            };
            CHECK(open_so_far() == 0);

            // By the stream interface, and by a function on the pool: neither has to wait for a peer of a FIFO.
            auto reader = nowait::open_reader(regular).value();
            const auto text = co_await read_text(reader);
            CHECK(text == "content");
            auto read_it = [&regular]() -> int {
                const unique_fd in(::open(regular.c_str(), O_RDONLY | O_CLOEXEC));
                char room[16];
                return static_cast<int>(::read(in.get(), room, sizeof room));
            };
            const auto n = co_await nowait::blocking(read_it);
            CHECK(n.value_or(0) == 7);
            CHECK(open_so_far() == 0); // all that was done while everything waited
            CHECK(workers.stats().unbounded.workers == places);
            // Nor does work of the account that they are on.
            auto other = []() -> int { return 42; };
            const auto answer = co_await nowait::blocking(nowait::interruptible, other);
            CHECK(answer.value_or(0) == 42);
            CHECK(open_so_far() == 0);
            CHECK(workers.stats().bounded.taken >= 1); // the stream may have needed one, too

            // Peers come in the order in which it is hardest: the one that was asked for last first.
            std::vector<pipe_reader> readers;
            for (std::size_t i = of.size(); i-- > 0;) {
                readers.push_back(nowait::open_reader(of[i]).value());
                (void)co_await tasks[i].join();
                CHECK(openings[i].end.has_value());
                CHECK(open_so_far() == of.size() - i);
            }
        }(paths, file, pool),
        options);
    CHECK(pool.shutdown(10s).complete());
}

TEST_CASE("openings that find no place are counted and told once, however often they try again") {
    static constexpr std::size_t maximum = 4;
    scratch dir;
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < 5; ++i)
        paths.push_back(dir.fifo("fifo" + std::to_string(i)));
    std::atomic<int> told{0};
    nowait::worker_pool_options limits;
    limits.unbounded_max = maximum;
    limits.on_exhausted = [&told](const nowait::pool_exhaustion& what) {
        told += what.account == nowait::work_account::unbounded && what.queued >= 1 ? 1 : 100;
    };
    auto made = nowait::worker_pool::create(limits);
    REQUIRE(made);
    nowait::runtime_options options = each_driver();
    options.pool = &*made;
    nowait_test::run_on_new(
        [](const std::vector<std::string>& of, nowait::worker_pool& pool) -> task<> {
            std::vector<opening> openings(of.size());
            std::vector<nowait::join_handle<void>> tasks;
            for (std::size_t i = 0; i < of.size(); ++i)
                tasks.push_back(nowait::spawn(open_into(of[i], openings[i])));
            // Once both places are taken by openings that have begun, and others stand before them, nothing changes.
            nowait::worker_account_stats before;
            nowait::worker_account_stats after;
            auto full = [&before, &pool] {
                before = pool.stats().unbounded;
                return before.taken >= maximum / 2 && before.queued >= 1;
            };
            auto tried_again = [&before, &after, &pool] {
                after = pool.stats().unbounded;
                return after.cancelled >= before.cancelled + 6;
            };
            do { // again if one that had not begun in 10 ms has given its place to another
                co_await until(full);
                co_await until(tried_again);
            } while (after.taken != before.taken);
            CHECK(before.exhausted >= 1);
            CHECK(after.exhausted == before.exhausted);
            CHECK(after.workers == maximum / 2);
            std::vector<pipe_reader> readers;
            for (std::size_t i = 0; i < of.size(); ++i) {
                readers.push_back(nowait::open_reader(of[i]).value());
                (void)co_await tasks[i].join();
                CHECK(openings[i].end.has_value());
            }
        }(paths, *made),
        options);
    CHECK(made->shutdown(10s).complete());
    CHECK(told == static_cast<int>(made->stats().unbounded.exhausted));
}

TEST_CASE("openings are stopped wherever they are: in the queue, on a worker, by their runtime's end") {
    static constexpr std::size_t count = 12;
    scratch dir;
    const std::string path = dir.fifo();
    nowait::worker_pool pool = small_pool(2);
    nowait::runtime_options options = each_driver();
    options.pool = &pool;
    const int how = GENERATE(0, 1, 2);
    CAPTURE(how);
    const std::size_t before = open_descriptors();
    std::vector<opening> openings(count);
    {
        nowait::runtime runs = nowait_test::make_runtime(options);
        std::vector<nowait::join_handle<void>> tasks;
        nowait::inplace_stop_source stop;
        for (opening& one : openings) {
            tasks.push_back(
                runs.spawn([](std::string of, opening& out, nowait::inplace_stop_token token) -> task<> {
                    auto what = nowait::open_writer(std::move(of));
                    out.end = co_await nowait::with_stop(std::move(what), token);
                    out.done = true;
                }(path, one, stop.get_token())));
        }
        const auto ran = runs.run(
            [](nowait::worker_pool& workers, nowait::inplace_stop_source& source, int way) -> task<> {
                auto all_wait = [&] { return workers.stats().unbounded.queued == count - 1; };
                co_await until(all_wait);
                if (way == 0)
                    source.request_stop();
                else
                    nowait::current_remote().request_stop();
            }(pool, stop, how));
        CHECK(ran);
        if (how == 2)
            CHECK(runs.shutdown(0ns).complete());
    }
    for (const opening& one : openings) {
        CHECK(one.done);
        CHECK(error_of(one.end) == ECANCELED);
    }
    const unique_fd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    CHECK(pool.shutdown(10s).complete());
    CHECK(has_seen_no_writer(path, reader.get()));
    CHECK(open_descriptors() <= before + 1);
}

TEST_CASE("a runtime that is destroyed under openings leaves nothing behind") {
    scratch dir;
    const std::string path = dir.fifo();
    nowait::worker_pool pool = small_pool(2);
    nowait::runtime_options options = each_driver();
    options.pool = &pool;
    std::vector<opening> openings(6);
    {
        nowait::runtime runs = nowait_test::make_runtime(options);
        for (opening& one : openings)
            runs.spawn(open_into(path, one)).detach();
        (void)runs.shutdown(0ns); // starts them at most
        std::this_thread::yield();
    }
    const unique_fd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    CHECK(pool.shutdown(10s).complete());
    CHECK(has_seen_no_writer(path, reader.get()));
}

TEST_CASE("a stop and a reader at the same moment: opened and told, or neither") {
    scratch dir;
    const std::string path = dir.fifo();
    nowait::worker_pool pool = small_pool(2);
    nowait::runtime_options options = each_driver();
    options.pool = &pool;
    const std::size_t before = open_descriptors();
    int opened = 0;
    int stopped = 0;
    nowait_test::run_on_new(
        [](const std::string& of, int& yes, int& no) -> task<> {
            for (int i = 0; i < 100; ++i) {
                unique_fd reader;
                std::thread comes([&] {
                    for (int spin = 0; spin < i / 4; ++spin)
                        std::this_thread::yield();
                    reader = unique_fd(::open(of.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
                });
                auto what = nowait::open_writer(of);
                auto end = co_await nowait::with_timeout(std::move(what), std::chrono::microseconds(i * 3));
                comes.join();
                if (end) {
                    ++yes;
                    const auto n = co_await end->write("x");
                    CHECK(n.value_or(0) == 1);
                } else {
                    ++no;
                    CHECK(error_of(end) == ETIMEDOUT);
                    // The kernel shows a reader the writers that wait in open(2): those that gave up are none of them. (Where the reader came
                    // first there may have been one in between, whose end is then there already.)
                    char byte = 0;
                    CHECK(::read(reader.get(), &byte, 1) == 0);
                }
            }
        }(path, opened, stopped),
        options);
    CHECK(opened + stopped == 100);
    CHECK(pool.shutdown(10s).complete());
    CHECK(open_descriptors() <= before);
}

TEST_CASE("what cannot be opened says so, and waits for nothing") {
    scratch dir;
    const std::string file = dir.name("file");
    const std::string none = dir.name("none");
    const std::string sock = dir.name("socket");
    const unique_fd listening(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    sock.copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    nowait_test::run_on_new(
        [](const std::string& regular, const std::string& missing, const std::string& socket) -> task<> {
            const auto a = co_await nowait::open_writer(missing);
            CHECK(error_of(a) == ENOENT);
            open_options make;
            make.create = true;
            auto b = co_await nowait::open_writer(regular, make);
            CHECK(b);
            if (b) {
                const auto n = co_await b->write("text");
                CHECK(n.value_or(0) == 4);
            }
            make.only_fifo = true;
            const auto c = co_await nowait::open_writer(regular, make);
            CHECK(error_of(c) == EINVAL);
            const auto d = co_await nowait::open_writer(socket);
            CHECK(error_of(d) == ENXIO);
            const std::string directory = "/tmp";
            const auto e = co_await nowait::open_writer(directory);
            CHECK(error_of(e) == EISDIR);
            const std::string with_null("a\0b", 3);
            const auto f = co_await nowait::open_writer(with_null);
            CHECK(error_of(f) == EINVAL);
            CHECK(nowait::current_stats().of(nowait::operation_kind::blocking).punted == 0);
        }(file, none, sock),
        each_driver());
}

TEST_CASE("a FIFO that is removed under an opening, and one that becomes something else") {
    scratch dir;
    const std::string path = dir.fifo();
    nowait::worker_pool pool = small_pool(1);
    nowait::runtime_options options = each_driver();
    options.pool = &pool;
    nowait_test::run_on_new(
        [](const std::string& of, scratch& in, nowait::worker_pool& workers) -> task<> {
            opening first;
            opening second;
            auto a = nowait::spawn(open_into(of, first));
            auto b = nowait::spawn(open_into(of, second));
            auto one_waits = [&] { return workers.stats().unbounded.queued == 1; };
            co_await until(one_waits);
            const std::string renamed = in.name("renamed");
            CHECK(::rename(of.c_str(), renamed.c_str()) == 0);
            (void)co_await b.join(); // in the queue: it looks again, and finds nothing under that name
            CHECK(error_of(second.end) == ENOENT);
            CHECK_FALSE(first.done); // on a worker: it waits for the FIFO, whatever its name is
            auto reader = nowait::open_reader(renamed).value();
            (void)co_await a.join();
            CHECK(first.end);
        }(path, dir, pool),
        options);
}

} // namespace fifo_tests
