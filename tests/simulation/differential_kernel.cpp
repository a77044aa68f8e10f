// The simulated kernel against the real one: the same random calls through the same seam, and after each of them the same result,
// the same bytes, and of every descriptor the same readiness.
#include "catch.hpp"

#include <nowait/detail/system.hpp>
#include <nowait/simulation.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace {

using nowait::detail::file_info;
using nowait::detail::queue_attributes;
using nowait::detail::system;

enum class kind : std::uint8_t {
    make_pipe,
    make_packet_pipe,
    read,
    write,
    read_nowait,
    write_nowait,
    splice,
    tee,
    resize,
    duplicate,
    reopen,
    close,
    open_queue,
    send,
    receive
};

struct call {
    kind what;
    std::size_t a, b; // which of the open descriptors, modulo their number
    std::size_t size;
    unsigned priority;
};

/// One of the two kernels, and the descriptors in the order of their making.
class world {
public:
    world(system& calls, std::string queue) : calls_(calls), queue_(std::move(queue)) {}
    ~world() {
        for (const int fd : numbers_)
            (void)calls_.close(fd);
        (void)calls_.queue_unlink(queue_.c_str());
    }
    world(const world&) = delete;
    world& operator=(const world&) = delete;

    std::string perform(const call& c) {
        std::ostringstream out;
        std::string bytes;
        long n = 0;
        const int a = numbers_.empty() ? -1 : numbers_[c.a % numbers_.size()];
        const int b = numbers_.empty() ? -1 : numbers_[c.b % numbers_.size()];
        if (queue_attributes of_queue;
            c.what >= kind::read && c.what <= kind::resize &&
            (calls_.queue_inspect(a, of_queue) == 0 || calls_.queue_inspect(b, of_queue) == 0))
            return "skipped"; // reading one gives a line about its state
        switch (c.what) {
        case kind::make_pipe:
        case kind::make_packet_pipe: {
            int ends[2] = {-1, -1};
            n = calls_.make_pipe(ends, c.what == kind::make_packet_pipe);
            if (n == 0)
                numbers_.insert(numbers_.end(), std::begin(ends), std::end(ends));
            break;
        }
        case kind::read:
        case kind::read_nowait: {
            bytes.assign(c.size, '?');
            const iovec parts[2] = {{bytes.data(), c.size / 3},
                                    {bytes.data() + c.size / 3, c.size - c.size / 3}};
            n = c.what == kind::read ? calls_.read(a, parts, 2) : calls_.read_nowait(a, parts, 2);
            break;
        }
        case kind::write:
        case kind::write_nowait: {
            std::string data;
            for (std::size_t i = 0; i < c.size; ++i)
                data.push_back(static_cast<char>('a' + (c.b + i) % 26));
            const iovec parts[2] = {{data.data(), c.size / 2},
                                    {data.data() + c.size / 2, c.size - c.size / 2}};
            n = c.what == kind::write ? calls_.write(a, parts, 2) : calls_.write_nowait(a, parts, 2);
            break;
        }
        case kind::splice:
            n = calls_.splice(a, b, c.size);
            break;
        case kind::tee:
            n = calls_.tee(a, b, c.size);
            break;
        case kind::resize:
            n = calls_.set_pipe_size(a, c.size);
            break;
        case kind::duplicate:
            n = added(calls_.duplicate(a));
            break;
        case kind::reopen:
            // Of a queue it means something else on the two.
            n = is_pipe(a) ? added(calls_.reopen_nonblocking(a, can(a, O_RDONLY))) : 0;
            break;
        case kind::close:
            n = calls_.close(a);
            if (n == 0)
                numbers_.erase(numbers_.begin() + static_cast<std::ptrdiff_t>(c.a % numbers_.size()));
            break;
        case kind::open_queue: {
            const queue_attributes limits{3, 100, 0, 0};
            n = added(calls_.queue_open(queue_.c_str(), O_RDWR | O_CREAT, 0600, &limits));
            break;
        }
        case kind::send:
            bytes.assign(c.size % 120, static_cast<char>('A' + c.b % 26));
            n = calls_.queue_send(a, bytes.data(), bytes.size(), c.priority);
            break;
        case kind::receive: {
            unsigned priority = 0;
            bytes.assign(c.b % 8 == 0 ? 50 : 100, '?');
            n = calls_.queue_receive(a, bytes.data(), bytes.size(), priority);
            out << "priority " << (n >= 0 ? priority : 0) << ' ';
            break;
        }
        }
        out << n << ' ' << std::hash<std::string>()(bytes);
        for (const int fd : numbers_) {
            file_info info;
            (void)calls_.inspect(fd, info);
            out << " [" << (calls_.ready(fd, POLLIN | POLLOUT) & (POLLIN | POLLOUT | POLLHUP | POLLERR))
                << ' ' << static_cast<int>(info.kind) << ' ' << std::oct
                << (info.flags & (O_ACCMODE | O_NONBLOCK | O_DIRECT)) << std::dec;
            if (is_pipe(fd))
                out << ' ' << calls_.pipe_size(fd) << ' ' << calls_.available(fd);
            queue_attributes found;
            if (calls_.queue_inspect(fd, found) == 0)
                out << " queue " << found.messages << '/' << found.capacity << ' ' << found.message_size;
            out << ']';
        }
        return out.str();
    }

    [[nodiscard]] std::size_t open() const noexcept { return numbers_.size(); }

private:
    long added(int fd) {
        if (fd < 0)
            return fd;
        numbers_.push_back(fd);
        return 0;
    }
    [[nodiscard]] bool is_pipe(int fd) {
        file_info info;
        return calls_.inspect(fd, info) == 0 && info.kind == nowait::detail::file_kind::pipe;
    }
    [[nodiscard]] bool can(int fd, int mode) {
        file_info info;
        return calls_.inspect(fd, info) == 0 && (info.flags & O_ACCMODE) == mode;
    }

    system& calls_;
    std::string queue_;
    std::vector<int> numbers_;
};

std::size_t some_size(std::mt19937_64& random) {
    switch (random() % 6) {
    case 0:
        return 0;
    case 1:
        return 4096;
    case 2:
        return random() % 20'000;
    case 3:
        return 65536;
    default:
        return random() % 300;
    }
}

} // namespace

TEST_CASE("the simulated kernel answers as the real one does") {
    std::mt19937_64 random(20260101);
    std::size_t agreed = 0;
    for (int round = 0; round < 120; ++round) {
        nowait::simulation sim;
        const std::string queue = "/nowait-differential-" + std::to_string(::getpid());
        world simulated(sim.system(), queue);
        world real(nowait::detail::real_system(), queue);
        std::string history;
        for (int i = 0; i < 150; ++i) {
            call c{static_cast<kind>(random() % (static_cast<unsigned>(kind::receive) + 1)), random(),
                   random(), some_size(random), static_cast<unsigned>(random() % 3)};
            if (real.open() == 0)
                c.what = random() % 4 == 0 ? kind::open_queue : kind::make_pipe;
            if (real.open() > 12 && c.what != kind::close)
                c.what = c.what <= kind::make_packet_pipe || c.what == kind::duplicate ? kind::close : c.what;
            history += std::to_string(static_cast<int>(c.what)) + "(" +
                       std::to_string(real.open() == 0 ? 0 : c.a % real.open()) + ", " +
                       std::to_string(real.open() == 0 ? 0 : c.b % real.open()) + ", " +
                       std::to_string(c.size) + ") ";
            const std::string expected = real.perform(c);
            const std::string got = simulated.perform(c);
            agreed += got == expected;
            if (got != expected)
                FAIL("call " << history.substr(history.rfind(' ', history.size() - 2) - 20) << "\n"
                             << "round " << round << ": " << history << "\nreal      " << expected
                             << "\nsimulated " << got);
        }
    }
    CHECK(agreed == 120 * 150);
}
