// Everything.
#pragma once

#include <nowait/config.hpp>
#include <nowait/pipe.hpp>
#include <nowait/result.hpp>
#include <nowait/runtime.hpp>
#include <nowait/sleep.hpp>
#include <nowait/stats.hpp>
#include <nowait/stop.hpp>
#include <nowait/task.hpp>
#include <nowait/timeout.hpp>
#include <nowait/when_all.hpp>
