// The priority queue, and the channel made of it, against the kernel's own POSIX message queue: the same random calls on both, from a
// printed seed. After each call the same result, the same errno, the same message and priority, the same
// count (mq_getattr) and the same readiness (poll). A failure is shrunk to a short list of calls.
//
//   NOWAIT_DIFFERENTIAL_SEED=n   repeat a run
//   NOWAIT_DIFFERENTIAL_CALLS=n  for each index, default 200,000
//
// Both are used without waiting: the kernel's queue is opened O_NONBLOCK, ours stands behind the same checks
// in the same order (EINVAL for the priority, EMSGSIZE, EAGAIN). Between the two there is no difference on
// purpose. What ours does not have at all: descriptors (EBADF), foreign memory (EFAULT), and the charge for
// all messages at creation.
#include "catch.hpp"
#include "priority_support.hpp"

#include <nowait/mqueue_channel.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <unistd.h>

namespace {

using namespace priority_tests;

// --- calls -------------------------------------------------------------------------------------------------

struct shape { // of a queue
    long max_messages;
    long message_size;
};

enum class kind : std::uint8_t { send, receive };

struct call {
    kind what;
    unsigned priority;  // send
    std::size_t size;   // of the message, or of the buffer
    std::uint64_t salt; // what the message contains
};

std::string contents(const call& c) {
    std::mt19937_64 random(c.salt);
    std::string text(c.size, '\0');
    std::generate(text.begin(), text.end(), [&] { return static_cast<char>(random()); });
    return text;
}

std::string describe(const call& c) {
    if (c.what == kind::receive)
        return "receive into " + std::to_string(c.size) + " bytes";
    return "send " + std::to_string(c.size) + " bytes with priority " + std::to_string(c.priority);
}

struct outcome {
    int error = 0;
    std::string message{};
    unsigned priority = 0;
    long count = 0; // of messages, afterwards
    bool readable = false;
    bool writable = false;

    friend bool operator==(const outcome&, const outcome&) = default;
};

std::string describe(const outcome& o) {
    return "errno " + std::to_string(o.error) + ", " + std::to_string(o.message.size()) +
           " bytes, priority " + std::to_string(o.priority) + ", " + std::to_string(o.count) +
           " queued, readable " + std::to_string(o.readable) + ", writable " + std::to_string(o.writable);
}

// --- the two queues ----------------------------------------------------------------------------------------

// A kernel queue without a name: it was unlinked at once.
class kernel_queue {
public:
    explicit kernel_queue(shape s) : buffer_(static_cast<std::size_t>(s.message_size) + 1) {
        static int number = 0;
        const std::string name =
            "/nowait-test-" + std::to_string(::getpid()) + "-" + std::to_string(++number);
        mq_attr attributes{};
        attributes.mq_maxmsg = s.max_messages;
        attributes.mq_msgsize = s.message_size;
        queue_ = ::mq_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NONBLOCK, 0600, &attributes);
        error_ = queue_ < 0 ? errno : 0;
        if (queue_ >= 0)
            ::mq_unlink(name.c_str());
    }
    kernel_queue(const kernel_queue&) = delete;
    kernel_queue& operator=(const kernel_queue&) = delete;
    ~kernel_queue() {
        if (queue_ >= 0)
            ::mq_close(queue_);
    }

    [[nodiscard]] int error() const { return error_; } // of creation

    outcome step(const call& c) {
        outcome result;
        if (c.what == kind::send) {
            const std::string message = contents(c);
            result.error = ::mq_send(queue_, message.data(), message.size(), c.priority) < 0 ? errno : 0;
        } else {
            const ssize_t got = ::mq_receive(queue_, buffer_.data(), c.size, &result.priority);
            result.error = got < 0 ? errno : 0;
            result.message.assign(buffer_.data(), got < 0 ? 0 : static_cast<std::size_t>(got));
        }
        mq_attr attributes{};
        ::mq_getattr(queue_, &attributes);
        pollfd ready{queue_, POLLIN | POLLOUT, 0};
        ::poll(&ready, 1, 0);
        result.count = attributes.mq_curmsgs;
        result.readable = (ready.revents & POLLIN) != 0;
        result.writable = (ready.revents & POLLOUT) != 0;
        return result;
    }

private:
    std::vector<char> buffer_;
    mqd_t queue_ = -1;
    int error_ = 0;
};

// The channel itself, by its try_ calls. Measured, it knows what each message counts and refuses what is too long; otherwise
// all count the same, which is the shorter path, and lengths are the caller's business.
template <class Channel, bool Measured>
class channel_calls {
public:
    channel_calls(std::uint64_t max_messages, std::uint64_t message_size)
        : channel_(make(max_messages, message_size)), message_size_(message_size) {}

    int send(std::string message, unsigned priority) {
        if (!Measured && priority < priority_levels && message.size() > message_size_)
            return EMSGSIZE;
        const std::string before = message;
        const auto sent = channel_.try_send(message, priority);
        if (!sent && message != before)
            throw std::logic_error("a message that was not sent has changed");
        return sent ? 0 : sent.error().value();
    }
    int receive(std::string& message, unsigned& priority, std::size_t buffer_size) {
        if (buffer_size < message_size_)
            return EMSGSIZE;
        auto got = channel_.try_receive();
        if (!got)
            return got.error().value();
        message = std::move(got->value);
        priority = got->priority;
        return 0;
    }
    [[nodiscard]] std::size_t size() const { return channel_.size(); }
    [[nodiscard]] bool readable() const { return !channel_.empty(); }
    [[nodiscard]] bool writable() const { return channel_.size() < channel_.capacity() && channel_.sound(); }

private:
    static Channel make(std::uint64_t max_messages, std::uint64_t message_size) {
        typename Channel::options wanted;
        wanted.capacity = max_messages;
        if (Measured) {
            wanted.message_bytes = message_size;
            wanted.size_of = [](const std::string& s) noexcept -> std::uint64_t { return s.size(); };
        }
        auto made = Channel::create(wanted);
        if (!made)
            throw std::system_error(made.error(), "channel");
        return std::move(*made);
    }

    Channel channel_;
    std::uint64_t message_size_;
};

template <class Queue>
struct calls_on {
    using type = nonblocking_queue<Queue>;
};
template <class Channel, bool Measured>
struct calls_on<channel_calls<Channel, Measured>> {
    using type = channel_calls<Channel, Measured>;
};

// Errors put in on purpose, to see that they are found.
enum class sabotage { none, low_bit_of_priority_lost, full_before_size };

template <class Queue>
class our_queue {
public:
    our_queue(shape s, sabotage wrong)
        : queue_(static_cast<std::uint64_t>(s.max_messages), static_cast<std::uint64_t>(s.message_size)),
          wrong_(wrong) {}

    outcome step(const call& c) {
        outcome result;
        if (c.what == kind::receive) {
            result.error = queue_.receive(result.message, result.priority, c.size);
        } else if (wrong_ == sabotage::full_before_size && !queue_.writable()) {
            result.error = EAGAIN;
        } else {
            const unsigned lost = wrong_ == sabotage::low_bit_of_priority_lost ? 1 : 0;
            result.error = queue_.send(contents(c), c.priority & ~lost);
        }
        result.count = static_cast<long>(queue_.size());
        result.readable = queue_.readable();
        result.writable = queue_.writable();
        return result;
    }

private:
    typename calls_on<Queue>::type queue_;
    sabotage wrong_;
};

template <class Queue>
struct pair_of_queues {
    kernel_queue theirs;
    our_queue<Queue> ours;

    pair_of_queues(shape s, sabotage wrong) : theirs(s), ours(s, wrong) { REQUIRE(theirs.error() == 0); }

    std::optional<std::string> step(const call& c) {
        const outcome expected = theirs.step(c);
        const outcome got = ours.step(c);
        if (got == expected)
            return {};
        return describe(c) + "\n    kernel: " + describe(expected) + "\n    ours:   " + describe(got) +
               (got.message != expected.message ? "\n    the contents differ" : "");
    }
};

// --- choice ------------------------------------------------------------------------------------------------

class generator {
public:
    generator(std::uint64_t seed, shape s)
        : random_(seed), message_size_(static_cast<std::size_t>(s.message_size)), levels_(below(4)),
          percent_sends_(50) {}

    call next() {
        if (below(20) == 0) // tides, so that full and empty are met often
            percent_sends_ = below(101);
        if (below(100) < percent_sends_)
            return {kind::send, priority(), size(), random_()};
        return {kind::receive, 0, buffer(), 0};
    }

private:
    unsigned below(unsigned bound) { return static_cast<unsigned>(random_() % bound); }

    unsigned priority() {
        static constexpr std::array beyond{priority_levels, priority_levels + 1,
                                           static_cast<unsigned>(INT_MAX), UINT_MAX};
        if (below(40) == 0)
            return beyond[below(beyond.size())];
        switch (levels_) {
        case 0:
            return below(2);
        case 1:
            return 62 + below(4); // neighbours on both sides of a word's end
        case 2:
            return below(2) == 0 ? below(2) : priority_levels - 1 - below(2);
        default:
            return below(priority_levels);
        }
    }
    std::size_t size() {
        const std::array edges{std::size_t{0}, std::size_t{1}, message_size_ - 1, message_size_,
                               message_size_ + 1};
        return below(2) == 0 ? edges[below(edges.size())] : random_() % (message_size_ + 1);
    }
    std::size_t buffer() {
        if (below(30) == 0)
            return below(2) == 0 ? 0 : message_size_ - 1;
        return message_size_ + below(2);
    }

    std::mt19937_64 random_;
    std::size_t message_size_;
    unsigned levels_;
    unsigned percent_sends_;
};

long system_limit(const char* file) {
    long value = 10;
    std::ifstream(std::string("/proc/sys/fs/mqueue/") + file) >> value;
    return value;
}

// Small queues, and one as deep as this user may have: the kernel charges a queue in full when it is made.
std::vector<shape> shapes() {
    const long largest = system_limit("msgsize_max");
    shape deepest{system_limit("msg_max"), std::min(largest, 128L)};
    while (deepest.max_messages > 10 && kernel_queue(deepest).error() == EMFILE)
        deepest.max_messages /= 2;
    return {{1, 1}, {1, 16}, {2, 8}, {10, 64}, {10, std::min(largest, 8192L)}, deepest};
}

// --- search ------------------------------------------------------------------------------------------------

struct failure {
    shape where;
    std::vector<call> calls;
    std::string text;
};

template <class Queue>
std::optional<failure> replay(shape s, const std::vector<call>& calls, sabotage wrong) {
    pair_of_queues<Queue> both(s, wrong);
    for (std::size_t i = 0; i < calls.size(); ++i)
        if (auto text = both.step(calls[i]))
            return failure{s, {calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(i) + 1}, *text};
    return {};
}

// Drops runs of calls, long ones first, for as long as what is left still fails.
template <class Queue>
failure shrink(failure f, sabotage wrong) {
    for (std::size_t run = std::max<std::size_t>(f.calls.size() / 2, 1); run != 0;) {
        bool dropped = false;
        for (std::size_t at = 0; at + run <= f.calls.size();) {
            std::vector<call> fewer = f.calls;
            const auto first = fewer.begin() + static_cast<std::ptrdiff_t>(at);
            fewer.erase(first, first + static_cast<std::ptrdiff_t>(run));
            if (auto still = replay<Queue>(f.where, fewer, wrong)) {
                f = std::move(*still);
                dropped = true;
            } else {
                at += run;
            }
        }
        run = dropped && run == 1 ? 1 : run / 2;
    }
    return f;
}

// Episodes on fresh queues, until `count` calls were made.
template <class Queue>
std::optional<failure> explore(std::uint64_t seed, std::uint64_t count, sabotage wrong = sabotage::none) {
    constexpr std::uint64_t episode = 2000;
    const std::vector<shape> all = shapes();
    std::mt19937_64 seeds(seed);
    for (std::uint64_t made = 0; made < count; made += episode) {
        const shape s = all[made / episode % all.size()];
        pair_of_queues<Queue> both(s, wrong);
        generator next(seeds(), s);
        std::vector<call> calls;
        while (calls.size() != std::min(episode, count - made)) {
            calls.push_back(next.next());
            if (auto text = both.step(calls.back()))
                return shrink<Queue>({s, calls, *text}, wrong);
        }
    }
    return {};
}

std::string describe(const failure& f, std::uint64_t seed) {
    std::string text = "NOWAIT_DIFFERENTIAL_SEED=" + std::to_string(seed) + ", " +
                       std::to_string(f.where.max_messages) + " messages of at most " +
                       std::to_string(f.where.message_size) + " bytes, shrunk to\n";
    for (const call& c : f.calls)
        text += "  " + describe(c) + "\n";
    return text + "and there\n  " + f.text;
}

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
    const char* const text = std::getenv(name);
    return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

} // namespace

using channel_of_equals = channel_calls<nowait::mqueue_channel<std::string>, false>;
using local_channel_of_equals =
    channel_calls<nowait::local_mqueue_channel<std::string, nowait::bitmap_index>, false>;
using measured_channel = channel_calls<nowait::mqueue_channel<std::string>, true>;

TEMPLATE_TEST_CASE("priority queue: random calls do what they do to a POSIX queue",
                   "[priority][differential]", tree_queue<std::string>, bitmap_queue<std::string>,
                   uncached_tree_queue<std::string>, channel_of_equals, local_channel_of_equals,
                   measured_channel) {
    const std::uint64_t seed = from_environment("NOWAIT_DIFFERENTIAL_SEED", std::random_device{}());
    const std::uint64_t calls = from_environment("NOWAIT_DIFFERENTIAL_CALLS", 200'000);
    std::printf("queue against the kernel: NOWAIT_DIFFERENTIAL_SEED=%llu, %llu calls\n",
                static_cast<unsigned long long>(seed), static_cast<unsigned long long>(calls));
    const auto found = explore<TestType>(seed, calls);
    INFO((found ? describe(*found, seed) : std::string()));
    REQUIRE_FALSE(found);
}

TEST_CASE("priority queue: the differential test finds a wrong queue and says it in a few calls",
          "[priority][differential]") {
    SECTION("neighbouring priorities are mixed up") {
        const auto found = explore<bitmap_queue<std::string>>(7, 200'000, sabotage::low_bit_of_priority_lost);
        REQUIRE(found);
        INFO(describe(*found, 7));
        CHECK(found->calls.size() <= 3);
    }
    SECTION("a full queue is noticed before a message that is too long") {
        const auto found = explore<bitmap_queue<std::string>>(7, 200'000, sabotage::full_before_size);
        REQUIRE(found);
        INFO(describe(*found, 7));
        CHECK(found->calls.size() <= 3);
    }
}
