#include "ours.hpp"

#include "ours_modes.hpp"

namespace bench::pipes {

contender ours_ready() {
    return {"nowait", [] { return NOWAIT_ABI::open_ready(); }};
}
contender ours_lockstep() {
    return {"nowait", [] { return NOWAIT_ABI::open_lockstep(); }};
}
contender ours_poll_ready() {
    return {"nowait on epoll", [] { return NOWAIT_ABI::open_ready(nowait::driver_choice::poll); }};
}
contender ours_poll_lockstep() {
    return {"nowait on epoll", [] { return NOWAIT_ABI::open_lockstep(nowait::driver_choice::poll); }};
}
contender ours_free() {
    return {"nowait", NOWAIT_ABI::open_free};
}
contender ours_pingpong() {
    return {"nowait", [] { return NOWAIT_ABI::open_write_and_read_back(1); }};
}
contender ours_loop() {
    return {"nowait", [] { return NOWAIT_ABI::open_write_and_read_back(loop_size); }};
}
contender ours_bulk() {
    return {"nowait", NOWAIT_ABI::open_bulk};
}

} // namespace bench::pipes
