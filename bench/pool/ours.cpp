#include "bench/support/keep.hpp"
#include "pool.hpp"

#include <nowait/blocking.hpp>
#include <nowait/runtime.hpp>
#include <nowait/worker_pool.hpp>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

namespace bench::pool {

void work(std::size_t& counter) noexcept {
    ++counter;
    keep(counter);
}

namespace {

nowait::task<void> jobs(std::size_t rounds) {
    std::size_t done = 0;
    auto job = [&done] { work(done); };
    for (std::size_t i = 0; i < rounds; ++i) {
        auto ended = co_await nowait::blocking(job);
        if (!ended)
            std::abort();
    }
}

} // namespace

contender ours(std::size_t in_flight) {
    struct bed {
        nowait::worker_pool pool = nowait::worker_pool::create({.bounded_max = threads}).value();
        nowait::runtime runtime = [this] {
            nowait::runtime_options options;
            options.pool = &pool;
            return nowait::runtime::create(options).value();
        }();
    };
    return {"co_await blocking(f)", [in_flight]() -> slice {
                auto b = std::make_shared<bed>();
                return [b, in_flight](std::size_t rounds) -> measurement {
                    for (std::size_t i = 0; i < in_flight; ++i)
                        (void)b->runtime.spawn(jobs(rounds));
                    const stopwatch clock;
                    (void)b->runtime.run();
                    return {rounds * in_flight, clock.elapsed()};
                };
            }};
}

} // namespace bench::pool
