#include "fake_driver.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

namespace nowait_test {

fake_driver::poll_source* fake_driver::poll_of(int fd) const noexcept {
    for (poll_source* source : polls) {
        if (source->fd == fd)
            return source;
    }
    return nullptr;
}

void fake_driver::fire(target& to, long result, bool more) {
    due_.push_back({&to, result, more});
}

void fake_driver::let_go() {
    while (!held_.empty()) {
        due_.push_back(held_.front());
        held_.pop_front();
    }
}

void fake_driver::arm(poll_source& source) noexcept {
    ++arms;
    counters.submissions.add();
    source.armed = true;
    polls.push_back(&source);
    if (!refusals.empty()) {
        fire(source, refusals.front(), false);
        refusals.pop_front();
        return;
    }
    // Arming tests the level: what stands now counts as an edge that nobody has reported.
    seen_edges_[&source] =
        calls_.ready(source.fd, source.events) != 0 ? ~std::uint64_t{0} : calls_.edges(source.fd);
}

void fake_driver::disarm(poll_source& source) noexcept {
    ++disarms;
    source.removing = true;
    (hold_removals ? held_ : due_).push_back({&source, -ECANCELED, false});
}

void fake_driver::start(transfer& work) noexcept {
    ++starts;
    counters.submissions.add();
    transfers.push_back(&work);
}

void fake_driver::cancel(transfer& work) noexcept {
    ++cancels;
    (hold_cancels ? held_ : due_).push_back({&work, -ECANCELED, false});
}

bool fake_driver::find_events() noexcept {
    if (!automatic)
        return false;
    bool found = false;
    for (poll_source* source : polls) {
        const auto at = seen_edges_.find(source);
        if (at == seen_edges_.end() || at->second == calls_.edges(source->fd))
            continue;
        const int standing = calls_.ready(source->fd, source->events);
        if (standing == 0)
            continue;
        at->second = calls_.edges(source->fd);
        const bool last = !multishot || early_ends > 0;
        if (early_ends > 0)
            --early_ends;
        due_.push_back({source, standing, !last});
        found = true;
    }
    return found;
}

void fake_driver::forget(target& gone) noexcept {
    const auto same = [&gone](const target* t) { return t == &gone; };
    polls.erase(std::remove_if(polls.begin(), polls.end(), same), polls.end());
    transfers.erase(std::remove_if(transfers.begin(), transfers.end(), same), transfers.end());
    for (auto at = seen_edges_.begin(); at != seen_edges_.end();)
        at = at->first == &gone ? seen_edges_.erase(at) : std::next(at);
    const auto to_it = [&gone](const report& r) { return r.to == &gone; };
    due_.erase(std::remove_if(due_.begin(), due_.end(), to_it), due_.end());
}

bool fake_driver::deliver() noexcept {
    bool any = false;
    while (!due_.empty()) {
        const report r = due_.front();
        due_.pop_front();
        any = true;
        counters.completions.add();
        if (!r.more)
            forget(*r.to); // and whatever else was due to it: a target hears nothing after its last report
        r.to->on_event(*r.to, r.result, r.more);
    }
    return any;
}

bool fake_driver::has_work() const noexcept {
    return !due_.empty() || automatic;
}

void fake_driver::collect() noexcept {
    counters.enters.add();
    find_events();
    deliver();
}

void fake_driver::wait(time_point deadline) noexcept {
    ++waits;
    counters.enters.add();
    find_events();
    if (deliver() || std::exchange(woken_, false))
        return;
    if (deadline != never) {
        calls_.time = std::max(calls_.time, deadline);
        return;
    }
    if (when_idle)
        when_idle();
    find_events();
    if (!deliver() && !std::exchange(woken_, false)) {
        std::fputs("fake driver: the loop sleeps and nothing will ever wake it\n", stderr);
        std::abort();
    }
}

nowait::runtime fake_world::make(nowait::runtime_options options) {
    options.system = &calls;
    options.make_driver = [this](nowait::detail::system&) -> std::unique_ptr<nowait::detail::driver> {
        auto made = std::make_unique<fake_driver>(calls);
        driver = made.get();
        return made;
    };
    auto created = nowait::runtime::create(std::move(options));
    if (!created) {
        std::fputs("fake world: no runtime\n", stderr);
        std::abort();
    }
    return std::move(*created);
}

} // namespace nowait_test
