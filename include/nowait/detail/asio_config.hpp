// Which Asio: the stand-alone one or Boost's. Everything of the adaptor includes this first.
//
// The target that is linked sets NOWAIT_ASIO_BOOST: nowait::asio to 0, nowait::boost_asio to 1. Both may be used in one program,
// in different source files: the adaptor lives in an inline namespace named after its Asio, so that nothing of the two is ever
// taken for the other. In one source file it is refused.
#pragma once

#include <nowait/config.hpp>

#if !defined(NOWAIT_ASIO_BOOST)
#error \
    "nowait/asio.hpp: link the target nowait::asio or nowait::boost_asio, or define NOWAIT_ASIO_BOOST as 0 or 1"
#endif

#if NOWAIT_ASIO_BOOST
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/execution.hpp>
#include <boost/asio/experimental/channel_error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/descriptor_base.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/require.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/version.hpp>
#include <boost/system/system_error.hpp>
#define NOWAIT_ASIO_VERSION BOOST_ASIO_VERSION
#if defined(BOOST_ASIO_NO_TS_EXECUTORS)
#error "nowait/asio.hpp counts work with the functions that BOOST_ASIO_NO_TS_EXECUTORS takes away"
#endif
#else
#include <asio/any_io_executor.hpp>
#include <asio/associated_allocator.hpp>
#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/buffer.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/error.hpp>
#include <asio/execution.hpp>
#include <asio/experimental/channel_error.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/descriptor_base.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/prefer.hpp>
#include <asio/require.hpp>
#include <asio/steady_timer.hpp>
#include <asio/system_error.hpp>
#include <asio/version.hpp>
#define NOWAIT_ASIO_VERSION ASIO_VERSION
#if defined(ASIO_NO_TS_EXECUTORS)
#error "nowait/asio.hpp counts work with the functions that ASIO_NO_TS_EXECUTORS takes away"
#endif
#endif

#if NOWAIT_ASIO_VERSION < 102200
#error "nowait/asio.hpp needs Asio 1.22 (Boost 1.78) or later"
#endif
#if NOWAIT_ASIO_VERSION >= 102800
#define NOWAIT_ASIO_HAS_IMMEDIATE_EXECUTOR 1
#if NOWAIT_ASIO_BOOST
#include <boost/asio/associated_immediate_executor.hpp>
#else
#include <asio/associated_immediate_executor.hpp>
#endif
#else
#define NOWAIT_ASIO_HAS_IMMEDIATE_EXECUTOR 0
#endif

#if defined(ASIO_HAS_CO_AWAIT) || defined(BOOST_ASIO_HAS_CO_AWAIT)
#define NOWAIT_ASIO_HAS_AWAITABLE 1
#else
#define NOWAIT_ASIO_HAS_AWAITABLE 0
#endif

#if NOWAIT_ASIO_BOOST
#define NOWAIT_ASIO_ABI asio_boost
#else
#define NOWAIT_ASIO_ABI asio_standalone
#endif

#define NOWAIT_BEGIN_ASIO_NAMESPACE \
    NOWAIT_BEGIN_NAMESPACE          \
    inline namespace NOWAIT_ASIO_ABI {
#define NOWAIT_END_ASIO_NAMESPACE \
    }                             \
    NOWAIT_END_NAMESPACE

NOWAIT_BEGIN_ASIO_NAMESPACE
namespace asio_detail {

#if NOWAIT_ASIO_BOOST
namespace net = ::boost::asio;
using error_code = ::boost::system::error_code;
using system_error = ::boost::system::system_error;
#else
namespace net = ::asio;
using error_code = ::asio::error_code;
using system_error = ::asio::system_error;
#endif

/// `executor.execute(function)`, which early versions keep to themselves.
template <class Executor, class Function>
void execute_on(const Executor& executor, Function&& function) {
#if NOWAIT_ASIO_VERSION < 102600
    net::execution::execute(executor, static_cast<Function&&>(function));
#else
    executor.execute(static_cast<Function&&>(function));
#endif
}

} // namespace asio_detail
NOWAIT_END_ASIO_NAMESPACE
