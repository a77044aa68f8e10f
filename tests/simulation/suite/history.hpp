// The model. Of a stream or a queue it is a history: what was put into it, in the order in which the puts began, is what was taken
// from it, in the order in which the takes began. That is more than "first in, first out": nobody overtakes, nobody starves,
// nothing is lost or doubled, and what ended without success has left no trace. Of a queue it holds for each priority.
//
// With a small budget an operation may begin later than its turn came. Then the order is not known from outside, and the
// contents are compared without it (`exact` is false).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nowait_test::programs {

/// A put or a take that succeeded.
struct history_entry {
    std::uint64_t began = 0;
    unsigned priority = 0;
    std::string bytes;         ///< of a stream
    std::uint64_t message = 0; ///< of a message object
};

struct history {
    std::vector<history_entry> puts, takes;
    bool spliced = false;   ///< of a stream: bytes have come from, or gone to, others
    bool cut_short = false; ///< what was left in it may have been lost: the reading side was closed
};

// What is wrong, or nothing.

[[nodiscard]] std::string check_stream(history& of, bool exact);
/// What has gone from one stream into another comes out of one of them.
[[nodiscard]] std::string check_spliced(const std::vector<const history*>& streams);
[[nodiscard]] std::string check_messages(history& of, bool has_priorities, bool exact);

/// All bytes of the entries, in the order in which they began.
[[nodiscard]] std::string all_bytes(std::vector<history_entry>& entries);

} // namespace nowait_test::programs
