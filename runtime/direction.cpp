// One direction of a descriptor: who waits, what is armed, and whether an attempt is worth making.
#include <nowait/detail/descriptor.hpp>

#include <cassert>
#include <cerrno>
#include <cstdint>
#include <utility>

#include <poll.h>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

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
           (this == &block.in || block.kind == file_kind::queue || block.calls->has(feature::nosignal));
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
    const bool tries = block.rung_of(*this) != rung::ring || first.describe_ == nullptr;
    const long n = tries ? first.attempt_(first) : -EAGAIN;
    if (n == -EAGAIN) {
        if (tries)
            counts.nowait_misses.add();
        first.tried_ = true;
        if (std::exchange(alarmed, false) && false_alarms < false_alarms_max)
            ++false_alarms;
        quiet = proving = false;
        if (first.at_ == this)
            hung_up = false; // a FIFO may have a new writer
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
    alarmed = false;
    false_alarms = 0;
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
    if (transfers(first)) {
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

/// A terminal reports that it can be written to at the end of each attempt to write, ours too, whether it can or not: by its
/// reports alone we would try for ever. After a few reports behind which nothing was, the level itself is looked at first.
bool direction::is_false_alarm() const noexcept {
    return false_alarms == false_alarms_max && !waiters.empty() && !scheduled && !work.pending &&
           block.owner->calls().ready(poll.fd, poll.events) == 0;
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
        if (result == -EPERM) {
            block.rung_of(*this) = rung::ring;
            unpollable = true;
        } else if (result != -ENOMEM) {
            poll_error = static_cast<int>(-result);
        } else if (!waiters.empty() && !work.pending) {
            // The wait that asked for it ends. The next one asks again: by then there may be memory.
            descriptor_operation& first = waiters.front();
            static_cast<list_node&>(first).unlink();
            first.result_ = result;
            block.unpin();
            first.complete_later();
        }
    }
    if (more && is_false_alarm()) {
        quiet = !poll.removing;
        return;
    }
    alarmed = !waiters.empty();
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

performer* direction::apart() const noexcept {
    return this == &block.in ? block.receiver.get() : nullptr;
}

bool direction::transfers(const descriptor_operation& waiter) const noexcept {
    return waiter.describe_ != nullptr && (block.rung_of(*this) == rung::ring || apart() != nullptr);
}

void direction::cancel_transfer() noexcept {
    if (performer* const receiver = apart())
        receiver->cancel(work);
    else
        block.owner->waits().cancel(work);
}

void direction::start_transfer(descriptor_operation& first) noexcept {
    if (work.pending || !first.describe_(first, work))
        return;
    work.fd = block.io_fd;
    work.is_file = block.kind == file_kind::regular || block.kind == file_kind::block;
    work.pending = true;
    block.pin();
    if (performer* const receiver = apart())
        receiver->start(work);
    else
        block.owner->waits().start(work);
}

void direction::on_transfer(long result) noexcept {
    descriptor& pinned = block;
    work.pending = false;
    if (!waiters.empty()) {
        descriptor_operation& first = waiters.front();
        const bool goes_on = !first.cancelling_ && !block.closed;
        if (result == -EINTR && goes_on) {
            start_transfer(first);
            pinned.unpin();
            return;
        }
        // Somebody was faster, or the kernel does not wait for O_NONBLOCK files, or a FIFO has no writer yet: tried again when a poll
        // says that it is worth it.
        const bool nothing = result == -EAGAIN ||
                             (result == 0 && !work.write && goes_on && block.meaning_of_zero(work.size) != 0);
        if (nothing && goes_on && !unpollable) {
            ensure_armed();
            pinned.unpin();
            return;
        }
        static_cast<list_node&>(first).unlink();
        first.result_ = !goes_on && (result == -EINTR || result == -EAGAIN) ? -ECANCELED : result;
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

void direction::move_to(driver& next) noexcept {
    if (poll.armed) {
        static_cast<list_node&>(poll).unlink();
        const bool removing = std::exchange(poll.removing, false);
        next.arm(poll); // tests the level: what the old driver has not reported is reported now
        if (removing) {
            poll.removing = true;
            next.disarm(poll);
        }
    }
    if (work.pending && apart() == nullptr) {
        static_cast<list_node&>(work).unlink();
        const bool cancelling = work.cancelling;
        next.start(work);
        if (cancelling)
            next.cancel(work);
    }
}

void direction::cancel_waiters() noexcept {
    fast = false;
    if (work.pending) {
        waiters.front().cancelling_ = true;
        cancel_transfer();
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
        if (where.transfers(*this))
            where.start_transfer(*this);
        else if (!where.poll.armed)
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
        // Somebody else works on the buffer: the end comes with its completion.
        cancelling_ = true;
        where.cancel_transfer();
        return;
    }
    if (!tried_ && &where.waiters.front() == this && where.block.rung_of(where) != rung::ring) {
        // It was left out, because the predictor or the budget said so. Nowait first holds all the same: a wait that may
        // last no time is one attempt.
        const long n = attempt_(*this);
        at_ = &where; // an attempt of a two-ended operation may name the other end
        if (n >= 0)
            where.hit();
        else if (n == -EAGAIN)
            home().counters_of(kind_).nowait_misses.add();
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

} // namespace detail
NOWAIT_END_NAMESPACE
