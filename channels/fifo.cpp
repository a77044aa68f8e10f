// Opening by path, without ever waiting where nobody could stop it.
#include "present_system.hpp"

#include <nowait/fifo.hpp>

#include <cerrno>
#include <utility>

#include <fcntl.h>

NOWAIT_BEGIN_NAMESPACE

namespace {

using detail::file_info;
using detail::file_kind;
using detail::present_system;

/// A number that has no owner yet.
class opened {
public:
    opened(detail::system& calls, int number) noexcept : calls_(calls), number_(number) {}
    opened(const opened&) = delete;
    opened& operator=(const opened&) = delete;
    ~opened() {
        if (number_ >= 0)
            calls_.close(number_);
    }
    [[nodiscard]] int get() const noexcept { return number_; }
    int release() noexcept { return std::exchange(number_, -1); }
    void replace(int number) noexcept {
        if (number_ >= 0)
            calls_.close(number_);
        number_ = number;
    }

private:
    detail::system& calls_;
    int number_;
};

constexpr int always = O_NONBLOCK | O_NOCTTY;

bool is_name(const std::string& path) noexcept {
    return path.find('\0') == std::string::npos;
}

int writing_flags(const open_options& options) noexcept {
    return O_WRONLY | (options.create ? O_CREAT : 0) | (options.truncate ? O_TRUNC : 0) |
           (options.append ? O_APPEND : 0);
}

template <class End>
result<End> own(opened& number) {
    auto made = End::adopt(number.get());
    if (made)
        (void)number.release();
    return made;
}

/// The errno value of what is wrong with it, or 0.
int refusal(const file_info& info, const open_options& options) noexcept {
    if (info.kind == file_kind::directory)
        return EISDIR;
    return options.only_fifo && info.kind != file_kind::fifo ? EINVAL : 0;
}

} // namespace

result<void> make_fifo(const std::string& path, unsigned mode) {
    if (!is_name(path))
        return fail(std::errc::invalid_argument);
    if (const int error = present_system().make_fifo(path.c_str(), mode); error != 0)
        return fail_errno(-error);
    return {};
}

result<pipe_reader> open_reader(const std::string& path, open_options options) {
    if (!is_name(path))
        return fail(std::errc::invalid_argument);
    detail::system& calls = present_system();
    opened number(calls, calls.open(path.c_str(), O_RDONLY | always, 0));
    if (number.get() < 0)
        return fail_errno(-number.get());
    file_info info;
    if (const int error = calls.inspect(number.get(), info); error != 0)
        return fail_errno(-error);
    if (const int error = refusal(info, options); error != 0)
        return fail_errno(error);
    if (options.endless && info.kind == file_kind::fifo) {
        // By the path again: if it has become something else meanwhile, the caller is told.
        number.replace(calls.open(path.c_str(), O_RDWR | always, 0));
        if (number.get() < 0)
            return fail_errno(-number.get());
        file_info again;
        if (const int error = calls.inspect(number.get(), again); error != 0)
            return fail_errno(-error);
        if (again.device != info.device || again.inode != info.inode)
            return fail(std::errc::invalid_argument);
    }
    return own<pipe_reader>(number);
}

result<pipe_writer> try_open_writer(const std::string& path, open_options options) {
    if (!is_name(path))
        return fail(std::errc::invalid_argument);
    detail::system& calls = present_system();
    // What must be a FIFO is not to be truncated, nor made, by finding out that it is none.
    if (options.only_fifo)
        options.create = options.truncate = false;
    opened number(calls, calls.open(path.c_str(), writing_flags(options) | always, options.mode));
    if (number.get() < 0)
        return fail_errno(-number.get());
    file_info info;
    if (const int error = calls.inspect(number.get(), info); error != 0)
        return fail_errno(-error);
    if (const int error = refusal(info, options); error != 0)
        return fail_errno(error);
    return own<pipe_writer>(number);
}

NOWAIT_END_NAMESPACE
