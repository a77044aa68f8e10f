// The pipe ring against the kernel's own pipe: the same random calls on both, from a printed seed. After each
// call the same result, the same errno, the same bytes read, and on both pipes the same readiness (poll) and
// the same number of bytes available (FIONREAD). A failure is shrunk to a short list of calls.
//
//   NOWAIT_DIFFERENTIAL_SEED=n   repeat a run            NOWAIT_DIFFERENTIAL_CALLS=n   default 200,000
//
// Where the ring differs on purpose, and why this test does not see it:
//   - EPIPE comes without SIGPIPE: the test ignores the signal.
//   - A tee that finds nothing while writers exist is EAGAIN. The kernel's 0 in that case needs a second
//     thread.
//   - An exhausted page reference count is ENOMEM, in the kernel EFAULT: it takes 2^30 copies.
//   - A side that reached zero stays there; a kernel pipe can be opened anew through /proc.
//   - The per-user limit on pages and CAP_SYS_RESOURCE do not exist; the test asks the kernel which of them
//     applies.
//   - While a reservation or a peek is outstanding, competing calls see EAGAIN. Here each is ended at once,
//     and then reserve + commit is a write and peek + consume a read, slot by slot; pipe_ring_in_place.cpp
//     holds them longer.
#include "catch.hpp"

#include <nowait/detail/pipe_ring.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

namespace {

using namespace nowait;
using detail::page_list;
using detail::page_pool;
using detail::pipe_ring;
using detail::slot_array;

// -- Calls --------------------------------------------------------------------------------------------------

enum class kind : std::uint8_t {
    write,
    read,
    splice, // from `pipe` to the other one
    tee,
    resize,
    open_reader,
    open_writer,
    close_reader,
    close_writer,
    renew, // both ends of one pipe are closed, and a new one takes its place
};

// How a write or read is made.
enum class form : std::uint8_t { whole, parts, in_place, fast_first };

struct call {
    kind what;
    form how = form::whole;
    std::uint8_t pipe = 0;
    bool packet = false;
    std::uint32_t size = 0;
    std::uint32_t from = 0; // where in the pattern a write begins; also where it is cut into parts
};

std::string describe(const call& c) {
    static constexpr const char* kinds[] = {"write",        "read",        "splice",      "tee",
                                            "resize",       "open_reader", "open_writer", "close_reader",
                                            "close_writer", "renew"};
    static constexpr const char* forms[] = {"", " in parts", " in place", " fast path first"};
    std::ostringstream out;
    out << kinds[static_cast<int>(c.what)] << " pipe " << int{c.pipe};
    if (c.what <= kind::resize)
        out << ", " << c.size << " bytes";
    if (c.what <= kind::read)
        out << forms[static_cast<int>(c.how)];
    if (c.what == kind::write && c.packet)
        out << ", packet";
    return out.str();
}

// What one call did, and how both pipes look after it.
struct outcome {
    std::ptrdiff_t result = 0; // bytes or a negative errno
    std::vector<std::byte> bytes;
    struct view {
        bool readable, hangup, writable, broken;
        std::size_t available, capacity;
        bool operator==(const view&) const = default;
    } pipes[2]{};
};

std::string describe(const outcome& o) {
    std::ostringstream out;
    out << o.result;
    for (const outcome::view& v : o.pipes)
        out << " [" << (v.readable ? "in " : "") << (v.hangup ? "hup " : "") << (v.writable ? "out " : "")
            << (v.broken ? "err " : "") << v.available << "/" << v.capacity << "]";
    return out.str();
}

constexpr std::size_t pattern_size = std::size_t{1} << 22;

// Bytes without a period that matters: a write at a wrong place shows.
const std::vector<std::byte>& pattern() {
    static const std::vector<std::byte> made = [] {
        std::vector<std::byte> bytes(pattern_size);
        std::mt19937 random(1);
        for (std::byte& b : bytes)
            b = static_cast<std::byte>(random());
        return bytes;
    }();
    return made;
}

std::span<const std::byte> source(const call& c) {
    return std::span(pattern()).subspan(c.from, c.size);
}

// Where a call of several parts is cut. A part may be empty.
std::array<std::size_t, 4> cuts(const call& c) {
    std::size_t a = c.size == 0 ? 0 : c.from % c.size;
    return {0, a / 2, a, c.size};
}

// -- The kernel's pipes -------------------------------------------------------------------------------------

class kernel_world {
public:
    kernel_world() {
        renew(0);
        renew(1);
    }
    ~kernel_world() {
        close_all(0);
        close_all(1);
    }
    kernel_world(const kernel_world&) = delete;
    kernel_world& operator=(const kernel_world&) = delete;

    std::size_t readers(int pipe) const { return pipes_[pipe].readers.size(); }
    std::size_t writers(int pipe) const { return pipes_[pipe].writers.size(); }

    outcome perform(const call& c) {
        outcome o;
        o.result = act(c, o.bytes);
        if (o.result < 0)
            o.result = -errno;
        look(o);
        return o;
    }

    std::size_t capacity(int pipe) const { return pipes_[pipe].capacity; }

private:
    struct end {
        int fd;
        bool packet = false;
    };
    struct ends {
        std::vector<end> readers, writers;
        std::size_t capacity = 0;
    };

    std::ptrdiff_t act(const call& c, std::vector<std::byte>& bytes) {
        ends& p = pipes_[c.pipe];
        ends& other = pipes_[1 - c.pipe];
        switch (c.what) {
        case kind::write:
            return write(c, p.writers[c.from % p.writers.size()]);
        case kind::read:
            return read(c, p.readers[c.from % p.readers.size()].fd, bytes);
        case kind::splice:
            return ::splice(p.readers[0].fd, nullptr, other.writers[0].fd, nullptr, c.size,
                            SPLICE_F_NONBLOCK);
        case kind::tee:
            return ::tee(p.readers[0].fd, other.writers[0].fd, c.size, SPLICE_F_NONBLOCK);
        case kind::resize:
            return resize(c);
        case kind::open_reader:
            p.readers.push_back({reopen(any(p), O_RDONLY)});
            return 0;
        case kind::open_writer:
            p.writers.push_back({reopen(any(p), O_WRONLY)});
            return 0;
        case kind::close_reader:
            close_last(p.readers);
            return 0;
        case kind::close_writer:
            close_last(p.writers);
            return 0;
        case kind::renew:
            close_all(c.pipe);
            renew(c.pipe);
            return 0;
        }
        return 0;
    }
    static std::ptrdiff_t write(const call& c, end& writer) {
        if (writer.packet != c.packet) {
            ::fcntl(writer.fd, F_SETFL, O_NONBLOCK | (c.packet ? O_DIRECT : 0));
            writer.packet = c.packet;
        }
        auto* bytes = const_cast<std::byte*>(source(c).data());
        if (c.how != form::parts)
            return ::write(writer.fd, bytes, c.size);
        auto cut = cuts(c);
        iovec parts[3];
        for (std::size_t i = 0; i != 3; ++i)
            parts[i] = {bytes + cut[i], cut[i + 1] - cut[i]};
        return ::writev(writer.fd, parts, 3);
    }
    static std::ptrdiff_t read(const call& c, int fd, std::vector<std::byte>& bytes) {
        bytes.resize(c.size);
        std::ptrdiff_t n = 0;
        if (c.how == form::parts) {
            auto cut = cuts(c);
            iovec parts[3];
            for (std::size_t i = 0; i != 3; ++i)
                parts[i] = {bytes.data() + cut[i], cut[i + 1] - cut[i]};
            n = ::readv(fd, parts, 3);
        } else {
            n = ::read(fd, bytes.data(), c.size);
        }
        bytes.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
        return n;
    }
    std::ptrdiff_t resize(const call& c) {
        int n = ::fcntl(any(pipes_[c.pipe]), F_SETPIPE_SZ, c.size);
        if (n > 0)
            pipes_[c.pipe].capacity = static_cast<std::size_t>(n);
        return n;
    }
    void look(outcome& o) const {
        int error = errno;
        pollfd fds[4];
        nfds_t count = 0;
        for (const ends& p : pipes_) {
            if (!p.readers.empty())
                fds[count++] = {p.readers[0].fd, POLLIN, 0};
            if (!p.writers.empty())
                fds[count++] = {p.writers[0].fd, POLLOUT, 0};
        }
        ::poll(fds, count, 0);
        count = 0;
        for (int i = 0; i != 2; ++i) {
            const ends& p = pipes_[i];
            outcome::view v{};
            if (!p.readers.empty()) {
                v.readable = (fds[count].revents & POLLIN) != 0;
                v.hangup = (fds[count++].revents & POLLHUP) != 0;
            }
            if (!p.writers.empty()) {
                v.writable = (fds[count].revents & POLLOUT) != 0;
                v.broken = (fds[count++].revents & POLLERR) != 0;
            }
            int available = 0;
            if (any(p) >= 0)
                ::ioctl(any(p), FIONREAD, &available);
            v.available = static_cast<std::size_t>(available);
            v.capacity = p.capacity;
            o.pipes[i] = v;
        }
        errno = error;
    }
    static int any(const ends& p) {
        return !p.readers.empty() ? p.readers[0].fd : !p.writers.empty() ? p.writers[0].fd : -1;
    }
    // A description of its own, so that packet mode is per write end.
    static int reopen(int fd, int mode) {
        std::string path = "/proc/self/fd/" + std::to_string(fd);
        return ::open(path.c_str(), mode | O_NONBLOCK | O_CLOEXEC);
    }
    static void close_last(std::vector<end>& side) {
        ::close(side.back().fd);
        side.pop_back();
    }
    void close_all(int pipe) {
        while (!pipes_[pipe].readers.empty())
            close_last(pipes_[pipe].readers);
        while (!pipes_[pipe].writers.empty())
            close_last(pipes_[pipe].writers);
    }
    void renew(int pipe) {
        int fds[2] = {-1, -1};
        if (::pipe2(fds, O_NONBLOCK | O_CLOEXEC) != 0)
            std::abort();
        pipes_[pipe].readers = {{fds[0]}};
        pipes_[pipe].writers = {{fds[1]}};
        pipes_[pipe].capacity = static_cast<std::size_t>(::fcntl(fds[0], F_GETPIPE_SZ));
    }

    ends pipes_[2];
};

// -- Our rings ----------------------------------------------------------------------------------------------

// A wrong ring, for the test of the test.
enum class sabotage { none, tee_keeps_can_merge, shrink_counts_bytes };

class ring_world {
public:
    ring_world(const kernel_world& like, std::size_t limit, sabotage wrong) : limit_(limit), wrong_(wrong) {
        renew(0, like.capacity(0));
        renew(1, like.capacity(1));
    }

    outcome perform(const call& c, const kernel_world& like) {
        outcome o;
        o.result = act(c, o.bytes, like);
        for (int i = 0; i != 2; ++i) {
            const pipe_ring& ring = *rings_[i];
            pipe_ring::readiness r = ring.poll();
            outcome::view v{};
            if (ring.readers() != 0) {
                v.readable = r.readable;
                v.hangup = r.hangup;
            }
            if (ring.writers() != 0) {
                v.writable = r.writable;
                v.broken = r.broken;
            }
            v.available = ring.readers() + ring.writers() != 0 ? ring.bytes_available() : 0;
            v.capacity = ring.capacity_bytes();
            o.pipes[i] = v;
        }
        return o;
    }
    bool consistent() const {
        return rings_[0]->consistent() && rings_[1]->consistent() && one_appender_per_page();
    }

private:
    std::ptrdiff_t act(const call& c, std::vector<std::byte>& bytes, const kernel_world& like) {
        pipe_ring& ring = *rings_[c.pipe];
        pipe_ring& other = *rings_[1 - c.pipe];
        switch (c.what) {
        case kind::write:
            return write(ring, c);
        case kind::read:
            return read(ring, c, bytes);
        case kind::splice:
            return pipe_ring::splice(ring, other, c.size);
        case kind::tee:
            return tee(ring, other, c.size);
        case kind::resize:
            return resize(ring, c.size);
        case kind::open_reader:
            ring.add_reader();
            return 0;
        case kind::open_writer:
            ring.add_writer();
            return 0;
        case kind::close_reader:
            ring.drop_reader();
            return 0;
        case kind::close_writer:
            ring.drop_writer();
            return 0;
        case kind::renew:
            renew(c.pipe, like.capacity(c.pipe));
            return 0;
        }
        return 0;
    }
    static std::ptrdiff_t write(pipe_ring& ring, const call& c) {
        std::span<const std::byte> bytes = source(c);
        if (c.how == form::fast_first && ring.write_one(bytes, c.packet))
            return static_cast<std::ptrdiff_t>(bytes.size());
        page_list pages;
        if (!page_pool::of_this_thread().take(ring.pages_needed(c.size), pages))
            return -ENOMEM;
        if (c.how == form::in_place && c.size != 0) {
            std::vector<std::span<std::byte>> parts(ring.max_usage() + 1);
            std::ptrdiff_t n = ring.reserve(c.size, c.packet, parts, pages);
            if (n < 0)
                return n;
            std::size_t done = 0;
            for (std::span<std::byte> part : std::span(parts).first(static_cast<std::size_t>(n))) {
                std::copy_n(bytes.data() + done, part.size(), part.data());
                done += part.size();
            }
            return ring.commit(done, pages);
        }
        if (c.how != form::parts) {
            detail::gather from(bytes);
            return ring.write(from, c.packet, pages);
        }
        auto cut = cuts(c);
        std::span<const std::byte> parts[3];
        for (std::size_t i = 0; i != 3; ++i)
            parts[i] = bytes.subspan(cut[i], cut[i + 1] - cut[i]);
        detail::gather from(parts);
        return ring.write(from, c.packet, pages);
    }
    static std::ptrdiff_t read(pipe_ring& ring, const call& c, std::vector<std::byte>& bytes) {
        bytes.resize(c.size);
        page_list pages;
        std::ptrdiff_t n = 0;
        if (c.how == form::fast_first)
            n = static_cast<std::ptrdiff_t>(ring.read_one(bytes));
        if (n != 0) {
        } else if (c.how == form::in_place && c.size != 0) {
            n = read_in_place(ring, bytes, pages);
        } else if (c.how == form::parts) {
            auto cut = cuts(c);
            std::span<std::byte> parts[3];
            for (std::size_t i = 0; i != 3; ++i)
                parts[i] = std::span(bytes).subspan(cut[i], cut[i + 1] - cut[i]);
            detail::scatter to(parts);
            n = ring.read(to, pages);
        } else {
            detail::scatter to{std::span<std::byte>(bytes)};
            n = ring.read(to, pages);
        }
        bytes.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
        return n;
    }
    static std::ptrdiff_t read_in_place(pipe_ring& ring, std::span<std::byte> to, page_list& pages) {
        std::vector<std::span<const std::byte>> parts(ring.max_usage());
        std::ptrdiff_t n = ring.peek(parts);
        if (n <= 0)
            return n;
        std::size_t done = 0;
        for (std::span<const std::byte> part : std::span(parts).first(static_cast<std::size_t>(n))) {
            std::size_t size = std::min(part.size(), to.size() - done);
            std::copy_n(part.data(), size, to.data() + done);
            done += size;
        }
        return ring.consume(done, pages);
    }
    std::ptrdiff_t tee(pipe_ring& in, pipe_ring& out, std::size_t size) const {
        std::uint32_t before = out.indices().occupancy();
        std::ptrdiff_t n = pipe_ring::tee(in, out, size);
        if (wrong_ == sabotage::tee_keeps_can_merge && n > 0)
            const_cast<detail::pipe_slot&>(out.slot(before)).flags = in.slot(0).flags;
        return n;
    }
    std::ptrdiff_t resize(pipe_ring& ring, std::size_t bytes) const {
        std::ptrdiff_t slots = ring.plan_resize(bytes);
        if (slots < 0)
            return slots;
        if (wrong_ == sabotage::shrink_counts_bytes && bytes < ring.bytes_available())
            return -EBUSY;
        slot_array storage = slot_array::create(static_cast<std::uint32_t>(slots));
        if (!storage)
            return -ENOMEM;
        int error = ring.resize(storage);
        return error != 0 ? error : static_cast<std::ptrdiff_t>(ring.capacity_bytes());
    }
    void renew(int pipe, std::size_t capacity) {
        auto slots = static_cast<std::uint32_t>(capacity / detail::page_size);
        rings_[pipe] = std::make_unique<pipe_ring>(slot_array::create(slots), limit_);
    }
    bool one_appender_per_page() const {
        if (wrong_ != sabotage::none)
            return true; // the kernel must find it
        std::vector<const detail::page*> appendable;
        for (const auto& ring : rings_)
            for (std::uint32_t i = 0; i != ring->indices().occupancy(); ++i)
                if ((ring->slot(i).flags & detail::pipe_slot::can_merge) != 0)
                    appendable.push_back(ring->slot(i).page);
        std::sort(appendable.begin(), appendable.end());
        return std::adjacent_find(appendable.begin(), appendable.end()) == appendable.end();
    }

    std::size_t limit_;
    sabotage wrong_;
    std::unique_ptr<pipe_ring> rings_[2];
};

// -- Both ---------------------------------------------------------------------------------------------------

class kernel_limits {
public:
    std::size_t pipe_max_size = pipe_ring::default_limit_bytes;
    bool privileged = false; // may grow beyond it

    kernel_limits() {
        if (std::FILE* file = std::fopen("/proc/sys/fs/pipe-max-size", "re")) {
            if (std::fscanf(file, "%zu", &pipe_max_size) != 1)
                pipe_max_size = pipe_ring::default_limit_bytes;
            std::fclose(file);
        }
        int fds[2];
        if (::pipe(fds) == 0) {
            privileged = ::fcntl(fds[0], F_SETPIPE_SZ, 2 * pipe_max_size) > 0;
            ::close(fds[0]);
            ::close(fds[1]);
        }
    }
};

class rig {
public:
    rig(const kernel_limits& limits, sabotage wrong) : ours_(kernel_, limits.pipe_max_size, wrong) {}

    // False if the call makes no sense in the present state; after shrinking, many do not.
    bool possible(const call& c) const {
        std::size_t readers = kernel_.readers(c.pipe);
        std::size_t writers = kernel_.writers(c.pipe);
        switch (c.what) {
        case kind::write:
            return writers != 0;
        case kind::read:
            return readers != 0;
        case kind::splice:
        case kind::tee:
            return readers != 0 && kernel_.writers(1 - c.pipe) != 0;
        case kind::resize:
            return readers + writers != 0;
        case kind::open_reader:
            return readers != 0 && readers < 3;
        case kind::open_writer:
            return writers != 0 && writers < 3;
        case kind::close_reader:
            return readers != 0;
        case kind::close_writer:
            return writers != 0;
        case kind::renew:
            return true;
        }
        return false;
    }
    // What went wrong, or nothing.
    std::optional<std::string> step(const call& c) {
        if (!possible(c))
            return {};
        outcome theirs = kernel_.perform(c);
        outcome ours = ours_.perform(c, kernel_);
        bool same = theirs.result == ours.result && theirs.bytes == ours.bytes &&
                    theirs.pipes[0] == ours.pipes[0] && theirs.pipes[1] == ours.pipes[1];
        if (same && ours_.consistent())
            return {};
        std::string text =
            describe(c) + "\n    kernel " + describe(theirs) + "\n    ours   " + describe(ours);
        if (theirs.bytes != ours.bytes)
            text += "\n    the bytes differ";
        return text + (ours_.consistent() ? "" : "\n    an invariant is broken");
    }
    std::size_t capacity(int pipe) const { return kernel_.capacity(pipe); }
    bool dead(int pipe) const { return kernel_.readers(pipe) == 0 || kernel_.writers(pipe) == 0; }

private:
    kernel_world kernel_;
    ring_world ours_;
};

class generator {
public:
    explicit generator(std::uint64_t seed) : random_(seed) {}

    call next(const rig& state, const kernel_limits& limits) {
        call c{kind::write};
        c.pipe = static_cast<std::uint8_t>(below(2));
        c.how = static_cast<form>(below(4));
        c.packet = below(phase_packets_) == 0;
        std::uint32_t dice = below(1000);
        if (dice < 5)
            begin_phase();
        if (state.dead(c.pipe) && below(16) == 0)
            c.what = kind::renew;
        else if (dice < 380)
            c.what = kind::write;
        else if (dice < 380 + phase_reads_)
            c.what = kind::read;
        else if (dice < 860)
            c.what = kind::splice;
        else if (dice < 950)
            c.what = kind::tee;
        else if (dice < 980)
            c.what = kind::resize;
        else
            c.what = std::array{kind::open_reader, kind::open_writer, kind::close_reader,
                                kind::close_writer}[below(4)];
        c.size = c.what == kind::resize ? new_capacity(limits) : size(state.capacity(c.pipe));
        c.from = below(static_cast<std::uint32_t>(pattern_size - c.size));
        return c;
    }

private:
    std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }

    // Now and then the mixture changes: mostly full, mostly empty, many packets, none.
    void begin_phase() {
        phase_reads_ = 150 + below(280);
        phase_packets_ = 1 + below(12);
    }
    std::uint32_t size(std::size_t capacity) {
        auto full = static_cast<std::uint32_t>(std::min<std::size_t>(capacity, std::size_t{1} << 20));
        switch (below(16)) {
        case 0:
            return 0;
        case 1:
            return 1;
        case 2:
            return 4095;
        case 3:
            return 4096;
        case 4:
            return 4097;
        case 5:
            return 8192 - 1 + below(3);
        case 6:
            return below(8) == 0 ? full - 1 + below(3) : 4096 - below(64);
        case 7:
            return below(20000);
        case 8:
        case 9:
            return below(4097);
        case 10:
        case 11:
            return 2048 - 1 + below(3);
        default:
            return 1 + below(600);
        }
    }
    std::uint32_t new_capacity(const kernel_limits& limits) {
        auto limit = static_cast<std::uint32_t>(limits.pipe_max_size);
        switch (below(14)) {
        case 0:
            return below(2);
        case 1:
            return 4095 + below(3);
        case 2:
            return below(10) != 0 ? 65536 : limit - below(2);
        case 3:
            return limits.privileged ? 4096 : limit + 1;
        case 4:
            return (std::uint32_t{1} << 31) + 1;
        case 5:
            return limits.privileged ? 8192 : std::uint32_t{1} << 31;
        case 6:
        case 7:
            return below(131072);
        default:
            return 4096 + below(32768);
        }
    }

    std::mt19937_64 random_;
    std::uint32_t phase_reads_ = 300;
    std::uint32_t phase_packets_ = 8;
};

struct failure {
    std::vector<call> calls;
    std::string text;
};

// Runs the calls on fresh pipes. The failure holds the calls up to the one that went wrong.
std::optional<failure> replay(const std::vector<call>& calls, const kernel_limits& limits, sabotage wrong) {
    rig both(limits, wrong);
    for (std::size_t i = 0; i != calls.size(); ++i)
        if (auto text = both.step(calls[i]))
            return failure{{calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(i) + 1}, *text};
    return {};
}

// Delta debugging: drops runs of calls, long ones first, for as long as what is left still fails.
failure shrink(failure f, const kernel_limits& limits, sabotage wrong) {
    for (std::size_t run = std::max<std::size_t>(f.calls.size() / 2, 1); run != 0;) {
        bool dropped = false;
        for (std::size_t at = 0; at + run <= f.calls.size();) {
            std::vector<call> fewer = f.calls;
            auto first = fewer.begin() + static_cast<std::ptrdiff_t>(at);
            fewer.erase(first, first + static_cast<std::ptrdiff_t>(run));
            if (auto still = replay(fewer, limits, wrong)) {
                f = std::move(*still);
                dropped = true;
            } else {
                at += run;
            }
        }
        run = dropped && run == 1 ? 1 : run / 2;
    }
    return f;
}

// Episodes of fresh pipes, until `count` calls were made.
std::optional<failure> explore(std::uint64_t seed, std::uint64_t count, sabotage wrong = sabotage::none) {
    constexpr std::uint64_t episode = 2000;
    kernel_limits limits;
    std::mt19937_64 seeds(seed);
    for (std::uint64_t made = 0; made < count; made += episode) {
        rig both(limits, wrong);
        generator next(seeds());
        std::vector<call> calls;
        while (calls.size() != std::min(episode, count - made)) {
            calls.push_back(next.next(both, limits));
            if (auto text = both.step(calls.back()))
                return shrink({calls, *text}, limits, wrong);
        }
    }
    return {};
}

std::string describe(const failure& f, std::uint64_t seed) {
    std::string text = "NOWAIT_DIFFERENTIAL_SEED=" + std::to_string(seed) + ", shrunk to\n";
    for (const call& c : f.calls)
        text += "  " + describe(c) + "\n";
    return text + "and there\n  " + f.text;
}

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct sigpipe_ignored {
    void (*before)(int) = std::signal(SIGPIPE, SIG_IGN);
    ~sigpipe_ignored() { std::signal(SIGPIPE, before); }
};

} // namespace

TEST_CASE("pipe ring: random calls do what they do to a kernel pipe", "[channels][pipe][differential]") {
    sigpipe_ignored guard;
    std::uint64_t seed = from_environment("NOWAIT_DIFFERENTIAL_SEED", std::random_device{}());
    std::uint64_t calls = from_environment("NOWAIT_DIFFERENTIAL_CALLS", 200'000);
    std::printf("pipe against the kernel: NOWAIT_DIFFERENTIAL_SEED=%llu, %llu calls\n",
                static_cast<unsigned long long>(seed), static_cast<unsigned long long>(calls));
    auto found = explore(seed, calls);
    INFO((found ? describe(*found, seed) : std::string()));
    REQUIRE_FALSE(found);
}

TEST_CASE("pipe ring: the differential test finds a wrong ring and says it in a few calls",
          "[channels][pipe][differential]") {
    sigpipe_ignored guard;
    SECTION("tee leaves both copies appendable (an old kernel bug)") {
        auto found = explore(7, 200'000, sabotage::tee_keeps_can_merge);
        REQUIRE(found);
        INFO(describe(*found, 7));
        CHECK(found->calls.size() <= 5); // write, tee, write to one, write to the other, read
    }
    SECTION("shrinking refuses by bytes instead of slots") {
        auto found = explore(7, 200'000, sabotage::shrink_counts_bytes);
        REQUIRE(found);
        INFO(describe(*found, 7));
        CHECK(found->calls.size() <= 3);
    }
}
