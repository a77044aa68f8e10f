// The same tests where the kernel knows less: each in a run of its own, with that feature masked.
#include "catch.hpp"
#include "child_process.hpp"

#include <string>
#include <utility>
#include <vector>

namespace {

/// Runs every case of this program but the slow ones and these, in a changed environment.
void all_others(const std::string& name, const std::string& value) {
    const auto end = nowait_test::run_again({"~[again]~[slow]"}, {{name, value}});
    INFO(end.errors);
    CHECK(end.signal == 0);
    CHECK(end.exit_code == 0);
    // Not "no test cases matched": that would pass too.
    CHECK(end.errors.find("All tests passed") != std::string::npos);
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
    all_others("NOWAIT_FEATURES", "-nowait,-nosignal,-defer_taskrun,-taskrun_flag,-multishot_poll");
}
TEST_CASE("the core on epoll", "[again]") {
    all_others("NOWAIT_DRIVER", "poll");
}
TEST_CASE("unknown and malformed feature names change nothing", "[again]") {
    for (const char* value : {",,,", "nosignal", "-", "-nosuch,-,--nowait", "-nosignal "}) {
        const auto end =
            nowait_test::run_again({"a task gives a move-only value"}, {{"NOWAIT_FEATURES", value}});
        INFO(end.errors);
        CHECK(end.exit_code == 0);
    }
}
