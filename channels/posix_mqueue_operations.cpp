// What an attempt on a POSIX queue is, and what is known to fail before there is one.
#include <nowait/detail/posix_queue_operations.hpp>

#include <cerrno>
#include <new>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

// --- send ------------------------------------------------------------------------------------------------------------------

bool queue_send_operation::start_after(long outcome) noexcept {
    attempt_ = &attempt;
    if (outcome != 0) {
        result_ = outcome;
        return outcome == -EINTR ? start_slow(block_->out) : settle_first_attempt(block_->out);
    }
    // No attempt was made, and if others wait there will be none for long: what is wrong is said now.
    if (block_ == nullptr) {
        result_ = -EBADF;
        return true;
    }
    if (const int error = block_->bind(home()); error != 0) {
        result_ = -error;
        return true;
    }
    block_ = block_->resolved();
    if (what_.priority >= queue_priorities)
        result_ = -EINVAL;
    else if (what_.size > block_->message_size)
        result_ = -EMSGSIZE;
    else
        return start_slow(block_->out);
    return true;
}

long queue_send_operation::attempt(descriptor_operation& self) noexcept {
    auto& op = static_cast<queue_send_operation&>(self);
    descriptor& queue = *op.block_;
    return queue.calls->queue_send(queue.io_fd, op.what_.data, op.what_.size, op.what_.priority);
}

// --- receive -----------------------------------------------------------------------------------------------------------------

int queue_receive_base::prepare() noexcept {
    if (block_ == nullptr)
        return EBADF;
    if (const int error = block_->bind(home()); error != 0)
        return error;
    block_ = block_->resolved();
    return 0;
}

void queue_receive_base::set_up() noexcept {
    attempt_ = &attempt;
    if (block_->receiver != nullptr)
        describe_ = &describe;
}

bool queue_receive_base::start_prepared() noexcept {
    set_up();
    // The kernel's rule, applied before there are others to wait for: the buffer has room for any message of the queue.
    if (size_ < block_->message_size) {
        result_ = -EMSGSIZE;
        return true;
    }
    if (data_ == nullptr) { // never tried: it would cost a message
        result_ = -EFAULT;
        return true;
    }
    return start_slow(block_->in);
}

bool queue_receive_base::go_on(long outcome) noexcept {
    if (outcome != 0) {
        set_up();
        result_ = outcome;
        return outcome == -EINTR ? start_slow(block_->in) : settle_first_attempt(block_->in);
    }
    if (const int error = prepare(); error != 0) {
        result_ = -error;
        return true;
    }
    return start_prepared();
}

long queue_receive_base::attempt(descriptor_operation& self) noexcept {
    auto& op = static_cast<queue_receive_base&>(self);
    descriptor& queue = *op.block_;
    return queue.calls->queue_receive(queue.io_fd, op.data_, op.size_, op.priority_);
}

bool queue_receive_base::describe(descriptor_operation& self, transfer& work) noexcept {
    auto& op = static_cast<queue_receive_base&>(self);
    work.write = false;
    work.data = op.data_;
    work.size = op.size_;
    work.priority = &op.priority_;
    return true;
}

bool queue_receive_owned_operation::start() noexcept {
    if (const int error = prepare(); error != 0) {
        result_ = -error;
        return true;
    }
    try {
        bytes_.resize(block_->message_size);
    } catch (...) {
        result_ = -ENOMEM;
        return true;
    }
    data_ = bytes_.data();
    size_ = bytes_.size();
    return start_prepared();
}

queue_receive_owned_description::value_type queue_receive_owned_operation::take_result() noexcept {
    if (result_ < 0)
        return fail_errno(static_cast<int>(-result_));
    bytes_.resize(static_cast<std::size_t>(result_)); // never grows
    return message<std::vector<std::byte>>{std::move(bytes_), priority_};
}

} // namespace detail
NOWAIT_END_NAMESPACE
