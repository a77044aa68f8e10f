// The immediate half of a kernel that does not exist: descriptors, pipes, files, FIFOs and POSIX queues in memory.
#pragma once

#include <nowait/detail/pipe_ring.hpp>
#include <nowait/detail/system.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

class simulated_system;
class simulated_world;

/// What stands behind a description.
class simulated_object {
public:
    explicit simulated_object(file_kind k, std::uint64_t n) noexcept : kind(k), number(n) {}
    virtual ~simulated_object() = default;
    simulated_object(const simulated_object&) = delete;
    simulated_object& operator=(const simulated_object&) = delete;

    const file_kind kind;
    const std::uint64_t number; ///< its inode
    bool is_queue = false;
};

struct simulated_pipe final : simulated_object {
    simulated_pipe(file_kind k, std::uint64_t n, slot_array&& slots) noexcept
        : simulated_object(k, n), ring(std::move(slots)) {}
    pipe_ring ring;
    std::uint64_t writers_seen = 0; ///< opens for writing so far
    std::uint64_t readers_seen = 0; ///< likewise for reading
    bool broken = false;            ///< the other side has died, whoever holds what
};

struct simulated_file final : simulated_object {
    explicit simulated_file(std::uint64_t n) noexcept : simulated_object(file_kind::regular, n) {}
    std::string bytes;
};

struct simulated_socket;

struct simulated_queue final : simulated_object {
    explicit simulated_queue(std::uint64_t n) noexcept : simulated_object(file_kind::queue, n) {
        is_queue = true;
    }
    std::size_t capacity = 10;
    std::size_t message_size = 8192;
    std::size_t messages = 0;
    std::map<unsigned, std::deque<std::string>, std::greater<>> by_priority; ///< no empty lists
    std::weak_ptr<simulated_socket> listener;                                ///< for one notification
    std::string cookie;
};

/// Where notifications of queues arrive.
struct simulated_socket final : simulated_object {
    explicit simulated_socket(std::uint64_t n) noexcept : simulated_object(file_kind::socket, n) {}
    std::deque<std::string> datagrams;
};

/// An open file description: shared by the numbers that were duplicated from one another, and by polls and transfers that are under way.
struct simulated_description {
    simulated_description(simulated_system& in, std::shared_ptr<simulated_object> what, bool r,
                          bool w) noexcept
        : of(std::move(what)), reads(r), writes(w), kernel(in) {}
    ~simulated_description();
    simulated_description(const simulated_description&) = delete;
    simulated_description& operator=(const simulated_description&) = delete;

    [[nodiscard]] simulated_pipe* pipe() const noexcept {
        return of->kind == file_kind::pipe || of->kind == file_kind::fifo
                   ? static_cast<simulated_pipe*>(of.get())
                   : nullptr;
    }
    [[nodiscard]] simulated_file* file() const noexcept {
        return of->kind == file_kind::regular ? static_cast<simulated_file*>(of.get()) : nullptr;
    }
    [[nodiscard]] simulated_socket* socket() const noexcept;
    [[nodiscard]] simulated_queue* queue() const noexcept {
        return of->is_queue ? static_cast<simulated_queue*>(of.get()) : nullptr;
    }

    std::shared_ptr<simulated_object> of;
    bool reads;
    bool writes;
    bool nonblocking = false;
    bool packets = false;
    bool knows_nowait = false;      ///< RWF_NOWAIT works: pipes, until they are spliced; regular files
    std::uint64_t writers_seen = 0; ///< of a FIFO, when it was opened: no hang-up before there was a writer
    std::uint64_t position = 0;
    simulated_system& kernel;
};

class simulated_system final : public system {
public:
    enum class call : std::uint8_t {
        read,
        write,
        splice,
        tee,
        ready,
        pipe,
        close,
        open,
        resize,
        send,
        receive,
        other
    };
    static constexpr std::size_t calls = static_cast<std::size_t>(call::other) + 1;

    static constexpr int first_number = 1000; // no call can hit a real descriptor unnoticed

    explicit simulated_system(simulated_world& in) noexcept : world_(in) {}

    [[nodiscard]] std::size_t open_descriptors() const noexcept;
    /// How many calls of a kind have said EAGAIN: the library's own counters have to agree.
    [[nodiscard]] std::uint64_t would_block(call what) const noexcept {
        return would_block_[static_cast<std::size_t>(what)];
    }
    [[nodiscard]] std::shared_ptr<simulated_description> description_of(int fd) const noexcept;
    [[nodiscard]] int ready(const simulated_description& d, int events) const noexcept;
    /// What a driver's transfer does. -EAGAIN: it has to wait.
    [[nodiscard]] long transfer(simulated_description& d, bool write, void* data, std::size_t size) noexcept;
    void without(feature f) noexcept { features_ &= ~static_cast<std::uint32_t>(f); }
    /// A description has gone.
    void release(simulated_description& d) noexcept;
    /// A pipe whose ends are blocking, as a parent process would pass them on.
    int make_blocking_pipe(int (&ends)[2]) noexcept;

    long read(int fd, const iovec* parts, int count) noexcept override;
    long write(int fd, const iovec* parts, int count) noexcept override;
    long read_nowait(int fd, const iovec* parts, int count) noexcept override;
    long write_nowait(int fd, const iovec* parts, int count) noexcept override;
    long receive(int fd, const iovec* parts, int count) noexcept override;
    long send(int fd, const iovec* parts, int count) noexcept override;
    long splice(int from, int to, std::size_t size) noexcept override;
    long tee(int from, int to, std::size_t size) noexcept override;
    int ready(int fd, int events) noexcept override;
    int make_pipe(int (&ends)[2], bool packets) noexcept override;
    int close(int fd) noexcept override;
    int inspect(int fd, file_info& info) noexcept override;
    int set_nonblocking(int fd) noexcept override;
    int reopen_nonblocking(int fd, bool for_reading) noexcept override;
    int duplicate(int fd) noexcept override;
    long pipe_size(int fd) noexcept override;
    long set_pipe_size(int fd, std::size_t size) noexcept override;
    long available(int fd) noexcept override;
    std::chrono::steady_clock::time_point now() noexcept override;
    int open(const char* path, int flags, unsigned mode) noexcept override;
    int queue_open(const char* name, int flags, unsigned mode,
                   const queue_attributes* limits) noexcept override;
    int queue_unlink(const char* name) noexcept override;
    int queue_inspect(int queue, queue_attributes& found) noexcept override;
    long queue_send(int queue, const void* data, std::size_t size, unsigned priority) noexcept override;
    long queue_receive(int queue, void* data, std::size_t size, unsigned& priority) noexcept override;
    long queue_receive_waiting(int queue, void* data, std::size_t size, unsigned& priority) noexcept override;

    /// Makes a FIFO, as mkfifo. 0 or a negative errno value.
    int make_fifo(const char* path, unsigned mode) noexcept override;
    int notification_socket() noexcept override;
    int queue_notify(int queue, int socket, const std::byte* cookie) noexcept override;
    int queue_forget(int queue) noexcept override;
    int list_queues(void (*each)(void* context, const char* name), void* context) override;
    [[nodiscard]] worker_host* workers() noexcept override;

private:
    using description = std::shared_ptr<simulated_description>;
    long logged(call what, int fd, long result) noexcept;
    [[nodiscard]] int install(description d) noexcept;
    [[nodiscard]] std::shared_ptr<simulated_pipe> new_pipe(file_kind kind) noexcept;
    [[nodiscard]] int new_pipe_ends(int (&ends)[2], bool packets, bool nonblocking) noexcept;
    [[nodiscard]] bool no_room_for_descriptor(int& error) noexcept;
    /// EINTR as often as it strikes; the call is then made again.
    void be_interrupted() noexcept;
    long read_from(simulated_description& d, const iovec* parts, int count) noexcept;
    long take_message(int queue, void* data, std::size_t size, unsigned& priority) noexcept;
    long write_to(simulated_description& d, const iovec* parts, int count) noexcept;
    long between(int from, int to, std::size_t size, bool copies) noexcept;
    /// After a call that may have made room or brought bytes.
    void made_room(const simulated_pipe& p, bool was_full) noexcept;
    void maybe_break(simulated_pipe& p) noexcept;
    /// Sends the one notification of a queue, with its last byte.
    void notify(simulated_queue& q, char why) noexcept;

    simulated_world& world_;
    std::vector<description> numbers_; // from first_number on
    std::map<std::string, std::shared_ptr<simulated_object>> paths_;
    std::map<std::string, std::shared_ptr<simulated_queue>> queues_;
    std::uint64_t inodes_ = 0;
    std::array<std::uint64_t, calls> would_block_{};
};

} // namespace detail
NOWAIT_END_NAMESPACE
