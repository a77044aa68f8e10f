// A number of permits that tasks wait for.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/gate.hpp>
#include <nowait/result.hpp>

#include <cstddef>
#include <utility>

NOWAIT_BEGIN_NAMESPACE

/// Permits that are held: given back by the destructor. Movable; an empty one holds nothing.
/// Borrows: the semaphore (or mutex) that gave them. The shared form may be released on any thread.
template <class Sync>
class [[nodiscard]] basic_permit {
public:
    basic_permit() = default;
    basic_permit(basic_permit&& other) noexcept
        : of_(std::exchange(other.of_, nullptr)), count_(std::exchange(other.count_, 0)) {}
    basic_permit& operator=(basic_permit&& other) noexcept {
        if (this != &other) {
            release();
            of_ = std::exchange(other.of_, nullptr);
            count_ = std::exchange(other.count_, 0);
        }
        return *this;
    }
    ~basic_permit() { release(); }

    [[nodiscard]] bool owns() const noexcept { return of_ != nullptr; }
    [[nodiscard]] std::size_t count() const noexcept { return count_; }

    /// Gives them back before the destructor does it.
    void release() noexcept {
        if (of_ != nullptr) // cannot overflow: they were taken from there
            static_cast<void>(std::exchange(of_, nullptr)->give(std::exchange(count_, 0)));
    }
    /// Keeps them without this object: somebody else will call release() of the semaphore, or unlock() of the mutex.
    void keep() noexcept {
        of_ = nullptr;
        count_ = 0;
    }

    /// For the library.
    basic_permit(detail::permit_core<Sync>& of, std::size_t count) noexcept : of_(&of), count_(count) {}

private:
    detail::permit_core<Sync>* of_ = nullptr;
    std::size_t count_ = 0;
};

namespace detail {

template <class Sync>
class acquire_operation;

template <class Sync>
struct acquire_description {
    using operation = acquire_operation<Sync>;
    using value_type = result<basic_permit<Sync>>;

    permit_core<Sync>* of;
    std::size_t wanted = 1;
    unsigned urgency = 0;

    /// The same with a place before all who wait with less urgency. The default is 0.
    [[nodiscard]] acquire_description with_urgency(unsigned most_first) const noexcept {
        return {of, wanted, most_first};
    }
};

template <class Sync>
class acquire_operation final : public gate_operation<acquire_operation<Sync>, permit_waiter> {
    using base = gate_operation<acquire_operation<Sync>, permit_waiter>;

public:
    explicit acquire_operation(const acquire_description<Sync>& what) noexcept
        : base(what.wanted, what.urgency), core_(what.of) {}
    ~acquire_operation() {
        if (!taken_ && this->abandoned_with_result())
            static_cast<void>(core_->give(this->wanted)); // passes on
    }

    [[nodiscard]] int enter() noexcept { return core_->enter(*this); }
    [[nodiscard]] bool withdraw() noexcept { return core_->withdraw(*this); }
    [[nodiscard]] result<basic_permit<Sync>> take_result() noexcept {
        taken_ = true;
        if (this->code != 0)
            return fail_errno(this->code);
        return basic_permit<Sync>(*core_, this->wanted);
    }

private:
    permit_core<Sync>* core_;
    bool taken_ = false;
};

} // namespace detail

/// Permits, first come first served: whoever waits is served before anybody who comes later, also if the later one wants
/// less. Waiters with more urgency (`acquire(n).with_urgency(u)`) come first, and in their order among themselves.
///
/// A permit that becomes free is given to the first waiter before that runs, so nobody barges in. A waiter that is stopped
/// after it was given the permit gets it (and gives it back by leaving); one whose frame is destroyed passes it on.
///
/// `semaphore` is for any threads and runtimes, `wait(s.acquire())` of a plain thread included; `local_semaphore` for one
/// runtime, without a lock. Neither allocates.
/// Borrows: the semaphore outlives its permits and those who wait for it.
template <class Sync>
class basic_semaphore {
public:
    using permit = basic_permit<Sync>;

    explicit basic_semaphore(std::size_t permits) noexcept : core_(permits) {}
    basic_semaphore(const basic_semaphore&) = delete;
    basic_semaphore& operator=(const basic_semaphore&) = delete;

    /// Waits for `n` permits at once. Returns: them. Errors: operation_canceled: none was taken, and the place in the line is
    /// given up; invalid_argument: n is 0; operation_not_permitted: a local one, and another runtime's tasks wait in it.
    /// More than there will ever be waits until it is stopped. Resumes: on the awaiter's runtime.
    [[nodiscard]] detail::acquire_description<Sync> acquire(std::size_t n = 1) noexcept {
        return {&core_, n};
    }
    /// The same without waiting. Errors: resource_unavailable_try_again: too few, or somebody waits already; invalid_argument.
    [[nodiscard]] result<permit> try_acquire(std::size_t n = 1) noexcept {
        if (const int code = core_.try_take(n); code != 0)
            return fail_errno(code);
        return permit(core_, n);
    }
    /// Adds permits, those that somebody kept or new ones. Errors: value_too_large: more than a size_t counts.
    result<void> release(std::size_t n = 1) noexcept {
        if (const int code = core_.give(n); code != 0)
            return fail_errno(code);
        return {};
    }

    [[nodiscard]] std::size_t available() const noexcept { return core_.available(); }
    /// True if somebody waits.
    [[nodiscard]] bool contended() const noexcept { return core_.contended(); }

private:
    detail::permit_core<Sync> core_;
};

using semaphore = basic_semaphore<detail::real_sync>;
using local_semaphore = basic_semaphore<detail::local_sync>;

NOWAIT_END_NAMESPACE
