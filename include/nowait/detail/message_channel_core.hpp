// What the handles of an in-process message channel share: the queue, its lock, who waits, and who goes on when something
// changes. One implementation for mqueue_channel and channel, shared and local.
//
//      senders_    [s] -> [s] -> [s]        each with its message still in the caller's hands
//                   |                       refilled from here when room is made
//                   v
//      queue_      priority_queue: limits, order, memory
//                   |
//                   v                       handed over without touching the queue
//      receivers_  [r] -> [r]               each with room for one message
//
// The kernel's rules (mqueue), kept:
//   1. Receivers wait => the queue is empty. Senders wait => the first of them finds no room. So a newcomer has nothing to
//      take that a waiter was meant to have: nobody barges, and whoever is woken has what it waited for.
//   2. Whoever changes the state settles the waiters under the same lock, in the waiter's own memory; it is unlinked, has its
//      outcome, and is only told of it. A stop that comes later finds it unlinked, and the outcome stands.
//   3. Insertion cannot fail: a sender buys the memory that its message can need before it waits (the kernel does not, and
//      can leave a sender asleep beside a free place).
//   4. A waiting message gets its place in the order when it enters the queue, not when its sender began to wait.
//
// A reservation is a place that is taken before there is a message: it counts against the limits, and its memory is promised. It
// is waited for among the senders, by an operation that has no message. While one is out the channel is not at its end, closed or
// not: receivers wait for what it will bring.
//
// What runs under the lock: moves of T (nothrow), the destructor of a moved-from T, the lists. The size function, the memory,
// the destruction of dropped messages and the wake-ups come before or after it.
//
// Life: all handles hold one reference, and so does each operation that waits, unless a handle is kept for it. The last handle ends all.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/list.hpp>
#include <nowait/detail/message_channel_ring.hpp>
#include <nowait/detail/priority_queue.hpp>
#include <nowait/detail/sync.hpp>
#include <nowait/detail/waiter.hpp>
#include <nowait/message.hpp>
#include <nowait/result.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

NOWAIT_BEGIN_NAMESPACE

namespace detail {

/// Where an attempt stands. Outcomes are errno values, 0 for done.
enum message_attempt : int {
    attempt_untried = -1, ///< nothing has happened
    attempt_waits = -2    ///< it has to wait, and the channel's lock is held for the operation that will
};

/// Room for one message on its way to a receiver, who gets a V. Whether there is one its owner knows. The priority lies before
/// the value, and not behind it as in a message<T>: then compilers do not copy both at once. A read that is wider than the
/// words just stored stalls the processor.
template <class T, class V>
class message_landing {
public:
    message_landing() noexcept {}
    message_landing(const message_landing&) = delete;
    message_landing& operator=(const message_landing&) = delete;
    ~message_landing() {}

    [[gnu::always_inline]] void fill(T&& value, unsigned priority) noexcept {
        ::new (static_cast<void*>(&value_)) T(std::move(value));
        if constexpr (!std::is_same_v<T, V>)
            priority_ = priority;
    }
    /// Once, if it was filled.
    [[nodiscard, gnu::always_inline]] result<V> take() noexcept {
        result<V> got = as_result();
        value_.~T();
        return got;
    }
    void discard() noexcept { value_.~T(); }

private:
    [[nodiscard, gnu::always_inline]] result<V> as_result() noexcept {
        if constexpr (std::is_same_v<T, V>)
            return result<V>(tl::in_place, std::move(value_));
        else
            return result<V>(tl::in_place, std::move(value_), unsigned{priority_});
    }

    struct nothing {};
    [[no_unique_address]] std::conditional_t<std::is_same_v<T, V>, nothing, unsigned> priority_;
    union {
        T value_;
    };
};

/// The same, and how the receiving came out.
template <class T, class V>
class message_slot {
public:
    message_slot() noexcept = default;
    ~message_slot() {
        if (code == 0)
            landing_.discard();
    }
    void fill(T&& value, unsigned priority) noexcept {
        landing_.fill(std::move(value), priority);
        code = 0;
    }
    [[nodiscard]] result<V> take() noexcept {
        if (code != 0) [[unlikely]]
            return fail_errno(code);
        code = attempt_untried;
        return landing_.take();
    }

    int code = attempt_untried; // 0: there is one

private:
    message_landing<T, V> landing_;
};

template <class Core>
class message_send_operation;
template <class Core>
class message_receive_operation;
template <class Core>
class message_notified_operation;

template <class T, class Sync, class Index, class Order = strict_order, front_cache Front = front_cache::yes>
class message_core {
public:
    using value_type = T;
    using queue_type =
        std::conditional_t<Index::levels == 1, message_ring<T>, priority_queue<T, Index, Order, Front>>;
    using order_type = Order;
    using size_function = std::uint64_t (*)(const T&) noexcept;
    static constexpr unsigned levels = queue_type::levels;
    static constexpr bool has_priorities = levels > 1;
    static constexpr bool is_local = std::is_same_v<Sync, local_sync>;

    /// What a receiver gets: the message, and its priority where there are any.
    using received_type = std::conditional_t<has_priorities, message<T>, T>;
    using slot = message_slot<T, received_type>;
    using landing = message_landing<T, received_type>;
    using send_waiter = message_send_operation<message_core>;
    using receive_waiter = message_receive_operation<message_core>;
    using notified_waiter = message_notified_operation<message_core>;

    /// `limits` were settled. nullptr: no memory.
    [[nodiscard]] static message_core* create(queue_limits limits, size_function sizes, block_source& source,
                                              Order order) noexcept {
        void* const place = source.take(source, sizeof(message_core), alignof(message_core));
        return place == nullptr ? nullptr : ::new (place) message_core(limits, sizes, source, order);
    }
    message_core(const message_core&) = delete;
    message_core& operator=(const message_core&) = delete;

    // --- the ready path, inlined into whoever sends or receives: one lock pair, no waiter in sight -------------------------

    /// Sends if that is simple: nobody waits, there is room and memory, and all messages count the same. True: done.
    [[nodiscard, gnu::always_inline]] bool send_at_once(T& value, unsigned priority) noexcept {
        const std::uint64_t now = clock();
        mutex_.lock();
        const bool sent = send_gate_ == 0 && queue_.try_push(value, priority, 0, now);
        mutex_.unlock();
        return sent;
    }
    /// The same, and also if a receiver waits on the loop of this thread. Not inlined: there is more to it.
    [[nodiscard, gnu::noinline]] bool send_or_hand_over(T& value, unsigned priority, loop& here) noexcept {
        const std::uint64_t now = clock();
        const lock_scope scope(mutex_);
        if (send_gate_ == 0)
            return queue_.try_push(value, priority, 0, now);
        if (send_gate_ != someone_waits || receivers_.empty() || &receivers_.front().home() != &here)
            return false;
        receive_waiter& receiver = receivers_.pop_front();
        receiver.slot_.fill(std::move(value), priority);
        here.post(receiver); // runs when this turn is over
        open_send_gate();
        return true;
    }
    /// Receives if that is simple: there is a message, and nobody waits to send.
    [[nodiscard, gnu::always_inline]] bool receive_at_once(landing& into) noexcept {
        const std::uint64_t now = clock();
        mutex_.lock();
        const bool received = receive_gate_ == 0 && pop(into, now);
        mutex_.unlock();
        return received;
    }

    // --- the same in all cases ---------------------------------------------------------------------------------------------

    /// What `value` counts against the limits by bytes, or false if that is more than one message may: nothing where all count
    /// the same. Not under the lock: it may run the user's function.
    [[nodiscard]] bool measure(const T& value, std::uint64_t& bytes) const noexcept {
        bytes = size_of_ == nullptr ? 0 : size_of_(value);
        return bytes <= queue_.limits().message_bytes; // never changes
    }

    /// Sends now if that is possible, or finds out that it is not. No `value`: reserves. `here`: the loop of this thread, or nullptr. Returns false
    /// if the operation has to wait (only if it `may_wait`): then the lock is held, and enqueue() is next.
    [[nodiscard, gnu::noinline]] bool send_now(T* value, unsigned priority, std::uint64_t bytes,
                                               unsigned urgency, loop* here, bool may_wait,
                                               int& code) noexcept;
    /// The same for receiving.
    [[nodiscard, gnu::noinline]] bool receive_now(slot& into, loop* here, bool may_wait) noexcept;

    // --- waiting: the lock is held by xxx_now(), and released here ---------------------------------------------------------

    void enqueue(send_waiter& sender) noexcept {
        if (!is_rendezvous())
            queue_.promise(sender.priority());
        place(senders_, sender);
        send_gate_ |= someone_waits;
        receive_gate_ |= someone_waits;
        mutex_.unlock();
    }
    /// Ends a reservation. `value`: its message, or nullptr for a place that is given back. Returns 0, or EPIPE: what was queued
    /// has been dropped, and the message stays where it is.
    int settle_reservation(T* value, unsigned priority, std::uint64_t reserved_bytes, std::uint64_t bytes,
                           loop* here) noexcept;

    void enqueue(receive_waiter& receiver) noexcept {
        place(receivers_, receiver);
        send_gate_ |= someone_waits;
        mutex_.unlock();
    }

    /// Takes a waiter out of its list. False: it is not there, its outcome is on its way.
    [[nodiscard]] bool withdraw(send_waiter& sender) noexcept;
    [[nodiscard]] bool withdraw(receive_waiter& receiver) noexcept;

    /// Registers for the next message that reaches an empty queue. attempt_waits, EBUSY or EPIPE.
    [[nodiscard]] int register_for_notice(notified_waiter& waiter) noexcept;
    [[nodiscard]] bool withdraw(notified_waiter& waiter) noexcept;

    // --- without the lock --------------------------------------------------------------------------------------------------

    /// Buys what one message of that priority needs. False: no memory.
    [[nodiscard]] bool reserve(unsigned priority) noexcept;

    enum class ending : bool { drains, drops };
    void end(ending how) noexcept;

    [[nodiscard]] std::size_t size() noexcept {
        return look([this] { return queue_.size(); });
    }
    [[nodiscard]] std::uint64_t bytes() noexcept {
        return look([this] { return size_of_ == nullptr ? queue_.size() * sizeof(T) : queue_.bytes(); });
    }
    [[nodiscard]] bool closed() noexcept {
        return look([this] { return closed_; });
    }
    [[nodiscard]] std::size_t waiting_senders() noexcept {
        return look([this] { return count(senders_); });
    }
    [[nodiscard]] std::size_t waiting_receivers() noexcept {
        return look([this] { return count(receivers_); });
    }
    [[nodiscard]] const queue_limits& limits() const noexcept { return queue_.limits(); }
    [[nodiscard]] bool is_rendezvous() const noexcept {
        return !has_priorities && queue_.limits().messages == 0;
    }
    /// What a place counts before its message is known.
    [[nodiscard]] std::uint64_t reserved_size() const noexcept {
        return size_of_ == nullptr ? 0 : queue_.limits().message_bytes;
    }
    [[nodiscard]] std::size_t reserved() noexcept {
        return look([this] { return reserved_; });
    }
    [[nodiscard]] block_source& source() const noexcept { return queue_.source(); }
    /// For tests, while nobody else is here.
    [[nodiscard]] bool sound() const noexcept;

    void acquire() noexcept { references_.fetch_add(1, std::memory_order_relaxed); } // by who holds one
    void release() noexcept {
        // acq_rel: the last one sees everything that was done here before it deletes.
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            destroy();
    }
    void add_handle() noexcept { handles_.fetch_add(1, std::memory_order_relaxed); } // by who holds one
    void drop_handle() noexcept {
        if (handles_.fetch_sub(1, std::memory_order_acq_rel) != 1)
            return;
        end(ending::drops);
        release();
    }

private:
    // What keeps the ready path out.
    static constexpr unsigned someone_waits = 1;
    static constexpr unsigned is_closed = 2;
    static constexpr unsigned has_listener = 4;
    static constexpr unsigned must_be_measured = 8;
    static constexpr unsigned has_reservations = 16;

    message_core(queue_limits limits, size_function sizes, block_source& source, Order order) noexcept
        : queue_(sizes == nullptr ? by_count(limits) : limits, source, order), size_of_(sizes) {
        reset_gates();
    }
    /// Where every message counts sizeof(T), bytes need no account of their own: they say how many messages there may be.
    [[nodiscard]] static queue_limits by_count(queue_limits limits) noexcept {
        limits.messages = std::min<std::uint64_t>(limits.messages, limits.total_bytes / sizeof(T));
        return limits;
    }
    ~message_core() = default;

    void destroy() noexcept {
        block_source& source = queue_.source();
        this->~message_core();
        source.give(source, this, sizeof(message_core), alignof(message_core));
    }

    [[nodiscard, gnu::always_inline]] static std::uint64_t clock() noexcept {
        if constexpr (Order::remembers_arrival) {
            loop* const here = loop::current(); // a plain thread has none, and no simulated clock either
            const auto now = here != nullptr ? here->now() : real_system().now();
            return static_cast<std::uint64_t>(now.time_since_epoch().count());
        } else {
            return 0;
        }
    }
    [[nodiscard]] bool admits(std::uint64_t bytes) const noexcept {
        if (reserved_ == 0) [[likely]]
            return queue_.admits(bytes);
        return queue_.size() + reserved_ < queue_.limits().messages &&
               bytes <= queue_.limits().total_bytes - queue_.bytes() - reserved_bytes_;
    }
    /// Nothing is there, and nothing will come.
    [[nodiscard]] bool at_end() const noexcept { return closed_ && (reserved_ == 0 || dropped_); }
    void end_receivers(loop* here, wake_list& wakes) noexcept;
    void reserve_place(std::uint64_t bytes) noexcept { // its memory has been promised
        ++reserved_;
        reserved_bytes_ += bytes;
    }
    template <class Look>
    auto look(Look&& what) noexcept {
        const lock_scope scope(mutex_);
        return what();
    }
    template <class Waiter>
    [[nodiscard]] static std::size_t count(const list<Waiter>& waiting) noexcept {
        std::size_t n = 0;
        waiting.for_each([&n](Waiter&) { ++n; });
        return n;
    }

    /// By urgency, then by arrival: from the tail, so that equals cost nothing.
    template <class Waiter>
    static void place(list<Waiter>& waiting, Waiter& newcomer) noexcept {
        if (waiting.empty() || waiting.back().urgency() >= newcomer.urgency()) {
            waiting.push_back(newcomer);
            return;
        }
        list_node* behind = &waiting.back();
        while (behind != &waiting.front() &&
               static_cast<Waiter*>(behind->before)->urgency() < newcomer.urgency())
            behind = behind->before;
        static_cast<list_node&>(newcomer).link_before(*behind);
    }

    template <class Into>
    [[nodiscard, gnu::always_inline]] bool pop(Into& into, std::uint64_t now) noexcept {
        return queue_.try_pop_to(
            [&into](T&& value, unsigned priority) { into.fill(std::move(value), priority); }, now);
    }

    /// Under the lock, for a waiter that is unlinked and has its outcome.
    static void wake(channel_waiter& settled, loop* here, wake_list& elsewhere) noexcept {
        if (is_local || &settled.home() == here)
            settled.home().post(settled); // runs when this turn is over
        else
            elsewhere.add(settled, here);
    }
    /// Waiters of a local channel belong to one loop, and so does everybody who meets them.
    template <class Waiter>
    [[nodiscard]] static bool is_foreign(const list<Waiter>& waiting, const loop* here) noexcept {
        if constexpr (is_local)
            return here != nullptr && !waiting.empty() && &waiting.front().home() != here;
        else
            return false;
    }

    [[nodiscard]] send_waiter* first_with_message() noexcept;
    void refill(loop* here, wake_list& wakes, std::uint64_t now) noexcept;
    void notify(loop* here, wake_list& wakes) noexcept;
    /// A receiver that waited has been served.
    void open_send_gate() noexcept {
        if (receivers_.empty() && senders_.empty())
            send_gate_ &= ~someone_waits;
    }
    void reset_gates() noexcept {
        const unsigned closed = closed_ ? is_closed : 0;
        const bool sender = !senders_.empty();
        send_gate_ = closed | (size_of_ != nullptr ? must_be_measured : 0) |
                     (sender || !receivers_.empty() ? someone_waits : 0) |
                     (listener_ != nullptr ? has_listener : 0) | (reserved_ != 0 ? has_reservations : 0);
        receive_gate_ = sender ? someone_waits : 0;
    }

    // Under the mutex. The gates are zero exactly if nothing of the below stands in the way of the ready path.
    typename Sync::mutex mutex_;
    unsigned send_gate_ = 0;
    unsigned receive_gate_ = 0;
    bool closed_ = false;
    bool dropped_ = false; // closed, and messages that come later go the way of those that were there
    std::size_t reserved_ = 0;
    std::uint64_t reserved_bytes_ = 0;
    queue_type queue_;
    list<send_waiter> senders_;
    list<receive_waiter> receivers_;
    notified_waiter* listener_ = nullptr;

    const size_function size_of_;
    typename Sync::template atomic<std::uint32_t> handles_{1};
    typename Sync::template atomic<std::uint32_t> references_{1};
};

template <class T, class Sync, class Index, class Order, front_cache Front>
bool message_core<T, Sync, Index, Order, Front>::send_now(T* value, unsigned priority, std::uint64_t bytes,
                                                          unsigned urgency, loop* here, bool may_wait,
                                                          int& code) noexcept {
    const std::uint64_t now = clock();
    queue_supply supply; // gives back what was bought in vain, after the lock
    wake_list wakes;
    const auto over = [&](int outcome) {
        mutex_.unlock();
        code = outcome;
        return true;
    };
    mutex_.lock();
    for (;;) {
        if (closed_)
            return over(EPIPE);
        if (is_foreign(receivers_, here) || is_foreign(senders_, here))
            return over(EPERM);
        if (value != nullptr && !receivers_.empty()) {
            receive_waiter& receiver = receivers_.pop_front();
            receiver.slot_.fill(std::move(*value), priority);
            wake(receiver, here, wakes);
            open_send_gate();
            return over(0);
        }
        const bool its_turn = senders_.empty() || urgency > senders_.front().urgency();
        const bool admitted = its_turn && admits(bytes);
        if (!admitted && !may_wait)
            return over(EAGAIN);
        if (is_rendezvous())
            break;
        if (!queue_.ready(priority)) {
            const queue_need need = queue_.shortage(priority);
            mutex_.unlock();
            if (!supply.buy(queue_.source(), need)) {
                code = ENOMEM;
                return true;
            }
            mutex_.lock();
            queue_.adopt(priority, supply);
            continue;
        }
        if (admitted && value == nullptr) {
            queue_.promise(priority);
            reserve_place(bytes);
            reset_gates();
            return over(0);
        }
        if (admitted) {
            const bool was_empty = queue_.empty();
            queue_.push(std::move(*value), priority, bytes, now);
            if (was_empty)
                notify(here, wakes);
            return over(0);
        }
        if (!supply.slab && !supply.index)
            break;
        mutex_.unlock(); // others were faster: what is left over is not given back under the lock
        supply = {};
        mutex_.lock();
    }
    code = attempt_waits;
    return false;
}

template <class T, class Sync, class Index, class Order, front_cache Front>
bool message_core<T, Sync, Index, Order, Front>::receive_now(slot& into, loop* here, bool may_wait) noexcept {
    const std::uint64_t now = clock();
    wake_list wakes;
    const auto over = [&](int outcome) {
        into.code = outcome;
        mutex_.unlock();
        return true;
    };
    mutex_.lock();
    if (is_foreign(receivers_, here) || is_foreign(senders_, here))
        return over(EPERM);
    if (pop(into, now)) {
        refill(here, wakes, now);
        return over(0);
    }
    if (send_waiter* const sender = first_with_message(); sender != nullptr) {
        // A rendezvous, or all places are reserved: from hand to hand.
        static_cast<list_node&>(*sender).unlink();
        if (!is_rendezvous())
            queue_.retract();
        into.fill(std::move(*sender->value_), sender->priority());
        sender->code_ = 0;
        wake(*sender, here, wakes);
        refill(here, wakes, now);
        return over(0);
    }
    if (at_end())
        return over(EPIPE);
    if (!may_wait)
        return over(EAGAIN);
    into.code = attempt_waits;
    return false;
}

template <class T, class Sync, class Index, class Order, front_cache Front>
bool message_core<T, Sync, Index, Order, Front>::reserve(unsigned priority) noexcept {
    queue_supply supply;
    for (;;) {
        queue_need need;
        {
            const lock_scope scope(mutex_);
            queue_.adopt(priority, supply);
            if (queue_.ready(priority))
                return true;
            need = queue_.shortage(priority);
        }
        if (!supply.buy(queue_.source(), need))
            return false;
    }
}

/// Lets waiting senders in while there is room.
template <class T, class Sync, class Index, class Order, front_cache Front>
void message_core<T, Sync, Index, Order, Front>::refill(loop* here, wake_list& wakes,
                                                        std::uint64_t now) noexcept {
    while (!senders_.empty() && admits(senders_.front().bytes_)) {
        send_waiter& sender = senders_.pop_front();
        if (sender.value_ == nullptr)
            reserve_place(sender.bytes_);
        else
            queue_.push_promised(std::move(*sender.value_), sender.priority(), sender.bytes_, now);
        sender.code_ = 0;
        wake(sender, here, wakes);
    }
    reset_gates();
}

template <class T, class Sync, class Index, class Order, front_cache Front>
int message_core<T, Sync, Index, Order, Front>::settle_reservation(T* value, unsigned priority,
                                                                   std::uint64_t reserved_bytes,
                                                                   std::uint64_t bytes, loop* here) noexcept {
    const std::uint64_t now = clock();
    wake_list wakes;
    const lock_scope scope(mutex_);
    --reserved_;
    reserved_bytes_ -= reserved_bytes;
    if (value == nullptr || dropped_) {
        queue_.retract();
    } else if (!receivers_.empty()) {
        queue_.retract();
        receive_waiter& receiver = receivers_.pop_front();
        receiver.slot_.fill(std::move(*value), priority);
        wake(receiver, here, wakes);
    } else {
        const bool was_empty = queue_.empty();
        queue_.push_promised(std::move(*value), priority, bytes, now);
        if (was_empty)
            notify(here, wakes);
    }
    refill(here, wakes, now);
    if (at_end())
        end_receivers(here, wakes);
    return value != nullptr && dropped_ ? EPIPE : 0;
}

template <class T, class Sync, class Index, class Order, front_cache Front>
void message_core<T, Sync, Index, Order, Front>::end_receivers(loop* here, wake_list& wakes) noexcept {
    while (!receivers_.empty()) {
        receive_waiter& receiver = receivers_.pop_front();
        receiver.slot_.code = EPIPE;
        wake(receiver, here, wakes);
    }
    reset_gates();
}

template <class T, class Sync, class Index, class Order, front_cache Front>
typename message_core<T, Sync, Index, Order, Front>::send_waiter* message_core<
    T, Sync, Index, Order, Front>::first_with_message() noexcept {
    send_waiter* found = nullptr;
    senders_.for_each([&found](send_waiter& each) {
        if (found == nullptr && each.value_ != nullptr)
            found = &each;
    });
    return found;
}

template <class T, class Sync, class Index, class Order, front_cache Front>
void message_core<T, Sync, Index, Order, Front>::notify(loop* here, wake_list& wakes) noexcept {
    if (listener_ == nullptr)
        return;
    notified_waiter& told = *std::exchange(listener_, nullptr);
    told.code_ = 0;
    wake(told, here, wakes);
    reset_gates();
}

template <class T, class Sync, class Index, class Order, front_cache Front>
bool message_core<T, Sync, Index, Order, Front>::withdraw(send_waiter& sender) noexcept {
    const std::uint64_t now = clock();
    wake_list wakes;
    const lock_scope scope(mutex_);
    if (!sender.queued())
        return false;
    static_cast<list_node&>(sender).unlink();
    if (!is_rendezvous())
        queue_.retract();
    refill(&sender.home(), wakes, now); // the next one may be smaller
    return true;
}

template <class T, class Sync, class Index, class Order, front_cache Front>
bool message_core<T, Sync, Index, Order, Front>::withdraw(receive_waiter& receiver) noexcept {
    const lock_scope scope(mutex_);
    if (!receiver.queued())
        return false;
    static_cast<list_node&>(receiver).unlink();
    reset_gates();
    return true;
}

template <class T, class Sync, class Index, class Order, front_cache Front>
int message_core<T, Sync, Index, Order, Front>::register_for_notice(notified_waiter& waiter) noexcept {
    const lock_scope scope(mutex_);
    if (closed_)
        return EPIPE;
    if (listener_ != nullptr)
        return EBUSY;
    listener_ = &waiter;
    send_gate_ |= has_listener;
    acquire();
    return attempt_waits;
}

template <class T, class Sync, class Index, class Order, front_cache Front>
bool message_core<T, Sync, Index, Order, Front>::withdraw(notified_waiter& waiter) noexcept {
    const lock_scope scope(mutex_);
    if (listener_ != &waiter)
        return false;
    listener_ = nullptr;
    reset_gates();
    return true;
}

template <class T, class Sync, class Index, class Order, front_cache Front>
void message_core<T, Sync, Index, Order, Front>::end(ending how) noexcept {
    loop* const here = loop::current();
    wake_list wakes;
    decltype(queue_.drain()) dropped;
    {
        const lock_scope scope(mutex_);
        closed_ = true;
        dropped_ = dropped_ || how == ending::drops;
        if (at_end())
            end_receivers(here, wakes);
        while (!senders_.empty()) { // each keeps its message
            send_waiter& sender = senders_.pop_front();
            if (!is_rendezvous())
                queue_.retract();
            sender.code_ = EPIPE;
            wake(sender, here, wakes);
        }
        if (listener_ != nullptr) {
            notified_waiter& told = *std::exchange(listener_, nullptr);
            told.code_ = EPIPE;
            wake(told, here, wakes);
        }
        if (how == ending::drops)
            dropped = queue_.drain();
        reset_gates();
    }
    if (dropped.count != 0) {
        queue_.destroy(dropped);
        const lock_scope scope(mutex_);
        queue_.release(dropped);
    }
}

template <class T, class Sync, class Index, class Order, front_cache Front>
bool message_core<T, Sync, Index, Order, Front>::sound() const noexcept {
    const bool first_sender_waits_in_vain = !senders_.empty() && admits(senders_.front().bytes_);
    std::size_t with_message = 0;
    senders_.for_each([&](const send_waiter& each) { with_message += each.value_ != nullptr; });
    const bool gone = dropped_ && reserved_ != 0; // the memory of their places went with the messages
    return (gone || queue_.sound()) && !first_sender_waits_in_vain &&
           (receivers_.empty() || queue_.empty()) && (receivers_.empty() || with_message == 0) &&
           queue_.promised() == (is_rendezvous() ? 0 : count(senders_) + reserved_) &&
           (!closed_ || senders_.empty()) && (!at_end() || receivers_.empty());
}

} // namespace detail
NOWAIT_END_NAMESPACE
