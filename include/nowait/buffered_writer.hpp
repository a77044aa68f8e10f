// Many small writes made into few: a buffer in front of a stream, emptied by size, by time, and by hand.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/exceptions.hpp>
#include <nowait/detail/timer.hpp>
#include <nowait/detail/transfer_all.hpp>
#include <nowait/io.hpp>
#include <nowait/result.hpp>
#include <nowait/runtime.hpp>
#include <nowait/sleep.hpp>
#include <nowait/stop.hpp>
#include <nowait/task.hpp>
#include <nowait/timeout.hpp>
#include <nowait/write_lock.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

NOWAIT_BEGIN_NAMESPACE

struct buffered_writer_options {
    std::size_t capacity = std::size_t{16} * 1024;
    /// The longest that a byte stays in the buffer; counted from the first one. Zero: until there is no room, or flush().
    std::chrono::nanoseconds flush_after{0};
};

/// Bytes that buffered writers of this process have been destroyed with: nobody flushed or closed them. Any thread.
[[nodiscard]] NOWAIT_API std::uint64_t bytes_lost_in_buffers() noexcept;

namespace detail {

NOWAIT_API void count_lost_bytes(std::size_t bytes) noexcept;

/// What a buffered writer shares with the task that flushes it by time.
///
/// Bytes [begin, end) wait to be written. `lock` is held by whoever writes to the stream, so the order of bytes is the order in
/// which writers came; small writes may add to the end meanwhile, unless a larger one waits (`large` of them do): they
/// would pass it. Bytes are moved to the front only when there are none, so a write in progress never loses its place.
template <class Writer>
struct write_buffer {
    write_buffer(Writer& to, buffered_writer_options with)
        : writer(&to), bytes(with.capacity), options(with) {}

    Writer* writer;
    std::vector<std::byte> bytes;
    buffered_writer_options options;
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t large = 0;
    std::error_code error; // sticky: what came after the failed write cannot follow it
    bool closed = false;
    bool orphaned = false; // the buffered writer has gone, and perhaps the stream with it
    bool timed = false;    // the flushing task is there
    clock::time_point due{};
    inplace_stop_source stop; // of the flushing task
    write_lock lock;

    [[nodiscard]] std::size_t held() const noexcept { return end - begin; }
    [[nodiscard]] std::size_t room() const noexcept { return bytes.size() - end; }

    void append(std::span<const std::byte> data) noexcept {
        std::memcpy(bytes.data() + end, data.data(), data.size());
        end += data.size();
    }
    [[nodiscard]] std::error_code refusal() const noexcept {
        return closed ? std::make_error_code(std::errc::bad_file_descriptor) : error;
    }
    void failed(std::error_code code) noexcept {
        if (code != std::errc::operation_canceled)
            error = code;
    }
};

/// Writes at least what the buffer holds now. The lock is held. Done or untouched at each step: what an error or a stop leaves
/// is still in the buffer.
template <class Writer>
task<result<void>> drain(write_buffer<Writer>& buffer, inplace_stop_token stop) {
    for (std::size_t goal = buffer.held(); goal != 0;) {
        const std::span<const std::byte> data(buffer.bytes.data() + buffer.begin, buffer.held());
        auto step = with_stop(transfer_step(*buffer.writer, data), stop);
        result<std::size_t> written = co_await std::move(step);
        if (written && *written == 0)
            written = fail(std::errc::io_error);
        if (!written) {
            buffer.failed(written.error());
            co_return fail(written.error());
        }
        goal -= std::min(goal, *written);
        buffer.begin += *written;
        if (buffer.begin == buffer.end)
            buffer.begin = buffer.end = 0;
        if (buffer.orphaned)
            co_return fail(std::errc::operation_canceled);
    }
    co_return result<void>{};
}

template <class Writer>
task<result<void>> flush_buffer(write_buffer<Writer>& buffer) {
    const auto turn = co_await buffer.lock.acquire();
    if (!turn)
        co_return fail(turn.error());
    if (buffer.error)
        co_return fail(buffer.error);
    const result<void> drained = co_await drain(buffer, inplace_stop_token());
    co_return drained;
}

template <class Writer>
task<result<void>> close_buffer(write_buffer<Writer>& buffer) {
    if (buffer.closed)
        co_return fail(std::errc::bad_file_descriptor);
    result<void> flushed;
    do {
        flushed = co_await flush_buffer(buffer);
        if (!flushed && flushed.error() == std::errc::operation_canceled)
            co_return flushed; // still open: the bytes are there
    } while (flushed && buffer.held() != 0); // somebody has written meanwhile
    buffer.closed = true;
    buffer.stop.request_stop();
    co_return flushed;
}

/// A write that the buffer has no room for at this moment.
template <class Writer>
task<result<std::size_t>> write_large(write_buffer<Writer>& buffer, std::span<const std::byte> data) {
    struct presence {
        explicit presence(std::size_t& of) noexcept : count(of) { ++count; }
        ~presence() { --count; }
        presence(const presence&) = delete;
        presence& operator=(const presence&) = delete;
        std::size_t& count;
    } const counted(buffer.large);
    const auto turn = co_await buffer.lock.acquire();
    if (!turn)
        co_return fail(turn.error());
    if (const std::error_code refused = buffer.refusal())
        co_return fail(refused);
    if (data.size() > buffer.room()) {
        const result<void> drained = co_await drain(buffer, inplace_stop_token());
        if (!drained)
            co_return fail(drained.error());
    }
    if (data.size() <= buffer.room()) {
        buffer.append(data);
        co_return data.size();
    }
    // More than the buffer could ever hold: no copy. May be short, as every write.
    const result<std::size_t> written = co_await transfer_step(*buffer.writer, data);
    if (!written)
        buffer.failed(written.error());
    co_return written;
}

/// Flushes when the oldest byte has waited long enough; ends when there is nothing to wait for. It counts as a task of its
/// runtime: run() does not return while bytes wait for their time.
template <class Writer>
task<void> flush_in_time(std::shared_ptr<write_buffer<Writer>> buffer) {
    while (buffer->held() != 0 && !buffer->orphaned && !buffer->error) {
        auto wait = with_stop(sleep_until(buffer->due), buffer->stop.get_token());
        const result<void> slept = co_await std::move(wait);
        if (!slept || buffer->orphaned)
            break;
        if (clock::now() < buffer->due)
            continue; // flushed meanwhile, and filled again
        auto entry = with_stop(buffer->lock.acquire(), buffer->stop.get_token());
        const result<write_lock::guard> turn = co_await std::move(entry);
        if (!turn || buffer->orphaned)
            break;
        const result<void> drained = co_await drain(*buffer, buffer->stop.get_token());
        if (!drained)
            break;
    }
    buffer->timed = false;
}

template <class Writer>
struct buffered_write_description;

/// Ends inline when the bytes fit; otherwise a task waits for room.
template <class Writer>
class buffered_write_operation final : public operation_base {
public:
    explicit buffered_write_operation(const buffered_write_description<Writer>& what) noexcept
        : buffer_(*what.buffer), data_(what.data) {}

    [[nodiscard]] bool start() noexcept {
        std::error_code refused = (*buffer_).refusal();
        if (stop_requested())
            refused = std::make_error_code(std::errc::operation_canceled);
        else if (data_.data() == nullptr && !data_.empty())
            refused = std::make_error_code(std::errc::bad_address);
        if (refused || data_.empty()) {
            value_ = refused ? result<std::size_t>(fail(refused)) : result<std::size_t>(std::size_t{0});
            return true;
        }
        NOWAIT_TRY {
            // Before any byte is taken: if there is no memory for it, nothing has happened.
            if (buffer_->held() == 0)
                start_clock();
            if (buffer_->large != 0 || data_.size() > buffer_->room()) {
                slow_.emplace(write_large(*buffer_, data_));
                slow_->bind(home(), stop_source(), &slow_ended, this);
                return slow_->start();
            }
        }
        NOWAIT_CATCH(std::bad_alloc) {
            value_ = fail(std::errc::not_enough_memory);
            return true;
        }
        buffer_->append(data_);
        value_ = data_.size();
        home().charge(data_.size());
        if (home().budget >= 0)
            return true;
        complete_later();
        return false;
    }
    void cancel() noexcept {
        if (slow_)
            slow_->cancel();
    }
    [[nodiscard]] result<std::size_t> take_result() { return slow_ ? slow_->take_result() : value_; }

private:
    void start_clock() {
        const auto span = buffer_->options.flush_after;
        if (span <= std::chrono::nanoseconds::zero())
            return;
        buffer_->due = deadline_after(home().now(), span);
        if (buffer_->timed || data_.size() > buffer_->bytes.size())
            return;
        (void)spawn_on(home(), flush_in_time(buffer_), new join_state<void>);
        buffer_->timed = true;
    }
    static void slow_ended(operation_base& slow) noexcept {
        static_cast<buffered_write_operation*>(slow.context())->complete();
    }

    const std::shared_ptr<write_buffer<Writer>>& buffer_; // the buffered writer's: for start() only
    std::span<const std::byte> data_;
    result<std::size_t> value_ = std::size_t{0};
    std::optional<task_operation<result<std::size_t>>> slow_;
};

template <class Writer>
struct buffered_write_description {
    using operation = buffered_write_operation<Writer>;
    using value_type = result<std::size_t>;
    const std::shared_ptr<write_buffer<Writer>>* buffer;
    std::span<const std::byte> data;
};

} // namespace detail

/// A writer (see async_writer) that collects what is written to it.
///
/// What it has accepted is written when there is no room for more, when the first byte has waited for
/// options.flush_after, by flush(), and by close(). close() it: the destructor cannot wait, so what is still in the buffer then
/// is lost, and counted by bytes_lost_in_buffers(); no other writer of the stream sees a trace of it. An error
/// of the stream is sticky: every later write, flush and close reports it, and unflushed() says how many bytes are affected.
///
/// Several tasks may write: their bytes follow each other in the order of the calls, each write of up to the capacity whole.
/// Borrows: the stream, which stays where it is, until this object's end. For one runtime's thread. Throws: std::bad_alloc from the constructor.
template <async_writer Writer>
class buffered_writer {
public:
    explicit buffered_writer(Writer& to, buffered_writer_options options = {})
        : buffer_(std::make_shared<detail::write_buffer<Writer>>(to, options)) {}
    buffered_writer(buffered_writer&&) noexcept = default;
    buffered_writer& operator=(buffered_writer&&) = delete;
    ~buffered_writer() {
        if (buffer_ == nullptr)
            return;
        detail::count_lost_bytes(buffer_->held());
        buffer_->closed = buffer_->orphaned = true;
        buffer_->stop
            .request_stop(); // the flushing task lets go of the stream, and keeps the memory until then
    }

    /// Accepts `data`: at once if it fits the room that is left, else after the buffer has been written. More than the
    /// capacity goes to the stream directly.
    /// Returns: bytes accepted: all of `data` if it is not larger than the capacity. Errors: those of the stream, now or
    /// before; operation_canceled: nothing of `data` was accepted; bad_file_descriptor: closed; bad_address: null data;
    /// not_enough_memory. Borrows: this object and `data` until the await ends. Resumes: on the awaiter's runtime.
    [[nodiscard]] detail::buffered_write_description<Writer> write(std::span<const std::byte> data) noexcept {
        return {&buffer_, data};
    }
    [[nodiscard]] detail::buffered_write_description<Writer> write(std::string_view text) noexcept {
        return {&buffer_, std::as_bytes(std::span(text))};
    }

    /// Waits until the stream has taken everything that was accepted before.
    /// Errors: those of the stream, now or before; operation_canceled: see unflushed(), it may be called again.
    /// Borrows: this object until the await ends. Resumes: on the awaiter's runtime.
    [[nodiscard]] task<result<void>> flush() { return detail::flush_buffer(*buffer_); }

    /// flush(), then refuses further writes. The stream itself stays open: it is not this object's.
    /// Errors: as flush(), the writer is closed all the same; operation_canceled: it is not closed; bad_file_descriptor: it was.
    [[nodiscard]] task<result<void>> close() { return detail::close_buffer(*buffer_); }

    /// Bytes accepted that the stream has not taken yet.
    [[nodiscard]] std::size_t unflushed() const noexcept { return buffer_->held(); }
    /// The error that stopped it, if any.
    [[nodiscard]] std::error_code error() const noexcept { return buffer_->error; }

private:
    std::shared_ptr<detail::write_buffer<Writer>> buffer_;
};

NOWAIT_END_NAMESPACE
