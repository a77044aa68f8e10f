#include <nowait/detail/driver.hpp>
#include <nowait/detail/sync.hpp>
#include <nowait/wait.hpp>

#include <cassert>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <memory>
#include <new>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

namespace {

/// Sleeps on one word until somebody wakes it, or until a deadline. There is nothing else that it could wait for.
class sleeping_driver final : public driver {
public:
    void arm(poll_source&) noexcept override { assert(false && "wait() takes operations of channels"); }
    void disarm(poll_source&) noexcept override {}
    void start(transfer&) noexcept override { assert(false && "wait() takes operations of channels"); }
    void cancel(transfer&) noexcept override {}

    [[nodiscard]] bool has_work() const noexcept override { return false; }
    void collect() noexcept override {}

    void wait(time_point deadline) noexcept override {
        // Acquire pairs with the release in wake(). A wake that came before is kept in the word.
        if (woken_.exchange(0, std::memory_order_acquire) != 0)
            return;
        timespec until{};
        if (deadline != never) {
            const auto span = deadline.time_since_epoch();
            const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(span);
            until.tv_sec = static_cast<std::time_t>(seconds.count());
            until.tv_nsec = static_cast<long>(
                std::chrono::duration_cast<std::chrono::nanoseconds>(span - seconds).count());
        }
        ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&woken_), FUTEX_WAIT_BITSET_PRIVATE, 0,
                  deadline != never ? &until : nullptr, nullptr, FUTEX_BITSET_MATCH_ANY);
        // Also takes a wake that came meanwhile: the loop looks at its inbox before it sleeps again.
        if (woken_.exchange(0, std::memory_order_acquire) != 0)
            counters.wakes.add();
    }
    void wake() noexcept override {
        if (woken_.exchange(1, std::memory_order_release) == 0) // pairs with wait()
            futex_wake(woken_, 1);
    }
    void abandon() noexcept override {}

    [[nodiscard]] std::string_view name() const noexcept override { return "sleep"; }
    [[nodiscard]] std::size_t pending() const noexcept override { return 0; }

private:
    real_sync::atomic<std::uint32_t> woken_{0};
};

} // namespace

loop* loop_of_plain_thread() noexcept {
    static thread_local std::unique_ptr<loop> mine;
    if (mine == nullptr || mine->forked()) {
        try {
            mine = std::make_unique<loop>(real_system(), std::make_unique<sleeping_driver>(), 128);
        } catch (const std::bad_alloc&) {
            return nullptr;
        }
    }
    return mine.get();
}

} // namespace detail
NOWAIT_END_NAMESPACE
