#include <nowait/detail/pipe_ring.hpp>

#include <algorithm>
#include <bit>
#include <new>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

void gather::next_part() noexcept {
    if (!rest_.empty()) {
        current_ = rest_.front();
        rest_ = rest_.subspan(1);
    } else {
        const iovec& part = vectors_.front();
        current_ = {static_cast<const std::byte*>(part.iov_base), part.iov_len};
        vectors_ = vectors_.subspan(1);
    }
}

void gather::copy_to(std::byte* to, std::size_t size) noexcept {
    left_ -= size;
    while (size != 0) {
        while (current_.empty())
            next_part();
        std::size_t n = std::min(size, current_.size());
        copy_bytes(to, current_.data(), n);
        current_ = current_.subspan(n);
        to += n;
        size -= n;
    }
}

void scatter::next_part() noexcept {
    if (!rest_.empty()) {
        current_ = rest_.front();
        rest_ = rest_.subspan(1);
    } else {
        const iovec& part = vectors_.front();
        current_ = {static_cast<std::byte*>(part.iov_base), part.iov_len};
        vectors_ = vectors_.subspan(1);
    }
}

std::span<std::byte> scatter::take(std::size_t most) noexcept {
    while (current_.empty())
        next_part();
    std::span<std::byte> run = current_.first(std::min(most, current_.size()));
    current_ = current_.subspan(run.size());
    left_ -= run.size();
    return run;
}

void scatter::copy_from(const std::byte* from, std::size_t size) noexcept {
    while (size != 0) {
        std::span<std::byte> run = take(size);
        copy_bytes(run.data(), from, run.size());
        from += run.size();
        size -= run.size();
    }
}

slot_array slot_array::create(std::uint32_t count) noexcept {
    slot_array made;
    if (page_pool::of_this_thread().granted())
        made.slots_ = new (std::nothrow) pipe_slot[count];
    made.count_ = made.slots_ != nullptr ? count : 0;
    return made;
}

slot_array::~slot_array() {
    delete[] slots_;
}

pipe_ring::pipe_ring(slot_array&& slots, std::size_t limit_bytes, std::uint32_t spares_max) noexcept
    : slots_(std::move(slots)), max_usage_(slots_.count_), spares_max_(spares_max),
      limit_bytes_(limit_bytes) {
    publish({first_index, first_index});
}

pipe_ring::~pipe_ring() {
    page_list pages;
    if ((write_gate_ & exclusive) != 0)
        static_cast<void>(commit(0, pages));
    clear(pages);
}

// The newest slot, if `size` bytes may be appended to it.
pipe_slot* pipe_ring::mergeable(std::size_t size) const noexcept {
    index_pair now = indices();
    if (now.head == now.tail)
        return nullptr;
    pipe_slot& newest = at(now.head - 1);
    bool fits = std::size_t{newest.offset} + newest.length + size <= page_size;
    return fits && (newest.flags & pipe_slot::can_merge) != 0 ? &newest : nullptr;
}

// A page for one more slot, or null and the reason.
page* pipe_ring::take_page(bool room, page_list& pages, int& reason) noexcept {
    reason = room ? ENOMEM : EAGAIN;
    if (!room)
        return nullptr;
    page* p = spares_.pop_front();
    return p != nullptr ? p : pages.pop_front();
}

void pipe_ring::release(page& p, page_list& pages) noexcept {
    if (p.drop())
        (spares_.size() < spares_max_ ? spares_ : pages).push_front(p);
}

std::ptrdiff_t pipe_ring::write(gather& from, bool packet, page_list& pages) noexcept {
    if (from.size() == 0)
        return 0;
    if (readers_ == 0)
        return -EPIPE;
    if ((write_gate_ & exclusive) != 0)
        return -EAGAIN;

    std::size_t wanted = from.size();
    std::size_t odd = wanted % page_size;
    if (odd != 0) {
        // As in the kernel, packets too: the first one behind stream bytes may be glued to them.
        if (pipe_slot* newest = mergeable(odd)) {
            from.copy_to(newest->page->data + newest->offset + newest->length, odd);
            newest->length = static_cast<std::uint16_t>(newest->length + odd);
        }
    }

    int stopped = 0;
    index_pair now = indices();
    while (from.size() != 0) {
        page* p = take_page(now.occupancy() < slots_.count_, pages, stopped);
        if (p == nullptr)
            break;
        std::size_t size = std::min<std::size_t>(from.size(), page_size);
        from.copy_to(p->data, size);
        push(now,
             {p, 0, static_cast<std::uint16_t>(size), packet ? pipe_slot::packet : pipe_slot::can_merge});
    }
    std::size_t done = wanted - from.size();
    return done != 0 ? static_cast<std::ptrdiff_t>(done) : -stopped;
}

// Takes up to `size` bytes off the tail, ending with the first packet, and shows each run of them to `copy`.
template <class Copy>
std::size_t pipe_ring::advance(std::size_t size, page_list& pages, Copy&& copy) noexcept {
    std::size_t done = 0;
    index_pair now = indices();
    bool packet = false;
    while (done != size && now.head != now.tail && !packet) {
        pipe_slot& oldest = at(now.tail);
        std::size_t n = std::min<std::size_t>(oldest.length, size - done);
        copy(oldest.page->data + oldest.offset, n);
        done += n;
        packet = (oldest.flags & pipe_slot::packet) != 0;
        if (packet || n == oldest.length) {
            release(*oldest.page, pages);
            publish({now.head, ++now.tail});
        } else {
            oldest.offset = static_cast<std::uint16_t>(oldest.offset + n);
            oldest.length = static_cast<std::uint16_t>(oldest.length - n);
        }
    }
    return done;
}

std::ptrdiff_t pipe_ring::read(scatter& to, page_list& pages) noexcept {
    if (to.size() == 0)
        return 0;
    if ((read_gate_ & exclusive) != 0)
        return -EAGAIN;
    if (empty())
        return writers_ == 0 ? 0 : -EAGAIN;
    std::size_t done =
        advance(to.size(), pages, [&](const std::byte* from, std::size_t n) { to.copy_from(from, n); });
    return static_cast<std::ptrdiff_t>(done);
}

std::ptrdiff_t pipe_ring::reserve(std::size_t size, bool packet, std::span<std::span<std::byte>> out,
                                  page_list& pages) noexcept {
    if (size == 0 || out.empty())
        return -EINVAL;
    if (readers_ == 0)
        return -EPIPE;
    if ((write_gate_ & exclusive) != 0)
        return -EAGAIN;

    std::size_t parts = 0;
    std::size_t left = size;
    std::size_t odd = size % page_size;
    pipe_slot* newest = odd != 0 ? mergeable(odd) : nullptr;
    if (newest != nullptr && newest->page->share()) {
        // The newest slot may be read or spliced away meanwhile: hence a reference of our own, and the right
        // to append.
        newest->flags = static_cast<std::uint16_t>(newest->flags & ~pipe_slot::can_merge);
        tail_page_ = newest->page;
        tail_offset_ = static_cast<std::uint16_t>(newest->offset + newest->length);
        tail_size_ = static_cast<std::uint16_t>(odd);
        out[parts++] = {tail_page_->data + tail_offset_, odd};
        left -= odd;
    }

    int stopped = 0;
    std::uint32_t room = slots_.count_ - indices().occupancy();
    while (left != 0 && parts != out.size()) {
        page* p = take_page(reserved_.size() < room, pages, stopped);
        if (p == nullptr)
            break;
        std::size_t n = std::min<std::size_t>(left, page_size);
        reserved_.push_back(*p);
        out[parts++] = {p->data, n};
        left -= n;
    }
    if (parts == 0)
        return -stopped;
    reserved_packet_ = packet;
    reserved_bytes_ = size - left;
    set(write_gate_, exclusive, true);
    return static_cast<std::ptrdiff_t>(parts);
}

// Publishes up to `size` bytes of the room behind what was the newest slot, and gives the right to append
// back.
std::size_t pipe_ring::publish_tail(std::size_t size, page_list& pages) noexcept {
    if (tail_page_ == nullptr)
        return 0;
    page* p = std::exchange(tail_page_, nullptr);
    std::size_t n = std::min<std::size_t>(size, tail_size_);
    index_pair now = indices();
    if (now.head != now.tail) {
        pipe_slot& newest = at(now.head - 1);
        newest.length = static_cast<std::uint16_t>(newest.length + n);
        newest.flags |= pipe_slot::can_merge;
        release(*p, pages);
    } else if (n != 0) { // the slot has gone, and left room for one of its own
        push(now, {p, tail_offset_, static_cast<std::uint16_t>(n), pipe_slot::can_merge});
    } else {
        release(*p, pages);
    }
    return n;
}

std::ptrdiff_t pipe_ring::commit(std::size_t size, page_list& pages) noexcept {
    if ((write_gate_ & exclusive) == 0 || size > reserved_bytes_)
        return -EINVAL;
    std::size_t publishing = readers_ == 0 ? 0 : size;
    std::size_t left = publishing - publish_tail(publishing, pages);
    index_pair now = indices();
    while (page* p = reserved_.pop_front()) {
        std::size_t n = std::min<std::size_t>(left, page_size);
        if (n != 0)
            push(now, {p, 0, static_cast<std::uint16_t>(n),
                       reserved_packet_ ? pipe_slot::packet : pipe_slot::can_merge});
        else
            release(*p, pages);
        left -= n;
    }
    reserved_bytes_ = 0;
    set(write_gate_, exclusive, false);
    return publishing == size ? static_cast<std::ptrdiff_t>(size) : -EPIPE;
}

std::ptrdiff_t pipe_ring::peek(std::span<std::span<const std::byte>> out) noexcept {
    if (out.empty())
        return -EINVAL;
    if ((read_gate_ & exclusive) != 0)
        return -EAGAIN;
    index_pair now = indices();
    if (now.head == now.tail)
        return writers_ == 0 ? 0 : -EAGAIN;
    std::size_t parts = 0;
    peeked_bytes_ = 0;
    bool packet = false;
    while (parts != out.size() && now.head != now.tail && !packet) {
        const pipe_slot& slot = at(now.tail++);
        out[parts++] = {slot.page->data + slot.offset, slot.length};
        peeked_bytes_ += slot.length;
        packet = (slot.flags & pipe_slot::packet) != 0;
    }
    set(read_gate_, exclusive, true);
    return static_cast<std::ptrdiff_t>(parts);
}

std::ptrdiff_t pipe_ring::consume(std::size_t size, page_list& pages) noexcept {
    if ((read_gate_ & exclusive) == 0 || size > peeked_bytes_)
        return -EINVAL;
    set(read_gate_, exclusive, false);
    return static_cast<std::ptrdiff_t>(advance(size, pages, [](const std::byte*, std::size_t) {}));
}

// Puts the first `size` bytes of a slot of another ring into `out`, sharing its page.
bool pipe_ring::lend(const pipe_slot& from, pipe_ring& out, std::size_t size) noexcept {
    if (!from.page->share())
        return false;
    // One appender per page: it stays with the original.
    auto flags = static_cast<std::uint16_t>(from.flags & ~pipe_slot::can_merge);
    index_pair now = out.indices();
    out.push(now, {from.page, from.offset, static_cast<std::uint16_t>(size), flags});
    return true;
}

std::ptrdiff_t pipe_ring::splice(pipe_ring& in, pipe_ring& out, std::size_t size) noexcept {
    if (size == 0)
        return 0;
    if (&in == &out)
        return -EINVAL;
    if ((in.empty() && in.writers_ != 0) || (in.read_gate_ & exclusive) != 0)
        return -EAGAIN;
    if (out.readers_ == 0)
        return -EPIPE;
    if (out.full() || (out.write_gate_ & exclusive) != 0)
        return -EAGAIN;

    std::size_t left = size;
    while (left != 0 && !in.empty() && !out.full()) {
        index_pair source = in.indices();
        pipe_slot& oldest = in.at(source.tail);
        if (oldest.length <= left) {
            index_pair target = out.indices();
            out.push(target, oldest);
            left -= oldest.length;
            in.publish({source.head, source.tail + 1});
        } else {
            if (!lend(oldest, out, left))
                return left == size ? -ENOMEM : static_cast<std::ptrdiff_t>(size - left);
            oldest.offset = static_cast<std::uint16_t>(oldest.offset + left);
            oldest.length = static_cast<std::uint16_t>(oldest.length - left);
            left = 0;
        }
    }
    return static_cast<std::ptrdiff_t>(size - left);
}

std::ptrdiff_t pipe_ring::tee(pipe_ring& in, pipe_ring& out, std::size_t size) noexcept {
    if (size == 0)
        return 0;
    if (&in == &out)
        return -EINVAL;
    if (in.empty() && in.writers_ != 0)
        return -EAGAIN;
    if (out.readers_ == 0)
        return -EPIPE;
    if (out.full() || (out.write_gate_ & exclusive) != 0)
        return -EAGAIN;

    std::size_t left = size;
    index_pair source = in.indices();
    while (left != 0 && source.head != source.tail && !out.full()) {
        const pipe_slot& slot = in.at(source.tail++);
        std::size_t n = std::min<std::size_t>(slot.length, left);
        if (!lend(slot, out, n))
            return left == size ? -ENOMEM : static_cast<std::ptrdiff_t>(size - left);
        left -= n;
    }
    return static_cast<std::ptrdiff_t>(size - left);
}

std::uint32_t pipe_ring::drop_reader() noexcept {
    set(write_gate_, no_peer, --readers_ == 0);
    return readers_;
}

std::ptrdiff_t pipe_ring::plan_resize(std::size_t bytes) const noexcept {
    if (bytes > std::size_t{1} << 31)
        return -EINVAL;
    std::size_t rounded = std::bit_ceil(std::max<std::size_t>(bytes, page_size));
    if (rounded / page_size > max_usage() && rounded > limit_bytes_)
        return -EPERM;
    return static_cast<std::ptrdiff_t>(rounded / page_size);
}

int pipe_ring::resize(slot_array& slots) noexcept {
    index_pair now = indices();
    if (now.occupancy() > slots.count_ || ((read_gate_ | write_gate_) & exclusive) != 0)
        return -EBUSY;
    for (std::uint32_t i = now.tail; i != now.head;
         ++i) // the indices stay: they are masked with the new size
        slots.slots_[i & (slots.count_ - 1)] = at(i);
    std::swap(slots_.slots_, slots.slots_);
    std::swap(slots_.count_, slots.count_);
    max_usage_.store(slots_.count_, std::memory_order_relaxed); // see indices()
    return 0;
}

std::size_t pipe_ring::bytes_available() const noexcept {
    index_pair now = indices();
    std::size_t bytes = 0;
    while (now.tail != now.head)
        bytes += at(now.tail++).length;
    return bytes;
}

std::uint32_t pipe_ring::pages_hint(std::size_t size) const noexcept {
    std::uint32_t used = indices().occupancy();
    std::uint32_t slots = max_usage();
    std::size_t room = used < slots ? slots - used : 0;
    return static_cast<std::uint32_t>(std::min(room, size / page_size + (size % page_size != 0)));
}

std::uint32_t pipe_ring::pages_needed(std::size_t size) const noexcept {
    if (mergeable(size % page_size) != nullptr)
        size -= size % page_size;
    std::uint32_t pages = pages_hint(size);
    return pages > spares_.size() ? pages - spares_.size() : 0;
}

pipe_ring::readiness pipe_ring::poll() const noexcept {
    bool peeked = (read_gate_ & exclusive) != 0;
    bool reserved = (write_gate_ & exclusive) != 0;
    return {!empty() && !peeked, writers_ == 0, !full() && !reserved, readers_ == 0};
}

void pipe_ring::clear(page_list& pages) noexcept {
    index_pair now = indices();
    while (now.tail != now.head)
        release(*at(now.tail++).page, pages);
    publish(now);
}

bool pipe_ring::consistent() const noexcept {
    index_pair now = indices();
    bool good = slots_.count_ == max_usage() && std::has_single_bit(slots_.count_);
    good = good && now.occupancy() <= slots_.count_ && spares_.size() <= spares_max_;
    good = good && ((write_gate_ & no_peer) != 0) == (readers_ == 0);
    good = good && ((write_gate_ & exclusive) != 0) == (reserved_bytes_ != 0);
    good = good && now.occupancy() + reserved_.size() <= slots_.count_;
    for (std::uint32_t i = now.tail; good && i != now.head; ++i) {
        const pipe_slot& s = at(i);
        good = s.length != 0 && std::uint32_t{s.offset} + s.length <= page_size;
        good = good && s.page->references.load(std::memory_order_relaxed) != 0;
        good = good && (s.flags == 0 || s.flags == pipe_slot::packet || s.flags == pipe_slot::can_merge);
    }
    return good;
}

} // namespace detail
NOWAIT_END_NAMESPACE
