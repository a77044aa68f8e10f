#include "program.hpp"

#include <utility>

namespace nowait_test::programs {

program shrink(program failing, const object_factories& make) {
    constexpr std::uint64_t tries = 64; // what is left out changes the order of everything
    const auto still_fails = [&](program candidate) {
        for (std::uint64_t i = 0; i < tries; ++i) {
            candidate.seed = failing.seed + i;
            if (!run_program(candidate, make).failure.empty()) {
                failing = candidate;
                return true;
            }
        }
        return false;
    };
    for (bool shorter = true; shorter;) {
        shorter = false;
        const auto attempt = [&](auto change) {
            program candidate = failing;
            change(candidate);
            shorter = still_fails(std::move(candidate)) || shorter;
        };
        if (failing.faults > 0)
            attempt([](program& p) { p.faults = 0; });
        if (failing.breakage > 0)
            attempt([](program& p) { p.breakage = 0; });
        if (failing.stop_at != 0)
            attempt([](program& p) { p.stop_at = 0; });
        if (failing.poverty > 0)
            attempt([](program& p) { p.poverty = 0; });
        if (failing.any_order)
            attempt([](program& p) { p.any_order = false; });
        if (failing.runtimes > 1) {
            attempt([](program& p) {
                p.runtimes = 1;
                for (actor& a : p.actors)
                    a.runtime = 0;
            });
        }
        if (failing.budget <= 1000)
            attempt([](program& p) { p.budget = 1 << 20; });
        // An actor stays, without steps, so that the numbers of the others mean the same.
        for (std::size_t i = failing.actors.size(); i-- > 0;) {
            if (!failing.actors[i].steps.empty())
                attempt([i](program& p) { p.actors[i].steps.clear(); });
        }
        for (std::size_t i = 0; i < failing.actors.size(); ++i) {
            for (std::size_t k = failing.actors[i].steps.size(); k-- > 0;) {
                if (k >= failing.actors[i].steps.size())
                    continue;
                attempt([i, k](program& p) {
                    p.actors[i].steps.erase(p.actors[i].steps.begin() + static_cast<std::ptrdiff_t>(k));
                });
                if (k < failing.actors[i].steps.size() &&
                    failing.actors[i].steps[k].bound != bound_kind::none)
                    attempt([i, k](program& p) { p.actors[i].steps[k].bound = bound_kind::none; });
            }
        }
    }
    return failing;
}

} // namespace nowait_test::programs
