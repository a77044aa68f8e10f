// asio_executor: our runtime as an Asio executor.
#pragma once

#include <nowait/detail/asio_core.hpp>
#include <nowait/detail/frame_pool.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

NOWAIT_BEGIN_ASIO_NAMESPACE
namespace asio_detail {

/// Where a handler's memory comes from: its own allocator; for the default one, the loop's recycled blocks.
template <class T>
struct recycling {
    using value_type = T;
    recycling() = default;
    template <class U>
    recycling(const recycling<U>&) noexcept {}
    T* allocate(std::size_t n) { return static_cast<T*>(detail::frame_pool::allocate(n * sizeof(T))); }
    void deallocate(T* memory, std::size_t) noexcept { detail::frame_pool::deallocate(memory); }
    friend bool operator==(const recycling&, const recycling&) noexcept { return true; }
};
template <class Allocator, class T>
struct memory_for {
    using type = typename std::allocator_traits<Allocator>::template rebind_alloc<T>;
    static type of(const Allocator& allocator) { return type(allocator); }
};
template <class Any, class T>
struct memory_for<std::allocator<Any>, T> {
    using type = recycling<T>;
    static type of(const std::allocator<Any>&) { return {}; }
};

template <class Allocator>
inline constexpr bool is_default_allocator = false;
template <class Any>
inline constexpr bool is_default_allocator<std::allocator<Any>> = true;

/// Memory for one T: without an allocator of its own, and on the loop's thread, one of the core's blocks.
template <class T, class Allocator>
class recycled_memory {
    using otherwise = memory_for<Allocator, T>;
    static constexpr bool has_block = is_default_allocator<Allocator> &&
                                      sizeof(T) <= asio_core::large_blocks::block_size &&
                                      alignof(T) <= alignof(std::max_align_t);
    [[nodiscard]] static auto& blocks(asio_core& core) noexcept {
        if constexpr (sizeof(T) <= asio_core::small_blocks::block_size)
            return core.small;
        else
            return core.large;
    }

public:
    [[nodiscard]] static void* take(asio_core& core, const Allocator& allocator, bool on_loop) {
        if (has_block && on_loop)
            return blocks(core).take();
        auto from = otherwise::of(allocator);
        return from.allocate(1);
    }
    /// With what take() was given.
    static void give_back(asio_core& core, const Allocator& allocator, bool on_loop, T* destroyed) noexcept {
        if (has_block && on_loop) {
            blocks(core).give_back(destroyed);
            return;
        }
        auto to = otherwise::of(allocator);
        to.deallocate(destroyed, 1);
    }
};

/// A function on its way to the loop. `counted`: it comes from another thread, and is work of the io_context meanwhile.
template <class Function, class Allocator>
class executed_function final : public detail::posted_base {
    using memory = recycled_memory<executed_function, Allocator>;

public:
    /// `parts`: what the function is made of, in its place.
    template <class... Parts>
    static executed_function* make(asio_core& core, const Allocator& allocator, bool counted,
                                   Parts&&... parts) {
        void* const block = memory::take(core, allocator, !counted);
        return ::new (block) executed_function(core, allocator, counted, std::forward<Parts>(parts)...);
    }
    /// Its memory goes back before the function is called.
    void destroy() noexcept {
        asio_core& core = core_;
        const Allocator allocator = allocator_;
        const bool on_loop = !counted_;
        this->~executed_function();
        memory::give_back(core, allocator, on_loop, this);
    }

private:
    template <class... Parts>
    executed_function(asio_core& core, const Allocator& allocator, bool counted, Parts&&... parts)
        : core_(core), function_{std::forward<Parts>(parts)...}, allocator_(allocator), counted_(counted) {
        invoke = [](detail::posted_base& node) noexcept {
            auto& self = static_cast<executed_function&>(node);
            asio_core& to = self.core_;
            const bool was_counted = self.counted_;
            if (to.over()) {
                self.destroy();
            } else {
                try {
                    Function called(std::move(self.function_));
                    self.destroy();
                    called();
                } catch (...) {
                    to.caught(std::current_exception());
                }
            }
            if (was_counted)
                to.work_finished();
        };
    }

    asio_core& core_;
    Function function_;
    [[no_unique_address]] Allocator allocator_;
    bool counted_;
};

namespace bits {
inline constexpr unsigned blocking_never = 1;
inline constexpr unsigned continuation = 2;
inline constexpr unsigned tracked = 4;
} // namespace bits
} // namespace asio_detail

/// Runs functions on a nowait runtime, in turns of its loop. Its context is the io_context of the runtime's asio_runtime or
/// asio_guest, so sockets, timers, strands and co_spawn work with it, and nothing starts a thread.
///
/// post and defer queue the function; dispatch calls it at once inside run(). From other threads a function travels through
/// the runtime's inbox and counts as work of the io_context meanwhile. What a function throws leaves through run(). An
/// executor may be used as long as its context exists; once the runtime has ended, functions are destroyed uncalled.
template <class Allocator, unsigned Bits>
class basic_asio_executor {
    using execution_context = asio_detail::net::execution_context;
    template <unsigned Other>
    using with_bits = basic_asio_executor<Allocator, Other>;
    template <class Other>
    using with_allocator = basic_asio_executor<Other, Bits>;
    static constexpr unsigned never_bit = asio_detail::bits::blocking_never;
    static constexpr unsigned continuation_bit = asio_detail::bits::continuation;
    static constexpr unsigned tracked_bit = asio_detail::bits::tracked;

public:
    explicit basic_asio_executor(asio_detail::asio_core& core, const Allocator& allocator = {}) noexcept
        : core_(&core), allocator_(allocator) {
        start_work();
    }
    basic_asio_executor(const basic_asio_executor& other) noexcept
        : core_(other.core_), allocator_(other.allocator_) {
        start_work();
    }
    basic_asio_executor(basic_asio_executor&& other) noexcept
        : core_(other.core_), allocator_(std::move(other.allocator_)) {
        if constexpr ((Bits & tracked_bit) != 0)
            other.core_ = nullptr;
    }
    basic_asio_executor& operator=(basic_asio_executor other) noexcept {
        std::swap(core_, other.core_);
        std::swap(allocator_, other.allocator_);
        return *this;
    }
    ~basic_asio_executor() {
        if constexpr ((Bits & tracked_bit) != 0) {
            if (core_ != nullptr)
                core_->work_finished();
        }
    }

    /// Calls `function()` in a turn of the loop; at once, if it may block and this is the inside of run().
    template <class Function>
    void execute(Function&& function) const {
        using kept = std::decay_t<Function>;
        const bool here = core_->here();
        if constexpr ((Bits & never_bit) == 0) {
            if (here && core_->running()) {
                kept called(std::forward<Function>(function));
                called();
                return;
            }
        }
        using node = asio_detail::executed_function<kept, Allocator>;
        if (here) {
            core_->post_here(*node::make(*core_, allocator_, false, std::forward<Function>(function)));
            return;
        }
        core_->work_started();
        node* const made = node::make(*core_, allocator_, true, std::forward<Function>(function));
        if (!core_->send(*made)) { // over
            made->destroy();
            core_->work_finished();
        }
    }

    /// True inside run(), on the runtime's thread.
    [[nodiscard]] bool running_in_this_thread() const noexcept { return core_->here() && core_->running(); }

    friend bool operator==(const basic_asio_executor& a, const basic_asio_executor& b) noexcept {
        return a.core_ == b.core_ && a.allocator_ == b.allocator_;
    }
    friend bool operator!=(const basic_asio_executor& a, const basic_asio_executor& b) noexcept {
        return !(a == b);
    }

    // Properties, as Asio asks for them.
    [[nodiscard]] execution_context& query(asio_detail::net::execution::context_t) const noexcept {
        return core_->context();
    }
    [[nodiscard]] static constexpr asio_detail::net::execution::mapping_t query(
        asio_detail::net::execution::mapping_t) noexcept {
        return asio_detail::net::execution::mapping.thread;
    }
    [[nodiscard]] static constexpr asio_detail::net::execution::blocking_t query(
        asio_detail::net::execution::blocking_t) noexcept {
        using asio_detail::net::execution::blocking_t;
        return (Bits & never_bit) != 0 ? blocking_t(asio_detail::net::execution::blocking.never)
                                       : blocking_t(asio_detail::net::execution::blocking.possibly);
    }
    [[nodiscard]] static constexpr asio_detail::net::execution::relationship_t query(
        asio_detail::net::execution::relationship_t) noexcept {
        using asio_detail::net::execution::relationship_t;
        return (Bits & continuation_bit) != 0
                   ? relationship_t(asio_detail::net::execution::relationship.continuation)
                   : relationship_t(asio_detail::net::execution::relationship.fork);
    }
    [[nodiscard]] static constexpr asio_detail::net::execution::outstanding_work_t query(
        asio_detail::net::execution::outstanding_work_t) noexcept {
        using asio_detail::net::execution::outstanding_work_t;
        return (Bits & tracked_bit) != 0
                   ? outstanding_work_t(asio_detail::net::execution::outstanding_work.tracked)
                   : outstanding_work_t(asio_detail::net::execution::outstanding_work.untracked);
    }
    template <class Any>
    [[nodiscard]] constexpr Allocator query(asio_detail::net::execution::allocator_t<Any>) const noexcept {
        return allocator_;
    }

    [[nodiscard]] auto require(asio_detail::net::execution::blocking_t::possibly_t) const noexcept {
        return with_bits<(Bits & ~never_bit)>(*core_, allocator_);
    }
    [[nodiscard]] auto require(asio_detail::net::execution::blocking_t::never_t) const noexcept {
        return with_bits<(Bits | never_bit)>(*core_, allocator_);
    }
    [[nodiscard]] auto require(asio_detail::net::execution::relationship_t::fork_t) const noexcept {
        return with_bits<(Bits & ~continuation_bit)>(*core_, allocator_);
    }
    [[nodiscard]] auto require(asio_detail::net::execution::relationship_t::continuation_t) const noexcept {
        return with_bits<(Bits | continuation_bit)>(*core_, allocator_);
    }
    [[nodiscard]] auto require(asio_detail::net::execution::outstanding_work_t::tracked_t) const noexcept {
        return with_bits<(Bits | tracked_bit)>(*core_, allocator_);
    }
    [[nodiscard]] auto require(asio_detail::net::execution::outstanding_work_t::untracked_t) const noexcept {
        return with_bits<(Bits & ~tracked_bit)>(*core_, allocator_);
    }
    template <class Other>
    [[nodiscard]] auto require(asio_detail::net::execution::allocator_t<Other> with) const noexcept {
        return with_allocator<Other>(*core_, with.value());
    }
    [[nodiscard]] auto require(asio_detail::net::execution::allocator_t<void>) const noexcept {
        return with_allocator<std::allocator<void>>(*core_);
    }

    /// For the library's own layers.
    [[nodiscard]] asio_detail::asio_core& core() const noexcept { return *core_; }

private:
    void start_work() const noexcept {
        if constexpr ((Bits & tracked_bit) != 0)
            core_->work_started();
    }

    asio_detail::asio_core* core_;
    [[no_unique_address]] Allocator allocator_;
};

using asio_executor = basic_asio_executor<std::allocator<void>, 0>;

NOWAIT_END_ASIO_NAMESPACE
