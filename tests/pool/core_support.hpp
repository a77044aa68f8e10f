// Jobs made of plain functions, for tests of the pool's core.
#pragma once

#include "runtime/worker_pool_core.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

namespace nowait_test {

template <class Sync>
struct basic_plain_job : nowait::detail::basic_pool_job<Sync> {
    using base = nowait::detail::basic_pool_job<Sync>;

    explicit basic_plain_job(std::function<void()> work = [] {}) : what(std::move(work)) {
        static constexpr nowait::detail::basic_pool_job_functions<Sync> mine{
            [](base& raw) noexcept {
                auto& self = static_cast<basic_plain_job&>(raw);
                ++self.runs;
                self.what();
            },
            [](base& raw, int code) noexcept {
                auto& self = static_cast<basic_plain_job&>(raw);
                ++self.ends;
                self.error = code;
            },
            [](base& raw) noexcept {
                ++static_cast<basic_plain_job&>(raw).releases;
                return false;
            }};
        this->functions = &mine;
    }
    basic_plain_job& with_key(std::uint64_t value) {
        this->keyed = true;
        this->key = value;
        return *this;
    }
    basic_plain_job& with_ration() {
        this->rationed = true;
        return *this;
    }
    basic_plain_job& unbounded() {
        this->account = nowait::work_account::unbounded;
        return *this;
    }

    std::function<void()> what;
    int runs = 0;
    int ends = 0;
    int releases = 0;
    std::optional<int> error;
};
using plain_job = basic_plain_job<nowait::detail::real_sync>;

/// The core deletes itself with its last reference.
template <class Core>
class core_owner {
public:
    template <class... Arguments>
    explicit core_owner(Arguments&&... arguments) : core_(new Core(std::forward<Arguments>(arguments)...)) {}
    core_owner(const core_owner&) = delete;
    core_owner& operator=(const core_owner&) = delete;
    ~core_owner() { core_->release(); }
    Core* operator->() const noexcept { return core_; }
    Core& operator*() const noexcept { return *core_; }

private:
    Core* core_;
};

} // namespace nowait_test
