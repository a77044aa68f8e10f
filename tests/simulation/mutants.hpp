// The suite against itself: copies of the channels with one deliberate fault each. They are made by a `sync` policy of their own and
// explicit specialisations of single functions, so nothing of them is in the library. Each has to be caught within 2,000 seeds.
#pragma once

#include "catch.hpp"
#include "program.hpp"

#include <nowait/detail/sync.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace nowait_test::mutants {

/// A policy of its own, so that the templates made with it are types of their own.
template <class Name>
struct copy_of_real_sync {
    template <class T>
    using atomic = nowait::detail::real_sync::atomic<T>;
    using mutex = nowait::detail::real_sync::mutex;
};

using programs::object_factories;

constexpr std::uint64_t seeds = 2'000;

struct outcome {
    std::uint64_t seed = 0; ///< 0: not caught
    std::string failure;
};

inline outcome hunt(const object_factories& make) {
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        const programs::verdict v = run_program(programs::make_program(seed), make);
        if (!v.failure.empty())
            return {seed, v.failure};
    }
    return {};
}

/// It is found, and what is found can be shrunk and still fails, each time alike.
inline void is_caught(const object_factories& make) {
    const outcome found = hunt(make);
    REQUIRE(found.seed != 0);
    UNSCOPED_INFO("seed " << found.seed << ": " << found.failure);
    const programs::program shorter = shrink(programs::make_program(found.seed), make);
    const programs::verdict once = run_program(shorter, make);
    const programs::verdict twice = run_program(shorter, make);
    UNSCOPED_INFO(describe(shorter) << once.failure);
    CHECK_FALSE(once.failure.empty());
    CHECK(once.failure == twice.failure);
    CHECK(once.hash == twice.hash);
    std::size_t steps = 0;
    for (const programs::actor& a : shorter.actors)
        steps += a.steps.size();
    CHECK(steps <= 20);
}

} // namespace nowait_test::mutants
