// Copying between descriptors: spliced where that is possible and allowed, through memory where not.
#include <nowait/algorithms.hpp>
#include <nowait/detail/descriptor.hpp>
#include <nowait/detail/system.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

namespace {

bool is_pipe(const descriptor& block) noexcept {
    return block.kind == file_kind::pipe || block.kind == file_kind::fifo;
}

/// Only pipes forget RWF_NOWAIT when they are spliced; a file has nothing to lose.
bool is_free(const descriptor& block, allow_splice allowed) noexcept {
    return !is_pipe(block) || block.owned || allowed == allow_splice::yes;
}

bool may_splice(descriptor* reading, descriptor* writing, allow_splice allowed) noexcept {
    if (reading == nullptr || writing == nullptr)
        return false;
    const descriptor& from = *reading->resolved();
    const descriptor& to = *writing->resolved();
    // The nowait flag of splice speaks for the pipes only: a terminal or a socket at the other end could still make us wait.
    const auto suits = [](const descriptor& end) { return is_pipe(end) || end.kind == file_kind::regular; };
    if (!suits(from) || !suits(to) || (!is_pipe(from) && !is_pipe(to)))
        return false;
    // A spliced buffer keeps its packet mark: in a byte stream it would make short reads drop bytes.
    if (from.packets != to.packets && (is_pipe(from) || to.packets))
        return false;
    return is_free(from, allowed) && is_free(to, allowed);
}

bool same_file(const descriptor& a, const descriptor& b) noexcept {
    file_info first;
    file_info second;
    return a.calls->inspect(a.fd, first) == 0 && b.calls->inspect(b.fd, second) == 0 &&
           first.device == second.device && first.inode == second.inode;
}

} // namespace

task<progress> copy_descriptors(const pipe_reader& from, const pipe_writer& to, copy_options options) {
    constexpr std::uint64_t most_at_once = std::uint64_t{1} << 20; // what the largest usual pipe holds
    if (options.buffer_size == 0)
        co_return progress{0, std::make_error_code(std::errc::invalid_argument)};
    progress total;
    if (may_splice(from.block(), to.block(), options.splicing)) {
        while (total.bytes < options.limit) {
            const auto wish =
                static_cast<std::size_t>(std::min<std::uint64_t>(options.limit - total.bytes, most_at_once));
            const result<std::size_t> moved = co_await splice(from, to, wish, allow_splice::yes);
            if (!moved && moved.error() == std::errc::invalid_argument) {
                if (same_file(*from.block(), *to.block())) {
                    total.error = moved.error();
                    co_return total;
                }
                // A file that cannot be spliced (opened with O_APPEND, on an odd file system). Both ways move the same file
                // position, so the buffer goes on where splicing ended.
                break;
            }
            if (!moved) {
                total.error = moved.error();
                co_return total;
            }
            if (*moved == 0)
                co_return total;
            total.bytes += *moved;
            if (options.arrived != nullptr)
                *options.arrived = total.bytes;
        }
        if (total.bytes >= options.limit)
            co_return total;
    }
    const progress rest = co_await copy_through_memory(from, to, options, total.bytes);
    co_return rest;
}

} // namespace detail
NOWAIT_END_NAMESPACE
