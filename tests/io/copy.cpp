// copy: spliced or not, the same bytes and the same counts.
#include "io_support.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace io;
using namespace std::chrono_literals;

namespace {

/// A file without a name.
class temporary_file {
public:
    explicit temporary_file(std::string_view content = {}, int more_flags = 0) {
        char path[] = "/tmp/nowait-copy-XXXXXX";
        fd_ = ::mkostemp(path, O_CLOEXEC | more_flags);
        if (fd_ < 0)
            throw std::system_error(errno, std::generic_category(), "mkostemp");
        ::unlink(path);
        if (!content.empty() &&
            ::write(fd_, content.data(), content.size()) != static_cast<ssize_t>(content.size()))
            throw std::runtime_error("no room for a temporary file");
        ::lseek(fd_, 0, SEEK_SET);
    }
    temporary_file(const temporary_file&) = delete;
    temporary_file& operator=(const temporary_file&) = delete;
    ~temporary_file() { ::close(fd_); }
    [[nodiscard]] int fd() const noexcept { return fd_; }
    [[nodiscard]] std::string content() const {
        std::string all;
        char buffer[4096];
        off_t at = 0;
        for (ssize_t n = 0; (n = ::pread(fd_, buffer, sizeof buffer, at)) > 0; at += n)
            all.append(buffer, static_cast<std::size_t>(n));
        return all;
    }

private:
    int fd_;
};

std::uint64_t splices() {
    const auto stats = nowait::current_stats();
    const auto& counts = stats.of(nowait::operation_kind::splice);
    return counts.inline_completions + counts.armed;
}

task<progress> copy_and_close(nowait::pipe_reader from, nowait::pipe_writer to,
                              nowait::copy_options options) {
    const progress done = co_await nowait::copy(from, to, options);
    co_return done;
}

/// Sends `size` bytes through a copy between two pipes, and checks that they all arrive.
task<> pipe_to_pipe(bool borrowed, nowait::allow_splice allowed, bool expect_splices) {
    auto [source, filler] = make_pipe({.capacity = 4096});
    auto [drain, sink] = make_pipe({.capacity = 8192});
    const std::string text = pattern(300'000);
    progress wrote;
    const std::uint64_t before = splices();
    auto writing = nowait::spawn(write_and_close(std::move(filler), text, wrote));
    auto reading = nowait::spawn(read_to_end(std::move(drain), 1000));
    nowait::pipe_reader from = std::move(source);
    nowait::pipe_writer to = std::move(sink);
    nowait::pipe_reader owner_of_source;
    nowait::pipe_writer owner_of_sink;
    if (borrowed) {
        owner_of_source = std::move(from);
        owner_of_sink = std::move(to);
        from = *nowait::pipe_reader::borrow(owner_of_source.native_handle());
        to = *nowait::pipe_writer::borrow(owner_of_sink.native_handle());
    }
    std::uint64_t arrived = 0;
    nowait::copy_options options;
    options.splicing = allowed;
    options.arrived = &arrived;
    const progress done = co_await nowait::copy(from, to, options);
    CHECK(done.ok());
    CHECK(done.bytes == text.size());
    CHECK(arrived == text.size());
    CHECK((splices() != before) == expect_splices);
    to = {};
    owner_of_sink = {};
    const auto got = co_await reading.join();
    CHECK((*got == text));
    co_await writing.join();
}

} // namespace

TEST_CASE("copy between our own pipes splices, between borrowed ones only if it may") {
    run_on_new(pipe_to_pipe(false, nowait::allow_splice::no, true));
    run_on_new(pipe_to_pipe(true, nowait::allow_splice::no, false));
    run_on_new(pipe_to_pipe(true, nowait::allow_splice::yes, true));
}

TEST_CASE("copy from a file to a pipe and from a pipe to a file splices") {
    run_on_new([]() -> task<> {
        const std::string text = pattern(700'000);
        const temporary_file source(text);
        const temporary_file target;
        auto [reader, writer] = make_pipe();
        const std::uint64_t before = splices();
        auto from_file = *nowait::pipe_reader::borrow(source.fd());
        auto to_file = *nowait::pipe_writer::borrow(target.fd());
        auto first = nowait::spawn(copy_and_close(std::move(from_file), std::move(writer), {}));
        auto second = nowait::spawn(copy_and_close(std::move(reader), std::move(to_file), {}));
        const auto read = co_await first.join();
        const auto wrote = co_await second.join();
        CHECK(read->ok());
        CHECK(read->bytes == text.size());
        CHECK(wrote->ok());
        CHECK(wrote->bytes == text.size());
        CHECK((target.content() == text));
        CHECK(splices() != before);
    }());
}

TEST_CASE("a file open for appending cannot be spliced to: the buffer takes over") {
    run_on_new([]() -> task<> {
        const std::string text = pattern(100'000);
        const temporary_file target({}, O_APPEND);
        auto [reader, writer] = make_pipe();
        auto to_file = *nowait::pipe_writer::borrow(target.fd());
        progress wrote;
        auto writing = nowait::spawn(write_and_close(std::move(writer), text, wrote));
        const progress done = co_await nowait::copy(reader, to_file);
        co_await writing.join();
        CHECK(done.ok());
        CHECK(done.bytes == text.size());
        CHECK((target.content() == text));
    }());
}

TEST_CASE("from file to file, through a buffer") {
    run_on_new([]() -> task<> {
        const std::string text = pattern(200'001);
        const temporary_file source(text);
        const temporary_file target;
        auto from = *nowait::pipe_reader::borrow(source.fd());
        auto to = *nowait::pipe_writer::borrow(target.fd());
        const progress done = co_await nowait::copy(from, to);
        CHECK(done.ok());
        CHECK(done.bytes == text.size());
        CHECK((target.content() == text));
    }());
}

TEST_CASE("copy stops at its limit, and takes nothing beyond it") {
    for (const bool memory : {false, true}) {
        run_on_new([](bool through_memory) -> task<> {
            auto [source, filler] = make_pipe();
            auto [drain, sink] = make_pipe();
            (void)co_await filler.write(std::string_view("0123456789"));
            nowait::copy_options options;
            options.limit = 7;
            progress done;
            if (through_memory)
                done = co_await nowait::detail::copy_through_memory(source, sink, options);
            else
                done = co_await nowait::copy(source, sink, options);
            CHECK(done.ok());
            CHECK(done.bytes == 7);
            CHECK(source.available() == 3u);
            CHECK(drain.available() == 7u);
            options.limit = 0;
            const progress none = co_await nowait::copy(source, sink, options);
            CHECK(none.ok());
            CHECK(none.bytes == 0);
        }(memory));
    }
}

TEST_CASE("the reader of a copy goes away: broken_pipe with what had arrived") {
    for (const bool memory : {false, true}) {
        run_on_new([](bool through_memory) -> task<> {
            auto [source, filler] = make_pipe();
            auto [drain, sink] = make_pipe({.capacity = 4096});
            progress wrote;
            auto writing = nowait::spawn(write_and_close(std::move(filler), pattern(50'000), wrote));
            auto closing = nowait::spawn([](nowait::pipe_reader from) -> task<std::size_t> {
                std::string room(1000, '\0');
                const progress got = co_await nowait::read_exactly(from, room_in(room));
                co_await settle();
                const auto queued = from.available();
                co_return got.bytes + *queued;
            }(std::move(drain)));
            nowait::copy_options options;
            std::vector<std::byte> left;
            options.left_over = &left;
            progress done;
            if (through_memory)
                done = co_await nowait::detail::copy_through_memory(source, sink, options);
            else
                done = co_await nowait::copy(source, sink, options);
            const auto arrived = co_await closing.join();
            CHECK(done.error == std::errc::broken_pipe);
            CHECK(done.bytes == *arrived);
            // Nothing has vanished: it arrived, or was left over, or is still in the source.
            co_await settle();
            CHECK(source.close());
            co_await writing.join();
            const std::string all = pattern(50'000);
            const std::string_view rest(reinterpret_cast<const char*>(left.data()), left.size());
            CHECK((rest == std::string_view(all).substr(done.bytes, left.size())));
            CHECK(left.empty() == !through_memory);
        }(memory));
    }
}

TEST_CASE("a copy that times out can be taken up again without a gap") {
    for (const bool memory : {false, true}) {
        run_on_new([](bool through_memory) -> task<> {
            auto [source, filler] = make_pipe();
            auto [drain, sink] = make_pipe({.capacity = 4096});
            const std::string text = pattern(40'000);
            (void)co_await nowait::write_all(filler, std::string_view(text));
            CHECK(filler.close());
            nowait::copy_options options;
            std::vector<std::byte> left;
            options.left_over = &left;
            progress first;
            if (through_memory) {
                auto copying = nowait::detail::copy_through_memory(source, sink, options);
                first = co_await nowait::with_timeout(std::move(copying), 5ms);
            } else {
                auto copying = nowait::copy(source, sink, options);
                first = co_await nowait::with_timeout(std::move(copying), 5ms);
            }
            CHECK(first.error == std::errc::timed_out);
            CHECK(first.bytes == 4096);
            auto reading = nowait::spawn(read_to_end(std::move(drain)));
            const progress put = co_await nowait::write_all(sink, std::span<const std::byte>(left));
            const progress rest = co_await nowait::copy(source, sink);
            CHECK(rest.ok());
            CHECK(first.bytes + put.bytes + rest.bytes == text.size());
            CHECK(sink.close());
            const auto got = co_await reading.join();
            CHECK((*got == text));
        }(memory));
    }
}

TEST_CASE("packets stay packets, and bytes from packets stay bytes") {
    run_on_new([]() -> task<> {
        // From a packet pipe to a byte stream: a short read must not drop anything.
        auto [source, filler] = make_pipe({.packets = true});
        auto [drain, sink] = make_pipe();
        (void)co_await filler.write(std::string_view("hello"));
        (void)co_await filler.write(std::string_view("world"));
        CHECK(filler.close());
        const progress done = co_await nowait::copy(source, sink);
        CHECK(done.bytes == 10);
        CHECK(sink.close());
        auto reading = read_to_end(std::move(drain), 3);
        const std::string got = co_await std::move(reading);
        CHECK(got == "helloworld");
    }());
    run_on_new([]() -> task<> {
        auto [source, filler] = make_pipe({.packets = true});
        auto [drain, sink] = make_pipe({.packets = true});
        (void)co_await filler.write(std::string_view("hello"));
        (void)co_await filler.write(std::string_view("you"));
        CHECK(filler.close());
        const progress done = co_await nowait::copy(source, sink);
        CHECK(done.bytes == 8);
        std::string room(100, '\0');
        const auto first = co_await drain.read(room_in(room));
        CHECK(*first == 5);
        const auto second = co_await drain.read(room_in(room));
        CHECK(*second == 3);
    }());
}

TEST_CASE("sockets are never spliced") {
    run_on_new([]() -> task<> {
        int ends[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
        auto socket_in = *nowait::pipe_reader::adopt(ends[0]);
        auto socket_out = *nowait::pipe_writer::adopt(ends[1]);
        auto [source, filler] = make_pipe();
        auto [drain, sink] = make_pipe();
        progress wrote;
        const std::string text = pattern(500'000);
        const std::uint64_t before = splices();
        auto writing = nowait::spawn(write_and_close(std::move(filler), text, wrote));
        auto in = nowait::spawn(copy_and_close(std::move(source), std::move(socket_out), {}));
        auto out = nowait::spawn(copy_and_close(std::move(socket_in), std::move(sink), {}));
        auto reading = nowait::spawn(read_to_end(std::move(drain)));
        const auto got = co_await reading.join();
        const auto sent = co_await in.join();
        const auto received = co_await out.join();
        co_await writing.join();
        CHECK((*got == text));
        CHECK(sent->bytes == text.size());
        CHECK(received->bytes == text.size());
        CHECK(splices() == before);
    }());
}

TEST_CASE("bad arguments of copy") {
    run_on_new([]() -> task<> {
        auto [reader, writer] = make_pipe();
        (void)co_await writer.write(std::string_view("abc"));
        const progress same = co_await nowait::copy(reader, writer);
        CHECK(same.error == std::errc::invalid_argument);
        CHECK(reader.available() == 3u);
        nowait::copy_options options;
        options.buffer_size = 0;
        const progress none = co_await nowait::copy(reader, writer, options);
        CHECK(none.error == std::errc::invalid_argument);
        nowait::pipe_reader unmade;
        const progress closed = co_await nowait::copy(unmade, writer);
        CHECK(closed.error == std::errc::bad_file_descriptor);
    }());
}

TEST_CASE("copy between streams of any kind") {
    run_on_new([]() -> task<> {
        scripted_stream source{.data = pattern(5000), .piece = 13};
        scripted_stream target{.piece = 5, .last = std::make_error_code(std::errc::no_space_on_device)};
        nowait::copy_options options;
        options.buffer_size = 100;
        options.limit = 3000;
        const progress done = co_await nowait::copy(source, target, options);
        CHECK(done.ok());
        CHECK(done.bytes == 3000);
        CHECK((target.written == pattern(5000).substr(0, 3000)));
        target.room = 7;
        std::vector<std::byte> left;
        options.left_over = &left;
        const progress cut = co_await nowait::copy(source, target, options);
        CHECK(cut.error == std::errc::no_space_on_device);
        CHECK(cut.bytes == 7);
        CHECK(left.size() == 6);
    }());
}

TEST_CASE("a full output does not make attempts on a ready input look hopeless") {
    // A file is always ready: waiting for it would be a detour through the driver, and it cannot be polled at all.
    run_on_new([]() -> task<> {
        const temporary_file source(pattern(1 << 20));
        auto [drain, sink] = make_pipe({.capacity = 4096});
        auto from = *nowait::pipe_reader::borrow(source.fd());
        auto copying = nowait::spawn(copy_and_close(std::move(from), std::move(sink), {}));
        auto reading = nowait::spawn(read_to_end(std::move(drain)));
        const auto got = co_await reading.join();
        const auto done = co_await copying.join();
        CHECK(done->bytes == std::size_t{1} << 20);
        CHECK((*got == pattern(1 << 20)));
        const auto stats = nowait::current_stats();
        CHECK(stats.of(nowait::operation_kind::splice).predictor_skips == 0);
    }());
}

TEST_CASE("who waits behind a splice gets what the splice could not move") {
    run_on_new([]() -> task<> {
        auto [source, filler] = make_pipe();
        auto [drain, sink] = make_pipe({.capacity = 4096});
        auto splicing = nowait::spawn(
            [](const nowait::pipe_reader& from, const nowait::pipe_writer& to) -> task<std::size_t> {
                const auto moved = co_await nowait::splice(from, to, 1 << 20);
                co_return moved.value_or(0);
            }(source, sink));
        auto reading = nowait::spawn([](const nowait::pipe_reader& from) -> task<std::size_t> {
            std::string room(100, '\0');
            const auto got = co_await from.read(room_in(room));
            co_return got.value_or(0);
        }(source));
        co_await settle(); // both wait, in this order
        (void)co_await filler.write(std::string_view(pattern(8000)));
        // The splice fills the small pipe; the rest is there for the read, and no further event announces it.
        const auto got = co_await reading.join();
        CHECK(*got == 100);
        const auto moved = co_await splicing.join();
        CHECK(*moved >= 4096);
    }());
}

TEST_CASE("closing the input of a splice that waits for room at the output") {
    run_on_new([]() -> task<> {
        auto [source, filler] = make_pipe();
        auto [drain, sink] = make_pipe({.capacity = 4096});
        (void)co_await filler.write(std::string_view("abc"));
        (void)co_await nowait::write_all(sink, std::string_view(pattern(4096)));
        result<std::size_t> moved;
        auto splicing = nowait::spawn([](const nowait::pipe_reader& from, const nowait::pipe_writer& to,
                                         result<std::size_t>& out) -> task<> {
            out = co_await nowait::splice(from, to, 100);
        }(source, sink, moved));
        co_await settle();
        source = {};              // the handle and, but for the operation, everything behind it
        co_await splicing.join(); // the output is still full: the close has ended it
        REQUIRE(!moved);
        CHECK(moved.error() == std::errc::operation_canceled);
    }());
}
