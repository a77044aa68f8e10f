// Channels and queues of messages, behind one interface.
#pragma once

#include "stream_objects.hpp"

#include <nowait/when_any.hpp>

#include <type_traits>

namespace nowait_test::programs {

/// A message that knows whether it is still there, and how many there are.
class parcel {
public:
    parcel() = default;
    parcel(std::uint64_t number, int& alive) : number_(number), alive_(&alive) { ++alive; }
    parcel(parcel&& other) noexcept
        : number_(std::exchange(other.number_, 0)), alive_(std::exchange(other.alive_, nullptr)) {}
    parcel& operator=(parcel&& other) noexcept {
        std::swap(number_, other.number_);
        std::swap(alive_, other.alive_);
        return *this;
    }
    ~parcel() {
        if (alive_ != nullptr)
            --*alive_;
    }
    [[nodiscard]] std::uint64_t number() const noexcept { return number_; }

private:
    std::uint64_t number_ = 0;
    int* alive_ = nullptr;
};

/// What a taken message was.
struct taken {
    std::uint64_t number = 0;
    unsigned priority = 0;
};

class message_object {
public:
    virtual ~message_object() = default;
    virtual nowait::task<nowait::result<void>> send(parcel& value, unsigned priority, bound limit,
                                                    ledger& book, std::uint64_t& began) = 0;
    virtual nowait::task<nowait::result<taken>> receive(bound limit, ledger& book, std::uint64_t& began) = 0;
    /// A receive and a send in one when_any; `began` is of the receive, and the send begins next.
    virtual nowait::task<std::pair<nowait::result<taken>, nowait::result<void>>> race(
        parcel& value, unsigned priority, bound limit, ledger& book, std::uint64_t& began) = 0;
    virtual nowait::result<void> try_send(parcel& value, unsigned priority) = 0;
    virtual nowait::result<taken> try_receive() = 0;
    virtual void close() = 0;
    /// What the winding up takes when no more can come: EAGAIN or EPIPE at the end.
    virtual nowait::task<nowait::result<taken>> drain(ledger& book, std::uint64_t& began) = 0;
    /// As stream_object::check; `races` wait on both sides, here or elsewhere.
    [[nodiscard]] virtual std::string check(std::size_t receivers, std::size_t senders,
                                            std::size_t races) = 0;
};

template <class Channel>
class message_channel_object final : public message_object {
public:
    static constexpr bool has_priorities = requires(Channel& of, parcel& value) { of.send(value, 1u); };

    explicit message_channel_object(Channel made) : channel_(std::move(made)) {}

    nowait::task<nowait::result<void>> send(parcel& value, unsigned priority, bound limit, ledger& book,
                                            std::uint64_t& began) override {
        if constexpr (has_priorities)
            return perform(channel_.send(value, priority), std::move(limit), nowait::operation_kind::channel,
                           book, began);
        else
            return perform(channel_.send(value), std::move(limit), nowait::operation_kind::channel, book,
                           began);
    }
    nowait::task<nowait::result<taken>> receive(bound limit, ledger& book, std::uint64_t& began) override {
        auto received = co_await perform(channel_.receive(), std::move(limit),
                                         nowait::operation_kind::channel, book, began);
        if (!received)
            co_return nowait::fail(received.error());
        co_return opened(*received);
    }
    nowait::task<std::pair<nowait::result<taken>, nowait::result<void>>> race(parcel& value,
                                                                              unsigned priority, bound limit,
                                                                              ledger& book,
                                                                              std::uint64_t& began) override {
        if constexpr (has_priorities) {
            auto both = nowait::when_any(nowait::biased, channel_.receive(), channel_.send(value, priority));
            co_return co_await settle(std::move(both), std::move(limit), book, began);
        } else {
            (void)priority;
            auto both = nowait::when_any(nowait::biased, channel_.receive(), channel_.send(value));
            co_return co_await settle(std::move(both), std::move(limit), book, began);
        }
    }
    nowait::task<nowait::result<taken>> drain(ledger& book, std::uint64_t& began) override {
        bound none;
        return receive(none, book, began);
    }
    nowait::result<void> try_send(parcel& value, unsigned priority) override {
        if constexpr (has_priorities)
            return channel_.try_send(value, priority);
        else
            return channel_.try_send(value);
    }
    nowait::result<taken> try_receive() override {
        auto received = channel_.try_receive();
        if (!received)
            return nowait::fail(received.error());
        return opened(*received);
    }
    void close() override { channel_.close(); }
    std::string check(std::size_t receivers, std::size_t senders, std::size_t races) override {
        const auto differs = [races](std::size_t found, std::size_t known) {
            return found < known || found > known + races;
        };
        if (differs(channel_.waiting_receivers(), receivers) || differs(channel_.waiting_senders(), senders))
            return "message channel: " + std::to_string(receivers) + " receives and " +
                   std::to_string(senders) + " sends wait, and " +
                   std::to_string(channel_.waiting_receivers()) + " and " +
                   std::to_string(channel_.waiting_senders()) + " stand in its queues";
        return channel_.sound() ? std::string() : "message channel: not sound";
    }

private:
    template <class Both>
    nowait::task<std::pair<nowait::result<taken>, nowait::result<void>>> settle(Both both, bound limit,
                                                                                ledger& book,
                                                                                std::uint64_t& began) {
        constexpr auto kind = nowait::operation_kind::channel;
        if (limit.how == bound_kind::source || limit.how == bound_kind::token) {
            auto limited = nowait::with_timeout(std::move(both), std::chrono::microseconds(50));
            const ledger::mark mark = book.begin(kind, began);
            (void)book.number(); // the send's
            auto got = co_await std::move(limited);
            co_return split(*got, mark, book);
        }
        const ledger::mark mark = book.begin(kind, began);
        (void)book.number();
        auto got = co_await std::move(both);
        co_return split(got, mark, book);
    }
    template <class Got>
    static std::pair<nowait::result<taken>, nowait::result<void>> split(Got& got, const ledger::mark& mark,
                                                                        ledger& book) {
        auto& received = got.template get<0>();
        nowait::result<void> sent = got.template get<1>();
        book.end_race(mark, mark.kind, received, sent);
        nowait::result<taken> took = nowait::fail(std::errc::operation_canceled);
        if (received)
            took = opened(*received);
        else
            took = nowait::fail(received.error());
        return {std::move(took), std::move(sent)};
    }
    template <class Received>
    static taken opened(const Received& received) {
        if constexpr (has_priorities)
            return {received.value.number(), received.priority};
        else
            return {received.number(), 0};
    }
    Channel channel_;
};

template <class Sync>
message_object* make_channel_of(std::uint32_t messages) {
    using channel = nowait::basic_channel<parcel, Sync>;
    return new message_channel_object<channel>(*channel::create(messages));
}

template <class Sync>
message_object* make_queue_of(std::uint32_t messages) {
    using queue = nowait::basic_mqueue_channel<parcel, Sync, nowait::tree_index, nowait::strict_order>;
    return new message_channel_object<queue>(*queue::create({.capacity = messages}));
}

} // namespace nowait_test::programs
