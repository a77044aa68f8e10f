// What pipe_channel_core.hpp and pipe_channel_operations.hpp declare. Compiled once for each of the two kinds, in
// pipe_channel.cpp; and once more by a test, with a lock and atomics that walk through the interleavings.
#pragma once

#include <nowait/pipe_channel.hpp>

#include <algorithm>
#include <bit>
#include <cassert>
#include <new>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

// --- the channel -----------------------------------------------------------------------------------------------------------

template <class Sync>
pipe_core<Sync>* pipe_core<Sync>::create(std::size_t bytes, std::size_t limit_bytes, long& error) noexcept {
    constexpr std::size_t bytes_max = std::size_t{1} << 31;
    error = bytes > bytes_max ? -EINVAL : 0;
    if (bytes == 0)
        bytes = std::min(std::bit_floor(std::max<std::size_t>(limit_bytes, page_size)),
                         std::size_t{pipe_ring::default_slots} * page_size);
    else if (error == 0)
        bytes = std::bit_ceil(std::max<std::size_t>(bytes, page_size));
    if (error == 0 && bytes > page_size && bytes > limit_bytes)
        error = -EPERM;
    if (error != 0)
        return nullptr;
    slot_array slots = slot_array::create(static_cast<std::uint32_t>(bytes / page_size));
    pipe_core* made = nullptr;
    if (slots && page_pool::of_this_thread().granted())
        made = new (std::nothrow) pipe_core(std::move(slots), limit_bytes);
    error = made == nullptr ? -ENOMEM : 0;
    return made;
}

template <class Sync>
void pipe_core<Sync>::fetch_pages(pipe_turn& turn) noexcept {
    mutex.unlock();
    if (!page_pool::of_this_thread().take(turn.pages_wanted - turn.pages.size(), turn.pages))
        turn.no_memory = true;
    mutex.lock();
}

template <class Sync>
void pipe_core<Sync>::settle_waiters(pipe_turn& turn) noexcept {
    // What one side does may let the other go on: until neither can.
    for (bool moved = true; moved;) {
        moved = serve(reading, turn);
        moved = serve(writing, turn) || moved;
    }
    shut_gates(!idle());
}

template <class Sync>
bool pipe_core<Sync>::serve(queue& waiters, pipe_turn& turn) noexcept {
    bool any = false;
    while (!waiters.empty()) {
        waiter& first = waiters.front(); // anew each time: fetching pages lets others in
        switch (first.attempt_(first, turn)) {
        case pipe_attempt::done:
            static_cast<list_node&>(first).unlink();
            first.leave(turn.here);
            turn.wake(first);
            any = true;
            break;
        case pipe_attempt::pages:
            fetch_pages(turn);
            break;
        case pipe_attempt::blocked:
        case pipe_attempt::called:
            return any;
        }
    }
    return any;
}

template <class Sync>
bool pipe_core<Sync>::hand_over_whole(std::span<const std::byte> from, const loop& here) noexcept {
    if (reading.empty() || !writing.empty() || !ring.empty() || ring.peeked())
        return false;
    std::size_t room = 0;
    for (list_node* at = &reading.front();; at = at->after) {
        const auto& w = static_cast<const waiter&>(*at);
        if (!w.takes_bytes_ || &w.home() != &here)
            return false;
        const pipe_memory& memory = static_cast<const pipe_read_operation<Sync>&>(w).memory_;
        if (!memory.single())
            return false;
        room += memory.size();
        if (room >= from.size())
            break;
        if (&w == &reading.back())
            return false;
    }
    while (!from.empty()) {
        auto& reader = static_cast<pipe_read_operation<Sync>&>(reading.pop_front());
        const std::size_t n = std::min(from.size(), reader.memory_.size());
        copy_bytes(reader.memory_.data(), from.data(), n);
        from = from.subspan(n);
        reader.result_ = static_cast<long>(n);
        reader.leave(&here);
        reader.home().post(reader);
    }
    if (reading.empty())
        shut_gates(false);
    return true;
}

template <class Sync>
std::size_t pipe_core<Sync>::direct_room(std::size_t size) const noexcept {
    if (reading.empty() || !ring.empty() || ring.peeked())
        return 0;
    std::size_t room = 0;
    for (list_node* at = &reading.front(); room < size; at = at->after) {
        const auto& w = static_cast<const waiter&>(*at);
        if (!w.takes_bytes_)
            break;
        room += static_cast<const pipe_read_operation<Sync>&>(w).memory_.target().size();
        if (&w == &reading.back())
            break;
    }
    return std::min(room, size);
}

template <class Sync>
std::size_t pipe_core<Sync>::hand_over(gather& from, pipe_turn& turn) noexcept {
    std::size_t handed = 0;
    while (from.size() != 0 && !reading.empty() && reading.front().takes_bytes_) {
        auto& reader = static_cast<pipe_read_operation<Sync>&>(reading.pop_front());
        scatter to = reader.memory_.target();
        const std::size_t size = std::min(to.size(), from.size());
        for (std::size_t left = size; left != 0;) {
            const std::span<std::byte> run = to.take(left);
            from.copy_to(run.data(), run.size());
            left -= run.size();
        }
        reader.result_ = static_cast<long>(size);
        reader.leave(turn.here);
        turn.wake(reader);
        handed += size;
    }
    return handed;
}

template <class Sync>
pipe_end_block<Sync>* pipe_core<Sync>::duplicate(const end_block& end, int& error) noexcept {
    end_block* made = nullptr;
    if (page_pool::of_this_thread().granted())
        made = new (std::nothrow) end_block(*this, end.writes, false);
    error = made == nullptr ? ENOMEM : 0;
    if (made == nullptr)
        return nullptr;
    {
        pipe_lock lock(*this);
        if (end.closed) {
            error = EBADF;
        } else {
            made->packets = end.packets;
            end.writes ? ring.add_writer() : ring.add_reader();
        }
    }
    if (error != 0) {
        delete made;
        return nullptr;
    }
    acquire();
    return made;
}

template <class Sync>
int pipe_core<Sync>::close(end_block& end) noexcept {
    pipe_turn turn(loop::current());
    pipe_lock lock(*this);
    if (end.closed)
        return EBADF;
    end.closed = true;
    queue_of(end).for_each([&](waiter& w) {
        if (w.end_ != &end)
            return;
        if (w.two_sided_) {
            static_cast<pipe_move_operation<Sync>&>(w).call(turn);
        } else {
            static_cast<list_node&>(w).unlink();
            w.result_ = -ECANCELED;
            w.leave(turn.here);
            turn.wake(w);
        }
    });
    guests.for_each([&](pipe_guest<Sync>& guest) {
        if (guest.end == &end)
            guest.of->call(turn);
    });
    if (end.writes)
        ring.drop_writer();
    else
        ring.drop_reader();
    discard_unread(turn);
    // The last of its kind: nobody on either side can be kept waiting any longer, and settle() ends them all.
    settle(turn);
    return 0;
}

template <class Sync>
void pipe_core<Sync>::discard_unread(pipe_turn& turn) noexcept {
    if (ring.readers() == 0 && !ring.peeked() && !ring.reserved())
        ring.clear(turn.pages);
}

template <class Sync>
int pipe_core<Sync>::set_packets(end_block& end, bool on) noexcept {
    pipe_lock lock(*this);
    if (end.closed)
        return EBADF;
    end.packets = on;
    return 0;
}

template <class Sync>
long pipe_core<Sync>::resize(const end_block& end, std::size_t bytes) noexcept {
    slot_array storage;
    pipe_turn turn(loop::current());
    long slots = 0;
    {
        pipe_lock lock(*this);
        slots = end.closed ? -EBADF : ring.plan_resize(bytes);
    }
    if (slots < 0)
        return slots;
    storage = slot_array::create(static_cast<std::uint32_t>(slots));
    if (!storage)
        return -ENOMEM;
    pipe_lock lock(*this);
    if (end.closed)
        return -EBADF;
    if (const int error = ring.resize(storage); error != 0)
        return error;
    const auto capacity = static_cast<long>(ring.capacity_bytes());
    settle(turn); // after the new size can be seen
    return capacity;
}

template <class Sync>
long pipe_core<Sync>::available(const end_block& end) noexcept {
    pipe_lock lock(*this);
    return end.closed ? -EBADF : static_cast<long>(ring.bytes_available());
}

template <class Sync>
long pipe_core<Sync>::commit(std::size_t size) noexcept {
    pipe_turn turn(loop::current());
    pipe_lock lock(*this);
    const long n = ring.commit(size, turn.pages);
    if (n != -EINVAL) {
        ring.drop_writer(); // the reservation itself counted as one
        discard_unread(turn);
        settle(turn);
    }
    return n;
}

template <class Sync>
long pipe_core<Sync>::consume(std::size_t size) noexcept {
    pipe_turn turn(loop::current());
    pipe_lock lock(*this);
    const long n = ring.consume(size, turn.pages);
    if (n != -EINVAL) {
        discard_unread(turn);
        settle(turn);
    }
    return n;
}

// --- an operation on one end -----------------------------------------------------------------------------------------------

template <class Sync>
bool pipe_waiter<Sync>::start_slow() noexcept {
    if (end_ == nullptr)
        return end_with(-EBADF);
    if (stop_requested())
        return end_with(-ECANCELED);
    if (!end_->channel->claim(home()))
        return end_with(-EPERM);
    if (home().budget <= 0) {
        defer();
        return false;
    }
    end_->channel->mutex.lock();
    return start_locked();
}

// The part of start_locked() that is worth a frame of its own.
template <class Sync>
bool pipe_waiter<Sync>::attempt_locked() noexcept {
    channel_type& channel = *end_->channel;
    auto& waiters = channel.queue_of(*end_);
    pipe_turn turn(&home());
    pipe_attempt came_out = pipe_attempt::pages;
    while (came_out == pipe_attempt::pages) {
        if (end_->closed) {
            result_ = deferred_ ? -ECANCELED : -EBADF; // closed under it, or before
            came_out = pipe_attempt::done;
        } else {
            // Others may have queued up while it fetched pages.
            came_out = waiters.empty() || asks_nothing_ ? attempt_(*this, turn) : pipe_attempt::blocked;
            if (came_out == pipe_attempt::pages)
                channel.fetch_pages(turn);
        }
    }
    if (came_out == pipe_attempt::done) {
        channel.settle(turn);
        channel.mutex.unlock();
        settle_inline(result_ > 0 && moves_bytes_ ? static_cast<std::size_t>(result_) : 0);
        return true;
    }
    return wait_here();
}

// With the lock, which it releases: to the end of the queue.
template <class Sync>
bool pipe_waiter<Sync>::wait_here() noexcept {
    run = &run_served;
    waits_ = true;
    end_->channel->enqueue(*this, *end_, false);
    end_->channel->mutex.unlock();
    // It may have been served by now, but only this thread can run it.
    auto& counters = home().counters_of(operation_kind::channel);
    counters.nowait_misses.add();
    counters.armed.add();
    listen_for_stop([](stop_hook& hook) noexcept {
        static_cast<pipe_waiter&>(operation_base::from_hook(hook)).cancel();
    });
    return false;
}

template <class Sync>
void pipe_waiter<Sync>::try_now() noexcept {
    result_ = -EBADF;
    if (end_ == nullptr)
        return;
    channel_type& channel = *end_->channel;
    pipe_turn turn(loop::current());
    pipe_lock lock(channel);
    pipe_attempt came_out = pipe_attempt::pages;
    while (came_out == pipe_attempt::pages) {
        if (end_->closed)
            return;
        const bool our_turn = channel.queue_of(*end_).empty() || asks_nothing_;
        came_out = our_turn ? attempt_(*this, turn) : pipe_attempt::blocked;
        if (came_out == pipe_attempt::pages)
            channel.fetch_pages(turn);
    }
    if (came_out == pipe_attempt::done)
        channel.settle(turn);
    else
        result_ = -EAGAIN;
}

// The turn's budget is spent: everybody else first, then the attempt. It has no place in the channel's queue until then.
template <class Sync>
void pipe_waiter<Sync>::defer() noexcept {
    deferred_ = true;
    waits_ = true;
    pin();
    run = &run_deferred;
    home().counters_of(operation_kind::channel).budget_yields.add();
    home().post(*this);
    listen_for_stop([](stop_hook& hook) noexcept {
        static_cast<pipe_waiter&>(operation_base::from_hook(hook)).stopped_ = true;
    });
}

template <class Sync>
void pipe_waiter<Sync>::run_deferred(ready_node& node) noexcept {
    auto& self = static_cast<pipe_waiter&>(node);
    self.stop_listening();
    end_block& end = *self.end_; // with the reference that defer() took
    self.waits_ = false;
    self.pinned_ = false;
    bool ended = true;
    if (self.stopped_) {
        self.result_ = -ECANCELED;
    } else {
        end.channel->mutex.lock();
        ended = self.start_locked(); // if not, it may have been served by now, and pinned by another thread
        self.deferred_ = false;
    }
    end.release();
    if (ended)
        self.operation_base::complete();
}

template <class Sync>
void pipe_waiter<Sync>::run_served(ready_node& node) noexcept {
    auto& self = static_cast<pipe_waiter&>(node);
    self.unpin();
    self.operation_base::complete();
}

template <class Sync>
void pipe_waiter<Sync>::cancel() noexcept {
    if (!waits_)
        return;
    if (deferred_) {
        stopped_ = true;
        return;
    }
    channel_type& channel = *end_->channel;
    pipe_turn turn(&home());
    pipe_lock lock(channel);
    if (!queued())
        return; // served: the result is on its way
    static_cast<list_node&>(*this).unlink();
    waits_ = false;
    pin(); // settle() may let the lock go
    result_ = -ECANCELED;
    home().post(*this);
    channel.settle(turn); // the next one may want less
}

template <class Sync>
void pipe_waiter<Sync>::abandon() noexcept {
    {
        channel_type& channel = *end_->channel;
        pipe_turn turn(loop::current());
        pipe_lock lock(channel);
        if (queued()) {
            static_cast<list_node&>(*this).unlink();
            pin(); // settle() may let the lock go
            channel.settle(turn);
        }
    }
    unpin();
}

// --- read, write, ready ----------------------------------------------------------------------------------------------------

template <class Sync>
pipe_attempt pipe_read_operation<Sync>::attempt(pipe_waiter<Sync>& self, pipe_turn& turn) noexcept {
    auto& op = static_cast<pipe_read_operation&>(self);
    scatter to = op.memory_.target();
    const auto n = op.end_->channel->ring.read(to, turn.pages);
    op.result_ = n;
    return n == -EAGAIN ? pipe_attempt::blocked : pipe_attempt::done;
}

template <class Sync>
pipe_attempt pipe_write_operation<Sync>::attempt(pipe_waiter<Sync>& self, pipe_turn& turn) noexcept {
    auto& op = static_cast<pipe_write_operation&>(self);
    pipe_core<Sync>& channel = *op.end_->channel;
    gather from = op.memory_.source();
    const std::size_t wanted = from.size();
    // Packets go through the ring, which cuts them.
    const std::size_t direct = op.end_->packets ? 0 : channel.direct_room(wanted);
    const std::uint32_t pages = channel.ring.reserved() ? 0 : channel.ring.pages_needed(wanted - direct);
    if (pages > turn.pages.size()) {
        if (!turn.no_memory) {
            turn.pages_wanted = pages;
            return pipe_attempt::pages;
        }
        if (wanted <= page_size) { // whole or not at all
            op.result_ = -ENOMEM;
            return pipe_attempt::done;
        }
    }
    const std::size_t handed = direct != 0 ? channel.hand_over(from, turn) : 0;
    if (from.size() == 0 && handed != 0) {
        turn.ring_untouched = true;
        op.result_ = static_cast<long>(handed);
        return pipe_attempt::done;
    }
    const auto n = channel.ring.write(from, op.end_->packets, turn.pages);
    if (handed == 0 && n == -EAGAIN)
        return pipe_attempt::blocked;
    op.result_ = static_cast<long>(handed) + (handed == 0 || n > 0 ? n : 0);
    return pipe_attempt::done;
}

template <class Sync>
pipe_attempt pipe_ready_operation<Sync>::attempt(pipe_waiter<Sync>& self, pipe_turn&) noexcept {
    auto& op = static_cast<pipe_ready_operation&>(self);
    const pipe_ring::readiness now = op.end_->channel->ring.poll();
    const bool ready = op.end_->writes ? now.writable || now.broken : now.readable || now.hangup;
    op.result_ = 0;
    return ready ? pipe_attempt::done : pipe_attempt::blocked;
}

// --- in place --------------------------------------------------------------------------------------------------------------

template <class Sync, class Held>
pipe_attempt pipe_hold_operation<Sync, Held>::attempt(pipe_waiter<Sync>& self, pipe_turn& turn) noexcept {
    auto& op = static_cast<pipe_hold_operation&>(self);
    pipe_core<Sync>& channel = *op.end_->channel;
    std::ptrdiff_t n = 0;
    if constexpr (std::is_same_v<Held, basic_pipe_reservation<Sync>>) {
        const std::size_t size = std::min<std::size_t>(op.size_, pipe_core<Sync>::parts_max * page_size);
        const std::uint32_t pages = channel.ring.reserved() ? 0 : channel.ring.pages_needed(size);
        if (pages > turn.pages.size() && !turn.no_memory) {
            turn.pages_wanted = pages;
            return pipe_attempt::pages;
        }
        n = channel.ring.reserve(size, op.end_->packets, channel.reserved_parts, turn.pages);
        if (n > 0)
            channel.ring
                .add_writer(); // until commit: the stream has not ended while somebody may still write
    } else {
        n = channel.ring.peek(channel.peeked_parts);
    }
    if (n > 0) {
        channel.acquire();
        op.granted_ = &channel;
        op.parts_ = static_cast<std::size_t>(n);
    }
    op.result_ = n;
    return n == -EAGAIN ? pipe_attempt::blocked : pipe_attempt::done;
}

// --- between two channels --------------------------------------------------------------------------------------------------

template <class Sync>
void pipe_move_operation<Sync>::lock_both() noexcept {
    const bool in_first = in_->channel < out_->channel;
    (in_first ? in_ : out_)->channel->mutex.lock();
    (in_first ? out_ : in_)->channel->mutex.lock();
}

template <class Sync>
void pipe_move_operation<Sync>::unlock_both() noexcept {
    in_->channel->mutex.unlock();
    out_->channel->mutex.unlock();
}

// Why it cannot be: a negative errno value, or 0. With both locks.
template <class Sync>
int pipe_move_operation<Sync>::refusal() const noexcept {
    if (in_->closed || out_->closed)
        return held_ ? -ECANCELED : -EBADF; // closed under it, or before
    return 0;
}

// `first_in`, `first_out`: it stood at the head of that queue, so nobody is before it.
template <class Sync>
auto pipe_move_operation<Sync>::try_locked(bool first_in, bool first_out) noexcept -> outcome {
    pipe_core<Sync>& in = *in_->channel;
    pipe_core<Sync>& out = *out_->channel;
    // A tee takes nothing from the readers, and need not wait for its turn among them.
    if (!copies_ && !first_in && !in.reading.empty())
        return outcome::wait_in;
    const bool nothing = in.ring.empty() && in.ring.writers() != 0;
    if (!nothing && !in.ring.empty() && !first_out && !out.writing.empty())
        return outcome::wait_out;
    const auto n =
        copies_ ? pipe_ring::tee(in.ring, out.ring, size_) : pipe_ring::splice(in.ring, out.ring, size_);
    this->result_ = n;
    if (n != -EAGAIN)
        return outcome::done;
    return nothing || (!copies_ && in.ring.peeked()) ? outcome::wait_in : outcome::wait_out;
}

template <class Sync>
void pipe_move_operation<Sync>::wait_at(outcome side, bool at_head) noexcept {
    pipe_end_block<Sync>* const here = side == outcome::wait_in ? in_ : out_;
    pipe_end_block<Sync>* const elsewhere = side == outcome::wait_in ? out_ : in_;
    this->end_ = here;
    this->run = &run_called;
    here->channel->enqueue(*this, *here, at_head);
    guest_.end = elsewhere;
    elsewhere->channel->guests.push_back(guest_);
}

template <class Sync>
void pipe_move_operation<Sync>::leave_queues() noexcept {
    static_cast<list_node&>(*this).unlink();
    static_cast<list_node&>(guest_).unlink();
}

template <class Sync>
void pipe_move_operation<Sync>::settle_both() noexcept {
    for (pipe_end_block<Sync>* end : {in_, out_}) {
        pipe_turn turn(loop::current());
        pipe_lock lock(*end->channel);
        end->channel->settle(turn);
    }
}

template <class Sync>
void pipe_move_operation<Sync>::hold() noexcept {
    if (!held_) {
        held_ = true;
        in_->acquire();
        out_->acquire();
    }
}

template <class Sync>
void pipe_move_operation<Sync>::let_go() noexcept {
    lock_both();
    leave_queues();
    unlock_both();
    settle_both();
    held_ = false;
    in_->release();
    out_->release();
}

template <class Sync>
bool pipe_move_operation<Sync>::start() noexcept {
    if (in_ == nullptr || out_ == nullptr)
        return this->end_with(-EBADF);
    if (this->stop_requested())
        return this->end_with(-ECANCELED);
    if (!in_->channel->claim(this->home()) || !out_->channel->claim(this->home()))
        return this->end_with(-EPERM);
    if (in_->channel == out_->channel)
        return this->end_with(-EINVAL);
    auto& counters = this->home().counters_of(operation_kind::channel);
    if (this->home().budget <= 0) {
        hold();
        called_.store(true, std::memory_order_relaxed); // nobody else knows it yet
        this->run = &run_called;
        counters.budget_yields.add();
        this->home().post(*this);
    } else {
        lock_both();
        outcome came_out = outcome::done;
        if (const int error = refusal(); error != 0)
            this->result_ = error;
        else
            came_out = try_locked(false, false);
        if (came_out == outcome::done) {
            unlock_both();
            settle_both();
            this->settle_inline(0); // slots changed hands: no byte was copied
            return true;
        }
        hold();
        wait_at(came_out, false);
        unlock_both();
        counters.nowait_misses.add();
        counters.armed.add();
    }
    this->listen_for_stop([](stop_hook& hook) noexcept {
        static_cast<pipe_move_operation&>(operation_base::from_hook(hook)).cancel();
    });
    return false;
}

template <class Sync>
result<std::size_t> pipe_move_operation<Sync>::try_once() noexcept {
    if (in_ == nullptr || out_ == nullptr)
        return fail(std::errc::bad_file_descriptor);
    if (in_->channel == out_->channel)
        return fail(std::errc::invalid_argument);
    lock_both();
    bool waits = false;
    if (const int error = refusal(); error != 0)
        this->result_ = error;
    else
        waits = try_locked(false, false) != outcome::done;
    unlock_both();
    if (waits)
        return fail(std::errc::resource_unavailable_try_again);
    settle_both();
    return take_result();
}

// Under one channel's lock, by whoever serves its queue.
template <class Sync>
pipe_attempt pipe_move_operation<Sync>::attempt(pipe_waiter<Sync>& self, pipe_turn& turn) noexcept {
    auto& op = static_cast<pipe_move_operation&>(self);
    const pipe_ring& ring = op.end_->channel->ring;
    const pipe_ring::readiness now = ring.poll();
    bool ready = false;
    if (op.end_->writes)
        ready = now.writable || now.broken;
    else
        ready = now.readable || now.hangup || (op.copies_ && !ring.empty());
    if (!ready)
        return pipe_attempt::blocked;
    op.call(turn);
    return pipe_attempt::called;
}

template <class Sync>
void pipe_move_operation<Sync>::call(pipe_turn& turn) noexcept {
    // acq_rel: with the store in run_called(), so that each call is answered by a try that begins after it.
    if (!called_.exchange(true, std::memory_order_acq_rel))
        turn.wake(*this);
}

template <class Sync>
void pipe_move_operation<Sync>::run_called(ready_node& node) noexcept {
    auto& self = static_cast<pipe_move_operation&>(node);
    self.lock_both();
    const bool queued = self.queued();
    const bool first_in = queued && self.end_ == self.in_ && &self.in_->channel->reading.front() == &self;
    const bool first_out = queued && self.end_ == self.out_ && &self.out_->channel->writing.front() == &self;
    self.leave_queues();
    self.called_.store(false, std::memory_order_release);
    outcome came_out = outcome::done;
    if (self.stopped_)
        self.result_ = -ECANCELED;
    else if (const int error = self.refusal(); error != 0)
        self.result_ = error;
    else
        came_out = self.try_locked(first_in, first_out);
    const bool waits = came_out != outcome::done;
    if (waits)
        self.wait_at(came_out, came_out == outcome::wait_in ? first_in : first_out);
    self.unlock_both();
    if (waits) {
        self.settle_both(); // it may have left the head of a queue
    } else {
        self.let_go();
        self.operation_base::complete();
    }
}

template <class Sync>
void pipe_move_operation<Sync>::cancel() noexcept {
    if (!held_)
        return;
    this->stopped_ = true;
    if (!called_.exchange(true, std::memory_order_acq_rel))
        this->home().post(*this);
}

} // namespace detail
NOWAIT_END_NAMESPACE
