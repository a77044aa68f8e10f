// Random programs: a few actors with a list of steps each, on a few objects. Made from a seed, run in a simulation, checked
// against a model, and shrunk if they fail.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nowait_test::programs {

enum class object_kind : std::uint8_t { pipe_channel, kernel_pipe, channel, queue, posix_queue };

struct object_spec {
    object_kind kind = object_kind::pipe_channel;
    std::uint32_t capacity = 1; ///< pages, or messages
    /// Of a pipe channel: each actor has ends of its own, that go with it. Of a POSIX queue: who waits to receive has a worker that
    /// is blocked in the call.
    bool own_ends = false;
};

enum class step_kind : std::uint8_t {
    put,        ///< writes or sends, and waits for room
    take,       ///< reads or receives, and waits
    try_put,    ///< without waiting
    try_take,   ///< likewise
    sleep,      ///< virtual time
    yield,      ///<
    stop,       ///< asks what another actor waits for to stop
    close_in,   ///< closes the end that is written to
    close_out,  ///< closes the end that is read from
    resize,     ///< of a pipe
    nest,       ///< the steps that follow are those of a child task
    splice,     ///< from one object to another of its kind, and waits for bytes and for room
    job,        ///< something for the worker pool
    race,       ///< a take and a put of the same object: the first of them stops the other
    scope,      ///< the next two steps at once, in a nursery
    move,       ///< the next step is done by a child task on another runtime
    file_write, ///< to a file of the actor's own
    file_read
};

enum class bound_kind : std::uint8_t { none, timeout, token, source };

/// A step that stops every actor.
constexpr std::uint8_t every_actor = 255;

struct step {
    step_kind kind = step_kind::yield;
    std::uint8_t object = 0;
    std::uint8_t target = 0; ///< of a splice
    std::uint8_t actor = 0;
    bound_kind bound = bound_kind::none;
    std::uint16_t size = 1; ///< bytes
    std::uint16_t time = 0; ///< microseconds
    std::uint16_t priority = 0;
};

struct actor {
    std::uint8_t runtime = 0;
    std::vector<step> steps;
};

struct program {
    std::uint64_t seed = 1;
    std::uint8_t runtimes = 1;
    bool any_order = true;
    double faults = 0;           ///< rate of those that are not to be noticed
    double breakage = 0;         ///< rate of broken pipes
    double poverty = 0;          ///< rate of refused memory and threads
    std::uint32_t stop_at = 0;   ///< microseconds after which every runtime is asked to stop; 0: never
    std::uint32_t cut_after = 0; ///< steps after which the runtimes are destroyed as they are; 0: never
    int budget = 1 << 20;        ///< a small one changes the order in which operations begin
    std::vector<object_spec> objects;
    std::vector<actor> actors;
};

/// Makes a program.
[[nodiscard]] program make_program(std::uint64_t seed);

/// As text, a line for each step.
[[nodiscard]] std::string describe(const program& p);

class stream_object;
class message_object;
[[nodiscard]] stream_object* make_pipe_channel(std::uint32_t pages);
[[nodiscard]] message_object* make_channel(std::uint32_t messages);
[[nodiscard]] message_object* make_queue(std::uint32_t messages);

/// How the channels of a run are made: the library's, unless the suite is to be tested with broken ones.
struct object_factories {
    stream_object* (*pipe_channel)(std::uint32_t pages) = &make_pipe_channel;
    message_object* (*channel)(std::uint32_t messages) = &make_channel;
    message_object* (*queue)(std::uint32_t messages) = &make_queue;
};

struct verdict {
    std::string failure; ///< empty: all is well
    std::string trace;
    std::uint64_t hash = 0;
    std::uint64_t events = 0;
};

/// Runs a program in a simulation and checks it against the model.
[[nodiscard]] verdict run_program(const program& p, const object_factories& make = {});

/// A shorter program that fails too, with whichever seed of a few.
[[nodiscard]] program shrink(program failing, const object_factories& make = {});

} // namespace nowait_test::programs
