// A FIFO that is read: nobody yet, somebody, nobody any more.
#include "fifo_support.hpp"

namespace fifo_tests {
namespace {

unique_fd raw_writer(const std::string& path) {
    unique_fd fd(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    REQUIRE(fd.get() >= 0);
    return fd;
}

void put(const unique_fd& to, std::string_view text) {
    REQUIRE(::write(to.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

/// Waits without a writer; then one comes, says something, and goes.
task<> one_writer(const pipe_reader& reader, const std::string& path) {
    outcome first;
    auto waiting = nowait::spawn(read_into(reader, first));
    co_await settle();
    CHECK_FALSE(first.done); // not the end: nobody has been here
    {
        const unique_fd writer = raw_writer(path);
        co_await settle();
        CHECK_FALSE(first.done);
        put(writer, "x");
        (void)co_await waiting.join();
        CHECK(first.text == "x");
        put(writer, "rest");
    }
    const auto rest = co_await read_text(reader);
    CHECK(rest == "rest");
    const auto end = co_await read_text(reader);
    CHECK(end.empty());
    const auto again = co_await read_text(reader);
    CHECK(again.empty()); // an end stays one
}

} // namespace

TEST_CASE("a read before the first writer waits, and is not the end") {
    scratch dir;
    const std::string path = dir.fifo();
    auto reader = nowait::open_reader(path);
    REQUIRE(reader);
    nowait_test::run_on_new(one_writer(*reader, path), each_driver());
}

TEST_CASE("the same for a FIFO that was opened by somebody else, without a writer") {
    scratch dir;
    const std::string path = dir.fifo();
    const unique_fd given(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    auto reader = pipe_reader::borrow(given.get());
    REQUIRE(reader);
    nowait_test::run_on_new(one_writer(*reader, path), each_driver());
}

namespace {

task<> reads_to_the_end(const pipe_reader& reader, std::string_view expected) {
    const auto text = co_await read_text(reader);
    CHECK(text == expected);
    if (!expected.empty()) {
        const auto end = co_await read_text(reader);
        CHECK(end.empty());
    }
}

} // namespace

TEST_CASE("a writer that has come and gone is the end, also for whoever is given the FIFO afterwards") {
    scratch dir;
    const std::string path = dir.fifo();
    // As a shell does it for `prog < fifo`: the writer was here before the program was.
    const std::string_view text = GENERATE(as<std::string_view>{}, "", "all of it");
    const unique_fd given(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    REQUIRE(::fcntl(given.get(), F_SETFL, 0) == 0);
    {
        const unique_fd writer = raw_writer(path);
        put(writer, text);
    }
    auto reader = pipe_reader::borrow(given.get());
    REQUIRE(reader);
    nowait_test::run_on_new(reads_to_the_end(*reader, text), each_driver());
}

namespace {

task<> end_under_a_wait(const pipe_reader& reader, const std::string& path) {
    unique_fd writer = raw_writer(path);
    outcome first;
    auto waiting = nowait::spawn(read_into(reader, first));
    co_await settle();
    CHECK_FALSE(first.done);
    writer.reset(); // without a word
    (void)co_await waiting.join();
    CHECK(first.text.empty());
    // The next one is welcome.
    writer = raw_writer(path);
    outcome second;
    auto more = nowait::spawn(read_into(reader, second));
    co_await settle();
    CHECK_FALSE(second.done);
    put(writer, "second");
    (void)co_await more.join();
    CHECK(second.text == "second");
    writer.reset();
    const auto end = co_await read_text(reader);
    CHECK(end.empty());
}

} // namespace

TEST_CASE("a writer that goes ends a waiting read, and the next writer is read") {
    scratch dir;
    const std::string path = dir.fifo();
    auto reader = nowait::open_reader(path);
    REQUIRE(reader);
    nowait_test::run_on_new(end_under_a_wait(*reader, path), each_driver());
}

TEST_CASE("many short-lived writers: every byte arrives, and no end comes before the first") {
    scratch dir;
    const std::string path = dir.fifo();
    auto reader = nowait::open_reader(path);
    REQUIRE(reader);
    nowait_test::run_on_new(
        [](const pipe_reader& from, const std::string& of) -> task<> {
            std::string all;
            for (int i = 0; i < 200; ++i) {
                outcome one;
                auto waiting = nowait::spawn(read_into(from, one));
                if (i % 3 == 0)
                    co_await settle(3);
                const bool waited_first = !one.done;
                if (waited_first) {
                    const unique_fd writer = raw_writer(of);
                    put(writer, "w");
                }
                (void)co_await waiting.join();
                // After a writer has gone a read may say so once, at most.
                all += one.text;
                if (!waited_first)
                    CHECK(one.text.empty());
            }
            CHECK(all.find_first_not_of('w') == std::string::npos);
            CHECK(all.size() >= 67);
        }(*reader, path),
        each_driver());
}

TEST_CASE("an endless FIFO outlives its writers") {
    scratch dir;
    const std::string path = dir.fifo();
    open_options options;
    options.endless = true;
    auto reader = nowait::open_reader(path, options);
    REQUIRE(reader);
    nowait_test::run_on_new(
        [](const pipe_reader& from, const std::string& of) -> task<> {
            for (int i = 0; i < 5; ++i) {
                outcome one;
                auto waiting = nowait::spawn(read_into(from, one));
                co_await settle();
                CHECK_FALSE(one.done);
                {
                    const unique_fd writer = raw_writer(of);
                    put(writer, "line");
                }
                (void)co_await waiting.join();
                CHECK(one.text == "line");
            }
            std::array<char, 8> room{};
            const auto none = co_await nowait::with_timeout(from.read(room_in(room)), 1ms);
            CHECK(error_of(none) == ETIMEDOUT);
        }(*reader, path),
        each_driver());
}

TEST_CASE("readable() and several parts see the end as reads do") {
    scratch dir;
    const std::string path = dir.fifo();
    auto reader = nowait::open_reader(path);
    REQUIRE(reader);
    nowait_test::run_on_new(
        [](const pipe_reader& from, const std::string& of) -> task<> {
            const auto early = co_await nowait::with_timeout(from.readable(), 1ms);
            CHECK(error_of(early) == ETIMEDOUT);
            std::array<char, 2> a{};
            std::array<char, 8> b{};
            const std::array<iovec, 2> parts{iovec{a.data(), a.size()}, iovec{b.data(), b.size()}};
            const auto none = co_await nowait::with_timeout(from.read(std::span(parts)), 1ms);
            CHECK(error_of(none) == ETIMEDOUT);
            const auto nothing = co_await from.read(std::span<std::byte>());
            CHECK(nothing.value_or(9) == 0); // nothing was asked for
            {
                const unique_fd writer = raw_writer(of);
                put(writer, "hello");
            }
            const auto ready = co_await from.readable();
            CHECK(ready);
            const auto got = co_await from.read(std::span(parts));
            CHECK(got.value_or(0) == 5);
            CHECK(std::string_view(a.data(), 2) == "he");
            const auto at_end = co_await from.readable();
            CHECK(at_end);
            const auto end = co_await from.read(std::span(parts));
            CHECK(end.value_or(9) == 0);
        }(*reader, path),
        each_driver());
}

namespace {

task<> copies(const pipe_reader& from, const pipe_writer& to, nowait::copy_options options, bool& done,
              nowait::progress& moved) {
    moved = co_await nowait::copy(from, to, options);
    done = true;
}

} // namespace

TEST_CASE("copy, splice and tee from a FIFO wait for its first writer") {
    scratch dir;
    const std::string path = dir.fifo();
    const nowait::runtime_options on = each_driver();
    const bool through_memory = GENERATE(false, true);
    const unique_fd given(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    auto reader = through_memory ? pipe_reader::borrow(given.get()) : nowait::open_reader(path);
    REQUIRE(reader);
    nowait_test::run_on_new(
        [](const pipe_reader& from, const std::string& of) -> task<> {
            nowait::pipe_pair out = nowait::make_pipe().value();
            bool done = false;
            nowait::progress moved;
            auto copying = nowait::spawn(copies(from, out.writer, {}, done, moved));
            co_await settle();
            CHECK_FALSE(done);
            {
                const unique_fd writer = raw_writer(of);
                put(writer, "moved");
                const auto arrived = co_await read_text(out.reader);
                CHECK(arrived == "moved");
                CHECK_FALSE(done);
            }
            (void)co_await copying.join();
            CHECK(moved.bytes == 5);
            CHECK_FALSE(moved.error);
        }(*reader, path),
        on);
}

TEST_CASE("tee from a FIFO waits for its first writer, and a splice does") {
    scratch dir;
    const std::string path = dir.fifo();
    auto reader = nowait::open_reader(path);
    REQUIRE(reader);
    nowait_test::run_on_new(
        [](const pipe_reader& from, const std::string& of) -> task<> {
            nowait::pipe_pair out = nowait::make_pipe().value();
            auto t = co_await nowait::with_timeout(nowait::tee(from, out.writer, 10), 1ms);
            CHECK(error_of(t) == ETIMEDOUT);
            t = co_await nowait::with_timeout(nowait::splice(from, out.writer, 10), 1ms);
            CHECK(error_of(t) == ETIMEDOUT);
            {
                const unique_fd writer = raw_writer(of);
                put(writer, "ab");
            }
            t = co_await nowait::tee(from, out.writer, 10);
            CHECK(t.value_or(0) == 2);
            t = co_await nowait::splice(from, out.writer, 10);
            CHECK(t.value_or(0) == 2);
            t = co_await nowait::splice(from, out.writer, 10);
            CHECK(t.value_or(9) == 0);
            t = co_await nowait::tee(from, out.writer, 10);
            CHECK(t.value_or(9) == 0);
            const auto twice = co_await read_text(out.reader);
            CHECK(twice == "abab");
        }(*reader, path),
        each_driver());
}

TEST_CASE("a path that turns out to be a FIFO without a peer: opened at once, and its read times out") {
    scratch dir;
    const std::string path = dir.fifo("chosen-by-a-client");
    nowait_test::run_on_new(
        [](const std::string& of) -> task<> {
            auto reader = nowait::open_reader(of);
            CHECK(reader);
            if (!reader)
                co_return;
            std::array<char, 8> room{};
            int ticks = 0;
            auto ticking = nowait::spawn([](int& count) -> task<> {
                for (; count < 20; ++count)
                    co_await nowait::yield();
            }(ticks));
            const auto none = co_await nowait::with_timeout(reader->read(room_in(room)), 20ms);
            CHECK(error_of(none) == ETIMEDOUT);
            CHECK(ticks == 20); // the loop lives
            (void)co_await ticking.join();
        }(path),
        each_driver());
}

TEST_CASE("opening for writing: ENXIO exactly without a reader, and success with one") {
    scratch dir;
    const std::string path = dir.fifo();
    CHECK(error_of(nowait::try_open_writer(path)) == ENXIO);
    auto reader = nowait::open_reader(path);
    REQUIRE(reader);
    auto writer = nowait::try_open_writer(path);
    REQUIRE(writer);
    CHECK((::fcntl(writer->native_handle(), F_GETFL) & (O_ACCMODE | O_NONBLOCK)) == (O_WRONLY | O_NONBLOCK));
    CHECK(::fcntl(writer->native_handle(), F_GETFD) == FD_CLOEXEC);
    CHECK(::fcntl(reader->native_handle(), F_GETFD) == FD_CLOEXEC);
    nowait_test::run_on_new(
        [](pipe_reader& from, pipe_writer& to) -> task<> {
            auto n = co_await to.write("hello");
            CHECK(n.value_or(0) == 5);
            const auto text = co_await read_text(from);
            CHECK(text == "hello");
            // Not opened for reading in secret: EPIPE is seen.
            (void)from.close();
            n = co_await to.write("nobody");
            CHECK(error_of(n) == EPIPE);
        }(*reader, *writer),
        each_driver());
    CHECK(error_of(nowait::try_open_writer(path)) == ENXIO);
}

TEST_CASE("paths of every kind are opened without waiting, or refused with the right error") {
    scratch dir;
    open_options only;
    only.only_fifo = true;
    open_options make;
    make.create = true;
    const std::size_t before = open_descriptors();
    const std::string file = dir.name("file");
    CHECK(error_of(nowait::open_reader(file)) == ENOENT);
    CHECK(error_of(nowait::try_open_writer(file)) == ENOENT);
    CHECK(error_of(nowait::try_open_writer(file, make)) == 0);
    CHECK(error_of(nowait::open_reader(file)) == 0);
    CHECK(error_of(nowait::open_reader(file, only)) == EINVAL);
    {
        const unique_fd raw(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
        put(raw, "kept");
    }
    only.truncate = only.create = true;
    CHECK(error_of(nowait::try_open_writer(file, only)) == EINVAL);
    struct stat status{};
    REQUIRE(::stat(file.c_str(), &status) == 0);
    CHECK(status.st_size == 4); // refused means untouched
    CHECK(error_of(nowait::try_open_writer(dir.name("none"), only)) == ENOENT);
    CHECK(error_of(nowait::open_reader(dir.path())) == EISDIR);
    CHECK(error_of(nowait::try_open_writer(dir.path())) == EISDIR);
    CHECK(error_of(nowait::open_reader("")) == ENOENT);
    CHECK(error_of(nowait::open_reader(std::string("a\0b", 3))) == EINVAL);
    CHECK(error_of(nowait::try_open_writer(std::string("a\0b", 3))) == EINVAL);
    CHECK(error_of(nowait::make_fifo(std::string("a\0b", 3))) == EINVAL);
    CHECK(error_of(nowait::open_reader(std::string(5000, 'n'))) == ENAMETOOLONG);
    CHECK(error_of(nowait::make_fifo(file)) == EEXIST);
    CHECK(error_of(nowait::open_reader("/dev/null")) == 0);
    CHECK(error_of(nowait::try_open_writer("/dev/null")) == 0);
    const unique_fd listening(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    dir.name("socket").copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    CHECK(error_of(nowait::open_reader(address.sun_path)) == ENXIO);
    CHECK(error_of(nowait::try_open_writer(address.sun_path)) == ENXIO);
    CHECK(open_descriptors() == before + 1);
}

TEST_CASE("a regular file that was opened by path is read and written like a stream") {
    scratch dir;
    const std::string path = dir.name("file");
    nowait_test::run_on_new(
        [](const std::string& of) -> task<> {
            open_options make;
            make.create = true;
            {
                auto out = nowait::try_open_writer(of, make).value();
                auto n = co_await out.write("one ");
                CHECK(n.value_or(0) == 4);
            }
            make.append = true;
            {
                auto out = nowait::try_open_writer(of, make).value();
                auto n = co_await out.write("two");
                CHECK(n.value_or(0) == 3);
            }
            {
                auto in = nowait::open_reader(of).value();
                auto text = co_await read_text(in);
                CHECK(text == "one two");
                text = co_await read_text(in);
                CHECK(text.empty());
            }
            make.append = false;
            make.truncate = true;
            {
                auto out = nowait::try_open_writer(of, make).value();
                auto in = nowait::open_reader(of).value();
                auto text = co_await read_text(in);
                CHECK(text.empty());
            }
        }(path),
        each_driver());
}

} // namespace fifo_tests
