#include "present_system.hpp"

#include <nowait/detail/system.hpp>
#include <nowait/pipe.hpp>

#include <cerrno>
#include <memory>
#include <new>

#include <fcntl.h>

NOWAIT_BEGIN_NAMESPACE

/// The way from a block to a handle.
class pipe_access {
public:
    template <class End>
    static End wrap(detail::descriptor* block) noexcept {
        return End(block);
    }
};

namespace {

using detail::descriptor;
using detail::file_info;
using detail::file_kind;
using detail::present_system;
using detail::rung;

template <class T>
result<T> from_long(long n) noexcept {
    if (n < 0)
        return fail_errno(static_cast<int>(-n));
    return static_cast<T>(n);
}

bool may(int flags, bool read) noexcept {
    const int mode = flags & O_ACCMODE;
    return mode == O_RDWR || mode == (read ? O_RDONLY : O_WRONLY);
}

rung first_rung(const file_info& info) noexcept {
    return info.kind == file_kind::socket ? rung::socket : rung::nowait_flag;
}

/// What a number that is given to us stands for. Errors: bad_file_descriptor: not open, or not in this direction.
result<file_info> look_at(detail::system& calls, int fd, bool read) noexcept {
    file_info info;
    if (const int error = calls.inspect(fd, info); error != 0)
        return fail_errno(-error);
    if (!may(info.flags, read))
        return fail(std::errc::bad_file_descriptor);
    return info;
}

template <class End>
result<End> borrow_end(int fd, bool read) {
    detail::system& calls = present_system();
    const result<file_info> info = look_at(calls, fd, read);
    if (!info)
        return fail(info.error());
    if (detail::loop* here = detail::loop::current()) {
        // One block per runtime and number: those who ask twice queue up behind each other.
        if (descriptor* known = here->find_descriptor(fd);
            known != nullptr && !known->closed && !known->owned)
            return pipe_access::wrap<End>(known);
    }
    auto* block = new (std::nothrow) descriptor(fd, false, calls);
    if (block == nullptr)
        return fail(std::errc::not_enough_memory);
    block->kind = info->kind;
    block->how[0] = block->how[1] = first_rung(*info);
    block->packets = (info->flags & O_DIRECT) != 0;
    return pipe_access::wrap<End>(block);
}

template <class End>
result<End> adopt_end(int fd, bool read) {
    detail::system& calls = present_system();
    const result<file_info> info = look_at(calls, fd, read);
    if (!info)
        return fail(info.error());
    if (const int error = calls.set_nonblocking(fd); error != 0)
        return fail_errno(-error);
    auto* block = new (std::nothrow) descriptor(fd, true, calls);
    if (block == nullptr)
        return fail(std::errc::not_enough_memory);
    block->kind = info->kind;
    // O_NONBLOCK means nothing to a regular file or a block device: those keep RWF_NOWAIT and the ring.
    if (info->kind == file_kind::regular || info->kind == file_kind::block)
        block->how[0] = block->how[1] = rung::nowait_flag;
    else if (info->kind == file_kind::socket)
        block->how[0] = block->how[1] = rung::socket;
    block->packets = (info->flags & O_DIRECT) != 0;
    return pipe_access::wrap<End>(block);
}

} // namespace

namespace detail {

result<void> pipe_end::close() noexcept {
    if (block_.get() == nullptr)
        return fail(std::errc::bad_file_descriptor);
    if (const int error = block_.get()->resolved()->close(); error != 0)
        return fail_errno(error);
    return {};
}

result<std::size_t> pipe_end::capacity() const noexcept {
    if (!is_open())
        return fail(std::errc::bad_file_descriptor);
    return from_long<std::size_t>(block_.get()->calls->pipe_size(block_.get()->fd));
}

result<std::size_t> pipe_end::set_capacity(std::size_t bytes) noexcept {
    if (!is_open())
        return fail(std::errc::bad_file_descriptor);
    // The kernel rounds up to a page, 0 too; a person who asks for nothing has made a mistake.
    if (bytes == 0)
        return fail(std::errc::invalid_argument);
    return from_long<std::size_t>(block_.get()->calls->set_pipe_size(block_.get()->fd, bytes));
}

result<std::size_t> pipe_end::available() const noexcept {
    if (!is_open())
        return fail(std::errc::bad_file_descriptor);
    return from_long<std::size_t>(block_.get()->calls->available(block_.get()->fd));
}

std::string_view pipe_end::method() const noexcept {
    if (!is_open())
        return "closed";
    descriptor& block = *block_.get()->resolved();
    return to_string(block.how[reads_ ? 0 : 1]);
}

} // namespace detail

result<pipe_reader> pipe_reader::adopt(int fd) {
    return adopt_end<pipe_reader>(fd, true);
}
result<pipe_reader> pipe_reader::borrow(int fd) {
    return borrow_end<pipe_reader>(fd, true);
}
result<pipe_writer> pipe_writer::adopt(int fd) {
    return adopt_end<pipe_writer>(fd, false);
}
result<pipe_writer> pipe_writer::borrow(int fd) {
    return borrow_end<pipe_writer>(fd, false);
}

result<pipe_pair> make_pipe(pipe_options options) {
    if (options.capacity > std::size_t{1} << 31)
        return fail(std::errc::invalid_argument);
    detail::system& calls = present_system();
    auto reading = std::unique_ptr<descriptor>(new (std::nothrow) descriptor(-1, true, calls));
    auto writing = std::unique_ptr<descriptor>(new (std::nothrow) descriptor(-1, true, calls));
    auto bond = std::unique_ptr<detail::pipe_bond>(new (std::nothrow) detail::pipe_bond);
    if (reading == nullptr || writing == nullptr || bond == nullptr)
        return fail(std::errc::not_enough_memory);
    int ends[2] = {-1, -1};
    if (const int error = calls.make_pipe(ends, options.packets); error != 0)
        return fail_errno(-error);
    // A wish: pipes over the user's quota cannot grow, and are no less pipes for that.
    if (options.capacity != 0)
        (void)calls.set_pipe_size(ends[1], options.capacity);
    reading->fd = reading->io_fd = ends[0];
    writing->fd = writing->io_fd = ends[1];
    reading->packets = writing->packets = options.packets;
    reading->bond = writing->bond = bond.release();
    reading->reads = true;
    pipe_pair pair{pipe_access::wrap<pipe_reader>(reading.release()),
                   pipe_access::wrap<pipe_writer>(writing.release())};
    return pair;
}

result<pipe_reader> standard_input() {
    return pipe_reader::borrow(0);
}
result<pipe_writer> standard_output() {
    return pipe_writer::borrow(1);
}
result<pipe_writer> standard_error() {
    return pipe_writer::borrow(2);
}

NOWAIT_END_NAMESPACE
