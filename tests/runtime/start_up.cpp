// Which driver runs and why, and what is said when none can.
#include "child_process.hpp"
#include "runs.hpp"
#include "sandbox.hpp"

#include <nowait/pipe.hpp>
#include <nowait/sleep.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

using nowait::driver_choice;
using nowait::runtime;
using nowait::runtime_options;
using nowait::task;
using nowait_test::in_child;
using nowait_test::make_runtime;
using nowait_test::refuse;
using namespace std::chrono_literals;

namespace {

task<int> a_byte_that_has_to_be_waited_for() {
    nowait::pipe_pair pipe = nowait::make_pipe().value();
    auto writer = nowait::spawn([](nowait::pipe_writer& to) -> task<> {
        (void)co_await nowait::sleep_for(1ms);
        (void)co_await to.write("q");
    }(pipe.writer));
    std::array<std::byte, 4> buffer{};
    const auto got = co_await pipe.reader.read(buffer);
    (void)co_await writer.join();
    co_return got.value_or(0) == 1 ? static_cast<int>(buffer[0]) : -1;
}

/// 0 if `options` make a runtime that works.
int works(const runtime_options& options = {}) {
    auto made = runtime::create(options);
    if (!made)
        return 10;
    return made->run(a_byte_that_has_to_be_waited_for()).value_or(-1) == 'q' ? 0 : 11;
}

} // namespace

TEST_CASE("invalid options are error values") {
    auto fails = [](auto change) {
        runtime_options options;
        change(options);
        const auto made = runtime::create(std::move(options));
        return !made && made.error() == std::errc::invalid_argument;
    };
    CHECK(fails([](runtime_options& o) { o.budget = 0; }));
    CHECK(fails([](runtime_options& o) { o.budget = -1; }));
    CHECK(fails([](runtime_options& o) { o.ring_entries = 0; }));
    CHECK(fails([](runtime_options& o) { o.ring_entries = 32769; }));
    CHECK(fails([](runtime_options& o) { o.completion_entries = 65537; }));
    CHECK(fails([](runtime_options& o) { o.make_driver = [](auto&) { return nullptr; }; }));
}

TEST_CASE("the largest and the smallest rings work") {
    for (const unsigned entries : {1U, 2U, 3U, 4096U}) {
        runtime_options options;
        options.ring_entries = entries;
        CHECK(works(options) == 0);
        options.completion_entries = 1;
        CHECK(works(options) == 0);
    }
}

TEST_CASE("a ring that was asked for by name and is refused after the start ends the run with an error",
          "[ring]") {
    const auto end = in_child([] {
        runtime_options options;
        options.driver = driver_choice::uring;
        auto made = runtime::create(options);
        if (!made || made->run(a_byte_that_has_to_be_waited_for()).value_or(-1) != 'q')
            return 10;
        if (!refuse(SYS_io_uring_enter, EPERM))
            return 9;
        const auto got = made->run(a_byte_that_has_to_be_waited_for());
        return !got && got.error() == std::errc::operation_not_permitted ? 0 : 11;
    });
    CHECK(end.exit_code == 0);
}

TEST_CASE("the driver and its reason are told", "[ring]") {
    runtime_options options;
    options.driver = driver_choice::uring;
    runtime asked = make_runtime(options);
    CHECK(asked.driver() == "uring");
    CHECK(asked.driver_reason() == "asked for by the program");
    CHECK(asked.stats().driver_fallbacks == 0);
    options.driver = driver_choice::poll;
    runtime other = make_runtime(options);
    CHECK(other.driver() == "poll");
    CHECK(other.driver_reason() == "asked for by the program");
    CHECK(other.stats().driver_fallbacks == 0);
    CHECK(works(options) == 0);
}

TEST_CASE("NOWAIT_DRIVER chooses, and an unknown name is an error", "[ring]") {
    auto with = [](const char* name, auto check) {
        return in_child([&] {
                   ::setenv("NOWAIT_DRIVER", name, 1);
                   return check() ? 0 : 1;
               })
            .exit_code;
    };
    CHECK(with("uring", [] {
              auto made = runtime::create();
              return made && made->driver() == "uring" &&
                     made->driver_reason() == "asked for by NOWAIT_DRIVER";
          }) == 0);
    CHECK(with("poll", [] {
              auto made = runtime::create();
              return made && made->driver() == "poll" &&
                     made->driver_reason() == "asked for by NOWAIT_DRIVER";
          }) == 0);
    CHECK(with("", [] { return runtime::create().has_value(); }) == 0);
    CHECK(with("kqueue", [] {
              auto made = runtime::create();
              return !made && made.error() == std::errc::invalid_argument;
          }) == 0);
    CHECK(with("poll", [] {
              // What the program asks for by name is not overruled.
              runtime_options options;
              options.driver = driver_choice::uring;
              auto made = runtime::create(options);
              return made && made->driver() == "uring";
          }) == 0);
}

TEST_CASE("a refused ring that was asked for is an error with the kernel's own number") {
    for (const int error : {EPERM, ENOSYS, EACCES, ENOMEM}) {
        CAPTURE(error);
        const auto end = in_child([error] {
            if (!refuse(SYS_io_uring_setup, error))
                return 9;
            errno = 0; // what a stale errno would show
            runtime_options options;
            options.driver = driver_choice::uring;
            const auto made = runtime::create(options);
            if (made)
                return 1;
            return made.error() == std::error_code(error, std::generic_category()) ? 0 : 2;
        });
        CHECK(end.exit_code == 0);
    }
}

TEST_CASE("a refused ring that was not asked for is replaced, and the reason names why") {
    struct refusal {
        int error;
        const char* name;
    };
    for (const refusal r : {refusal{EPERM, "EPERM"}, refusal{ENOSYS, "ENOSYS"}, refusal{EACCES, "EACCES"}}) {
        CAPTURE(r.name);
        const auto end = in_child([r] {
            if (!refuse(SYS_io_uring_setup, r.error))
                return 9;
            ::unsetenv("NOWAIT_DRIVER");
            auto made = runtime::create();
            if (!made || made->driver() != "poll")
                return 1;
            if (made->driver_reason().find(r.name) == std::string::npos)
                return 2;
            if (made->stats().driver_fallbacks != 1)
                return 3;
            return works();
        });
        CHECK(end.exit_code == 0);
    }
}

TEST_CASE("with io_uring_register refused the ring works all the same", "[ring]") {
    const auto end = in_child([] {
        if (!refuse(SYS_io_uring_register, EPERM))
            return 9;
        runtime_options options;
        options.driver = driver_choice::uring;
        return works(options);
    });
    CHECK(end.exit_code == 0);
}

TEST_CASE("sixty-four runtimes live at once") {
    std::vector<runtime> many;
    for (int i = 0; i < 64; ++i)
        many.push_back(make_runtime());
    for (runtime& one : many)
        CHECK(one.run(a_byte_that_has_to_be_waited_for()).value() == 'q');
}

TEST_CASE("no descriptors left: an error value, and later success") {
    const auto end = in_child([] {
        // Once with everything: what is made at first use is made now, and sanitizers check it with a pipe.
        if (works() != 0)
            return 8;
        rlimit limit{};
        if (::getrlimit(RLIMIT_NOFILE, &limit) != 0)
            return 9;
        const rlimit before = limit;
        // Everything below the limit is taken.
        limit.rlim_cur = 16;
        if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
            return 9;
        std::vector<int> taken;
        for (int fd = ::dup(0); fd >= 0; fd = ::dup(0))
            taken.push_back(fd);
        for (const std::size_t room : {0U, 1U}) {
            for (std::size_t i = 0; i < room; ++i) {
                ::close(taken.back());
                taken.pop_back();
            }
            const auto made = runtime::create();
            if (made)
                return 1;
            // By its number, not by its category: a virtual call, checked with a pipe again.
            if (made.error().value() != EMFILE)
                return 2;
        }
        ::setrlimit(RLIMIT_NOFILE, &before);
        return works();
    });
    CHECK(end.exit_code == 0);
}

TEST_CASE("the program runs without the right to lock memory") {
    const auto end = in_child([] {
        const rlimit limit{65536, 65536};
        if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0)
            return 9;
        return works();
    });
    CHECK(end.exit_code == 0);
}
