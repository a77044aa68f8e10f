// Several things at once, in one await, without a coroutine for each.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/loop.hpp>
#include <nowait/detail/operation_array.hpp>
#include <nowait/detail/part.hpp>
#include <nowait/result.hpp>
#include <nowait/stop.hpp>
#include <nowait/task.hpp>

#include <cstddef>
#include <exception>
#include <optional>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

template <class T>
using void_to_monostate = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

template <class Operation>
auto take_or_monostate(Operation& from) {
    if constexpr (std::is_void_v<decltype(from.take_result())>) {
        from.take_result();
        return std::monostate{};
    } else {
        return from.take_result();
    }
}

template <class... A>
struct when_all_description;

template <class... A>
class when_all_operation final : public operation_base {
public:
    explicit when_all_operation(when_all_description<A...>&& what)
        : when_all_operation(std::move(what), std::index_sequence_for<A...>{}) {}

    [[nodiscard]] bool start() noexcept {
        left_ = sizeof...(A) + 1; // one for this function: an end that comes early must not complete
        std::apply([this](auto&... each) { (this->start_one(each.operation), ...); }, slots_);
        return --left_ == 0;
    }
    void cancel() noexcept {} // the stop source is shared with every part
    std::tuple<void_to_monostate<value_for_t<A>>...> take_result() {
        // Every result is taken, in order; an exception of an earlier part wins, the later ones are dropped.
        return std::apply(
            [](auto&... each) {
                return std::tuple<void_to_monostate<value_for_t<A>>...>{take_or_monostate(each.operation)...};
            },
            slots_);
    }

private:
    template <class Part>
    struct slot {
        explicit slot(Part&& what) : operation(std::move(what)) {}
        operation_for_t<Part> operation;
    };

    template <std::size_t... I>
    when_all_operation(when_all_description<A...>&& what, std::index_sequence<I...>)
        : slots_(std::get<I>(std::move(what.parts))...) {}

    template <class Operation>
    void start_one(Operation& one) noexcept {
        one.bind(home(), stop_source(), &part_ended, this);
        if (one.start())
            --left_;
    }
    static void part_ended(operation_base& one) noexcept {
        auto& self = *static_cast<when_all_operation*>(one.context());
        if (--self.left_ == 0)
            self.complete();
    }

    std::size_t left_ = 0;
    std::tuple<slot<A>...> slots_;
};

template <class... A>
struct when_all_description {
    using operation = when_all_operation<A...>;
    using value_type = std::tuple<void_to_monostate<value_for_t<A>>...>;
    std::tuple<A...> parts;
};

template <class A>
struct when_all_list_description;

/// Any number of things of one type. The operations live in one array.
template <class A>
class when_all_list_operation final : public operation_base {
public:
    explicit when_all_list_operation(when_all_list_description<A>&& what) noexcept
        : array_(std::move(what.parts)), values_(std::move(what.values)) {}

    [[nodiscard]] bool start() noexcept {
        left_ = array_.size() + 1;
        for (std::size_t i = 0; i < array_.size(); ++i) {
            array_[i].bind(home(), stop_source(), &part_ended, this);
            if (array_[i].start())
                --left_;
        }
        return --left_ == 0;
    }
    void cancel() noexcept {}
    std::vector<void_to_monostate<value_for_t<A>>> take_result() {
        for (std::size_t i = 0; i < array_.size(); ++i)
            values_.push_back(take_or_monostate(array_[i]));
        return std::move(values_);
    }

private:
    static void part_ended(operation_base& one) noexcept {
        auto& self = *static_cast<when_all_list_operation*>(one.context());
        if (--self.left_ == 0)
            self.complete();
    }

    std::size_t left_ = 0;
    operation_array<A> array_;
    std::vector<void_to_monostate<value_for_t<A>>> values_; // with room for all
};

template <class A>
struct when_all_list_description {
    using operation = when_all_list_operation<A>;
    using value_type = std::vector<void_to_monostate<value_for_t<A>>>;

    explicit when_all_list_description(std::vector<A>&& what) : parts(std::move(what)) {
        values.reserve(parts.size());
    }

    operation_sources<A> parts;
    value_type values;
};

// --- the first failure stops the others --------------------------------------------------------------------------------

/// Whether a value says that something failed, and what.
template <class V>
[[nodiscard]] std::error_code failure_in(const V& value) noexcept {
    if constexpr (requires { value.error().code; })
        return value ? std::error_code() : std::error_code(value.error().code);
    else if constexpr (requires { std::error_code(value.error()); })
        return value ? std::error_code() : std::error_code(value.error());
    else if constexpr (std::is_same_v<V, progress>)
        return value.error;
    else
        return {};
}

template <class... A>
struct when_all_or_error_description;
template <class... A>
class when_all_or_error_operation;

} // namespace detail

/// What all parts gave, and which of them failed first.
template <class... V>
struct [[nodiscard]] all_or_error {
    std::tuple<V...> values; ///< of every part: also of those that ended well beside a failure
    std::error_code error{}; ///< of the part that failed first; empty if none did
    std::size_t failed = 0;  ///< which one that was

    [[nodiscard]] bool ok() const noexcept { return !error; }
    explicit operator bool() const noexcept { return ok(); }
};

namespace detail {

template <class... A>
class when_all_or_error_operation final : public operation_base {
    using indices = std::index_sequence_for<A...>;

public:
    using value_type = all_or_error<void_to_monostate<value_for_t<A>>...>;

    explicit when_all_or_error_operation(when_all_or_error_description<A...>&& what)
        : when_all_or_error_operation(std::move(what), indices{}) {}

    [[nodiscard]] bool start() noexcept {
        left_ = sizeof...(A) + 1;
        if (stop_requested())
            parts_stop_.request_stop();
        start_all(indices{});
        if (--left_ == 0)
            return true;
        listen_for_stop([](stop_hook& hook) noexcept {
            static_cast<when_all_or_error_operation&>(from_hook(hook)).cancel();
        });
        return false;
    }
    void cancel() noexcept { parts_stop_.request_stop(); }
    value_type take_result() {
        if (exception_)
            std::rethrow_exception(std::move(exception_));
        return std::apply(
            [this](auto&... each) {
                return value_type{
                    std::tuple<void_to_monostate<value_for_t<A>>...>{take_or_monostate(each)...}, error_,
                    failed_};
            },
            slots_);
    }

private:
    /// A part, and its outcome from its end on: whether it failed must be known then.
    template <class Part>
    struct slot {
        explicit slot(Part&& what) : operation(std::move(what)) {}
        operation_for_t<Part> operation;
        std::optional<part<value_for_t<Part>>> outcome;
        value_for_t<Part> take_result() {
            if constexpr (std::is_void_v<value_for_t<Part>>)
                outcome->value();
            else if constexpr (std::is_reference_v<value_for_t<Part>>)
                return outcome->value();
            else
                return std::move(outcome->value());
        }
    };

    template <std::size_t... I>
    when_all_or_error_operation(when_all_or_error_description<A...>&& what, std::index_sequence<I...>)
        : slots_(std::get<I>(std::move(what.parts))...) {}

    template <std::size_t... I>
    void start_all(std::index_sequence<I...>) noexcept {
        (start_one<I>(), ...);
    }
    template <std::size_t I>
    void start_one() noexcept {
        auto& operation = std::get<I>(slots_).operation;
        operation.bind(
            home(), parts_stop_,
            [](operation_base& ended) noexcept {
                auto& self = *static_cast<when_all_or_error_operation*>(ended.context());
                if (self.template note_end<I>())
                    self.complete();
            },
            this);
        if (operation.start())
            static_cast<void>(note_end<I>());
    }
    template <std::size_t I>
    [[nodiscard]] bool note_end() noexcept {
        auto& ended = std::get<I>(slots_);
        using V = std::tuple_element_t<I, std::tuple<std::type_identity<value_for_t<A>>...>>::type;
        ended.outcome.emplace(ended.operation);
        std::error_code code;
        if constexpr (!std::is_void_v<V>) {
            if (!ended.outcome->threw())
                code = failure_in(ended.outcome->value());
        }
        if ((ended.outcome->threw() || code) && !exception_ && !error_) {
            exception_ = ended.outcome->exception();
            error_ = code;
            failed_ = I;
            parts_stop_.request_stop();
        }
        return --left_ == 0;
    }

    inplace_stop_source parts_stop_;
    std::size_t left_ = 0;
    std::size_t failed_ = 0;
    std::error_code error_;
    std::exception_ptr exception_;
    std::tuple<slot<A>...> slots_;
};

template <class... A>
struct when_all_or_error_description {
    using operation = when_all_or_error_operation<A...>;
    using value_type = typename operation::value_type;
    std::tuple<A...> parts;
};

} // namespace detail

/// Starts everything, waits until all have ended. Returns: a tuple of what each gives, void as std::monostate; each part's
/// own errors are in its own result. Throws, after all have ended, what the first of them (in order) threw.
/// Cancellation reaches every part. Borrows: as the parts. Resumes: on the awaiter's runtime.
template <awaitable... A>
requires(sizeof...(A) > 0)
[[nodiscard]] detail::when_all_description<A...> when_all(A... parts) {
    return {std::tuple<A...>(std::move(parts)...)};
}

/// The same for any number of things of one type, none included. Returns: their values in order. Throws: std::bad_alloc,
/// here: the await needs no memory.
template <awaitable A>
[[nodiscard]] detail::when_all_list_description<A> when_all(std::vector<A> parts) {
    return detail::when_all_list_description<A>(std::move(parts));
}

/// The same as when_all, but the first part that fails stops the others: a result without a value, a progress with an error, an
/// exception. It still waits until all have ended. Returns: all_or_error: the values of all parts, the failure beside them, so
/// that what the others had done is not lost. Throws what the part threw that failed first (or, if that one gave an error and a
/// later one threw, what that one threw). Borrows: as the parts. Resumes: on the awaiter's runtime.
template <awaitable... A>
requires(sizeof...(A) > 0)
[[nodiscard]] detail::when_all_or_error_description<A...> when_all_or_error(A... parts) {
    return {std::tuple<A...>(std::move(parts)...)};
}

NOWAIT_END_NAMESPACE
