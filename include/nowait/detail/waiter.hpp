// Waiting in an in-process channel: the operation that stands in its queue, and the list of those who are to be woken.
//
// The protocol, the same for every channel, shared or local:
//
//  - A waiter is linked and unlinked under the channel's lock. Whoever unlinks it settles it: the channel (`chosen`: it has
//    been given what it waited for, or is told to try), a cancel, or a close. Exactly one of them finds it linked.
//  - A chosen waiter is put on a wake_list under the lock, and sent to its own loop after the lock is released. Once it is
//    sent it is not touched again: its frame may be gone.
//  - A cancel that finds the waiter not linked does nothing: the outcome is on its way.
//  - A waiter that was chosen "to try" and is stopped before it has run hands the chance on: its end calls the channel, which
//    chooses the next. One that was given something delivers it.
//  - Nobody barges: while somebody is linked, or chosen to try and not yet run, a fresh operation queues behind.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/list.hpp>
#include <nowait/detail/loop.hpp>
#include <nowait/detail/operation.hpp>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// An operation that waits in an in-process channel. `run` is what its loop does with it once it was chosen; by default it
/// completes.
class channel_waiter : public operation_base, public list_node {
public:
    channel_waiter() noexcept {
        run = [](ready_node& node) noexcept { static_cast<channel_waiter&>(node).complete(); };
    }

    [[nodiscard]] bool queued() const noexcept { return list_node::linked(); } // under the channel's lock

protected:
    ~channel_waiter() = default;

private:
    friend class wake_list;
    using operation_base::complete;
};

/// Waiters chosen under a lock, in order; sent by send() after it. For channels that several loops may share.
class wake_list {
public:
    wake_list() = default;
    wake_list(const wake_list&) = delete;
    wake_list& operator=(const wake_list&) = delete;
    ~wake_list() { send(); }

    [[nodiscard]] bool empty() const noexcept { return head_ == nullptr; }

    /// Under the lock; the waiter is unlinked already. `here`: the loop of the calling thread, or nullptr.
    void add(channel_waiter& chosen, const loop* here) noexcept {
        if (&chosen.home() != here)
            chosen.home().remote().expect();
        chosen.next_ready = nullptr;
        *tail_ = &chosen;
        tail_ = &chosen.next_ready;
    }

    /// After the lock.
    void send() noexcept {
        while (head_ != nullptr) {
            auto& chosen = static_cast<channel_waiter&>(*head_);
            head_ = chosen.next_ready;
            loop::send(chosen);
        }
        tail_ = &head_;
    }

private:
    ready_node* head_ = nullptr;
    ready_node** tail_ = &head_;
};

} // namespace detail
NOWAIT_END_NAMESPACE
