// What a broadcast's handle and readers share: a ring of the last messages, and the readers who wait for the next one.
//
//      ring_     [ 8 | 5 | 6 | 7 ]      capacity 4; next_ = 9: message 9 takes the place of 5
//      readers   a at 6: three to come     b at 9: waits     c at 2: has lost 2, 3 and 4
//
// A reader is a number. A message is a node that the ring and every reader in the middle of copying it hold: so values are
// copied and destroyed without the lock, and a writer never waits for a reader.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/message_channel_operations.hpp>
#include <nowait/detail/priority_memory.hpp>
#include <nowait/detail/sync.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

NOWAIT_BEGIN_NAMESPACE

/// A message of a broadcast, and how many before it this reader has lost because it was too slow.
template <class T>
struct broadcast_item {
    T value;
    std::uint64_t lost = 0;
};

namespace detail {

template <class T, class Sync>
class broadcast_receive_operation;

template <class T, class Sync>
class broadcast_core {
public:
    static constexpr bool is_local = std::is_same_v<Sync, local_sync>;
    using receive_waiter = broadcast_receive_operation<T, Sync>;

    struct node {
        node* next_free;
        std::size_t holders; // the ring, and readers that copy; under the lock
        union {
            T value;
        };
        node() noexcept {}
        ~node() {}
    };

    /// nullptr: no memory.
    [[nodiscard]] static broadcast_core* create(std::size_t capacity, block_source& source) noexcept {
        void* const place = source.take(source, sizeof(broadcast_core), alignof(broadcast_core));
        void* const ring =
            place == nullptr ? nullptr : source.take(source, capacity * sizeof(node*), alignof(node*));
        if (ring != nullptr)
            return ::new (place) broadcast_core(static_cast<node**>(ring), capacity, source);
        if (place != nullptr)
            source.give(source, place, sizeof(broadcast_core), alignof(broadcast_core));
        return nullptr;
    }
    broadcast_core(const broadcast_core&) = delete;
    broadcast_core& operator=(const broadcast_core&) = delete;

    [[nodiscard]] int send(T& value, loop* here) noexcept;

    /// The next message for a reader at `position`. 0, EPIPE, EAGAIN; or attempt_waits, and the lock is held.
    [[nodiscard]] int receive(std::uint64_t& position, bool may_wait, node*& taken,
                              std::uint64_t& lost) noexcept {
        mutex_.lock();
        const std::uint64_t oldest = next_ > capacity_ ? next_ - capacity_ : 0;
        int code = 0;
        if (position < next_) {
            lost = position < oldest ? oldest - position : 0;
            position += lost;
            taken = ring_[position++ % capacity_];
            ++taken->holders;
        } else if (closed_) {
            code = EPIPE;
        } else if (may_wait) {
            return attempt_waits;
        } else {
            code = EAGAIN;
        }
        mutex_.unlock();
        return code;
    }
    void enqueue(receive_waiter& reader) noexcept {
        readers_.push_back(reader);
        mutex_.unlock();
    }
    [[nodiscard]] bool withdraw(receive_waiter& reader) noexcept {
        const lock_scope scope(mutex_);
        if (!reader.queued())
            return false;
        static_cast<list_node&>(reader).unlink();
        return true;
    }
    /// Gives up a hold on a message.
    void let_go(node& held) noexcept {
        {
            const lock_scope scope(mutex_);
            if (--held.holders != 0)
                return;
        }
        recycle(held);
    }

    void close() noexcept;
    [[nodiscard]] std::uint64_t next() noexcept {
        const lock_scope scope(mutex_);
        return next_;
    }
    [[nodiscard]] bool closed() noexcept {
        const lock_scope scope(mutex_);
        return closed_;
    }
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

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
        close();
        release();
    }

private:
    broadcast_core(node** ring, std::size_t capacity, block_source& source) noexcept
        : ring_(ring), capacity_(capacity), source_(&source) {}
    ~broadcast_core() = default;

    void destroy() noexcept;
    void recycle(node& unheld) noexcept {
        unheld.value.~T();
        const lock_scope scope(mutex_);
        unheld.next_free = std::exchange(free_, &unheld);
    }
    void give_node(node& empty) noexcept {
        empty.~node();
        source_->give(*source_, &empty, sizeof(node), alignof(node));
    }
    static void wake(receive_waiter& settled, loop* here, wake_list& elsewhere) noexcept {
        if (is_local || &settled.home() == here)
            settled.home().post(settled);
        else
            elsewhere.add(settled, here);
    }

    // Under the mutex:
    typename Sync::mutex mutex_;
    bool closed_ = false;
    std::uint64_t next_ =
        0; // the number of the next message; message n is in ring_[n % capacity_] until n + capacity_ is
    node** const ring_;
    const std::size_t capacity_;
    node* free_ = nullptr;
    list<receive_waiter> readers_; // all of them have read everything

    block_source* const source_;
    typename Sync::template atomic<std::uint32_t> handles_{1};
    typename Sync::template atomic<std::uint32_t> references_{1};
};

template <class T, class Sync>
struct broadcast_receive_description {
    using operation = broadcast_receive_operation<T, Sync>;
    using value_type = result<broadcast_item<T>>;
    broadcast_core<T, Sync>* core;
    std::uint64_t* position;
};

template <class T, class Sync>
class broadcast_receive_operation final
    : public message_operation<broadcast_receive_operation<T, Sync>, broadcast_core<T, Sync>> {
    using core = broadcast_core<T, Sync>;
    using base = message_operation<broadcast_receive_operation, core>;

public:
    explicit broadcast_receive_operation(broadcast_receive_description<T, Sync> what) noexcept
        : base(what.core, 0), position_(what.position) {}
    ~broadcast_receive_operation() {
        if (held_ != nullptr)
            this->core_->let_go(*held_);
        this->let_go();
    }

    [[nodiscard]] bool start() noexcept { return this->begin(); }
    /// Throws what copying a T throws.
    [[nodiscard]] result<broadcast_item<T>> take_result() {
        if (code_ != 0)
            return fail_errno(code_);
        return broadcast_item<T>{std::as_const(held_->value), lost_};
    }

private:
    friend core;
    friend base;

    void set_code(int code) noexcept { code_ = code; }
    [[nodiscard]] int attempt() noexcept {
        return code_ = this->core_->receive(*position_, true, held_, lost_);
    }

    std::uint64_t* position_; // the reader's own; moved on under the lock
    typename core::node* held_ = nullptr;
    std::uint64_t lost_ = 0;
    int code_ = attempt_untried;
};

template <class T, class Sync>
int broadcast_core<T, Sync>::send(T& value, loop* here) noexcept {
    wake_list wakes;
    mutex_.lock();
    node* fresh = free_;
    if (fresh == nullptr) {
        mutex_.unlock();
        void* const place = source_->take(*source_, sizeof(node), alignof(node));
        if (place == nullptr)
            return ENOMEM;
        fresh = ::new (place) node;
        mutex_.lock();
    } else {
        free_ = fresh->next_free;
    }
    if (closed_) {
        fresh->next_free = std::exchange(free_, fresh);
        mutex_.unlock();
        return EPIPE;
    }
    ::new (static_cast<void*>(&fresh->value)) T(std::move(value));
    fresh->holders = 1;
    node* const displaced = next_ >= capacity_ ? ring_[next_ % capacity_] : nullptr;
    ring_[next_ % capacity_] = fresh;
    ++next_;
    while (!readers_.empty()) {
        receive_waiter& reader = readers_.pop_front();
        ++*reader.position_;
        ++fresh->holders;
        reader.held_ = fresh;
        reader.code_ = 0;
        wake(reader, here, wakes);
    }
    const bool unheld = displaced != nullptr && --displaced->holders == 0;
    mutex_.unlock();
    if (unheld)
        recycle(*displaced);
    return 0;
}

template <class T, class Sync>
void broadcast_core<T, Sync>::close() noexcept {
    loop* const here = loop::current();
    wake_list wakes;
    const lock_scope scope(mutex_);
    closed_ = true;
    while (!readers_.empty()) {
        receive_waiter& reader = readers_.pop_front();
        reader.code_ = EPIPE;
        wake(reader, here, wakes);
    }
}

template <class T, class Sync>
void broadcast_core<T, Sync>::destroy() noexcept {
    for (std::uint64_t n = next_ > capacity_ ? next_ - capacity_ : 0; n < next_; ++n) {
        node& last = *ring_[n % capacity_];
        last.value.~T();
        give_node(last);
    }
    while (free_ != nullptr) {
        node& spare = *free_;
        free_ = spare.next_free;
        give_node(spare);
    }
    block_source& source = *source_;
    source.give(source, ring_, capacity_ * sizeof(node*), alignof(node*));
    this->~broadcast_core();
    source.give(source, this, sizeof(broadcast_core), alignof(broadcast_core));
}

} // namespace detail
NOWAIT_END_NAMESPACE
