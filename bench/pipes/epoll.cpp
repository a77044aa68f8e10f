#include "baselines.hpp"
#include "bench/support/keep.hpp"

#include <array>
#include <memory>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

namespace bench::pipes {
namespace {

// The readers stand in the set once and for all; a loop that knows that nothing is there does not try to read.
class bed {
public:
    bed() {
        expect(epoll_ >= 0, 1, "epoll_create1");
        for (std::size_t i = 0; i < pipes_.size(); ++i) {
            epoll_event wish{};
            wish.events = EPOLLIN | EPOLLET;
            wish.data.u32 = static_cast<std::uint32_t>(i);
            expect(::epoll_ctl(epoll_, EPOLL_CTL_ADD, pipes_.reader(i), &wish), 0, "epoll_ctl");
        }
    }
    bed(const bed&) = delete;
    bed& operator=(const bed&) = delete;
    ~bed() { ::close(epoll_); }

    measurement run(std::size_t rounds) {
        char out = 'x';
        char in = 0;
        const iovec from{&out, 1};
        const std::size_t size = pipes_.size();
        stopwatch clock;
        for (std::size_t round = 0; round < rounds; ++round) {
            for (std::size_t i = 0; i < size; ++i) {
                expect(::pwritev2(pipes_.writer(i), &from, 1, -1, rwf_nosignal), 1, "write");
            }
            for (std::size_t left = size; left > 0;) {
                const int n = ::epoll_wait(epoll_, events_.data(), static_cast<int>(events_.size()), -1);
                if (n < 0) {
                    give_up("epoll_wait", n);
                }
                for (int i = 0; i < n; ++i) {
                    const std::size_t which = events_[static_cast<std::size_t>(i)].data.u32;
                    expect(::read(pipes_.reader(which), &in, 1), 1, "read");
                }
                left -= static_cast<std::size_t>(n);
            }
        }
        keep(in);
        return {rounds * size * 2, clock.elapsed()};
    }

private:
    pipe_set pipes_{pipe_count, O_NONBLOCK | O_CLOEXEC};
    int epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    std::array<epoll_event, pipe_count> events_{};
};

} // namespace

contender epoll_lockstep() {
    return {"epoll, edges, 128 readers, pwritev2(NOSIGNAL)", [] {
                auto b = std::make_shared<bed>();
                return slice([b](std::size_t rounds) { return b->run(rounds); });
            }};
}

} // namespace bench::pipes
