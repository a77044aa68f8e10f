#include "workload.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace bench::channels {

void count_reads(token_result& into, std::span<const std::uint64_t> reads_of_each) {
    const auto [least, most] = std::minmax_element(reads_of_each.begin(), reads_of_each.end());
    into.reads = std::accumulate(reads_of_each.begin(), reads_of_each.end(), std::uint64_t{0});
    into.fairness = static_cast<double>(*least) / static_cast<double>(*most);
}

contender token_time(std::string name, std::function<token_program()> open) {
    return {std::move(name), [open = std::move(open)]() -> slice {
                return [program = open()](std::size_t increments) {
                    const token_result seen = program(increments);
                    return measurement{seen.increments, seen.elapsed};
                };
            }};
}

contender token_count(std::string name, std::function<token_program()> open,
                      std::uint64_t token_result::* count) {
    return {std::move(name), [open = std::move(open), count]() -> slice {
                return [program = open(), count](std::size_t increments) {
                    return measurement{1, std::chrono::nanoseconds(program(increments).*count)};
                };
            }};
}

} // namespace bench::channels
