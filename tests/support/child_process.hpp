// What must not happen in the test's own process happens in a child.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace nowait_test {

struct child_end {
    int exit_code = -1; ///< -1: did not exit by itself
    int signal = 0;     ///< that ended it
    std::string errors; ///< what it wrote to standard error (the last 64 KiB that fitted the pipe)
};

/// Forks and runs `body` in the child, which leaves with what it returns, without destructors. Killed after 60 s.
[[nodiscard]] child_end in_child(const std::function<int()>& body);

/// Runs this test program again, with these arguments and these changes to the environment. Killed after 60 s.
/// `before` is called in the new process first; if it says false, the exit code is 124.
[[nodiscard]] child_end run_again(const std::vector<std::string>& arguments,
                                  const std::vector<std::pair<std::string, std::string>>& environment,
                                  const std::function<bool()>& before = {});

} // namespace nowait_test
