#include "run.hpp"
#include "runtime/simulated_driver.hpp"

#include <nowait/stats.hpp>

namespace nowait_test::programs {

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

/// Every operation was counted, once, as what it was. One that was put off because the turn had spent its budget is an exception:
/// its actor sees that it waited, and it may have ended at once when it was run, or failed.
void run::check_counters() {
    using nowait::operation_kind;
    for (std::size_t k = 0; k < nowait::operation_kinds; ++k) {
        const auto kind = static_cast<operation_kind>(k);
        nowait::operation_stats counted;
        for (std::size_t i = 0; i < sim_.runtimes(); ++i) {
            const auto stats = sim_.world().runtime_at(i).stats();
            counted.inline_completions += stats.of(kind).inline_completions;
            counted.armed += stats.of(kind).armed;
            counted.punted += stats.of(kind).punted;
            counted.budget_yields += stats.of(kind).budget_yields;
        }
        const tally& known = book_.of_kind(kind);
        const auto expect = [&](const char* what, std::uint64_t is, std::uint64_t least, std::uint64_t most) {
            if (is < least || is > most)
                complain("counters: of " + std::string(to_string(kind)) + " operations, " +
                         std::to_string(is) + " are said to have " + what + ", and there were " +
                         std::to_string(least) + (most != least ? " to " + std::to_string(most) : ""));
        };
        const auto less = [&](std::uint64_t n) { return n - std::min(n, counted.budget_yields); };
        const bool in_pool = kind == operation_kind::blocking;
        const std::uint64_t waited = in_pool ? 0 : known.waited;
        expect("ended at once", counted.inline_completions, known.at_once,
               known.at_once + known.one_of_both + counted.budget_yields);
        expect("waited", counted.armed, less(waited), waited + known.one_of_both + known.perhaps);
        expect("ended at once or waited", counted.inline_completions + counted.armed,
               known.at_once + less(waited + known.one_of_both),
               known.at_once + waited + known.one_of_both + known.perhaps);
        if (in_pool)
            expect("gone to the pool", counted.punted, known.waited, known.waited);
    }
}

void run::check_file(actor_state& me) {
    if (me.file == nullptr)
        return;
    const std::string& holds = static_cast<const nowait::detail::simulated_file&>(*me.file).bytes;
    if (all_bytes(me.file_puts) != holds)
        complain("a file holds other bytes than were written to it");
    if (const std::string got = all_bytes(me.file_takes); holds.compare(0, got.size(), got) != 0)
        complain("a file gives other bytes than it holds");
}

void run::check_let_go(const void* data, std::size_t size) {
    for (std::size_t i = 0; i < sim_.runtimes(); ++i) {
        const auto& driver = static_cast<const nowait::detail::simulated_driver&>(
            sim_.world().runtime_at(i).get_loop().waits());
        if (driver.works_on(data, size))
            complain("a driver works on a buffer whose operation has ended");
    }
}

} // namespace nowait_test::programs
