// POSIX message queues, awaited: messages with priorities between processes, the highest first.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/posix_queue_operations.hpp>
#include <nowait/message.hpp>
#include <nowait/result.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

NOWAIT_BEGIN_NAMESPACE

class mqueue_notification;

/// What a queue is opened for.
enum class mqueue_access : std::uint8_t { receive, send, both };

/// What open() does about a queue that is there, or is not.
enum class mqueue_open : std::uint8_t {
    existing,       ///< it must be there
    create,         ///< it must not be there
    create_or_open, ///< either; one that is there keeps its limits and its messages: see attributes()
    replace         ///< a new, empty one in any case; whoever has the old one open keeps it, without a name
};

struct posix_mqueue_options {
    mqueue_open how = mqueue_open::existing;
    mqueue_access access = mqueue_access::both;
    /// Of a new queue: messages, and bytes of the longest message. 0 is the system's default (msg_default, msgsize_default under
    /// /proc/sys/fs/mqueue). The kernel charges capacity x (message_bytes + about 100) bytes to RLIMIT_MSGQUEUE from the start.
    std::size_t capacity = 0;
    std::size_t message_bytes = 0;
    /// Of a new queue, less the umask.
    unsigned permissions = 0600;
    /// Who waits in receive() has a worker of the runtime's pool blocked in mq_receive, instead of a poll: for queues that
    /// processes share which block there, because the kernel gives them every message before it wakes a poll. The first
    /// attempt is made without it. It takes one interruptible worker of the unbounded account while somebody waits.
    bool dedicated_receiver = false;
};

struct mqueue_attributes {
    std::size_t capacity = 0;      ///< messages
    std::size_t message_bytes = 0; ///< bytes of the longest message
    std::size_t messages = 0;      ///< in the queue now
};

/// A queue of the kernel's, which other processes may have open too: "/name", messages of bounded size, priorities 0 to 32767;
/// the highest is received first, equals in the order of their sending.
///
///     auto jobs = posix_mqueue::open("/jobs", {.how = mqueue_open::create_or_open});
///     co_await jobs->send("resize 17.png", 9);          // result<void>; waits while the queue is full
///     auto next = co_await jobs->receive(buffer);       // result<message<span<byte>>>; waits while it is empty
///
/// Messages are whole or not at all, and every operation is done or untouched: one that ends with an error has sent and
/// received nothing. The flags of the description are never changed, nor looked at. The queue lives on when this object
/// is gone, with its messages, until somebody unlinks it: see owned_posix_mqueue.
///
/// Belongs to the runtime of its first operation; used on that runtime's thread only. Movable, also while operations
/// wait. The destructor closes and never waits.
class NOWAIT_API posix_mqueue {
public:
    posix_mqueue() = default;

    /// `name` is a slash and up to 255 characters without one.
    /// Errors: no_such_file_or_directory, file_exists: as `how` says; permission_denied; filename_too_long; invalid_argument: the
    /// name, or a limit of 0 or above /proc/sys/fs/mqueue/msg_max, msgsize_max; too_many_files_open: RLIMIT_MSGQUEUE, or no
    /// descriptor left; no_space_on_device: /proc/sys/fs/mqueue/queues_max; not_enough_memory; function_not_supported: no
    /// POSIX queues here. explain(error, subject::posix_queue) says which limit it is. With `replace` the old queue has
    /// gone also if no new one could be made.
    [[nodiscard]] static result<posix_mqueue> open(std::string_view name,
                                                   const posix_mqueue_options& options = {});
    /// Takes the descriptor of a queue over: it is closed with this object. Errors: bad_file_descriptor: none of a queue.
    [[nodiscard]] static result<posix_mqueue> adopt(int fd);
    /// Uses a descriptor that others share. Borrows: the number, as long as this object lives. Errors: as adopt.
    [[nodiscard]] static result<posix_mqueue> borrow(int fd);

    /// Takes the name away. The queue goes when nobody has it open any more.
    /// Errors: no_such_file_or_directory; permission_denied; filename_too_long; invalid_argument: the name.
    static result<void> unlink(std::string_view name);
    /// The names of all queues, those that a crash left behind too, in no order. Throws: std::bad_alloc.
    /// Errors: not_supported: no mqueue file system is mounted to show them (`mount -t mqueue none /dev/mqueue`).
    [[nodiscard]] static result<std::vector<std::string>> list();

    /// False after a move or close().
    [[nodiscard]] bool is_open() const noexcept {
        return block_.get() != nullptr && !block_.get()->resolved()->closed;
    }
    /// The number given or made; -1 if there is none. It stays this object's.
    [[nodiscard]] int native_handle() const noexcept { return is_open() ? block_.get()->fd : -1; }
    /// Waiting operations end with operation_canceled, new ones with bad_file_descriptor. Closing any descriptor of a queue takes
    /// the process's notification of that queue away. Errors: bad_file_descriptor: closed or moved from;
    /// operation_not_permitted: on a foreign thread.
    result<void> close() noexcept;

    /// Errors: bad_file_descriptor.
    [[nodiscard]] result<mqueue_attributes> attributes() const noexcept;

    /// Sends `data` whole; waits while the queue is full. Empty messages are messages. Priorities from 0 to 32767.
    /// Errors, all of which send nothing: message_size: longer than message_bytes; invalid_argument: another priority;
    /// operation_canceled: stopped, or closed meanwhile; bad_file_descriptor: closed, or not open for sending;
    /// operation_not_permitted: it belongs to another runtime; bad_address: a null pointer with a size;
    /// not_enough_memory: the kernel has none. Borrows: `data` until the operation has ended. Resumes: on the awaiter's runtime.
    template <std::integral P = unsigned>
    [[nodiscard]] detail::queue_send_description send(std::span<const std::byte> data,
                                                      P priority = 0) const noexcept {
        return {block_.get(), data.data(), data.size(), checked(priority)};
    }
    template <std::integral P = unsigned>
    [[nodiscard]] detail::queue_send_description send(std::string_view text, P priority = 0) const noexcept {
        return {block_.get(), text.data(), text.size(), checked(priority)};
    }

    /// Receives the oldest message of the highest priority; waits while there is none.
    /// Returns: message<span<byte>>: the part of `buffer` that it fills, and its priority. Nothing is ever cut off.
    /// Errors, all of which leave the messages where they are: message_size: `buffer` is smaller than message_bytes, whatever
    /// the message's own size; and as send(). Borrows: `buffer` until the operation has ended. Resumes: as send().
    [[nodiscard]] detail::queue_receive_description receive(std::span<std::byte> buffer) const noexcept {
        return {block_.get(), buffer.data(), buffer.size()};
    }
    /// The same into memory of its own. Returns: message<vector<byte>>, its capacity message_bytes. Errors: also
    /// not_enough_memory.
    [[nodiscard]] detail::queue_receive_owned_description receive() const noexcept { return {block_.get()}; }

    /// Without waiting, and never before those who wait. Errors: resource_unavailable_try_again: full, or empty; and as send().
    template <std::integral P = unsigned>
    [[nodiscard]] result<void> try_send(std::span<const std::byte> data, P priority = 0) const noexcept {
        return try_to_send(data.data(), data.size(), checked(priority));
    }
    template <std::integral P = unsigned>
    [[nodiscard]] result<void> try_send(std::string_view text, P priority = 0) const noexcept {
        return try_to_send(text.data(), text.size(), checked(priority));
    }
    [[nodiscard]] result<message<std::span<std::byte>>> try_receive(
        std::span<std::byte> buffer) const noexcept;

    /// Waits until a receive, or a send, would not wait. Another process may be faster.
    [[nodiscard]] detail::ready_description readable() const noexcept { return {block_.get(), false}; }
    [[nodiscard]] detail::ready_description writable() const noexcept { return {block_.get(), true}; }

    /// Asks the kernel for one notification: see mqueue_notification.
    [[nodiscard]] result<mqueue_notification> notify() const;

    [[nodiscard]] detail::descriptor* block() const noexcept { return block_.get(); }

private:
    explicit posix_mqueue(detail::descriptor* block) noexcept : block_(block) {}
    [[nodiscard]] static result<posix_mqueue> wrap(int fd, bool owned);

    /// Any integer: what is no priority stays none.
    template <std::integral P>
    [[nodiscard]] static constexpr unsigned checked(P priority) noexcept {
        return std::in_range<unsigned>(priority) ? static_cast<unsigned>(priority) : detail::queue_priorities;
    }
    [[nodiscard]] result<void> try_to_send(const void* data, std::size_t size,
                                           unsigned priority) const noexcept;

    detail::descriptor_handle block_;
};

/// A queue whose name goes with this object: who made it cleans up. It leaves alone a queue of that name which is another one by
/// then, and does nothing in the child of a fork. Killed, it leaves the queue behind: the next start opens it with
/// create_or_open (and finds the messages), or with replace.
class NOWAIT_API owned_posix_mqueue : public posix_mqueue {
public:
    owned_posix_mqueue() = default;
    /// As posix_mqueue::open. Throws: std::bad_alloc.
    [[nodiscard]] static result<owned_posix_mqueue> open(std::string_view name,
                                                         const posix_mqueue_options& options = {});

    owned_posix_mqueue(owned_posix_mqueue&& other) noexcept
        : posix_mqueue(static_cast<posix_mqueue&&>(other)), name_(std::exchange(other.name_, {})),
          identity_(other.identity_) {}
    owned_posix_mqueue& operator=(owned_posix_mqueue&& other) noexcept {
        if (this != &other) {
            (void)unlink();
            posix_mqueue::operator=(static_cast<posix_mqueue&&>(other));
            name_ = std::exchange(other.name_, {});
            identity_ = other.identity_;
        }
        return *this;
    }
    ~owned_posix_mqueue() { (void)unlink(); }

    /// Empty after unlink() or release().
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    /// Now instead of at the end; the queue stays open. Errors: as posix_mqueue::unlink; no_such_file_or_directory also if the name is
    /// another queue's by now; operation_not_permitted: in the child of a fork.
    result<void> unlink() noexcept;
    /// Leaves the name where it is.
    void release() noexcept { name_.clear(); }

private:
    /// What tells this queue from another one that has its name.
    struct identity {
        std::uint64_t device = 0;
        std::uint64_t inode = 0;
        unsigned forks = 0; // in a child of the process that made this object it is another number
        int access = 0;     // the flags that its permissions are known to grant
    };
    owned_posix_mqueue(posix_mqueue&& queue, std::string&& name, const identity& which) noexcept
        : posix_mqueue(std::move(queue)), name_(std::move(name)), identity_(which) {}

    std::string name_;
    identity identity_;
};

NOWAIT_END_NAMESPACE
