// Capacities, quotas, limits and bad arguments: error values, nothing lost, the runtime usable.
#include "pipes_support.hpp"

#include <grp.h>
#include <sys/resource.h>

namespace pipes {
namespace {

/// A user without processes and without pipes. False where that is not allowed.
bool become_nobody() {
    return ::setgroups(0, nullptr) == 0 && ::setresgid(64321, 64321, 64321) == 0 &&
           ::setresuid(64321, 64321, 64321) == 0;
}
constexpr int not_allowed = 77;

void check_child(int status) {
    if (status == not_allowed)
        WARN("not allowed to change the user here");
    else
        CHECK(status == 0);
}

task<int> write_with_a_later_reader(nowait::pipe_pair& p) {
    const std::string text = pattern(20'000);
    auto writing = nowait::spawn(write_whole(p.writer, text));
    co_await settle();
    CHILD_CO_REQUIRE(!writing.done()); // it waits, nothing blocks
    std::string got;
    std::string room(4096, '\0');
    while (got.size() < text.size()) {
        auto n = co_await p.reader.read(room_in(room));
        CHILD_CO_REQUIRE(n && *n > 0);
        got.append(room, 0, *n);
    }
    auto ended = co_await writing.join();
    CHILD_CO_REQUIRE(ended && !*ended);
    CHILD_CO_REQUIRE(got == text);
    co_return 0;
}

int run_out_of_pages() {
    if (!become_nobody())
        return not_allowed;
    rlimit files{};
    CHILD_REQUIRE(::getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = files.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &files);
    std::vector<nowait::pipe_pair> all;
    for (;;) {
        auto made = nowait::make_pipe();
        if (!made) { // out of numbers, or a hard limit, before the soft one
            std::fprintf(stderr, "after %zu pipes: %s\n", all.size(), made.error().message().c_str());
            return not_allowed;
        }
        const auto capacity = made->reader.capacity();
        CHILD_REQUIRE(capacity.has_value());
        all.push_back(std::move(*made));
        if (*capacity < 65536)
            break;
        if (all.size() > 20'000)
            return not_allowed; // no soft limit here
    }
    auto& small = all.back();
    CHILD_REQUIRE(small.reader.capacity().value() <= 8192);
    CHILD_REQUIRE(small.writer.capacity().value() == small.reader.capacity().value());
    auto wished = nowait::make_pipe({.capacity = 1 << 20}); // a wish that cannot be granted is no failure
    CHILD_REQUIRE(wished.has_value());
    CHILD_REQUIRE(wished->reader.capacity().value() <= 8192);
    CHILD_REQUIRE(error_of(wished->reader.set_capacity(1 << 17)) == EPERM);
    auto got = nowait::run(write_with_a_later_reader(small));
    CHILD_REQUIRE(got);
    return *got;
}

} // namespace

TEST_CASE("over the user's page quota pipes are small, real and usable") {
    check_child(in_child(run_out_of_pages));
}

namespace {

task<> tops_up_the_last_page() {
    auto p = make_pipe({.capacity = 4096});
    result<std::size_t> n;
    n = co_await p.writer.write("1");
    CHECK(n.value_or(0) == 1);
    pollfd one{p.writer.native_handle(), POLLOUT, 0};
    CHECK(::poll(&one, 1, 0) == 0); // poll sees no room
    const auto before = nowait::current_stats();
    n = co_await p.writer.write("0123456789");
    CHECK(n.value_or(0) == 10); // a write does
    CHECK(writes(nowait::current_stats()).armed == writes(before).armed);
}

} // namespace

TEST_CASE("a write tops up a page that poll calls full") {
    REQUIRE(nowait::run(tops_up_the_last_page()));
}

namespace {

task<> capacities() {
    auto p = make_pipe({.capacity = 100'000});
    CHECK(p.reader.capacity().value() == 131'072);
    CHECK(p.writer.set_capacity(5000).value() == 8192);
    CHECK(p.reader.capacity().value() == 8192);
    CHECK(error_of(p.reader.set_capacity(0)) == EINVAL);
    CHECK(error_of(p.reader.set_capacity((std::size_t{1} << 31) + 1)) == EINVAL);
    CHECK(error_of(p.reader.set_capacity(~std::size_t{0})) == EINVAL);
    CHECK(error_of(nowait::make_pipe({.capacity = ~std::size_t{0}})) == EINVAL);
    CHECK(p.reader.capacity().value() == 8192);

    (void)p.reader.set_capacity(65536);
    const std::string text = pattern(60'000);
    auto sent = co_await p.writer.write(text);
    CHECK(sent.value_or(0) == text.size());
    CHECK(p.reader.available().value() == text.size());
    CHECK(p.writer.available().value() == text.size());
    CHECK(error_of(p.reader.set_capacity(4096)) == EBUSY);
    CHECK(p.reader.capacity().value() == 65536);
    std::string got(text.size(), '\0');
    auto n = co_await p.reader.read(room_in(got));
    CHECK(n.value_or(0) == text.size());
    CHECK((got == text));
    CHECK(p.reader.available().value() == 0);
    CHECK(p.reader.set_capacity(4096).value() == 4096);
}

int over_the_limit() {
    if (!become_nobody())
        return not_allowed;
    auto p = make_pipe();
    const auto before = p.reader.capacity().value();
    CHILD_REQUIRE(error_of(p.reader.set_capacity(std::size_t{1} << 30)) == EPERM);
    CHILD_REQUIRE(p.reader.capacity().value() == before);
    auto wished = nowait::make_pipe({.capacity = std::size_t{1} << 30});
    CHILD_REQUIRE(wished.has_value());
    return 0;
}

task<> grows_under_a_wait() {
    auto p = make_pipe({.capacity = 4096});
    (void)co_await p.writer.write(std::string(4096, 'f'));
    outcome out;
    auto waiting = nowait::spawn(write_from(p.writer, "more", out));
    co_await settle();
    CHECK_FALSE(out.done);
    CHECK(p.writer.set_capacity(8192).value() == 8192);
    (void)co_await waiting.join(); // there is room now, though nobody has read
    CHECK(out.value.value_or(0) == 4);
}

} // namespace

TEST_CASE("capacity: rounded, real, refused where it must be, the pipe untouched") {
    REQUIRE(nowait::run(capacities()));
    check_child(in_child(over_the_limit));
}
TEST_CASE("a pipe that grows lets a waiting writer go on") {
    REQUIRE(nowait::run(grows_under_a_wait()));
}

// --- packets, parts ------------------------------------------------------------------------------------------------------------

namespace {

task<> packets() {
    auto p = make_pipe({.packets = true});
    std::array<char, 16> room{};
    outcome out;
    for (const char* text : {"one", "second", "3"})
        (void)co_await p.writer.write(text);
    auto n = co_await p.reader.read(room_in(room));
    CHECK(n.value_or(0) == 3); // a short read, and more is there
    n = co_await p.reader.read(room_in(room).first(2));
    CHECK(n.value_or(0) == 2); // the rest of that packet is dropped
    n = co_await p.reader.read(room_in(room));
    CHECK(n.value_or(0) == 1);
    // Two that wait, two packets at once: a short read of a packet does not mean that there is no other.
    outcome first;
    outcome second;
    std::array<char, 16> other{};
    (void)nowait::spawn(read_into(p.reader, room_in(room), first));
    co_await settle(3);
    (void)nowait::spawn(read_into(p.reader, room_in(other), second));
    co_await settle();
    CHECK(::write(p.writer.native_handle(), "aaa", 3) == 3);
    CHECK(::write(p.writer.native_handle(), "bbbb", 4) == 4);
    while (!first.done || !second.done)
        co_await nowait::yield();
    CHECK(first.value.value_or(0) == 3);
    CHECK(second.value.value_or(0) == 4);
}

task<> many_parts() {
    auto p = make_pipe({.capacity = 65536});
    std::vector<std::string> texts;
    std::vector<iovec> parts;
    std::string whole;
    for (unsigned i = 0; i < 1024; ++i) {
        texts.push_back(pattern(i % 7, i));
        whole += texts.back();
    }
    for (auto& text : texts)
        parts.push_back({text.data(), text.size()});
    auto n = co_await p.writer.write(std::span<const iovec>(parts));
    CHECK(n.value_or(0) == whole.size());
    std::string got(whole.size(), '\0');
    std::vector<iovec> rooms;
    for (std::size_t at = 0; at < got.size(); at += 10)
        rooms.push_back({got.data() + at, std::min<std::size_t>(10, got.size() - at)});
    n = co_await p.reader.read(std::span<const iovec>(rooms));
    CHECK(n.value_or(0) == whole.size());
    CHECK((got == whole));
    parts.push_back({texts[1].data(), 0});
    n = co_await p.writer.write(std::span<const iovec>(parts));
    CHECK(error_of(n) == EINVAL);
    n = co_await p.reader.read(std::span<const iovec>(parts));
    CHECK(error_of(n) == EINVAL);
    n = co_await p.writer.write(std::span<const iovec>());
    CHECK(n.value_or(9) == 0);
    n = co_await p.reader.read(std::span<const iovec>());
    CHECK(n.value_or(9) == 0);
    n = co_await p.reader.read(std::span<const iovec>(static_cast<const iovec*>(nullptr), 3));
    CHECK(error_of(n) == EFAULT);
    const std::array<iovec, 2> empty{iovec{nullptr, 0}, iovec{nullptr, 0}};
    n = co_await p.reader.read(std::span(empty));
    CHECK(n.value_or(9) == 0);
    const std::array<iovec, 2> vast{iovec{got.data(), ~std::size_t{0} / 2 + 1},
                                    iovec{got.data(), ~std::size_t{0} / 2 + 1}};
    n = co_await p.writer.write(std::span(vast)); // their sum is zero, to who does not look
    CHECK(error_of(n) == EINVAL);

    // A wait with parts: what came goes over their borders.
    std::array<char, 3> a{};
    std::array<char, 8> b{};
    const std::array<iovec, 2> two{iovec{a.data(), a.size()}, iovec{b.data(), b.size()}};
    auto body = [](const nowait::pipe_reader& reader, std::span<const iovec> into, outcome& out) -> task<> {
        out.value = co_await reader.read(into);
        out.done = true;
    };
    outcome out;
    auto waiting = nowait::spawn(body(p.reader, two, out));
    co_await settle();
    (void)co_await p.writer.write("abcdef");
    (void)co_await waiting.join();
    CHECK(out.value.value_or(0) == 6);
    CHECK(std::string_view(a.data(), 3) == "abc");
    CHECK(std::string_view(b.data(), 3) == "def");
}

} // namespace

TEST_CASE("packets keep their borders, also for those who wait") {
    REQUIRE(nowait::run(packets()));
}
TEST_CASE("vectored reads and writes, to the last part and no further") {
    REQUIRE(nowait::run(many_parts()));
}

// --- bad arguments ----------------------------------------------------------------------------------------------------------------

namespace {

task<> bad_arguments() {
    auto p = make_pipe();
    std::array<char, 8> room{};
    result<std::size_t> n;
    n = co_await p.reader.read(std::span<std::byte>());
    CHECK(n.value_or(9) == 0);
    n = co_await p.writer.write(std::string_view());
    CHECK(n.value_or(9) == 0);
    n = co_await p.writer.write(std::span<const std::byte>(static_cast<const std::byte*>(nullptr), 5));
    CHECK(error_of(n) == EFAULT);
    CHECK(p.reader.available().value() == 0);
    (void)co_await p.writer.write("data");
    n = co_await p.reader.read(std::span<std::byte>(static_cast<std::byte*>(nullptr), 5));
    CHECK(error_of(n) == EFAULT);
    CHECK(p.reader.available().value() == 4); // nothing was taken
    n = co_await p.reader.read(room_in(room));
    CHECK(n.value_or(0) == 4);

    // A null buffer that has to wait hears it when the data comes, and the next one gets them.
    outcome bad;
    outcome good;
    (void)nowait::spawn(read_into(p.reader, std::span<std::byte>(static_cast<std::byte*>(nullptr), 5), bad));
    co_await settle(3);
    (void)nowait::spawn(read_into(p.reader, room_in(room), good));
    co_await settle();
    CHECK_FALSE(good.done);
    (void)co_await p.writer.write("next");
    while (!good.done)
        co_await nowait::yield();
    CHECK((bad.done && error_of(bad.value) == EFAULT));
    CHECK(good.value.value_or(0) == 4);

    const nowait::pipe_reader no_reader;
    const nowait::pipe_writer no_writer;
    n = co_await no_reader.read(room_in(room));
    CHECK(error_of(n) == EBADF);
    n = co_await no_writer.write("x");
    CHECK(error_of(n) == EBADF);
    auto ready = co_await no_reader.readable();
    CHECK(error_of(ready) == EBADF);
    ready = co_await no_writer.writable();
    CHECK(error_of(ready) == EBADF);
    n = co_await nowait::splice(no_reader, no_writer, 1);
    CHECK(error_of(n) == EBADF);
    CHECK(error_of(no_reader.capacity()) == EBADF);
    CHECK(error_of(no_reader.available()) == EBADF);
    nowait::pipe_reader empty;
    CHECK(error_of(empty.close()) == EBADF);
    CHECK(error_of(empty.set_capacity(4096)) == EBADF);
    CHECK(empty.method() == "closed");
    CHECK(empty.native_handle() == -1);

    CHECK(error_of(nowait::pipe_reader::adopt(-1)) == EBADF);
    CHECK(error_of(nowait::pipe_reader::adopt(p.writer.native_handle())) == EBADF);
    CHECK(error_of(nowait::pipe_writer::borrow(p.reader.native_handle())) == EBADF);
    const unique_fd file(::open("/proc/self/status", O_RDONLY | O_CLOEXEC));
    auto no_pipe = nowait::pipe_reader::borrow(file.get());
    CHECK(no_pipe.has_value());
    CHECK(error_of(no_pipe->capacity()) == EBADF);
}

task<> adopted_nonblocking() {
    auto raw = make_raw_pipe(O_CLOEXEC | O_NONBLOCK);
    auto reader = nowait::pipe_reader::adopt(raw.read.release()).value();
    std::array<char, 8> room{};
    outcome out;
    auto waiting = nowait::spawn(read_into(reader, room_in(room), out));
    const auto before = nowait::current_stats();
    co_await settle(2000);
    const auto after = nowait::current_stats();
    const auto looks = looks_by_call() ? after.passes - before.passes : 0;
    CHECK(after.enters - before.enters <= 3 + looks); // waits, does not spin
    CHECK(reads(nowait::current_stats()).nowait_misses <= 2);
    CHECK(::write(raw.write.get(), "x", 1) == 1);
    (void)co_await waiting.join();
    CHECK(out.value.value_or(0) == 1);
    CHECK(reader.method() == "non-blocking description");
    CHECK(status_flags(reader.native_handle()) == (O_RDONLY | O_NONBLOCK));
}

task<> out_of_numbers() {
    std::vector<nowait::pipe_pair> all;
    std::error_code error;
    while (!error) {
        auto made = nowait::make_pipe();
        if (made)
            all.push_back(std::move(*made));
        else
            error = made.error();
    }
    CHECK(error == std::errc::too_many_files_open);
    REQUIRE(!all.empty());
    // The runtime has what it needs; what is open works, and waits.
    std::array<char, 8> room{};
    outcome out;
    auto waiting = nowait::spawn(read_into(all.front().reader, room_in(room), out));
    co_await settle();
    (void)co_await all.front().writer.write("works");
    (void)co_await waiting.join();
    CHECK(out.value.value_or(0) == 5);
    all.pop_back();
    CHECK(nowait::make_pipe().has_value());
}

} // namespace

TEST_CASE("bad arguments are error values, nothing is taken, the pipe stays usable") {
    REQUIRE(nowait::run(bad_arguments()));
}
TEST_CASE("a descriptor that was non-blocking before waits without spinning") {
    REQUIRE(nowait::run(adopted_nonblocking()));
}
TEST_CASE("out of descriptor numbers") {
    const auto before = open_descriptors();
    rlimit files{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &files) == 0);
    rlimit few = files;
    few.rlim_cur = before + 40;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    auto ran = nowait::run(out_of_numbers());
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &files) == 0);
    CHECK(ran.has_value());
    CHECK(open_descriptors() == before);
}

// --- atomic writes ------------------------------------------------------------------------------------------------------------------

namespace {

constexpr std::array<std::size_t, 3> record_sizes{100, 1000, 4096};

/// A record: its writer, its size, and nothing but the writer's letter.
std::string record(char who, std::size_t size) {
    std::string text(size, who);
    const std::string digits = std::to_string(size);
    text.replace(1, 5, std::string(5 - digits.size(), '0') + digits);
    return text;
}

task<> send_records(const nowait::pipe_writer& writer, char who, int count, int& failures) {
    for (int i = 0; i < count; ++i) {
        const std::string text = record(who, record_sizes[static_cast<std::size_t>(i) % record_sizes.size()]);
        auto n = co_await writer.write(text);
        failures += n.value_or(0) != text.size(); // whole, or not at all
    }
}

task<> several_senders(const nowait::pipe_writer& writer, std::string_view names, int count, int& failures) {
    std::vector<task<>> all;
    for (const char who : names)
        all.push_back(send_records(writer, who, count, failures));
    (void)co_await nowait::when_all(std::move(all));
}

task<> receive_records(const nowait::pipe_reader& reader, std::size_t expected, std::size_t& right) {
    std::string text;
    (void)co_await read_to_end(reader, text, 50'000);
    std::size_t at = 0;
    std::size_t seen = 0;
    while (at + 7 <= text.size()) {
        const char who = text[at];
        const auto size = static_cast<std::size_t>(std::atoi(text.substr(at + 1, 5).c_str()));
        if (size < 100 || at + size > text.size())
            break;
        right += text.substr(at, size) == record(who, size);
        ++seen;
        at += size;
    }
    CHECK(at == text.size());
    CHECK(seen == expected);
}

} // namespace

TEST_CASE("records of up to 4096 bytes stay whole, between tasks and between processes") {
    constexpr int count = 300;
    auto p = make_pipe({.capacity = 16384});
    std::fflush(nullptr);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        p.reader = {};
        int failures = 0;
        auto ran = nowait::run(several_senders(p.writer, "abcd", count, failures));
        ::_exit(ran && failures == 0 ? 0 : 1);
    }
    int failures = 0;
    std::size_t right = 0;
    auto body = [](nowait::pipe_pair& pair, int& failed, std::size_t& correct) -> task<> {
        auto receiving = nowait::spawn(receive_records(pair.reader, 8 * count, correct));
        co_await several_senders(pair.writer, "efgh", count, failed);
        pair.writer = {};
        (void)co_await receiving.join();
    };
    REQUIRE(nowait::run(body(p, failures, right)));
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
    CHECK(failures == 0);
    CHECK(right == 8 * count);
}

namespace {

task<> sips(const nowait::pipe_reader& reader, std::string& into) {
    std::array<char, 7> room{};
    for (std::size_t i = 0;; ++i) {
        auto n = co_await reader.read(room_in(room).first(1 + i % 7));
        if (!n || *n == 0)
            co_return;
        into.append(room.data(), *n);
    }
}

task<> short_transfers(std::size_t size) {
    auto p = make_pipe({.capacity = 4096});
    const std::string text = pattern(size);
    std::string got;
    auto reading = nowait::spawn(sips(p.reader, got));
    auto error = co_await write_whole(p.writer, text);
    CHECK_FALSE(error);
    p.writer = {};
    (void)co_await reading.join();
    CHECK((got == text));
}

} // namespace

TEST_CASE("a megabyte through one page, in sips of one to seven bytes") {
    REQUIRE(nowait::run(short_transfers(sanitized ? 100'000 : 1'000'000)));
}

} // namespace pipes
