// A close under a wait, where the kernel keeps what is waited for alive: the peer has to see the end all the same.
#include "catch.hpp"

#include <nowait/nowait.hpp>

#include <array>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <span>
#include <system_error>

#include <sys/socket.h>
#include <unistd.h>

using nowait::result;
using nowait::task;

namespace {

task<result<std::size_t>> reads(nowait::pipe_reader& from, std::span<std::byte> into) {
    co_return co_await from.read(into);
}

/// A read of a socket waits; the socket is closed; the peer sees the end at once, and nothing that it sends is swallowed.
task<> closes_a_socket(bool by_destructor) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    std::optional<nowait::pipe_reader> ours(*nowait::pipe_reader::adopt(ends[0]));
    std::array<std::byte, 16> buffer{};
    auto waiting = nowait::spawn(reads(*ours, buffer));
    co_await nowait::yield();
    REQUIRE_FALSE(waiting.done());
    if (by_destructor)
        ours.reset();
    else
        CHECK(ours->close().has_value());
    std::array<std::byte, 16> theirs{};
    CHECK(::recv(ends[1], theirs.data(), theirs.size(), MSG_DONTWAIT) == 0);
    CHECK((::send(ends[1], "late", 4, MSG_NOSIGNAL | MSG_DONTWAIT) == -1 && errno == EPIPE));
    auto ended = co_await waiting.join();
    REQUIRE(ended.has_value());
    CHECK((!*ended && ended->error() == std::errc::operation_canceled));
    (void)::close(ends[1]);
}

} // namespace

TEST_CASE("a socket that is closed under a read lets go of its peer at once") {
    const bool by_destructor = GENERATE(false, true);
    REQUIRE(nowait::run(closes_a_socket(by_destructor)));
}
