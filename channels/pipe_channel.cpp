#include "pipe_channel_core.hpp"

NOWAIT_BEGIN_NAMESPACE
namespace detail {

// NOLINTBEGIN(bugprone-macro-parentheses): a template argument cannot stand in parentheses
#define NOWAIT_PIPE_CHANNEL(sync)                                           \
    template class pipe_core<sync>;                                         \
    template class pipe_waiter<sync>;                                       \
    template class pipe_read_operation<sync>;                               \
    template class pipe_write_operation<sync>;                              \
    template class pipe_ready_operation<sync>;                              \
    template class pipe_hold_operation<sync, basic_pipe_reservation<sync>>; \
    template class pipe_hold_operation<sync, basic_pipe_peek<sync>>;        \
    template class pipe_move_operation<sync>;
// NOLINTEND(bugprone-macro-parentheses)

// Both kinds.
NOWAIT_PIPE_CHANNEL(real_sync)
NOWAIT_PIPE_CHANNEL(local_sync)

} // namespace detail
NOWAIT_END_NAMESPACE
