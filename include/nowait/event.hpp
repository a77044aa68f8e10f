// Something that happens, and stays so until it is taken back.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/gate.hpp>
#include <nowait/result.hpp>

NOWAIT_BEGIN_NAMESPACE

/// Set or not. While it is set nobody waits; setting it wakes all who do, in their order. A waiter that was woken has seen it
/// set, even if it is reset before the waiter runs.
///
/// `event` is for any threads and runtimes, `local_event` for one runtime, without a lock.
/// Borrows: the event outlives those who wait for it.
template <class Sync>
class basic_event {
public:
    explicit basic_event(bool set = false) noexcept : core_(set ? 0 : 1) {}
    basic_event(const basic_event&) = delete;
    basic_event& operator=(const basic_event&) = delete;

    void set() noexcept { core_.set_count(0); }
    void reset() noexcept { core_.set_count(1); }
    [[nodiscard]] bool is_set() const noexcept { return core_.count() == 0; }

    /// Waits until it is set. Errors: operation_canceled; operation_not_permitted: a local one, and another runtime's tasks
    /// wait for it. Resumes: on the awaiter's runtime.
    [[nodiscard]] detail::gate_wait_description<Sync> wait() noexcept { return {&core_}; }
    /// The same without waiting. Errors: resource_unavailable_try_again: it is not set.
    [[nodiscard]] result<void> try_wait() const noexcept {
        if (!is_set())
            return fail(std::errc::resource_unavailable_try_again);
        return {};
    }

private:
    detail::gate_core<Sync> core_;
};

using event = basic_event<detail::real_sync>;
using local_event = basic_event<detail::local_sync>;

NOWAIT_END_NAMESPACE
