#include "kernel_objects.hpp"

#include "runtime/simulated_world.hpp"

#include <array>
#include <cstring>
#include <utility>

namespace nowait_test::programs {

namespace {

using namespace std::chrono_literals;
using nowait::operation_kind;
using nowait::result;
using nowait::simulation;
using nowait::task;

class kernel_pipe_object final : public stream_object {
public:
    kernel_pipe_object(nowait::pipe_pair made, simulation& sim) : ends_(std::move(made)), sim_(sim) {
        pipe_ = sim_.world().kernel.description_of(ends_.reader.native_handle())->of;
    }
    task<count_result> write(std::size_t, std::span<const std::byte> data, bound limit, ledger& book,
                             std::uint64_t& began) override {
        return perform(ends_.writer.write(data), std::move(limit), operation_kind::write, book, began);
    }
    task<count_result> read(std::size_t, std::span<std::byte> buffer, bound limit, ledger& book,
                            std::uint64_t& began) override {
        return perform(ends_.reader.read(buffer), std::move(limit), operation_kind::read, book, began);
    }
    task<count_result> splice(std::size_t, stream_object& to, std::size_t size, bound limit,
                              ledger& book) override {
        auto* const other = dynamic_cast<kernel_pipe_object*>(&to);
        if (other == nullptr)
            co_return nowait::fail(std::errc::invalid_argument);
        std::uint64_t began = 0;
        auto moved = co_await perform(nowait::splice(ends_.reader, other->ends_.writer, size),
                                      std::move(limit), operation_kind::splice, book, began);
        co_return moved;
    }
    count_result try_write(std::size_t, std::span<const std::byte>) override {
        return nowait::fail(std::errc::resource_unavailable_try_again);
    }
    count_result try_read(std::size_t, std::span<std::byte>) override {
        return nowait::fail(std::errc::resource_unavailable_try_again);
    }
    void close_writer(std::size_t) override { (void)ends_.writer.close(); }
    void close_reader(std::size_t) override { (void)ends_.reader.close(); }
    void resize(std::size_t pages) override { (void)ends_.writer.set_capacity(pages * 4096); }
    std::string check(std::size_t readers, std::size_t writers, std::size_t) override {
        const auto& pipe = static_cast<const nowait::detail::simulated_pipe&>(*pipe_);
        if (readers != 0 && !pipe.ring.empty())
            return "kernel pipe: a read waits, and there are bytes";
        if (readers != 0 && (pipe.ring.writers() == 0 || pipe.broken))
            return "kernel pipe: a read waits at the end of the stream";
        if (writers != 0 && !pipe.ring.full())
            return "kernel pipe: a write waits, and there is room";
        if (writers != 0 && (pipe.ring.readers() == 0 || pipe.broken))
            return "kernel pipe: a write waits, and nobody will read";
        return {};
    }

private:
    nowait::pipe_pair ends_;
    simulation& sim_;
    std::shared_ptr<nowait::detail::simulated_object> pipe_;
};

/// A queue of the simulated kernel: messages are the numbers of parcels.
class posix_queue_object final : public message_object {
public:
    explicit posix_queue_object(nowait::posix_mqueue made) : queue_(std::move(made)) {}

    task<result<void>> send(parcel& value, unsigned priority, bound limit, ledger& book,
                            std::uint64_t& began) override {
        const std::uint64_t number = value.number();
        const std::span<const std::byte> data = std::as_bytes(std::span(&number, 1));
        auto sent = co_await perform(queue_.send(data, priority), std::move(limit),
                                     operation_kind::queue_send, book, began);
        if (sent)
            const parcel gone(std::move(value));
        co_return sent;
    }
    task<result<taken>> receive(bound limit, ledger& book, std::uint64_t& began) override {
        std::array<std::byte, 64> buffer{};
        const std::span<std::byte> room(buffer);
        auto received = co_await perform(queue_.receive(room), std::move(limit),
                                         operation_kind::queue_receive, book, began);
        if (!received)
            co_return nowait::fail(received.error());
        co_return opened(received->value, received->priority);
    }
    task<std::pair<result<taken>, result<void>>> race(parcel& value, unsigned priority, bound, ledger& book,
                                                      std::uint64_t& began) override {
        std::array<std::byte, 64> buffer{};
        const std::span<std::byte> room(buffer);
        const std::uint64_t number = value.number();
        const std::span<const std::byte> data = std::as_bytes(std::span(&number, 1));
        auto both = nowait::when_any(nowait::biased, queue_.receive(room), queue_.send(data, priority));
        const ledger::mark mark = book.begin(operation_kind::queue_receive, began);
        (void)book.number(); // the send's
        auto got = co_await std::move(both);
        auto& received = got.template get<0>();
        result<void> sent = got.template get<1>();
        book.end_race(mark, operation_kind::queue_send, received, sent);
        if (sent)
            const parcel gone(std::move(value));
        result<taken> took = nowait::fail(std::errc::operation_canceled);
        if (received)
            took = opened(received->value, received->priority);
        else
            took = nowait::fail(received.error());
        co_return std::pair<result<taken>, result<void>>(std::move(took), std::move(sent));
    }
    task<result<taken>> drain(ledger& book, std::uint64_t& began) override {
        bound soon;
        soon.how = bound_kind::timeout; // events may still be on their way
        soon.span = 100ms;
        return receive(soon, book, began);
    }
    result<void> try_send(parcel& value, unsigned priority) override {
        const std::uint64_t number = value.number();
        auto sent = queue_.try_send(std::as_bytes(std::span(&number, 1)), priority);
        if (sent)
            const parcel gone(std::move(value));
        return sent;
    }
    result<taken> try_receive() override {
        std::array<std::byte, 64> buffer{};
        auto received = queue_.try_receive(buffer);
        if (!received)
            return nowait::fail(received.error());
        return opened(received->value, received->priority);
    }
    void close() override { (void)queue_.close(); }
    std::string check(std::size_t receivers, std::size_t senders, std::size_t) override {
        const auto now = queue_.attributes();
        if (!now)
            return receivers + senders == 0 ? "" : "posix queue: somebody waits in a queue that is closed";
        if (receivers != 0 && now->messages != 0)
            return "posix queue: a receive waits, and there are messages";
        if (senders != 0 && now->messages != now->capacity)
            return "posix queue: a send waits, and there is room";
        return {};
    }

private:
    static result<taken> opened(std::span<const std::byte> bytes, unsigned priority) {
        std::uint64_t number = 0;
        if (bytes.size() != sizeof number)
            return nowait::fail(std::errc::bad_message);
        std::memcpy(&number, bytes.data(), sizeof number);
        return taken{number, priority};
    }
    nowait::posix_mqueue queue_;
};

} // namespace

std::unique_ptr<stream_object> make_kernel_pipe_object(nowait::pipe_pair made, simulation& sim) {
    return std::make_unique<kernel_pipe_object>(std::move(made), sim);
}
std::unique_ptr<message_object> make_posix_queue_object(nowait::posix_mqueue made) {
    return std::make_unique<posix_queue_object>(std::move(made));
}

} // namespace nowait_test::programs
