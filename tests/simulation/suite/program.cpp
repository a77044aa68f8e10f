#include "program.hpp"

#include <iterator>
#include <random>
#include <sstream>

namespace nowait_test::programs {

namespace {

/// Not of <random>'s distributions, which differ between libraries.
class chance {
public:
    explicit chance(std::uint64_t seed) : engine_(seed) {}
    std::uint64_t below(std::uint64_t bound) { return engine_() % bound; }
    bool one_in(std::uint64_t n) { return below(n) == 0; }

private:
    std::mt19937_64 engine_;
};

std::uint16_t some_size(chance& c) {
    switch (c.below(8)) {
    case 0:
        return 4096; // fills a page
    case 1:
        return static_cast<std::uint16_t>(4097 + c.below(9000)); // may be short
    case 2:
        return static_cast<std::uint16_t>(1 + c.below(4096));
    default:
        return static_cast<std::uint16_t>(1 + c.below(64));
    }
}

step some_step(chance& c, const program& p, std::size_t self) {
    step s;
    s.object = static_cast<std::uint8_t>(c.below(p.objects.size()));
    s.target = static_cast<std::uint8_t>(c.below(p.objects.size()));
    s.actor = static_cast<std::uint8_t>(c.below(p.actors.size()));
    s.size = some_size(c);
    s.time = static_cast<std::uint16_t>(c.below(300));
    s.priority = static_cast<std::uint16_t>(c.below(3));
    const bool puts = (self % 2 == 0) != c.one_in(4); // most are either producers or consumers
    switch (c.below(24)) {
    case 23:
        s.kind = step_kind::move;
        break;
    case 16:
        s.kind = step_kind::nest;
        break;
    case 17:
        s.kind = step_kind::splice;
        break;
    case 18:
        s.kind = step_kind::job;
        break;
    case 19:
        s.kind = step_kind::file_write;
        break;
    case 20:
        s.kind = step_kind::file_read;
        break;
    case 21:
        s.kind = step_kind::race;
        break;
    case 22:
        s.kind = step_kind::scope;
        break;
    case 0:
        s.kind = step_kind::sleep;
        break;
    case 1:
        s.kind = step_kind::yield;
        break;
    case 2:
    case 3:
        s.kind = step_kind::stop;
        break;
    case 4:
        s.kind = c.one_in(3) ? (puts ? step_kind::close_in : step_kind::close_out) : step_kind::yield;
        break;
    case 5:
        s.kind = step_kind::resize;
        break;
    case 6:
        s.kind = puts ? step_kind::try_put : step_kind::try_take;
        break;
    default:
        s.kind = puts ? step_kind::put : step_kind::take;
    }
    if (c.below(3) != 0)
        s.bound = static_cast<bound_kind>(1 + c.below(3));
    return s;
}

void describe_bound(std::ostream& out, const step& s) {
    static constexpr const char* bounds[] = {"", ", with a time-out of ", ", until a token stops it",
                                             ", until a source stops it"};
    out << bounds[static_cast<int>(s.bound)];
    if (s.bound == bound_kind::timeout)
        out << s.time << " us";
}

} // namespace

program make_program(std::uint64_t seed) {
    chance c(seed * 0x9e3779b97f4a7c15u + 1);
    program p;
    p.seed = seed;
    p.runtimes = static_cast<std::uint8_t>(1 + c.below(2));
    p.any_order = !c.one_in(5);
    p.faults = c.one_in(2) ? 0 : 0.02 * static_cast<double>(1 + c.below(10));
    p.breakage = c.one_in(4) ? 0.01 * static_cast<double>(1 + c.below(5)) : 0;
    p.poverty = c.one_in(6) ? 0.01 * static_cast<double>(1 + c.below(5)) : 0;
    if (c.one_in(12))
        p.stop_at = static_cast<std::uint32_t>(1 + c.below(500));
    else if (c.one_in(12))
        p.cut_after = static_cast<std::uint32_t>(1 + c.below(200));
    if (c.one_in(4))
        p.budget = static_cast<int>(1 + c.below(3));
    p.objects.resize(1 + c.below(3));
    for (object_spec& o : p.objects) {
        o.kind = static_cast<object_kind>(c.below(5));
        o.capacity = static_cast<std::uint32_t>(c.below(4));
        o.own_ends = c.one_in(2);
    }
    p.actors.resize(2 + c.below(6));
    const std::uint64_t most_steps = c.one_in(10) ? 120 : 20;
    for (std::size_t i = 0; i < p.actors.size(); ++i) {
        p.actors[i].runtime = static_cast<std::uint8_t>(c.below(p.runtimes));
        const std::size_t steps = 1 + c.below(most_steps);
        for (std::size_t k = 0; k < steps; ++k) {
            p.actors[i].steps.push_back(some_step(c, p, i));
            // A stop in the same turn as what may have served the one who is stopped.
            if (const step s = p.actors[i].steps.back(); s.kind <= step_kind::try_take && c.one_in(4)) {
                p.actors[i].steps.push_back({});
                p.actors[i].steps.back().kind = step_kind::stop;
                p.actors[i].steps.back().actor = every_actor;
            }
        }
    }
    return p;
}

std::string describe(const program& p) {
    static constexpr const char* objects[] = {"pipe channel", "kernel pipe", "channel", "queue",
                                              "posix queue"};
    static constexpr const char* kinds[] = {"put",
                                            "take",
                                            "try put",
                                            "try take",
                                            "sleep",
                                            "yield",
                                            "stop",
                                            "close in",
                                            "close out",
                                            "resize",
                                            "nest",
                                            "splice",
                                            "job",
                                            "race",
                                            "scope",
                                            "move",
                                            "write to its file",
                                            "read from its file"};
    static_assert(std::size(kinds) == static_cast<std::size_t>(step_kind::file_read) + 1);
    std::ostringstream out;
    out << "seed " << p.seed << ", " << int{p.runtimes} << " runtimes, " << (p.any_order ? "any" : "fixed")
        << " order, "
        << "faults " << p.faults << ", breakage " << p.breakage << ", poverty " << p.poverty << ", budget "
        << p.budget << '\n';
    if (p.stop_at != 0)
        out << "  stopped after " << p.stop_at << " us\n";
    if (p.cut_after != 0)
        out << "  destroyed after " << p.cut_after << " steps\n";
    for (std::size_t i = 0; i < p.objects.size(); ++i) {
        out << "  object " << i << ": " << objects[static_cast<int>(p.objects[i].kind)] << ", capacity "
            << p.objects[i].capacity
            << (p.objects[i].own_ends ? ", each actor has its own ends, or a receiver of its own\n" : "\n");
    }
    for (std::size_t i = 0; i < p.actors.size(); ++i) {
        out << "  actor " << i << " on runtime " << int{p.actors[i].runtime} << '\n';
        for (const step& s : p.actors[i].steps) {
            out << "    " << kinds[static_cast<int>(s.kind)];
            switch (s.kind) {
            case step_kind::sleep:
                out << ' ' << s.time << " us";
                break;
            case step_kind::yield:
            case step_kind::nest:
            case step_kind::move:
                break;
            case step_kind::scope:
                describe_bound(out, s);
                break;
            case step_kind::job:
                describe_bound(out, s);
                break;
            case step_kind::file_write:
            case step_kind::file_read:
                out << ", " << s.size << " bytes";
                describe_bound(out, s);
                break;
            case step_kind::splice:
                out << " object " << int{s.object} << " to " << int{s.target} << ", " << s.size << " bytes";
                describe_bound(out, s);
                break;
            case step_kind::stop:
                if (s.actor == every_actor)
                    out << " everybody";
                else
                    out << " actor " << int{s.actor};
                break;
            default:
                out << " object " << int{s.object};
                if (s.kind <= step_kind::try_take || s.kind == step_kind::race)
                    out << ", " << s.size << " bytes, priority " << s.priority;
                if (s.kind <= step_kind::take || s.kind == step_kind::race)
                    describe_bound(out, s);
            }
            out << '\n';
        }
    }
    return out.str();
}

} // namespace nowait_test::programs
