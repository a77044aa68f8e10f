#include "bench/support/keep.hpp"
#include "posix.hpp"
#include "posix_parts.hpp"

#include <array>
#include <ctime>
#include <memory>

namespace bench::queues {

namespace {

measurement ready_rounds(mqd_t queue, std::size_t rounds) {
    std::array<char, posix_payload> out{};
    std::array<char, posix_message_bytes> in{};
    const timespec at_once{0, 0};
    measurement total;
    const stopwatch clock;
    for (std::size_t i = 0; i < rounds; ++i) {
        required(::mq_timedsend(queue, out.data(), out.size(), 1, &at_once) == 0, "mq_timedsend");
        unsigned priority = 0;
        const ssize_t n = ::mq_timedreceive(queue, in.data(), in.size(), &priority, &at_once);
        required(n == static_cast<ssize_t>(posix_payload), "mq_timedreceive");
        keep(priority);
    }
    total.elapsed = clock.elapsed();
    total.operations = rounds;
    return total;
}

measurement wait_rounds(const answering_process& other, std::size_t rounds) {
    std::array<char, posix_payload> out{};
    std::array<char, posix_message_bytes> in{};
    measurement total;
    const stopwatch clock;
    for (std::size_t i = 0; i < rounds; ++i) {
        required(::mq_send(other.there.number(), out.data(), out.size(), 0) == 0, "mq_send");
        required(::mq_receive(other.back.number(), in.data(), in.size(), nullptr) > 0, "mq_receive");
    }
    total.elapsed = clock.elapsed();
    total.operations = rounds;
    return total;
}

} // namespace

contender posix_ready_raw() {
    return {"mq_timedsend + mq_timedreceive", []() -> slice {
                auto queue = std::make_shared<unnamed_queue>();
                return [queue](std::size_t rounds) { return ready_rounds(queue->number(), rounds); };
            }};
}

contender posix_wait_thread() {
    return {"thread in mq_receive", []() -> slice {
                auto other = std::make_shared<answering_process>(&answer_blocked);
                return [other](std::size_t rounds) { return wait_rounds(*other, rounds); };
            }};
}

} // namespace bench::queues
