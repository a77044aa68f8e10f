// A process that was started without standard streams.
#include "catch.hpp"
#include "child_process.hpp"

#include <nowait/nowait.hpp>

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

namespace {

/// How many of the three are refused, as they must be.
nowait::task<int> refusals() {
    const auto in = nowait::standard_input();
    const auto out = nowait::standard_output();
    const auto err = nowait::standard_error();
    const auto is_refused = [](const auto& end) { return !end && end.error().value() == EBADF; };
    co_return is_refused(in) + is_refused(out) + is_refused(err);
}

} // namespace

TEST_CASE("standard streams that are closed are refused, and the runtime does not take their numbers") {
    const auto end = nowait_test::in_child([] {
        for (int number = 0; number <= 2; ++number)
            ::close(number);
        auto runtime = nowait::runtime::create();
        if (!runtime)
            return 10;
        const auto refused = runtime->run(refusals());
        // Its numbers are free again, too, for whoever opens them next.
        const bool free = ::open("/dev/null", O_RDONLY) == 0;
        return refused.value_or(0) == 3 && free ? 0 : 11;
    });
    CHECK(end.exit_code == 0);
}
