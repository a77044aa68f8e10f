// `driver`: the waiting half of the seam. Arm, cancel, submit, wait until a deadline, wake.
//
// A driver belongs to one loop and is used on that loop's thread only, except for wake(). It calls back only from collect(),
// and what it calls only posts: no coroutine runs inside a driver.
#pragma once

#include <nowait/config.hpp>
#include <nowait/detail/list.hpp>
#include <nowait/detail/sync.hpp>

#include <chrono>
#include <cstdint>
#include <string_view>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

class loop;

/// What a driver watches or works on. `result` and `flags` are the driver's own words; 0 <= result are poll events or bytes,
/// a negative result is an errno value.
class driver_target : public list_node { // the link: a backlog of what found the submission queue full
public:
    explicit driver_target(bool polls) noexcept : is_poll(polls) {}

    const bool is_poll; ///< a poll_source, else a transfer

    /// `more` says that the driver still watches: another event may follow.
    void (*on_event)(driver_target&, long result, bool more) noexcept = nullptr;

protected:
    ~driver_target() { unlink(); }
};

/// A wish to be told when a descriptor is ready. Level state is tested when it is armed, edges are reported after that, for
/// as long as the driver says `more`. It must stay where it is until an event says `more == false`.
class poll_source : public driver_target {
public:
    poll_source() noexcept : driver_target(true) {}

    int fd = -1;
    short events = 0;
    /// One report is enough, if the driver can do with less for it: it is armed again for each wait, which tests the level anew.
    bool once = false;
    bool armed = false;    ///< the driver knows it and will report
    bool removing = false; ///< disarm() was called, the last report is still to come
    long last_report = 0;  ///< for drivers that have to deliver it later by themselves
};

/// A read or write that the driver performs, for what cannot be polled. The memory is in the kernel's hands until on_event,
/// which comes exactly once.
class transfer : public driver_target {
public:
    transfer() noexcept : driver_target(false) {}

    int fd = -1;
    bool write = false;
    void* data = nullptr;
    std::size_t size = 0;
    unsigned* priority = nullptr; ///< of a message: where it goes
    bool pending = false;
    bool is_file = false;    ///< regular, or a block device: writing it raises no signal
    bool plain = false;      ///< the file has refused the flag that keeps SIGPIPE away
    bool cancelling = false; ///< cancel() was called; the end is still to come
};

/// Somebody else than a driver who performs transfers. On the loop's thread.
class NOWAIT_API performer {
public:
    virtual ~performer();
    /// As the driver's: the end comes by on_event, later.
    virtual void start(transfer& work) noexcept = 0;
    virtual void cancel(transfer& work) noexcept = 0;
    /// The loop is being destroyed: ends what has been started, waits until the memory is free, and calls on_event.
    virtual void finish() noexcept = 0;
};

/// Counters that a driver keeps.
struct driver_counters {
    counter submissions, enters, completions, wakes;
};

class NOWAIT_API driver {
public:
    using time_point = std::chrono::steady_clock::time_point;
    static constexpr time_point never = time_point::max();

    virtual ~driver();

    virtual void arm(poll_source& source) noexcept = 0;
    /// Asks for removal. The source's last event (result -ECANCELED, or a late event) says `more == false`.
    virtual void disarm(poll_source& source) noexcept = 0;
    virtual void start(transfer& work) noexcept = 0;
    virtual void cancel(transfer& work) noexcept = 0;

    /// True if collect() may find something without waiting: queued submissions, reported completions, or sources whose
    /// state only a call can tell. Cheap.
    [[nodiscard]] virtual bool has_work() const noexcept = 0;
    /// True if something is known to be there, without asking anybody. For a loop that spins.
    [[nodiscard]] virtual bool signalled() const noexcept { return has_work(); }
    /// Submits what is queued and delivers what is there. Never waits.
    virtual void collect() noexcept = 0;
    /// Submits, then waits until an event, a wake() or the deadline, and delivers. Returns early on a signal.
    virtual void wait(time_point deadline) noexcept = 0;
    /// For a loop that waits in another one: from now on watchable() is looked at, and wait() is not called. Before
    /// bind_to_thread(). False: this driver cannot, or may not.
    [[nodiscard]] virtual bool be_watched() noexcept { return false; }
    /// A descriptor that becomes readable when something comes, wake() included, after prepare_to_sleep() has said that there
    /// is nothing.
    [[nodiscard]] virtual int watchable() const noexcept { return -1; }
    /// Submits, delivers what is there, and makes sure that whatever comes later shows on that descriptor. True: something
    /// was there, and nothing is promised.
    [[nodiscard]] virtual bool prepare_to_sleep() noexcept { return false; }
    /// From any thread and from signal handlers: makes the next or present wait() return.
    virtual void wake() noexcept = 0;
    /// Not 0 once the kernel has refused to let it wait at all (a sandbox closed after the start): nothing will come any more.
    [[nodiscard]] virtual int failure() const noexcept { return 0; }
    /// After a refusal: lets go of everything, so that another driver can watch what this one watched and perform what it had not
    /// begun. Only counters and wake() are used from then on. False: the kernel has memory in its hands and will not say
    /// when it is done with it, so nobody can take over.
    [[nodiscard]] virtual bool surrender() noexcept { return false; }
    /// In a child after fork: closes numbers, touches nothing that is shared with the parent.
    virtual void abandon() noexcept = 0;
    /// On the thread that will run the loop, once, before anything else.
    virtual int bind_to_thread() noexcept { return 0; }

    [[nodiscard]] virtual std::string_view name() const noexcept = 0;
    /// Sources and transfers that the driver still holds.
    [[nodiscard]] virtual std::size_t pending() const noexcept = 0;

    driver_counters counters;
    loop* home = nullptr; ///< set by the loop that owns it
};

} // namespace detail
NOWAIT_END_NAMESPACE
