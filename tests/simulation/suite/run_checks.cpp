#include "run.hpp"
#include "runtime/simulated_driver.hpp"
#include "runtime/worker_pool_state.hpp"

#include <nowait/stats.hpp>

#include <algorithm>
#include <utility>

namespace nowait_test::programs {

using nowait::operation_kind;

void run::note_code(int code) {
    sim_.note(static_cast<std::uint64_t>(code));
    switch (code) {
    case 0:
    case ECANCELED:
    case ETIMEDOUT:
    case EPIPE:
    case EBADF:
        return;
    case ENOMEM:
    case ENOSPC:
        if (program_.poverty > 0)
            return;
        [[fallthrough]];
    default:
        complain("an operation ends with " + std::generic_category().message(code));
    }
}

void run::look_around() {
    if (!look_around_)
        return;
    for (std::size_t i = 0; i < objects_.size(); ++i) {
        object_state& o = objects_[i];
        std::string wrong;
        if (o.stream != nullptr)
            wrong = o.stream->check(o.taking, o.putting, splicing_);
        else if (o.messages != nullptr)
            wrong = o.messages->check(o.taking, o.putting, racing_);
        if (!wrong.empty())
            complain("object " + std::to_string(i) + ", " + wrong);
    }
}

void run::check_end() {
    check_histories();
    look_around();
    check_counters();
    objects_.clear();
    if (frames_ != 0)
        complain(std::to_string(frames_) + " tasks have not ended");
    if (parcels_ != 0)
        complain(std::to_string(parcels_) + " messages too many are left");
    // Closing may still be under way: it ends with the next looks of the runtimes.
    if (auto ran = sim_.run(); !ran)
        complain("closing does not end");
    if (sim_.open_descriptors() != 0)
        complain(std::to_string(sim_.open_descriptors()) + " descriptors are left open");
    for (std::size_t i = 0; i < sim_.runtimes(); ++i) {
        if (sim_.world().runtime_at(i).get_loop().waits().pending() != 0)
            complain("a driver still holds something");
    }
}

void run::check_cut() {
    look_around_ = false;
    sim_.end();
    acting_.clear();
    objects_.clear();
    for (actor_state& a : states_) {
        a.file_in = {};
        a.file_out = {};
    }
    if (frames_ != 0)
        complain(std::to_string(frames_) + " tasks are left of what was destroyed");
    if (parcels_ != 0)
        complain(std::to_string(parcels_) + " messages are left of what was destroyed");
    if (sim_.open_descriptors() != 0)
        complain(std::to_string(sim_.open_descriptors()) + " descriptors are left of what was destroyed");
}

void run::check_histories() {
    std::vector<const history*> streams;
    for (std::size_t i = 0; i < objects_.size(); ++i) {
        object_state& o = objects_[i];
        std::string wrong;
        if (o.messages != nullptr) {
            wrong = check_messages(o, o.spec.kind != object_kind::channel, exact());
        } else {
            streams.push_back(&o);
            wrong = check_stream(o, exact() || o.spec.kind != object_kind::pipe_channel);
        }
        if (!wrong.empty())
            complain("object " + std::to_string(i) + ", " + wrong);
        if (o.putting != 0 || o.taking != 0)
            complain("object " + std::to_string(i) + ": an operation has not ended");
    }
    if (const std::string wrong = check_spliced(streams); !wrong.empty())
        complain(wrong);
}

// --- counters -----------------------------------------------------------------------------------------------------------

void run::check_counters() {
    check_operations();
    check_attempts();
    check_jobs();
}

nowait::operation_stats run::counted(operation_kind kind) {
    nowait::operation_stats sum;
    for (std::size_t i = 0; i < sim_.runtimes(); ++i) {
        const nowait::operation_stats of = sim_.world().runtime_at(i).stats().of(kind);
        sum.inline_completions += of.inline_completions;
        sum.armed += of.armed;
        sum.punted += of.punted;
        sum.nowait_misses += of.nowait_misses;
        sum.budget_yields += of.budget_yields;
    }
    return sum;
}

void run::expect(const std::string& what, std::uint64_t counted, std::uint64_t least, std::uint64_t most) {
    if (counted < least || counted > most)
        complain("counters: " + what + ": " + std::to_string(counted) + " are counted, and there were " +
                 std::to_string(least) + (most != least ? " to " + std::to_string(most) : ""));
}

/// Every operation was counted, once, as what it was. One that was put off because the turn had spent its budget is an exception:
/// its actor sees that it waited, and it may have ended at once when it was run, or failed.
void run::check_operations() {
    for (std::size_t k = 0; k < nowait::operation_kinds; ++k) {
        const auto kind = static_cast<operation_kind>(k);
        const std::string name(to_string(kind));
        const nowait::operation_stats is = counted(kind);
        const tally& known = book_.of_kind(kind);
        const auto less = [&](std::uint64_t n) { return n - std::min(n, is.budget_yields); };
        const bool in_pool = kind == operation_kind::blocking;
        const std::uint64_t waited = in_pool ? 0 : known.waited;
        expect(name + " that ended at once", is.inline_completions, known.at_once,
               known.at_once + known.one_of_both + is.budget_yields);
        expect(name + " that waited", is.armed, less(waited), waited + known.one_of_both + known.perhaps);
        expect(name + " that ended at once or waited", is.inline_completions + is.armed,
               known.at_once + less(waited + known.one_of_both),
               known.at_once + waited + known.one_of_both + known.perhaps);
        if (in_pool)
            expect(name + " that went to the pool", is.punted, known.waited,
                   known.waited + counted(operation_kind::queue_receive).punted); // receivers are jobs, too
    }
}

/// Every attempt that found nothing was counted, once. An attempt to splice is made again at once if it finds nothing in spite of
/// data and room, which only a fault brings about.
void run::check_attempts() {
    using nowait::detail::simulated_system;
    using call = simulated_system::call;
    static constexpr std::pair<operation_kind, call> same[] = {
        {operation_kind::read, call::read},
        {operation_kind::write, call::write},
        {operation_kind::splice, call::splice},
        {operation_kind::queue_send, call::send},
        {operation_kind::queue_receive, call::receive}};
    for (const auto& [kind, what] : same) {
        const std::uint64_t misses = sim_.world().kernel.would_block(what) - book_.of_kind(kind).try_misses;
        expect(std::string(to_string(kind)) + " attempts that found nothing", counted(kind).nowait_misses,
               kind == operation_kind::splice && program_.faults > 0 ? 0 : misses, misses);
    }
}

/// What was given to the pools has been run, or taken back, or has failed.
void run::check_jobs() {
    std::uint64_t submitted = 0;
    std::uint64_t taken = 0;
    for (std::size_t i = 0; i < sim_.runtimes(); ++i) {
        auto* const pool = sim_.world().runtime_at(i).get_loop().pool;
        if (pool == nullptr)
            continue;
        for (const auto account : {nowait::work_account::bounded, nowait::work_account::unbounded}) {
            const auto is = pool->numbers(account);
            expect("jobs that were submitted", is.submitted, is.taken + is.cancelled + is.failed,
                   is.taken + is.cancelled + is.failed);
            submitted += is.submitted;
            taken += is.taken;
        }
    }
    const std::uint64_t given = counted(operation_kind::blocking).punted;
    const std::uint64_t receivers = counted(operation_kind::queue_receive).punted;
    expect("jobs that were submitted", submitted, given, given);
    expect("jobs that were run", taken, jobs_run_, jobs_run_ + receivers);
}

// --- memory -------------------------------------------------------------------------------------------------------------

void run::check_file(actor_state& me) {
    if (me.file == nullptr)
        return;
    const std::string& holds = static_cast<const nowait::detail::simulated_file&>(*me.file).bytes;
    if (all_bytes(me.file_puts) != holds)
        complain("a file holds other bytes than were written to it");
    if (const std::string got = all_bytes(me.file_takes); holds.compare(0, got.size(), got) != 0)
        complain("a file gives other bytes than it holds");
}

bool run::check_let_go(const void* data, std::size_t size) {
    for (std::size_t i = 0; i < sim_.runtimes(); ++i) {
        const auto& driver = static_cast<const nowait::detail::simulated_driver&>(
            sim_.world().runtime_at(i).get_loop().waits());
        if (driver.works_on(data, size)) {
            complain("a driver works on a buffer whose operation has ended");
            return false;
        }
    }
    return true;
}

} // namespace nowait_test::programs
