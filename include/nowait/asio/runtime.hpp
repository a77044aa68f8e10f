// A nowait runtime and an io_context on one thread, owned by either side.
#pragma once

#include <nowait/asio/executor.hpp>
#include <nowait/detail/asio_core.hpp>
#include <nowait/runtime.hpp>

#include <memory>
#include <system_error>
#include <utility>

NOWAIT_BEGIN_ASIO_NAMESPACE

/// A runtime inside an io_context that the program runs: for programs that keep their `io_context::run()`.
///
///     asio::io_context context;
///     nowait::asio_guest guest(context);
///     nowait::asio_readable_pipe in(context, std::move(pipe.reader));
///     auto running = guest.spawn(some_task());
///     context.run();
///
/// One thread runs the io_context, the same as long as the guest lives: another one gets a std::system_error,
/// operation_not_permitted, out of run(). run() does not return while tasks or operations of the guest are left. Guest and
/// io_context may be destroyed in either order, not from inside the guest's own tasks: what is pending ends with the first of
/// them, handlers are destroyed uncalled, descriptors closed.
class asio_guest {
public:
    /// Throws std::system_error: what runtime::create gives as errors; device_or_resource_busy: this io_context has a guest.
    explicit asio_guest(asio_detail::net::io_context& context, const runtime_options& options = {}) {
        auto& service = asio_detail::net::use_service<asio_detail::asio_service>(context);
        if (service.core() != nullptr && !service.core()->over())
            throw std::system_error(std::make_error_code(std::errc::device_or_resource_busy),
                                    "nowait: this io_context has a guest");
        try {
            core_ = start(context, options);
        } catch (const std::system_error&) {
            // A sandbox may allow a ring and forbid what makes it fit for watching: where the driver is ours to choose, the
            // other one will do.
            if (options.driver != driver_choice::automatic || options.make_driver)
                throw;
            runtime_options polling = options;
            polling.driver = driver_choice::poll;
            core_ = start(context, polling);
        }
        service.set(core_);
    }
    asio_guest(const asio_guest&) = delete;
    asio_guest& operator=(const asio_guest&) = delete;
    ~asio_guest() {
        core_->end();
        core_->release();
    }

    /// False once the io_context has been destroyed.
    [[nodiscard]] bool alive() const noexcept { return !core_->over(); }
    /// Precondition, here and below: alive().
    [[nodiscard]] runtime& get_runtime() const noexcept { return core_->get_runtime(); }
    [[nodiscard]] asio_executor get_executor() const noexcept { return asio_executor(*core_); }
    [[nodiscard]] asio_detail::net::io_context& context() const noexcept { return core_->context(); }

    /// Starts a task. On the thread that runs the io_context, or while nothing runs it. See runtime::spawn.
    template <class What>
    auto spawn(What what) {
        return get_runtime().spawn(std::move(what));
    }
    /// Any thread. See runtime::post.
    template <std::invocable Function>
    bool post(Function function) {
        return get_runtime().post(std::move(function));
    }

private:
    static asio_detail::asio_core* start(asio_detail::net::io_context& context,
                                         const runtime_options& options) {
        auto made = runtime::create(options);
        if (!made)
            throw std::system_error(made.error(), "nowait: runtime");
        auto* const core = new asio_detail::asio_core(context, std::move(*made));
        try {
            core->begin();
        } catch (...) {
            core->end();
            core->release();
            throw;
        }
        return core;
    }

    asio_detail::asio_core* core_ = nullptr;
};

/// The other owner: a runtime with an io_context of its own, for programs that begin with nowait.
///
///     nowait::asio_runtime both;
///     asio::co_spawn(both.get_executor(), serve(), asio::detached);
///     both.run(some_task());
class asio_runtime {
public:
    /// Throws as asio_guest.
    explicit asio_runtime(const runtime_options& options = {}) : guest_(context_, options) {}

    [[nodiscard]] asio_executor get_executor() const noexcept { return guest_.get_executor(); }
    [[nodiscard]] asio_detail::net::io_context& context() noexcept { return context_; }
    [[nodiscard]] runtime& get_runtime() const noexcept { return guest_.get_runtime(); }

    /// Runs both until neither has work left. Errors as runtime::run; throws what a handler throws, after which it may be
    /// called again.
    result<void> run() { return get_runtime().run(); }
    /// The same with a root task. Returns: the root's value; throws what it threw.
    template <class T>
    result<T> run(task<T> root) {
        return get_runtime().run(std::move(root));
    }
    template <class What>
    auto spawn(What what) {
        return guest_.spawn(std::move(what));
    }
    template <std::invocable Function>
    bool post(Function function) {
        return guest_.post(std::move(function));
    }

private:
    asio_detail::net::io_context context_{1}; // one thread runs it; others may post
    asio_guest guest_;
};

NOWAIT_END_ASIO_NAMESPACE
