// The immediate half of the seam without a kernel: pipes in memory, results made to order, a clock that moves by hand.
#pragma once

#include <nowait/detail/system.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

namespace nowait_test {

/// Single-threaded. Numbers start at 1000, so that no call can hit a real descriptor unnoticed.
class fake_system final : public nowait::detail::system {
public:
    using time_point = std::chrono::steady_clock::time_point;

    /// What new pipes hold, in bytes.
    std::size_t capacity = 65536;
    time_point time{std::chrono::hours(1)};
    /// What passes each time somebody looks at the clock.
    std::chrono::nanoseconds step{0};

    /// The next attempts on `fd`, in order: a negative value is returned as it is, a positive one limits the count.
    void inject(int fd, long outcome) { injected_[fd].push_back(outcome); }
    /// What making the next pipe ends with; 0 is success.
    int next_make_pipe = 0;

    void without(nowait::detail::feature f) noexcept { features_ &= ~static_cast<std::uint32_t>(f); }

    // What the other side of the test sees.
    [[nodiscard]] std::size_t open_descriptors() const noexcept { return ends_.size(); }
    [[nodiscard]] bool is_open(int fd) const noexcept { return ends_.count(fd) != 0; }
    [[nodiscard]] std::string content(int fd) const;
    /// Counts what makes `fd` worth a look: a driver that reports edges compares it with what it last saw.
    [[nodiscard]] std::uint64_t edges(int fd) const noexcept;

    struct {
        std::size_t reads = 0, writes = 0, readies = 0, closes = 0;
    } calls;

    long read(int fd, const iovec* parts, int count) noexcept override;
    long write(int fd, const iovec* parts, int count) noexcept override;
    long read_nowait(int fd, const iovec* parts, int count) noexcept override;
    long write_nowait(int fd, const iovec* parts, int count) noexcept override;
    long receive(int, const iovec*, int) noexcept override;
    long send(int, const iovec*, int) noexcept override;
    long splice(int from, int to, std::size_t size) noexcept override;
    long tee(int from, int to, std::size_t size) noexcept override;
    int ready(int fd, int events) noexcept override;
    int make_pipe(int (&ends)[2], bool packets) noexcept override;
    int close(int fd) noexcept override;
    int inspect(int fd, nowait::detail::file_info& info) noexcept override;
    int set_nonblocking(int fd) noexcept override;
    int reopen_nonblocking(int fd, bool for_reading) noexcept override;
    int duplicate(int fd) noexcept override;
    long pipe_size(int fd) noexcept override;
    long set_pipe_size(int fd, std::size_t size) noexcept override;
    long available(int fd) noexcept override;
    time_point now() noexcept override { return time += step; }

private:
    struct pipe {
        std::string bytes;
        std::size_t capacity = 0;
        int readers = 0;
        int writers = 0;
        std::uint64_t reader_edges = 0;
        std::uint64_t writer_edges = 0;
    };
    struct end {
        std::shared_ptr<pipe> of;
        bool reads = false;
    };

    [[nodiscard]] end* find(int fd) noexcept;
    int add(std::shared_ptr<pipe> of, bool reads);
    /// An injected outcome, or `otherwise`.
    [[nodiscard]] long take_injected(int fd, long otherwise) noexcept;

    std::map<int, end> ends_;
    std::map<int, std::deque<long>> injected_;
    int next_number_ = 1000;
};

} // namespace nowait_test
