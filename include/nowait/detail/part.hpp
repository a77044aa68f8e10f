// How one part of a composed operation came out.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/exceptions.hpp>

#include <exception>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

NOWAIT_BEGIN_NAMESPACE

/// A value of type V, or the exception that stood in its way.
template <class V>
class part {
    using kept = std::conditional_t<
        std::is_void_v<V>, std::monostate,
        std::conditional_t<std::is_reference_v<V>, std::reference_wrapper<std::remove_reference_t<V>>, V>>;

public:
    [[nodiscard]] bool threw() const noexcept { return static_cast<bool>(exception_); }
    [[nodiscard]] std::exception_ptr exception() const noexcept { return exception_; }

    /// The value. Throws what the part threw.
    std::add_lvalue_reference_t<V> value() {
        if (exception_) [[unlikely]]
            std::rethrow_exception(exception_);
        if constexpr (!std::is_void_v<V>)
            return *value_;
    }

    /// For the library: takes the result of an operation that has ended.
    template <class Operation>
    explicit part(Operation& ended) {
        NOWAIT_TRY {
            if constexpr (std::is_void_v<V>) {
                ended.take_result();
                value_.emplace();
            } else {
                value_.emplace(ended.take_result());
            }
        }
        NOWAIT_CATCH_ALL {
            exception_ = std::current_exception();
        }
    }
    part() = default;

private:
    std::optional<kept> value_;
    std::exception_ptr exception_;
};

NOWAIT_END_NAMESPACE
