// mq_notify by netlink: the kernel puts 32 bytes into a socket of ours when a message comes to the empty queue.
#include "present_system.hpp"
#include "runtime/fork_watch.hpp"

#include <nowait/mqueue_notification.hpp>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

namespace {

// The cookie's last byte, which the kernel writes.
constexpr std::byte notice_arrived{1};
constexpr std::byte notice_removed{2};

/// Registers with a cookie that carries the generation, so that what an older registration has left in the socket is known.
int register_again(descriptor& queue, descriptor& socket, queue_registration& registration) noexcept {
    std::array<std::byte, system::notification_size> cookie{};
    const unsigned generation = registration.generation + 1;
    watch_forks();
    std::memcpy(cookie.data(), &generation, sizeof generation);
    const int error = queue.calls->queue_notify(queue.fd, socket.fd, cookie.data());
    if (error == 0) {
        registration.generation = generation;
        registration.forks = fork_generation();
        registration.standing = true;
    }
    return -error;
}

} // namespace

long take_notice(descriptor& socket, queue_registration& registration) noexcept {
    for (;;) {
        std::array<std::byte, system::notification_size> cookie{};
        const iovec part{cookie.data(), cookie.size()};
        const long n = socket.calls->receive(socket.fd, &part, 1);
        if (n < 0)
            return n;
        unsigned generation = 0;
        std::memcpy(&generation, cookie.data(), sizeof generation);
        if (static_cast<std::size_t>(n) != cookie.size() || generation != registration.generation)
            continue;
        registration.standing = false;
        if (cookie.back() == notice_removed)
            return -EIDRM;
        if (cookie.back() == notice_arrived)
            return 1;
    }
}

bool queue_notice_operation::start() noexcept {
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
    return start_slow(block_->in);
}

long queue_notice_operation::attempt(descriptor_operation& self) noexcept {
    auto& op = static_cast<queue_notice_operation&>(self);
    return take_notice(*op.block_, *op.registration_);
}

} // namespace detail

result<mqueue_notification> posix_mqueue::notify() const {
    if (!is_open())
        return fail(std::errc::bad_file_descriptor);
    detail::descriptor& queue = *block_.get()->resolved();
    auto registration =
        std::unique_ptr<detail::queue_registration>(new (std::nothrow) detail::queue_registration);
    auto socket =
        std::unique_ptr<detail::descriptor>(new (std::nothrow) detail::descriptor(-1, true, *queue.calls));
    if (registration == nullptr || socket == nullptr)
        return fail(std::errc::not_enough_memory);
    const int fd = queue.calls->notification_socket();
    if (fd < 0)
        return fail_errno(-fd);
    socket->fd = socket->io_fd = fd;
    socket->kind = detail::file_kind::socket;
    socket->how[0] = socket->how[1] = detail::rung::socket;
    if (const int error = detail::register_again(queue, *socket, *registration); error != 0) {
        queue.calls->close(fd);
        return fail_errno(error);
    }
    return mqueue_notification(&queue, socket.release(), std::move(registration));
}

result<void> mqueue_notification::renew() noexcept {
    if (queue_.get() == nullptr || queue_.get()->closed || socket_.get() == nullptr)
        return fail(std::errc::bad_file_descriptor);
    if (const int error = detail::register_again(*queue_.get(), *socket_.get(), *registration_); error != 0)
        return fail_errno(error);
    return {};
}

void mqueue_notification::cancel() noexcept {
    if (socket_.get() == nullptr)
        return;
    detail::descriptor& queue = *queue_.get();
    // Only a registration of ours: the process may have another one on this queue by now. And in the child of a fork it is the
    // parent's, and so is what stands in the socket.
    if (registration_->standing && registration_->forks == detail::fork_generation() && !queue.closed &&
        detail::take_notice(*socket_.get(), *registration_) == -EAGAIN)
        (void)queue.calls->queue_forget(queue.fd);
    (void)socket_.get()->close();
    socket_.reset();
    queue_.reset();
    registration_.reset();
}

NOWAIT_END_NAMESPACE
