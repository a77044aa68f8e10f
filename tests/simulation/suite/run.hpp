// One run of a random program: the objects, the actors, and what is written down about them.
//
//   program.hpp         what a program is; program.cpp makes and prints it, shrink.cpp makes it shorter
//   stream_objects.hpp, message_objects.hpp, kernel_objects.hpp
//                       what the actors work on
//   ledger.hpp          counts the operations, as the runtimes do
//   history.hpp         the model: what was put in comes out
//   run.cpp             sets up, starts the actors, winds up
//   run_steps.cpp       what an actor does in each step
//   run_checks.cpp      what has to hold in quiet moments and at the end
#pragma once

#include "history.hpp"
#include "ledger.hpp"
#include "message_objects.hpp"
#include "program.hpp"
#include "runtime/simulated_world.hpp"
#include "stream_objects.hpp"

#include <nowait/nowait.hpp>
#include <nowait/simulation.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace nowait_test::programs {

struct object_state : history {
    object_spec spec;
    std::unique_ptr<stream_object> stream;
    std::unique_ptr<message_object> messages;
    std::size_t putting = 0, taking = 0; ///< operations that have begun and not ended

    [[nodiscard]] bool of_kernel() const noexcept {
        return spec.kind == object_kind::kernel_pipe || spec.kind == object_kind::posix_queue;
    }
    [[nodiscard]] bool has_own_ends() const noexcept {
        return spec.own_ends && spec.kind == object_kind::pipe_channel;
    }
};

struct actor_state {
    std::optional<std::stop_source> token;
    struct source {
        std::unique_ptr<nowait::inplace_stop_source> stop = std::make_unique<nowait::inplace_stop_source>();
        const nowait::detail::loop* on = nowait::detail::loop::current();
    };
    std::vector<source> sources; // the last is the present one
    // The actor's own file, and what was written and read for certain.
    nowait::pipe_writer file_in;
    nowait::pipe_reader file_out;
    std::shared_ptr<nowait::detail::simulated_object> file;
    std::vector<history_entry> file_puts, file_takes;
};

/// Refuses memory for pages now and then.
class page_gate {
public:
    explicit page_gate(nowait::simulation& sim) : sim_(sim) {}
    ~page_gate() { open(false); }
    page_gate(const page_gate&) = delete;
    page_gate& operator=(const page_gate&) = delete;
    void open(bool refuses) {
        nowait::detail::page_pool::of_this_thread().set_gate(refuses ? &grants : nullptr, this);
    }

private:
    static bool grants(void* self) noexcept {
        auto& world = static_cast<page_gate*>(self)->sim_.world();
        return !world.strikes(nowait::fault::no_memory);
    }
    nowait::simulation& sim_;
};

/// In every frame of a run: how many there are.
class living {
public:
    explicit living(int& count) noexcept : count_(count) { ++count_; }
    ~living() { --count_; }
    living(const living&) = delete;
    living& operator=(const living&) = delete;

private:
    int& count_;
};

class run {
public:
    run(const program& p, const object_factories& make);
    // The frames that use the objects go first, with their runtimes.
    ~run() { sim_.end(); }
    run(const run&) = delete;
    run& operator=(const run&) = delete;

    verdict go();

private:
    template <class T>
    using task = nowait::task<T>;

    // --- run.cpp ---------------------------------------------------------------------------------------------------------

    static nowait::simulation_options options_for(const program& p);
    void make_channel(std::size_t i, const object_factories& make);
    /// The whole program, on the first runtime.
    task<void> whole();
    /// Closes the side that is written to, takes what is left, closes the other side.
    task<void> wind_up(object_state& o);
    task<void> wind_up_stream(object_state& o);
    task<void> wind_up_messages(object_state& o);

    // --- run_steps.cpp ---------------------------------------------------------------------------------------------------

    task<void> act(std::size_t self);
    task<void> act_from(std::size_t self, std::size_t first);
    task<void> act_once(const step& s, std::size_t self);
    task<void> act_on(object_state& o, const step& s, std::size_t self);
    task<void> act_at_once(object_state& o, const step& s, std::size_t self);
    /// One step on the last runtime; whoever awaits this goes on where he was.
    task<void> elsewhere(const step& s, std::size_t self);
    /// The next two steps, at once. When the scope is left they have ended, stopped or not.
    task<void> scope(const step& s, std::size_t self, std::size_t at);
    /// A job runs once, or never: and never if the await says that it was stopped.
    task<void> job(const step& s, std::size_t self);
    /// Files belong to the first runtime. Writes and reads that the driver performs where the bytes are not in memory.
    task<void> file(const step& s, std::size_t self);
    [[nodiscard]] bool open_file(std::size_t self);
    task<void> pause(std::chrono::nanoseconds span);
    task<void> let_others();

    task<void> write(object_state& o, const step& s, std::size_t self);
    task<void> read(object_state& o, const step& s, std::size_t self);
    task<void> splice(object_state& from, const step& s, std::size_t self);
    task<void> send(object_state& o, const step& s, std::size_t self);
    task<void> receive(object_state& o, const step& s, std::size_t self);
    task<void> race(object_state& o, const step& s, std::size_t self);
    void try_step(object_state& o, const step& s, std::size_t self);
    void try_once(object_state& o, const step& s, std::size_t self);
    void stop(std::size_t whom);
    static void close_messages(object_state& o);

    /// The object of a step; those of the kernel belong to the first runtime.
    [[nodiscard]] object_state* object_of(const step& s);
    [[nodiscard]] bound bound_of(const step& s, std::size_t self);
    [[nodiscard]] bool at_home();
    /// Bytes that nobody else writes: who, which, where.
    [[nodiscard]] std::string payload(std::size_t self, std::size_t size);

    // --- run_checks.cpp --------------------------------------------------------------------------------------------------

    void complain(const std::string& what) {
        if (failure_.empty())
            failure_ = what;
    }
    /// An operation has ended: with a code that it may end with.
    template <class Result>
    void note_end(const Result& ended) {
        note_code(ended ? 0 : ended.error().value());
    }
    void note_code(int code);
    /// Only time can change anything.
    void look_around();
    void check_end();
    /// The runtimes are destroyed with everything in flight: nothing may be left.
    void check_cut();
    void check_histories();
    void check_counters();
    void check_operations();
    void check_attempts();
    void check_jobs();
    [[nodiscard]] nowait::operation_stats counted(nowait::operation_kind kind);
    void expect(const std::string& what, std::uint64_t counted, std::uint64_t least, std::uint64_t most);
    void check_file(actor_state& me);
    /// The operation has ended: no driver works on its memory any more.
    [[nodiscard]] bool check_let_go(const void* data, std::size_t size);
    /// Of a file's buffer. If one does, the run has failed: what it works on stays until the end, so that nothing else breaks.
    void check_let_go(std::string& buffer) {
        if (!check_let_go(buffer.data(), buffer.size()))
            lent_.push_back(std::move(buffer));
    }
    /// With a small budget an operation may begin later than its turn came.
    [[nodiscard]] bool exact() const noexcept { return program_.budget > 1000; }

    const program& program_;
    std::vector<std::string> lent_; // outlives the drivers
    int parcels_ = 0;
    int frames_ = 0;
    std::uint64_t jobs_run_ = 0;
    nowait::simulation sim_;
    page_gate page_gate_{sim_};
    ledger book_{sim_};
    std::uint64_t payloads_ = 0;
    std::size_t splicing_ = 0;
    std::size_t racing_ = 0;
    bool look_around_ = true;
    std::string failure_;
    std::vector<actor_state> states_;
    std::vector<object_state> objects_;
    std::vector<nowait::join_handle<void>> acting_;
};

} // namespace nowait_test::programs
