// What a job is: a line of text, and what comes of it.
#pragma once

#include <string>
#include <string_view>

namespace priority_worker {

/// "primes N": how many primes there are below N (at most 100 million). "reverse TEXT". Everything else is no job, and says so.
/// It may take a while: for a worker of the pool, not for the loop.
[[nodiscard]] std::string perform(std::string_view job);

} // namespace priority_worker
