// Channels and queues of messages with one deliberate fault each: see mutants.hpp.
#include "message_objects.hpp"
#include "mutants.hpp"

#include <cerrno>

namespace nowait_test::mutants {

using unchanged_messages = copy_of_real_sync<struct no_fault>;
using forgotten_senders = copy_of_real_sync<struct senders>;
using passed_receivers = copy_of_real_sync<struct receivers>;
using receipt_taken_back = copy_of_real_sync<struct receipt>;
using sending_taken_back = copy_of_real_sync<struct sending>;
using last_sender_first = copy_of_real_sync<struct last>;
using uncounted_receives = copy_of_real_sync<struct counters>;

template <class Sync>
using channel_core = nowait::detail::message_core<programs::parcel, Sync, nowait::detail::no_index>;
template <class Sync>
using queue_core = nowait::detail::message_core<programs::parcel, Sync, nowait::tree_index>;

} // namespace nowait_test::mutants

NOWAIT_BEGIN_NAMESPACE
namespace detail {

using namespace nowait_test::mutants;

// The wait queue loses the baton: whoever receives on the ready path makes room, and lets nobody in.
template <>
void channel_core<forgotten_senders>::enqueue(send_waiter& sender) noexcept {
    if (!is_rendezvous())
        queue_.promise(sender.priority());
    place(senders_, sender);
    send_gate_ |= someone_waits;
    mutex_.unlock();
}

// The direct hand-off passes by those who wait: a send on the ready path puts its message into the queue.
template <>
void channel_core<passed_receivers>::enqueue(receive_waiter& receiver) noexcept {
    place(receivers_, receiver);
    mutex_.unlock();
}

// The direct hand-off of a rendezvous takes the message of whoever came last.
template <>
channel_core<last_sender_first>::send_waiter* channel_core<last_sender_first>::first_with_message() noexcept {
    return senders_.empty() ? nullptr : &senders_.back();
}

// The hand-shake between a cancel and whoever serves: a stop that comes after the choice takes the message back.
template <>
bool queue_core<receipt_taken_back>::withdraw(receive_waiter& receiver) noexcept {
    const lock_scope scope(mutex_);
    if (!receiver.queued()) {
        receiver.set_code(ECANCELED);
        return false;
    }
    static_cast<list_node&>(receiver).unlink();
    reset_gates();
    return true;
}

// The same on the other side: a message that was let in is said to be the sender's still.
template <>
bool queue_core<sending_taken_back>::withdraw(send_waiter& sender) noexcept {
    wake_list wakes;
    const lock_scope scope(mutex_);
    if (!sender.queued()) {
        sender.set_code(ECANCELED);
        return false;
    }
    static_cast<list_node&>(sender).unlink();
    queue_.retract();
    refill(&sender.home(), wakes, 0);
    return true;
}

// Receives that wait are not counted.
using uncounted_core = channel_core<uncounted_receives>;
template <>
void message_operation<message_receive_operation<uncounted_core>, uncounted_core>::wait() noexcept {
    this->run = &run_settled;
    queued_ = true;
    pin();
    core_->enqueue(self());
    listen_for_stop([](stop_hook& hook) noexcept {
        static_cast<message_receive_operation<uncounted_core>&>(message_operation::from_hook(hook)).cancel();
    });
}

} // namespace detail
NOWAIT_END_NAMESPACE

namespace nowait_test::mutants {
namespace {

template <class Sync>
object_factories channels_by() {
    object_factories make;
    make.channel = &programs::make_channel_of<Sync>;
    return make;
}

template <class Sync>
object_factories queues_by() {
    object_factories make;
    make.queue = &programs::make_queue_of<Sync>;
    return make;
}

} // namespace

TEST_CASE("an unchanged copy of the message channel passes") {
    object_factories make = channels_by<unchanged_messages>();
    make.queue = queues_by<unchanged_messages>().queue;
    const outcome found = hunt(make);
    INFO(found.failure);
    CHECK(found.seed == 0);
}

TEST_CASE("a message channel whose wait queue loses the baton is caught") {
    is_caught(channels_by<forgotten_senders>());
}

TEST_CASE("a message channel that passes by waiting receivers is caught") {
    is_caught(channels_by<passed_receivers>());
}

TEST_CASE("a rendezvous with the sender who came last is caught") {
    is_caught(channels_by<last_sender_first>());
}

TEST_CASE("a message queue whose cancel takes a received message back is caught") {
    is_caught(queues_by<receipt_taken_back>());
}

TEST_CASE("a message queue whose cancel takes a sending back is caught") {
    is_caught(queues_by<sending_taken_back>());
}

TEST_CASE("a message channel that does not count who waits to receive is caught") {
    is_caught(channels_by<uncounted_receives>());
}

} // namespace nowait_test::mutants
