// The pairs of docs/coroutine-safety.md. What is called bad_ is compiled and not run: it is undefined, or would hang. What is
// called good_ is run. (page.sh compares the page with these files.)
#include "runs.hpp"

#include <nowait/nowait.hpp>

#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using nowait_test::run_on_new;
using namespace std::chrono_literals;

namespace {

nowait::task<> a_while() {
    co_await nowait::yield();
}

std::string greeted;

// --- captures ------------------------------------------------------------------------------------------------------------

[[maybe_unused]] nowait::task<> bad_captures(std::string name) {
    auto greets = [name]() -> nowait::task<> {
        co_await a_while();
        greeted = name; // `name` lives in the closure, and that has gone
    };
    return greets();
}

nowait::task<> good_parameters(std::string name) {
    auto greets = [](std::string to) -> nowait::task<> {
        co_await a_while();
        greeted = to; // a parameter lives in the frame
    };
    return greets(std::move(name));
}

nowait::task<> good_spawned_callable(std::string name) {
    nowait::task_scope scope;
    scope.spawn([name]() -> nowait::task<> { // the scope keeps the closure until the task has ended
        co_await a_while();
        greeted = name;
    });
    (void)co_await scope.join();
}

// --- references ----------------------------------------------------------------------------------------------------------

nowait::task<> greets_later(const std::string& name) {
    co_await a_while();
    greeted = name;
}

[[maybe_unused]] nowait::task<> bad_reference() {
    auto greets = greets_later("a temporary"); // it dies at the semicolon
    co_await std::move(greets);
}

nowait::task<> greets_its_own(std::string name) {
    co_await a_while();
    greeted = name;
}

nowait::task<> good_value() {
    auto greets = greets_its_own("a temporary"); // moved into the frame
    co_await std::move(greets);
}

// --- tasks that outlive what they borrow --------------------------------------------------------------------------------

nowait::task<> counts(int& calls) {
    co_await a_while();
    ++calls;
}

[[maybe_unused]] nowait::task<> bad_detached() {
    int calls = 0;
    nowait::spawn(counts(calls)).detach();
    co_return; // `calls` goes, the task goes on
}

nowait::task<> good_scope() {
    int calls = 0;
    auto body = [&](nowait::task_scope& scope) -> nowait::task<> {
        scope.spawn(counts(calls));
        co_return;
    };
    (void)co_await nowait::with_scope(body); // left when the task has ended, whatever is thrown
    CHECK(calls == 1);
}

// --- locks over awaits -----------------------------------------------------------------------------------------------------

std::mutex plain_mutex;
nowait::async_mutex awaited_mutex;
int guarded = 0;

[[maybe_unused]] nowait::task<> bad_lock() {
    std::lock_guard held(plain_mutex);
    co_await a_while(); // another task of this thread that locks it waits for itself
    ++guarded;
}

nowait::task<> good_lock() {
    auto held = co_await awaited_mutex.lock();
    co_await a_while();
    ++guarded;
}

// --- what belongs to a thread ------------------------------------------------------------------------------------------------

thread_local int calls_of_this_thread = 0;

[[maybe_unused]] nowait::task<> bad_thread_local() {
    int& calls = calls_of_this_thread;
    co_await a_while(); // a task that changes runtimes is on another thread now
    ++calls;
}

nowait::task<> good_thread_local() {
    co_await a_while();
    ++calls_of_this_thread; // looked up after the await
}

// --- blocking ----------------------------------------------------------------------------------------------------------------

[[maybe_unused]] nowait::task<> bad_sleep() {
    std::this_thread::sleep_for(1s); // nobody else runs
    co_return;
}

nowait::task<> good_sleep() {
    (void)co_await nowait::sleep_for(1ms);
}

// --- temporaries in a co_await expression ----------------------------------------------------------------------------------------

[[maybe_unused]] nowait::task<> bad_temporary(std::string name) {
    (void)co_await nowait::with_scope([name](nowait::task_scope&) -> nowait::task<> {
        greeted = name; // g++ 12 destroys the closure twice
        co_return;
    });
}

nowait::task<> good_named(std::string name) {
    auto body = [name](nowait::task_scope&) -> nowait::task<> {
        greeted = name;
        co_return;
    };
    (void)co_await nowait::with_scope(std::move(body));
}

// --- what waits, and what it waits in ------------------------------------------------------------------------------------------

nowait::task<bool> waits_in(nowait::local_event& gate) {
    auto waited = co_await gate.wait();
    co_return waited.has_value();
}

[[maybe_unused]] nowait::task<> bad_order() {
    auto gate = std::make_unique<nowait::local_event>();
    auto waiting = nowait::spawn(waits_in(*gate));
    co_await a_while();
    gate.reset(); // somebody waits in it
    (void)co_await waiting.join();
}

nowait::task<> good_order() {
    nowait::local_event gate;
    auto waiting = nowait::spawn(waits_in(gate));
    co_await a_while();
    gate.set();
    auto joined = co_await waiting.join(); // then the gate may go
    CHECK(joined.value());
}

// --- the other results of a race -------------------------------------------------------------------------------------------------

[[maybe_unused]] nowait::task<int> bad_race(nowait::local_channel<int> a, nowait::local_channel<int> b) {
    int sum = 0;
    auto first = co_await nowait::when_any(a.receive(), b.receive());
    sum += first.index == 0 ? *first.get<0>() : *first.get<1>(); // the other may have received one too
    co_return sum;
}

nowait::task<int> good_race(nowait::local_channel<int> a, nowait::local_channel<int> b) {
    int sum = 0;
    auto first = co_await nowait::when_any(a.receive(), b.receive());
    if (auto& got = first.get<0>())
        sum += *got;
    if (auto& got = first.get<1>())
        sum += *got;
    co_return sum;
}

// --- closing by destroying -------------------------------------------------------------------------------------------------------

[[maybe_unused]] nowait::task<> bad_writer(nowait::pipe_writer to) {
    (void)co_await to.write("bytes");
    (void)co_await nowait::sleep_for(
        24h); // `to` is a parameter: it lives as long as the frame, and the reader waits
}

nowait::task<> good_writer(nowait::pipe_writer to) {
    (void)co_await to.write("bytes");
    to.close(); // now the reader sees the end
    (void)co_await nowait::sleep_for(1ms);
}

} // namespace

TEST_CASE("safety: parameters, and callables that somebody keeps") {
    greeted.clear();
    run_on_new(good_parameters("one"));
    CHECK(greeted == "one");
    run_on_new(good_spawned_callable("two"));
    CHECK(greeted == "two");
}

TEST_CASE("safety: arguments by value") {
    greeted.clear();
    run_on_new(good_value());
    CHECK(greeted == "a temporary");
}

TEST_CASE("safety: what tasks borrow outlives their scope") {
    run_on_new(good_scope());
}

TEST_CASE("safety: a lock that is awaited may be held over an await") {
    guarded = 0;
    run_on_new([]() -> nowait::task<> {
        nowait::task_scope scope;
        for (int i = 0; i < 10; ++i)
            scope.spawn(good_lock());
        auto ended = co_await scope.join();
        CHECK(ended.has_value());
    }());
    CHECK(guarded == 10);
}

TEST_CASE("safety: thread-local variables are looked up after the await, and nothing blocks") {
    const int before = calls_of_this_thread;
    run_on_new(good_thread_local());
    CHECK(calls_of_this_thread == before + 1);
    run_on_new(good_sleep());
}

TEST_CASE("safety: what a co_await expression needs is named before") {
    greeted.clear();
    run_on_new(good_named("three"));
    CHECK(greeted == "three");
}

TEST_CASE("safety: nobody waits in what is destroyed") {
    run_on_new(good_order());
}

TEST_CASE("safety: every part of a race is looked at") {
    run_on_new([]() -> nowait::task<> {
        auto a = nowait::local_channel<int>::create(1).value();
        auto b = nowait::local_channel<int>::create(1).value();
        auto racing = nowait::spawn(good_race(a, b));
        co_await a_while();
        int one = 1;
        int two = 2;
        CHECK(a.try_send(one).has_value());
        CHECK(b.try_send(two).has_value()); // both are chosen before either runs
        auto sum = co_await racing.join();
        CHECK(sum.value() == 3);
    }());
}

TEST_CASE("safety: an end is closed when it is not needed, not when its frame goes") {
    run_on_new([]() -> nowait::task<> {
        auto pipe = nowait::make_pipe().value();
        auto writing = nowait::spawn(good_writer(std::move(pipe.writer)));
        std::array<std::byte, 16> buffer{};
        auto got = co_await pipe.reader.read(buffer);
        CHECK(got.value() == 5);
        auto end = co_await pipe.reader.read(buffer);
        CHECK(end.value() == 0);
        auto joined = co_await writing.join();
        CHECK(joined.has_value());
    }());
}
