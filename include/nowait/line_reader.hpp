// Lines of a stream, with a limit to their length.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/exceptions.hpp>
#include <nowait/detail/loop.hpp>
#include <nowait/detail/operation.hpp>
#include <nowait/detail/transfer_all.hpp>
#include <nowait/io.hpp>
#include <nowait/result.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

NOWAIT_BEGIN_NAMESPACE

struct line_options {
    /// Bytes of a line, its end not counted.
    std::size_t max_length = std::size_t{64} * 1024;
    /// A carriage return before the newline belongs to the line's end.
    bool crlf = false;
};

namespace detail {

/// The buffer of a line reader, and what is known of it. Bytes [begin, end) have been read and not handed out.
class line_buffer {
public:
    explicit line_buffer(line_options options) noexcept : options_(options) {}

    enum class found : unsigned char { line, too_long, nothing };

    /// Looks for the next line among the bytes that are here.
    [[nodiscard]] found next(std::string_view& line) noexcept {
        while (const std::byte* newline = find_newline()) {
            const std::byte* text = bytes_.data() + begin_;
            auto length = static_cast<std::size_t>(newline - text);
            begin_ += length + 1;
            searched_ = begin_;
            if (std::exchange(skipping_, false))
                continue; // the end of a line that was reported as too long
            if (options_.crlf && length != 0 && text[length - 1] == std::byte{'\r'})
                --length;
            terminated_ = true;
            if (length > options_.max_length)
                return found::too_long;
            line = {reinterpret_cast<const char*>(text), length};
            return found::line;
        }
        searched_ = end_;
        if (skipping_) {
            begin_ = end_;
        } else if (end_ - begin_ > longest()) {
            skipping_ = true;
            begin_ = end_;
            return found::too_long;
        }
        return found::nothing;
    }

    /// What is left when the stream has ended: a last line without its newline.
    [[nodiscard]] found last(std::string_view& line) noexcept {
        const std::size_t length = end_ - begin_;
        if (std::exchange(skipping_, false) || length == 0)
            return found::nothing;
        line = {reinterpret_cast<const char*>(bytes_.data() + begin_), length};
        begin_ = searched_ = end_;
        terminated_ = false;
        return length > options_.max_length ? found::too_long : found::line;
    }

    /// Room for more. Empty: no memory.
    [[nodiscard]] std::span<std::byte> room() noexcept {
        if (begin_ != 0) {
            std::copy(bytes_.begin() + offset(begin_), bytes_.begin() + offset(end_), bytes_.begin());
            searched_ -= begin_;
            end_ -= begin_;
            begin_ = 0;
        }
        if (end_ == bytes_.size()) {
            // Doubles up to what shows that a line is too long: next() never leaves the buffer full at that size.
            const std::size_t most = std::max(longest() + 1, smallest);
            NOWAIT_TRY {
                bytes_.resize(std::clamp(bytes_.size() * 2, smallest, most));
            }
            NOWAIT_CATCH(std::bad_alloc) {
                return {};
            }
        }
        return std::span(bytes_).subspan(end_);
    }
    void filled(std::size_t bytes) noexcept { end_ += bytes; }

    [[nodiscard]] std::span<const std::byte> held() const noexcept {
        return std::span(bytes_).subspan(begin_, end_ - begin_);
    }
    [[nodiscard]] bool terminated() const noexcept { return terminated_; }

    bool busy = false;

private:
    static constexpr std::size_t smallest = 4096;

    [[nodiscard]] static std::ptrdiff_t offset(std::size_t n) noexcept {
        return static_cast<std::ptrdiff_t>(n);
    }
    /// Unfinished lines up to here may still be short enough: their last byte may be the carriage return of the end.
    [[nodiscard]] std::size_t longest() const noexcept {
        constexpr std::size_t absurd = std::size_t{1} << 62;
        return std::min(options_.max_length, absurd) + (options_.crlf ? 1 : 0);
    }
    [[nodiscard]] const std::byte* find_newline() const noexcept {
        if (searched_ == end_)
            return nullptr;
        return static_cast<const std::byte*>(std::memchr(bytes_.data() + searched_, '\n', end_ - searched_));
    }

    line_options options_;
    std::vector<std::byte> bytes_;
    // begin_ <= searched_ <= end_ <= bytes_.size(); there is no newline in [begin_, searched_).
    std::size_t begin_ = 0;
    std::size_t searched_ = 0;
    std::size_t end_ = 0;
    bool skipping_ = false; // the bytes to the next newline belong to a line that was too long
    bool terminated_ = false;
};

template <class Reader>
struct next_line_description;

template <class Reader>
class next_line_operation final : public operation_base {
    using step_description =
        decltype(transfer_step(std::declval<Reader&>(), std::declval<std::span<std::byte>>()));

public:
    using value = std::optional<std::string_view>;

    explicit next_line_operation(const next_line_description<Reader>& what) noexcept
        : reader_(what.reader), buffer_(what.buffer) {}
    ~next_line_operation() {
        if (entered_)
            buffer_->busy = false;
    }

    [[nodiscard]] bool start() noexcept {
        if (stop_requested()) {
            value_ = fail(std::errc::operation_canceled);
            return true;
        }
        if (buffer_->busy) {
            value_ = fail(std::errc::device_or_resource_busy);
            return true;
        }
        entered_ = buffer_->busy = true;
        if (!look()) {
            reads_ = true;
            return advance();
        }
        home().charge(0);
        if (home().budget >= 0)
            return true;
        complete_later(); // lines that are here already are no reason to keep the others waiting
        return false;
    }
    void cancel() noexcept {
        cancelled_ = true;
        if (reads_)
            step_->cancel();
    }
    [[nodiscard]] result<value> take_result() {
        if (thrown_)
            std::rethrow_exception(std::move(thrown_));
        return value_;
    }

private:
    /// True: there is something to report.
    [[nodiscard]] bool look() noexcept {
        std::string_view line;
        return report(buffer_->next(line), line);
    }
    [[nodiscard]] bool report(line_buffer::found found, std::string_view line) noexcept {
        if (found == line_buffer::found::nothing)
            return false;
        if (found == line_buffer::found::line)
            value_ = value(line);
        else
            value_ = fail(std::errc::message_size);
        return true;
    }

    [[nodiscard]] bool advance() noexcept {
        for (;;) {
            const std::span<std::byte> room = buffer_->room();
            if (room.empty()) {
                value_ = fail(std::errc::not_enough_memory);
                return true;
            }
            NOWAIT_TRY {
                step_.emplace(transfer_step(*reader_, room));
            }
            NOWAIT_CATCH_ALL {
                thrown_ = std::current_exception();
                return true;
            }
            step_->bind(home(), stop_source(), &step_ended, this);
            if (!step_->start())
                return false;
            if (take_step())
                return true;
        }
    }
    static void step_ended(operation_base& step) noexcept {
        auto& self = *static_cast<next_line_operation*>(step.context());
        if (self.take_step() || self.advance())
            self.complete();
    }
    [[nodiscard]] bool take_step() noexcept {
        result<std::size_t> got = fail(std::errc::io_error);
        NOWAIT_TRY {
            got = step_->take_result();
        }
        NOWAIT_CATCH_ALL {
            thrown_ = std::current_exception();
            return true;
        }
        if (!got) {
            value_ = fail(got.error());
            return true;
        }
        if (*got == 0) {
            std::string_view line;
            if (!report(buffer_->last(line), line))
                value_ = value();
            return true;
        }
        buffer_->filled(*got);
        if (look())
            return true;
        if (cancelled_) {
            value_ = fail(std::errc::operation_canceled); // what was read is in the buffer
            return true;
        }
        return false;
    }

    Reader* reader_;
    line_buffer* buffer_;
    result<value> value_ = fail(std::errc::operation_canceled);
    bool entered_ = false;
    bool reads_ = false;
    bool cancelled_ = false;
    std::exception_ptr thrown_;
    std::optional<operation_for_t<step_description>> step_;
};

template <class Reader>
struct next_line_description {
    using operation = next_line_operation<Reader>;
    using value_type = result<std::optional<std::string_view>>;
    Reader* reader;
    line_buffer* buffer;
};

} // namespace detail

/// Reads a stream line by line.
///
///     nowait::line_reader lines(reader);
///     for (;;) {
///         auto line = co_await lines.next();
///         if (!line || !*line)
///             break;                       // an error, or the end
///         use(**line);
///     }
///
/// Borrows: the reader, which stays where it is, for as long as this object is used.
template <async_reader Reader>
class line_reader {
public:
    explicit line_reader(Reader& from, line_options options = {}) noexcept
        : reader_(&from), buffer_(options) {}

    /// Returns: the next line without its end; an empty optional at the end of the stream. The last line needs no newline. Valid
    /// until the next call of next(), or this object's end.
    /// Errors: message_size: the line is longer than the limit: it is dropped whole, and the next call goes on with the line
    /// after it; operation_canceled, and those of the reader: what was read before stays, the call may be repeated;
    /// device_or_resource_busy: another next() waits; not_enough_memory. Throws: what the reader throws.
    /// Borrows: this object until the await ends. Resumes: on the awaiter's runtime.
    [[nodiscard]] detail::next_line_description<Reader> next() noexcept { return {reader_, &buffer_}; }

    /// Whether the line that came last ended with a newline: false only for a last line without one.
    [[nodiscard]] bool terminated() const noexcept { return buffer_.terminated(); }
    /// What has been read from the stream beyond the lines handed out: for those who go on with another protocol.
    [[nodiscard]] std::span<const std::byte> buffered() const noexcept { return buffer_.held(); }

private:
    Reader* reader_;
    detail::line_buffer buffer_;
};

NOWAIT_END_NAMESPACE
