#include "run.hpp"

#include <nowait/blocking.hpp>
#include <nowait/resume_on.hpp>
#include <nowait/task_scope.hpp>

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include <fcntl.h>

namespace nowait_test::programs {

using nowait::operation_kind;
using nowait::task;

namespace {

constexpr auto untouched = std::byte{0xa5};
/// A string with room for so many more keeps its bytes in one place, wherever it is moved.
constexpr std::size_t on_heap = 64;

} // namespace

task<void> run::act(std::size_t self) {
    const living frame(frames_);
    co_await act_from(self, 0);
    check_file(states_[self]);
    states_[self].file_in = {};
    states_[self].file_out = {};
    for (object_state& o : objects_) {
        if (o.spec.own_ends && o.stream != nullptr)
            o.stream->drop_ends(self);
    }
}

task<void> run::act_from(std::size_t self, std::size_t first) {
    const living frame(frames_);
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

task<void> run::elsewhere(const step& s, std::size_t self) {
    const living frame(frames_);
    const nowait::runtime& there = sim_.world().runtime_at(sim_.runtimes() - 1);
    auto moved = co_await nowait::resume_on(there);
    const bool arrived = nowait::detail::loop::current() == &there.get_loop();
    if (moved && !arrived)
        complain("a task that has moved is somewhere else");
    note_end(moved);
    co_await act_once(s, self);
}

task<void> run::scope(const step& s, std::size_t self, std::size_t at) {
    const actor& mine = program_.actors[self];
    nowait::task_scope children;
    for (std::size_t i = at + 1; i < mine.steps.size() && i <= at + 2; ++i)
        children.spawn(act_once(mine.steps[i], self));
    bound limit = bound_of(s, self);
    std::uint64_t began = 0;
    auto joined = co_await perform(children.join(), std::move(limit), operation_kind::join, book_, began);
    note_end(joined);
    if (children.active() != 0)
        complain("a scope was left while it had tasks");
}

task<void> run::act_once(const step& s, std::size_t self) {
    const living frame(frames_);
    switch (s.kind) {
    case step_kind::job:
        co_await job(s, self);
        break;
    case step_kind::file_write:
    case step_kind::file_read:
        if (at_home())
            co_await file(s, self);
        break;
    case step_kind::sleep:
        co_await pause(std::chrono::microseconds(s.time));
        break;
    case step_kind::yield:
        co_await let_others();
        break;
    case step_kind::stop:
        for (std::size_t i = 0; i < states_.size(); ++i) {
            if (s.actor == i || s.actor == every_actor)
                stop(i);
        }
        break;
    default:
        if (object_state* const o = object_of(s); o != nullptr)
            co_await act_on(*o, s, self);
    }
}

task<void> run::act_on(object_state& o, const step& s, std::size_t self) {
    const bool is_stream = o.stream != nullptr;
    switch (s.kind) {
    case step_kind::put:
        return is_stream ? write(o, s, self) : send(o, s, self);
    case step_kind::take:
        return is_stream ? read(o, s, self) : receive(o, s, self);
    case step_kind::splice:
        return splice(o, s, self);
    case step_kind::race:
        return race(o, s, self);
    default:
        return act_at_once(o, s, self);
    }
}

task<void> run::act_at_once(object_state& o, const step& s, std::size_t self) {
    switch (s.kind) {
    case step_kind::try_put:
    case step_kind::try_take:
        try_step(o, s, self);
        break;
    case step_kind::close_in:
        if (o.stream != nullptr)
            o.stream->close_writer(self);
        else
            close_messages(o);
        break;
    case step_kind::close_out:
        if (o.stream != nullptr) {
            o.cut_short = true;
            o.stream->close_reader(self);
        }
        break;
    case step_kind::resize:
        if (o.stream != nullptr)
            o.stream->resize(1 + s.size % 4);
        break;
    default:
        break;
    }
    co_return;
}

void run::close_messages(object_state& o) {
    if (o.spec.kind == object_kind::posix_queue)
        o.cut_short = true; // what is in it stays in it
    o.messages->close();
}

task<void> run::pause(std::chrono::nanoseconds span) {
    bound none;
    std::uint64_t began = 0;
    auto what = nowait::sleep_for(span);
    (void)co_await perform(std::move(what), none, operation_kind::sleep, book_, began);
}

task<void> run::let_others() {
    std::uint64_t began = 0;
    const ledger::mark mark = book_.begin(operation_kind::yield, began);
    co_await nowait::yield();
    book_.end(mark, true);
}

task<void> run::write(object_state& o, const step& s, std::size_t self) {
    history_entry put;
    const std::string bytes = payload(self, s.size);
    const std::span<const std::byte> data = std::as_bytes(std::span(bytes));
    bound limit = bound_of(s, self);
    ++o.putting;
    auto n = co_await o.stream->write(self, data, std::move(limit), book_, put.began);
    --o.putting;
    note_end(n);
    (void)check_let_go(bytes.data(), bytes.size());
    if (!n)
        co_return;
    if (*n == 0 || (*n != bytes.size() && bytes.size() <= 4096))
        complain("a write of " + std::to_string(bytes.size()) + " bytes has written " + std::to_string(*n));
    put.bytes = bytes.substr(0, *n);
    o.puts.push_back(std::move(put));
}

task<void> run::read(object_state& o, const step& s, std::size_t self) {
    history_entry got;
    std::vector<std::byte> buffer(s.size, untouched);
    bound limit = bound_of(s, self);
    const std::span<std::byte> room(buffer);
    ++o.taking;
    auto n = co_await o.stream->read(self, room, std::move(limit), book_, got.began);
    --o.taking;
    note_end(n);
    (void)check_let_go(buffer.data(), buffer.size());
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

task<void> run::splice(object_state& from, const step& s, std::size_t self) {
    object_state& to = objects_[s.target];
    if (from.stream == nullptr || to.stream == nullptr || &from == &to || from.spec.kind != to.spec.kind)
        co_return;
    from.spliced = to.spliced = true;
    bound limit = bound_of(s, self);
    ++splicing_;
    auto n = co_await from.stream->splice(self, *to.stream, s.size, std::move(limit), book_);
    --splicing_;
    note_end(n);
}

task<void> run::job(const step& s, std::size_t self) {
    int ran = 0;
    bound limit = bound_of(s, self);
    std::uint64_t began = 0;
    auto work = [&ran] { return ++ran; };
    auto what = nowait::blocking(work).key(s.priority);
    auto did = co_await perform(std::move(what), std::move(limit), operation_kind::blocking, book_, began);
    if (!did && did.error() != std::errc::resource_unavailable_try_again)
        note_end(did);
    jobs_run_ += static_cast<std::uint64_t>(ran);
    if (ran != (did ? 1 : 0))
        complain("a job that ended with " + (did ? "success" : did.error().message()) + " has run " +
                 std::to_string(ran) + " times");
}

bool run::open_file(std::size_t self) {
    actor_state& me = states_[self];
    if (me.file != nullptr)
        return true;
    const std::string path = "/file/" + std::to_string(self);
    const int in = sim_.system().open(path.c_str(), O_WRONLY | O_CREAT, 0600);
    const int out = sim_.system().open(path.c_str(), O_RDONLY, 0);
    if (in < 0 || out < 0) {
        for (const int fd : {in, out}) {
            if (fd >= 0)
                (void)sim_.system().close(fd);
        }
        return false;
    }
    me.file = sim_.world().kernel.description_of(in)->of;
    me.file_in = *nowait::pipe_writer::adopt(in);
    me.file_out = *nowait::pipe_reader::adopt(out);
    return true;
}

task<void> run::file(const step& s, std::size_t self) {
    if (!open_file(self))
        co_return;
    actor_state& me = states_[self];
    bound limit = bound_of(s, self);
    std::uint64_t began = 0;
    if (s.kind == step_kind::file_write) {
        std::string bytes = payload(self, s.size);
        const std::span<const std::byte> data = std::as_bytes(std::span(bytes));
        auto n =
            co_await perform(me.file_in.write(data), std::move(limit), operation_kind::write, book_, began);
        note_end(n);
        if (n)
            me.file_puts.push_back({began, 0, bytes.substr(0, *n), 0});
        check_let_go(bytes);
    } else {
        std::string buffer(s.size + on_heap, '\0');
        buffer.resize(s.size);
        const std::span<std::byte> room = std::as_writable_bytes(std::span(buffer));
        auto n =
            co_await perform(me.file_out.read(room), std::move(limit), operation_kind::read, book_, began);
        note_end(n);
        if (n)
            me.file_takes.push_back({began, 0, buffer.substr(0, *n), 0});
        check_let_go(buffer);
    }
}

task<void> run::send(object_state& o, const step& s, std::size_t self) {
    history_entry put;
    put.message = ++payloads_;
    put.priority = s.priority;
    parcel value(put.message, parcels_);
    bound limit = bound_of(s, self);
    ++o.putting;
    auto sent = co_await o.messages->send(value, s.priority, std::move(limit), book_, put.began);
    --o.putting;
    note_end(sent);
    if ((value.number() == 0) != sent.has_value())
        complain(sent ? "a message that was sent is still there" : "a message that was not sent is gone");
    if (sent)
        o.puts.push_back(std::move(put));
}

task<void> run::race(object_state& o, const step& s, std::size_t self) {
    if (o.messages == nullptr)
        co_return;
    history_entry put;
    history_entry got;
    put.message = ++payloads_;
    put.priority = s.priority;
    parcel value(put.message, parcels_);
    bound limit = bound_of(s, self);
    ++racing_;
    auto both = co_await o.messages->race(value, s.priority, std::move(limit), book_, got.began);
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

task<void> run::receive(object_state& o, const step& s, std::size_t self) {
    history_entry got;
    bound limit = bound_of(s, self);
    ++o.taking;
    auto message = co_await o.messages->receive(std::move(limit), book_, got.began);
    --o.taking;
    note_end(message);
    if (!message)
        co_return;
    got.message = message->number;
    got.priority = message->priority;
    o.takes.push_back(std::move(got));
}

void run::try_step(object_state& o, const step& s, std::size_t self) {
    using call = nowait::detail::simulated_system::call;
    const auto& kernel = sim_.world().kernel;
    const std::uint64_t full = kernel.would_block(call::send);
    const std::uint64_t empty = kernel.would_block(call::receive);
    try_once(o, s, self);
    book_.of_kind(operation_kind::queue_send).try_misses += kernel.would_block(call::send) - full;
    book_.of_kind(operation_kind::queue_receive).try_misses += kernel.would_block(call::receive) - empty;
}

void run::try_once(object_state& o, const step& s, std::size_t self) {
    history_entry entry;
    entry.began = book_.number();
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

bound run::bound_of(const step& s, std::size_t self) {
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

void run::stop(std::size_t whom) {
    actor_state& other = states_[whom];
    if (other.token)
        other.token->request_stop();
    if (!other.sources.empty() && other.sources.back().on == nowait::detail::loop::current())
        other.sources.back().stop->request_stop();
}

std::string run::payload(std::size_t self, std::size_t size) {
    std::string bytes;
    bytes.reserve(size + on_heap);
    const std::uint64_t number = ++payloads_;
    for (std::uint64_t at = 0; bytes.size() < size; ++at) {
        const std::uint64_t word = (number << 24) ^ (std::uint64_t{self} << 16) ^ at;
        bytes.append(reinterpret_cast<const char*>(&word), sizeof word);
    }
    bytes.resize(size);
    return bytes;
}

bool run::at_home() {
    return nowait::detail::loop::current() == &sim_.world().runtime_at(0).get_loop();
}

object_state* run::object_of(const step& s) {
    object_state& o = objects_[s.object];
    return o.of_kernel() && !at_home() ? nullptr : &o;
}

} // namespace nowait_test::programs
