#include "fake_system.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include <fcntl.h>
#include <poll.h>

namespace nowait_test {

namespace {

constexpr long no_limit = LONG_MAX;

std::size_t total(const iovec* parts, int count) noexcept {
    std::size_t sum = 0;
    for (int i = 0; i < count; ++i)
        sum += parts[i].iov_len;
    return sum;
}

} // namespace

fake_system::end* fake_system::find(int fd) noexcept {
    const auto at = ends_.find(fd);
    return at == ends_.end() ? nullptr : &at->second;
}

int fake_system::add(std::shared_ptr<pipe> of, bool reads) {
    ++(reads ? of->readers : of->writers);
    const int number = next_number_++;
    ends_[number] = end{std::move(of), reads};
    return number;
}

long fake_system::take_injected(int fd, long otherwise) noexcept {
    const auto at = injected_.find(fd);
    if (at == injected_.end() || at->second.empty())
        return otherwise;
    const long outcome = at->second.front();
    at->second.pop_front();
    return outcome;
}

std::string fake_system::content(int fd) const {
    return ends_.at(fd).of->bytes;
}

std::uint64_t fake_system::edges(int fd) const noexcept {
    const auto at = ends_.find(fd);
    if (at == ends_.end())
        return 0;
    return at->second.reads ? at->second.of->reader_edges : at->second.of->writer_edges;
}

long fake_system::read(int fd, const iovec* parts, int count) noexcept {
    ++calls.reads;
    const long limit = take_injected(fd, no_limit);
    if (limit < 0)
        return limit;
    end* e = find(fd);
    if (e == nullptr || !e->reads)
        return -EBADF;
    pipe& p = *e->of;
    std::size_t left = std::min({total(parts, count), static_cast<std::size_t>(limit), p.bytes.size()});
    if (left == 0)
        return p.writers == 0 ? 0 : -EAGAIN;
    const auto moved = static_cast<long>(left);
    for (int i = 0; i < count && left != 0; ++i) {
        const std::size_t n = std::min(left, parts[i].iov_len);
        std::copy_n(p.bytes.data(), n, static_cast<char*>(parts[i].iov_base));
        p.bytes.erase(0, n);
        left -= n;
    }
    ++p.writer_edges;
    return moved;
}

long fake_system::write(int fd, const iovec* parts, int count) noexcept {
    ++calls.writes;
    const long limit = take_injected(fd, no_limit);
    if (limit < 0)
        return limit;
    end* e = find(fd);
    if (e == nullptr || e->reads)
        return -EBADF;
    pipe& p = *e->of;
    if (p.readers == 0)
        return -EPIPE;
    const std::size_t wanted = std::min(total(parts, count), static_cast<std::size_t>(limit));
    const std::size_t room = p.capacity - p.bytes.size();
    if (wanted != 0 && (room == 0 || (wanted <= 4096 && room < wanted)))
        return -EAGAIN;
    std::size_t left = std::min(wanted, room);
    const auto moved = static_cast<long>(left);
    for (int i = 0; i < count && left != 0; ++i) {
        const std::size_t n = std::min(left, parts[i].iov_len);
        p.bytes.append(static_cast<const char*>(parts[i].iov_base), n);
        left -= n;
    }
    ++p.reader_edges;
    return moved;
}

long fake_system::read_nowait(int fd, const iovec* parts, int count) noexcept {
    return has(nowait::detail::feature::nowait) ? read(fd, parts, count) : -EOPNOTSUPP;
}

long fake_system::write_nowait(int fd, const iovec* parts, int count) noexcept {
    return has(nowait::detail::feature::nowait) ? write(fd, parts, count) : -EOPNOTSUPP;
}

long fake_system::receive(int, const iovec*, int) noexcept {
    return -ENOTSOCK;
}

long fake_system::send(int, const iovec*, int) noexcept {
    return -ENOTSOCK;
}

long fake_system::tee(int from, int to, std::size_t size) noexcept {
    end* source = find(from);
    end* sink = find(to);
    if (source == nullptr || sink == nullptr || !source->reads || sink->reads)
        return -EBADF;
    if (sink->of->readers == 0)
        return -EPIPE;
    const std::size_t n =
        std::min({size, source->of->bytes.size(), sink->of->capacity - sink->of->bytes.size()});
    if (n == 0)
        return source->of->bytes.empty() && source->of->writers == 0 ? 0 : -EAGAIN;
    sink->of->bytes.append(source->of->bytes, 0, n);
    ++sink->of->reader_edges;
    return static_cast<long>(n);
}

long fake_system::splice(int from, int to, std::size_t size) noexcept {
    const long n = tee(from, to, size);
    if (n > 0) {
        end* source = find(from);
        source->of->bytes.erase(0, static_cast<std::size_t>(n));
        ++source->of->writer_edges;
    }
    return n;
}

int fake_system::ready(int fd, int events) noexcept {
    ++calls.readies;
    end* e = find(fd);
    if (e == nullptr)
        return POLLNVAL;
    int seen = 0;
    const pipe& p = *e->of;
    if (e->reads) {
        if (!p.bytes.empty())
            seen |= events & POLLIN;
        if (p.writers == 0)
            seen |= POLLHUP;
    } else {
        if (p.bytes.size() < p.capacity)
            seen |= events & POLLOUT;
        if (p.readers == 0)
            seen |= POLLERR;
    }
    return seen;
}

int fake_system::make_pipe(int (&ends)[2], bool) noexcept {
    if (const int error = std::exchange(next_make_pipe, 0); error != 0)
        return error;
    auto p = std::make_shared<pipe>();
    p->capacity = capacity;
    ends[0] = add(p, true);
    ends[1] = add(p, false);
    return 0;
}

int fake_system::close(int fd) noexcept {
    ++calls.closes;
    end* e = find(fd);
    if (e == nullptr)
        return -EBADF;
    pipe& p = *e->of;
    if (e->reads) {
        --p.readers;
        ++p.writer_edges;
    } else {
        --p.writers;
        ++p.reader_edges;
    }
    ends_.erase(fd);
    return 0;
}

int fake_system::inspect(int fd, nowait::detail::file_info& info) noexcept {
    end* e = find(fd);
    if (e == nullptr)
        return -EBADF;
    info = {};
    info.kind = nowait::detail::file_kind::pipe;
    info.flags = e->reads ? O_RDONLY : O_WRONLY;
    return 0;
}

int fake_system::set_nonblocking(int fd) noexcept {
    return find(fd) != nullptr ? 0 : -EBADF;
}

int fake_system::reopen_nonblocking(int fd, bool for_reading) noexcept {
    end* e = find(fd);
    if (e == nullptr)
        return -EBADF;
    return add(e->of, for_reading);
}

int fake_system::duplicate(int fd) noexcept {
    end* e = find(fd);
    if (e == nullptr)
        return -EBADF;
    return add(e->of, e->reads);
}

long fake_system::pipe_size(int fd) noexcept {
    end* e = find(fd);
    return e != nullptr ? static_cast<long>(e->of->capacity) : -EBADF;
}

long fake_system::set_pipe_size(int fd, std::size_t size) noexcept {
    end* e = find(fd);
    if (e == nullptr)
        return -EBADF;
    if (size < e->of->bytes.size())
        return -EBUSY;
    e->of->capacity = size;
    return static_cast<long>(size);
}

long fake_system::available(int fd) noexcept {
    end* e = find(fd);
    return e != nullptr ? static_cast<long>(e->of->bytes.size()) : -EBADF;
}

} // namespace nowait_test
