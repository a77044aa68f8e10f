#include "bench/support/keep.hpp"
#include "posix.hpp"
#include "posix_parts.hpp"

#include <nowait/nowait.hpp>

#include <array>
#include <memory>

namespace bench::queues {

namespace {

using nowait::posix_mqueue;
using nowait::task;

nowait::runtime make_runtime() {
    auto made = nowait::runtime::create();
    required(made.has_value(), "nowait::runtime::create");
    return std::move(*made);
}

posix_mqueue borrowed(mqd_t queue) {
    auto made = posix_mqueue::borrow(queue);
    required(made.has_value(), "nowait::posix_mqueue::borrow");
    return std::move(*made);
}

task<measurement> ready_rounds(const posix_mqueue& queue, std::size_t rounds) {
    std::array<std::byte, posix_payload> out{};
    std::array<std::byte, posix_message_bytes> in{};
    measurement total;
    const stopwatch clock;
    for (std::size_t i = 0; i < rounds; ++i) {
        auto sent = co_await queue.send(out, 1u);
        required(sent.has_value(), "send");
        auto got = co_await queue.receive(in);
        required(got.has_value() && got->value.size() == posix_payload, "receive");
        keep(got->priority);
    }
    total.elapsed = clock.elapsed();
    total.operations = rounds;
    co_return total;
}

task<> answer_all(const posix_mqueue& in, const posix_mqueue& out) {
    std::array<std::byte, posix_message_bytes> room{};
    for (;;) {
        auto got = co_await in.receive(room);
        if (!got || got->value.empty()) {
            co_return;
        }
        auto sent = co_await out.send(got->value);
        if (!sent) {
            co_return;
        }
    }
}

void answer(mqd_t in, mqd_t out) {
    nowait::runtime runs = make_runtime();
    const posix_mqueue there = borrowed(in);
    const posix_mqueue back = borrowed(out);
    (void)runs.run(answer_all(there, back));
}

task<measurement> wait_rounds(const posix_mqueue& there, const posix_mqueue& back, std::size_t rounds) {
    std::array<std::byte, posix_payload> out{};
    std::array<std::byte, posix_message_bytes> in{};
    measurement total;
    const stopwatch clock;
    for (std::size_t i = 0; i < rounds; ++i) {
        auto sent = co_await there.send(out);
        required(sent.has_value(), "send");
        auto got = co_await back.receive(in);
        required(got.has_value(), "receive");
    }
    total.elapsed = clock.elapsed();
    total.operations = rounds;
    co_return total;
}

struct ready_world {
    unnamed_queue kernel;
    nowait::runtime runs = make_runtime();
    posix_mqueue queue = borrowed(kernel.number());
};

struct wait_world {
    explicit wait_world(void (*answers)(mqd_t, mqd_t)) : other(answers) {}
    answering_process other;
    nowait::runtime runs = make_runtime();
    posix_mqueue there = borrowed(other.there.number());
    posix_mqueue back = borrowed(other.back.number());
};

template <class T>
T value_of(nowait::result<T>&& got) {
    required(got.has_value(), "nowait::run");
    return std::move(*got);
}

contender wait_rounds_with(std::string name, void (*answers)(mqd_t, mqd_t)) {
    return {std::move(name), [answers]() -> slice {
                auto world = std::make_shared<wait_world>(answers);
                return [world](std::size_t rounds) {
                    return value_of(world->runs.run(wait_rounds(world->there, world->back, rounds)));
                };
            }};
}

} // namespace

contender posix_ready_ours() {
    return {"nowait", []() -> slice {
                auto world = std::make_shared<ready_world>();
                return [world](std::size_t rounds) {
                    return value_of(world->runs.run(ready_rounds(world->queue, rounds)));
                };
            }};
}

contender posix_wait_ours() {
    return wait_rounds_with("nowait, suspended", &answer_blocked);
}

contender posix_wait_ours_both() {
    return wait_rounds_with("nowait, suspended in both", &answer);
}

} // namespace bench::queues
