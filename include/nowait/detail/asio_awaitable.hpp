// use_awaitable where the first attempt will do: the awaiting coroutine is not suspended.
//
// Asio's way with this token: a frame for the operation, which suspends, and a handler that is posted, runs and resumes it. Where
// an attempt succeeds nothing is left to wait for, so the frame just returns, and Asio resumes the awaiting coroutine when
// that frame has ended, as it does with every coroutine that returns without having waited: not from inside the initiation, and
// in constant stack. What a turn may do in this way is bounded by its budget, as for our own tasks; after that, the
// operation is made and its handler posted.
#pragma once

#include <nowait/detail/asio_operation.hpp>

#include <tuple>
#include <type_traits>
#include <utility>

#if NOWAIT_ASIO_HAS_AWAITABLE
#if NOWAIT_ASIO_BOOST
#include <boost/asio/awaitable.hpp>
#include <boost/asio/use_awaitable.hpp>
#else
#include <asio/awaitable.hpp>
#include <asio/use_awaitable.hpp>
#endif

NOWAIT_BEGIN_ASIO_NAMESPACE
namespace asio_detail {

template <class Token>
inline constexpr bool is_use_awaitable = false;
template <class Executor>
inline constexpr bool is_use_awaitable<net::use_awaitable_t<Executor>> = true;

/// Whether what runs here runs in a turn of the object's loop, which has a budget.
[[nodiscard]] inline bool in_turn(const asio_object& object) noexcept {
    return object.core().here() && !object.core().get_loop().outside();
}

template <class Signature>
struct awaited_value;
template <>
struct awaited_value<void(error_code)> {
    using type = void;
};
template <class T>
struct awaited_value<void(error_code, T)> {
    using type = T;
};

/// Attempts when it is awaited; what the attempt does not settle, errors too, is the operation's.
template <class Signature, class Executor, class IoExecutor, class Kind>
net::awaitable<typename awaited_value<Signature>::type, Executor> try_then_await(
    asio_object* object, IoExecutor executor, net::use_awaitable_t<Executor> token, Kind kind) {
    constexpr bool has_value = !std::is_same_v<Signature, void(error_code)>;
    if (in_turn(*object)) {
        auto& on = static_cast<typename Kind::object&>(*object);
        auto done = kind.try_first(on, object->core().get_loop());
        if (done) {
            if constexpr (has_value)
                co_return std::get<1>(std::move(*done));
            else
                co_return;
        }
        on.template expect<Kind>(true);
    }
    initiate_operation<IoExecutor> initiation(*object, executor);
    auto waiting = net::async_initiate<net::use_awaitable_t<Executor>, Signature>(std::move(initiation),
                                                                                  token, std::move(kind));
    if constexpr (has_value) {
        auto value = co_await std::move(waiting);
        co_return std::move(value);
    } else {
        co_await std::move(waiting);
    }
}

} // namespace asio_detail
NOWAIT_END_ASIO_NAMESPACE
#endif
