#include "poll_driver.hpp"

#include "standard_numbers.hpp"

#include <cerrno>
#include <climits>
#include <ctime>
#include <new>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

namespace {

/// Readiness by epoll, edge-triggered. What the directions rely on holds for it as for a multishot poll: arming tests the
/// level, every change after that is reported, and a source stays armed until it is disarmed. An edge that nobody has drained
/// is no loss: a direction that is not `quiet` tries before it waits, and is tried again before the loop sleeps.
///
/// epoll knows a descriptor once, so the two directions of one number share an entry. What epoll refuses (regular files: EPERM)
/// is reported as an event, and then read or written in collect(): it cannot wait for ever, that is why it cannot be polled.
class poll_driver final : public driver {
public:
    poll_driver(system& calls, int epoll, int wake_fd) noexcept
        : calls_(calls), epoll_(epoll), wake_fd_(wake_fd) {}
    ~poll_driver() override {
        ::close(epoll_);
        ::close(wake_fd_);
    }

    void arm(poll_source& source) noexcept override {
        ++held_;
        source.armed = true;
        entry* const e = entry_of(source.fd);
        if (e == nullptr) {
            report(source, -ENOMEM);
            return;
        }
        const bool known = e->wishes() != 0;
        (source.events == POLLIN ? e->in : e->out) = &source;
        counters.submissions.add();
        if (const int error = control(source.fd, *e, known); error != 0) {
            (source.events == POLLIN ? e->in : e->out) = nullptr;
            report(source, -error);
        }
    }

    void disarm(poll_source& source) noexcept override {
        source.removing = true;
        if (static_cast<list_node&>(source).linked())
            return; // its last report is on its way
        entry& e = entries_[static_cast<std::size_t>(source.fd)];
        (source.events == POLLIN ? e.in : e.out) = nullptr;
        counters.submissions.add();
        (void)control(source.fd, e, true);
        report(source, -ECANCELED);
    }

    void start(transfer& work) noexcept override {
        ++held_;
        work.cancelling = false;
        transfers_.push_back(work);
        counters.submissions.add();
    }

    void cancel(transfer& work) noexcept override {
        if (std::exchange(work.cancelling, true))
            return;
        if (static_cast<list_node&>(work).linked())
            static_cast<list_node&>(work).unlink();
        else
            unregister(work);
        cancelled_.push_back(work);
    }

    [[nodiscard]] bool has_work() const noexcept override { return signalled() || held_ != 0; }
    [[nodiscard]] bool signalled() const noexcept override {
        return !reports_.empty() || !transfers_.empty() || !cancelled_.empty();
    }

    void collect() noexcept override {
        deliver_reports();
        if (held_ != 0)
            look(0, nullptr);
    }

    [[nodiscard]] bool be_watched() noexcept override { return true; }
    [[nodiscard]] int watchable() const noexcept override { return epoll_; }
    [[nodiscard]] bool prepare_to_sleep() noexcept override {
        if (signalled()) {
            deliver_reports();
            return true;
        }
        return look(0, nullptr) > 0;
    }

    void wait(time_point deadline) noexcept override {
        if (signalled()) {
            deliver_reports();
            return;
        }
        if (deadline == never) {
            look(-1, nullptr);
            return;
        }
        const auto now = calls_.now();
        const auto left = deadline > now ? std::chrono::nanoseconds(deadline - now).count() : 0;
        const timespec relative{static_cast<time_t>(left / 1'000'000'000),
                                static_cast<long>(left % 1'000'000'000)};
        look(0, &relative);
    }

    void wake() noexcept override {
        const std::uint64_t one = 1;
        const int saved = errno; // may run in a signal handler
        (void)!::write(wake_fd_, &one, sizeof one);
        errno = saved;
    }

    void abandon() noexcept override {
    } // the destructor closes our numbers; the parent's epoll set stays as it is

    [[nodiscard]] std::string_view name() const noexcept override { return "poll"; }
    [[nodiscard]] std::size_t pending() const noexcept override { return held_; }

private:
    struct entry {
        poll_source* in = nullptr;
        poll_source* out = nullptr;
        transfer* reading = nullptr; // not done yet, because it would have waited
        transfer* writing = nullptr;

        [[nodiscard]] unsigned wishes() const noexcept {
            return (in != nullptr || reading != nullptr ? EPOLLIN : 0u) |
                   (out != nullptr || writing != nullptr ? EPOLLOUT : 0u);
        }
    };

    /// Tells epoll what the entry wishes now. `known`: it stands in the set.
    [[nodiscard]] int control(int fd, const entry& e, bool known) noexcept {
        epoll_event wish{};
        wish.events = EPOLLET | e.wishes();
        wish.data.fd = fd;
        counters.enters.add();
        const int operation = !known ? EPOLL_CTL_ADD : e.wishes() != 0 ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;
        return ::epoll_ctl(epoll_, operation, fd, &wish) == 0 ? 0 : errno;
    }

    /// The entry of a number; null if there is no memory for it.
    [[nodiscard]] entry* entry_of(int fd) noexcept {
        const auto number = static_cast<std::size_t>(fd);
        if (number >= entries_.size()) {
            try {
                entries_.resize(number + number / 2 + 16);
            } catch (...) {
                return nullptr;
            }
        }
        return &entries_[number];
    }

    void unregister(transfer& work) noexcept {
        entry& e = entries_[static_cast<std::size_t>(work.fd)];
        (work.write ? e.writing : e.reading) = nullptr;
        (void)control(work.fd, e, true);
    }

    /// Performs a transfer, or has epoll tell when it will not wait. A blocking description that somebody else reads too
    /// may still make the read wait, if they are faster: that rung is the last one, for what cannot be reopened.
    void perform(transfer& work) noexcept {
        const int wanted = work.write ? POLLOUT : POLLIN;
        std::size_t size = work.size;
        if (const int seen = calls_.ready(work.fd, wanted);
            seen >= 0 && (seen & (wanted | POLLHUP | POLLERR | POLLNVAL)) == 0) {
            entry* const e = entry_of(work.fd);
            const bool known = e != nullptr && e->wishes() != 0;
            if (e != nullptr) {
                (work.write ? e->writing : e->reading) = &work;
                if (control(work.fd, *e, known) == 0)
                    return;
                (work.write ? e->writing : e->reading) = nullptr;
            }
        } else if (work.write && size > small_write && !is_regular(work.fd)) {
            size = small_write; // readiness promises a little room, not room for everything
        }
        --held_;
        const iovec part{work.data, size};
        counters.enters.add();
        const long n = work.write ? calls_.write(work.fd, &part, 1) : calls_.read(work.fd, &part, 1);
        counters.completions.add();
        work.on_event(work, n, false);
    }

    [[nodiscard]] bool is_regular(int fd) noexcept {
        file_info info;
        return calls_.inspect(fd, info) == 0 &&
               (info.kind == file_kind::regular || info.kind == file_kind::block);
    }

    /// The source's last event, delivered by the next collect(): nothing is called back from arm() or disarm().
    void report(poll_source& source, long last) noexcept {
        source.last_report = last;
        reports_.push_back(source);
    }

    void deliver_reports() noexcept {
        while (!reports_.empty()) {
            poll_source& source = reports_.pop_front();
            --held_;
            counters.completions.add();
            source.on_event(source, source.last_report, false);
        }
        while (!cancelled_.empty()) {
            transfer& work = cancelled_.pop_front();
            --held_;
            counters.completions.add();
            work.on_event(work, -ECANCELED, false);
        }
        // Only what stands there now: a transfer that finds nothing is started again, and must not be found again at once.
        list<transfer> due;
        while (!transfers_.empty())
            due.push_back(transfers_.pop_front());
        while (!due.empty())
            perform(due.pop_front());
    }

    /// One look at epoll: at most `milliseconds`, or `timeout` if given. Returns the events.
    int look(int milliseconds, const timespec* timeout) noexcept {
        epoll_event events[64];
        counters.enters.add();
        int n = timeout != nullptr ? ::epoll_pwait2(epoll_, events, 64, timeout, nullptr)
                                   : ::epoll_wait(epoll_, events, 64, milliseconds);
        if (n < 0 && timeout != nullptr && errno == ENOSYS) { // before 5.11: whole milliseconds, rounded up
            const long ms = timeout->tv_sec >= INT_MAX / 1000
                                ? INT_MAX
                                : timeout->tv_sec * 1000 + (timeout->tv_nsec + 999'999) / 1'000'000;
            n = ::epoll_wait(epoll_, events, 64, static_cast<int>(ms));
        }
        for (int i = 0; i < n; ++i) {
            const int fd = events[i].data.fd;
            if (fd == wake_fd_) {
                std::uint64_t count = 0;
                (void)!::read(wake_fd_, &count, sizeof count);
                counters.wakes.add();
                continue;
            }
            const auto happened = static_cast<long>(events[i].events);
            constexpr long always = EPOLLHUP | EPOLLERR;
            // Read anew for each of them: the first one's event may take the next away.
            auto take = [](transfer*& place) { return std::exchange(place, nullptr); };
            if (entry& e = entries_[static_cast<std::size_t>(fd)];
                e.reading != nullptr || e.writing != nullptr) {
                if (e.reading != nullptr && (happened & (EPOLLIN | always)) != 0)
                    transfers_.push_back(*take(e.reading));
                if (e.writing != nullptr && (happened & (EPOLLOUT | always)) != 0)
                    transfers_.push_back(*take(e.writing));
                (void)control(fd, e, true);
            }
            if (poll_source* in = entries_[static_cast<std::size_t>(fd)].in;
                in != nullptr && (happened & (EPOLLIN | always)) != 0) {
                counters.completions.add();
                in->on_event(*in, happened, true);
            }
            if (poll_source* out = entries_[static_cast<std::size_t>(fd)].out;
                out != nullptr && (happened & (EPOLLOUT | always)) != 0) {
                counters.completions.add();
                out->on_event(*out, happened, true);
            }
        }
        return n;
    }

    static constexpr std::size_t small_write = 256;

    system& calls_;
    int epoll_;
    int wake_fd_;
    std::size_t held_ = 0;
    std::vector<entry> entries_; // by descriptor number
    list<poll_source> reports_;
    list<transfer> transfers_;
    list<transfer> cancelled_;
};

} // namespace

int make_poll_driver(system& calls, std::unique_ptr<driver>& made) {
    const standard_numbers not_ours;
    const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0)
        return errno;
    const int wake_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd < 0) {
        const int error = errno;
        ::close(epoll);
        return error;
    }
    epoll_event wish{};
    wish.events = EPOLLIN;
    wish.data.fd = wake_fd;
    if (::epoll_ctl(epoll, EPOLL_CTL_ADD, wake_fd, &wish) != 0) {
        const int error = errno;
        ::close(epoll);
        ::close(wake_fd);
        return error;
    }
    auto* created = new (std::nothrow) poll_driver(calls, epoll, wake_fd);
    if (created == nullptr) {
        ::close(epoll);
        ::close(wake_fd);
        return ENOMEM;
    }
    made.reset(created);
    return 0;
}

} // namespace detail
NOWAIT_END_NAMESPACE
