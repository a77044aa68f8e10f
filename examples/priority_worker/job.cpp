#include "job.hpp"

#include <charconv>
#include <cstddef>
#include <vector>

namespace priority_worker {

namespace {

constexpr std::size_t sieve_limit = 100'000'000;

std::size_t primes_below(std::size_t limit) {
    std::vector<bool> composite(limit);
    std::size_t count = 0;
    for (std::size_t n = 2; n < limit; ++n) {
        if (composite[n])
            continue;
        ++count;
        for (std::size_t multiple = n * n; multiple < limit; multiple += n)
            composite[multiple] = true;
    }
    return count;
}

} // namespace

std::string perform(std::string_view job) {
    const std::size_t space = job.find(' ');
    const std::string_view kind = job.substr(0, space);
    const std::string_view rest =
        space == std::string_view::npos ? std::string_view() : job.substr(space + 1);
    if (kind == "primes") {
        std::size_t limit = 0;
        const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), limit);
        if (error != std::errc() || end != rest.data() + rest.size() || limit > sieve_limit)
            return "not a number up to 100000000";
        return std::to_string(primes_below(limit));
    }
    if (kind == "reverse")
        return std::string(rest.rbegin(), rest.rend());
    return "no such job";
}

} // namespace priority_worker
