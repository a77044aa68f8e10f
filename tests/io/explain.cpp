// The sentences: each names its limit and the limit's present value.
#include "io_support.hpp"

#include <cerrno>
#include <fstream>
#include <future>

#include <sys/resource.h>

using namespace io;
using nowait::explain;
using nowait::subject;

namespace {

std::error_code code(int value) {
    return {value, std::generic_category()};
}

bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

std::string value_of(const char* path) {
    std::ifstream file(path);
    std::string value;
    std::getline(file, value);
    return value;
}

} // namespace

TEST_CASE("descriptors: the limit and its value, as they are when it matters") {
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit small = before;
    small.rlim_cur = 123;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &small) == 0);
    const std::string text = explain(code(EMFILE), subject::pipe);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    CAPTURE(text);
    CHECK(has(text, "RLIMIT_NOFILE"));
    CHECK(has(text, "123"));
    CHECK(has(text, code(EMFILE).message()));
}

TEST_CASE("files under /proc are named with their values") {
    const std::string capacity = explain(code(EPERM), subject::pipe_capacity);
    CAPTURE(capacity);
    CHECK(has(capacity, "/proc/sys/fs/pipe-max-size is " + value_of("/proc/sys/fs/pipe-max-size")));
    CHECK(has(capacity, "/proc/sys/fs/pipe-user-pages-soft"));

    const std::string system = explain(code(ENFILE), subject::pipe);
    CAPTURE(system);
    CHECK(has(system, "/proc/sys/fs/file-max is " + value_of("/proc/sys/fs/file-max")));
    CHECK(has(system, "pipe-user-pages-hard"));

    const std::string ring = explain(code(EPERM), subject::runtime);
    CAPTURE(ring);
    CHECK(has(ring, "/proc/sys/kernel/io_uring_disabled"));
    CHECK(has(ring, "seccomp"));
    CHECK(has(explain(code(ENOMEM), subject::runtime), "RLIMIT_MEMLOCK"));
    CHECK(has(explain(code(ENOSYS), subject::runtime), "io_uring"));
}

TEST_CASE("the same code means different things to different objects") {
    CHECK(has(explain(code(EPERM), subject::splice), "allow_splice"));
    CHECK(has(explain(code(EPERM), subject::use), "another runtime"));
    CHECK(has(explain(code(EBUSY), subject::pipe_capacity), "queued"));
    CHECK(has(explain(code(EPIPE), subject::pipe), "reader"));
    CHECK(has(explain(code(EAGAIN), subject::work), "RLIMIT_NPROC"));
    CHECK(has(explain(code(EDEADLK), subject::work), "worker"));
    CHECK(has(explain(code(EBUSY), subject::work), "worker_pool_options::signal"));
    CHECK(has(explain(code(EPERM), subject::work), "forked"));
    CHECK(explain(code(EPERM)) == code(EPERM).message());
}

TEST_CASE("codes that need no words, and codes of others, keep their message") {
    CHECK(explain(code(EXDEV), subject::pipe) == code(EXDEV).message());
    CHECK(explain({}, subject::pipe) == std::error_code().message());
    const std::error_code foreign = std::make_error_code(std::future_errc::broken_promise);
    CHECK(explain(foreign, subject::pipe) == foreign.message());
    const std::string text = explain(std::error_code(EPIPE, std::system_category()), subject::pipe);
    CHECK(has(text, "reader"));
    for (int value = 1; value < 134; ++value) {
        for (const auto about : {subject::general, subject::pipe, subject::pipe_capacity, subject::splice,
                                 subject::runtime, subject::work, subject::use})
            CHECK(explain(code(value), about).find('\n') == std::string::npos);
    }
}

TEST_CASE("real failures are explained") {
    run_on_new([]() -> task<> {
        auto [reader, writer] = make_pipe();
        (void)co_await nowait::write_all(writer, std::string_view(std::string(60'000, 'x')));
        const auto shrunk = reader.set_capacity(4096);
        REQUIRE(!shrunk);
        CHECK(has(explain(shrunk.error(), subject::pipe_capacity), "read them first"));
    }());
}
