#include "simulated_system.hpp"

#include "simulated_world.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <span>
#include <utility>

#include <fcntl.h>
#include <poll.h>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

namespace {

constexpr std::size_t descriptors_max = 65536;
constexpr unsigned priorities = 32768;

std::size_t total(const iovec* parts, int count) noexcept {
    std::size_t sum = 0;
    for (int i = 0; i < count; ++i)
        sum += parts[i].iov_len;
    return sum;
}

bool has_null_part(const iovec* parts, int count) noexcept {
    return std::any_of(parts, parts + count,
                       [](const iovec& part) { return part.iov_base == nullptr && part.iov_len != 0; });
}

/// The same parts, cut to `size` bytes.
std::vector<iovec> cut(const iovec* parts, int count, std::size_t size) {
    std::vector<iovec> shorter;
    for (int i = 0; i < count && size != 0; ++i) {
        const std::size_t n = std::min(size, parts[i].iov_len);
        shorter.push_back({parts[i].iov_base, n});
        size -= n;
    }
    return shorter;
}

} // namespace

simulated_description::~simulated_description() {
    kernel.release(*this);
}

simulated_socket* simulated_description::socket() const noexcept {
    return of->kind == file_kind::socket ? static_cast<simulated_socket*>(of.get()) : nullptr;
}

// --- numbers ----------------------------------------------------------------------------------------------------------------

long simulated_system::logged(call what, int fd, long result) noexcept {
    world_.record(trace_kind::call, static_cast<std::uint64_t>(what), static_cast<std::uint64_t>(fd),
                  static_cast<std::uint64_t>(result));
    if (result == -EAGAIN)
        ++would_block_[static_cast<std::size_t>(what)];
    return result;
}

std::size_t simulated_system::open_descriptors() const noexcept {
    return static_cast<std::size_t>(
        std::count_if(numbers_.begin(), numbers_.end(), [](const description& d) { return d != nullptr; }));
}

std::shared_ptr<simulated_description> simulated_system::description_of(int fd) const noexcept {
    const auto index = static_cast<std::size_t>(fd - first_number);
    return fd >= first_number && index < numbers_.size() ? numbers_[index] : nullptr;
}

bool simulated_system::no_room_for_descriptor(int& error) noexcept {
    error = world_.strikes(fault::no_descriptor) ? -EMFILE : world_.strikes(fault::no_memory) ? -ENOMEM : 0;
    if (error == 0 && open_descriptors() >= descriptors_max)
        error = -EMFILE;
    return error != 0;
}

int simulated_system::install(description d) noexcept {
    // The lowest free number, as always: a number that was closed too early names something else soon.
    auto place = std::find(numbers_.begin(), numbers_.end(), nullptr);
    if (place == numbers_.end())
        place = numbers_.insert(numbers_.end(), nullptr);
    *place = std::move(d);
    return first_number + static_cast<int>(place - numbers_.begin());
}

int simulated_system::close(int fd) noexcept {
    if (description_of(fd) == nullptr)
        return static_cast<int>(logged(call::close, fd, -EBADF));
    logged(call::close, fd, 0);
    if (simulated_queue* q = description_of(fd)->queue())
        notify(*q, 2); // any close by the process takes its registration away
    numbers_[static_cast<std::size_t>(fd - first_number)].reset();
    return 0;
}

void simulated_system::release(simulated_description& d) noexcept {
    simulated_pipe* const p = d.pipe();
    if (p == nullptr)
        return;
    // The end is known to have gone when nothing holds the description any more, an armed poll included.
    if (d.reads)
        p->ring.drop_reader();
    if (d.writes)
        p->ring.drop_writer();
    if (p->ring.readers() == 0 && p->ring.writers() == 0) {
        page_list pages;
        p->ring.clear(pages);
    }
    if (p->ring.readers() == 0 || p->ring.writers() == 0)
        world_.edge(*p, POLLIN | POLLOUT);
}

int simulated_system::duplicate(int fd) noexcept {
    description d = description_of(fd);
    if (d == nullptr)
        return static_cast<int>(logged(call::open, fd, -EBADF));
    if (int error = 0; no_room_for_descriptor(error))
        return static_cast<int>(logged(call::open, fd, error));
    return static_cast<int>(logged(call::open, fd, install(std::move(d))));
}

int simulated_system::set_nonblocking(int fd) noexcept {
    const description d = description_of(fd);
    if (d == nullptr)
        return -EBADF;
    d->nonblocking = true;
    return 0;
}

int simulated_system::inspect(int fd, file_info& info) noexcept {
    const description d = description_of(fd);
    if (d == nullptr)
        return -EBADF;
    info = {};
    info.kind = d->of->is_queue ? file_kind::regular : d->of->kind; // as fstat says of it
    info.device = d->of->is_queue ? 2 : 1;
    info.inode = d->of->number;
    if (const simulated_file* f = d->file())
        info.size = f->bytes.size();
    info.flags = (d->reads && d->writes ? O_RDWR
                  : d->reads            ? O_RDONLY
                                        : O_WRONLY) |
                 (d->nonblocking ? O_NONBLOCK : 0) | (d->packets ? O_DIRECT : 0);
    return 0;
}

std::chrono::steady_clock::time_point simulated_system::now() noexcept {
    return world_.now;
}

// --- making ---------------------------------------------------------------------------------------------------------------------

std::shared_ptr<simulated_pipe> simulated_system::new_pipe(file_kind kind) noexcept {
    return std::make_shared<simulated_pipe>(kind, ++inodes_, slot_array::create(pipe_ring::default_slots));
}

int simulated_system::new_pipe_ends(int (&ends)[2], bool packets, bool nonblocking) noexcept {
    if (int error = 0; no_room_for_descriptor(error))
        return static_cast<int>(logged(call::pipe, -1, error));
    const auto p = new_pipe(file_kind::pipe);
    ++p->writers_seen;
    for (const bool reads : {true, false}) {
        auto d = std::make_shared<simulated_description>(*this, p, reads, !reads);
        d->nonblocking = nonblocking;
        d->packets = packets && !reads;
        d->knows_nowait = true;
        ends[reads ? 0 : 1] = install(std::move(d));
    }
    return static_cast<int>(logged(call::pipe, ends[0], 0));
}

int simulated_system::make_pipe(int (&ends)[2], bool packets) noexcept {
    return new_pipe_ends(ends, packets, true);
}

int simulated_system::make_blocking_pipe(int (&ends)[2]) noexcept {
    return new_pipe_ends(ends, false, false);
}

int simulated_system::make_fifo(const char* path, unsigned) noexcept {
    if (paths_.count(path) != 0)
        return -EEXIST;
    const auto p = new_pipe(file_kind::fifo);
    p->ring.drop_reader();
    p->ring.drop_writer();
    paths_[path] = p;
    return 0;
}

int simulated_system::open(const char* path, int flags, unsigned) noexcept {
    if (int error = 0; no_room_for_descriptor(error))
        return static_cast<int>(logged(call::open, -1, error));
    const auto found = paths_.find(path);
    std::shared_ptr<simulated_object> object = found != paths_.end() ? found->second : nullptr;
    if (object == nullptr && (flags & O_CREAT) == 0)
        return static_cast<int>(logged(call::open, -1, -ENOENT));
    if (object != nullptr && (flags & O_CREAT) != 0 && (flags & O_EXCL) != 0)
        return static_cast<int>(logged(call::open, -1, -EEXIST));
    if (object == nullptr) {
        object = std::make_shared<simulated_file>(++inodes_);
        paths_[path] = object;
    }
    const int mode = flags & O_ACCMODE;
    const bool only_named = (flags & O_PATH) != 0;
    const bool reads = !only_named && (mode == O_RDONLY || mode == O_RDWR);
    const bool writes = !only_named && (mode == O_WRONLY || mode == O_RDWR);
    std::uint64_t writers_seen = 0;
    if (object->kind == file_kind::fifo && !only_named) {
        auto& p = static_cast<simulated_pipe&>(*object);
        const bool alone = (reads ? p.ring.writers() : p.ring.readers()) == 0 && mode != O_RDWR;
        const bool waits = (flags & O_NONBLOCK) == 0;
        if (alone && writes && !waits)
            return static_cast<int>(logged(call::open, -1, -ENXIO));
        writers_seen = alone ? p.writers_seen : ~std::uint64_t{0};
        if (reads) {
            p.ring.add_reader();
            ++p.readers_seen;
        }
        if (writes) {
            p.ring.add_writer();
            ++p.writers_seen;
        }
        // Whoever waits for a partner counts as there: its partner does not wait. One that has come and gone will do.
        const std::uint64_t& partners = reads ? p.writers_seen : p.readers_seen;
        if (alone && waits &&
            !world_.workers.wait([&partners, seen = partners] { return partners != seen; })) {
            (void)(reads ? p.ring.drop_reader() : p.ring.drop_writer());
            world_.edge(p, POLLIN | POLLOUT);
            return static_cast<int>(logged(call::open, -1, world_.workers.why_not()));
        }
        if (reads && waits && alone)
            writers_seen = ~std::uint64_t{0}; // there was a writer
    }
    auto d = std::make_shared<simulated_description>(*this, object, reads, writes);
    d->nonblocking = (flags & O_NONBLOCK) != 0;
    d->writers_seen = writers_seen;
    if (simulated_file* f = d->file()) {
        d->knows_nowait = true;
        if ((flags & O_TRUNC) != 0)
            f->bytes.clear();
        if ((flags & O_APPEND) != 0)
            d->position = f->bytes.size();
    }
    return static_cast<int>(logged(call::open, 0, install(std::move(d))));
}

int simulated_system::reopen_nonblocking(int fd, bool for_reading) noexcept {
    const description d = description_of(fd);
    if (d == nullptr)
        return -EBADF;
    if (int error = 0; no_room_for_descriptor(error))
        return static_cast<int>(logged(call::open, fd, error));
    const bool both = d->reads && d->writes;
    const bool reads = both || for_reading;
    const bool writes = both || !for_reading;
    if (simulated_pipe* p = d->pipe()) {
        if (p->kind == file_kind::fifo && writes && !reads && p->ring.readers() == 0)
            return static_cast<int>(logged(call::open, fd, -ENXIO));
        if (reads)
            p->ring.add_reader();
        if (writes) {
            p->ring.add_writer();
            ++p->writers_seen;
        }
    }
    auto twin = std::make_shared<simulated_description>(*this, d->of, reads, writes);
    twin->nonblocking = true;
    twin->writers_seen = d->writers_seen;
    return static_cast<int>(logged(call::open, fd, install(std::move(twin))));
}

// --- bytes ----------------------------------------------------------------------------------------------------------------------

void simulated_system::be_interrupted() noexcept {
    while (world_.strikes(fault::interrupted)) {
    }
}

void simulated_system::made_room(const simulated_pipe& p, bool was_full) noexcept {
    if (was_full && !p.ring.full())
        world_.edge(p, POLLOUT);
}

void simulated_system::maybe_break(simulated_pipe& p) noexcept {
    if (!p.broken && world_.strikes(fault::broken_pipe)) {
        p.broken = true;
        world_.edge(p, POLLIN | POLLOUT);
    }
}

long simulated_system::read_from(simulated_description& d, const iovec* parts, int count) noexcept {
    const std::size_t wanted = total(parts, count);
    if (!d.reads)
        return -EBADF;
    if (wanted == 0)
        return 0;
    if (simulated_file* f = d.file()) {
        if (d.position >= f->bytes.size())
            return 0;
        if (has_null_part(parts, count))
            return -EFAULT;
        std::size_t left = std::min<std::size_t>(wanted, f->bytes.size() - d.position);
        if (left > 1 && world_.strikes(fault::short_transfer))
            left = 1 + world_.random(left - 1);
        const auto moved = static_cast<long>(left);
        for (int i = 0; i < count && left != 0; ++i) {
            const std::size_t n = std::min(left, parts[i].iov_len);
            std::memcpy(parts[i].iov_base, f->bytes.data() + d.position, n);
            d.position += n;
            left -= n;
        }
        return moved;
    }
    simulated_pipe* const p = d.pipe();
    if (p == nullptr)
        return -EINVAL;
    if (p->ring.empty())
        return p->ring.writers() == 0 || p->broken ? 0 : -EAGAIN;
    if (world_.strikes(fault::again)) {
        world_.edge(*p, POLLIN); // it came right after the look
        return -EAGAIN;
    }
    if (has_null_part(parts, count))
        return -EFAULT;
    const bool was_full = p->ring.full();
    page_list pages;
    std::vector<iovec> shorter;
    std::span<const iovec> room(parts, static_cast<std::size_t>(count));
    const std::size_t there = p->ring.bytes_available();
    if (wanted > 1 && there > 1 && (p->ring.slot(0).flags & pipe_slot::packet) == 0 &&
        world_.strikes(fault::short_transfer)) {
        shorter = cut(parts, count, 1 + world_.random(std::min(wanted, there) - 1));
        room = shorter;
        world_.edge(*p, POLLIN);
    }
    scatter to(room);
    const long n = p->ring.read(to, pages);
    made_room(*p, was_full);
    return n;
}

long simulated_system::write_to(simulated_description& d, const iovec* parts, int count) noexcept {
    std::size_t wanted = total(parts, count);
    if (!d.writes)
        return -EBADF;
    if (wanted == 0)
        return 0;
    if (simulated_file* f = d.file()) {
        if (has_null_part(parts, count))
            return -EFAULT;
        if (world_.strikes(fault::no_memory))
            return -ENOSPC;
        if (wanted > 1 && world_.strikes(fault::short_transfer))
            wanted = 1 + world_.random(wanted - 1);
        for (const iovec& part : cut(parts, count, wanted)) {
            if (f->bytes.size() < d.position + part.iov_len)
                f->bytes.resize(d.position + part.iov_len);
            std::memcpy(f->bytes.data() + d.position, part.iov_base, part.iov_len);
            d.position += part.iov_len;
        }
        return static_cast<long>(wanted);
    }
    simulated_pipe* const p = d.pipe();
    if (p == nullptr)
        return -EINVAL;
    maybe_break(*p);
    if (p->ring.readers() == 0 || p->broken)
        return -EPIPE;
    if (world_.strikes(fault::again) && !p->ring.full()) {
        world_.edge(*p, POLLOUT);
        return -EAGAIN;
    }
    if (world_.strikes(fault::no_memory))
        return -ENOMEM;
    if (has_null_part(parts, count))
        return p->ring.full() ? -EAGAIN : -EFAULT;
    std::vector<iovec> shorter;
    std::span<const iovec> bytes(parts, static_cast<std::size_t>(count));
    if (wanted > page_size && world_.strikes(fault::short_transfer)) { // up to a page is whole or not at all
        wanted = 1 + world_.random(wanted - 1);
        shorter = cut(parts, count, wanted);
        bytes = shorter;
        world_.edge(*p, POLLOUT);
    }
    page_list pages;
    if (!page_pool::of_this_thread().take(p->ring.pages_needed(wanted), pages))
        return -ENOMEM;
    gather from(bytes);
    const long n = p->ring.write(from, d.packets, pages);
    if (n > 0)
        world_.edge(*p, POLLIN);
    return n;
}

long simulated_system::read(int fd, const iovec* parts, int count) noexcept {
    const description d = description_of(fd);
    be_interrupted();
    return logged(call::read, fd, d == nullptr ? -EBADF : read_from(*d, parts, count));
}

long simulated_system::write(int fd, const iovec* parts, int count) noexcept {
    const description d = description_of(fd);
    be_interrupted();
    return logged(call::write, fd, d == nullptr ? -EBADF : write_to(*d, parts, count));
}

long simulated_system::read_nowait(int fd, const iovec* parts, int count) noexcept {
    const description d = description_of(fd);
    if (d == nullptr)
        return logged(call::read, fd, -EBADF);
    if (!d->reads || total(parts, count) == 0) // tested before the flag is
        return read(fd, parts, count);
    if (!has(feature::nowait) || !d->knows_nowait)
        return logged(call::read, fd, -EOPNOTSUPP);
    if (d->file() != nullptr && world_.strikes(fault::not_in_cache))
        return logged(call::read, fd, -EAGAIN);
    return read(fd, parts, count);
}

long simulated_system::write_nowait(int fd, const iovec* parts, int count) noexcept {
    const description d = description_of(fd);
    if (d == nullptr)
        return logged(call::write, fd, -EBADF);
    if (!d->writes || total(parts, count) == 0) // tested before the flag is
        return write(fd, parts, count);
    if (!has(feature::nowait) || !d->knows_nowait)
        return logged(call::write, fd, -EOPNOTSUPP);
    if (d->file() != nullptr && world_.strikes(fault::not_in_cache))
        return logged(call::write, fd, -EAGAIN);
    return write(fd, parts, count);
}

long simulated_system::receive(int fd, const iovec* parts, int count) noexcept {
    const description d = description_of(fd);
    if (d == nullptr)
        return -EBADF;
    simulated_socket* const s = d->socket();
    if (s == nullptr)
        return -ENOTSOCK;
    be_interrupted();
    if (s->datagrams.empty())
        return logged(call::receive, fd, -EAGAIN);
    if (world_.strikes(fault::again)) {
        world_.edge(*s, POLLIN);
        return logged(call::receive, fd, -EAGAIN);
    }
    const std::string datagram = std::move(s->datagrams.front());
    s->datagrams.pop_front();
    std::size_t at = 0; // what does not fit is lost
    for (const iovec& part : cut(parts, count, datagram.size())) {
        std::memcpy(part.iov_base, datagram.data() + at, part.iov_len);
        at += part.iov_len;
    }
    return logged(call::receive, fd, static_cast<long>(at));
}

long simulated_system::send(int fd, const iovec*, int) noexcept {
    return description_of(fd) == nullptr ? -EBADF : -ENOTSOCK;
}

long simulated_system::transfer(simulated_description& d, bool write, void* data, std::size_t size) noexcept {
    if (world_.strikes(fault::interrupted))
        return -EINTR;
    const iovec part{data, size};
    return write ? write_to(d, &part, 1) : read_from(d, &part, 1);
}

long simulated_system::splice(int from, int to, std::size_t size) noexcept {
    return logged(call::splice, from, between(from, to, size, false));
}

long simulated_system::tee(int from, int to, std::size_t size) noexcept {
    return logged(call::tee, from, between(from, to, size, true));
}

long simulated_system::between(int from, int to, std::size_t size, bool copies) noexcept {
    const description source = description_of(from);
    const description sink = description_of(to);
    if (source == nullptr || sink == nullptr)
        return -EBADF;
    if (size == 0)
        return 0;
    simulated_pipe* const in = source->pipe();
    simulated_pipe* const out = sink->pipe();
    if (!copies) { // for everybody who shares them, before anything is tested
        source->knows_nowait = source->knows_nowait && in == nullptr;
        sink->knows_nowait = sink->knows_nowait && out == nullptr;
    }
    if (!source->reads || !sink->writes)
        return -EBADF;
    be_interrupted();
    if (in == nullptr || out == nullptr) {
        if (copies || (in == nullptr && out == nullptr))
            return -EINVAL;
        std::string bytes(std::min<std::size_t>(size, page_size), '\0');
        iovec part{bytes.data(), bytes.size()};
        if (out != nullptr && out->ring.full())
            return out->ring.readers() == 0 ? -EPIPE : -EAGAIN;
        const long n = read_from(*source, &part, 1);
        if (n <= 0)
            return n;
        part.iov_len = static_cast<std::size_t>(n);
        const long written = write_to(*sink, &part, 1);
        if (written < n &&
            in ==
                nullptr) // a file's position goes back; a pipe's bytes are only taken into files, which take all
            source->position -= static_cast<std::uint64_t>(n - std::max(written, 0L));
        return written;
    }
    if (in == out)
        return -EINVAL;
    if (in->ring.empty() && in->ring.writers() != 0 && !in->broken)
        return -EAGAIN;
    maybe_break(*out);
    if (out->ring.readers() == 0 || out->broken)
        return -EPIPE;
    if (in->ring.empty())
        return out->ring.full() ? -EAGAIN : 0;
    if (!in->ring.empty() && !out->ring.full()) {
        if (world_.strikes(fault::again)) {
            world_.edge(*in, POLLIN);
            // Where somebody drains the pipe between tee's look and its work, the answer is 0.
            return copies ? 0 : -EAGAIN;
        }
        const std::size_t there = std::min(size, in->ring.bytes_available());
        if (there > 1 && (in->ring.slot(0).flags & pipe_slot::packet) == 0 &&
            world_.strikes(fault::short_transfer)) {
            size = 1 + world_.random(there - 1);
            world_.edge(*in, POLLIN);
            world_.edge(*out, POLLOUT);
        }
    }
    const auto occupied = in->ring.indices().occupancy();
    const long n =
        copies ? pipe_ring::tee(in->ring, out->ring, size) : pipe_ring::splice(in->ring, out->ring, size);
    if (n > 0) {
        world_.edge(*out, POLLIN);
        if (!copies && in->ring.indices().occupancy() < occupied)
            world_.edge(*in, POLLOUT);
    }
    return n;
}

int simulated_system::ready(const simulated_description& d, int events) const noexcept {
    int seen = 0;
    if (const simulated_pipe* p = d.pipe()) {
        if (d.reads) {
            if (!p->ring.empty())
                seen |= events & POLLIN;
            if ((p->ring.writers() == 0 && d.writers_seen != p->writers_seen) || p->broken)
                seen |= POLLHUP;
        }
        if (d.writes) {
            if (!p->ring.full())
                seen |= events & POLLOUT;
            if (p->ring.readers() == 0 || p->broken)
                seen |= POLLERR;
        }
    } else if (const simulated_queue* q = d.queue()) {
        if (q->messages != 0)
            seen |= events & POLLIN;
        if (q->messages < q->capacity)
            seen |= events & POLLOUT;
    } else if (const simulated_socket* s = d.socket()) {
        if (!s->datagrams.empty())
            seen |= events & POLLIN;
        seen |= events & POLLOUT;
    } else {
        seen |= events & (POLLIN | POLLOUT);
    }
    return seen;
}

int simulated_system::ready(int fd, int events) noexcept {
    const description d = description_of(fd);
    return static_cast<int>(logged(call::ready, fd, d == nullptr ? POLLNVAL : ready(*d, events)));
}

long simulated_system::pipe_size(int fd) noexcept {
    const description d = description_of(fd);
    return d == nullptr || d->pipe() == nullptr ? -EBADF
                                                : static_cast<long>(d->pipe()->ring.capacity_bytes());
}

long simulated_system::set_pipe_size(int fd, std::size_t size) noexcept {
    const description d = description_of(fd);
    if (size > INT_MAX)
        return -EINVAL;
    if (d == nullptr || d->pipe() == nullptr)
        return -EBADF;
    if (world_.strikes(fault::no_memory))
        return logged(call::resize, fd, -ENOMEM);
    pipe_ring& ring = d->pipe()->ring;
    const bool was_full = ring.full();
    long slots = ring.plan_resize(size);
    if (slots > 0) {
        slot_array storage = slot_array::create(static_cast<std::uint32_t>(slots));
        const int error = storage ? ring.resize(storage) : -ENOMEM;
        slots = error != 0 ? error : static_cast<long>(ring.capacity_bytes());
        made_room(*d->pipe(), was_full);
    }
    return logged(call::resize, fd, slots);
}

long simulated_system::available(int fd) noexcept {
    const description d = description_of(fd);
    if (d == nullptr)
        return -EBADF;
    if (const simulated_pipe* p = d->pipe())
        return static_cast<long>(p->ring.bytes_available());
    return -ENOTTY;
}

// --- queues -----------------------------------------------------------------------------------------------------------------------

int simulated_system::queue_open(const char* name, int flags, unsigned,
                                 const queue_attributes* limits) noexcept {
    if (name == nullptr || name[0] != '/')
        return -EINVAL;
    if (name[1] == '\0' || std::strchr(name + 1, '/') != nullptr)
        return name[1] == '\0' ? -ENOENT : -EACCES;
    if (int error = 0; no_room_for_descriptor(error))
        return static_cast<int>(logged(call::open, -1, error));
    const auto found = queues_.find(name);
    std::shared_ptr<simulated_queue> q = found != queues_.end() ? found->second : nullptr;
    if (q == nullptr && (flags & O_CREAT) == 0)
        return static_cast<int>(logged(call::open, -1, -ENOENT));
    if (q != nullptr && (flags & O_CREAT) != 0 && (flags & O_EXCL) != 0)
        return static_cast<int>(logged(call::open, -1, -EEXIST));
    if (q == nullptr) {
        constexpr long capacity_max = 10;
        constexpr long message_max = 8192;
        if (limits != nullptr && (limits->capacity <= 0 || limits->message_size <= 0 ||
                                  limits->capacity > capacity_max || limits->message_size > message_max))
            return static_cast<int>(logged(call::open, -1, -EINVAL));
        q = std::make_shared<simulated_queue>(++inodes_);
        if (limits != nullptr) {
            q->capacity = static_cast<std::size_t>(limits->capacity);
            q->message_size = static_cast<std::size_t>(limits->message_size);
        }
        queues_[name] = q;
    }
    const int mode = flags & O_ACCMODE;
    auto d = std::make_shared<simulated_description>(*this, q, mode != O_WRONLY, mode != O_RDONLY);
    d->nonblocking = (flags & O_NONBLOCK) != 0;
    return static_cast<int>(logged(call::open, 1, install(std::move(d))));
}

int simulated_system::queue_unlink(const char* name) noexcept {
    return queues_.erase(name) != 0 ? 0 : -ENOENT;
}

int simulated_system::queue_inspect(int queue, queue_attributes& found) noexcept {
    const description d = description_of(queue);
    if (d == nullptr || d->queue() == nullptr)
        return -EBADF;
    const simulated_queue& q = *d->queue();
    found = {static_cast<long>(q.capacity), static_cast<long>(q.message_size), static_cast<long>(q.messages),
             d->nonblocking ? O_NONBLOCK : 0};
    return 0;
}

long simulated_system::queue_send(int queue, const void* data, std::size_t size, unsigned priority) noexcept {
    const description d = description_of(queue);
    be_interrupted();
    const auto attempt = [&]() -> long {
        if (priority >= priorities)
            return -EINVAL;
        if (d == nullptr || d->queue() == nullptr || !d->writes)
            return -EBADF;
        simulated_queue& q = *d->queue();
        if (size > q.message_size)
            return -EMSGSIZE;
        if (world_.strikes(fault::no_memory))
            return -ENOMEM;
        if (q.messages == q.capacity)
            return -EAGAIN;
        if (world_.strikes(fault::again)) {
            world_.edge(q, POLLOUT);
            return -EAGAIN;
        }
        q.by_priority[priority].emplace_back(static_cast<const char*>(data), size);
        ++q.messages;
        world_.edge(q, POLLIN);
        if (q.messages == 1)
            notify(q, 1);
        return 0;
    };
    return logged(call::send, queue, attempt());
}

long simulated_system::queue_receive(int queue, void* data, std::size_t size, unsigned& priority) noexcept {
    be_interrupted();
    return logged(call::receive, queue, take_message(queue, data, size, priority));
}

long simulated_system::take_message(int queue, void* data, std::size_t size, unsigned& priority) noexcept {
    const description d = description_of(queue);
    if (d == nullptr || d->queue() == nullptr || !d->reads)
        return -EBADF;
    simulated_queue& q = *d->queue();
    if (size < q.message_size)
        return -EMSGSIZE;
    if (q.messages == 0)
        return -EAGAIN;
    if (world_.strikes(fault::again)) {
        world_.edge(q, POLLIN);
        return -EAGAIN;
    }
    const auto highest = q.by_priority.begin();
    const std::string message = std::move(highest->second.front());
    highest->second.pop_front();
    priority = highest->first;
    if (highest->second.empty())
        q.by_priority.erase(highest);
    --q.messages;
    if (!message.empty())
        std::memcpy(data, message.data(), message.size());
    world_.edge(q, POLLOUT);
    return static_cast<long>(message.size());
}

long simulated_system::queue_receive_waiting(int queue, void* data, std::size_t size,
                                             unsigned& priority) noexcept {
    for (;;) {
        const long n = take_message(queue, data, size, priority);
        if (n != -EAGAIN)
            return logged(call::other, queue, n);
        const description d = description_of(queue);
        if (!world_.workers.wait([&q = *d->queue()] { return q.messages != 0; }))
            return logged(call::other, queue, world_.workers.why_not());
    }
}

void simulated_system::notify(simulated_queue& q, char why) noexcept {
    const auto listener = std::exchange(q.listener, {}).lock();
    if (listener == nullptr)
        return;
    q.cookie.back() = why;
    listener->datagrams.push_back(q.cookie);
    world_.edge(*listener, POLLIN);
}

int simulated_system::notification_socket() noexcept {
    if (int error = 0; no_room_for_descriptor(error))
        return static_cast<int>(logged(call::open, -1, error));
    auto d = std::make_shared<simulated_description>(*this, std::make_shared<simulated_socket>(++inodes_),
                                                     true, true);
    d->nonblocking = true;
    return static_cast<int>(logged(call::open, 2, install(std::move(d))));
}

int simulated_system::queue_notify(int queue, int socket, const std::byte* cookie) noexcept {
    const description d = description_of(queue);
    const description to = description_of(socket);
    if (d == nullptr || d->queue() == nullptr || to == nullptr || to->socket() == nullptr)
        return -EBADF;
    simulated_queue& q = *d->queue();
    if (!q.listener.expired())
        return static_cast<int>(logged(call::other, queue, -EBUSY));
    q.listener = std::static_pointer_cast<simulated_socket>(to->of);
    q.cookie.assign(reinterpret_cast<const char*>(cookie), notification_size);
    return static_cast<int>(logged(call::other, queue, 0));
}

int simulated_system::queue_forget(int queue) noexcept {
    const description d = description_of(queue);
    if (d == nullptr || d->queue() == nullptr)
        return -EBADF;
    notify(*d->queue(), 2);
    return static_cast<int>(logged(call::other, queue, 0));
}

int simulated_system::list_queues(void (*each)(void* context, const char* name), void* context) {
    for (const auto& [name, queue] : queues_)
        each(context, name.c_str());
    return 0;
}

worker_host* simulated_system::workers() noexcept {
    return &world_.workers;
}

} // namespace detail
NOWAIT_END_NAMESPACE
