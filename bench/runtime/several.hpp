// Rows of several runtimes: what it costs that two threads answer each other.
#pragma once

#include "bench/support/suite.hpp"

namespace bench::runtime {

void compare_several(suite& run);

} // namespace bench::runtime
