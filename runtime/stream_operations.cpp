// The operations on descriptors: what an attempt is, and what a driver is told where nothing can be polled.
#include <nowait/detail/descriptor.hpp>

#include <cerrno>
#include <cstdint>

#include <poll.h>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

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
        // tee says 0 both at the end of the stream and when another reader was faster, a FIFO also before its first writer: only
        // a hang-up is the end.
        const bool ambiguous = n == 0 && op.size_ != 0 && (op.copies_ || op.block_->kind == file_kind::fifo);
        if (n != -EAGAIN && !ambiguous) {
            // Where it moved less than asked for, the other end may have been the limit: no sign that this one is drained (or full).
            if (n > 0)
                op.wanted_ = static_cast<std::size_t>(n);
            return n;
        }
        const int from = op.block_->readiness(POLLIN);
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
    const int seen = op.block_->readiness(wanted);
    if (seen < 0)
        return seen;
    if ((seen & POLLNVAL) != 0)
        return -EBADF;
    return (seen & (wanted | POLLHUP | POLLERR)) != 0 ? 1 : -EAGAIN;
}

} // namespace detail
NOWAIT_END_NAMESPACE
