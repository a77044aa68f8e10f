#include "baselines.hpp"
#include "bench/support/keep.hpp"
#include "bench/support/process.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <vector>

#include <liburing.h>
#include <sys/uio.h>

namespace bench::pipes {
namespace {

// A ring with the flags that suit a loop on one thread. The pipes it serves are blocking ones: on an O_NONBLOCK
// descriptor a ring read would answer EAGAIN instead of waiting.
class ring {
public:
    explicit ring(unsigned entries) {
        io_uring_params params{};
        params.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
        expect(::io_uring_queue_init_params(entries, &ring_, &params), 0, "io_uring_queue_init");
        ::io_uring_register_ring_fd(&ring_); // saves a descriptor look-up per enter; works without, too
    }
    ring(const ring&) = delete;
    ring& operator=(const ring&) = delete;
    ~ring() { ::io_uring_queue_exit(&ring_); }

    void read(int descriptor, char* into, unsigned flags = 0) {
        io_uring_sqe* const sqe = ::io_uring_get_sqe(&ring_);
        ::io_uring_prep_read(sqe, descriptor, into, 1, static_cast<__u64>(-1));
        sqe->flags |= static_cast<__u8>(flags);
    }

    void write(int descriptor, const char* from, unsigned flags = 0) {
        io_uring_sqe* const sqe = ::io_uring_get_sqe(&ring_);
        ::io_uring_prep_write(sqe, descriptor, from, 1, static_cast<__u64>(-1));
        sqe->flags |= static_cast<__u8>(flags);
    }

    void submit(unsigned count) { expect(::io_uring_submit(&ring_), count, "io_uring_submit"); }

    [[nodiscard]] unsigned completed() { return ::io_uring_cq_ready(&ring_); }

    // Sends what is queued and reaps `count` completions, each of which must have moved one byte.
    void finish(unsigned count) {
        while (count > 0) {
            const int sent = ::io_uring_submit_and_wait(&ring_, count);
            if (sent < 0 && sent != -EINTR) {
                give_up("io_uring_submit_and_wait", sent);
            }
            unsigned head = 0;
            unsigned seen = 0;
            io_uring_cqe* cqe = nullptr;
            io_uring_for_each_cqe(&ring_, head, cqe) {
                expect(cqe->res, 1, "ring operation");
                ++seen;
            }
            ::io_uring_cq_advance(&ring_, seen);
            count -= seen;
        }
    }

private:
    io_uring ring_{};
};

struct bed {
    ring uring{512};
    pipe_set pipes{pipe_count, 0};
    std::array<char, pipe_count> in{};
    char out = 'x';
};

template <typename Round>
slice over_rounds(Round round) {
    auto shared = std::make_shared<bed>();
    return [shared, round](std::size_t rounds) {
        stopwatch clock;
        for (std::size_t i = 0; i < rounds; ++i) {
            round(*shared);
        }
        keep(shared->in[0]);
        return measurement{rounds * pipe_count * 2, clock.elapsed()};
    };
}

void ready_round(bed& b) {
    for (std::size_t i = 0; i < pipe_count; ++i) {
        b.uring.write(b.pipes.writer(i), &b.out);
    }
    b.uring.finish(pipe_count);
    for (std::size_t i = 0; i < pipe_count; ++i) {
        b.uring.read(b.pipes.reader(i), &b.in[i]);
    }
    b.uring.finish(pipe_count);
}

void arm_all_reads(bed& b) {
    for (std::size_t i = 0; i < pipe_count; ++i) {
        b.uring.read(b.pipes.reader(i), &b.in[i]);
    }
    b.uring.submit(pipe_count);
    expect(b.uring.completed(), 0, "completions before any write"); // that is, all of them wait
}

void lockstep_round(bed& b) {
    arm_all_reads(b);
    for (std::size_t i = 0; i < pipe_count; ++i) {
        b.uring.write(b.pipes.writer(i), &b.out);
    }
    b.uring.finish(pipe_count * 2);
}

void lockstep_direct_write_round(bed& b) {
    arm_all_reads(b);
    const iovec from{&b.out, 1};
    for (std::size_t i = 0; i < pipe_count; ++i) {
        expect(::pwritev2(b.pipes.writer(i), &from, 1, -1, rwf_nosignal), 1, "pwritev2");
    }
    b.uring.finish(pipe_count);
}

void punted_ready_round(bed& b, std::size_t batch) {
    for (std::size_t first = 0; first < pipe_count; first += batch) {
        for (std::size_t i = first; i < first + batch; ++i) {
            b.uring.write(b.pipes.writer(i), &b.out, IOSQE_ASYNC);
        }
        b.uring.finish(static_cast<unsigned>(batch));
    }
    for (std::size_t first = 0; first < pipe_count; first += batch) {
        for (std::size_t i = first; i < first + batch; ++i) {
            b.uring.read(b.pipes.reader(i), &b.in[i], IOSQE_ASYNC);
        }
        b.uring.finish(static_cast<unsigned>(batch));
    }
}

void punted_lockstep_round(bed& b, std::size_t batch) {
    for (std::size_t first = 0; first < pipe_count; first += batch) {
        for (std::size_t i = first; i < first + batch; ++i) {
            b.uring.read(b.pipes.reader(i), &b.in[i], IOSQE_ASYNC);
        }
        b.uring.submit(static_cast<unsigned>(batch));
        for (std::size_t i = first; i < first + batch; ++i) {
            b.uring.write(b.pipes.writer(i), &b.out, IOSQE_ASYNC);
        }
        b.uring.finish(static_cast<unsigned>(batch * 2));
    }
}

std::string punted_name(std::size_t batch) {
    return "io_uring, all IOSQE_ASYNC, batches of " + std::to_string(batch);
}

// A baseline that was not punted after all would flatter nobody, but it would be a lie.
slice checked_for_workers(slice run) {
    return [run = std::move(run)](std::size_t rounds) {
        const measurement result = run(rounds);
        if (count_io_workers() == 0) {
            give_up("io_uring worker threads in the punted loop", 0);
        }
        return result;
    };
}

} // namespace

contender uring_ready() {
    return {"liburing, batched writes, then batched reads", [] { return over_rounds(ready_round); }};
}

contender uring_lockstep() {
    return {"liburing, 128 armed reads, 128 ring writes", [] { return over_rounds(lockstep_round); }};
}

contender uring_lockstep_direct_write() {
    return {"liburing, 128 armed reads, pwritev2(NOSIGNAL)",
            [] { return over_rounds(lockstep_direct_write_round); }};
}

contender punted_ready(std::size_t batch) {
    return {punted_name(batch), [batch] {
                return checked_for_workers(over_rounds([batch](bed& b) { punted_ready_round(b, batch); }));
            }};
}

contender punted_lockstep(std::size_t batch) {
    return {punted_name(batch), [batch] {
                return checked_for_workers(over_rounds([batch](bed& b) { punted_lockstep_round(b, batch); }));
            }};
}

} // namespace bench::pipes
