#include "simulated_world.hpp"

#include "simulated_driver.hpp"

#include <nowait/detail/promise.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <source_location>
#include <utility>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

namespace {

/// How many of the tasks that are ready are looked at for the next turn. The head is one of them, so nobody starves.
constexpr std::size_t choice_window = 16;

std::uint64_t mixed(std::uint64_t x) noexcept { // the finaliser of splitmix64
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

std::uint64_t nanoseconds_of(std::chrono::steady_clock::time_point t) noexcept {
    return static_cast<std::uint64_t>(t.time_since_epoch().count());
}

} // namespace

simulated_world::simulated_world(const simulation_options& wanted)
    : options(wanted), faults(wanted.faults), state_(mixed(wanted.seed + 0x9e3779b97f4a7c15u)) {
    add_runtime();
}

simulated_world::~simulated_world() {
    end();
    workers.end();
}

// --- chance and trace -----------------------------------------------------------------------------------------------------------

std::uint64_t simulated_world::random(std::uint64_t bound) noexcept {
    state_ += 0x9e3779b97f4a7c15u;
    const std::uint64_t word = mixed(state_);
    return bound == 0 ? 0 : word % bound; // the bias of small bounds is below 2^-50
}

bool simulated_world::strikes(fault kind) noexcept {
    const double probability = faults.of(kind);
    if (probability <= 0)
        return false;
    const double drawn = static_cast<double>(random(std::uint64_t{1} << 32)) / 4294967296.0;
    if (drawn >= probability)
        return false;
    ++happened[static_cast<std::size_t>(kind)];
    record(trace_kind::fault, static_cast<std::uint64_t>(kind));
    return true;
}

simulated_world::time_point simulated_world::arrival() noexcept {
    if (!strikes(fault::late_event))
        return now;
    return now + std::chrono::nanoseconds(random(static_cast<std::uint64_t>(options.delay_max.count())));
}

void simulated_world::record(trace_kind kind, std::uint64_t a, std::uint64_t b, std::uint64_t c) noexcept {
    for (const std::uint64_t word : {static_cast<std::uint64_t>(kind), a, b, c})
        hash = std::rotl((hash ^ word) * 0x9e3779b97f4a7c15u, 29);
    lines_[events % lines_.size()] = {kind, nanoseconds_of(now), a, b, c};
    ++events;
}

std::string simulated_world::trace(std::size_t lines) const {
    static constexpr const char* kinds[] = {"turn",   "look", "sleep",  "outside", "clock",
                                            "call",   "arm",  "disarm", "start",   "cancel",
                                            "report", "wake", "worker", "fault",   "note"};
    static constexpr const char* calls[] = {"read",  "write", "splice", "tee",  "ready",   "pipe",
                                            "close", "open",  "resize", "send", "receive", "other"};
    std::string text;
    const std::uint64_t kept = std::min<std::uint64_t>({events, lines_.size(), lines});
    for (std::uint64_t i = events - kept; i < events; ++i) {
        const line& l = lines_[i % lines_.size()];
        char buffer[160];
        int n = std::snprintf(buffer, sizeof buffer, "%" PRIu64 " +%" PRIu64 " ns: %s", i,
                              l.at_ns - nanoseconds_of(start_of_time), kinds[static_cast<int>(l.kind)]);
        const auto rest = buffer + n;
        const std::size_t room = sizeof buffer - static_cast<std::size_t>(n);
        switch (l.kind) {
        case trace_kind::call:
            std::snprintf(rest, room, " %s(%" PRId64 ") = %" PRId64, calls[l.a],
                          static_cast<std::int64_t>(l.b), static_cast<std::int64_t>(l.c));
            break;
        case trace_kind::fault:
            std::snprintf(rest, room, " %s", to_string(static_cast<fault>(l.a)));
            break;
        default:
            std::snprintf(rest, room, " %" PRId64 " %" PRId64 " %" PRId64, static_cast<std::int64_t>(l.a),
                          static_cast<std::int64_t>(l.b), static_cast<std::int64_t>(l.c));
        }
        text += buffer;
        text += '\n';
    }
    return text;
}

std::string simulated_world::waiting() const {
    std::string text;
    for (std::size_t i = 0; i < threads_.size(); ++i) {
        loop& on = threads_[i]->runs->get_loop();
        on.roots.for_each([&](promise_base& root) {
            text += "  runtime " + std::to_string(i) + ":";
            const promise_base* frame = &root;
            for (;; frame = frame->awaits.second()) {
                const char* file = frame->where.file_name();
                const char* slash = std::strrchr(file, '/');
                text += frame == &root ? " " : " -> ";
                if (frame->where.line() == 0) {
                    text += "(not started)";
                } else {
                    text += slash != nullptr ? slash + 1 : file;
                    text += ':' + std::to_string(frame->where.line());
                }
                if (frame->awaits.second() == nullptr)
                    break;
            }
            text += frame->awaits.first() != nullptr ? "\n" : " (ready)\n";
        });
    }
    return text;
}

// --- runtimes -------------------------------------------------------------------------------------------------------------------

runtime_options simulated_world::options_for_runtime() {
    runtime_options wanted;
    wanted.system = &kernel;
    wanted.budget = options.budget;
    wanted.make_driver = [this](class system&) -> std::unique_ptr<driver> {
        const auto kind = strikes(fault::refused_ring) ? simulated_driver::flavour::readiness
                                                       : simulated_driver::flavour::ring;
        auto made = std::make_unique<simulated_driver>(*this, kind);
        made->index = drivers_.size() - 1;
        return made;
    };
    return wanted;
}

runtime& simulated_world::add_runtime() {
    auto made = runtime::create(options_for_runtime());
    if (!made)
        throw std::system_error(made.error(), "a runtime of a simulation");
    auto t = std::make_unique<thread>();
    t->runs = std::make_unique<runtime>(std::move(*made));
    t->waits = static_cast<simulated_driver*>(&t->runs->get_loop().waits());
    threads_.push_back(std::move(t));
    return *threads_.back()->runs;
}

void simulated_world::forget(simulated_driver& driver) noexcept {
    drivers_.erase(std::remove(drivers_.begin(), drivers_.end(), &driver), drivers_.end());
}

void simulated_world::edge(const simulated_object& object, int directions) noexcept {
    for (simulated_driver* driver : drivers_)
        driver->edge(object, directions);
}

// --- workers --------------------------------------------------------------------------------------------------------------------

simulated_workers::time_point simulated_workers::now() noexcept {
    return world_.now;
}

int simulated_workers::start(worker_body& body) noexcept {
    if (world_.strikes(fault::no_thread))
        return -EAGAIN;
    try {
        auto made = std::make_unique<entry>(&body, started_++, world_.arrival());
        if (body.may_wait) {
            made->stack = std::make_unique<simulated_stack>(
                [](void* of) {
                    auto& self = *static_cast<entry*>(of);
                    self.did = self.body->step(std::exchange(self.woken, false));
                },
                made.get());
        }
        workers_.push_back(std::move(made));
    } catch (...) {
        return -EAGAIN;
    }
    return 0;
}

int simulated_workers::why_not() const noexcept {
    return ending_ ? -EIO : -EINTR;
}

void simulated_workers::end() noexcept {
    ending_ = true;
    for (;;) {
        const auto waits =
            std::find_if(workers_.begin(), workers_.end(), [](const auto& e) { return bool(e->over); });
        if (waits == workers_.end())
            return;
        entry& e = **waits;
        bool through = false;
        while (!through || e.did.what == worker_step::outcome::ran) {
            e.interrupted = bool(e.over);
            through = run_step(e);
        }
        if (e.did.what == worker_step::outcome::leave) {
            worker_body& body = *e.body;
            workers_.erase(waits);
            body.left();
        }
    }
}

void simulated_workers::wake(worker_body& body) noexcept {
    for (const auto& e : workers_) {
        if (e->body == &body)
            e->woken = true;
    }
}

void simulated_workers::interrupt(worker_body& body) noexcept {
    for (const auto& e : workers_) {
        if (e->body == &body && e->over)
            e->interrupted = true; // in no call it is lost, as a signal would be
    }
}

bool simulated_workers::wait(std::function<bool()> over) noexcept {
    const auto self = std::find_if(workers_.begin(), workers_.end(), [](const auto& e) {
        return e->stack != nullptr && e->stack.get() == simulated_stack::current();
    });
    if (self == workers_.end())
        return false;
    entry& e = **self;
    e.over = std::move(over);
    e.stack->pause();
    const bool came = e.over();
    e.over = nullptr;
    return !std::exchange(e.interrupted, false) || came;
}

bool simulated_workers::can_step(const entry& e) const noexcept {
    if (e.over)
        return e.interrupted || e.over();
    return (e.woken && !e.starting) || e.at <= world_.now;
}

std::size_t simulated_workers::runnable() const noexcept {
    return static_cast<std::size_t>(
        std::count_if(workers_.begin(), workers_.end(), [&](const auto& e) { return can_step(*e); }));
}

/// True: the worker's step has come to its end. False: its job waits in a call.
bool simulated_workers::run_step(entry& e) {
    if (e.stack != nullptr)
        return e.stack->go_on();
    e.did = e.body->step(std::exchange(e.woken, false));
    return true;
}

void simulated_workers::step(std::size_t which) noexcept {
    std::size_t at = 0;
    while (!can_step(*workers_[at]) || which-- != 0)
        ++at;
    entry& self = *workers_[at];
    self.starting = false;
    world_.now += world_.options.turn_time;
    constexpr std::uint64_t waits_in_a_call = 3;
    if (!run_step(self)) {
        world_.record(trace_kind::worker, self.number, waits_in_a_call);
        return;
    }
    world_.record(trace_kind::worker, self.number, static_cast<std::uint64_t>(self.did.what));
    switch (self.did.what) {
    case worker_step::outcome::ran:
        self.at = world_.now;
        break;
    case worker_step::outcome::idle:
        self.at = self.did.until;
        break;
    case worker_step::outcome::leave:
        worker_body& body = *self.body;
        // Its job may have started others meanwhile.
        workers_.erase(std::find_if(workers_.begin(), workers_.end(),
                                    [&self](const auto& e) { return e.get() == &self; }));
        body.left();
    }
}

simulated_workers::time_point simulated_workers::next_call() const noexcept {
    time_point next = time_point::max();
    for (const auto& e : workers_) {
        if (!e->over)
            next = std::min(next, e->at);
    }
    return next;
}

bool simulated_workers::starting() const noexcept {
    return std::any_of(workers_.begin(), workers_.end(), [](const auto& e) { return e->starting; });
}

void simulated_workers::await_change(std::uint32_t seen, time_point until) noexcept {
    while (changes_ == seen && world_.now < until) {
        if (const std::size_t able = runnable(); able != 0)
            step(static_cast<std::size_t>(world_.random(able)));
        else if (!world_.pass_time(std::min(until, next_call())))
            return;
    }
}

// --- time -----------------------------------------------------------------------------------------------------------------------

void simulated_world::after(std::chrono::nanoseconds span, std::function<void()> what) {
    outside_event event{now + std::max(span, std::chrono::nanoseconds(0)), outside_count_++, std::move(what)};
    const auto place =
        std::upper_bound(outside_.begin(), outside_.end(), event,
                         [](const outside_event& a, const outside_event& b) { return a.at < b.at; });
    outside_.insert(place, std::move(event));
}

void simulated_world::outside_step(std::size_t which) {
    const outside_event event = std::move(outside_[which]);
    outside_.erase(outside_.begin() + static_cast<std::ptrdiff_t>(which));
    record(trace_kind::outside, event.number);
    event.what();
}

simulated_world::time_point simulated_world::next_arrival() const noexcept {
    time_point next = never;
    for (const simulated_driver* driver : drivers_)
        next = std::min(next, driver->next_arrival());
    return next;
}

bool simulated_world::pass_time(time_point until) {
    if (!outside_.empty() && outside_.front().at <= until) {
        now = std::max(now, outside_.front().at);
        outside_step(0);
        return true;
    }
    if (until == never)
        return false;
    now = std::max(now, until);
    record(trace_kind::passage, nanoseconds_of(now));
    return true;
}

bool simulated_world::advance_clock() {
    time_point next = next_arrival();
    const bool quiet = next == never && !workers.starting();
    next = std::min(next, workers.next_call());
    for (const auto& t : threads_) {
        if (t->asleep)
            next = std::min(next, t->until);
    }
    if (!outside_.empty())
        next = std::min(next, outside_.front().at);
    if (quiet) {
        for (const auto& what : quiet_)
            what();
    }
    if (next == never)
        return false;
    now = std::max(now, next);
    record(trace_kind::passage, nanoseconds_of(now));
    return true;
}

// --- steps ----------------------------------------------------------------------------------------------------------------------

bool simulated_world::awake(const thread& t) const noexcept {
    return !t.asleep || t.waits->woken() || t.until <= now || t.waits->signalled();
}

bool simulated_world::all_idle() const noexcept {
    return std::all_of(threads_.begin(), threads_.end(), [](const std::unique_ptr<thread>& t) {
        const loop_stepper stepper(t->runs->get_loop());
        return stepper.idle() && (t->asleep ? !t->waits->woken() : !stepper.posted());
    });
}

void simulated_world::step_of(std::size_t index) {
    thread& t = *threads_[index];
    loop_stepper stepper(t.runs->get_loop());
    if (std::exchange(t.asleep, false)) {
        (void)t.waits->take_wake();
        t.looked = false;
    }
    const std::size_t ready = stepper.ready(options.any_order ? choice_window : 1);
    const bool turn =
        ready != 0 && (options.any_order ? random(choice_window) != 0 : t.turns < loop::resumptions_per_look);
    if (turn) {
        const std::size_t which = options.any_order ? static_cast<std::size_t>(random(ready)) : 0;
        record(trace_kind::turn, index, which, ready);
        now += options.turn_time;
        ++t.turns;
        t.looked = false;
        stepper.turn(which);
    } else if (ready != 0 || !t.looked) {
        record(trace_kind::look, index);
        t.turns = 0;
        t.looked = true;
        stepper.look();
    } else {
        // As a loop does: it has looked, nothing is ready, it sleeps. What others do in between, they do in steps of theirs.
        t.looked = false;
        t.until = never;
        t.asleep = stepper.may_sleep(t.until);
        if (t.asleep) {
            record(trace_kind::sleep, index, nanoseconds_of(t.until));
            t.waits->submit();
        }
    }
}

bool simulated_world::step() {
    candidates_.clear();
    for (std::size_t i = 0; i < threads_.size(); ++i) {
        if (awake(*threads_[i]))
            candidates_.push_back(i);
    }
    const bool outside_due = !outside_.empty() && outside_.front().at <= now;
    const std::size_t at_work = workers.runnable();
    const std::size_t options_count = candidates_.size() + at_work + (outside_due ? 1 : 0);
    if (options_count == 0)
        return advance_clock();
    ++steps;
    if (candidates_.size() != threads_.size() && faults.of(fault::interrupted) > 0) {
        // A signal ends a sleep early, and nothing is there.
        for (auto& each : threads_) {
            if (each->asleep && strikes(fault::interrupted))
                each->until = now;
        }
    }
    const std::size_t pick = options.any_order ? static_cast<std::size_t>(random(options_count))
                                               : static_cast<std::size_t>(steps % options_count);
    if (pick < candidates_.size())
        step_of(candidates_[pick]);
    else if (pick < candidates_.size() + at_work)
        workers.step(pick - candidates_.size());
    else
        outside_step(0);
    return true;
}

int simulated_world::run() {
    if (std::exchange(running_, true))
        return EPERM;
    const std::uint64_t last = options.steps_max == 0 ? ~std::uint64_t{0} : steps + options.steps_max;
    int error = 0;
    while (error == 0 && !all_idle()) {
        if (steps >= last)
            error = ETIMEDOUT;
        else if (!step())
            error = EDEADLK;
    }
    running_ = false;
    if (error != 0 && options.explain) {
        std::fprintf(stderr,
                     "nowait simulation, seed %" PRIu64 ": %s after %" PRIu64
                     " steps, at +%.6f s. Waiting:\n%s",
                     options.seed, error == EDEADLK ? "nothing can happen any more" : "no end in sight",
                     steps, std::chrono::duration<double>(now - start_of_time).count(), waiting().c_str());
    }
    return error;
}

} // namespace detail

// --- the public face ------------------------------------------------------------------------------------------------------------

const char* to_string(fault kind) noexcept {
    switch (kind) {
    case fault::again:
        return "again";
    case fault::interrupted:
        return "interrupted";
    case fault::short_transfer:
        return "short_transfer";
    case fault::late_event:
        return "late_event";
    case fault::cancel_race:
        return "cancel_race";
    case fault::overflow:
        return "overflow";
    case fault::refused_ring:
        return "refused_ring";
    case fault::broken_pipe:
        return "broken_pipe";
    case fault::no_memory:
        return "no_memory";
    case fault::no_descriptor:
        return "no_descriptor";
    case fault::no_thread:
        return "no_thread";
    case fault::not_in_cache:
        return "not_in_cache";
    }
    return "";
}

simulation::simulation(simulation_options options)
    : world_(std::make_unique<detail::simulated_world>(options)) {}
simulation::~simulation() = default;

result<void> simulation::run() {
    if (const int error = world_->run(); error != 0)
        return fail_errno(error);
    return {};
}

void simulation::end() noexcept {
    world_->end();
}
runtime& simulation::first_runtime() noexcept {
    return world_->runtime_at(0);
}
runtime& simulation::add_runtime() {
    return world_->add_runtime();
}
std::size_t simulation::runtimes() const noexcept {
    return world_->runtimes();
}
std::chrono::steady_clock::time_point simulation::now() const noexcept {
    return world_->now;
}
std::chrono::nanoseconds simulation::elapsed() const noexcept {
    return world_->now - detail::simulated_world::start_of_time;
}
void simulation::after(std::chrono::nanoseconds span, std::function<void()> what) {
    world_->after(span, std::move(what));
}
void simulation::when_quiet(std::function<void()> what) {
    world_->when_quiet(std::move(what));
}
fault_schedule& simulation::faults() noexcept {
    return world_->faults;
}
std::uint64_t simulation::happened(fault kind) const noexcept {
    return world_->happened[static_cast<std::size_t>(kind)];
}
std::uint64_t simulation::seed() const noexcept {
    return world_->options.seed;
}
std::uint64_t simulation::random(std::uint64_t bound) noexcept {
    return world_->random(bound);
}
std::uint64_t simulation::steps() const noexcept {
    return world_->steps;
}
std::uint64_t simulation::events() const noexcept {
    return world_->events;
}
std::uint64_t simulation::trace_hash() const noexcept {
    return world_->hash;
}
void simulation::note(std::uint64_t word) noexcept {
    world_->record(detail::trace_kind::note, word);
}
std::string simulation::trace(std::size_t lines) const {
    return world_->trace(lines);
}
std::string simulation::waiting() const {
    return world_->waiting();
}
std::size_t simulation::open_descriptors() const noexcept {
    return world_->kernel.open_descriptors();
}
detail::system& simulation::system() noexcept {
    return world_->kernel;
}
runtime_options simulation::options() {
    return world_->options_for_runtime();
}

std::optional<std::uint64_t> first_failing_seed(std::uint64_t count, simulation_options options,
                                                const std::function<bool(simulation&)>& passes) {
    if (const char* asked = std::getenv("NOWAIT_SIMULATION_SEED"); asked != nullptr && *asked != '\0') {
        options.seed = std::strtoull(asked, nullptr, 10);
        count = 1;
    }
    for (; count != 0; --count, ++options.seed) {
        simulation sim(options);
        const auto tell = [&] {
            std::fprintf(stderr,
                         "nowait simulation: seed %" PRIu64
                         " fails (run it alone with NOWAIT_SIMULATION_SEED=%" PRIu64
                         "). Its last events:\n%s",
                         options.seed, options.seed, sim.trace(24).c_str());
        };
        bool passed = false;
        try {
            passed = passes(sim);
        } catch (...) {
            tell();
            throw;
        }
        if (!passed) {
            tell();
            return options.seed;
        }
    }
    return std::nullopt;
}

NOWAIT_END_NAMESPACE
