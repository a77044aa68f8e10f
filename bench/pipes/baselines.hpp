// Everything ours is measured against. In each, one round means: every pipe is written once and read once (two
// operations a pipe), unless it says otherwise.
#pragma once

#include "workload.hpp"

namespace bench::pipes {

enum class writing {
    plain,    // write: may raise SIGPIPE
    nosignal, // pwritev2(RWF_NOSIGNAL), the promise our writes give
};

// Non-blocking calls through libc.
contender raw_ready(writing how, std::size_t pipes = pipe_count);
contender raw_loop(writing how); // one pipe, 512 bytes, written and read back
contender raw_bulk();            // one pipe, a round is 1 MiB in pieces of 64 KiB

// Hand-written liburing loops with the flags a single-threaded loop should use.
contender uring_ready();
contender uring_lockstep();              // ring reads, ring writes
contender uring_lockstep_direct_write(); // ring reads, pwritev2(RWF_NOSIGNAL)

// A hand-written epoll loop: the readers are watched for edges, and read when the event has come.
contender epoll_lockstep();

// Every operation forced to an io-wq worker (IOSQE_ASYNC): what each pipe operation was before pipes could be asked not
// to wait. `batch` operations are submitted and waited for together.
contender punted_ready(std::size_t batch);
contender punted_lockstep(std::size_t batch);

// Asio: C++20 coroutines on the epoll reactor, one thread.
contender asio_ready();
contender asio_lockstep();
contender asio_free();
contender asio_pingpong(); // a round is one byte written and read
contender asio_loop();
contender asio_bulk();

} // namespace bench::pipes
