// What the tests of the priority queue share: a source of memory that counts and fails, and the queue behind
// the checks that a POSIX message queue makes.
#pragma once

#include <nowait/detail/priority_queue.hpp>

#include <cerrno>
#include <cstddef>
#include <map>
#include <string>

namespace priority_tests {

using namespace nowait::detail;

/// The heap, with a count of the calls, a check of what is given back, and a failure when it is asked for.
class counting_source : public block_source {
public:
    counting_source() : block_source{do_take, do_give} {}

    std::size_t taken = 0;            // blocks, ever
    std::size_t refused = 0;          // requests, ever
    bool refuses_all = false;         // while set
    std::size_t refuse_at = SIZE_MAX; // the request of that number, from 0, fails once
    bool confused = false;            // a block came back that was never given out, or with another size
    std::map<void*, std::size_t> out;

private:
    static void* do_take(block_source& self, std::size_t bytes, std::size_t alignment) noexcept {
        auto& me = static_cast<counting_source&>(self);
        if (me.refuses_all || me.taken + me.refused == me.refuse_at) {
            ++me.refused;
            return nullptr;
        }
        void* const block = heap_blocks().take(heap_blocks(), bytes, alignment);
        me.out[block] = bytes;
        ++me.taken;
        return block;
    }
    static void do_give(block_source& self, void* block, std::size_t bytes, std::size_t alignment) noexcept {
        auto& me = static_cast<counting_source&>(self);
        const auto known = me.out.find(block);
        me.confused = me.confused || known == me.out.end() || known->second != bytes;
        if (known != me.out.end())
            me.out.erase(known);
        heap_blocks().give(heap_blocks(), block, bytes, alignment);
    }
};

inline queue_limits limits_of(std::uint64_t messages, std::uint64_t message_bytes,
                              std::uint64_t total_bytes = 0) {
    queue_limits limits{messages, message_bytes, total_bytes};
    if (settle(limits) != std::errc{})
        throw std::invalid_argument("the test's own limits are wrong");
    return limits;
}

/// A queue of byte strings that never waits, with the calls of a POSIX queue opened O_NONBLOCK and its checks
/// in the kernel's order.
template <class Queue>
class nonblocking_queue {
public:
    nonblocking_queue(std::uint64_t max_messages, std::uint64_t message_size,
                      block_source& source = heap_blocks())
        : queue_(limits_of(max_messages, message_size), source) {}

    /// 0 or an errno value.
    int send(std::string message, unsigned priority) {
        const std::size_t bytes = message.size();
        if (priority >= priority_levels)
            return EINVAL;
        if (bytes > queue_.limits().message_bytes)
            return EMSGSIZE;
        if (!queue_.admits(bytes))
            return EAGAIN;
        if (!queue_.reserve(priority))
            return ENOMEM;
        queue_.push(std::move(message), priority, bytes);
        return 0;
    }

    /// 0 or an errno value. `buffer_size` is what the caller has room for.
    int receive(std::string& message, unsigned& priority, std::size_t buffer_size) {
        if (buffer_size < queue_.limits().message_bytes)
            return EMSGSIZE;
        if (queue_.empty())
            return EAGAIN;
        received<std::string> next = queue_.pop();
        message = std::move(next.value);
        priority = next.priority;
        return 0;
    }

    [[nodiscard]] std::size_t size() const { return queue_.size(); }
    [[nodiscard]] bool readable() const { return !queue_.empty(); }
    [[nodiscard]] bool writable() const { return queue_.admits(0); }
    [[nodiscard]] const Queue& queue() const { return queue_; }

private:
    Queue queue_;
};

template <class T>
using tree_queue = priority_queue<T, tree_index>;
template <class T>
using bitmap_queue = priority_queue<T, bitmap_index>;
template <class T>
using uncached_tree_queue = priority_queue<T, uncached_tree_index, strict_order, front_cache::no>;
template <class T>
using frontless_bitmap_queue = priority_queue<T, bitmap_index, strict_order, front_cache::no>;

} // namespace priority_tests
