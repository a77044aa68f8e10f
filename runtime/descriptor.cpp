// The control block: binding, rungs, closing, and handles that may die on any thread.
#include <nowait/detail/descriptor.hpp>

#include <cassert>
#include <cerrno>
#include <cstdint>
#include <new>
#include <string_view>

#include <poll.h>
#include <pthread.h>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

std::string_view to_string(rung r) noexcept {
    switch (r) {
    case rung::plain:
        return "non-blocking description";
    case rung::nowait_flag:
        return "RWF_NOWAIT";
    case rung::socket:
        return "MSG_DONTWAIT";
    case rung::ring:
        return "ring";
    }
    return "";
}

// --- block_tie ------------------------------------------------------------------------------------------------------------------

block_tie::~block_tie() {
    if (block_ == nullptr)
        return;
    list_node::unlink();
    block_->unpin();
}

void block_tie::tie(descriptor& to) noexcept {
    block_ = &to;
    to.pin();
    to.ties.push_back(*this);
}

namespace {

futex_lock handles_lock; // constant initialisation; held for a few words

unsigned long this_thread() noexcept {
    return static_cast<unsigned long>(::pthread_self());
}

} // namespace

// --- descriptor ----------------------------------------------------------------------------------------------------------------

descriptor::descriptor(int number, bool is_owned, system& with) noexcept
    : io_fd(number), in(*this, POLLIN), out(*this, POLLOUT), fd(number), owned(is_owned), calls(&with) {
    drop_node_.of = this;
    drop_node_.run = [](ready_node& node) noexcept {
        static_cast<drop_node&>(node).of->count_remote_drops();
    };
}

descriptor::~descriptor() {
    if (forward_ != nullptr)
        forward_->drop_handle();
    if (bond != nullptr)
        bond->leave();
}

int descriptor::bind(loop& home) noexcept {
    if (forward_ != nullptr)
        return forward_->bind(home);
    if (owner == &home)
        return closed ? EBADF : 0;
    if (closed)
        return EBADF;
    if (owner != nullptr)
        return EPERM;
    if (descriptor* other = home.find_descriptor(fd);
        other != nullptr && other != this && !other->closed && !owned) {
        other->add_handle();
        forward_ = other;
        return 0;
    }
    try {
        home.add_descriptor(*this);
    } catch (...) {
        return ENOMEM;
    }
    owner = &home;
    calls = &home.calls();
    if (bond != nullptr && reads)
        bond->reader_on.store(&home, std::memory_order_relaxed);
    {
        lock_scope held(handles_lock);
        counted_by_ = &home;
    }
    thread_.store(this_thread(), std::memory_order_relaxed);
    in.update_fast();
    out.update_fast();
    return 0;
}

bool descriptor::descend(direction& d) noexcept {
    rung& r = rung_of(d);
    // A description of our own on the same object: it may be O_NONBLOCK, nobody shares it. Only where opening again is known
    // to give the same object: many a character device gives a new one.
    if (r == rung::nowait_flag &&
        (kind == file_kind::pipe || kind == file_kind::fifo || kind == file_kind::terminal)) {
        if (io_fd == fd) {
            if (const int twin = calls->reopen_nonblocking(fd, &d == &in); twin >= 0)
                io_fd = twin;
        }
        if (io_fd !=
            fd) { // if the other direction has opened it: one that may be used in both was opened for both
            r = rung::plain;
            return true;
        }
    }
    r = rung::ring;
    return false;
}

int descriptor::readiness(int events) noexcept {
    const int seen = calls->ready(io_fd, events);
    if (io_fd == fd || kind != file_kind::fifo || seen < 0)
        return seen;
    // A twin of a FIFO that was opened when the last writer had gone has seen none, and reports no hang-up; the description
    // that was given to us has.
    const int given = calls->ready(fd, events);
    return given < 0 ? seen : seen | given;
}

long descriptor::meaning_of_zero(std::size_t wanted) noexcept {
    if (kind != file_kind::fifo || wanted == 0)
        return 0;
    // A FIFO without a writer reads 0 also before the first one comes. Only a hang-up says that there was one.
    const int seen = readiness(POLLIN);
    if (seen < 0)
        return seen;
    if ((seen & POLLIN) != 0)
        return -EINTR;
    return (seen & POLLHUP) != 0 ? 0 : -EAGAIN;
}

long descriptor::attempt_read(const iovec* parts, int count) noexcept {
    for (;;) {
        long n = 0;
        switch (how[0]) {
        case rung::plain:
            // For one part, read is cheaper than readv.
            n = count == 1 && calls->real() ? direct_read(io_fd, parts->iov_base, parts->iov_len)
                                            : calls->read(io_fd, parts, count);
            break;
        case rung::socket:
            return calls->receive(fd, parts, count);
        case rung::nowait_flag:
            n = calls->read_nowait(fd, parts, count);
            if (n == -EAGAIN && (kind == file_kind::regular || kind == file_kind::block))
                how[0] = rung::ring; // not in the page cache, and nothing can poll it
            if (n == -EOPNOTSUPP) {
                if (!descend(in))
                    return -EAGAIN;
                continue;
            }
            break;
        case rung::ring:
            return -EAGAIN;
        }
        if (n == 0)
            n = meaning_of_zero(1); // a read of nothing makes no attempt
        if (n != -EINTR)
            return n;
    }
}

long descriptor::attempt_write(const iovec* parts, int count) noexcept {
    for (;;) {
        long n = 0;
        switch (how[1]) {
        case rung::plain:
            if (count == 1 && calls->real() && reader_is_ours()) {
                if (n = direct_write(io_fd, parts->iov_base, parts->iov_len); n != -EINTR)
                    return n;
            }
            return calls->write(io_fd, parts, count);
        case rung::socket:
            return calls->send(fd, parts, count);
        case rung::nowait_flag:
            n = calls->write_nowait(fd, parts, count);
            if (n == -EAGAIN && (kind == file_kind::regular || kind == file_kind::block))
                how[1] = rung::ring;
            if (n != -EOPNOTSUPP)
                return n;
            if (!descend(out))
                return -EAGAIN;
            continue;
        case rung::ring:
            return -EAGAIN;
        }
    }
}

int descriptor::close() noexcept {
    if (closed)
        return EBADF;
    if (owner != nullptr && !owner->on_own_thread())
        return EPERM;
    closed = true;
    if (bond != nullptr && reads)
        bond->reader_on.store(nullptr, std::memory_order_relaxed);
    in.fast = out.fast = false;
    pin();
    if (owner != nullptr && !owner->forked()) {
        in.cancel_waiters();
        out.cancel_waiters();
        ties.for_each([](block_tie& tie) { tie.cancel(); });
        if (in.poll.armed || out.poll.armed || in.work.pending || out.work.pending) {
            // The kernel holds the file for as long as something is armed on it: an end that is "closed" meanwhile would keep
            // its peer from seeing the end of the stream. Submit the removals and look for their answers at once.
            closing_ = true;
            ++owner->closing;
            owner->waits().collect();
        } else {
            finish_close();
        }
    } else {
        finish_close();
    }
    unpin();
    return 0;
}

void descriptor::released() noexcept {
    if (closing_ && !in.poll.armed && !out.poll.armed && !in.work.pending && !out.work.pending) {
        closing_ = false;
        --owner->closing;
        finish_close();
    }
}

void descriptor::finish_close() noexcept {
    if (owner != nullptr) {
        static_cast<list_node&>(in).unlink();
        static_cast<list_node&>(out).unlink();
        owner->remove_descriptor(*this);
    }
    if (io_fd != fd)
        calls->close(io_fd);
    if (owned)
        calls->close(fd);
}

void descriptor::drop_handle() noexcept {
    if (thread_.load(std::memory_order_relaxed) == this_thread()) {
        if (--handles_ != 0)
            return;
    } else {
        lock_scope held(handles_lock);
        if (counted_by_ != nullptr && !counted_by_->forked()) {
            if (remote_drops_++ == 0)
                (void)counted_by_->remote().post(drop_node_); // refused: it is going, and detaches this block
            return;
        }
        if (--handles_ != 0)
            return;
    }
    pin();
    (void)close();
    unpin();
}

void descriptor::count_remote_drops() noexcept {
    {
        lock_scope held(handles_lock);
        handles_ -= std::exchange(remote_drops_, 0u);
    }
    // While the loop counts, nobody else takes the block away.
    pin();
    if (handles_ == 0)
        (void)close();
    unpin();
}

void descriptor::forget_lock() noexcept {
    ::new (static_cast<void*>(&handles_lock)) futex_lock;
}

void descriptor::unpin() noexcept {
    assert(pins_ != 0);
    --pins_;
    maybe_delete();
}

void descriptor::maybe_delete() noexcept {
    if (pins_ != 0 || !closed || closing_)
        return;
    if (handles_ == 0) {
        delete this;
        return;
    }
    // Closed, and the loop is through with it, which may end before the handles do.
    lock_scope held(handles_lock);
    if (remote_drops_ == 0) {
        counted_by_ = nullptr;
        thread_.store(0, std::memory_order_relaxed);
    }
}

void descriptor::detach() noexcept {
    if (owner == nullptr)
        return;
    for (direction* d : {&in, &out}) {
        static_cast<list_node&>(*d).unlink();
        d->fast = d->quiet = false;
        static_cast<list_node&>(d->poll).unlink(); // out of the driver's own lists, which go with it
        static_cast<list_node&>(d->work).unlink();
        if (std::exchange(d->poll.armed, false))
            --pins_;
        if (std::exchange(d->work.pending, false))
            --pins_;
        if (std::exchange(d->scheduled, false))
            --pins_;
    }
    owner->remove_descriptor(*this);
    if (bond != nullptr && reads)
        bond->reader_on.store(nullptr, std::memory_order_relaxed);
    owner = nullptr;
    if (std::exchange(closing_, false))
        finish_close();
    {
        lock_scope held(handles_lock);
        counted_by_ = nullptr;
        thread_.store(0, std::memory_order_relaxed);
        handles_ -= std::exchange(remote_drops_, 0u);
        if (handles_ != 0)
            return; // from here on it belongs to whoever drops the last of them
    }
    pin();
    (void)close();
    unpin();
}

} // namespace detail
NOWAIT_END_NAMESPACE
