// Descriptors that can neither be asked not to wait nor be opened again: the driver reads and writes them.
#include "drivers_support.hpp"

#include <nowait/detail/system.hpp>

namespace drivers_tests {
namespace {

using nowait::detail::feature;
using nowait::detail::real_system;

/// The kernel where there is no /proc, and where no file knows RWF_NOWAIT.
class narrow_system final : public nowait::detail::system {
public:
    void without(feature f) noexcept { features_ &= ~static_cast<std::uint32_t>(f); }
    std::size_t reads = 0; // by the poll driver, or by attempts

    long read(int fd, const iovec* parts, int count) noexcept override {
        ++reads;
        return real_system().read(fd, parts, count);
    }
    long write(int fd, const iovec* parts, int count) noexcept override {
        return real_system().write(fd, parts, count);
    }
    long read_nowait(int, const iovec*, int) noexcept override { return -EOPNOTSUPP; }
    long write_nowait(int, const iovec*, int) noexcept override { return -EOPNOTSUPP; }
    long receive(int fd, const iovec* parts, int count) noexcept override {
        return real_system().receive(fd, parts, count);
    }
    long send(int fd, const iovec* parts, int count) noexcept override {
        return real_system().send(fd, parts, count);
    }
    long splice(int from, int to, std::size_t size) noexcept override {
        return real_system().splice(from, to, size);
    }
    long tee(int from, int to, std::size_t size) noexcept override {
        return real_system().tee(from, to, size);
    }
    int ready(int fd, int events) noexcept override { return real_system().ready(fd, events); }
    int make_pipe(int (&ends)[2], bool packets) noexcept override {
        return real_system().make_pipe(ends, packets);
    }
    int close(int fd) noexcept override { return real_system().close(fd); }
    int inspect(int fd, nowait::detail::file_info& info) noexcept override {
        return real_system().inspect(fd, info);
    }
    int set_nonblocking(int fd) noexcept override { return real_system().set_nonblocking(fd); }
    int reopen_nonblocking(int, bool) noexcept override { return -ENOENT; }
    int duplicate(int fd) noexcept override { return real_system().duplicate(fd); }
    long pipe_size(int fd) noexcept override { return real_system().pipe_size(fd); }
    long set_pipe_size(int fd, std::size_t size) noexcept override {
        return real_system().set_pipe_size(fd, size);
    }
    long available(int fd) noexcept override { return real_system().available(fd); }
    std::chrono::steady_clock::time_point now() noexcept override { return real_system().now(); }
};

struct raw_pipe {
    explicit raw_pipe(int flags = 0) { REQUIRE(::pipe2(ends, O_CLOEXEC | flags) == 0); }
    ~raw_pipe() {
        for (int& end : ends)
            drop(end);
    }
    raw_pipe(const raw_pipe&) = delete;
    raw_pipe& operator=(const raw_pipe&) = delete;
    static void drop(int& end) {
        if (end >= 0)
            ::close(std::exchange(end, -1));
    }
    int ends[2] = {-1, -1};
};

runtime_options on(narrow_system& calls, driver_choice choice) {
    runtime_options options;
    options.system = &calls;
    options.driver = choice;
    return options;
}

} // namespace

TEST_CASE("a pipe is waited for by the driver's own reads, and nothing spins") {
    const auto choice = GENERATE(driver_choice::uring, driver_choice::poll);
    const bool old_kernel = GENERATE(false, true);
    const int flags = GENERATE(0, O_NONBLOCK);
    CAPTURE(old_kernel, flags);
    narrow_system calls;
    if (old_kernel)
        calls.without(feature::ring_nonblocking);
    raw_pipe pipe(flags);
    nowait_test::run_on_new(
        [](raw_pipe& p) -> task<> {
            auto reader = pipe_reader::borrow(p.ends[0]).value();
            for (int i = 0; i < 20; ++i) {
                const auto before = nowait::current_stats();
                outcome one;
                auto waiting = nowait::spawn(read_into(reader, one));
                (void)co_await nowait::sleep_for(100us);
                CHECK_FALSE(one.done);
                CHECK(nowait::current_stats().submissions - before.submissions < 5);
                CHECK(::write(p.ends[1], "some", 4) == 4);
                (void)co_await waiting.join();
                CHECK(one.text == "some");
            }
            outcome last;
            auto waiting = nowait::spawn(read_into(reader, last));
            co_await settle();
            raw_pipe::drop(p.ends[1]);
            (void)co_await waiting.join();
            CHECK(last.text.empty());
            CHECK_FALSE(last.text.starts_with("error"));
        }(pipe),
        on(calls, choice));
}

TEST_CASE("two readers of one non-blocking pipe, one of them a stranger: who finds nothing waits again") {
    const auto choice = GENERATE(driver_choice::uring, driver_choice::poll);
    const bool old_kernel = GENERATE(false, true);
    narrow_system calls;
    if (old_kernel)
        calls.without(feature::ring_nonblocking);
    raw_pipe pipe(O_NONBLOCK);
    nowait_test::run_on_new(
        [](raw_pipe& p) -> task<> {
            auto reader = pipe_reader::borrow(p.ends[0]).value();
            outcome one;
            auto waiting = nowait::spawn(read_into(reader, one));
            co_await settle();
            for (int i = 0; i < 50; ++i) {
                // In one step: by the time the driver hears of it, it is gone. (Or it was faster: then it has the byte.)
                char byte = 0;
                CHECK(::write(p.ends[1], "s", 1) == 1);
                const auto n = ::read(p.ends[0], &byte, 1);
                co_await nowait::yield();
                if (n != 1)
                    break;
            }
            if (!one.done)
                CHECK(::write(p.ends[1], "ours", 4) == 4);
            (void)co_await waiting.join();
            CHECK((one.text == "ours" || one.text == "s"));
        }(pipe),
        on(calls, choice));
}

TEST_CASE("a FIFO without a writer is no end for the driver's reads either") {
    const auto choice = GENERATE(driver_choice::uring, driver_choice::poll);
    narrow_system calls;
    char directory[] = "/tmp/nowait-drivers-XXXXXX";
    REQUIRE(::mkdtemp(directory) != nullptr);
    const std::string path = std::string(directory) + "/fifo";
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    const int given = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    REQUIRE(::fcntl(given, F_SETFL, 0) == 0); // blocking from here on
    nowait_test::run_on_new(
        [](int fd, const std::string& of) -> task<> {
            auto reader = pipe_reader::borrow(fd).value();
            outcome one;
            auto waiting = nowait::spawn(read_into(reader, one));
            (void)co_await nowait::sleep_for(1ms);
            CHECK_FALSE(one.done);
            const int writer = ::open(of.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
            CHECK(::write(writer, "first", 5) == 5);
            (void)co_await waiting.join();
            CHECK(one.text == "first");
            ::close(writer);
            const auto end = co_await read_text(reader);
            CHECK(end.empty());
            CHECK(reader.method() != "non-blocking description");
        }(given, path),
        on(calls, choice));
    ::close(given);
    ::unlink(path.c_str());
    ::rmdir(directory);
}

TEST_CASE("a write that nobody will read is EPIPE and no signal, also where no flag keeps the signal away") {
    static driver_choice choice = driver_choice::automatic;
    choice = GENERATE(driver_choice::uring, driver_choice::poll);
    static bool waits_first = false;
    waits_first = GENERATE(false, true);
    expect_success(in_child([] {
        std::signal(SIGPIPE, SIG_DFL);
        narrow_system calls;
        calls.without(feature::nosignal);
        raw_pipe pipe;
        auto made = runtime::create(on(calls, choice));
        CHILD_REQUIRE(made);
        const auto ran = made->run([](raw_pipe& p) -> task<int> {
            auto writer = pipe_writer::borrow(p.ends[1]).value();
            if (waits_first) {
                const std::string filler(1 << 16, 'f');
                CHILD_CO_REQUIRE(::write(p.ends[1], filler.data(), filler.size()) == 1 << 16);
                int error = 0;
                auto waiting = nowait::spawn([](const pipe_writer& to, int& code) -> task<> {
                    const auto n = co_await to.write("more");
                    code = error_of(n);
                }(writer, error));
                (void)co_await nowait::sleep_for(1ms);
                raw_pipe::drop(p.ends[0]);
                (void)co_await waiting.join();
                CHILD_CO_REQUIRE(error == EPIPE);
            }
            raw_pipe::drop(p.ends[0]);
            const auto n = co_await writer.write("nobody");
            CHILD_CO_REQUIRE(error_of(n) == EPIPE);
            co_return 0;
        }(pipe));
        CHILD_REQUIRE(ran.value_or(1) == 0);
        sigset_t pending;
        sigset_t blocked;
        CHILD_REQUIRE(::sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 0);
        CHILD_REQUIRE(::sigprocmask(SIG_BLOCK, nullptr, &blocked) == 0 &&
                      sigismember(&blocked, SIGPIPE) == 0);
        return 0;
    }));
}

} // namespace drivers_tests
