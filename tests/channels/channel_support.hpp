// What the tests of the message channels share: every kind of channel behind one way of making and reading.
#pragma once

#include "runs.hpp"

#include <nowait/channel.hpp>
#include <nowait/mqueue_channel.hpp>
#include <nowait/sleep.hpp>
#include <nowait/timeout.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace channel_tests {

using nowait::task;

template <class T>
using bitmap_channel = nowait::mqueue_channel<T, nowait::bitmap_index>;
template <class T>
using local_bitmap_channel = nowait::local_mqueue_channel<T, nowait::bitmap_index>;
template <class T>
using fair_channel = nowait::mqueue_channel<T, nowait::tree_index, nowait::fair_order>;

/// A message that can only be moved, and is empty afterwards.
using parcel = std::unique_ptr<int>;

inline parcel wrap(int n) {
    return std::make_unique<int>(n);
}

/// The errno value of a result, 0 for success.
template <class R>
int code_of(const R& outcome) {
    if (outcome)
        return 0;
    if constexpr (requires { outcome.error().code; })
        return outcome.error().code.value();
    else
        return outcome.error().value();
}

template <class T>
const T& content(const T& received) {
    return received;
}
template <class T>
const T& content(const nowait::message<T>& received) {
    return received.value;
}

/// What a receive gave: the number, or minus an errno value.
template <class R>
int number_of(const R& outcome) {
    if (!outcome)
        return -outcome.error().value();
    if constexpr (std::is_same_v<std::decay_t<decltype(content(*outcome))>, parcel>)
        return *content(*outcome);
    else
        return content(*outcome);
}

template <class C>
C make(std::uint64_t capacity, nowait::detail::block_source* memory = nullptr) {
    typename C::options wanted;
    wanted.capacity = capacity;
    wanted.memory = memory;
    auto made = C::create(wanted);
    if (!made)
        FAIL("no channel: " << made.error().message());
    return std::move(*made);
}

/// A send and a receive in tasks of their own: what they gave is seen while they wait and afterwards.
struct sender {
    parcel value;
    int outcome = -1; ///< -1: not ended
};
struct receiver {
    int outcome = -1;
};

template <class C>
task<> send_one(const C& to, sender& s) {
    const auto sent = co_await to.send(s.value);
    s.outcome = code_of(sent);
}
template <class C>
task<> send_one(const C& to, sender& s, nowait::inplace_stop_token token) {
    const auto sent = co_await nowait::with_stop(to.send(s.value), token);
    s.outcome = code_of(sent);
}
template <class C>
task<> receive_one(const C& from, receiver& r) {
    const auto got = co_await from.receive();
    r.outcome = number_of(got);
}
template <class C>
task<> receive_one(const C& from, receiver& r, nowait::inplace_stop_token token) {
    const auto got = co_await nowait::with_stop(from.receive(), token);
    r.outcome = number_of(got);
}

/// Lets everything that is ready run.
inline task<> settle() {
    for (int i = 0; i < 4; ++i)
        co_await nowait::yield();
}

} // namespace channel_tests

// Every kind, for TEMPLATE_TEST_CASE.
#define NOWAIT_EVERY_CHANNEL(T)                                                                   \
    nowait::mqueue_channel<T>, nowait::local_mqueue_channel<T>, channel_tests::bitmap_channel<T>, \
        channel_tests::fair_channel<T>, nowait::channel<T>, nowait::local_channel<T>
