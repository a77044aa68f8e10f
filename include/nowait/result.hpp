// The error vocabulary: result<T>, progress and the few codes the library itself produces.
#pragma once

#include <nowait/config.hpp>

#include <cstddef>
#include <system_error>

#include <tl/expected.hpp>

NOWAIT_BEGIN_NAMESPACE

/// A value, or the error that stood in its way. Every code is of std::generic_category: an errno value.
template <class T>
using result = tl::expected<T, std::error_code>;

/// The error side of a result: `return fail(std::errc::bad_file_descriptor);`
[[nodiscard]] inline tl::unexpected<std::error_code> fail(std::errc code) noexcept {
    return tl::unexpected<std::error_code>(std::make_error_code(code));
}

[[nodiscard]] inline tl::unexpected<std::error_code> fail(std::error_code code) noexcept {
    return tl::unexpected<std::error_code>(code);
}

/// The error side of a result from a positive errno value.
[[nodiscard]] inline tl::unexpected<std::error_code> fail_errno(int code) noexcept {
    return tl::unexpected<std::error_code>(std::error_code(code, std::generic_category()));
}

/// What an algorithm of several steps has done, exact also when it ended with an error.
///
/// `bytes` were moved and will not be moved again; `error` is empty when the whole job was done. For reading algorithms
/// a stream that ended early is no error: fewer bytes than asked for and no error means end of stream.
struct [[nodiscard]] progress {
    std::size_t bytes = 0;
    std::error_code error{};

    [[nodiscard]] bool ok() const noexcept { return !error; }
    explicit operator bool() const noexcept { return ok(); }
};

NOWAIT_END_NAMESPACE
