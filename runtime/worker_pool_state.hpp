// A pool of the real world: the core over real threads (or a given host), and what it needs to live as long as its last user.
#pragma once

#include "worker_pool_core.hpp"

#include <nowait/worker_pool.hpp>

#include <memory>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

class worker_pool_state final : public worker_pool_core<real_sync> {
public:
    worker_pool_state(std::unique_ptr<worker_host> own, worker_host& host, const worker_pool_limits& limits,
                      const worker_pool_options& options);

    [[nodiscard]] bool forked() const noexcept;
    /// 0, or a positive errno value. Asks the host once, and again after a refusal.
    [[nodiscard]] int claim_interrupts() noexcept;
    pool_shutdown_report shutdown(std::chrono::nanoseconds limit) noexcept;
    /// The handle goes: shut down, and left to those who still hold it.
    void close() noexcept;

    [[nodiscard]] static worker_pool_state* make(const worker_pool_options& options, system& calls,
                                                 bool common);

protected:
    void exhausted(work_account which, std::size_t queued) noexcept override;

private:
    std::unique_ptr<worker_host> own_host_;
    std::function<void(const pool_exhaustion&)> on_exhausted_;
    std::chrono::nanoseconds destructor_wait_;
    unsigned fork_generation_;
    real_sync::atomic<bool> interrupts_claimed_{false};
};

} // namespace detail
NOWAIT_END_NAMESPACE
