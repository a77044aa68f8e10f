// Descriptors that others share: right results on every kind of file, flags untouched, the rung visible.
#include "pipes_support.hpp"

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>

namespace pipes {
namespace {

/// A directory for FIFOs and files, gone with the test.
class scratch {
public:
    scratch() { REQUIRE(::mkdtemp(path_) != nullptr); }
    ~scratch() {
        for (const auto& name : names_)
            ::unlink(name.c_str());
        ::rmdir(path_);
    }
    const std::string& operator()(const char* name) {
        names_.push_back(std::string(path_) + "/" + name);
        return names_.back();
    }
    [[nodiscard]] const char* path() const noexcept { return path_; }

private:
    char path_[32] = "/tmp/nowait-pipes-XXXXXX";
    std::vector<std::string> names_;
};

struct terminal {
    unique_fd master;
    unique_fd slave;
};

terminal make_terminal() {
    terminal t{unique_fd(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)), unique_fd()};
    REQUIRE(t.master.get() >= 0);
    REQUIRE(::grantpt(t.master.get()) == 0);
    REQUIRE(::unlockpt(t.master.get()) == 0);
    char name[64] = {};
    REQUIRE(::ptsname_r(t.master.get(), name, sizeof name) == 0);
    t.slave = unique_fd(::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
    REQUIRE(t.slave.get() >= 0);
    termios raw{};
    REQUIRE(::tcgetattr(t.slave.get(), &raw) == 0);
    ::cfmakeraw(&raw);
    REQUIRE(::tcsetattr(t.slave.get(), TCSANOW, &raw) == 0);
    return t;
}

// One wait and one message that is there already, and the flags looked at in every state.
task<> read_twice(int fd, int peer, std::string_view& method) {
    const int before = status_flags(fd);
    auto reader = nowait::pipe_reader::borrow(fd).value();
    CHECK(reader.native_handle() == fd);
    std::array<char, 16> room{};
    outcome out;
    auto waiting = nowait::spawn(read_into(reader, room_in(room), out));
    co_await settle();
    CHECK_FALSE(out.done);
    CHECK(status_flags(fd) == before);
    CHECK(::write(peer, "first", 5) == 5);
    (void)co_await waiting.join();
    CHECK(out.value.value_or(0) == 5);
    CHECK(std::string_view(room.data(), 5) == "first");
    CHECK(::write(peer, "second", 6) == 6);
    auto n = co_await reader.read(room_in(room));
    CHECK(n.value_or(0) == 6);
    CHECK(std::string_view(room.data(), 6) == "second");
    const std::array<iovec, 2> parts{iovec{room.data(), 0}, iovec{room.data() + 8, 8}};
    CHECK(::write(peer, "third", 5) == 5);
    n = co_await reader.read(std::span(parts)); // an empty first part is not the end
    CHECK(n.value_or(0) == 5);
    CHECK(std::string_view(room.data() + 8, 5) == "third");
    auto none = co_await nowait::with_timeout(reader.read(room_in(room)), 1ms);
    CHECK(error_of(none) == ETIMEDOUT);
    CHECK(status_flags(fd) == before);
    method = reader.method();
    reader = {};
    CHECK(status_flags(fd) == before);
}

task<> write_once(int fd, int peer, std::string_view& method) {
    const int before = status_flags(fd);
    auto writer = nowait::pipe_writer::borrow(fd).value();
    auto n = co_await writer.write("hello");
    CHECK(n.value_or(0) == 5);
    const std::array<iovec, 3> parts{iovec{nullptr, 0}, iovec{const_cast<char*>(", "), 2},
                                     iovec{const_cast<char*>("world"), 5}};
    std::size_t sent = 5;
    while (sent < 7) { // a ring gives the parts one by one
        n = co_await writer.write(std::span(parts).subspan(sent == 5 ? 0 : 2));
        CHECK(n.has_value());
        if (!n)
            break;
        sent += *n;
    }
    if (sent == 7)
        (void)co_await writer.write("world");
    CHECK(status_flags(fd) == before);
    method = writer.method();
    if (peer >= 0) {
        char got[32] = {};
        for (std::size_t at = 0; at < 12;) { // a terminal hands on what it has got so far
            const ssize_t some = ::read(peer, got + at, sizeof got - at);
            REQUIRE(some > 0);
            at += static_cast<std::size_t>(some);
        }
        CHECK(std::string_view(got) == "hello, world");
    }
}

/// Fills what is behind `fd`, then writes once more: it waits, and the peer drains it.
task<> write_into_full(int fd, int peer) {
    auto writer = nowait::pipe_writer::borrow(fd).value();
    const std::string block(65536, 'f');
    std::size_t sent = 0;
    for (;;) {
        auto n = co_await nowait::with_timeout(writer.write(block), 1ms);
        if (!n)
            break;
        sent += *n;
    }
    CHECK(sent > 0);
    outcome out;
    auto waiting = nowait::spawn(write_from(writer, "the rest", out));
    co_await settle();
    CHECK_FALSE(out.done);
    std::string got(1 << 16, '\0');
    std::size_t received = 0;
    while (received < sent + 8) {
        const ssize_t n = ::read(peer, got.data(), got.size());
        REQUIRE(n > 0);
        received += static_cast<std::size_t>(n);
        co_await settle(70);
    }
    (void)co_await waiting.join();
    CHECK(out.value.value_or(0) == 8);
    CHECK(received == sent + 8);
}

} // namespace

TEST_CASE("a borrowed pipe is read and written by RWF_NOWAIT") {
    const no_new_workers watch;
    const int flags = GENERATE(0, O_NONBLOCK);
    auto p = make_raw_pipe(O_CLOEXEC | flags);
    std::string_view method;
    REQUIRE(nowait::run(read_twice(p.read.get(), p.write.get(), method)));
    CHECK(method == first_rung());
    REQUIRE(nowait::run(write_once(p.write.get(), p.read.get(), method)));
    CHECK(method == first_rung());
    REQUIRE(nowait::run(write_into_full(p.write.get(), p.read.get())));
    CHECK(status_flags(p.read.get()) == (O_RDONLY | flags));
    CHECK(status_flags(p.write.get()) == (O_WRONLY | flags));
}

TEST_CASE("a borrowed FIFO") {
    const no_new_workers watch;
    scratch dir;
    const auto name = dir("fifo");
    REQUIRE(::mkfifo(name.c_str(), 0600) == 0);
    const unique_fd both(::open(name.c_str(), O_RDWR | O_CLOEXEC));
    const unique_fd read(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
    const unique_fd write(::open(name.c_str(), O_WRONLY | O_CLOEXEC));
    std::string_view method;
    REQUIRE(nowait::run(read_twice(read.get(), write.get(), method)));
    CHECK(method != "ring");
    REQUIRE(nowait::run(write_once(write.get(), read.get(), method)));
    CHECK(method != "ring");
    REQUIRE(nowait::run(write_into_full(write.get(), read.get())));
    // Both directions on one number.
    REQUIRE(nowait::run(read_twice(both.get(), both.get(), method)));
    REQUIRE(nowait::run(write_once(both.get(), both.get(), method)));
}

TEST_CASE("a borrowed terminal, either side, both directions on one number") {
    const no_new_workers watch;
    auto t = make_terminal();
    std::string_view method;
    REQUIRE(nowait::run(read_twice(t.slave.get(), t.master.get(), method)));
    CHECK(method == "non-blocking description"); // a twin of our own
    REQUIRE(nowait::run(write_once(t.slave.get(), t.master.get(), method)));
    REQUIRE(nowait::run(read_twice(t.master.get(), t.slave.get(), method)));
    CHECK(method == "ring"); // opened again, it would be another terminal
    REQUIRE(nowait::run(write_once(t.master.get(), t.slave.get(), method)));
    CHECK((status_flags(t.slave.get()) & O_NONBLOCK) == 0);
    CHECK((status_flags(t.master.get()) & O_NONBLOCK) == 0);
}

namespace {

task<> terminal_both_ways(int fd, int peer) {
    auto reader = nowait::pipe_reader::borrow(fd).value();
    auto writer = nowait::pipe_writer::borrow(fd).value();
    std::array<char, 16> room{};
    char got[16] = {};
    for (int i = 0; i < 5; ++i) {
        CHECK(::write(peer, "ask", 3) == 3);
        auto n = co_await reader.read(room_in(room));
        CHECK(n.value_or(0) == 3);
        n = co_await writer.write("answer");
        CHECK(n.value_or(0) == 6);
        for (std::size_t at = 0; at < 6;) {
            const ssize_t some = ::read(peer, got + at, sizeof got - at);
            REQUIRE(some > 0);
            at += static_cast<std::size_t>(some);
        }
        CHECK(std::string_view(got, 6) == "answer");
    }
}

} // namespace

TEST_CASE("one terminal, read and written through one number in one runtime") {
    auto t = make_terminal();
    REQUIRE(nowait::run(terminal_both_ways(t.slave.get(), t.master.get())));
    REQUIRE(nowait::run(terminal_both_ways(t.master.get(), t.slave.get())));
    CHECK((status_flags(t.slave.get()) & O_NONBLOCK) == 0);
}

TEST_CASE("a borrowed socket by MSG_DONTWAIT") {
    const no_new_workers watch;
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const unique_fd a(ends[0]);
    const unique_fd b(ends[1]);
    std::string_view method;
    REQUIRE(nowait::run(read_twice(a.get(), b.get(), method)));
    CHECK(method == "MSG_DONTWAIT");
    REQUIRE(nowait::run(write_once(a.get(), b.get(), method)));
    REQUIRE(nowait::run(write_into_full(a.get(), b.get())));
    CHECK(status_flags(a.get()) == O_RDWR);
}

// --- what cannot be polled -----------------------------------------------------------------------------------------------------

namespace {

task<> read_file(int fd, std::string& into, std::error_code& error) {
    auto reader = nowait::pipe_reader::borrow(fd).value();
    error = co_await read_to_end(reader, into, 10'000);
    auto ready = co_await reader.readable();
    CHECK(ready.has_value());
}

task<> work_goes_on() {
    auto p = make_pipe();
    std::array<char, 8> room{};
    (void)co_await p.writer.write("on");
    auto n = co_await p.reader.read(room_in(room));
    CHECK(n.value_or(0) == 2);
}

task<> read_error(int fd, int& error) {
    auto reader = nowait::pipe_reader::borrow(fd);
    if (!reader) {
        error = reader.error().value();
    } else {
        std::array<char, 8> room{};
        auto n = co_await reader->read(room_in(room));
        error = error_of(n);
    }
    co_await work_goes_on();
}

} // namespace

TEST_CASE("a borrowed regular file is read to its end, cached or not") {
    scratch dir;
    const auto name = dir("file");
    const std::string text = pattern(1'000'000);
    {
        const unique_fd out(::open(name.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        REQUIRE(::write(out.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
        REQUIRE(::fsync(out.get()) == 0);
    }
    for (const bool cached : {true, false}) {
        const unique_fd file(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
        if (!cached)
            REQUIRE(::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED) == 0);
        const int before = status_flags(file.get());
        std::string got;
        std::error_code error;
        REQUIRE(nowait::run(read_file(file.get(), got, error)));
        CHECK_FALSE(error);
        CHECK((got == text)); // not printed
        CHECK(status_flags(file.get()) == before);
    }
}

namespace {

task<> write_file(int fd, std::string_view text, std::error_code& error) {
    auto writer = nowait::pipe_writer::borrow(fd).value();
    error = co_await write_whole(writer, text);
}

} // namespace

TEST_CASE("a borrowed regular file is written at its position") {
    scratch dir;
    const auto name = dir("file");
    const std::string text = pattern(300'000);
    const unique_fd file(::open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    REQUIRE(::write(file.get(), "before ", 7) == 7);
    std::error_code error;
    REQUIRE(nowait::run(write_file(file.get(), text, error)));
    CHECK_FALSE(error);
    std::string got(text.size() + 8, '\0');
    CHECK(::pread(file.get(), got.data(), got.size(), 0) == static_cast<ssize_t>(text.size() + 7));
    CHECK((got.substr(7, text.size()) == text));
    CHECK(::lseek(file.get(), 0, SEEK_CUR) ==
          static_cast<off_t>(text.size() + 7)); // shared with whoever gave it
}

TEST_CASE("the null and zero devices, a directory, a closed number: each its own result, and work goes on") {
    int error = -1;
    const unique_fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    const unique_fd zero(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
    const unique_fd directory(::open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    std::string got;
    std::error_code code;
    REQUIRE(nowait::run(read_file(null.get(), got, code)));
    CHECK_FALSE(code);
    CHECK(got.empty());
    std::string_view method;
    REQUIRE(nowait::run(write_once(null.get(), -1, method)));
    REQUIRE(nowait::run(read_error(zero.get(), error)));
    CHECK(error == 0);
    REQUIRE(nowait::run(read_error(directory.get(), error)));
    CHECK(error == EISDIR);
    REQUIRE(nowait::run(read_error(1 << 20, error)));
    CHECK(error == EBADF);
    REQUIRE(nowait::run(read_error(-1, error)));
    CHECK(error == EBADF);
}

// --- a capability that goes ------------------------------------------------------------------------------------------------------

namespace {

task<> capability_goes(int read_fd, int write_fd) {
    auto reader = nowait::pipe_reader::borrow(read_fd).value();
    auto writer = nowait::pipe_writer::borrow(write_fd).value();
    std::array<char, 16> room{};
    result<std::size_t> n;
    n = co_await writer.write("one");
    CHECK(n.value_or(0) == 3);
    n = co_await reader.read(room_in(room));
    CHECK(n.value_or(0) == 3);
    CHECK(reader.method() == first_rung());
    outcome out;
    auto waiting = nowait::spawn(read_into(reader, room_in(room), out));
    co_await settle();
    // Somebody who shares the pipe splices: the kernel forgets for both ends that it could do without waiting.
    auto other = make_raw_pipe();
    CHECK(::splice(read_fd, nullptr, other.write.get(), nullptr, 1, SPLICE_F_NONBLOCK) == -1);
    CHECK(::write(other.write.get(), "spliced", 7) == 7);
    CHECK(::splice(other.read.get(), nullptr, write_fd, nullptr, 7, SPLICE_F_NONBLOCK) == 7);
    (void)co_await waiting.join();
    CHECK(out.value.value_or(0) == 7);
    CHECK(std::string_view(room.data(), 7) == "spliced");
    CHECK(reader.method() == "non-blocking description");
    n = co_await writer.write("two");
    CHECK(n.value_or(0) == 3);
    CHECK(writer.method() == "non-blocking description");
    n = co_await reader.read(room_in(room));
    CHECK(n.value_or(0) == 3);
    auto none = co_await nowait::with_timeout(reader.read(room_in(room)), 1ms);
    CHECK(error_of(none) == ETIMEDOUT);
    CHECK(status_flags(read_fd) == O_RDONLY);
    CHECK(status_flags(write_fd) == O_WRONLY);
}

} // namespace

TEST_CASE("a shared pipe that somebody splices loses RWF_NOWAIT under a wait, and nothing is lost") {
    const no_new_workers watch;
    const auto before = open_descriptors();
    {
        auto p = make_raw_pipe();
        REQUIRE(nowait::run(capability_goes(p.read.get(), p.write.get())));
        p.write.reset();
        char byte = 0;
        CHECK(::read(p.read.get(), &byte, 1) == 0); // the twin is closed: the end comes
    }
    CHECK(open_descriptors() == before);
}

// --- standard streams ---------------------------------------------------------------------------------------------------------------

namespace {

void become(int fd, int number) {
    ::dup2(fd, number);
}

task<int> one_line() {
    auto in = nowait::standard_input();
    CHILD_CO_REQUIRE(in);
    std::array<char, 64> room{};
    auto n = co_await in->read(room_in(room));
    CHILD_CO_REQUIRE(n && *n == 5);
    co_return 0;
}

task<int> idle_input() {
    auto in = nowait::standard_input();
    CHILD_CO_REQUIRE(in);
    std::array<char, 64> room{};
    auto n = co_await nowait::with_timeout(in->read(room_in(room)), 30ms);
    CHILD_CO_REQUIRE(error_of(n) == ETIMEDOUT);
    co_return 0;
}

task<int> echo_for_ever() {
    auto in = nowait::standard_input();
    auto out = nowait::standard_output();
    auto err = nowait::standard_error();
    CHILD_CO_REQUIRE(in && out && err);
    std::array<char, 64> room{};
    for (;;) {
        auto n = co_await in->read(room_in(room));
        CHILD_CO_REQUIRE(n && *n > 0);
        auto sent = co_await out->write(std::string_view(room.data(), *n));
        CHILD_CO_REQUIRE(sent);
        sent = co_await err->write(std::string_view(room.data(), *n));
        CHILD_CO_REQUIRE(sent);
    }
}

task<int> megabyte_out() {
    auto out = nowait::standard_output();
    CHILD_CO_REQUIRE(out);
    const std::string text = pattern(1 << 20);
    auto error = co_await write_whole(*out, text);
    CHILD_CO_REQUIRE(!error);
    co_return 0;
}

int run_child(task<int> root) {
    auto got = nowait::run(std::move(root));
    return got ? *got : 3;
}

} // namespace

TEST_CASE("standard input is left as it was found, by a child that ends and by one that is killed") {
    // A pipe and a terminal, as `sh -c 'prog; cat'` shares them.
    auto p = make_raw_pipe();
    auto t = make_terminal();
    for (const int fd : {p.read.get(), t.slave.get()}) {
        const int peer = fd == p.read.get() ? p.write.get() : t.master.get();
        const int before = status_flags(fd);
        REQUIRE(::write(peer, "line\n", 5) == 5);
        CHECK(in_child([fd] {
                  become(fd, 0);
                  return run_child(one_line());
              }) == 0);
        CHECK(status_flags(fd) == before);
        auto done = make_raw_pipe();
        const int signal_end = done.write.get();
        std::fflush(nullptr);
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            become(fd, 0);
            become(signal_end, 1);
            become(signal_end, 2);
            ::_exit(run_child(echo_for_ever()));
        }
        REQUIRE(::write(peer, "echo", 4) == 4);
        char got[16] = {};
        std::size_t echoed = 0; // both streams have spoken: the child is in the middle of its work
        while (echoed < 8) {
            const ssize_t n = ::read(done.read.get(), got, sizeof got);
            REQUIRE(n > 0);
            echoed += static_cast<std::size_t>(n);
        }
        CHECK(status_flags(fd) == before);
        ::kill(child, SIGKILL);
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status));
        CHECK(status_flags(fd) == before);
        CHECK(status_flags(done.write.get()) == O_WRONLY);
        REQUIRE(::write(peer, "next", 4) == 4);
        CHECK(::read(fd, got, sizeof got) == 4); // a blocking read works as ever
    }
}

TEST_CASE("an idle standard input does not keep a program that has timed out") {
    auto p = make_raw_pipe();
    CHECK(in_child([&p] {
              become(p.read.get(), 0);
              return run_child(idle_input());
          }) == 0);
    auto t = make_terminal();
    CHECK(in_child([&t] {
              become(t.slave.get(), 0);
              return run_child(idle_input());
          }) == 0);
    CHECK(in_child([&t] {
              become(t.master.get(), 0); // on the ring: its read is in the kernel's hands
              return run_child(idle_input());
          }) == 0);
}

TEST_CASE("standard input that was non-blocking and empty waits for its data") {
    auto p = make_raw_pipe(O_CLOEXEC | O_NONBLOCK);
    std::fflush(nullptr);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        become(p.read.get(), 0);
        ::_exit(run_child(one_line()));
    }
    REQUIRE(::write(p.write.get(), "later", 5) == 5);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
    CHECK(status_flags(p.read.get()) == (O_RDONLY | O_NONBLOCK));
}

TEST_CASE("a megabyte to a piped standard output arrives whole") {
    auto p = make_raw_pipe();
    std::fflush(nullptr);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        become(p.write.get(), 1);
        ::_exit(run_child(megabyte_out()));
    }
    p.write.reset();
    std::string got;
    std::string block(1 << 16, '\0');
    for (;;) {
        const ssize_t n = ::read(p.read.get(), block.data(), block.size());
        if (n <= 0)
            break;
        got.append(block, 0, static_cast<std::size_t>(n));
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
    CHECK((got == pattern(1 << 20)));
}

TEST_CASE("closed and misdirected standard streams are error values") {
    CHECK(in_child([] {
              auto p = make_raw_pipe(0);
              ::close(0);
              CHILD_REQUIRE(error_of(nowait::standard_input()) == EBADF);
              CHILD_REQUIRE(::dup2(p.write.get(), 0) == 0);
              CHILD_REQUIRE(error_of(nowait::standard_input()) == EBADF);
              CHILD_REQUIRE(::dup2(p.read.get(), 1) == 1);
              CHILD_REQUIRE(error_of(nowait::standard_output()) == EBADF);
              return 0;
          }) == 0);
}

namespace {

task<> asked_for_twice() {
    auto a = nowait::standard_input();
    auto b = nowait::standard_input();
    if (!a || !b)
        co_return; // this process has none
    (void)co_await nowait::with_timeout(a->readable(), 0ms);
    (void)co_await nowait::with_timeout(b->readable(), 0ms);
    CHECK(a->block()->resolved() == b->block()->resolved());
    auto c = nowait::standard_input();
    CHECK(c->block() == a->block()->resolved());
}

} // namespace

TEST_CASE("standard input asked for twice is one object underneath") {
    REQUIRE(nowait::run(asked_for_twice()));
}

} // namespace pipes
