#include "simulated_driver.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <poll.h>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

simulated_driver::simulated_driver(simulated_world& in, flavour kind) : world_(in), flavour_(kind) {
    world_.enlist(*this);
}

simulated_driver::~simulated_driver() {
    world_.forget(*this);
}

auto simulated_driver::watch_of(const driver_target& source) noexcept -> watch* {
    const auto at =
        std::find_if(watches_.begin(), watches_.end(), [&](const watch& w) { return w.source == &source; });
    return at != watches_.end() ? &*at : nullptr;
}

auto simulated_driver::item_of(const driver_target& work) noexcept -> work_item* {
    const auto at =
        std::find_if(items_.begin(), items_.end(), [&](const work_item& w) { return w.work == &work; });
    return at != items_.end() ? &*at : nullptr;
}

void simulated_driver::edge(const simulated_object& object, int events) noexcept {
    // Hang-ups and errors are reported to everybody, and the caller names both directions then.
    for (watch& w : watches_) {
        if (w.of->of.get() == &object && (w.source->events & events) != 0 && w.event_at == never)
            w.event_at = world_.arrival();
    }
    for (work_item& w : items_) {
        if (w.of->of.get() == &object && w.look_at == never)
            w.look_at = world_.arrival();
    }
}

driver::time_point simulated_driver::next_arrival() const noexcept {
    time_point next = never;
    for (const watch& w : watches_)
        next = std::min({next, w.event_at, w.removal_at});
    for (const work_item& w : items_)
        next = std::min({next, w.look_at, w.cancel_at});
    for (const report& r : reports_)
        next = std::min(next, r.at);
    return next;
}

bool simulated_driver::works_on(const void* data, std::size_t size) const noexcept {
    const auto* begin = static_cast<const char*>(data);
    return std::any_of(items_.begin(), items_.end(), [&](const work_item& w) {
        const auto* busy = static_cast<const char*>(w.work->data);
        return busy < begin + size && begin < busy + w.work->size;
    });
}

// --- submissions --------------------------------------------------------------------------------------------------------------

void simulated_driver::arm(poll_source& source) noexcept {
    source.armed = true;
    ++held_;
    submissions_.push_back({request::arm, &source});
}

void simulated_driver::disarm(poll_source& source) noexcept {
    source.removing = true;
    const auto own = std::find_if(submissions_.begin(), submissions_.end(), [&](const submission& s) {
        return s.target == &source && s.what == request::arm;
    });
    if (own != submissions_.end()) { // never left this process
        submissions_.erase(own);
        say(source, -ECANCELED, false);
        return;
    }
    submissions_.push_back({request::disarm, &source});
}

void simulated_driver::start(class transfer& work) noexcept {
    ++held_;
    work.cancelling = false;
    submissions_.push_back({request::start, &work});
}

void simulated_driver::cancel(class transfer& work) noexcept {
    if (std::exchange(work.cancelling, true))
        return;
    const auto own = std::find_if(submissions_.begin(), submissions_.end(), [&](const submission& s) {
        return s.target == &work && s.what == request::start;
    });
    if (own != submissions_.end()) {
        submissions_.erase(own);
        say(work, -ECANCELED, false);
        return;
    }
    submissions_.push_back({request::cancel, &work});
}

void simulated_driver::submit() noexcept {
    if (submissions_.empty())
        return;
    counters.enters.add();
    while (!submissions_.empty()) {
        const submission first = submissions_.front();
        submissions_.pop_front();
        counters.submissions.add();
        submit_one(first);
    }
}

void simulated_driver::submit_one(const submission& what) noexcept {
    switch (what.what) {
    case request::arm: {
        auto& source = static_cast<poll_source&>(*what.target);
        world_.record(trace_kind::arm, static_cast<std::uint64_t>(source.fd),
                      static_cast<std::uint64_t>(source.events));
        auto of = world_.kernel.description_of(source.fd);
        if (of == nullptr) {
            say(source, -EBADF, false);
        } else if (world_.strikes(fault::no_memory)) {
            say(source, -ENOMEM, false);
        } else if (of->file() != nullptr && flavour_ == flavour::readiness) {
            say(source, -EPERM, false);
        } else {
            const bool stands = world_.kernel.ready(*of, source.events) != 0;
            watches_.push_back({&source, std::move(of), stands ? world_.arrival() : never, never});
        }
        return;
    }
    case request::disarm: {
        auto& source = static_cast<poll_source&>(*what.target);
        world_.record(trace_kind::disarm, static_cast<std::uint64_t>(source.fd));
        // One that is not there has said its last word already, or is about to.
        if (watch* w = watch_of(source))
            w->removal_at = world_.arrival();
        return;
    }
    case request::start: {
        auto& work = static_cast<class transfer&>(*what.target);
        world_.record(trace_kind::start, static_cast<std::uint64_t>(work.fd), work.size);
        auto of = world_.kernel.description_of(work.fd);
        if (of == nullptr)
            say(work, -EBADF, false);
        else if (world_.strikes(fault::no_memory))
            say(work, -ENOMEM, false);
        else
            items_.push_back({&work, std::move(of), world_.arrival(), never});
        return;
    }
    case request::cancel: {
        auto& work = static_cast<class transfer&>(*what.target);
        world_.record(trace_kind::cancel, static_cast<std::uint64_t>(work.fd));
        if (work_item* w = item_of(work))
            w->cancel_at = world_.arrival();
        return;
    }
    }
}

// --- completions --------------------------------------------------------------------------------------------------------------

void simulated_driver::say(driver_target& target, long result, bool more) noexcept {
    reports_.push_back({&target, result, more, world_.now});
}

bool simulated_driver::look(watch& w) noexcept {
    const bool removal = w.removal_at <= world_.now;
    const bool event = w.event_at <= world_.now;
    if (!event && !removal)
        return true;
    const int seen = world_.kernel.ready(*w.of, w.source->events);
    if (removal) {
        if (seen != 0 && world_.strikes(fault::cancel_race)) {
            // The removal meets an event on its way: either that is the last word, or it is reported and the removal asked again.
            if (world_.random(2) == 0) {
                say(*w.source, seen, false);
                return false;
            }
            say(*w.source, seen, true);
            w.event_at = never;
            w.removal_at = world_.now + std::chrono::nanoseconds(1 + world_.random(1000));
            return true;
        }
        say(*w.source, -ECANCELED, false);
        return false;
    }
    w.event_at = never;
    if (seen == 0)
        return true; // somebody else was faster
    if (world_.strikes(fault::overflow)) {
        // No room among the completions: the kernel keeps it, and what would stay armed does not.
        reports_.push_back({w.source, seen, false,
                            world_.now + std::chrono::nanoseconds(world_.random(
                                             static_cast<std::uint64_t>(world_.options.delay_max.count())))});
        return false;
    }
    const bool stays =
        flavour_ == flavour::readiness || (!w.source->once && world_.kernel.has(feature::multishot_poll));
    say(*w.source, seen, stays);
    return stays;
}

bool simulated_driver::look(work_item& w) noexcept {
    const bool stop = w.cancel_at <= world_.now;
    if (w.look_at > world_.now && !stop)
        return true;
    if (stop && !(w.look_at <= world_.now && world_.strikes(fault::cancel_race))) {
        say(*w.work, -ECANCELED, false);
        return false;
    }
    const long n = world_.kernel.transfer(*w.of, w.work->write, w.work->data, w.work->size);
    if (n == -EAGAIN) { // the ring waits by itself
        w.look_at = never;
        return true;
    }
    say(*w.work, n, false);
    return false;
}

bool simulated_driver::deliver() noexcept {
    bool any = false;
    // Only what is there now: whoever is told may submit, and is not told at once.
    for (std::size_t left = reports_.size(); left != 0; --left) {
        const report r = reports_.front();
        reports_.pop_front();
        if (r.at > world_.now) {
            reports_.push_back(r);
            continue;
        }
        any = true;
        counters.completions.add();
        world_.record(trace_kind::report, r.target->is_poll ? 1 : 0, static_cast<std::uint64_t>(r.result),
                      r.more ? 1 : 0);
        if (!r.more)
            --held_;
        r.target->on_event(*r.target, r.result, r.more);
    }
    return any;
}

void simulated_driver::collect() noexcept {
    submit();
    // Completions of different targets come in any order.
    if (world_.options.any_order && watches_.size() > 1)
        std::rotate(watches_.begin(),
                    watches_.begin() + static_cast<std::ptrdiff_t>(world_.random(watches_.size())),
                    watches_.end());
    for (std::size_t i = 0; i < watches_.size();) {
        if (look(watches_[i]))
            ++i;
        else
            watches_.erase(watches_.begin() + static_cast<std::ptrdiff_t>(i)); // lets go of the description
    }
    for (std::size_t i = 0; i < items_.size();) {
        if (look(items_[i]))
            ++i;
        else
            items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    deliver();
}

void simulated_driver::wait(time_point deadline) noexcept {
    submit();
    while (!signalled() && !woken_) {
        if (deadline <= world_.now)
            break;
        if (!world_.pass_time(std::min(deadline, next_arrival()))) {
            failure_ = EDEADLK;
            return;
        }
    }
    woken_ = false;
    if (signalled())
        collect();
}

void simulated_driver::wake() noexcept {
    world_.record(trace_kind::wake, index);
    woken_ = true;
}

} // namespace detail
NOWAIT_END_NAMESPACE
