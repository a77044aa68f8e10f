// Compiled twice, as two libraries: FUNCTION names what each gives. The runtime behind the executor is the program's.
#include "asio.hpp"

#include <nowait/asio.hpp>

#include <memory>

#include <asio.hpp>

std::string FUNCTION(asio::any_io_executor executor) {
    try {
        auto channel = std::make_shared<nowait::asio_channel<int>>(executor, 1);
        channel->async_send(1, [channel](asio::error_code) {});
        return "found";
    } catch (const std::exception& error) {
        return error.what();
    }
}
