#include "run.hpp"

#include "kernel_objects.hpp"

#include <nowait/posix_mqueue.hpp>
#include <nowait/runtime_pool.hpp>

#include <chrono>
#include <span>
#include <utility>

namespace nowait_test::programs {

using namespace std::chrono_literals;
using nowait::fault;
using nowait::task;

stream_object* make_pipe_channel(std::uint32_t pages) {
    return make_pipe_channel_of<nowait::detail::real_sync>(pages);
}
message_object* make_channel(std::uint32_t messages) {
    return make_channel_of<nowait::detail::real_sync>(messages);
}
message_object* make_queue(std::uint32_t messages) {
    return make_queue_of<nowait::detail::real_sync>(messages);
}

verdict run_program(const program& p, const object_factories& make) {
    run once(p, make);
    return once.go();
}

run::run(const program& p, const object_factories& make)
    : program_(p), sim_(options_for(p)), states_(p.actors.size()), objects_(p.objects.size()) {
    for (int i = 1; i < p.runtimes; ++i)
        sim_.add_runtime();
    for (std::size_t i = 0; i < p.objects.size(); ++i)
        make_channel(i, make);
    sim_.when_quiet([this] { look_around(); });
}

nowait::simulation_options run::options_for(const program& p) {
    nowait::simulation_options wanted;
    wanted.seed = p.seed;
    wanted.any_order = p.any_order;
    wanted.budget = p.budget;
    wanted.explain = false;
    wanted.steps_max = p.cut_after != 0 ? p.cut_after : 400'000;
    wanted.faults = nowait::fault_schedule::unnoticed(p.faults);
    return wanted;
}

verdict run::go() {
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

void run::make_channel(std::size_t i, const object_factories& make) {
    object_state& o = objects_[i];
    o.spec = program_.objects[i];
    switch (o.spec.kind) {
    case object_kind::pipe_channel:
        o.stream.reset(make.pipe_channel(o.spec.capacity + 1));
        if (o.spec.own_ends)
            o.stream->give_ends(program_.actors.size());
        break;
    case object_kind::channel:
        o.messages.reset(make.channel(o.spec.capacity));
        break;
    case object_kind::queue:
        o.messages.reset(make.queue(o.spec.capacity + 1));
        break;
    case object_kind::kernel_pipe:
    case object_kind::posix_queue:
        break; // made on their runtime
    }
}

task<void> run::whole() {
    const living frame(frames_);
    for (object_state& o : objects_) {
        if (o.spec.kind == object_kind::posix_queue) {
            auto queue = nowait::posix_mqueue::open("/queue", {.how = nowait::mqueue_open::replace,
                                                               .capacity = o.spec.capacity + 1,
                                                               .message_bytes = 64,
                                                               .dedicated_receiver = o.spec.own_ends});
            if (!queue) {
                complain("no queue: " + queue.error().message());
                co_return;
            }
            o.messages = make_posix_queue_object(std::move(*queue));
        } else if (o.spec.kind == object_kind::kernel_pipe) {
            auto pipe = nowait::make_pipe({.capacity = (o.spec.capacity + 1) * std::size_t{4096}});
            if (!pipe) {
                complain("no pipe: " + pipe.error().message());
                co_return;
            }
            o.stream = make_kernel_pipe_object(std::move(*pipe), sim_);
        }
    }
    // What breaks, breaks from here on.
    sim_.faults().set(fault::broken_pipe, program_.breakage);
    sim_.faults().set(fault::no_memory, program_.poverty);
    sim_.faults().set(fault::no_thread, program_.poverty);
    page_gate_.open(program_.poverty > 0);
    for (std::size_t i = 0; i < program_.actors.size(); ++i) {
        const nowait::runtime& where = sim_.world().runtime_at(program_.actors[i].runtime);
        acting_.push_back(nowait::spawn_on(where.remote(), act(i)));
    }
    co_await pause(10s); // whoever still waits then, waits for ever
    sim_.faults().set(fault::no_memory, 0);
    page_gate_.open(false);
    for (object_state& o : objects_)
        co_await wind_up(o);
    for (auto& handle : acting_) {
        std::uint64_t began = 0;
        const ledger::mark mark = book_.begin(nowait::operation_kind::join, began);
        auto joined = co_await handle.join();
        book_.end(mark, joined.has_value());
    }
}

task<void> run::wind_up(object_state& o) {
    return o.stream != nullptr ? wind_up_stream(o) : wind_up_messages(o);
}

task<void> run::wind_up_stream(object_state& o) {
    const std::size_t own_ends = o.has_own_ends() ? program_.actors.size() : 0;
    o.stream->close_writer(everybody);
    for (std::size_t a = 0; a < own_ends; ++a)
        o.stream->close_writer(a);
    for (int errors = 0; errors < 1000;) {
        history_entry got;
        std::string buffer(3000, '\0');
        const std::span<std::byte> room = std::as_writable_bytes(std::span(buffer));
        bound none;
        auto n = co_await o.stream->read(everybody, room, none, book_, got.began);
        if (n && *n == 0)
            break;
        if (!n && n.error() != std::errc::not_enough_memory)
            break; // somebody has closed it before
        if (!n) {
            ++errors;
            co_await pause(1ms);
            continue;
        }
        buffer.resize(*n);
        got.bytes = std::move(buffer);
        o.takes.push_back(std::move(got));
    }
    o.stream->close_reader(everybody);
    for (std::size_t a = 0; a < own_ends; ++a)
        o.stream->close_reader(a);
}

task<void> run::wind_up_messages(object_state& o) {
    const bool drains = o.spec.kind != object_kind::posix_queue;
    if (drains)
        o.messages->close();
    for (;;) {
        history_entry got;
        auto message = co_await o.messages->drain(book_, got.began);
        if (!message)
            break;
        got.message = message->number;
        got.priority = message->priority;
        o.takes.push_back(std::move(got));
    }
    if (!drains)
        o.messages->close();
}

} // namespace nowait_test::programs
