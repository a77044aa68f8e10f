#include "poll_driver.hpp"

#include "punted_transfer.hpp"
#include "standard_numbers.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>
#include <new>
#include <utility>
#include <vector>

#include <fcntl.h>
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
/// is reported as an event. What can wait for nothing is then read or written in collect(); what may wait, because somebody else
/// reads it too, or for a disk, is given to the worker pool.
class poll_driver final : public driver {
public:
    poll_driver(system& calls, int epoll, int wake_fd) noexcept
        : calls_(calls), epoll_(epoll), wake_fd_(wake_fd) {}
    ~poll_driver() override {
        if (!abandoned_)
            punted_.close();
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
        if (punted_.cancel(work))
            return;
        if (static_cast<list_node&>(work).linked())
            static_cast<list_node&>(work).unlink();
        else
            unregister(work);
        cancelled_.push_back(work);
    }

    [[nodiscard]] bool has_work() const noexcept override { return signalled() || held_ != 0; }
    [[nodiscard]] bool signalled() const noexcept override {
        return !reports_.empty() || !transfers_.empty() || !cancelled_.empty() || punted_.filled();
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
        punted_.hurry(deadline, calls_);
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
        abandoned_ =
            true; // the destructor closes our numbers; the parent's epoll set and its workers stay as they are
    }

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

    /// Has epoll tell when a transfer is worth making. 0, or EPERM if it cannot be polled.
    [[nodiscard]] int register_transfer(transfer& work) noexcept {
        entry* const e = entry_of(work.fd);
        if (e == nullptr)
            return ENOMEM;
        const bool known = e->wishes() != 0;
        (work.write ? e->writing : e->reading) = &work;
        const int error = control(work.fd, *e, known);
        if (error != 0)
            (work.write ? e->writing : e->reading) = nullptr;
        return error;
    }

    /// Performs a transfer, or has epoll tell when it may be worth it. Readiness is no promise for a blocking description that others
    /// share: they may be faster. So no read or write that could wait is made here.
    void perform(transfer& work) noexcept {
        const int wanted = work.write ? POLLOUT : POLLIN;
        const int seen = calls_.ready(work.fd, wanted);
        if (seen >= 0 && (seen & (wanted | POLLHUP | POLLERR | POLLNVAL)) == 0 &&
            register_transfer(work) == 0)
            return;
        const iovec part{work.data, work.size};
        file_info info;
        const bool known = calls_.inspect(work.fd, info) == 0;
        if (known && (info.kind == file_kind::regular || info.kind == file_kind::block)) {
            counters.enters.add();
            const long n =
                work.write ? calls_.write_nowait(work.fd, &part, 1) : calls_.read_nowait(work.fd, &part, 1);
            if (n == -EAGAIN || n == -EOPNOTSUPP)
                punt(work, true);
            else
                finish(work, n);
            return;
        }
        if (known && (info.flags & O_NONBLOCK) == 0 && may_wait(work, info.kind)) {
            punt(work, false);
            return;
        }
        perform_here(work, work.size);
    }

    void perform_here(transfer& work, std::size_t size) noexcept {
        const iovec part{work.data, size};
        counters.enters.add();
        finish(work, work.write ? calls_.write(work.fd, &part, 1) : calls_.read(work.fd, &part, 1));
    }

    void finish(transfer& work, long result) noexcept {
        --held_;
        counters.completions.add();
        work.on_event(work, result, false);
    }

    /// Of what epoll does not take, nothing waits: directories, and devices such as /dev/null.
    [[nodiscard]] bool may_wait(transfer& work, file_kind kind) noexcept {
        if (kind != file_kind::character && kind != file_kind::other && kind != file_kind::directory)
            return true;
        if (register_transfer(work) == EPERM)
            return false;
        unregister(work);
        return true;
    }

    // --- what the worker pool performs -----------------------------------------------------------------------------------

    void punt(transfer& work, bool bounded) noexcept {
        if (!punted_.punt(work, bounded))
            finish(work, -ENOMEM);
    }

    void deliver_returns() noexcept {
        punted_.deliver([this](transfer& work, long result) {
            if (result == -ENOSYS) {
                // A system without threads: then here, a little at a time, because readiness promises only that much room.
                perform_here(work, work.write ? std::min(work.size, small_write) : work.size);
            } else {
                finish(work, result);
            }
        });
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
        deliver_returns();
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
        const bool exactly = timeout != nullptr && !whole_milliseconds_;
        int n = exactly ? ::epoll_pwait2(epoll_, events, 64, timeout, nullptr) : -1;
        // Before 5.11 there is no such call, and sandboxes that are older than it refuse it with EPERM.
        if (exactly && n < 0 && (errno == ENOSYS || errno == EPERM || errno == EACCES))
            whole_milliseconds_ = true;
        if (timeout == nullptr) {
            n = ::epoll_wait(epoll_, events, 64, milliseconds);
        } else if (whole_milliseconds_) { // rounded up
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
    bool whole_milliseconds_ = false; // epoll_pwait2 is not to be had
    int epoll_;
    int wake_fd_;
    std::size_t held_ = 0;
    std::vector<entry> entries_; // by descriptor number
    list<poll_source> reports_;
    list<transfer> transfers_;
    list<transfer> cancelled_;
    punted_transfers punted_{*this};
    bool abandoned_ = false;
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
