// Opening by path, without ever waiting where nobody could stop it.
#include "present_system.hpp"

#include <nowait/blocking.hpp>
#include <nowait/detail/sync.hpp>
#include <nowait/fifo.hpp>
#include <nowait/timeout.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <utility>

#include <fcntl.h>

NOWAIT_BEGIN_NAMESPACE

namespace {

using detail::file_info;
using detail::file_kind;
using detail::present_system;

/// A number that has no owner yet.
class opened {
public:
    opened(detail::system& calls, int number) noexcept : calls_(calls), number_(number) {}
    opened(opened&& other) noexcept : calls_(other.calls_), number_(other.release()) {}
    opened& operator=(opened&&) = delete;
    ~opened() {
        if (number_ >= 0)
            calls_.close(number_);
    }
    [[nodiscard]] int get() const noexcept { return number_; }
    int release() noexcept { return std::exchange(number_, -1); }
    void replace(int number) noexcept {
        if (number_ >= 0)
            calls_.close(number_);
        number_ = number;
    }

private:
    detail::system& calls_;
    int number_;
};

constexpr int always = O_NONBLOCK | O_NOCTTY;

bool is_name(const std::string& path) noexcept {
    return path.find('\0') == std::string::npos;
}

int writing_flags(const open_options& options) noexcept {
    return O_WRONLY | (options.create ? O_CREAT : 0) | (options.truncate ? O_TRUNC : 0) |
           (options.append ? O_APPEND : 0);
}

template <class End>
result<End> own(opened& number) {
    auto made = End::adopt(number.get());
    if (made)
        (void)number.release();
    return made;
}

/// The errno value of what is wrong with it, or 0.
int refusal(const file_info& info, const open_options& options) noexcept {
    if (info.kind == file_kind::directory)
        return EISDIR;
    return options.only_fifo && info.kind != file_kind::fifo ? EINVAL : 0;
}

/// Looked at, not opened.
bool is_fifo(detail::system& calls, const std::string& path) noexcept {
    const opened place(calls, calls.open(path.c_str(), O_PATH, 0));
    file_info info;
    return place.get() >= 0 && calls.inspect(place.get(), info) == 0 && info.kind == file_kind::fifo;
}

// --- waiting for a reader --------------------------------------------------------------------------------------------------------

/// Set by the worker, read by the loop. Relaxed: nothing is published with it.
using begun_flag = detail::real_sync::atomic<bool>;

/// open(2) that waits, on a worker.
class waiting_open {
public:
    waiting_open(detail::system& calls, std::string path, std::shared_ptr<begun_flag> begun)
        : calls_(&calls), path_(std::move(path)), begun_(std::move(begun)) {}

    result<opened> operator()(interruption asked) const {
        begun_->store(true, std::memory_order_relaxed);
        for (;;) {
            opened number(*calls_, calls_->open(path_.c_str(), O_WRONLY | O_NOCTTY, 0));
            if (number.get() >= 0)
                return number;
            if (number.get() != -EINTR || asked.requested())
                return fail_errno(-number.get());
        }
    }

private:
    detail::system* calls_;
    std::string path_;
    std::shared_ptr<begun_flag> begun_;
};

struct patience {
    detail::clock::duration span;
    std::shared_ptr<begun_flag> begun;
};

/// Takes work that has not begun back after a while; work that has begun has all the time in the world.
class unbegun_trigger {
public:
    explicit unbegun_trigger(patience&& how) noexcept : how_(std::move(how)) { timer_.of = this; }
    unbegun_trigger(const unbegun_trigger&) = delete;
    unbegun_trigger& operator=(const unbegun_trigger&) = delete;
    ~unbegun_trigger() { (void)disarm(); }

    [[nodiscard]] bool stopped_already() const noexcept { return false; }
    template <class Owner>
    void arm(Owner& owner) noexcept {
        home_ = &owner.home();
        timer_.owner = &owner;
        timer_.deadline = detail::deadline_after(home_->now(), how_.span);
        timer_.on_expiry = [](detail::timer_node& node) noexcept {
            auto& timer = static_cast<embedded_timer&>(node);
            unbegun_trigger& self = *timer.of;
            self.armed_ = false;
            self.expired_ = !self.how_.begun->load(std::memory_order_relaxed);
            if (self.expired_)
                static_cast<Owner*>(timer.owner)->trigger_fired();
        };
        armed_ = true;
        home_->add_timer(timer_);
    }
    [[nodiscard]] bool disarm() noexcept {
        if (std::exchange(armed_, false))
            home_->remove_timer(timer_);
        return true;
    }
    [[nodiscard]] bool expired() const noexcept { return expired_; }

private:
    struct embedded_timer : detail::timer_node {
        unbegun_trigger* of = nullptr;
        void* owner = nullptr;
    } timer_;
    patience how_;
    detail::loop* home_ = nullptr;
    bool armed_ = false;
    bool expired_ = false;
};

} // namespace

result<void> make_fifo(const std::string& path, unsigned mode) {
    if (!is_name(path))
        return fail(std::errc::invalid_argument);
    if (const int error = present_system().make_fifo(path.c_str(), mode); error != 0)
        return fail_errno(-error);
    return {};
}

result<pipe_reader> open_reader(const std::string& path, open_options options) {
    if (!is_name(path))
        return fail(std::errc::invalid_argument);
    detail::system& calls = present_system();
    opened number(calls, calls.open(path.c_str(), O_RDONLY | always, 0));
    if (number.get() < 0)
        return fail_errno(-number.get());
    file_info info;
    if (const int error = calls.inspect(number.get(), info); error != 0)
        return fail_errno(-error);
    if (const int error = refusal(info, options); error != 0)
        return fail_errno(error);
    if (options.endless && info.kind == file_kind::fifo) {
        // By the path again: if it has become something else meanwhile, the caller is told.
        number.replace(calls.open(path.c_str(), O_RDWR | always, 0));
        if (number.get() < 0)
            return fail_errno(-number.get());
        file_info again;
        if (const int error = calls.inspect(number.get(), again); error != 0)
            return fail_errno(-error);
        if (again.device != info.device || again.inode != info.inode)
            return fail(std::errc::invalid_argument);
    }
    return own<pipe_reader>(number);
}

result<pipe_writer> try_open_writer(const std::string& path, open_options options) {
    if (!is_name(path))
        return fail(std::errc::invalid_argument);
    detail::system& calls = present_system();
    // What must be a FIFO is not to be truncated, nor made, by finding out that it is none.
    if (options.only_fifo)
        options.create = options.truncate = false;
    opened number(calls, calls.open(path.c_str(), writing_flags(options) | always, options.mode));
    if (number.get() < 0)
        return fail_errno(-number.get());
    file_info info;
    if (const int error = calls.inspect(number.get(), info); error != 0)
        return fail_errno(-error);
    if (const int error = refusal(info, options); error != 0)
        return fail_errno(error);
    return own<pipe_writer>(number);
}

task<result<pipe_writer>> open_writer(std::string path, open_options options) {
    using namespace std::chrono_literals;
    detail::system& calls = present_system();
    for (detail::clock::duration span = 10ms;; span = std::min<detail::clock::duration>(span * 2, 1s)) {
        result<pipe_writer> at_once = try_open_writer(path, options);
        if (at_once || at_once.error() != std::errc::no_such_device_or_address || !is_fifo(calls, path))
            co_return at_once;
        auto begun = std::make_shared<begun_flag>(false);
        // Openings leave half of the account's workers to work that ends when somebody types, or sends a message.
        auto work = blocking(interruptible, waiting_open(calls, path, begun)).rationed();
        using wait = detail::bounded_description<decltype(work), unbegun_trigger, patience>;
        wait in_turn{std::move(work), patience{span, std::move(begun)}};
        result<opened> number = co_await std::move(in_turn);
        if (!number && number.error() == std::errc::timed_out)
            continue; // still in the queue: perhaps its own peer has come meanwhile
        if (!number)
            co_return fail(number.error());
        file_info info;
        if (const int error = calls.inspect(number->get(), info); error != 0)
            co_return fail_errno(-error);
        if (const int error = refusal(info, options); error != 0)
            co_return fail_errno(error);
        co_return own<pipe_writer>(*number);
    }
}

NOWAIT_END_NAMESPACE
