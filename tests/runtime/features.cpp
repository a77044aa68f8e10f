// The same tests where the kernel knows less: each in a run of its own, with that feature masked.
#include "catch.hpp"
#include "child_process.hpp"
#include "sandbox.hpp"

#include <cerrno>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <sys/syscall.h>

namespace {

void check(const nowait_test::child_end& end) {
    INFO(end.errors);
    CHECK(end.signal == 0);
    CHECK(end.exit_code == 0);
    // Not "no test cases matched": that would pass too.
    CHECK(end.errors.find("All tests passed") != std::string::npos);
}

/// Runs every case of this program but the slow ones and these, in a changed environment.
void all_others(const std::string& name, const std::string& value) {
    check(nowait_test::run_again({"~[again]~[slow]"}, {{name, value}}));
}

/// Those that do not ask for a ring by name, where the kernel refuses `call`. Also nothing may be asked for by the environment.
void all_without(int call, int error) {
    const char* which = call == SYS_io_uring_setup ? "~[again]~[slow]~[ring]" : "~[again]~[slow]";
    check(nowait_test::run_again({which}, {{"NOWAIT_DRIVER", ""}},
                                 [=] { return nowait_test::refuse(call, error); }));
}

} // namespace

TEST_CASE("the core without RWF_NOSIGNAL", "[again]") {
    all_others("NOWAIT_FEATURES", "-nosignal");
}
TEST_CASE("the core without RWF_NOWAIT", "[again]") {
    all_others("NOWAIT_FEATURES", "-nowait");
}
TEST_CASE("the core without DEFER_TASKRUN", "[again]") {
    all_others("NOWAIT_FEATURES", "-defer_taskrun");
}
TEST_CASE("the core without TASKRUN_FLAG", "[again]") {
    all_others("NOWAIT_FEATURES", "-taskrun_flag");
}
TEST_CASE("the core on a ring without flags", "[again]") {
    all_others("NOWAIT_FEATURES", "-defer_taskrun,-taskrun_flag");
}
TEST_CASE("the core without multishot polls", "[again]") {
    all_others("NOWAIT_FEATURES", "-multishot_poll");
}
TEST_CASE("the core without any of them", "[again]") {
    all_others("NOWAIT_FEATURES",
               "-nowait,-nosignal,-defer_taskrun,-taskrun_flag,-multishot_poll,-ring_nonblocking");
}
TEST_CASE("the core on epoll", "[again]") {
    all_others("NOWAIT_DRIVER", "poll");
}
TEST_CASE("the core without ring reads that wait for non-blocking files", "[again]") {
    all_others("NOWAIT_FEATURES", "-ring_nonblocking");
}
TEST_CASE("the core where io_uring_setup is refused with EPERM", "[again]") {
    all_without(SYS_io_uring_setup, EPERM);
}
TEST_CASE("the core where io_uring_setup is refused with ENOSYS", "[again]") {
    all_without(SYS_io_uring_setup, ENOSYS);
}
TEST_CASE("the core where io_uring_setup is refused with EACCES", "[again]") {
    all_without(SYS_io_uring_setup, EACCES);
}
TEST_CASE("the core where only io_uring_register is refused", "[again]") {
    all_without(SYS_io_uring_register, EPERM);
}
TEST_CASE("unknown and malformed feature names change nothing", "[again]") {
    for (const char* value : {",,,", "nosignal", "-", "-nosuch,-,--nowait", "-nosignal "}) {
        const auto end =
            nowait_test::run_again({"a task gives a move-only value"}, {{"NOWAIT_FEATURES", value}});
        INFO(end.errors);
        CHECK(end.exit_code == 0);
    }
}
