// Opening, naming and closing POSIX queues.
#include "present_system.hpp"
#include "runtime/fork_watch.hpp"

#include <nowait/mqueue_notification.hpp>
#include <nowait/posix_mqueue.hpp>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <new>

#include <fcntl.h>

NOWAIT_BEGIN_NAMESPACE

namespace {

using detail::descriptor;
using detail::present_system;
using detail::queue_attributes;

/// A name as the kernel wants it, ended by a zero.
class queue_name {
public:
    explicit queue_name(std::string_view name) noexcept {
        constexpr std::size_t slash = 1;
        if (name.size() <= slash || name.front() != '/' || name.find('/', slash) != name.npos ||
            name.find('\0') != name.npos)
            error_ = EINVAL;
        else if (name.size() - slash > NAME_MAX)
            error_ = ENAMETOOLONG;
        else
            text_[name.copy(text_, NAME_MAX + slash)] = '\0';
    }
    [[nodiscard]] int error() const noexcept { return error_; }
    [[nodiscard]] const char* c_str() const noexcept { return text_; }

private:
    char text_[NAME_MAX + 2]{};
    int error_ = 0;
};

/// One of the numbers under /proc/sys/fs/mqueue, or `otherwise` where it cannot be read.
long setting(detail::system& calls, const char* path, long otherwise) noexcept {
    const int fd = calls.open(path, O_RDONLY, 0);
    if (fd < 0)
        return otherwise;
    char text[32]{};
    const iovec part{text, sizeof text - 1};
    const long n = calls.read(fd, &part, 1);
    calls.close(fd);
    return n > 0 ? std::strtol(text, nullptr, 10) : otherwise;
}

/// The kernel takes both limits or none: the one that is not given is what it would have been by itself.
int limits_of(detail::system& calls, const posix_mqueue_options& options, queue_attributes& limits) noexcept {
    if (options.capacity > LONG_MAX || options.message_bytes > LONG_MAX)
        return EINVAL;
    limits.capacity = static_cast<long>(options.capacity);
    limits.message_size = static_cast<long>(options.message_bytes);
    if (limits.capacity == 0)
        limits.capacity = std::min(setting(calls, "/proc/sys/fs/mqueue/msg_default", 10),
                                   setting(calls, "/proc/sys/fs/mqueue/msg_max", 10));
    if (limits.message_size == 0)
        limits.message_size = std::min(setting(calls, "/proc/sys/fs/mqueue/msgsize_default", 8192),
                                       setting(calls, "/proc/sys/fs/mqueue/msgsize_max", 8192));
    return 0;
}

int access_flags(mqueue_access access) noexcept {
    switch (access) {
    case mqueue_access::receive:
        return O_RDONLY;
    case mqueue_access::send:
        return O_WRONLY;
    case mqueue_access::both:
        break;
    }
    return O_RDWR;
}

/// Opens. Returns a descriptor or a negative errno value.
int open_queue(detail::system& calls, const char* name, const posix_mqueue_options& options) noexcept {
    const int access = access_flags(options.access);
    if (options.how == mqueue_open::existing)
        return calls.queue_open(name, access, 0, nullptr);

    queue_attributes limits;
    const bool by_default = options.capacity == 0 && options.message_bytes == 0;
    if (!by_default) {
        if (const int error = limits_of(calls, options, limits); error != 0)
            return -error;
    }
    const int exclusive = options.how == mqueue_open::create_or_open ? 0 : O_EXCL;
    // Replacing is two calls, between which somebody else may make one of the same name.
    for (int attempts = 100;; --attempts) {
        if (options.how == mqueue_open::replace) {
            if (const int error = calls.queue_unlink(name); error != 0 && error != -ENOENT)
                return error;
        }
        const int fd = calls.queue_open(name, access | O_CREAT | exclusive, options.permissions,
                                        by_default ? nullptr : &limits);
        if (fd != -EEXIST || options.how != mqueue_open::replace || attempts == 0)
            return fd;
    }
}

/// The block on whose behalf a call is made without waiting, or why none may be made.
int usable(descriptor* block) noexcept {
    if (block == nullptr || block->closed)
        return EBADF;
    return block->owner != nullptr && !block->owner->on_own_thread() ? EPERM : 0;
}

} // namespace

result<posix_mqueue> posix_mqueue::wrap(int fd, bool owned) {
    detail::system& calls = present_system();
    queue_attributes found;
    if (const int error = calls.queue_inspect(fd, found); error != 0)
        return fail_errno(-error);
    if (detail::loop* here = detail::loop::current(); here != nullptr && !owned) {
        // One block per runtime and number: those who ask twice queue up behind each other.
        if (descriptor* known = here->find_descriptor(fd);
            known != nullptr && !known->closed && !known->owned)
            return posix_mqueue(known);
    }
    auto* block = new (std::nothrow) descriptor(fd, owned, calls);
    if (block == nullptr)
        return fail(std::errc::not_enough_memory);
    block->kind = detail::file_kind::queue;
    // The kernel wakes a queue's pollers at every operation, our own included: a poll that stays armed would cost more than arming
    // it for each wait, and after a receive nothing would say whether another message is there (docs/posix-mqueue.md).
    block->in.poll.once = block->out.poll.once = true;
    block->message_size = static_cast<std::size_t>(found.message_size);
    return posix_mqueue(block);
}

result<posix_mqueue> posix_mqueue::open(std::string_view name, const posix_mqueue_options& options) {
    const queue_name checked_name(name);
    if (checked_name.error() != 0)
        return fail_errno(checked_name.error());
    detail::system& calls = present_system();
    const int fd = open_queue(calls, checked_name.c_str(), options);
    if (fd < 0)
        return fail_errno(-fd);
    result<posix_mqueue> opened = wrap(fd, true);
    if (!opened) {
        calls.close(fd);
        return opened;
    }
    if (options.dedicated_receiver) {
        opened->block()->receiver = detail::make_queue_receiver(*opened->block());
        if (opened->block()->receiver == nullptr)
            return fail(std::errc::not_enough_memory);
    }
    return opened;
}

result<posix_mqueue> posix_mqueue::adopt(int fd) {
    return wrap(fd, true);
}

result<posix_mqueue> posix_mqueue::borrow(int fd) {
    return wrap(fd, false);
}

result<void> posix_mqueue::unlink(std::string_view name) {
    const queue_name checked_name(name);
    if (checked_name.error() != 0)
        return fail_errno(checked_name.error());
    if (const int error = present_system().queue_unlink(checked_name.c_str()); error != 0)
        return fail_errno(-error);
    return {};
}

result<std::vector<std::string>> posix_mqueue::list() {
    std::vector<std::string> names;
    const int error = present_system().list_queues(
        [](void* context, const char* name) {
            static_cast<std::vector<std::string>*>(context)->emplace_back(name);
        },
        &names);
    if (error != 0)
        return fail_errno(-error);
    return names;
}

result<void> posix_mqueue::close() noexcept {
    if (block_.get() == nullptr)
        return fail(std::errc::bad_file_descriptor);
    if (const int error = block_.get()->resolved()->close(); error != 0)
        return fail_errno(error);
    return {};
}

result<mqueue_attributes> posix_mqueue::attributes() const noexcept {
    if (!is_open())
        return fail(std::errc::bad_file_descriptor);
    const descriptor& queue = *block_.get();
    queue_attributes found;
    if (const int error = queue.calls->queue_inspect(queue.fd, found); error != 0)
        return fail_errno(-error);
    return mqueue_attributes{static_cast<std::size_t>(found.capacity),
                             static_cast<std::size_t>(found.message_size),
                             static_cast<std::size_t>(found.messages)};
}

result<void> posix_mqueue::try_to_send(const void* data, std::size_t size, unsigned priority) const noexcept {
    descriptor* queue = block_.get() != nullptr ? block_.get()->resolved() : nullptr;
    if (const int error = usable(queue); error != 0)
        return fail_errno(error);
    if (priority >= detail::queue_priorities)
        return fail(std::errc::invalid_argument);
    if (size > queue->message_size)
        return fail(std::errc::message_size);
    if (!queue->out.waiters.empty())
        return fail(std::errc::resource_unavailable_try_again);
    if (const long n = queue->calls->queue_send(queue->io_fd, data, size, priority); n < 0)
        return fail_errno(static_cast<int>(-n));
    return {};
}

result<message<std::span<std::byte>>> posix_mqueue::try_receive(std::span<std::byte> buffer) const noexcept {
    descriptor* queue = block_.get() != nullptr ? block_.get()->resolved() : nullptr;
    if (const int error = usable(queue); error != 0)
        return fail_errno(error);
    if (buffer.size() < queue->message_size)
        return fail(std::errc::message_size);
    if (buffer.data() == nullptr) // the kernel would take the message out first
        return fail(std::errc::bad_address);
    if (!queue->in.waiters.empty())
        return fail(std::errc::resource_unavailable_try_again);
    unsigned priority = 0;
    const long n = queue->calls->queue_receive(queue->io_fd, buffer.data(), buffer.size(), priority);
    if (n < 0)
        return fail_errno(static_cast<int>(-n));
    return message<std::span<std::byte>>{buffer.first(static_cast<std::size_t>(n)), priority};
}

// --- owned_posix_mqueue --------------------------------------------------------------------------------------------------------

result<owned_posix_mqueue> owned_posix_mqueue::open(std::string_view name,
                                                    const posix_mqueue_options& options) {
    std::string kept(name);
    result<posix_mqueue> opened = posix_mqueue::open(name, options);
    if (!opened)
        return fail(opened.error());
    detail::watch_forks();
    identity which;
    which.forks = detail::fork_generation();
    which.access = access_flags(options.access);
    detail::file_info info;
    if (opened->block()->calls->inspect(opened->native_handle(), info) == 0) {
        which.device = info.device;
        which.inode = info.inode;
    }
    return owned_posix_mqueue(std::move(*opened), std::move(kept), which);
}

result<void> owned_posix_mqueue::unlink() noexcept {
    if (name_.empty())
        return fail(std::errc::no_such_file_or_directory);
    if (identity_.forks != detail::fork_generation())
        return fail(std::errc::operation_not_permitted);
    detail::system& calls = *block()->calls;
    const std::string name = std::exchange(name_, {});
    // Somebody may have replaced it: then the name is theirs. (Between this look and the call they still may.) Where there is no
    // looking, for want of a descriptor perhaps, the name is taken to be ours.
    const int there = calls.queue_open(name.c_str(), identity_.access, 0, nullptr);
    if (there == -ENOENT)
        return fail(std::errc::no_such_file_or_directory);
    detail::file_info info;
    const bool known = there >= 0 && calls.inspect(there, info) == 0;
    if (there >= 0)
        calls.close(there);
    if (known && (info.device != identity_.device || info.inode != identity_.inode))
        return fail(std::errc::no_such_file_or_directory);
    if (const int error = calls.queue_unlink(name.c_str()); error != 0)
        return fail_errno(-error);
    return {};
}

NOWAIT_END_NAMESPACE
