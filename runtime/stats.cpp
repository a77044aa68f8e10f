#include <nowait/stats.hpp>

NOWAIT_BEGIN_NAMESPACE

std::string_view to_string(operation_kind kind) noexcept {
    static constexpr std::array<std::string_view, operation_kinds> names{
        "read", "write",   "splice",     "tee",           "ready",    "sleep", "yield",
        "join", "channel", "queue_send", "queue_receive", "blocking", "other"};
    return names[static_cast<std::size_t>(kind)];
}

NOWAIT_END_NAMESPACE
