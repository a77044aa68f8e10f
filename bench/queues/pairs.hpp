// Runs the workload on a queue that is called, not awaited: push(priority, message), pop() and empty().
#pragma once

#include "bench/support/keep.hpp"
#include "workload.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace bench::queues {

// Empties the queue and fills it again, so that every stretch of pairs begins alike.
template <class Queue>
void refill(Queue& queue, priority_stream& priorities_, std::size_t depth) {
    while (!queue.empty()) {
        keep(queue.pop());
    }
    for (std::size_t i = 0; i < depth; ++i) {
        queue.push(priorities_.next(), payload{i, i});
    }
}

template <class Queue>
measurement run_pairs(Queue& queue, pattern which, std::size_t depth, std::size_t rounds) {
    measurement total;
    while (total.operations < rounds) {
        const std::size_t now = std::min<std::size_t>(rounds - total.operations, pairs_until_refill);
        priority_stream stream(which);
        refill(queue, stream, depth);
        const stopwatch clock;
        for (std::size_t i = 0; i < now; ++i) {
            queue.push(stream.next(), payload{i, i});
            keep(queue.pop());
        }
        total.elapsed += clock.elapsed();
        total.operations += now;
    }
    return total;
}

template <class Queue, class... Arguments>
contender called(std::string name, pattern which, std::size_t depth, Arguments... arguments) {
    return {std::move(name), [=]() -> slice {
                auto queue = std::make_shared<Queue>(arguments...);
                return [=](std::size_t rounds) { return run_pairs(*queue, which, depth, rounds); };
            }};
}

template <class Queue>
published_line run_published(std::string who, Queue& queue, std::size_t depth, std::size_t pairs,
                             const fine_clock& clock) {
    published_line line;
    line.who = std::move(who);
    line.depth = depth;
    const auto halves = [&](std::size_t column, priority_stream& stream) {
        std::uint64_t sending = 0;
        std::uint64_t receiving = 0;
        for (std::size_t i = 0; i < pairs; ++i) {
            const std::uint64_t a = fine_clock::read();
            queue.push(stream.next(), payload{i, i});
            const std::uint64_t b = fine_clock::read();
            keep(queue.pop());
            const std::uint64_t c = fine_clock::read();
            sending += b - a;
            receiving += c - b;
        }
        line.send[column] = clock.per_message(sending, pairs);
        line.receive[column] = clock.per_message(receiving, pairs);
    };
    priority_stream constant(pattern::constant);
    refill(queue, constant, 0);
    halves(0, constant);
    for (std::size_t p = 0; p < every_pattern.size(); ++p) {
        priority_stream stream(every_pattern[p]);
        refill(queue, stream, 0);
        const std::uint64_t a = fine_clock::read();
        refill(queue, stream, depth);
        const std::uint64_t b = fine_clock::read();
        halves(p + 1, stream);
        const std::uint64_t c = fine_clock::read();
        refill(queue, stream, 0);
        const std::uint64_t d = fine_clock::read();
        line.fill[p] = clock.per_message(b - a, depth);
        line.drain[p] = clock.per_message(d - c, depth);
    }
    return line;
}

} // namespace bench::queues
