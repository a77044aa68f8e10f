// The first of several things, without losing what the others have done meanwhile.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/operation_array.hpp>
#include <nowait/detail/part.hpp>
#include <nowait/stop.hpp>
#include <nowait/task.hpp>

#include <cstddef>
#include <tuple>
#include <utility>
#include <vector>

NOWAIT_BEGIN_NAMESPACE

/// What became of each part of a when_any. Every part has ended: one that was stopped says operation_canceled in its own
/// result, one that had finished by then says what it did.
template <class... V>
struct [[nodiscard]] when_any_result {
    std::size_t index = 0; ///< the part that ended first
    std::tuple<part<V>...> parts;

    /// The value of part I. Throws what the part threw.
    template <std::size_t I>
    decltype(auto) get() {
        return std::get<I>(parts).value();
    }
};

/// The same for any number of things of one type.
template <class V>
struct [[nodiscard]] when_any_list {
    std::size_t index = 0; ///< the part that ended first
    std::vector<part<V>> parts;
};

/// For when_any: attempts are made in the order of the arguments, so that an earlier one wins whenever it can be had at once.
struct biased_t {};
inline constexpr biased_t biased{};

namespace detail {

/// Who was first, and the stop for the others.
class first_of : public operation_base {
public:
    void cancel() noexcept { parts_stop_.request_stop(); }

protected:
    explicit first_of(bool in_order) noexcept : in_order_(in_order) {}
    ~first_of() = default;

    static constexpr std::size_t nobody = static_cast<std::size_t>(-1);

    /// Starts `count` parts from a place that changes each time, unless their order is fixed. True: all have ended.
    template <class Start>
    [[nodiscard]] bool start_parts(std::size_t count, Start&& start_from) noexcept {
        left_ = count + 1; // one for this function: an end that comes early must not complete
        if (stop_requested())
            parts_stop_.request_stop();
        start_from(in_order_ || count == 0 ? 0 : home().choose(count));
        if (--left_ == 0)
            return true;
        listen_for_stop([](stop_hook& hook) noexcept { static_cast<first_of&>(from_hook(hook)).cancel(); });
        return false;
    }
    /// Part `i` has ended. True: it was the last one.
    [[nodiscard]] bool note_end(std::size_t i) noexcept {
        if (first_ == nobody) {
            first_ = i;
            parts_stop_.request_stop();
        }
        return --left_ == 0;
    }

    inplace_stop_source parts_stop_;
    std::size_t first_ = nobody;
    std::size_t left_ = 0;

private:
    bool in_order_;
};

template <class... A>
struct when_any_description;

template <class... A>
class when_any_operation final : public first_of {
    using indices = std::index_sequence_for<A...>;

public:
    explicit when_any_operation(when_any_description<A...>&& what)
        : when_any_operation(std::move(what), indices{}) {}

    [[nodiscard]] bool start() noexcept {
        return start_parts(sizeof...(A), [this](std::size_t first) {
            // Those from `first` on, then those before.
            start_where([first](std::size_t i) { return i >= first; }, indices{});
            start_where([first](std::size_t i) { return i < first; }, indices{});
        });
    }
    when_any_result<value_for_t<A>...> take_result() {
        return std::apply(
            [this](auto&... each) {
                return when_any_result<value_for_t<A>...>{first_, {part<value_for_t<A>>(each.operation)...}};
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
    when_any_operation(when_any_description<A...>&& what, std::index_sequence<I...>)
        : first_of(what.in_order), slots_(std::get<I>(std::move(what.parts))...) {}

    template <class Condition, std::size_t... I>
    void start_where(Condition chosen, std::index_sequence<I...>) noexcept {
        ((chosen(I) ? start_one<I>() : void()), ...);
    }
    template <std::size_t I>
    void start_one() noexcept {
        auto& operation = std::get<I>(slots_).operation;
        operation.bind(
            home(), parts_stop_,
            [](operation_base& ended) noexcept {
                auto& self = *static_cast<when_any_operation*>(ended.context());
                if (self.note_end(I))
                    self.complete();
            },
            this);
        if (operation.start())
            static_cast<void>(note_end(I));
    }

    std::tuple<slot<A>...> slots_;
};

template <class... A>
struct when_any_description {
    using operation = when_any_operation<A...>;
    using value_type = when_any_result<value_for_t<A>...>;
    bool in_order;
    std::tuple<A...> parts;
};

template <class A>
struct when_any_list_description;

template <class A>
class when_any_list_operation final : public first_of {
public:
    explicit when_any_list_operation(when_any_list_description<A>&& what) noexcept
        : first_of(what.in_order), array_(std::move(what.parts)), outcomes_(std::move(what.outcomes)) {}

    [[nodiscard]] bool start() noexcept {
        const std::size_t count = array_.size();
        return start_parts(count, [this, count](std::size_t first) {
            for (std::size_t i = first; i < count; ++i)
                start_one(i);
            for (std::size_t i = 0; i < first; ++i)
                start_one(i);
        });
    }
    when_any_list<value_for_t<A>> take_result() noexcept {
        for (std::size_t i = 0; i < array_.size(); ++i)
            outcomes_.emplace_back(array_[i]);
        return {first_, std::move(outcomes_)};
    }

private:
    void start_one(std::size_t i) noexcept {
        array_[i].bind(
            home(), parts_stop_,
            [](operation_base& ended) noexcept {
                auto& self = *static_cast<when_any_list_operation*>(ended.context());
                if (self.note_end(self.array_.index_of(static_cast<operation_for_t<A>&>(ended))))
                    self.complete();
            },
            this);
        if (array_[i].start())
            static_cast<void>(note_end(i));
    }

    operation_array<A> array_;
    std::vector<part<value_for_t<A>>> outcomes_; // with room for all
};

template <class A>
struct when_any_list_description {
    using operation = when_any_list_operation<A>;
    using value_type = when_any_list<value_for_t<A>>;

    when_any_list_description(bool biased, std::vector<A>&& what) : in_order(biased), parts(std::move(what)) {
        outcomes.reserve(parts.size());
    }

    bool in_order;
    operation_sources<A> parts;
    std::vector<part<value_for_t<A>>> outcomes;
};

} // namespace detail

/// Starts everything, waits for the first to end, stops the others and waits until they have ended too.
///
///     auto first = co_await when_any(jobs.receive(), sleep_for(1s));
///     if (first.index == 0)
///         work_on(first.get<0>());                      // result<job>
///
/// Nothing is lost: a part that had finished when the stop came has its result in its place, beside the winner's; one that had
/// not is untouched (and `send_owned` has its message in its error). When a part finishes at the first attempt, the later ones
/// are started under the stop: library operations end untouched, a task runs and sees it. An end is not always at once: it
/// takes as long as the slowest part needs to hear the stop.
///
/// Fair: the attempts begin at another part each time. `when_any(biased, ...)` makes them in the order of the arguments.
/// Returns: when_any_result; what a part threw is thrown by its get<I>(). A stop of the awaiter stops every part.
/// Borrows: as the parts. Resumes: on the awaiter's runtime.
template <awaitable... A>
requires(sizeof...(A) > 0)
[[nodiscard]] detail::when_any_description<A...> when_any(A... parts) {
    return {false, std::tuple<A...>(std::move(parts)...)};
}
template <awaitable... A>
requires(sizeof...(A) > 0)
[[nodiscard]] detail::when_any_description<A...> when_any(biased_t, A... parts) {
    return {true, std::tuple<A...>(std::move(parts)...)};
}

/// The same for any number of things of one type. Returns: when_any_list; of none, an empty one with an index of -1.
/// Throws: std::bad_alloc, here: the await needs no memory.
template <awaitable A>
[[nodiscard]] detail::when_any_list_description<A> when_any(std::vector<A> parts) {
    return {false, std::move(parts)};
}
template <awaitable A>
[[nodiscard]] detail::when_any_list_description<A> when_any(biased_t, std::vector<A> parts) {
    return {true, std::move(parts)};
}

NOWAIT_END_NAMESPACE
