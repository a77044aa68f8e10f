// Built against the library without its counters.
#include "ours.hpp"
#include "ours_modes.hpp"

static_assert(NOWAIT_COUNTERS == 0);

namespace bench::pipes {

contender uncounted_ready() {
    return {"nowait without counters", [] { return NOWAIT_ABI::open_ready(); }};
}
contender uncounted_lockstep() {
    return {"nowait without counters", [] { return NOWAIT_ABI::open_lockstep(); }};
}

} // namespace bench::pipes
