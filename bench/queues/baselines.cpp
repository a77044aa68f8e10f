#include "baselines.hpp"

#include "kernel_limits.hpp"
#include "pairs.hpp"

#include <mutex>
#include <queue>
#include <string>
#include <vector>

#include <boost/interprocess/ipc/message_queue.hpp>
#include <fcntl.h>
#include <mqueue.h>
#include <tbb/concurrent_priority_queue.h>
#include <unistd.h>

namespace bench::queues {
namespace {

// Equal priorities leave in the order of their coming, as everywhere here.
struct entry {
    unsigned priority;
    std::uint64_t sequence;
    payload message;

    friend bool operator<(const entry& a, const entry& b) noexcept {
        return a.priority != b.priority ? a.priority < b.priority : a.sequence > b.sequence;
    }
};

struct no_mutex {
    void lock() noexcept {}
    void unlock() noexcept {}
};

template <class Mutex>
class heap {
public:
    void push(unsigned priority, const payload& message) {
        const std::lock_guard guard(mutex_);
        queue_.push({priority, sequence_++, message});
    }
    [[nodiscard]] payload pop() {
        const std::lock_guard guard(mutex_);
        const payload message = queue_.top().message;
        queue_.pop();
        return message;
    }
    [[nodiscard]] bool empty() {
        const std::lock_guard guard(mutex_);
        return queue_.empty();
    }

private:
    Mutex mutex_;
    std::priority_queue<entry> queue_;
    std::uint64_t sequence_ = 0;
};

class tbb_heap {
public:
    void push(unsigned priority, const payload& message) { queue_.push({priority, sequence_++, message}); }
    [[nodiscard]] payload pop() {
        entry taken{};
        require(queue_.try_pop(taken), "tbb try_pop");
        return taken.message;
    }
    [[nodiscard]] bool empty() const { return queue_.empty(); }

private:
    tbb::concurrent_priority_queue<entry> queue_;
    std::uint64_t sequence_ = 0;
};

class posix_queue {
public:
    explicit posix_queue(std::size_t depth) {
        const std::string name = "/nowait-bench-" + std::to_string(::getpid());
        mq_attr attributes{};
        attributes.mq_maxmsg = static_cast<long>(depth);
        attributes.mq_msgsize = sizeof(payload);
        queue_ = ::mq_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_NONBLOCK, 0600, &attributes);
        if (queue_ >= 0) {
            ::mq_unlink(name.c_str());
        }
    }
    posix_queue(const posix_queue&) = delete;
    posix_queue& operator=(const posix_queue&) = delete;
    ~posix_queue() {
        if (queue_ >= 0) {
            ::mq_close(queue_);
        }
    }

    [[nodiscard]] bool open() const noexcept { return queue_ >= 0; }
    void push(unsigned priority, const payload& message) {
        require(::mq_send(queue_, reinterpret_cast<const char*>(&message), sizeof message, priority) == 0,
                "mq_send");
    }
    [[nodiscard]] payload pop() {
        payload message;
        unsigned priority = 0;
        require(::mq_receive(queue_, reinterpret_cast<char*>(&message), sizeof message, &priority) ==
                    static_cast<ssize_t>(sizeof message),
                "mq_receive");
        return message;
    }
    [[nodiscard]] bool empty() const {
        mq_attr now{};
        require(::mq_getattr(queue_, &now) == 0, "mq_getattr");
        return now.mq_curmsgs == 0;
    }

private:
    mqd_t queue_;
};

class boost_heap {
public:
    explicit boost_heap(std::size_t depth) : name_("nowait-bench-" + std::to_string(::getpid())) {
        boost::interprocess::message_queue::remove(name_.c_str());
        queue_ = std::make_unique<boost::interprocess::message_queue>(boost::interprocess::create_only,
                                                                      name_.c_str(), depth, sizeof(payload));
        boost::interprocess::message_queue::remove(name_.c_str());
    }
    void push(unsigned priority, const payload& message) {
        require(queue_->try_send(&message, sizeof message, priority), "boost try_send");
    }
    [[nodiscard]] payload pop() {
        payload message;
        unsigned priority = 0;
        boost::interprocess::message_queue::size_type size = 0;
        require(queue_->try_receive(&message, sizeof message, size, priority), "boost try_receive");
        return message;
    }
    [[nodiscard]] bool empty() const { return queue_->get_num_msg() == 0; }

private:
    std::string name_;
    std::unique_ptr<boost::interprocess::message_queue> queue_;
};

} // namespace

contender heap_local(pattern which, std::size_t depth) {
    return called<heap<no_mutex>>("std::priority_queue", which, depth);
}

contender heap_locked(pattern which, std::size_t depth) {
    return called<heap<std::mutex>>("std::priority_queue + mutex", which, depth);
}

contender tbb_queue(pattern which, std::size_t depth) {
    return called<tbb_heap>("tbb", which, depth);
}

contender kernel_queue(pattern which) {
    return called<posix_queue>("mq_send + mq_receive", which, 0, std::size_t{10});
}

contender boost_queue(pattern which, std::size_t depth) {
    return called<boost_heap>("boost message_queue", which, depth, depth + 1);
}

published_line heap_locked_line(const fine_clock& clock) {
    heap<std::mutex> queue;
    return run_published("priority_queue + mutex", queue, full_depth, pairs_until_refill, clock);
}

published_line tbb_line(const fine_clock& clock) {
    tbb_heap queue;
    return run_published("tbb", queue, full_depth, pairs_until_refill, clock);
}

published_line boost_line(const fine_clock& clock) {
    boost_heap queue(full_depth + 1);
    // A message costs microseconds: fewer of them.
    return run_published("boost message_queue", queue, full_depth, pairs_until_refill / 100, clock);
}

published_line kernel_line(const fine_clock& clock) {
    const raised_queue_limits raised(full_depth + 1, sizeof(payload));
    for (std::size_t depth : {full_depth + 1, std::size_t{7'000}, std::size_t{3'000}, std::size_t{10}}) {
        posix_queue queue(depth);
        if (queue.open()) {
            return run_published("kernel mqueue", queue, depth - 1, pairs_until_refill / 10, clock);
        }
    }
    give_up("mq_open");
}

} // namespace bench::queues
