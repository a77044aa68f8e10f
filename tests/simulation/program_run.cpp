// Runs a random program and checks it against the model.
//
// The model of a stream or a queue is its history: what was put into it, in the order in which the puts began, is what was taken
// from it, in the order in which the takes began. (That is more than "first in, first out": nobody overtakes, nobody starves,
// nothing is lost or doubled, and what ended without success has left no trace.) Of a queue this holds for each priority. At
// moments when only time can change anything, nobody may wait for what is there, and exactly those wait who have not been told
// otherwise.
#include "program_objects.hpp"
#include "runtime/simulated_driver.hpp"
#include "runtime/simulated_world.hpp"

#include <nowait/blocking.hpp>
#include <nowait/posix_mqueue.hpp>
#include <nowait/resume_on.hpp>
#include <nowait/runtime_pool.hpp>
#include <nowait/task_scope.hpp>
#include <nowait/when_any.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include <fcntl.h>

namespace nowait_test::programs {

namespace {

using namespace std::chrono_literals;
using nowait::result;
using nowait::simulation;
using nowait::task;

class kernel_pipe_object final : public stream_object {
public:
    kernel_pipe_object(nowait::pipe_pair made, simulation& sim) : ends_(std::move(made)), sim_(sim) {
        pipe_ = sim_.world().kernel.description_of(ends_.reader.native_handle())->of;
    }
    task<count_result> write(std::size_t, std::span<const std::byte> data, bound limit, sequence& numbers,
                             std::uint64_t& began) override {
        return perform(ends_.writer.write(data), std::move(limit), numbers, began);
    }
    task<count_result> read(std::size_t, std::span<std::byte> buffer, bound limit, sequence& numbers,
                            std::uint64_t& began) override {
        return perform(ends_.reader.read(buffer), std::move(limit), numbers, began);
    }
    task<count_result> splice(std::size_t, stream_object& to, std::size_t size, bound limit,
                              sequence& numbers) override {
        auto* const other = dynamic_cast<kernel_pipe_object*>(&to);
        if (other == nullptr)
            co_return nowait::fail(std::errc::invalid_argument);
        std::uint64_t began = 0;
        auto moved = co_await perform(nowait::splice(ends_.reader, other->ends_.writer, size),
                                      std::move(limit), numbers, began);
        co_return moved;
    }
    count_result try_write(std::size_t, std::span<const std::byte>) override {
        return nowait::fail(std::errc::resource_unavailable_try_again);
    }
    count_result try_read(std::size_t, std::span<std::byte>) override {
        return nowait::fail(std::errc::resource_unavailable_try_again);
    }
    void close_writer(std::size_t) override { (void)ends_.writer.close(); }
    void close_reader(std::size_t) override { (void)ends_.reader.close(); }
    void resize(std::size_t pages) override { (void)ends_.writer.set_capacity(pages * 4096); }
    std::string check(std::size_t readers, std::size_t writers, std::size_t) override {
        const auto& pipe = static_cast<const nowait::detail::simulated_pipe&>(*pipe_);
        if (readers != 0 && !pipe.ring.empty())
            return "kernel pipe: a read waits, and there are bytes";
        if (readers != 0 && (pipe.ring.writers() == 0 || pipe.broken))
            return "kernel pipe: a read waits at the end of the stream";
        if (writers != 0 && !pipe.ring.full())
            return "kernel pipe: a write waits, and there is room";
        if (writers != 0 && (pipe.ring.readers() == 0 || pipe.broken))
            return "kernel pipe: a write waits, and nobody will read";
        return {};
    }

private:
    nowait::pipe_pair ends_;
    simulation& sim_;
    std::shared_ptr<nowait::detail::simulated_object> pipe_;
};

/// A message that knows whether it is still there, and how many there are.
class parcel {
public:
    parcel() = default;
    parcel(std::uint64_t number, int& alive) : number_(number), alive_(&alive) { ++alive; }
    parcel(parcel&& other) noexcept
        : number_(std::exchange(other.number_, 0)), alive_(std::exchange(other.alive_, nullptr)) {}
    parcel& operator=(parcel&& other) noexcept {
        std::swap(number_, other.number_);
        std::swap(alive_, other.alive_);
        return *this;
    }
    ~parcel() {
        if (alive_ != nullptr)
            --*alive_;
    }
    [[nodiscard]] std::uint64_t number() const noexcept { return number_; }

private:
    std::uint64_t number_ = 0;
    int* alive_ = nullptr;
};

/// What a taken message was.
struct taken {
    std::uint64_t number = 0;
    unsigned priority = 0;
};

class message_object {
public:
    virtual ~message_object() = default;
    virtual task<result<void>> send(parcel& value, unsigned priority, bound limit, sequence& numbers,
                                    std::uint64_t& began) = 0;
    virtual task<result<taken>> receive(bound limit, sequence& numbers, std::uint64_t& began) = 0;
    /// A receive and a send in one when_any; `began` is of the receive, and the send begins next.
    virtual task<std::pair<result<taken>, result<void>>> race(parcel& value, unsigned priority, bound limit,
                                                              sequence& numbers, std::uint64_t& began) = 0;
    virtual result<void> try_send(parcel& value, unsigned priority) = 0;
    virtual result<taken> try_receive() = 0;
    virtual void close() = 0;
    /// What the winding up takes when no more can come: EAGAIN or EPIPE at the end.
    virtual task<result<taken>> drain(sequence& numbers, std::uint64_t& began) = 0;
    /// As stream_object::check; `races` wait on both sides, here or elsewhere.
    [[nodiscard]] virtual std::string check(std::size_t receivers, std::size_t senders,
                                            std::size_t races) = 0;
};

template <class Channel>
class message_channel_object final : public message_object {
public:
    static constexpr bool has_priorities = std::is_same_v<Channel, nowait::mqueue_channel<parcel>>;

    explicit message_channel_object(Channel made) : channel_(std::move(made)) {}

    task<result<void>> send(parcel& value, unsigned priority, bound limit, sequence& numbers,
                            std::uint64_t& began) override {
        if constexpr (has_priorities)
            return perform(channel_.send(value, priority), std::move(limit), numbers, began);
        else
            return perform(channel_.send(value), std::move(limit), numbers, began);
    }
    task<result<taken>> receive(bound limit, sequence& numbers, std::uint64_t& began) override {
        auto received = co_await perform(channel_.receive(), std::move(limit), numbers, began);
        if (!received)
            co_return nowait::fail(received.error());
        co_return opened(*received);
    }
    task<std::pair<result<taken>, result<void>>> race(parcel& value, unsigned priority, bound limit,
                                                      sequence& numbers, std::uint64_t& began) override {
        if constexpr (has_priorities) {
            auto both = nowait::when_any(nowait::biased, channel_.receive(), channel_.send(value, priority));
            co_return co_await settle(std::move(both), std::move(limit), numbers, began);
        } else {
            (void)priority;
            auto both = nowait::when_any(nowait::biased, channel_.receive(), channel_.send(value));
            co_return co_await settle(std::move(both), std::move(limit), numbers, began);
        }
    }
    task<result<taken>> drain(sequence& numbers, std::uint64_t& began) override {
        bound none;
        return receive(none, numbers, began);
    }
    result<void> try_send(parcel& value, unsigned priority) override {
        if constexpr (has_priorities)
            return channel_.try_send(value, priority);
        else
            return channel_.try_send(value);
    }
    result<taken> try_receive() override {
        auto received = channel_.try_receive();
        if (!received)
            return nowait::fail(received.error());
        return opened(*received);
    }
    void close() override { channel_.close(); }
    std::string check(std::size_t receivers, std::size_t senders, std::size_t races) override {
        const auto differs = [races](std::size_t found, std::size_t known) {
            return found < known || found > known + races;
        };
        if (differs(channel_.waiting_receivers(), receivers) || differs(channel_.waiting_senders(), senders))
            return "message channel: " + std::to_string(receivers) + " receives and " +
                   std::to_string(senders) + " sends wait, and " +
                   std::to_string(channel_.waiting_receivers()) + " and " +
                   std::to_string(channel_.waiting_senders()) + " stand in its queues";
        return channel_.sound() ? std::string() : "message channel: not sound";
    }

private:
    template <class Both>
    task<std::pair<result<taken>, result<void>>> settle(Both both, bound limit, sequence& numbers,
                                                        std::uint64_t& began) {
        if (limit.how == bound_kind::source || limit.how == bound_kind::token) {
            auto limited = nowait::with_timeout(std::move(both), std::chrono::microseconds(50));
            began = numbers.next++;
            ++numbers.next;
            auto got = co_await std::move(limited);
            co_return split(*got);
        }
        began = numbers.next++;
        ++numbers.next;
        auto got = co_await std::move(both);
        co_return split(got);
    }
    template <class Got>
    static std::pair<result<taken>, result<void>> split(Got& got) {
        auto& received = got.template get<0>();
        result<void> sent = got.template get<1>();
        result<taken> took = nowait::fail(std::errc::operation_canceled);
        if (received)
            took = opened(*received);
        else
            took = nowait::fail(received.error());
        return {std::move(took), std::move(sent)};
    }
    template <class Received>
    static taken opened(const Received& received) {
        if constexpr (has_priorities)
            return {received.value.number(), received.priority};
        else
            return {received.number(), 0};
    }
    Channel channel_;
};

/// A queue of the simulated kernel: messages are the numbers of parcels.
class posix_queue_object final : public message_object {
public:
    explicit posix_queue_object(nowait::posix_mqueue made) : queue_(std::move(made)) {}

    task<result<void>> send(parcel& value, unsigned priority, bound limit, sequence& numbers,
                            std::uint64_t& began) override {
        const std::uint64_t number = value.number();
        const std::span<const std::byte> data = std::as_bytes(std::span(&number, 1));
        auto sent = co_await perform(queue_.send(data, priority), std::move(limit), numbers, began);
        if (sent)
            const parcel gone(std::move(value));
        co_return sent;
    }
    task<result<taken>> receive(bound limit, sequence& numbers, std::uint64_t& began) override {
        std::array<std::byte, 64> buffer{};
        const std::span<std::byte> room(buffer);
        auto received = co_await perform(queue_.receive(room), std::move(limit), numbers, began);
        if (!received)
            co_return nowait::fail(received.error());
        co_return opened(received->value, received->priority);
    }
    task<std::pair<result<taken>, result<void>>> race(parcel& value, unsigned priority, bound,
                                                      sequence& numbers, std::uint64_t& began) override {
        std::array<std::byte, 64> buffer{};
        const std::span<std::byte> room(buffer);
        const std::uint64_t number = value.number();
        const std::span<const std::byte> data = std::as_bytes(std::span(&number, 1));
        auto both = nowait::when_any(nowait::biased, queue_.receive(room), queue_.send(data, priority));
        began = numbers.next++;
        ++numbers.next;
        auto got = co_await std::move(both);
        auto& received = got.template get<0>();
        result<void> sent = got.template get<1>();
        if (sent)
            const parcel gone(std::move(value));
        result<taken> took = nowait::fail(std::errc::operation_canceled);
        if (received)
            took = opened(received->value, received->priority);
        else
            took = nowait::fail(received.error());
        co_return std::pair<result<taken>, result<void>>(std::move(took), std::move(sent));
    }
    task<result<taken>> drain(sequence& numbers, std::uint64_t& began) override {
        bound soon;
        soon.how = bound_kind::timeout; // events may still be on their way
        soon.span = 100ms;
        return receive(soon, numbers, began);
    }
    result<void> try_send(parcel& value, unsigned priority) override {
        const std::uint64_t number = value.number();
        auto sent = queue_.try_send(std::as_bytes(std::span(&number, 1)), priority);
        if (sent)
            const parcel gone(std::move(value));
        return sent;
    }
    result<taken> try_receive() override {
        std::array<std::byte, 64> buffer{};
        auto received = queue_.try_receive(buffer);
        if (!received)
            return nowait::fail(received.error());
        return opened(received->value, received->priority);
    }
    void close() override { (void)queue_.close(); }
    std::string check(std::size_t receivers, std::size_t senders, std::size_t) override {
        const auto now = queue_.attributes();
        if (!now)
            return receivers + senders == 0 ? "" : "posix queue: somebody waits in a queue that is closed";
        if (receivers != 0 && now->messages != 0)
            return "posix queue: a receive waits, and there are messages";
        if (senders != 0 && now->messages != now->capacity)
            return "posix queue: a send waits, and there is room";
        return {};
    }

private:
    static result<taken> opened(std::span<const std::byte> bytes, unsigned priority) {
        std::uint64_t number = 0;
        if (bytes.size() != sizeof number)
            return nowait::fail(std::errc::bad_message);
        std::memcpy(&number, bytes.data(), sizeof number);
        return taken{number, priority};
    }
    nowait::posix_mqueue queue_;
};

// --- what a run writes down -------------------------------------------------------------------------------------------------

/// A put or a take that succeeded.
struct history_entry {
    std::uint64_t began = 0;
    unsigned priority = 0;
    std::string bytes;         ///< of a stream
    std::uint64_t message = 0; ///< of a message object
};

struct object_state {
    object_spec spec;
    std::unique_ptr<stream_object> stream;
    std::unique_ptr<message_object> messages;
    std::vector<history_entry> puts, takes;
    std::size_t putting = 0, taking = 0; ///< operations that have begun and not ended
    bool spliced = false;                ///< bytes have come from, or gone to, other objects
    bool cut_short = false; ///< what was left in it may have been lost: the reading side was closed
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

constexpr auto untouched = std::byte{0xa5};

/// Refuses memory for pages now and then.
class page_gate {
public:
    explicit page_gate(simulation& sim) : sim_(sim) {}
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
    simulation& sim_;
};

class run {
public:
    run(const program& p, const pipe_channel_factory& make_pipe_channel)
        : program_(p), sim_(options_for(p)), states_(p.actors.size()), objects_(p.objects.size()) {
        for (int i = 1; i < p.runtimes; ++i)
            sim_.add_runtime();
        for (std::size_t i = 0; i < p.objects.size(); ++i)
            make_channel(i, make_pipe_channel);
        sim_.when_quiet([this] { look_around(); });
    }
    // The frames that use the objects go first, with their runtimes.
    ~run() { sim_.end(); }

    verdict go() {
        if (program_.stop_at != 0) {
            for (object_state& o : objects_)
                o.cut_short = true; // winding up is stopped, too
            sim_.after(std::chrono::microseconds(program_.stop_at), [this] {
                for (std::size_t i = 0; i < sim_.runtimes(); ++i)
                    sim_.world().runtime_at(i).request_stop();
            });
        }
        auto ended = sim_.run(whole());
        if (program_.cut_after != 0)
            check_cut();
        else if (!ended)
            complain("it does not end: " + ended.error().message() + '\n' + sim_.waiting());
        else
            check_end();
        verdict v;
        v.failure = failure_;
        v.trace = sim_.trace(60);
        v.hash = sim_.trace_hash();
        v.events = sim_.events();
        return v;
    }

private:
    static nowait::simulation_options options_for(const program& p) {
        nowait::simulation_options wanted;
        wanted.seed = p.seed;
        wanted.any_order = p.any_order;
        wanted.budget = p.budget;
        wanted.explain = false;
        wanted.steps_max = p.cut_after != 0 ? p.cut_after : 400'000;
        wanted.faults = nowait::fault_schedule::unnoticed(p.faults);
        return wanted;
    }

    void complain(const std::string& what) {
        if (failure_.empty())
            failure_ = what;
    }

    void make_channel(std::size_t i, const pipe_channel_factory& make_pipe_channel) {
        object_state& o = objects_[i];
        o.spec = program_.objects[i];
        switch (o.spec.kind) {
        case object_kind::pipe_channel: {
            const std::uint32_t pages = o.spec.capacity + 1;
            o.stream.reset(make_pipe_channel ? make_pipe_channel(pages)
                                             : make_pipe_channel_of<nowait::detail::real_sync>(pages));
            if (o.spec.own_ends)
                o.stream->give_ends(program_.actors.size());
            break;
        }
        case object_kind::kernel_pipe:
        case object_kind::posix_queue:
            break; // made on their runtime
        case object_kind::channel:
            o.messages = std::make_unique<message_channel_object<nowait::channel<parcel>>>(
                *nowait::channel<parcel>::create(o.spec.capacity));
            break;
        case object_kind::queue:
            o.messages = std::make_unique<message_channel_object<nowait::mqueue_channel<parcel>>>(
                *nowait::mqueue_channel<parcel>::create({.capacity = o.spec.capacity + 1}));
            break;
        }
    }

    /// The whole program, on the first runtime.
    task<void> whole() {
        for (object_state& o : objects_) {
            if (o.spec.kind == object_kind::posix_queue) {
                auto queue = nowait::posix_mqueue::open("/queue", {.how = nowait::mqueue_open::replace,
                                                                   .capacity = o.spec.capacity + 1,
                                                                   .message_bytes = 64});
                if (!queue) {
                    complain("no queue: " + queue.error().message());
                    co_return;
                }
                o.messages = std::make_unique<posix_queue_object>(std::move(*queue));
            }
            if (o.spec.kind != object_kind::kernel_pipe)
                continue;
            auto pipe = nowait::make_pipe({.capacity = (o.spec.capacity + 1) * std::size_t{4096}});
            if (!pipe) {
                complain("no pipe: " + pipe.error().message());
                co_return;
            }
            o.stream = std::make_unique<kernel_pipe_object>(std::move(*pipe), sim_);
        }
        // What breaks, breaks from here on.
        sim_.faults().set(nowait::fault::broken_pipe, program_.breakage);
        sim_.faults().set(nowait::fault::no_memory, program_.poverty);
        sim_.faults().set(nowait::fault::no_thread, program_.poverty);
        page_gate_.open(program_.poverty > 0);
        for (std::size_t i = 0; i < program_.actors.size(); ++i) {
            const nowait::runtime& where = sim_.world().runtime_at(program_.actors[i].runtime);
            acting_.push_back(nowait::spawn_on(where.remote(), act(i)));
        }
        (void)co_await nowait::sleep_for(10s); // whoever still waits then, waits for ever
        sim_.faults().set(nowait::fault::no_memory, 0);
        page_gate_.open(false);
        for (std::size_t i = 0; i < objects_.size(); ++i)
            co_await wind_up(i);
        for (auto& handle : acting_)
            (void)co_await handle.join();
    }

    /// Closes the side that is written to, takes what is left, closes the other side.
    task<void> wind_up(std::size_t i) {
        object_state& o = objects_[i];
        if (o.stream != nullptr) {
            o.stream->close_writer(everybody);
            for (std::size_t a = 0; a < program_.actors.size() && has_own_ends(o); ++a)
                o.stream->close_writer(a);
            for (int errors = 0; errors < 1000;) {
                history_entry got;
                std::string buffer(3000, '\0');
                const std::span<std::byte> room = std::as_writable_bytes(std::span(buffer));
                bound none;
                auto n = co_await o.stream->read(everybody, room, none, numbers_, got.began);
                if (n && *n == 0)
                    break;
                if (!n && n.error() != std::errc::not_enough_memory)
                    break; // somebody has closed it before
                if (!n) {
                    ++errors;
                    (void)co_await nowait::sleep_for(1ms);
                    continue;
                }
                buffer.resize(*n);
                got.bytes = std::move(buffer);
                o.takes.push_back(std::move(got));
            }
            o.stream->close_reader(everybody);
            for (std::size_t a = 0; a < program_.actors.size() && has_own_ends(o); ++a)
                o.stream->close_reader(a);
        } else {
            if (o.spec.kind != object_kind::posix_queue)
                o.messages->close();
            for (;;) {
                history_entry got;
                auto message = co_await o.messages->drain(numbers_, got.began);
                if (!message)
                    break;
                got.message = message->number;
                got.priority = message->priority;
                o.takes.push_back(std::move(got));
            }
            if (o.spec.kind == object_kind::posix_queue)
                o.messages->close();
        }
    }

    [[nodiscard]] static bool has_own_ends(const object_state& o) noexcept {
        return o.spec.own_ends && o.spec.kind == object_kind::pipe_channel;
    }

    [[nodiscard]] bound bound_of(const step& s, std::size_t self) {
        bound b;
        b.how = s.bound;
        switch (s.bound) {
        case bound_kind::timeout:
            b.span = std::chrono::microseconds(s.time);
            break;
        case bound_kind::token:
            states_[self].token.emplace();
            b.token = states_[self].token->get_token();
            break;
        case bound_kind::source:
            states_[self].sources.emplace_back();
            b.source = states_[self].sources.back().stop->get_token();
            break;
        case bound_kind::none:
            break;
        }
        return b;
    }

    [[nodiscard]] static bool is_of_kernel(const object_state& o) noexcept {
        return o.spec.kind == object_kind::kernel_pipe || o.spec.kind == object_kind::posix_queue;
    }
    [[nodiscard]] bool at_home() noexcept {
        return nowait::detail::loop::current() == &sim_.world().runtime_at(0).get_loop();
    }
    /// The object of a step; those of the kernel belong to the first runtime.
    [[nodiscard]] object_state* object_of(const step& s) {
        object_state& o = objects_[s.object];
        if (is_of_kernel(o) && !at_home())
            return nullptr;
        return &o;
    }

    task<void> act(std::size_t self) {
        co_await act_from(self, 0);
        check_file(states_[self]);
        states_[self].file_in = {};
        states_[self].file_out = {};
        for (object_state& o : objects_) {
            if (o.spec.own_ends && o.stream != nullptr)
                o.stream->drop_ends(self);
        }
    }

    task<void> act_from(std::size_t self, std::size_t first) {
        const actor& mine = program_.actors[self];
        for (std::size_t at = first; at < mine.steps.size(); ++at) {
            const step& s = mine.steps[at];
            if (s.kind == step_kind::nest) {
                co_await act_from(self, at + 1);
                co_return;
            }
            if (s.kind == step_kind::move) {
                if (at + 1 < mine.steps.size())
                    co_await elsewhere(mine.steps[at + 1], self);
                ++at;
                continue;
            }
            if (s.kind == step_kind::scope) {
                co_await scope(s, self, at);
                at += 2;
                continue;
            }
            co_await act_once(s, self);
        }
    }

    /// One step on the last runtime; whoever awaits this goes on where he was.
    task<void> elsewhere(const step& s, std::size_t self) {
        const nowait::runtime& there = sim_.world().runtime_at(sim_.runtimes() - 1);
        auto moved = co_await nowait::resume_on(there);
        const bool arrived = nowait::detail::loop::current() == &there.get_loop();
        if (moved && !arrived)
            complain("a task that has moved is somewhere else");
        note_end(moved);
        co_await act_once(s, self);
    }

    /// The next two steps, at once. When the scope is left they have ended, stopped or not.
    task<void> scope(const step& s, std::size_t self, std::size_t at) {
        const actor& mine = program_.actors[self];
        nowait::task_scope children;
        for (std::size_t i = at + 1; i < mine.steps.size() && i <= at + 2; ++i)
            children.spawn(act_once(mine.steps[i], self));
        bound limit = bound_of(s, self);
        std::uint64_t began = 0;
        auto joined = co_await perform(children.join(), std::move(limit), numbers_, began);
        note_end(joined);
        if (children.active() != 0)
            complain("a scope was left while it had tasks");
    }

    task<void> act_once(const step& s, std::size_t self) {
        {
            switch (s.kind) {
            case step_kind::job:
                co_await job(s, self);
                co_return;
            case step_kind::file_write:
            case step_kind::file_read:
                if (at_home())
                    co_await file(s, self);
                co_return;
            case step_kind::sleep:
                (void)co_await nowait::sleep_for(std::chrono::microseconds(s.time));
                co_return;
            case step_kind::yield:
                co_await nowait::yield();
                co_return;
            case step_kind::stop:
                for (std::size_t i = 0; i < states_.size(); ++i) {
                    if (s.actor == i || s.actor == every_actor)
                        stop(i);
                }
                co_return;
            default:
                break;
            }
            object_state* const o = object_of(s);
            if (o == nullptr)
                co_return;
            switch (s.kind) {
            case step_kind::put:
                if (o->stream != nullptr)
                    co_await write(*o, s, self);
                else
                    co_await send(*o, s, self);
                break;
            case step_kind::take:
                if (o->stream != nullptr)
                    co_await read(*o, s, self);
                else
                    co_await receive(*o, s, self);
                break;
            case step_kind::try_put:
            case step_kind::try_take:
                try_step(*o, s, self);
                break;
            case step_kind::close_in:
                if (o->stream != nullptr)
                    o->stream->close_writer(self);
                else
                    close_messages(*o);
                break;
            case step_kind::close_out:
                if (o->stream != nullptr) {
                    o->cut_short = true;
                    o->stream->close_reader(self);
                }
                break;
            case step_kind::race:
                if (o->messages != nullptr)
                    co_await race(*o, s, self);
                break;
            case step_kind::splice:
                co_await splice(*o, s, self);
                break;
            case step_kind::resize:
                if (o->stream != nullptr)
                    o->stream->resize(1 + s.size % 4);
                break;
            default:
                break;
            }
        }
    }

    static void close_messages(object_state& o) {
        if (o.spec.kind == object_kind::posix_queue)
            o.cut_short = true; // what is in it stays in it
        o.messages->close();
    }

    void stop(std::size_t whom) {
        actor_state& other = states_[whom];
        if (other.token)
            other.token->request_stop();
        if (!other.sources.empty() && other.sources.back().on == nowait::detail::loop::current())
            other.sources.back().stop->request_stop();
    }

    /// Bytes that nobody else writes: who, which, where.
    [[nodiscard]] std::string payload(std::size_t self, std::size_t size) {
        std::string bytes;
        bytes.reserve(size + 8);
        const std::uint64_t number = ++payloads_;
        for (std::uint64_t at = 0; bytes.size() < size; ++at) {
            const std::uint64_t word = (number << 24) ^ (std::uint64_t{self} << 16) ^ at;
            bytes.append(reinterpret_cast<const char*>(&word), sizeof word);
        }
        bytes.resize(size);
        return bytes;
    }

    task<void> write(object_state& o, const step& s, std::size_t self) {
        history_entry put;
        const std::string bytes = payload(self, s.size);
        const std::span<const std::byte> data = std::as_bytes(std::span(bytes));
        bound limit = bound_of(s, self);
        ++o.putting;
        auto n = co_await o.stream->write(self, data, std::move(limit), numbers_, put.began);
        --o.putting;
        note_end(n);
        if (!n)
            co_return;
        if (*n == 0 || (*n != bytes.size() && bytes.size() <= 4096))
            complain("a write of " + std::to_string(bytes.size()) + " bytes has written " +
                     std::to_string(*n));
        put.bytes = bytes.substr(0, *n);
        o.puts.push_back(std::move(put));
    }

    task<void> read(object_state& o, const step& s, std::size_t self) {
        history_entry got;
        std::vector<std::byte> buffer(s.size, untouched);
        bound limit = bound_of(s, self);
        const std::span<std::byte> room(buffer);
        ++o.taking;
        auto n = co_await o.stream->read(self, room, std::move(limit), numbers_, got.began);
        --o.taking;
        note_end(n);
        const std::size_t filled = n ? *n : 0;
        if (filled > buffer.size() || !std::all_of(buffer.begin() + static_cast<std::ptrdiff_t>(filled),
                                                   buffer.end(), [](std::byte b) { return b == untouched; }))
            complain("a read that gave " + (n ? std::to_string(*n) + " bytes" : n.error().message()) +
                     " has touched more of its buffer");
        if (filled != 0) {
            got.bytes.assign(reinterpret_cast<const char*>(buffer.data()), filled);
            o.takes.push_back(std::move(got));
        }
    }

    task<void> splice(object_state& from, const step& s, std::size_t self) {
        object_state& to = objects_[s.target];
        if (from.stream == nullptr || to.stream == nullptr || &from == &to || from.spec.kind != to.spec.kind)
            co_return;
        from.spliced = to.spliced = true;
        bound limit = bound_of(s, self);
        ++splicing_;
        auto n = co_await from.stream->splice(self, *to.stream, s.size, std::move(limit), numbers_);
        --splicing_;
        note_end(n);
    }

    /// A job runs once, or never: and never if the await says that it was stopped.
    task<void> job(const step& s, std::size_t self) {
        int ran = 0;
        bound limit = bound_of(s, self);
        std::uint64_t began = 0;
        auto work = [&ran] { return ++ran; };
        auto what = nowait::blocking(work).key(s.priority);
        auto did = co_await perform(std::move(what), std::move(limit), numbers_, began);
        if (!did && did.error() != std::errc::resource_unavailable_try_again)
            note_end(did);
        if (ran != (did ? 1 : 0))
            complain("a job that ended with " + (did ? "success" : did.error().message()) + " has run " +
                     std::to_string(ran) + " times");
    }

    /// Files belong to the first runtime. Writes and reads that the driver performs where the bytes are not in memory.
    task<void> file(const step& s, std::size_t self) {
        actor_state& me = states_[self];
        if (me.file == nullptr) {
            const std::string path = "/file/" + std::to_string(self);
            const int in = sim_.system().open(path.c_str(), O_WRONLY | O_CREAT, 0600);
            const int out = sim_.system().open(path.c_str(), O_RDONLY, 0);
            if (in < 0 || out < 0) {
                for (const int fd : {in, out}) {
                    if (fd >= 0)
                        (void)sim_.system().close(fd);
                }
                co_return;
            }
            me.file = sim_.world().kernel.description_of(in)->of;
            me.file_in = *nowait::pipe_writer::adopt(in);
            me.file_out = *nowait::pipe_reader::adopt(out);
        }
        bound limit = bound_of(s, self);
        std::uint64_t began = 0;
        if (s.kind == step_kind::file_write) {
            const std::string bytes = payload(self, s.size);
            const std::span<const std::byte> data = std::as_bytes(std::span(bytes));
            auto n = co_await perform(me.file_in.write(data), std::move(limit), numbers_, began);
            note_end(n);
            if (n)
                me.file_puts.push_back({began, 0, bytes.substr(0, *n), 0});
            check_let_go(bytes.data(), bytes.size());
        } else {
            std::string buffer(s.size, '\0');
            const std::span<std::byte> room = std::as_writable_bytes(std::span(buffer));
            auto n = co_await perform(me.file_out.read(room), std::move(limit), numbers_, began);
            note_end(n);
            if (n)
                me.file_takes.push_back({began, 0, buffer.substr(0, *n), 0});
            check_let_go(buffer.data(), buffer.size());
        }
    }

    void check_file(actor_state& me) {
        if (me.file == nullptr)
            return;
        const std::string& holds = static_cast<const nowait::detail::simulated_file&>(*me.file).bytes;
        if (all_bytes(me.file_puts) != holds)
            complain("a file holds other bytes than were written to it");
        if (const std::string got = all_bytes(me.file_takes); holds.compare(0, got.size(), got) != 0)
            complain("a file gives other bytes than it holds");
    }

    /// The operation has ended: no driver works on its memory any more.
    void check_let_go(const void* data, std::size_t size) {
        for (std::size_t i = 0; i < sim_.runtimes(); ++i) {
            const auto& driver = static_cast<const nowait::detail::simulated_driver&>(
                sim_.world().runtime_at(i).get_loop().waits());
            if (driver.works_on(data, size))
                complain("a driver works on a buffer whose operation has ended");
        }
    }

    task<void> send(object_state& o, const step& s, std::size_t self) {
        history_entry put;
        put.message = ++payloads_;
        put.priority = s.priority;
        parcel value(put.message, parcels_);
        bound limit = bound_of(s, self);
        ++o.putting;
        auto sent = co_await o.messages->send(value, s.priority, std::move(limit), numbers_, put.began);
        --o.putting;
        note_end(sent);
        if ((value.number() == 0) != sent.has_value())
            complain(sent ? "a message that was sent is still there" : "a message that was not sent is gone");
        if (sent)
            o.puts.push_back(std::move(put));
    }

    task<void> race(object_state& o, const step& s, std::size_t self) {
        history_entry put;
        history_entry got;
        put.message = ++payloads_;
        put.priority = s.priority;
        parcel value(put.message, parcels_);
        bound limit = bound_of(s, self);
        ++racing_;
        auto both = co_await o.messages->race(value, s.priority, std::move(limit), numbers_, got.began);
        --racing_;
        put.began = got.began + 1;
        note_end(both.first);
        note_end(both.second);
        if ((value.number() == 0) != both.second.has_value())
            complain("a race: a message that was sent is still there, or one that was not is gone");
        if (both.second)
            o.puts.push_back(std::move(put));
        if (!both.first)
            co_return;
        got.message = both.first->number;
        got.priority = both.first->priority;
        o.takes.push_back(std::move(got));
    }

    task<void> receive(object_state& o, const step& s, std::size_t self) {
        history_entry got;
        bound limit = bound_of(s, self);
        ++o.taking;
        auto message = co_await o.messages->receive(std::move(limit), numbers_, got.began);
        --o.taking;
        note_end(message);
        if (!message)
            co_return;
        got.message = message->number;
        got.priority = message->priority;
        o.takes.push_back(std::move(got));
    }

    void try_step(object_state& o, const step& s, std::size_t self) {
        history_entry entry;
        entry.began = numbers_.next++;
        entry.priority = s.priority;
        if (o.stream != nullptr && s.kind == step_kind::try_put) {
            const std::string bytes = payload(self, s.size);
            if (const auto n = o.stream->try_write(self, std::as_bytes(std::span(bytes))); n && *n != 0) {
                entry.bytes = bytes.substr(0, *n);
                o.puts.push_back(std::move(entry));
            }
        } else if (o.stream != nullptr) {
            std::string buffer(s.size, '\0');
            if (const auto n = o.stream->try_read(self, std::as_writable_bytes(std::span(buffer)));
                n && *n != 0) {
                entry.bytes = buffer.substr(0, *n);
                o.takes.push_back(std::move(entry));
            }
        } else if (s.kind == step_kind::try_put) {
            entry.message = ++payloads_;
            parcel value(entry.message, parcels_);
            if (o.messages->try_send(value, s.priority))
                o.puts.push_back(std::move(entry));
        } else if (const auto message = o.messages->try_receive()) {
            entry.message = message->number;
            entry.priority = message->priority;
            o.takes.push_back(std::move(entry));
        }
    }

    template <class Result>
    void note_end(const Result& ended) {
        const int code = ended ? 0 : ended.error().value();
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
            complain("an operation ends with " + ended.error().message());
        }
    }

    void look_around() {
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

    // --- the end ---------------------------------------------------------------------------------------------------------

    void check_end() {
        for (std::size_t i = 0; i < objects_.size(); ++i) {
            object_state& o = objects_[i];
            const std::string wrong = o.messages != nullptr ? check_messages(o) : check_stream(o);
            if (!wrong.empty())
                complain("object " + std::to_string(i) + ", " + wrong);
            if (o.putting != 0 || o.taking != 0)
                complain("object " + std::to_string(i) + ": an operation has not ended");
        }
        if (const std::string wrong = check_spliced(); !wrong.empty())
            complain(wrong);
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

    /// The runtimes are destroyed with everything in flight: nothing may be left.
    void check_cut() {
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

    static void in_order(std::vector<history_entry>& entries) {
        std::sort(entries.begin(), entries.end(),
                  [](const history_entry& a, const history_entry& b) { return a.began < b.began; });
    }

    [[nodiscard]] static std::string all_bytes(std::vector<history_entry>& entries) {
        in_order(entries);
        std::string bytes;
        for (const history_entry& e : entries)
            bytes += e.bytes;
        return bytes;
    }

    /// With a small budget an operation may begin later than its turn came: then only the multiset is checked here.
    [[nodiscard]] bool exact() const noexcept { return program_.budget > 1000; }

    [[nodiscard]] std::string check_stream(object_state& o) const {
        if (o.spliced)
            return {}; // together with the others
        if (!exact() && o.spec.kind == object_kind::pipe_channel)
            return check_pieces(o);
        const std::string put = all_bytes(o.puts);
        const std::string got = all_bytes(o.takes);
        if (got.size() > put.size() || put.compare(0, got.size(), got) != 0) {
            const auto differ = std::mismatch(got.begin(), got.end(), put.begin(), put.end());
            return "the stream: what was read differs from what was written at byte " +
                   std::to_string(differ.first - got.begin()) + " of " + std::to_string(put.size());
        }
        if (got.size() != put.size() && !o.cut_short)
            return "the stream: " + std::to_string(put.size()) + " bytes were written, and " +
                   std::to_string(got.size()) + " read";
        return {};
    }

    /// How often each byte occurs, where the order is not known.
    using census = std::array<std::size_t, 256>;
    static void count(const std::vector<history_entry>& entries, census& into) {
        for (const history_entry& e : entries) {
            for (const char c : e.bytes)
                ++into[static_cast<unsigned char>(c)];
        }
    }
    [[nodiscard]] static bool matches(const census& put, const census& got, bool cut_short) {
        for (std::size_t i = 0; i < put.size(); ++i) {
            if (got[i] > put[i] || (got[i] != put[i] && !cut_short))
                return false;
        }
        return true;
    }

    [[nodiscard]] static std::string check_pieces(const object_state& o) {
        census put{};
        census got{};
        count(o.puts, put);
        count(o.takes, got);
        return matches(put, got, o.cut_short) ? "" : "the stream: other bytes were read than written";
    }

    /// What has gone from one stream into another comes out of one of them.
    [[nodiscard]] std::string check_spliced() const {
        census put{};
        census got{};
        bool cut_short = false;
        for (const object_state& o : objects_) {
            if (!o.spliced)
                continue;
            count(o.puts, put);
            count(o.takes, got);
            cut_short = cut_short || o.cut_short;
        }
        return matches(put, got, cut_short) ? "" : "spliced streams: other bytes were read than written";
    }

    [[nodiscard]] std::string check_messages(object_state& o) const {
        std::map<unsigned, std::vector<std::uint64_t>> put;
        std::map<unsigned, std::vector<std::uint64_t>> got;
        in_order(o.puts);
        in_order(o.takes);
        const bool priorities = o.spec.kind != object_kind::channel;
        for (const history_entry& e : o.puts)
            put[priorities ? e.priority : 0].push_back(e.message);
        for (const history_entry& e : o.takes)
            got[e.priority].push_back(e.message);
        if (!exact()) {
            for (auto* side : {&put, &got}) {
                for (auto& [priority, messages] : *side)
                    std::sort(messages.begin(), messages.end());
            }
        }
        if (o.cut_short && !exact()) {
            for (const auto& [priority, messages] : got) {
                if (!std::includes(put[priority].begin(), put[priority].end(), messages.begin(),
                                   messages.end()))
                    return "messages: one was received that was not sent";
            }
            return {};
        }
        if (o.cut_short) { // the rest is still in it
            for (auto& [priority, messages] : put)
                messages.resize(std::min(messages.size(), got[priority].size()));
            std::erase_if(got, [](const auto& entry) { return entry.second.empty(); });
            std::erase_if(put, [](const auto& entry) { return entry.second.empty(); });
        }
        if (put != got)
            return "messages: what was received is not what was sent, in its order";
        return {};
    }

    /// Every operation was counted, once.
    void check_counters() {
        std::uint64_t ends = 0;
        for (std::size_t i = 0; i < sim_.runtimes(); ++i) {
            const auto stats = sim_.world().runtime_at(i).stats();
            for (const nowait::operation_stats& kind : stats.operations)
                ends += kind.inline_completions + kind.armed;
        }
        std::uint64_t succeeded = 0;
        for (const object_state& o : objects_)
            succeeded += o.puts.size() + o.takes.size();
        if (succeeded > ends + payloads_) // try_ forms are not counted, and there are at most so many
            complain("more operations have succeeded than were counted");
    }

    const program& program_;
    int parcels_ = 0;
    simulation sim_;
    page_gate page_gate_{sim_};
    sequence numbers_;
    std::uint64_t payloads_ = 0;
    std::size_t splicing_ = 0;
    std::size_t racing_ = 0;
    bool look_around_ = true;
    std::string failure_;
    std::vector<actor_state> states_;
    std::vector<object_state> objects_;
    std::vector<nowait::join_handle<void>> acting_;
};

} // namespace

verdict run_program(const program& p, const pipe_channel_factory& make_pipe_channel) {
    run once(p, make_pipe_channel);
    return once.go();
}

} // namespace nowait_test::programs
