// Several things at once, in one await, without a coroutine for each.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/loop.hpp>
#include <nowait/task.hpp>

#include <cstddef>
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
        explicit slot(Part&& part) : operation(std::move(part)) {}
        operation_for_t<Part> operation;
    };

    template <std::size_t... I>
    when_all_operation(when_all_description<A...>&& what, std::index_sequence<I...>)
        : slots_(std::get<I>(std::move(what.parts))...) {}

    template <class Operation>
    void start_one(Operation& part) noexcept {
        part.bind(home(), stop_source(), &part_ended, this);
        if (part.start())
            --left_;
    }
    static void part_ended(operation_base& part) noexcept {
        auto& self = *static_cast<when_all_operation*>(part.context());
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

template <class T>
struct when_all_tasks_description;

/// Any number of tasks of one type. The operations live in one array, made when the await begins.
template <class T>
class when_all_tasks_operation final : public operation_base {
public:
    explicit when_all_tasks_operation(when_all_tasks_description<T>&& what);
    ~when_all_tasks_operation() {
        for (std::size_t i = count_; i-- > 0;)
            parts_[i].~task_operation<T>();
        if (parts_ != nullptr)
            std::allocator<task_operation<T>>().deallocate(parts_, capacity_);
    }

    [[nodiscard]] bool start() noexcept {
        left_ = count_ + 1;
        for (std::size_t i = 0; i < count_; ++i) {
            parts_[i].bind(home(), stop_source(), &part_ended, this);
            if (parts_[i].start())
                --left_;
        }
        return --left_ == 0;
    }
    void cancel() noexcept {}
    std::vector<void_to_monostate<T>> take_result() {
        std::vector<void_to_monostate<T>> values;
        values.reserve(count_);
        for (std::size_t i = 0; i < count_; ++i)
            values.push_back(take_or_monostate(parts_[i]));
        return values;
    }

private:
    static void part_ended(operation_base& part) noexcept {
        auto& self = *static_cast<when_all_tasks_operation*>(part.context());
        if (--self.left_ == 0)
            self.complete();
    }

    std::size_t capacity_;
    std::size_t count_ = 0;
    std::size_t left_ = 0;
    task_operation<T>* parts_ = nullptr;
};

template <class T>
struct when_all_tasks_description {
    using operation = when_all_tasks_operation<T>;
    using value_type = std::vector<void_to_monostate<T>>;
    std::vector<task<T>> parts;
};

template <class T>
when_all_tasks_operation<T>::when_all_tasks_operation(when_all_tasks_description<T>&& what)
    : capacity_(what.parts.size()) {
    if (capacity_ == 0)
        return;
    parts_ = std::allocator<task_operation<T>>().allocate(capacity_);
    for (task<T>& part : what.parts)
        ::new (static_cast<void*>(parts_ + count_++)) task_operation<T>(std::move(part));
}

} // namespace detail

/// Starts everything, waits until all have ended. Returns: a tuple of what each gives, void as std::monostate; each part's
/// own errors are in its own result. Throws, after all have ended, what the first of them (in order) threw.
/// Cancellation reaches every part. Borrows: as the parts. Resumes: on the awaiter's runtime.
template <awaitable... A>
requires(sizeof...(A) > 0)
[[nodiscard]] detail::when_all_description<A...> when_all(A... parts) {
    return {std::tuple<A...>(std::move(parts)...)};
}

/// The same for any number of tasks of one type, none included. Returns: their values in order. Throws: also std::bad_alloc.
template <class T>
[[nodiscard]] detail::when_all_tasks_description<T> when_all(std::vector<task<T>> parts) {
    return {std::move(parts)};
}

NOWAIT_END_NAMESPACE
