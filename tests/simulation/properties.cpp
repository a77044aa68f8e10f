// The proof: random programs in the simulation, each checked against the model.
//
//   NOWAIT_PROPERTY_SEEDS=n   how many; the default is 20,000, and 2,000 under a sanitizer
//   NOWAIT_PROPERTY_FIRST=n   the first; the default is 1
#include "catch.hpp"
#include "program.hpp"

#include <cstdint>
#include <cstdlib>
#include <string>

using namespace nowait_test::programs;

namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text != nullptr && *text != '\0' ? std::strtoull(text, nullptr, 10) : otherwise;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NOWAIT_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define NOWAIT_SANITIZED 1
#endif
#endif

#if defined(NOWAIT_SANITIZED)
constexpr std::uint64_t seeds_default = 2'000;
#else
constexpr std::uint64_t seeds_default = 20'000;
#endif

} // namespace

TEST_CASE("random programs lose nothing, double nothing, keep their order and starve nobody", "[slow]") {
    const std::uint64_t first = from_environment("NOWAIT_PROPERTY_FIRST", 1);
    const std::uint64_t count = from_environment("NOWAIT_PROPERTY_SEEDS", seeds_default);
    std::uint64_t events = 0;
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        const program p = make_program(seed);
        const verdict v = run_program(p);
        events += v.events;
        if (!v.failure.empty()) {
            const program shorter = shrink(p);
            const verdict again = run_program(shorter);
            FAIL("seed " << seed << ": " << v.failure << "\nshrunk to\n"
                         << describe(shorter) << "which fails with: " << again.failure << '\n'
                         << again.trace);
        }
    }
    CHECK(events > count * 10);
}

TEST_CASE("a random program is the same each time it is run") {
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        const program p = make_program(seed);
        CHECK(run_program(p).hash == run_program(p).hash);
    }
}
