// nowait with Asio, in both directions. Opt-in: link the target nowait::asio (stand-alone Asio) or nowait::boost_asio.
#pragma once

#include <nowait/asio/channel.hpp>
#include <nowait/asio/executor.hpp>
#include <nowait/asio/pipe.hpp>
#include <nowait/asio/pipe_channel.hpp>
#include <nowait/asio/posix_mqueue.hpp>
#include <nowait/asio/runtime.hpp>
#include <nowait/asio/use_task.hpp>
