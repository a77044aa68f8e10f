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

// --- direction -----------------------------------------------------------------------------------------------------------

direction::direction(descriptor& of, short poll_events) noexcept : block(of) {
    run = [](ready_node& node) noexcept { static_cast<direction&>(node).serve(); };
    poll.of = this;
    poll.fd = of.io_fd;
    poll.events = poll_events;
    poll.on_event = [](driver_target& target, long result, bool more) noexcept {
        static_cast<embedded_poll&>(target).of->on_poll(result, more);
    };
    work.of = this;
    work.on_event = [](driver_target& target, long result, bool) noexcept {
        static_cast<embedded_transfer&>(target).of->on_transfer(result);
    };
}

void direction::miss() noexcept {
    if (misses == misses_to_skip)
        return;
    ++misses;
    if (misses == misses_to_skip)
        skipped = 0;
}

bool direction::predicts_wait() noexcept {
    if (misses < misses_to_skip || hung_up)
        return false;
    if (++skipped >= probe_every) {
        skipped = 0;
        return false;
    }
    return true;
}

void direction::update_fast() noexcept {
    fast = !block.closed && waiters.empty() && block.owner != nullptr && misses < misses_to_skip &&
           block.rung_of(*this) == rung::plain && block.calls->real() &&
           (this == &block.in || block.calls->has(feature::nosignal));
}

void direction::enqueue(descriptor_operation& waiter) noexcept {
    waiters.push_back(waiter);
    waiter.at_ = this;
    fast = false;
    block.pin();
}

void direction::schedule() noexcept {
    if (scheduled)
        return;
    scheduled = true;
    block.pin();
    block.owner->post(*this);
}

void direction::serve() noexcept {
    descriptor& pinned = block;
    scheduled = false;
    if (waiters.empty() || work.pending) {
        update_fast();
        pinned.unpin();
        return;
    }
    descriptor_operation& first = waiters.front();
    operation_counters& counts = block.owner->counters_of(first.kind_);
    const long n =
        block.rung_of(*this) == rung::ring && first.describe_ != nullptr ? -EAGAIN : first.attempt_(first);
    if (n == -EAGAIN) {
        counts.nowait_misses.add();
        first.tried_ = true;
        quiet = proving = hung_up = false; // a FIFO may have a new writer
        if (first.at_ != this) {
            // A two-ended operation found its other end not ready: it goes to wait there, behind those who came before.
            direction& other = *first.at_;
            static_cast<list_node&>(first).unlink();
            other.enqueue(first);
            pinned.unpin(); // enqueue() pinned the other block for it
            if (&other.waiters.front() == &first)
                other.wait_for_event();
            if (!waiters.empty())
                schedule();
            else
                update_fast();
        } else {
            wait_for_event();
        }
        pinned.unpin();
        return;
    }
    static_cast<list_node&>(first).unlink();
    first.result_ = n;
    bool more_to_do = true;
    if (n >= 0) {
        const auto moved = static_cast<std::size_t>(n);
        if (std::exchange(proving, false))
            misses = 0; // the prediction was wrong: something was there at once
        // Less than asked for, and not the end: the pipe was drained (or filled) by this, so the next waiter would find nothing.
        // Only of pipes: a terminal gives a line at a time, a socket stops at message boundaries.
        const bool is_stream =
            (block.kind == file_kind::pipe || block.kind == file_kind::fifo) && !block.packets;
        if (n > 0 && moved < first.wanted_ && is_stream && !hung_up && poll.armed && !poll.removing) {
            quiet = true;
            more_to_do = false;
        }
        block.owner->charge(moved);
    }
    if (!waiters.empty() && more_to_do)
        schedule(); // the baton: who was served hands on
    else
        update_fast();
    pinned.unpin(); // for the waiter that left
    pinned.unpin(); // for having been scheduled
    first.complete();
}

/// The first waiter has found nothing: makes sure that something will come.
void direction::wait_for_event() noexcept {
    descriptor_operation& first = waiters.front();
    if (first.describe_ != nullptr && block.rung_of(*this) == rung::ring) {
        start_transfer(first);
        return;
    }
    if (poll_error != 0) {
        // Nothing can poll it, nothing can transfer it: the waiter hears why.
        static_cast<list_node&>(first).unlink();
        first.result_ = -poll_error;
        block.unpin();
        first.complete_later();
        if (!waiters.empty())
            schedule();
        return;
    }
    ensure_armed();
}

void direction::ensure_armed() noexcept {
    if (poll.armed) {
        quiet =
            !poll.removing; // the attempt that brought us here found nothing, and no report has come since
        return;
    }
    poll.fd = block.io_fd;
    poll.armed = true;
    poll.removing = false;
    quiet = true; // arming tests the level
    block.pin();
    block.owner->waits().arm(poll);
}

void direction::on_poll(long result, bool more) noexcept {
    descriptor& pinned = block;
    const bool was_armed = poll.armed;
    poll.armed = more;
    if (!more)
        poll.removing = false;
    quiet = false;
    // One event may stand for data and for the end behind it: the short read that takes the data is then not the last news.
    if (result > 0 && (result & (POLLHUP | POLLERR)) != 0)
        hung_up = true;
    if (result < 0 && result != -ECANCELED) {
        if (result == -EPERM)
            block.rung_of(*this) = rung::ring; // cannot be polled
        else
            poll_error = static_cast<int>(-result);
    }
    if (!waiters.empty()) {
        idle_events = 0;
        schedule();
    } else if (result >= 0) {
        // Something may be there that no attempt has seen: the next operation tries.
        misses = 0;
        update_fast();
        if (more && !poll.removing && ++idle_events >= idle_events_max) {
            idle_events = 0;
            poll.removing = true;
            block.owner->waits().disarm(poll);
        }
    }
    if (was_armed && !more) {
        pinned.released();
        pinned.unpin();
    }
}

void direction::start_transfer(descriptor_operation& first) noexcept {
    if (work.pending || !first.describe_(first, work))
        return;
    work.fd = block.io_fd;
    work.pending = true;
    block.pin();
    block.owner->waits().start(work);
}

void direction::on_transfer(long result) noexcept {
    descriptor& pinned = block;
    work.pending = false;
    if (!waiters.empty()) {
        descriptor_operation& first = waiters.front();
        if ((result == -EINTR || result == -EAGAIN) && !first.cancelling_ && !block.closed) {
            start_transfer(first);
            pinned.unpin();
            return;
        }
        static_cast<list_node&>(first).unlink();
        first.result_ = result == -EINTR || result == -EAGAIN ? -ECANCELED : result;
        pinned.unpin();
        first.complete_later();
        if (!waiters.empty() && !block.closed)
            schedule();
        else
            update_fast();
    }
    pinned.released();
    pinned.unpin();
}

void direction::prove() noexcept {
    if (waiters.empty() || quiet || scheduled)
        return;
    proving = true;
    schedule();
}

void direction::cancel_waiters() noexcept {
    fast = false;
    if (work.pending) {
        waiters.front().cancelling_ = true;
        block.owner->waits().cancel(work);
    }
    waiters.for_each([this](descriptor_operation& waiter) {
        if (waiter.cancelling_)
            return;
        static_cast<list_node&>(waiter).unlink();
        waiter.result_ = -ECANCELED;
        waiter.complete_later();
        block.unpin();
    });
    if (poll.armed && !poll.removing) {
        poll.removing = true;
        block.owner->waits().disarm(poll);
    }
}

// --- descriptor_operation -----------------------------------------------------------------------------------------------

bool descriptor_operation::start_slow(direction& where) noexcept {
    descriptor& block = where.block;
    operation_counters& counts = home().counters_of(kind_);
    if (const int error = block.bind(home()); error != 0) {
        result_ = -error;
        return true;
    }
    if (stop_requested()) {
        result_ = -ECANCELED;
        return true;
    }
    at_ = &where;
    if (wanted_ == 0 && (kind_ == operation_kind::read || kind_ == operation_kind::write)) {
        result_ = 0; // as the kernel: nothing asked for, nothing tested
        return true;
    }
    if (!where.waiters.empty()) {
        // No barging: a fresh operation queues behind those who wait, also behind one that was chosen and has not run yet.
        where.enqueue(*this);
    } else if (home().budget <= 0) {
        counts.budget_yields.add();
        where.enqueue(*this);
        where.schedule();
    } else if (describe_ != nullptr && block.rung_of(where) == rung::ring) {
        where.enqueue(*this);
        where.start_transfer(*this);
    } else if (where.predicts_wait() && where.poll_error == 0) {
        counts.predictor_skips.add();
        where.enqueue(*this);
        if (!where.poll.armed)
            where.ensure_armed();
        else if (!where.quiet)
            home().watch_unproved(where);
    } else {
        result_ = attempt_(*this);
        return settle_first_attempt(where);
    }
    counts.armed.add();
    listen_for_stop(
        [](stop_hook& hook) noexcept { static_cast<descriptor_operation&>(from_hook(hook)).cancel(); });
    return false;
}

bool descriptor_operation::settle_first_attempt(direction& where) noexcept {
    operation_counters& counts = home().counters_of(kind_);
    if (result_ != -EAGAIN) {
        if (result_ >= 0) {
            const auto moved = static_cast<std::size_t>(result_);
            where.hit();
            where.update_fast();
            home().charge(moved);
            counts.inline_completions.add();
        }
        return true;
    }
    counts.nowait_misses.add();
    tried_ = true;
    direction& at = at_ != nullptr ? *at_ : where;
    if (&at == &where)
        where.miss(); // that there was no room at the other end says nothing about this one
    const bool first = at.waiters.empty();
    at.enqueue(*this);
    if (first)
        at.wait_for_event();
    counts.armed.add();
    if (list_node::linked()) {
        listen_for_stop(
            [](stop_hook& hook) noexcept { static_cast<descriptor_operation&>(from_hook(hook)).cancel(); });
    }
    return false;
}

void descriptor_operation::cancel() noexcept {
    if (!list_node::linked() || cancelling_)
        return;
    direction& where = *at_;
    if (where.work.pending && &where.waiters.front() == this) {
        // The kernel works on the buffer: the end comes with its completion.
        cancelling_ = true;
        where.block.owner->waits().cancel(where.work);
        return;
    }
    if (!tried_ && &where.waiters.front() == this && where.block.rung_of(where) != rung::ring) {
        // It was left out, because the predictor or the budget said so. Nowait first holds all the same: a wait that may
        // last no time is one attempt.
        const long n = attempt_(*this);
        at_ = &where; // an attempt of a two-ended operation may name the other end
        if (n >= 0)
            where.hit();
        leave();
        if (n != -EAGAIN)
            result_ = n;
        return;
    }
    leave();
}

void descriptor_operation::leave() noexcept {
    direction& where = *at_;
    unlink();
    result_ = -ECANCELED;
    complete_later();
    // If it was the chosen one, the direction stands in the ready queue and will serve the next; nothing was taken.
    where.update_fast();
    where.block.unpin();
}

void descriptor_operation::abandon() noexcept {
    direction& where = *at_;
    assert(!(where.work.pending && &where.waiters.front() == this) &&
           "a frame with a buffer in the kernel's hands is destroyed");
    list_node::unlink();
    where.block.unpin();
}

// --- read and write ---------------------------------------------------------------------------------------------------------

namespace {

std::size_t total(const iovec* parts, int count) noexcept {
    std::size_t sum = 0;
    for (int i = 0; i < count; ++i)
        sum = parts[i].iov_len > SIZE_MAX - sum ? SIZE_MAX : sum + parts[i].iov_len;
    return sum;
}

/// The first part that has a size: what a ring's plain read or write is given. An empty one would look like the end.
const iovec& first_part(const iovec* parts, int count) noexcept {
    int i = 0;
    while (i < count - 1 && parts[i].iov_len == 0)
        ++i;
    return parts[i];
}

} // namespace

template <class Description>
bool transfer_operation<Description>::first_attempt_failed() noexcept {
    attempt_ = &attempt;
    describe_ = &describe;
    wanted_ = what_.single.iov_len;
    if (result_ == -EINTR)
        return start_slow(where());
    return settle_first_attempt(where());
}

template <class Description>
bool transfer_operation<Description>::start_other() noexcept {
    attempt_ = &attempt;
    describe_ = &describe;
    if (block_ == nullptr || what_.count < 0) {
        result_ = block_ == nullptr ? -EBADF : what_.count;
        return true;
    }
    wanted_ = what_.parts == nullptr ? what_.single.iov_len : total(what_.parts, what_.count);
    if (const int error = block_->bind(home()); error != 0) {
        result_ = -error;
        return true;
    }
    block_ = block_->resolved();
    return start_slow(where());
}

template <class Description>
long transfer_operation<Description>::attempt(descriptor_operation& self) noexcept {
    auto& op = static_cast<transfer_operation&>(self);
    const iovec* parts = op.what_.parts != nullptr ? op.what_.parts : &op.what_.single;
    return reads ? op.block_->attempt_read(parts, op.what_.count)
                 : op.block_->attempt_write(parts, op.what_.count);
}

template <class Description>
bool transfer_operation<Description>::describe(descriptor_operation& self, transfer& work) noexcept {
    auto& op = static_cast<transfer_operation&>(self);
    const iovec& part =
        op.what_.parts != nullptr ? first_part(op.what_.parts, op.what_.count) : op.what_.single;
    work.write = !reads;
    work.data = part.iov_base;
    work.size = part.iov_len;
    return true;
}

// The members that are not inline, one by one: instantiating the whole class would take its inline members out of sight of
// those who link to the shared library.
template NOWAIT_API bool transfer_operation<read_description>::first_attempt_failed() noexcept;
template NOWAIT_API bool transfer_operation<read_description>::start_other() noexcept;
template NOWAIT_API bool transfer_operation<write_description>::first_attempt_failed() noexcept;
template NOWAIT_API bool transfer_operation<write_description>::start_other() noexcept;

// --- splice, tee, ready --------------------------------------------------------------------------------------------------------

bool pipe_to_pipe_operation::start() noexcept {
    attempt_ = &attempt;
    wanted_ = size_;
    if (block_ == nullptr || to_ == nullptr) {
        result_ = -EBADF;
        return true;
    }
    for (descriptor** block : {&block_, &to_}) {
        if (const int error = (*block)->bind(home()); error != 0) {
            result_ = -error;
            return true;
        }
        *block = (*block)->resolved();
    }
    if (!allowed_ && (!block_->owned || !to_->owned)) {
        // Splicing makes the kernel forget, for everybody who shares the description, that it can do without waiting.
        result_ = -EPERM;
        return true;
    }
    // Nobody is passed: neither those who wait for data nor those who wait for room.
    if (start_slow(block_->in.waiters.empty() && !to_->out.waiters.empty() ? to_->out : block_->in))
        return true;
    from_tie_.tie(*block_);
    to_tie_.tie(*to_);
    return false;
}

long pipe_to_pipe_operation::attempt(descriptor_operation& self) noexcept {
    auto& op = static_cast<pipe_to_pipe_operation&>(self);
    if (op.to_->closed || op.block_->closed)
        return -ECANCELED; // one end was closed while this waited at the other
    system& calls = *op.block_->calls;
    op.at_ = &op.block_->in;
    for (;;) {
        const long n = op.copies_ ? calls.tee(op.block_->io_fd, op.to_->io_fd, op.size_)
                                  : calls.splice(op.block_->io_fd, op.to_->io_fd, op.size_);
        // tee says 0 both at the end of the stream and when another reader was faster: only a hang-up is the end.
        const bool ambiguous = n == 0 && op.copies_ && op.size_ != 0;
        if (n != -EAGAIN && !ambiguous) {
            // Where it moved less than asked for, the other end may have been the limit: no sign that this one is drained (or full).
            if (n > 0)
                op.wanted_ = static_cast<std::size_t>(n);
            return n;
        }
        const int from = calls.ready(op.block_->io_fd, POLLIN);
        if (ambiguous && (from < 0 || (from & (POLLHUP | POLLIN)) == POLLHUP))
            return 0;
        if (from <= 0 || (from & (POLLIN | POLLHUP)) == 0)
            return -EAGAIN; // no data: it waits where data comes
        if (calls.ready(op.to_->io_fd, POLLOUT) == 0) {
            op.at_ = &op.to_->out;
            return -EAGAIN;
        }
        // Data and room, or an end that is no more: somebody else was at work between the calls. A poll that has reported
        // them is not going to do so again, so this may not wait.
    }
}

bool ready_operation::start() noexcept {
    attempt_ = &attempt;
    wanted_ = 1;
    if (block_ == nullptr) {
        result_ = -EBADF;
        return true;
    }
    if (const int error = block_->bind(home()); error != 0) {
        result_ = -error;
        return true;
    }
    block_ = block_->resolved();
    return start_slow(for_writing_ ? block_->out : block_->in);
}

long ready_operation::attempt(descriptor_operation& self) noexcept {
    auto& op = static_cast<ready_operation&>(self);
    const int wanted = op.for_writing_ ? POLLOUT : POLLIN;
    const int seen = op.block_->calls->ready(op.block_->io_fd, wanted);
    if (seen < 0)
        return seen;
    if ((seen & POLLNVAL) != 0)
        return -EBADF;
    return (seen & (wanted | POLLHUP | POLLERR)) != 0 ? 1 : -EAGAIN;
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

long descriptor::attempt_read(const iovec* parts, int count) noexcept {
    for (;;) {
        long n = 0;
        switch (how[0]) {
        case rung::plain:
            if (count == 1 && calls->real()) { // cheaper than readv
                if (n = direct_read(io_fd, parts->iov_base, parts->iov_len); n != -EINTR)
                    return n;
            }
            return calls->read(io_fd, parts, count);
        case rung::socket:
            return calls->receive(fd, parts, count);
        case rung::nowait_flag:
            n = calls->read_nowait(fd, parts, count);
            if (n == -EAGAIN && (kind == file_kind::regular || kind == file_kind::block))
                how[0] = rung::ring; // not in the page cache, and nothing can poll it
            if (n != -EOPNOTSUPP)
                return n;
            if (!descend(in))
                return -EAGAIN;
            continue;
        case rung::ring:
            return -EAGAIN;
        }
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
