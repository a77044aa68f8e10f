// The in-process pipes' side of every row.
#pragma once

#include "workload.hpp"

namespace bench::channels {

enum class kind { local, shared };

contender ours_loop(kind which);     // 512 bytes written and read, one coroutine
contender ours_bulk(kind which);     // two coroutines: one fills and writes, the other reads and scans
contender ours_in_place(kind which); // the same where the bytes lie: reserve and commit, peek and consume

// 64 coroutines on one runtime and one channel.
token_program ours_tokens(kind which);

} // namespace bench::channels
