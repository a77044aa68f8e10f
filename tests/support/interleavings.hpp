// Walks through every interleaving of a few threads, each of whose atomic operations is a point where another may go on.
//
// The threads are real ones, but only one runs at a time: at every point it hands over to the explorer, which chooses. A run
// is the list of its choices; the next run takes the last choice that has an alternative. Memory is sequentially consistent:
// orderings are the thread sanitizer's business.
//
// Where there are too many, the number of preemptions may be bounded: switches away from a thread that could have gone on.
// All interleavings with so few of them are walked then; nearly every mistake needs only one or two.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace nowait_test {

class explorer {
public:
    /// Runs `scenario` once for each interleaving. It returns the threads, and what checks the end. Returns the number of runs.
    /// `deadlocks` counts runs in which everybody waited for something that nobody would do.
    struct findings {
        std::size_t runs = 0;
        std::size_t deadlocks = 0;
        std::size_t strays =
            0; ///< runs in which the same choices led elsewhere than before: the scenario is not the same each time
        bool complete = false; ///< every interleaving was walked
    };
    using body = std::function<void()>;
    struct scenario {
        std::vector<body> threads;
        body at_end;
    };

    /// Unlimited, unless the test says otherwise.
    std::size_t preemptions_max = static_cast<std::size_t>(-1);

    [[nodiscard]] findings explore(const std::function<scenario()>& make, std::size_t runs_max = 200'000) {
        findings found;
        choices_.clear();
        do {
            position_ = 0;
            strayed_ = false;
            scenario once = make();
            if (!run(once.threads))
                ++found.deadlocks;
            once.at_end();
            ++found.runs;
            found.strays += strayed_ ? 1 : 0;
            if (found.runs == runs_max)
                return found;
        } while (next_schedule());
        found.complete = true;
        return found;
    }

    /// Called by the policy below before each atomic operation.
    static void point() {
        if (here != nullptr)
            here->of->hand_over(*here, nullptr);
    }
    /// Waits until `condition()`, which only other threads of the scenario change. False: it never will (a deadlock).
    static bool wait_until(const std::function<bool()>& condition) {
        return here->of->hand_over(*here, &condition);
    }

private:
    struct thread_state {
        explorer* of = nullptr;
        std::thread thread;
        bool parked = false;
        bool finished = false;
        const std::function<bool()>* waits_for = nullptr;
        bool given_up = false;
    };
    struct choice {
        std::size_t taken;
        std::size_t options;
    };

    bool hand_over(thread_state& self, const std::function<bool()>* condition) {
        std::unique_lock lock(mutex_);
        self.waits_for = condition;
        self.parked = true;
        running_ = nullptr;
        changed_.notify_all();
        changed_.wait(lock, [&] { return running_ == &self; });
        self.waits_for = nullptr;
        return !self.given_up;
    }

    bool run(std::vector<body>& bodies) {
        std::vector<thread_state> states(bodies.size());
        running_ = nullptr;
        for (std::size_t i = 0; i < bodies.size(); ++i) {
            states[i].of = this;
            states[i].thread = std::thread([this, &self = states[i], &what = bodies[i]] {
                here = &self;
                (void)hand_over(self, nullptr);
                what();
                std::lock_guard guard(mutex_);
                self.finished = true;
                running_ = nullptr;
                changed_.notify_all();
            });
        }
        bool deadlocked = false;
        const thread_state* last = nullptr;
        std::size_t preemptions = 0;
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [&] {
                return std::all_of(states.begin(), states.end(),
                                   [](const thread_state& state) { return state.parked || state.finished; });
            });
            std::vector<thread_state*> able;
            bool left = false;
            for (thread_state& state : states) {
                if (state.finished)
                    continue;
                left = true;
                if (state.waits_for == nullptr || (*state.waits_for)())
                    able.push_back(&state);
            }
            if (!left)
                break;
            if (able.empty()) {
                deadlocked = true;
                for (thread_state& state : states) {
                    if (!state.finished) {
                        state.given_up = true;
                        able.push_back(&state);
                    }
                }
            }
            // Going on is the first choice, and the only one when the preemptions are used up.
            std::size_t options = able.size();
            const auto again = std::find(able.begin(), able.end(), last);
            const bool could_go_on = again != able.end();
            if (could_go_on && preemptions_max != static_cast<std::size_t>(-1)) {
                std::rotate(able.begin(), again, again + 1);
                if (preemptions == preemptions_max)
                    options = 1;
            }
            running_ = able[choose(options)];
            if (could_go_on && running_ != last)
                ++preemptions;
            last = running_;
            running_->parked = false;
            changed_.notify_all();
        }
        lock.unlock();
        for (thread_state& state : states)
            state.thread.join();
        return !deadlocked;
    }

    std::size_t choose(std::size_t options) {
        if (position_ == choices_.size())
            choices_.push_back({0, options});
        choice& next = choices_[position_++];
        if (next.options != options) {
            strayed_ = true;
            next.options = options;
            next.taken = std::min(next.taken, options - 1);
        }
        return next.taken;
    }
    bool next_schedule() {
        while (!choices_.empty()) {
            choice& last = choices_.back();
            if (++last.taken < last.options)
                return true;
            choices_.pop_back();
        }
        return false;
    }

    static inline thread_local thread_state* here = nullptr;

    std::mutex mutex_;
    std::condition_variable changed_;
    thread_state* running_ = nullptr;
    std::vector<choice> choices_;
    std::size_t position_ = 0;
    bool strayed_ = false;
};

} // namespace nowait_test
