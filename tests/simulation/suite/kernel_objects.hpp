// The simulated kernel's pipes and POSIX queues, as the suite's objects. Both belong to the runtime on which they are made.
#pragma once

#include "message_objects.hpp"
#include "stream_objects.hpp"

#include <nowait/posix_mqueue.hpp>
#include <nowait/simulation.hpp>

#include <memory>

namespace nowait_test::programs {

[[nodiscard]] std::unique_ptr<stream_object> make_kernel_pipe_object(nowait::pipe_pair made,
                                                                     nowait::simulation& sim);
[[nodiscard]] std::unique_ptr<message_object> make_posix_queue_object(nowait::posix_mqueue made);

} // namespace nowait_test::programs
