#include "ours.hpp"

#include "bench/support/keep.hpp"
#include "bench/support/statistics.hpp"
#include "pairs.hpp"
#include "threads.hpp"

#include <nowait/channel.hpp>
#include <nowait/mqueue_channel.hpp>
#include <nowait/runtime.hpp>

#include <memory>
#include <type_traits>
#include <utility>

namespace bench::queues {
namespace {

using nowait::task;

template <class R>
auto value_of(R outcome, std::string_view what) {
    require(static_cast<bool>(outcome), what);
    return std::move(*outcome);
}

template <class Channel>
Channel make(std::uint64_t capacity) {
    typename Channel::options wanted;
    wanted.capacity = capacity;
    return value_of(Channel::create(wanted), "create");
}

template <class T>
using uncached =
    nowait::basic_mqueue_channel<T, nowait::detail::real_sync, nowait::detail::uncached_tree_index,
                                 nowait::strict_order, nowait::detail::front_cache::no>;

// Calls `use` with a null pointer to the type of channel.
template <class T, class Use>
auto with_kind(kind which, Use&& use) {
    switch (which) {
    case kind::shared_tree:
        return use(static_cast<nowait::mqueue_channel<T>*>(nullptr));
    case kind::shared_bitmap:
        return use(static_cast<nowait::mqueue_channel<T, nowait::bitmap_index>*>(nullptr));
    case kind::local_tree:
        return use(static_cast<nowait::local_mqueue_channel<T>*>(nullptr));
    case kind::local_bitmap:
        return use(static_cast<nowait::local_mqueue_channel<T, nowait::bitmap_index>*>(nullptr));
    case kind::shared_uncached:
        break;
    }
    return use(static_cast<uncached<T>*>(nullptr));
}

std::string name_of_kind(kind which) {
    switch (which) {
    case kind::shared_tree:
        return "shared, tree";
    case kind::shared_bitmap:
        return "shared, bitmap";
    case kind::local_tree:
        return "local, tree";
    case kind::local_bitmap:
        return "local, bitmap";
    case kind::shared_uncached:
        break;
    }
    return "shared, tree, no caches";
}

// What refill() calls: not awaited, and not measured.
template <class Channel>
class filler {
public:
    explicit filler(const Channel& channel) : channel_(channel) {}
    void push(unsigned priority, payload message) {
        require(channel_.try_send(message, priority).has_value(), "try_send");
    }
    [[nodiscard]] payload pop() { return value_of(channel_.try_receive(), "try_receive").value; }
    [[nodiscard]] bool empty() const { return channel_.empty(); }

private:
    const Channel& channel_;
};

template <class Channel>
task<> pairs(const Channel& channel, priority_stream stream, std::size_t rounds,
             std::chrono::nanoseconds& took) {
    const stopwatch clock;
    for (std::size_t i = 0; i < rounds; ++i) {
        payload message{i, i};
        const auto sent = co_await channel.send(message, stream.next());
        require(sent.has_value(), "send");
        const auto got = co_await channel.receive();
        require(got.has_value(), "receive");
        keep(got->value);
    }
    took += clock.elapsed();
}

template <class Channel>
struct bed {
    explicit bed(std::uint64_t capacity) : channel(make<Channel>(capacity)) {}

    nowait::runtime loop = value_of(nowait::runtime::create(), "runtime::create");
    Channel channel;

    void run(task<> what) { require(loop.run(std::move(what)).has_value(), "run"); }
};

template <class Channel>
task<> sends(const Channel& to, std::size_t messages) {
    for (std::size_t i = 0; i < messages; ++i) {
        int message = static_cast<int>(i);
        const auto sent = co_await to.send(message);
        require(sent.has_value(), "send");
    }
}

template <class Channel>
task<> receives(const Channel& from, std::size_t messages) {
    for (std::size_t i = 0; i < messages; ++i) {
        const auto got = co_await from.receive();
        require(got.has_value(), "receive");
        keep(*got);
    }
}

template <class Channel>
contender ints_through(std::string name) {
    return {std::move(name), [] {
                auto b = std::make_shared<bed<Channel>>(int_depth);
                return [b](std::size_t rounds) -> measurement {
                    const stopwatch clock;
                    b->loop.spawn(sends(b->channel, rounds)).detach();
                    b->run(receives(b->channel, rounds));
                    return {rounds, clock.elapsed()};
                };
            }};
}

template <class Channel>
task<> halves(const Channel& channel, priority_stream& stream, std::size_t rounds, halves_of_pairs& found) {
    for (std::size_t i = 0; i < rounds; ++i) {
        payload message{i, i};
        const unsigned priority = stream.next();
        const std::uint64_t a = fine_clock::read();
        (void)co_await channel.send(message, priority);
        const std::uint64_t b = fine_clock::read();
        const auto got = co_await channel.receive();
        keep(got->value);
        found.add(a, b, fine_clock::read());
    }
}

template <class Channel>
task<> fill(const Channel& channel, priority_stream& stream, std::size_t messages) {
    for (std::size_t i = 0; i < messages; ++i) {
        payload message{i, i};
        (void)co_await channel.send(message, stream.next());
    }
}

template <class Channel>
task<> drain(const Channel& channel, std::size_t messages) {
    for (std::size_t i = 0; i < messages; ++i) {
        const auto got = co_await channel.receive();
        keep(got->value);
    }
}

template <class Channel>
published_line line_of(std::string who, const fine_clock& clock) {
    bed<Channel> b(full_depth + 1);
    published_line line;
    line.who = std::move(who);
    line.depth = full_depth;
    const auto both_halves = [&](std::size_t column, priority_stream& stream) {
        halves_of_pairs found;
        b.run(halves(b.channel, stream, pairs_until_refill, found));
        line.send[column] = found.sending(clock);
        line.receive[column] = found.receiving(clock);
    };
    priority_stream constant(pattern::constant);
    both_halves(0, constant);
    for (std::size_t p = 0; p < every_pattern.size(); ++p) {
        std::vector<double> fills; // of three, the least disturbed counts
        std::vector<double> drains;
        for (int round = 0; round < 3; ++round) {
            priority_stream stream(every_pattern[p]);
            const std::uint64_t before_fill = fine_clock::read();
            b.run(fill(b.channel, stream, full_depth));
            const std::uint64_t filled = fine_clock::read();
            if (round == 2) {
                both_halves(p + 1, stream);
            }
            const std::uint64_t before_drain = fine_clock::read();
            b.run(drain(b.channel, full_depth));
            const std::uint64_t drained = fine_clock::read();
            fills.push_back(clock.nanoseconds(static_cast<double>(filled - before_fill) / full_depth));
            drains.push_back(clock.nanoseconds(static_cast<double>(drained - before_drain) / full_depth));
        }
        line.fill[p] = quantile(fills, 0);
        line.drain[p] = quantile(drains, 0);
    }
    return line;
}

} // namespace

contender ours_pairs(kind which_queue, pattern which, std::size_t depth) {
    return with_kind<payload>(which_queue, [=]<class Channel>(Channel*) -> contender {
        return {"ours, " + name_of_kind(which_queue), [=]() -> slice {
                    auto b = std::make_shared<bed<Channel>>(full_depth + 1);
                    return [=](std::size_t rounds) {
                        measurement total;
                        while (total.operations < rounds) {
                            const std::size_t now =
                                std::min<std::size_t>(rounds - total.operations, pairs_until_refill);
                            priority_stream stream(which);
                            filler<Channel> fills(b->channel);
                            refill(fills, stream, depth);
                            b->run(pairs(b->channel, stream, now, total.elapsed));
                            total.operations += now;
                        }
                        return total;
                    };
                }};
    });
}

contender ours_ints(kind which_queue) {
    return with_kind<int>(which_queue, [=]<class Channel>(Channel*) {
        return ints_through<Channel>("ours, " + name_of_kind(which_queue));
    });
}

contender ours_fifo(bool shared) {
    return shared ? ints_through<nowait::channel<int>>("ours, channel")
                  : ints_through<nowait::local_channel<int>>("ours, local_channel");
}

contender ours_cross(bool two_cpus, std::shared_ptr<cpu_time> used) {
    using channel_type = nowait::mqueue_channel<int>;
    return {"ours, shared, tree", [=]() -> slice {
                return [=](std::size_t rounds) {
                    const auto channel = make<channel_type>(int_depth);
                    auto sending = value_of(nowait::runtime::create(), "runtime::create");
                    auto receiving = value_of(nowait::runtime::create(), "runtime::create");
                    sending.spawn(sends(channel, rounds)).detach();
                    receiving.spawn(receives(channel, rounds)).detach();
                    return on_two_threads(
                        two_cpus, rounds, *used, [&] { require(sending.run().has_value(), "run"); },
                        [&] { require(receiving.run().has_value(), "run"); });
                };
            }};
}

published_line ours_line(kind which_queue, const fine_clock& clock) {
    return with_kind<payload>(which_queue, [&]<class Channel>(Channel*) {
        return line_of<Channel>("ours, " + name_of_kind(which_queue), clock);
    });
}

} // namespace bench::queues
