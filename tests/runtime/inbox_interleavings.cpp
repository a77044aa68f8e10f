// The inbox through every interleaving of its users: no node lost or doubled, no wake lost, none too many.
#include "catch.hpp"
#include "interleavings.hpp"

#include <nowait/detail/inbox.hpp>

#include <algorithm>
#include <memory>
#include <vector>

using nowait::detail::inbox;
using nowait::detail::push_outcome;
using nowait::detail::ready_node;
using nowait_test::explorer;

namespace {

/// Every operation is a point at which another thread may go on.
struct stepping_sync {
    template <class T>
    class atomic {
    public:
        atomic() = default;
        atomic(T value) noexcept : value_(value) {}
        [[nodiscard]] T load(std::memory_order) const noexcept {
            explorer::point();
            return value_;
        }
        T exchange(T value, std::memory_order) noexcept {
            explorer::point();
            return std::exchange(value_, value);
        }
        bool compare_exchange_strong(T& expected, T desired, std::memory_order, std::memory_order) noexcept {
            explorer::point();
            if (value_ != expected) {
                expected = value_;
                return false;
            }
            value_ = desired;
            return true;
        }

    private:
        T value_{};
    };
};

struct numbered : ready_node {
    int poster = 0;
    int number = 0;
};

/// One loop and its posters.
struct world {
    inbox<stepping_sync> box;
    std::vector<std::unique_ptr<numbered>> nodes;
    std::vector<numbered*> received;
    int wakes = 0;      // that were asked for and made
    int wakes_used = 0; // that the sleeper has consumed
    int parks = 0;
    int delivered = 0;
    int refused = 0;
    bool slept_on_nodes = false;

    void poster(int id, int count) {
        for (int i = 0; i < count; ++i) {
            auto node = std::make_unique<numbered>();
            node->poster = id;
            node->number = i;
            numbered& posted = *node;
            nodes.push_back(std::move(node));
            switch (box.push(posted)) {
            case push_outcome::wake_needed:
                ++delivered;
                ++wakes; // a driver keeps a wake that comes early
                break;
            case push_outcome::delivered:
                ++delivered;
                break;
            case push_outcome::closed:
                ++refused;
                break;
            }
        }
    }
    void receive(ready_node* chain) {
        while (chain != nullptr) {
            ready_node* following = chain->next_ready;
            received.push_back(static_cast<numbered*>(chain));
            chain = following;
        }
    }
    /// As a loop does it: look, run, park, sleep until woken.
    void owner(int expected) {
        while (static_cast<int>(received.size()) < expected) {
            if (box.maybe_filled())
                receive(box.take());
            if (static_cast<int>(received.size()) >= expected)
                return;
            if (!box.park())
                continue;
            ++parks;
            if (!explorer::wait_until([this] { return wakes > wakes_used; }))
                return; // nobody will ever wake it: the explorer has noted that
            ++wakes_used;
        }
    }
    [[nodiscard]] bool in_order() const {
        std::vector<int> last(8, -1);
        for (const numbered* node : received) {
            int& before = last[static_cast<std::size_t>(node->poster)];
            if (node->number != before + 1)
                return false;
            before = node->number;
        }
        return true;
    }
};

} // namespace

TEST_CASE("inbox, every interleaving: one poster and a loop that sleeps", "[slow]") {
    std::size_t lost = 0;
    std::size_t disordered = 0;
    std::size_t extra_wakes = 0;
    std::size_t sleeps = 0;
    explorer explores;
    const auto found = explores.explore([&] {
        auto w = std::make_shared<world>();
        return explorer::scenario{{[w] { w->poster(0, 2); }, [w] { w->owner(2); }},
                                  [w, &lost, &disordered, &extra_wakes, &sleeps] {
                                      lost += w->received.size() != 2;
                                      disordered += !w->in_order();
                                      extra_wakes += w->wakes > w->parks;
                                      sleeps += static_cast<std::size_t>(w->parks);
                                  }};
    });
    INFO("runs " << found.runs);
    CHECK(found.complete);
    CHECK(found.runs > 100);
    CHECK(found.deadlocks == 0);
    CHECK(lost == 0);
    CHECK(disordered == 0);
    CHECK(extra_wakes == 0);
    CHECK(sleeps > 0); // the interesting runs were among them
}

TEST_CASE("inbox, every interleaving: two posters and a loop that sleeps", "[slow]") {
    std::size_t lost = 0;
    std::size_t disordered = 0;
    std::size_t extra_wakes = 0;
    explorer explores;
    const auto found = explores.explore([&] {
        auto w = std::make_shared<world>();
        return explorer::scenario{{[w] { w->poster(0, 1); }, [w] { w->poster(1, 1); }, [w] { w->owner(2); }},
                                  [w, &lost, &disordered, &extra_wakes] {
                                      lost += w->received.size() != 2;
                                      disordered += !w->in_order();
                                      extra_wakes += w->wakes > w->parks;
                                  }};
    });
    INFO("runs " << found.runs);
    CHECK(found.complete);
    CHECK(found.deadlocks == 0);
    CHECK(lost == 0);
    CHECK(disordered == 0);
    CHECK(extra_wakes == 0);
}

TEST_CASE("inbox, every interleaving: posts race with the end", "[slow]") {
    std::size_t wrong = 0;
    std::size_t some_refused = 0;
    std::size_t some_delivered = 0;
    explorer explores;
    const auto found = explores.explore([&] {
        auto w = std::make_shared<world>();
        return explorer::scenario{{[w] { w->poster(0, 1); }, [w] { w->poster(1, 1); },
                                   [w] {
                                       if (w->box.park())
                                           ++w->parks;
                                       w->receive(w->box.close());
                                   }},
                                  [w, &wrong, &some_refused, &some_delivered] {
                                      // Delivered means received, refused means still the poster's.
                                      wrong += w->received.size() != static_cast<std::size_t>(w->delivered);
                                      wrong += w->delivered + w->refused != 2;
                                      wrong += !w->in_order();
                                      some_refused += w->refused > 0;
                                      some_delivered += w->delivered > 0;
                                  }};
    });
    INFO("runs " << found.runs);
    CHECK(found.complete);
    CHECK(wrong == 0);
    CHECK(some_refused > 0);
    CHECK(some_delivered > 0);
}

namespace {

/// An inbox with the classic fault: the owner looks, then says that it sleeps, in two steps.
class careless_inbox {
public:
    [[nodiscard]] bool push() noexcept {
        filled_.exchange(true, std::memory_order_seq_cst);
        return asleep_.load(std::memory_order_seq_cst);
    }
    [[nodiscard]] bool take() noexcept { return filled_.exchange(false, std::memory_order_seq_cst); }
    void park() noexcept { asleep_.exchange(true, std::memory_order_seq_cst); }

private:
    stepping_sync::atomic<bool> filled_{false};
    stepping_sync::atomic<bool> asleep_{false};
};

} // namespace

TEST_CASE("the explorer finds a lost wake where there is one") {
    explorer explores;
    const auto found = explores.explore([] {
        struct state {
            careless_inbox box;
            bool woken = false;
        };
        auto s = std::make_shared<state>();
        return explorer::scenario{{[s] { s->woken = s->box.push() || s->woken; },
                                   [s] {
                                       if (s->box.take())
                                           return;
                                       s->box.park();
                                       (void)explorer::wait_until([&] { return s->woken; });
                                   }},
                                  [] {}};
    });
    CHECK(found.complete);
    CHECK(found.deadlocks > 0);
}
