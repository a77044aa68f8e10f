// Where operations complete that end at once: never inside the initiating function, unless the handler says where.
#include "asio_support.hpp"
#include "catch.hpp"

#if NOWAIT_ASIO_HAS_IMMEDIATE_EXECUTOR
#if NOWAIT_ASIO_BOOST
#include <boost/asio/bind_immediate_executor.hpp>
#else
#include <asio/bind_immediate_executor.hpp>
#endif
#endif

#include <thread>

using tests::every_object;

TEMPLATE_LIST_TEST_CASE("what ends at once completes after the initiation, and where the handler belongs", "",
                        every_object) {
    TestType f;
    auto& objects = f.objects;
    auto strand = net::make_strand(f.world.context());
    int called = 0;
    bool initiating = false;
    const auto note = [&](error_code error, auto&&...) {
        CHECK(!error);
        CHECK_FALSE(initiating);
        CHECK(strand.running_in_this_thread());
        ++called;
    };
    const auto at_once = [&] {
        initiating = true;
        objects.send(net::bind_executor(strand, note));
        objects.receive(net::bind_executor(strand, note)); // there is something
        initiating = false;
    };
    SECTION("before the loop runs") {
        at_once();
    }
    SECTION("in a turn of the loop") {
        net::post(f.world.executor(), at_once);
    }
    SECTION("on the handlers' own strand") {
        net::post(strand, at_once);
    }
    f.world.run();
    CHECK(called == 2);
}

#if NOWAIT_ASIO_HAS_IMMEDIATE_EXECUTOR

namespace {

/// Runs what it is given, there and then, and counts.
struct spot {
    int* uses;
    template <class Function>
    void execute(Function&& function) const {
        ++*uses;
        std::decay_t<Function> called(std::forward<Function>(function));
        called();
    }
    net::execution_context& query(net::execution::context_t) const noexcept { return *context; }
    static constexpr auto query(net::execution::blocking_t) noexcept {
        return net::execution::blocking_t(net::execution::blocking.possibly);
    }
    friend bool operator==(const spot&, const spot&) noexcept = default;
    net::execution_context* context;
};

} // namespace

TEMPLATE_LIST_TEST_CASE("a handler's immediate executor is used for what ends at once, and for nothing else",
                        "", every_object) {
    TestType f;
    auto& objects = f.objects;
    int uses = 0;
    int called = 0;
    const spot here{&uses, &f.world.context()};
    const net::any_io_executor erased =
        net::system_executor(); // runs at once; lives in the handler that it runs
    const auto note = [&](error_code error, auto&&...) {
        CHECK(!error);
        ++called;
    };
    SECTION("between two runs, on the runtime's thread") {
        f.world.run();
        objects.send(net::bind_immediate_executor(here, note));
        CHECK(uses == 1);
        CHECK(called == 1);
        objects.receive(net::bind_immediate_executor(erased, note));
        CHECK(called == 2);
        f.world.run();
    }
    SECTION("not before the first run: no thread is the runtime's yet") {
        objects.send(net::bind_immediate_executor(here, note));
        CHECK(called == 0);
        f.world.run();
        CHECK(called == 1);
        CHECK(uses == 0);
    }
    SECTION("in a turn of the loop, also where the handler belongs elsewhere") {
        auto strand = net::make_strand(f.world.context());
        net::post(f.world.executor(), [&] {
            auto bound = net::bind_executor(strand, note);
            objects.send(net::bind_immediate_executor(erased, bound));
            objects.receive(net::bind_immediate_executor(here, bound));
            CHECK(called == 2);
        });
        f.world.run();
        CHECK(uses == 1);
    }
    SECTION("not for a receive that waits") {
        objects.receive(net::bind_immediate_executor(here, note));
        CHECK(called == 0);
        net::post(f.world.executor(), [&] {
            objects.send(note);
            CHECK(called == 0);
        });
        f.world.run();
        CHECK(uses == 0);
        CHECK(called == 2);
    }
    SECTION("not for what another thread initiates: it ends on the runtime's thread") {
        std::thread elsewhere([&] {
            objects.send(net::bind_immediate_executor(here, note));
            objects.receive(net::bind_immediate_executor(here, note));
        });
        elsewhere.join();
        CHECK(called == 0);
        f.world.run();
        CHECK(uses == 0);
        CHECK(called == 2);
    }
    SECTION("an error at once") {
        f.world.run();
        objects.end();
        error_code outcome;
        objects.receive(
            net::bind_immediate_executor(here, [&](error_code error, auto&&) { outcome = error; }));
        CHECK(uses == 1);
        CHECK(outcome == objects.ended());
        f.world.run();
    }
    SECTION("through other tokens") {
        f.world.run();
        auto later = objects.send(tests::deferred);
        std::move(later)(net::bind_immediate_executor(here, note));
        CHECK(called == 1);
        objects.receive(tests::as_tuple(net::bind_immediate_executor(here, [&](auto&& outcome) {
            CHECK(!std::get<0>(outcome));
            ++called;
        })));
        CHECK(called == 2);
        CHECK(uses == 2);
        f.world.run();
    }
}

#endif
