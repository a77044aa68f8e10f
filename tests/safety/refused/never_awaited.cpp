// refused: nodiscard
#include <nowait/nowait.hpp>

#include <array>

#ifndef GOOD
nowait::task<> bad_ignored(nowait::pipe_reader& from) {
    std::array<std::byte, 16> buffer{};
    from.read(buffer); // nothing has been read: nothing happens before it is awaited
    co_return;
}
#else
nowait::task<> good_awaited(nowait::pipe_reader& from) {
    std::array<std::byte, 16> buffer{};
    auto got = co_await from.read(buffer);
    (void)got;
}
#endif
