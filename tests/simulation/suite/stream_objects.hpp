// Streams of bytes, behind one interface; and how every operation of the suite is awaited.
#pragma once

#include "ledger.hpp"
#include "program.hpp"

#include <nowait/nowait.hpp>
#include <nowait/simulation.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace nowait_test::programs {

/// What may end an operation before its time.
struct bound {
    bound_kind how = bound_kind::none;
    std::chrono::microseconds span{};
    std::stop_token token;
    nowait::inplace_stop_token source;
};

/// Awaits a description under a bound. `began` is set in the same turn in which the operation starts.
template <class D>
nowait::task<typename D::value_type> perform(D what, bound limit, nowait::operation_kind kind, ledger& book,
                                             std::uint64_t& began) {
    switch (limit.how) {
    case bound_kind::timeout: {
        auto limited = nowait::with_timeout(std::move(what), limit.span);
        const ledger::mark mark = book.begin(kind, began);
        auto got = co_await std::move(limited);
        book.end(mark, got.has_value());
        co_return got;
    }
    case bound_kind::token: {
        auto limited = nowait::with_stop(std::move(what), limit.token);
        const ledger::mark mark = book.begin(kind, began);
        auto got = co_await std::move(limited);
        book.end(mark, got.has_value());
        co_return got;
    }
    case bound_kind::source: {
        auto limited = nowait::with_stop(std::move(what), limit.source);
        const ledger::mark mark = book.begin(kind, began);
        auto got = co_await std::move(limited);
        book.end(mark, got.has_value());
        co_return got;
    }
    case bound_kind::none:
        break;
    }
    const ledger::mark mark = book.begin(kind, began);
    auto got = co_await std::move(what);
    book.end(mark, got.has_value());
    co_return got;
}

using count_result = nowait::result<std::size_t>;

/// A stream of bytes with two ends.
class stream_object {
public:
    virtual ~stream_object() = default;
    virtual nowait::task<count_result> write(std::size_t actor, std::span<const std::byte> data, bound limit,
                                             ledger& book, std::uint64_t& began) = 0;
    virtual nowait::task<count_result> read(std::size_t actor, std::span<std::byte> buffer, bound limit,
                                            ledger& book, std::uint64_t& began) = 0;
    /// Moves bytes to another stream of the same kind. EINVAL: it is none.
    virtual nowait::task<count_result> splice(std::size_t actor, stream_object& to, std::size_t size,
                                              bound limit, ledger& book) = 0;
    virtual count_result try_write(std::size_t actor, std::span<const std::byte> data) = 0;
    virtual count_result try_read(std::size_t actor, std::span<std::byte> buffer) = 0;
    virtual void close_writer(std::size_t actor) = 0;
    virtual void close_reader(std::size_t actor) = 0;
    virtual void resize(std::size_t pages) = 0;
    /// Each actor gets ends of its own, and only they are left.
    virtual void give_ends(std::size_t /*actors*/) {}
    virtual void drop_ends(std::size_t /*actor*/) {}
    /// While only time can change anything, with so many operations that wait on each side, and splices that wait here or
    /// elsewhere. What is wrong, or nothing.
    [[nodiscard]] virtual std::string check(std::size_t readers, std::size_t writers,
                                            std::size_t splices) = 0;
};

/// The index that stands for nobody's own ends.
constexpr std::size_t everybody = ~std::size_t{0};

template <class Sync>
class pipe_channel_object final : public stream_object {
public:
    explicit pipe_channel_object(nowait::basic_pipe_channel<Sync> made) : ends_(std::move(made)) {}

    nowait::task<count_result> write(std::size_t actor, std::span<const std::byte> data, bound limit,
                                     ledger& book, std::uint64_t& began) override {
        return perform(writer(actor).write(data), std::move(limit), nowait::operation_kind::channel, book,
                       began);
    }
    nowait::task<count_result> read(std::size_t actor, std::span<std::byte> buffer, bound limit, ledger& book,
                                    std::uint64_t& began) override {
        return perform(reader(actor).read(buffer), std::move(limit), nowait::operation_kind::channel, book,
                       began);
    }
    nowait::task<count_result> splice(std::size_t actor, stream_object& to, std::size_t size, bound limit,
                                      ledger& book) override {
        auto* const other = dynamic_cast<pipe_channel_object*>(&to);
        if (other == nullptr)
            co_return nowait::fail(std::errc::invalid_argument);
        std::uint64_t began = 0;
        auto moved = co_await perform(nowait::splice(reader(actor), other->writer(actor), size),
                                      std::move(limit), nowait::operation_kind::channel, book, began);
        co_return moved;
    }
    count_result try_write(std::size_t actor, std::span<const std::byte> data) override {
        return writer(actor).try_write(data);
    }
    count_result try_read(std::size_t actor, std::span<std::byte> buffer) override {
        return reader(actor).try_read(buffer);
    }
    void close_writer(std::size_t actor) override { (void)writer(actor).close(); }
    void close_reader(std::size_t actor) override { (void)reader(actor).close(); }
    void resize(std::size_t pages) override { (void)ends_.reader.set_capacity(pages * 4096); }
    void give_ends(std::size_t actors) override {
        for (std::size_t i = 0; i < actors; ++i) {
            readers_.push_back(*ends_.reader.duplicate());
            writers_.push_back(*ends_.writer.duplicate());
        }
        (void)ends_.writer.close();
    }
    void drop_ends(std::size_t actor) override {
        if (actor < readers_.size()) {
            readers_[actor] = {};
            writers_[actor] = {};
        }
    }
    std::string check(std::size_t readers, std::size_t writers, std::size_t splices) override {
        auto* block = ends_.reader.block();
        if (block == nullptr)
            return {};
        auto& core = *block->channel;
        std::size_t reading = 0;
        std::size_t writing = 0;
        core.reading.for_each([&](auto&) { ++reading; });
        core.writing.for_each([&](auto&) { ++writing; });
        if (reading < readers || writing < writers || reading + writing > readers + writers + splices)
            return "pipe channel: " + std::to_string(readers) + " reads and " + std::to_string(writers) +
                   " writes wait, and " + std::to_string(reading) + " and " + std::to_string(writing) +
                   " stand in its queues";
        if (readers != 0 && !core.ring.empty())
            return "pipe channel: a read waits, and there are bytes";
        if (readers != 0 && core.ring.writers() == 0)
            return "pipe channel: a read waits at the end of the stream";
        if (writers != 0 && !core.ring.full())
            return "pipe channel: a write waits, and there is room";
        if (writers != 0 && core.ring.readers() == 0)
            return "pipe channel: a write waits, and nobody will read";
        return {};
    }

private:
    auto& reader(std::size_t actor) { return actor < readers_.size() ? readers_[actor] : ends_.reader; }
    auto& writer(std::size_t actor) { return actor < writers_.size() ? writers_[actor] : ends_.writer; }

    nowait::basic_pipe_channel<Sync> ends_;
    std::vector<nowait::basic_pipe_channel_reader<Sync>> readers_;
    std::vector<nowait::basic_pipe_channel_writer<Sync>> writers_;
};

template <class Sync>
stream_object* make_pipe_channel_of(std::uint32_t pages) {
    auto made = nowait::basic_pipe_channel<Sync>::create({.capacity = std::size_t{pages} * 4096});
    return new pipe_channel_object<Sync>(std::move(*made));
}

} // namespace nowait_test::programs
