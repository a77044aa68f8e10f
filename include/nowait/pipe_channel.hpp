// In-process pipes: the kernel's ring of buffers, awaitable, without the kernel.
//
// `pipe_channel` may be used from any thread and any runtime; `local_pipe_channel` by one runtime at a time, on its thread: it
// has no lock. Both have the same two ends, and behave as a kernel pipe does: bytes, writes of up to 4096 of them whole
// or not at all, packets on request, end of stream when the last writer has gone, broken_pipe when the last reader has.
// What user space can do better: no system calls, work in place (reserve and peek), and waiters served strictly in turn.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/pipe_channel_operations.hpp>
#include <nowait/pipe_in_place.hpp>
#include <nowait/result.hpp>

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include <sys/uio.h>

NOWAIT_BEGIN_NAMESPACE

struct pipe_channel_options {
    /// Bytes the channel shall hold, rounded up to a power of two of pages of 4096 bytes; 0 is the default, 64 KiB. As in the
    /// kernel it is a number of slots of one page each: many small packets fill it with fewer bytes.
    std::size_t capacity = 0;
    /// What capacity and set_capacity() may ask for.
    std::size_t capacity_limit = std::size_t{1} << 20;
    /// Packet mode of the first writer: each 4096 bytes of a write are read as a unit; what does not fit the buffer is lost.
    bool packets = false;
};

namespace detail {

/// What both ends have. Any thread, as long as nobody moves or destroys the handle at the same time.
template <class Sync>
class pipe_channel_end {
public:
    pipe_channel_end() = default;
    pipe_channel_end(pipe_channel_end&& other) noexcept : end_(std::exchange(other.end_, nullptr)) {}
    pipe_channel_end& operator=(pipe_channel_end&& other) noexcept {
        if (this != &other) {
            reset();
            end_ = std::exchange(other.end_, nullptr);
        }
        return *this;
    }
    ~pipe_channel_end() { reset(); }

    /// Closes this end; the last of its kind tells the other side, everybody who waits there included. Operations that wait
    /// through this end stop with operation_canceled, on their own runtimes; later ones give bad_file_descriptor.
    /// Errors: bad_file_descriptor: closed before, or moved from.
    result<void> close() noexcept {
        const int error = end_ == nullptr ? EBADF : end_->channel->close(*end_);
        if (error != 0)
            return fail_errno(error);
        return {};
    }
    /// False after close(), and of a moved-from end.
    [[nodiscard]] bool is_open() const noexcept { return available().has_value(); }
    /// Returns: bytes that can be read now, of all packets together.
    [[nodiscard]] result<std::size_t> available() const noexcept {
        return bytes_or_error(end_ == nullptr ? -EBADF : end_->channel->available(*end_));
    }
    /// Returns: bytes the channel can hold.
    [[nodiscard]] result<std::size_t> capacity() const noexcept {
        if (!is_open())
            return fail(std::errc::bad_file_descriptor);
        return end_->channel->ring.capacity_bytes();
    }
    /// Returns: the new capacity, `bytes` rounded up as in pipe_channel_options; 0 is one page, as for F_SETPIPE_SZ. What the
    /// channel holds stays; writers that wait go on if there is room now.
    /// Errors: device_or_resource_busy: more slots are in use, or a reservation or peek is held; operation_not_permitted:
    /// above the limit; invalid_argument: above 2 GiB; not_enough_memory; bad_file_descriptor. Then all is as it was.
    result<std::size_t> set_capacity(std::size_t bytes) noexcept {
        return bytes_or_error(end_ == nullptr ? -EBADF : end_->channel->resize(*end_, bytes));
    }

    /// For the library.
    [[nodiscard]] pipe_end_block<Sync>* block() const noexcept { return end_; }

protected:
    explicit pipe_channel_end(pipe_end_block<Sync>* end) noexcept : end_(end) {}

    [[nodiscard]] result<pipe_end_block<Sync>*> another() const noexcept {
        int error = EBADF;
        auto* made = end_ == nullptr ? nullptr : end_->channel->duplicate(*end_, error);
        if (made == nullptr)
            return fail_errno(error);
        return made;
    }

private:
    void reset() noexcept {
        if (end_ != nullptr) {
            (void)end_->channel->close(*end_);
            std::exchange(end_, nullptr)->release();
        }
    }

    pipe_end_block<Sync>* end_ = nullptr;
};

} // namespace detail

template <class Sync>
struct basic_pipe_channel;

/// The end that is read from. Movable, also while operations wait; dropped, it is closed.
///
/// Operations give, besides what each one says: operation_canceled: stopped, or this end was closed meanwhile, and nothing
/// was taken; bad_file_descriptor: closed or moved from; operation_not_permitted: another runtime waits in a local channel. They
/// borrow the end until they have begun (awaiting begins them), and resume on the awaiter's runtime.
template <class Sync>
class basic_pipe_channel_reader : public detail::pipe_channel_end<Sync> {
public:
    basic_pipe_channel_reader() = default;

    /// Reads what is there, up to the size of `buffer` or the end of a packet; waits while there is nothing.
    /// Returns: bytes read; 0: end of stream (or an empty buffer). Errors: bad_address: a null buffer; invalid_argument: more
    /// than 1024 parts. Borrows: the buffer (and `parts`) until the operation has ended.
    // The span by reference: g++ copies one out of a coroutine's frame by a vector load, which waits for the two stores that
    // have just made it; 5 ns an operation.
    [[nodiscard]] detail::pipe_read_description<Sync> read(
        const std::span<std::byte>& buffer) const noexcept {
        return {this->block(), detail::pipe_memory::one(buffer.data(), buffer.size())};
    }
    [[nodiscard]] detail::pipe_read_description<Sync> read(std::span<const iovec> parts) const noexcept {
        return {this->block(), detail::pipe_memory::many(parts)};
    }
    /// The same without waiting, from any thread. Errors: also resource_unavailable_try_again: nothing there, or not our turn.
    [[nodiscard]] result<std::size_t> try_read(std::span<std::byte> buffer) const noexcept {
        return detail::pipe_read_operation<Sync>(read(buffer)).try_once();
    }
    [[nodiscard]] result<std::size_t> try_read(std::span<const iovec> parts) const noexcept {
        return detail::pipe_read_operation<Sync>(read(parts)).try_once();
    }

    /// Waits until a read would not wait: data, or the end of the stream. Another reader may be faster.
    [[nodiscard]] detail::pipe_ready_description<Sync> readable() const noexcept { return {this->block()}; }

    /// Waits for data and shows it where it lies, at most 16 parts of up to a page, in one packet at most.
    /// Returns: the peek, empty at the end of the stream.
    [[nodiscard]] detail::pipe_hold_description<Sync, basic_pipe_peek<Sync>> peek() const noexcept {
        return {this->block(), 0};
    }
    [[nodiscard]] result<basic_pipe_peek<Sync>> try_peek() const noexcept {
        return detail::pipe_hold_operation<Sync, basic_pipe_peek<Sync>>(peek()).try_once();
    }

    /// One more reader of the same channel, closed by itself. Errors: bad_file_descriptor; not_enough_memory.
    [[nodiscard]] result<basic_pipe_channel_reader> duplicate() const noexcept {
        return this->another().map([](auto* end) { return basic_pipe_channel_reader(end); });
    }

private:
    friend struct basic_pipe_channel<Sync>;
    using detail::pipe_channel_end<Sync>::pipe_channel_end;
};

/// The end that is written to. As basic_pipe_channel_reader; broken_pipe: the last reader has gone. There is no SIGPIPE.
template <class Sync>
class basic_pipe_channel_writer : public detail::pipe_channel_end<Sync> {
public:
    basic_pipe_channel_writer() = default;

    /// Writes as much as there is room for; waits while there is none. Up to 4096 bytes are written whole or not at all, and
    /// never mixed with other writers' bytes; larger writes may be short: see write_all.
    /// Returns: bytes written. Errors: broken_pipe; not_enough_memory: nothing was written; bad_address; invalid_argument, as
    /// read. Borrows: `data` (and `parts`) until the operation has ended.
    [[nodiscard]] detail::pipe_write_description<Sync> write(
        const std::span<const std::byte>& data) const noexcept {
        return {this->block(), detail::pipe_memory::one(data.data(), data.size())};
    }
    [[nodiscard]] detail::pipe_write_description<Sync> write(std::span<const iovec> parts) const noexcept {
        return {this->block(), detail::pipe_memory::many(parts)};
    }
    [[nodiscard]] detail::pipe_write_description<Sync> write(std::string_view text) const noexcept {
        return {this->block(), detail::pipe_memory::one(text.data(), text.size())};
    }
    /// The same without waiting, from any thread. Errors: also resource_unavailable_try_again: no room, or not our turn.
    [[nodiscard]] result<std::size_t> try_write(std::span<const std::byte> data) const noexcept {
        return detail::pipe_write_operation<Sync>(write(data)).try_once();
    }
    [[nodiscard]] result<std::size_t> try_write(std::span<const iovec> parts) const noexcept {
        return detail::pipe_write_operation<Sync>(write(parts)).try_once();
    }
    [[nodiscard]] result<std::size_t> try_write(std::string_view text) const noexcept {
        return detail::pipe_write_operation<Sync>(write(text)).try_once();
    }

    /// Waits until there is a free slot, or the last reader has gone. Another writer may be faster.
    [[nodiscard]] detail::pipe_ready_description<Sync> writable() const noexcept { return {this->block()}; }

    /// Waits for room and sets it aside: `size` bytes if the channel has so much, at most 64 KiB. Up to 4096 are one part.
    /// Returns: the reservation. Errors: broken_pipe; not_enough_memory; invalid_argument: a size of 0.
    [[nodiscard]] detail::pipe_hold_description<Sync, basic_pipe_reservation<Sync>> reserve(
        std::size_t size) const noexcept {
        return {this->block(), size};
    }
    [[nodiscard]] result<basic_pipe_reservation<Sync>> try_reserve(std::size_t size) const noexcept {
        return detail::pipe_hold_operation<Sync, basic_pipe_reservation<Sync>>(reserve(size)).try_once();
    }

    /// Switches packet mode of this end. Errors: bad_file_descriptor.
    result<void> set_packets(bool on) noexcept {
        const int error =
            this->block() == nullptr ? EBADF : this->block()->channel->set_packets(*this->block(), on);
        if (error != 0)
            return fail_errno(error);
        return {};
    }

    /// One more writer of the same channel, in the same mode. Errors: bad_file_descriptor; not_enough_memory.
    [[nodiscard]] result<basic_pipe_channel_writer> duplicate() const noexcept {
        return this->another().map([](auto* end) { return basic_pipe_channel_writer(end); });
    }

private:
    friend struct basic_pipe_channel<Sync>;
    using detail::pipe_channel_end<Sync>::pipe_channel_end;
};

/// Both ends of a fresh channel.
template <class Sync>
struct basic_pipe_channel {
    using reader_type = basic_pipe_channel_reader<Sync>;
    using writer_type = basic_pipe_channel_writer<Sync>;
    using reservation = basic_pipe_reservation<Sync>;
    using peek = basic_pipe_peek<Sync>;

    reader_type reader;
    writer_type writer;

    /// Errors: invalid_argument: a capacity above 2 GiB; operation_not_permitted: above the limit; not_enough_memory.
    [[nodiscard]] static result<basic_pipe_channel> create(pipe_channel_options options = {}) noexcept {
        long error = 0;
        auto* core = detail::pipe_core<Sync>::create(options.capacity, options.capacity_limit, error);
        if (core == nullptr)
            return fail_errno(static_cast<int>(-error));
        core->first_writer.packets = options.packets;
        return basic_pipe_channel{reader_type(&core->first_reader), writer_type(&core->first_writer)};
    }
};

/// One side of a conversation: what it reads the other has written, and the other way round. A reader and a writer at once.
template <class Sync>
struct basic_pipe_duplex {
    basic_pipe_channel_reader<Sync> in;
    basic_pipe_channel_writer<Sync> out;

    [[nodiscard]] auto read(const std::span<std::byte>& buffer) const noexcept { return in.read(buffer); }
    [[nodiscard]] auto write(const std::span<const std::byte>& data) const noexcept {
        return out.write(data);
    }
    [[nodiscard]] auto write(std::string_view text) const noexcept { return out.write(text); }

    /// Two sides, joined by two channels. Errors: as basic_pipe_channel::create.
    [[nodiscard]] static result<std::pair<basic_pipe_duplex, basic_pipe_duplex>> create(
        pipe_channel_options options = {}) noexcept {
        auto there = basic_pipe_channel<Sync>::create(options);
        if (!there)
            return fail(there.error());
        auto back = basic_pipe_channel<Sync>::create(options);
        if (!back)
            return fail(back.error());
        return std::pair(basic_pipe_duplex{std::move(back->reader), std::move(there->writer)},
                         basic_pipe_duplex{std::move(there->reader), std::move(back->writer)});
    }
};

/// For any thread and any runtime.
using pipe_channel = basic_pipe_channel<detail::real_sync>;
using pipe_channel_reader = pipe_channel::reader_type;
using pipe_channel_writer = pipe_channel::writer_type;
using pipe_channel_duplex = basic_pipe_duplex<detail::real_sync>;

/// For one runtime: no lock, no atomic instruction.
using local_pipe_channel = basic_pipe_channel<detail::local_sync>;
using local_pipe_channel_reader = local_pipe_channel::reader_type;
using local_pipe_channel_writer = local_pipe_channel::writer_type;
using local_pipe_channel_duplex = basic_pipe_duplex<detail::local_sync>;

/// Moves up to `size` bytes from one channel into another without copying: slots change hands, packets stay packets. Waits
/// for data, then for room.
/// Returns: bytes moved; 0: end of stream (or a size of 0). Errors: broken_pipe; operation_canceled: nothing was moved;
/// invalid_argument: both ends are of one channel; bad_file_descriptor; not_enough_memory.
/// Borrows: both ends until it has begun. Resumes: on the awaiter's runtime.
template <class Sync>
[[nodiscard]] detail::pipe_move_description<Sync> splice(const basic_pipe_channel_reader<Sync>& from,
                                                         const basic_pipe_channel_writer<Sync>& to,
                                                         std::size_t size) noexcept {
    return {from.block(), to.block(), size, false};
}

/// Shares up to `size` bytes with another channel; `from` keeps them. Returns and errors as splice. Unlike the system call's,
/// a 0 is always the end of the stream.
template <class Sync>
[[nodiscard]] detail::pipe_move_description<Sync> tee(const basic_pipe_channel_reader<Sync>& from,
                                                      const basic_pipe_channel_writer<Sync>& to,
                                                      std::size_t size) noexcept {
    return {from.block(), to.block(), size, true};
}

/// Splice and tee without waiting, from any thread. Errors: also resource_unavailable_try_again.
template <class Sync>
[[nodiscard]] result<std::size_t> try_splice(const basic_pipe_channel_reader<Sync>& from,
                                             const basic_pipe_channel_writer<Sync>& to,
                                             std::size_t size) noexcept {
    return detail::pipe_move_operation<Sync>(splice(from, to, size)).try_once();
}
template <class Sync>
[[nodiscard]] result<std::size_t> try_tee(const basic_pipe_channel_reader<Sync>& from,
                                          const basic_pipe_channel_writer<Sync>& to,
                                          std::size_t size) noexcept {
    return detail::pipe_move_operation<Sync>(tee(from, to, size)).try_once();
}

NOWAIT_END_NAMESPACE
