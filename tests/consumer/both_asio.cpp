// One half of a program with both Asios: compiled for the stand-alone one and for Boost's, FUNCTION names what each gives.
#include <nowait/asio.hpp>
#include <nowait/nowait.hpp>

#if NOWAIT_ASIO_BOOST
#include <boost/asio.hpp>
namespace net = boost::asio;
#else
#include <asio.hpp>
namespace net = asio;
#endif

#include <string>

std::string FUNCTION(nowait::channel<std::string> from) {
    nowait::asio_runtime both;
    nowait::asio_channel<std::string> words(both.get_executor(), std::move(from));
    std::string all;
    net::co_spawn(
        both.get_executor(),
        [&]() -> net::awaitable<void> {
            for (int i = 0; i < 2; ++i)
                all += co_await words.async_receive(net::use_awaitable);
        },
        net::detached);
    return both.run() ? all : "failed";
}
