// What one translation unit thinks of the library's types, and a task of its own: compiled many times. Which side of layout.hpp
// it is, TYPES and SPEAKS say.
#include <nowait/nowait.hpp>
#if defined(WITH_ASIO)
#include <nowait/asio.hpp>
#endif

#include "layout.hpp"

#include <string>

namespace {

template <class T>
constexpr type_layout of(const char* name) {
    return {name, sizeof(T), alignof(T)};
}
#define NAMED(...) of<__VA_ARGS__>(#__VA_ARGS__)

using namespace nowait;
using number_operation = detail::operation_for_t<decltype(std::declval<const channel<int>&>().receive())>;

} // namespace

const type_layout TYPES[] = {
    NAMED(runtime_options),
    NAMED(runtime),
    NAMED(runtime_stats),
    NAMED(remote_runtime),
    NAMED(detail::loop),
    NAMED(detail::mailbox),
    NAMED(detail::system),
    NAMED(detail::driver),
    NAMED(detail::operation_base),
    NAMED(task<std::string>::promise_type),
    NAMED(join_handle<int>),
    NAMED(task_scope),
    NAMED(pipe_reader),
    NAMED(detail::descriptor),
    NAMED(detail::read_operation),
    NAMED(detail::pipe_core<detail::real_sync>),
    NAMED(pipe_channel_writer),
    NAMED(number_operation),
    NAMED(channel<std::string>),
    NAMED(detail::queue_limits),
    NAMED(mqueue_channel<std::string>),
    NAMED(posix_mqueue),
    NAMED(owned_posix_mqueue),
    NAMED(mqueue_notification),
    NAMED(broadcast<int>),
    NAMED(async_mutex),
    NAMED(semaphore),
    NAMED(event),
    NAMED(latch),
    NAMED(interval),
    NAMED(inplace_stop_source),
    NAMED(signals),
    NAMED(worker_pool),
    NAMED(worker_pool_stats),
    NAMED(runtime_pool),
    NAMED(line_reader<pipe_reader>),
    NAMED(buffered_writer<pipe_writer>),
#if defined(WITH_ASIO)
    NAMED(asio_executor),
    NAMED(asio_guest),
    NAMED(asio_readable_pipe),
    NAMED(asio_pipe_channel_writer),
    NAMED(asio_channel<int>),
    NAMED(asio_detail::asio_core),
    NAMED(asio_detail::asio_object),
    NAMED(asio_detail::asio_operation_base),
#endif
    {nullptr, 0, 0},
};

nowait::task<int> SPEAKS(nowait::channel<std::string> from, nowait::pipe_writer to) {
    int words = 0;
    for (;;) {
        auto word = co_await from.receive();
        if (!word)
            co_return words;
        std::string_view text = *word;
        auto sent = co_await nowait::write_all(to, text);
        if (!sent.ok())
            co_return -1;
        ++words;
    }
}
