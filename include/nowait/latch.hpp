// A count that falls to zero once.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/gate.hpp>
#include <nowait/result.hpp>

#include <cstddef>

NOWAIT_BEGIN_NAMESPACE

/// Waits for `count` things to have happened, wherever they happen. Once at zero it stays there.
///
/// `latch` is for any threads and runtimes, `local_latch` for one runtime, without a lock.
/// Borrows: the latch outlives those who wait for it.
template <class Sync>
class basic_latch {
public:
    explicit basic_latch(std::size_t count) noexcept : core_(count) {}
    basic_latch(const basic_latch&) = delete;
    basic_latch& operator=(const basic_latch&) = delete;

    /// Errors: invalid_argument: more than are left, and nothing has changed.
    result<void> count_down(std::size_t n = 1) noexcept {
        if (const int code = core_.lower(n); code != 0)
            return fail_errno(code);
        return {};
    }
    /// What is left.
    [[nodiscard]] std::size_t count() const noexcept { return core_.count(); }

    /// Waits for zero. Errors: operation_canceled; operation_not_permitted: a local one, and another runtime's tasks wait
    /// for it. Resumes: on the awaiter's runtime.
    [[nodiscard]] detail::gate_wait_description<Sync> wait() noexcept { return {&core_}; }
    /// The same without waiting. Errors: resource_unavailable_try_again: something is left.
    [[nodiscard]] result<void> try_wait() const noexcept {
        if (count() != 0)
            return fail(std::errc::resource_unavailable_try_again);
        return {};
    }

private:
    detail::gate_core<Sync> core_;
};

using latch = basic_latch<detail::real_sync>;
using local_latch = basic_latch<detail::local_sync>;

NOWAIT_END_NAMESPACE
