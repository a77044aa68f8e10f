#include "transfer.hpp"

#include <nowait/algorithms.hpp>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <span>
#include <vector>

#include <sys/stat.h>
#include <sys/sysmacros.h>

namespace pump {
namespace {

constexpr std::size_t wanted_capacity = 1024 * 1024;

bool is_pipe(const struct stat& status) noexcept {
    return S_ISFIFO(status.st_mode);
}

bool is_null_device(const struct stat& status) noexcept {
    return S_ISCHR(status.st_mode) && status.st_rdev == ::makedev(1, 3);
}

/// Splicing needs a pipe on one side. What stands on the other must not make the call wait, since only pipes listen to
/// "do not wait" there: so no terminals and no sockets.
bool can_splice(const nowait::pipe_reader& from, const nowait::pipe_writer& to) noexcept {
    struct stat in{};
    struct stat out{};
    if (::fstat(from.native_handle(), &in) != 0 || ::fstat(to.native_handle(), &out) != 0)
        return false;
    if (is_pipe(in) && is_pipe(out))
        return in.st_dev != out.st_dev || in.st_ino != out.st_ino; // not into itself
    return (is_pipe(in) && (S_ISREG(out.st_mode) || is_null_device(out))) ||
           (S_ISREG(in.st_mode) && is_pipe(out));
}

/// A splice has one error for two ends.
bool is_of_output(std::error_code error) noexcept {
    return error == std::errc::broken_pipe || error == std::errc::no_space_on_device ||
           error == std::errc::file_too_large || error == std::errc::read_only_file_system ||
           error.value() == EDQUOT;
}

std::optional<std::size_t> largest_pipe() {
    std::FILE* file = std::fopen("/proc/sys/fs/pipe-max-size", "re");
    if (file == nullptr)
        return std::nullopt;
    std::size_t bytes = 0;
    const int found = std::fscanf(file, "%zu", &bytes);
    std::fclose(file);
    return found == 1 ? std::optional(bytes) : std::nullopt;
}

template <class End>
void enlarge_end(End& end) {
    const auto now = end.capacity();
    if (!now || *now >= wanted_capacity)
        return; // no pipe, or large enough
    if (end.set_capacity(wanted_capacity))
        return;
    // Not allowed: the most that is. Beyond the user's quota even that fails, and the pipe does as it is.
    if (const auto most = largest_pipe(); most && *most > *now)
        (void)end.set_capacity(*most);
}

} // namespace

void enlarge(nowait::pipe_reader& end) {
    enlarge_end(end);
}

void enlarge(nowait::pipe_writer& end) {
    enlarge_end(end);
}

nowait::task<ending> transfer(const nowait::pipe_reader& from, const nowait::pipe_writer& to,
                              const options& how, std::uint64_t limit, meter& count) {
    const std::uint64_t last = limit > no_limit - count.moved() ? no_limit : count.moved() + limit;
    const auto piece = [&](std::size_t most) {
        return static_cast<std::size_t>(std::min<std::uint64_t>(most, last - count.moved()));
    };

    if (how.splice && can_splice(from, to)) {
        while (count.moved() < last) {
            // Both ends are borrowed from whoever started us. Splicing makes the kernel forget that reads without waiting
            // work on them, which harms nobody in a pipeline: its neighbours read and write, and pump does not need it.
            const auto moved =
                co_await nowait::splice(from, to, piece(wanted_capacity), nowait::allow_splice::yes);
            if (!moved && moved.error() == std::errc::invalid_argument)
                break; // a file that cannot be spliced, or one opened for appending
            if (!moved)
                co_return ending{moved.error(), is_of_output(moved.error())};
            if (*moved == 0)
                co_return ending{};
            count.add(*moved);
        }
    }

    std::vector<std::byte> buffer(count.moved() < last ? how.buffer_size : 0);
    while (count.moved() < last) {
        const std::span<std::byte> room(buffer.data(), piece(buffer.size()));
        const auto got = co_await from.read(room);
        if (!got)
            co_return ending{got.error(), false};
        if (*got == 0)
            break;
        const std::span<const std::byte> data = room.first(*got);
        const nowait::progress put = co_await nowait::write_all(to, data);
        count.add(put.bytes);
        if (!put.ok())
            co_return ending{put.error, true};
    }
    co_return ending{};
}

} // namespace pump
