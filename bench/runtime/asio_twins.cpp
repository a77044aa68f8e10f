#include "bench/support/keep.hpp"
#include "contenders.hpp"
#include "posting.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <asio.hpp>
#include <asio/experimental/awaitable_operators.hpp>

namespace bench::runtime {
namespace {

using namespace std::chrono_literals;

// As Asio's own documentation has it: awaitable<T>, use_awaitable, a default io_context.
struct as_documented {
    using executor = asio::any_io_executor;
    using context = asio::io_context;
    static constexpr const char* note = "";
};
// The concrete executor spares Asio the type-erased one in every operation, and the hint a wake-up or two.
struct as_tuned {
    using executor = asio::io_context::executor_type;
    struct context : asio::io_context {
        context() : asio::io_context(1) {}
    };
    static constexpr const char* note = ", concrete executor, hint 1";
};

template <class How>
struct twin {
    using executor = typename How::executor;
    using context = typename How::context;
    using token = asio::use_awaitable_t<executor>;
    template <class T = void>
    using coroutine = asio::awaitable<T, executor>;
    using timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                             asio::wait_traits<std::chrono::steady_clock>, executor>;

    static contender one_coroutine(std::string name,
                                   coroutine<> (*rounds_of)(asio::io_context&, std::size_t)) {
        return {name + How::note, [rounds_of] {
                    auto in = std::make_shared<context>();
                    return [in, rounds_of](std::size_t rounds) -> measurement {
                        const stopwatch clock;
                        asio::co_spawn(in->get_executor(), rounds_of(*in, rounds), asio::detached);
                        in->restart();
                        in->run();
                        return {rounds, clock.elapsed()};
                    };
                }};
    }

    static coroutine<int> child(int n) { co_return n; }
    static coroutine<> empty() { co_return; }

    // There is no nursery: the last one to end wakes whoever waits, through a timer that is cancelled.
    static coroutine<> spawns_many(asio::io_context& in, std::size_t rounds) {
        const executor on = in.get_executor();
        timer all_ended(on);
        for (std::size_t left = rounds; left != 0;) {
            const std::size_t now = std::min(left, tasks_at_once);
            std::size_t running = now;
            all_ended.expires_at(timer::time_point::max());
            for (std::size_t i = 0; i < now; ++i) {
                asio::co_spawn(on, empty(), [&running, &all_ended](std::exception_ptr) {
                    if (--running == 0) {
                        all_ended.cancel();
                    }
                });
            }
            asio::error_code ignored;
            co_await all_ended.async_wait(asio::redirect_error(token{}, ignored));
            require(running == 0, "co_spawn");
            left -= now;
        }
    }
    static coroutine<> spawns(asio::io_context& in, std::size_t rounds) {
        const executor on = in.get_executor();
        for (std::size_t i = 0; i < rounds; ++i) {
            co_await asio::co_spawn(on, empty(), token{});
        }
    }
    static coroutine<> yields(asio::io_context& in, std::size_t rounds) {
        const executor on = in.get_executor();
        for (std::size_t i = 0; i < rounds; ++i) {
            co_await asio::post(on, token{});
        }
    }
    static coroutine<> yields_together(asio::io_context& in, std::size_t rounds) {
        for (std::size_t i = 0; i < yielding_tasks; ++i) {
            asio::co_spawn(in.get_executor(), yields(in, rounds / yielding_tasks + 1), asio::detached);
        }
        co_return; // run() ends when all have ended
    }
    static coroutine<> awaits_children(asio::io_context&, std::size_t rounds) {
        for (std::size_t i = 0; i < rounds; ++i) {
            const int n = co_await child(static_cast<int>(i));
            keep(n);
        }
    }
    static coroutine<> races(asio::io_context& in, std::size_t rounds) {
        using namespace asio::experimental::awaitable_operators;
        timer far(in.get_executor());
        timer due(in.get_executor());
        const auto past = std::chrono::steady_clock::now();
        for (std::size_t i = 0; i < rounds; ++i) {
            far.expires_after(1h);
            due.expires_at(past);
            auto first = co_await (far.async_wait(token{}) || due.async_wait(token{}));
            require(first.index() == 1, "operator ||");
            keep(first);
        }
    }
};

template <class How>
struct timers {
    using timer = typename twin<How>::timer;

    timers() : ended(pending_timers) {
        cells.reserve(pending_timers);
        for (std::size_t i = 0; i < pending_timers; ++i) {
            cells.emplace_back(in.get_executor());
            set(i);
        }
    }
    ~timers() {
        for (timer& each : cells) {
            each.cancel();
        }
        in.restart();
        in.poll();
    }
    void set(std::size_t i) {
        ended[i] = false;
        cells[i].expires_after(timer_span(i));
        cells[i].async_wait([this, i](asio::error_code) { ended[i] = true; });
    }

    typename How::context in;
    std::vector<timer> cells;
    std::vector<char> ended;
    std::size_t at = 0;
};

template <class How>
contender timer_twin() {
    return {std::string("asio steady_timer") + How::note, [] {
                auto b = std::make_shared<timers<How>>();
                return [b](std::size_t rounds) -> measurement {
                    const stopwatch clock;
                    std::size_t done = 0;
                    while (done < rounds) {
                        const std::size_t first = b->at;
                        for (std::size_t i = 0; i < timer_batch; ++i) {
                            b->cells[first + i].cancel();
                        }
                        b->in.restart();
                        b->in.poll();
                        for (std::size_t i = 0; i < timer_batch; ++i) {
                            require(b->ended[first + i], "a cancelled timer that has not ended");
                            b->set(first + i);
                        }
                        b->at = (first + timer_batch) % pending_timers;
                        done += timer_batch;
                    }
                    return {done, clock.elapsed()};
                };
            }};
}

// Always with two threads in mind: a hint of one thread would be wrong here.
contender post_twin() {
    struct receiver {
        receiver()
            : thread([this] {
                  pin_receiver();
                  again();
                  begun.store(true);
                  in.run();
              }) {
            while (!begun.load()) {
                std::this_thread::yield();
            }
        }
        ~receiver() {
            over.store(true);
            thread.join();
        }
        // Keeps itself busy.
        void again() {
            if (!over.load(std::memory_order_relaxed)) {
                asio::post(in, [this] { again(); });
            }
        }
        asio::io_context in;
        std::atomic<bool> begun{false};
        std::atomic<bool> over{false};
        std::thread thread;
    };
    return {"asio post", [] {
                return [](std::size_t rounds) -> measurement {
                    receiver to; // for this slice alone: two busy threads would share a CPU
                    return post_all(rounds, [&](auto function) { asio::post(to.in, function); });
                };
            }};
}

template <class How>
contender twin_of(subject what) {
    using t = twin<How>;
    switch (what) {
    case subject::spawn_join:
        return t::one_coroutine("asio co_spawn, counted", &t::spawns_many);
    case subject::spawn_join_one:
        return t::one_coroutine("asio co_spawn", &t::spawns);
    case subject::yield:
        return t::one_coroutine("asio post", &t::yields_together);
    case subject::yield_alone:
        return t::one_coroutine("asio post", &t::yields);
    case subject::child_await:
        return t::one_coroutine("asio awaitable", &t::awaits_children);
    case subject::when_any:
        return t::one_coroutine("asio operator ||", &t::races);
    case subject::timer:
        return timer_twin<How>();
    case subject::post:
        return post_twin();
    }
    give_up("twin");
}

} // namespace

contender asio_twin(subject what, bool tuned) {
    return tuned ? twin_of<as_tuned>(what) : twin_of<as_documented>(what);
}

} // namespace bench::runtime
