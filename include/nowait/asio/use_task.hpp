// use_task: any Asio operation, awaited in a nowait task.
#pragma once

#include <nowait/detail/asio_awaited.hpp>

NOWAIT_BEGIN_ASIO_NAMESPACE

/// How an operation's outcome reaches the task.
enum class use_task_as {
    result,    ///< result<T>: nothing, the value, or a tuple of values
    progress,  ///< progress: for operations that complete with (error_code, std::size_t)
    exceptions ///< the value; std::system_error with an error
};

/// A completion token: `co_await socket.async_read_some(buffer, nowait::use_task)` in a task of any runtime.
///
/// The operation is started when it is awaited. The task goes on on its own runtime, whichever thread the I/O object's
/// handlers run on. A stop of the task emits a cancellation of all types: on the I/O object's executor, or at once where this
/// thread is its executor's.
///
/// Errors: as Asio gives them, with system_category turned to generic_category: operation_aborted is
/// std::errc::operation_canceled. The end of a stream is no error of (error_code, std::size_t): it is fewer bytes, 0 for a read
/// of some. operation_canceled also if the handler was destroyed uncalled. A std::exception_ptr that is not null is
/// thrown. Borrows: what the operation borrows. An operation's own allocation is one block of the runtime's recycled ones.
template <use_task_as As = use_task_as::result>
struct use_task_t {
    template <class InnerExecutor>
    struct executor_with_default : InnerExecutor {
        using default_completion_token_type = use_task_t;
        template <class Other>
        requires(!std::same_as<Other, executor_with_default> && std::convertible_to<Other, InnerExecutor>)
        executor_with_default(const Other& other) noexcept : InnerExecutor(other) {}
    };
    /// `use_task_t<>::as_default_on_t<asio::ip::tcp::socket>`: the token may be left out.
    template <class Object>
    using as_default_on_t = typename Object::template rebind_executor<
        executor_with_default<typename Object::executor_type>>::other;
};

inline constexpr use_task_t<use_task_as::result> use_task{};
inline constexpr use_task_t<use_task_as::progress> use_task_progress{};
inline constexpr use_task_t<use_task_as::exceptions> use_task_exceptions{};

NOWAIT_END_ASIO_NAMESPACE

#if NOWAIT_ASIO_BOOST
namespace boost::asio {
#else
namespace asio {
#endif

template <nowait::use_task_as As, class... Arguments>
class async_result<nowait::use_task_t<As>, void(Arguments...)> {
public:
    template <class Initiation, class... InitArguments>
    static auto initiate(Initiation&& initiation, nowait::use_task_t<As>, InitArguments&&... with) {
        return nowait::asio_detail::awaited_description<static_cast<int>(As), std::decay_t<Initiation>,
                                                        std::tuple<Arguments...>,
                                                        std::decay_t<InitArguments>...>{
            std::forward<Initiation>(initiation),
            std::tuple<std::decay_t<InitArguments>...>(std::forward<InitArguments>(with)...)};
    }
};

#if NOWAIT_ASIO_BOOST
} // namespace boost::asio
#else
} // namespace asio
#endif
