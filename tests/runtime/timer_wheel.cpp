// The wheel against a model that keeps a sorted list.
#include "runtime/timer_wheel.hpp"

#include "catch.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

using nowait::detail::timer_node;
using nowait::detail::timer_wheel;
using wheel_clock = nowait::detail::clock;

namespace {

struct probe : timer_node {
    int id = 0;
    bool pending = false;
    std::vector<probe*>* fired = nullptr;
};

wheel_clock::time_point at(std::int64_t ns) {
    return wheel_clock::time_point(wheel_clock::duration(ns));
}

constexpr std::int64_t tick = std::int64_t{1} << timer_wheel::tick_bits;

class model {
public:
    explicit model(std::uint32_t seed) : random_(seed) {}

    void insert(std::int64_t deadline) {
        auto made = std::make_unique<probe>();
        made->id = static_cast<int>(all_.size());
        made->deadline = deadline < 0 ? wheel_clock::time_point::max() : at(deadline);
        made->fired = &fired_;
        made->pending = true;
        made->on_expiry = [](timer_node& node) noexcept {
            auto& p = static_cast<probe&>(node);
            p.pending = false;
            p.fired->push_back(&p);
        };
        wheel_.insert(*made);
        all_.push_back(std::move(made));
    }
    void remove_one() {
        if (all_.empty())
            return;
        probe& p = *all_[pick(all_.size())];
        wheel_.remove(p); // also those that have fired or were removed: harmless
        p.pending = false;
    }
    /// What must hold at any time.
    void check_next_look() const {
        auto earliest = wheel_clock::time_point::max();
        bool any = false;
        for (const auto& p : all_) {
            if (p->pending && p->deadline != wheel_clock::time_point::max()) {
                any = true;
                earliest = std::min(earliest, p->deadline);
            }
        }
        CHECK(wheel_.empty() == !any);
        if (any)
            CHECK(wheel_.next_look() <=
                  earliest + wheel_clock::duration(tick)); // a lower bound of the expiry
        else
            CHECK(wheel_.next_look() == wheel_clock::time_point::max());
    }
    void advance(std::int64_t to) {
        now_ = std::max(now_, to);
        std::vector<probe*> due;
        for (const auto& p : all_) {
            if (p->pending && p->deadline <= at(now_ - tick))
                due.push_back(p.get());
        }
        fired_.clear();
        wheel_.advance(at(now_));
        bool early = false;
        for (const probe* p : fired_)
            early = early || p->deadline > at(now_);
        CHECK_FALSE(early);
        bool missing = false;
        for (const probe* p : due)
            missing = missing || p->pending;
        CHECK_FALSE(missing); // at most a tick late
        const bool ordered = std::is_sorted(fired_.begin(), fired_.end(), [](const probe* a, const probe* b) {
            const auto tick_of = [](const probe* p) {
                return (p->deadline.time_since_epoch().count() + tick - 1) / tick;
            };
            return tick_of(a) < tick_of(b);
        });
        CHECK(ordered);
    }
    std::size_t pick(std::size_t below) {
        return std::uniform_int_distribution<std::size_t>(0, below - 1)(random_);
    }
    std::int64_t span() {
        // All sizes are equally likely, from a nanosecond to years.
        const int bits = std::uniform_int_distribution<int>(0, 55)(random_);
        return std::uniform_int_distribution<std::int64_t>(0, std::int64_t{1} << bits)(random_);
    }
    [[nodiscard]] std::int64_t now() const { return now_; }
    [[nodiscard]] timer_wheel& wheel() { return wheel_; }
    void forget_ended() {
        all_.erase(std::remove_if(all_.begin(), all_.end(), [](const auto& p) { return !p->pending; }),
                   all_.end());
    }

private:
    timer_wheel wheel_;
    std::mt19937 random_;
    std::vector<std::unique_ptr<probe>> all_;
    std::vector<probe*> fired_;
    std::int64_t now_ = 0;
};

} // namespace

TEST_CASE("the timer wheel agrees with a sorted list") {
    for (std::uint32_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        model m(seed);
        m.advance(m.span());
        for (int step = 0; step < 400; ++step) {
            switch (m.pick(8)) {
            case 0:
            case 1:
            case 2:
                m.insert(m.now() + m.span());
                break;
            case 3:
                m.insert(m.now() - m.now() / 4); // in the past
                break;
            case 4:
                m.insert(-1); // never
                break;
            case 5:
            case 6:
                m.remove_one();
                break;
            default:
                m.advance(m.now() + m.span());
                m.forget_ended();
            }
            m.check_next_look();
        }
    }
}

TEST_CASE("following next_look from one to the next fires everything, in few steps") {
    for (std::uint32_t seed = 100; seed < 120; ++seed) {
        CAPTURE(seed);
        model m(seed);
        m.advance(m.span());
        for (int i = 0; i < 50; ++i)
            m.insert(m.now() + m.span());
        int steps = 0;
        while (!m.wheel().empty() && steps < 50 * timer_wheel::levels + 50) {
            const auto look = m.wheel().next_look();
            const auto when =
                look == wheel_clock::time_point::min() ? m.now() : look.time_since_epoch().count();
            m.advance(when);
            ++steps;
        }
        CHECK(m.wheel().empty()); // each timer is dealt out at most once per level
    }
}

TEST_CASE("a wheel that only moves stays right across the turns of its levels") {
    model m(7);
    std::int64_t now = 0;
    // Just before, at and after the borders of every level.
    for (int level = 1; level <= 6; ++level) {
        const std::int64_t border = tick << (6 * level);
        for (std::int64_t around : {-tick, std::int64_t{-1}, std::int64_t{0}, std::int64_t{1}, tick}) {
            m.insert(border + around);
            m.insert(border + around + tick);
        }
        for (std::int64_t around : {-2 * tick, -tick, std::int64_t{0}, tick, 2 * tick, 3 * tick}) {
            now = border + around;
            m.advance(now);
            m.check_next_look();
        }
    }
    CHECK(m.wheel().empty());
}

TEST_CASE("an expiry function may add and remove timers") {
    static timer_wheel* wheel = nullptr;
    static int fired = 0;
    static timer_node later;
    static timer_node doomed;
    timer_wheel own;
    wheel = &own;
    fired = 0;
    timer_node first;
    first.deadline = at(10 * tick);
    doomed.deadline = at(11 * tick);
    later.on_expiry = [](timer_node&) noexcept { fired += 10; };
    doomed.on_expiry = [](timer_node&) noexcept { fired += 1000; };
    first.on_expiry = [](timer_node&) noexcept {
        ++fired;
        wheel->remove(doomed);
        later.deadline = at(12 * tick);
        wheel->insert(later);
    };
    own.insert(first);
    own.insert(doomed);
    own.advance(at(20 * tick));
    CHECK(fired == 11);
    CHECK(own.empty());
}
