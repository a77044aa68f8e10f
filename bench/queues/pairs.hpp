// Runs the workload on a queue that is called, not awaited: push(priority, message), pop() and empty().
#pragma once

#include "bench/support/keep.hpp"
#include "bench/support/statistics.hpp"
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
        halves_of_pairs found;
        for (std::size_t i = 0; i < pairs; ++i) {
            const unsigned priority = stream.next();
            const std::uint64_t a = fine_clock::read();
            queue.push(priority, payload{i, i});
            const std::uint64_t b = fine_clock::read();
            keep(queue.pop());
            found.add(a, b, fine_clock::read());
        }
        line.send[column] = found.sending(clock);
        line.receive[column] = found.receiving(clock);
    };
    priority_stream constant(pattern::constant);
    halves(0, constant);
    for (std::size_t p = 0; p < every_pattern.size(); ++p) {
        std::vector<double> fills; // of three, the least disturbed counts
        std::vector<double> drains;
        for (int round = 0; round < 3; ++round) {
            priority_stream stream(every_pattern[p]);
            const std::uint64_t a = fine_clock::read();
            refill(queue, stream, depth);
            const std::uint64_t b = fine_clock::read();
            if (round == 2) {
                halves(p + 1, stream);
            }
            const std::uint64_t c = fine_clock::read();
            refill(queue, stream, 0);
            const std::uint64_t d = fine_clock::read();
            fills.push_back(clock.nanoseconds(static_cast<double>(b - a) / static_cast<double>(depth)));
            drains.push_back(clock.nanoseconds(static_cast<double>(d - c) / static_cast<double>(depth)));
        }
        line.fill[p] = quantile(fills, 0);
        line.drain[p] = quantile(drains, 0);
    }
    return line;
}

} // namespace bench::queues
