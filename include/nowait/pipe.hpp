// Kernel pipes: two ends, made here, adopted, or borrowed.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/descriptor.hpp>
#include <nowait/result.hpp>

#include <cstddef>
#include <span>
#include <string_view>

#include <sys/uio.h>

NOWAIT_BEGIN_NAMESPACE

struct pipe_options {
    /// Bytes the pipe shall hold, rounded up by the kernel to a power of two of pages; 0 leaves its default (64 KiB).
    std::size_t capacity = 0;
    /// Packet mode (O_DIRECT): each write of up to 4096 bytes is read as a unit; what does not fit the buffer is dropped.
    bool packets = false;
};

namespace detail {

/// What both ends have.
class NOWAIT_API pipe_end {
public:
    /// False after a move or close().
    [[nodiscard]] bool is_open() const noexcept {
        return block_.get() != nullptr && !block_.get()->resolved()->closed;
    }
    /// The number given or made; -1 if there is none. It stays this object's.
    [[nodiscard]] int native_handle() const noexcept { return is_open() ? block_.get()->fd : -1; }

    /// Closes this end. Waiting operations end with operation_canceled, new ones with bad_file_descriptor. The number is
    /// closed when the kernel has let go of it, normally before this returns. A borrowed number is not closed; handles that
    /// borrow the same number on one runtime are one object, so closing one of them ends the waits of all.
    /// Errors: bad_file_descriptor: closed or moved from; operation_not_permitted: on a foreign thread.
    result<void> close() noexcept;

    /// Returns: bytes the pipe can hold. Errors: bad_file_descriptor: closed, or no pipe.
    [[nodiscard]] result<std::size_t> capacity() const noexcept;
    /// Returns: the real new capacity, at least `bytes`. Errors: device_or_resource_busy: more than that is queued;
    /// operation_not_permitted: above /proc/sys/fs/pipe-max-size or over the user's page quota; invalid_argument: 0, or
    /// above 2 GiB; bad_file_descriptor. On an error the pipe is as it was.
    result<std::size_t> set_capacity(std::size_t bytes) noexcept;
    /// Returns: bytes queued in the pipe now.
    [[nodiscard]] result<std::size_t> available() const noexcept;

    /// How attempts are made on this descriptor now, in words: "non-blocking description", "RWF_NOWAIT", ...
    [[nodiscard]] std::string_view method() const noexcept;

    [[nodiscard]] descriptor* block() const noexcept { return block_.get(); }

protected:
    pipe_end() = default;
    pipe_end(descriptor* block, bool reads) noexcept : block_(block), reads_(reads) {}

    descriptor_handle block_;
    bool reads_ = false;
};

inline constexpr iovec no_part{};

/// Several buffers as the kernel takes them, or the error that they are. Null parts are not the same as none.
[[nodiscard]] inline transfer_parts several_parts(descriptor* block, std::span<const iovec> parts) noexcept {
    if (parts.size() > 1024)
        return {block, {}, &no_part, -22}; // EINVAL
    if (parts.data() == nullptr && !parts.empty())
        return {block, {}, &no_part, -14}; // EFAULT
    return {block, {}, parts.data(), static_cast<int>(parts.size())};
}

} // namespace detail

/// The end of a pipe (or any stream) that is read from. Movable, also while operations wait.
///
/// Belongs to the runtime of its first operation; used on that runtime's thread only. The destructor closes and never waits.
class NOWAIT_API pipe_reader : public detail::pipe_end {
public:
    pipe_reader() = default;

    /// Takes a descriptor over: it is made non-blocking and close-on-exec, and closed with this object. Only for a description
    /// that is not shared with other processes. Errors: bad_file_descriptor: not open, or not open for reading.
    [[nodiscard]] static result<pipe_reader> adopt(int fd);
    /// Uses a descriptor that others share: its flags are never changed, and it is not closed.
    /// Borrows: the number, as long as this object lives. Errors: bad_file_descriptor: not open, or not open for reading.
    [[nodiscard]] static result<pipe_reader> borrow(int fd);

    /// Reads what is there, up to the size of `buffer`; waits while there is nothing.
    /// Returns: bytes read; 0: end of stream (or an empty buffer). Errors: operation_canceled: stopped, or closed meanwhile,
    /// nothing was read; bad_file_descriptor; operation_not_permitted: the end belongs to another runtime; is_a_directory;
    /// bad_address: a null buffer. Borrows: `buffer` until the operation has ended. Resumes: on the awaiter's runtime.
    [[nodiscard]] detail::read_description read(std::span<std::byte> buffer) const noexcept {
        return {{block_.get(), {buffer.data(), buffer.size()}, nullptr, 1}};
    }
    /// The same into several buffers, filled in order. Borrows: `parts` too. Errors: also invalid_argument: more than 1024 parts.
    [[nodiscard]] detail::read_description read(std::span<const iovec> parts) const noexcept {
        return {detail::several_parts(block_.get(), parts)};
    }

    /// Waits until a read would not wait: data, or the end of the stream. Another reader may be faster.
    [[nodiscard]] detail::ready_description readable() const noexcept { return {block_.get(), false}; }

private:
    friend class pipe_access;
    explicit pipe_reader(detail::descriptor* block) noexcept : pipe_end(block, true) {}
};

/// The end of a pipe (or any stream) that is written to. As pipe_reader. A write never raises SIGPIPE.
class NOWAIT_API pipe_writer : public detail::pipe_end {
public:
    pipe_writer() = default;

    /// As pipe_reader::adopt. Errors: bad_file_descriptor: not open, or not open for writing.
    [[nodiscard]] static result<pipe_writer> adopt(int fd);
    /// As pipe_reader::borrow. Errors: bad_file_descriptor: not open, or not open for writing.
    [[nodiscard]] static result<pipe_writer> borrow(int fd);

    /// Writes as much as there is room for; waits while there is none. Up to 4096 bytes are written whole or not at all, and
    /// are never mixed with other writers' bytes; larger writes may be short: see write_all.
    /// Returns: bytes written. Errors: broken_pipe: nobody will ever read; operation_canceled: nothing was written; and as
    /// pipe_reader::read. Borrows: `data` until the operation has ended. Resumes: on the awaiter's runtime.
    [[nodiscard]] detail::write_description write(std::span<const std::byte> data) const noexcept {
        return {{block_.get(), {const_cast<std::byte*>(data.data()), data.size()}, nullptr, 1}};
    }
    /// The same from several buffers, in order.
    [[nodiscard]] detail::write_description write(std::span<const iovec> parts) const noexcept {
        return {detail::several_parts(block_.get(), parts)};
    }
    [[nodiscard]] detail::write_description write(std::string_view text) const noexcept {
        return {{block_.get(), {const_cast<char*>(text.data()), text.size()}, nullptr, 1}};
    }

    /// Waits until there is room, or the last reader has gone.
    [[nodiscard]] detail::ready_description writable() const noexcept { return {block_.get(), true}; }

private:
    friend class pipe_access;
    explicit pipe_writer(detail::descriptor* block) noexcept : pipe_end(block, false) {}
};

struct pipe_pair {
    pipe_reader reader;
    pipe_writer writer;
};

/// Makes a pipe. Both ends are non-blocking and close-on-exec. The capacity may be less than asked for where quotas say so:
/// look at reader.capacity().
/// Errors: too_many_files_open, too_many_files_open_in_system: descriptors or pipe memory are used up; invalid_argument: a
/// capacity above 2 GiB; not_enough_memory.
[[nodiscard]] NOWAIT_API result<pipe_pair> make_pipe(pipe_options options = {});

/// The process's standard streams, borrowed: flags untouched, also when the process is killed. Asked for twice on one
/// runtime, it is the same object underneath, so that two readers of standard input queue up.
/// Errors: bad_file_descriptor: the stream is closed or has the wrong direction.
[[nodiscard]] NOWAIT_API result<pipe_reader> standard_input();
[[nodiscard]] NOWAIT_API result<pipe_writer> standard_output();
[[nodiscard]] NOWAIT_API result<pipe_writer> standard_error();

/// Whether splice may touch borrowed descriptions. It makes the kernel forget, for everybody who shares one, that RWF_NOWAIT works on it.
enum class allow_splice : bool { no, yes };

/// Moves up to `size` bytes from one pipe to the other inside the kernel, without copying; waits for data and for room.
/// Returns: bytes moved; 0: end of stream. Errors: broken_pipe; operation_canceled: nothing was moved;
/// operation_not_permitted: an end is borrowed and `allow` is no; invalid_argument: no end is a pipe, or both are the same one;
/// bad_file_descriptor. Borrows: nothing. Resumes: on the awaiter's runtime.
[[nodiscard]] inline detail::pipe_to_pipe_description splice(const pipe_reader& from, const pipe_writer& to,
                                                             std::size_t size,
                                                             allow_splice allow = allow_splice::no) noexcept {
    return {from.block(), to.block(), size, false, allow == allow_splice::yes};
}

/// Copies up to `size` bytes without taking them from `from`. Unlike the system call's, a 0 is always the end of the stream.
/// Returns and errors as splice.
[[nodiscard]] inline detail::pipe_to_pipe_description tee(const pipe_reader& from, const pipe_writer& to,
                                                          std::size_t size) noexcept {
    return {from.block(), to.block(), size, true, true};
}

NOWAIT_END_NAMESPACE
