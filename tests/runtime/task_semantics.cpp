// What a task is: lazy, one value or one exception, and gone before its awaiter goes on.
#include "runs.hpp"

#include <nowait/pipe.hpp>
#include <nowait/sleep.hpp>
#include <nowait/task.hpp>

#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>

using nowait::task;
using nowait_test::run_on_new;

namespace {

task<> set(bool& ran) {
    ran = true;
    co_return;
}

task<std::unique_ptr<int>> boxed(int value) {
    co_return std::make_unique<int>(value);
}

task<int&> pick(int& a, int& b, bool first) {
    co_return first ? a : b;
}

task<int> throws(bool after_suspension) {
    if (after_suspension)
        co_await nowait::yield();
    throw std::runtime_error("from the child");
}

task<int> catches(bool after_suspension) {
    try {
        co_return co_await throws(after_suspension);
    } catch (const std::runtime_error& e) {
        co_return e.what() == std::string("from the child") ? 7 : 0;
    }
}

struct immovable_default {
    explicit immovable_default(int n) : value(n) {}
    immovable_default(immovable_default&&) = default;
    immovable_default& operator=(immovable_default&&) = delete;
    int value;
};

task<immovable_default> without_default() {
    co_return immovable_default(5);
}

template <int N>
task<int> only_a_number() {
    const int below = co_await only_a_number<N - 1>();
    co_return below + 1;
}
template <>
task<int> only_a_number<0>() {
    co_return 0;
}

} // namespace

TEST_CASE("nothing of a task runs before it is awaited") {
    bool ran = false;
    run_on_new([](bool& seen) -> task<> {
        task<> child = set(seen);
        co_await nowait::yield();
        CHECK_FALSE(seen);
        co_await std::move(child);
        CHECK(seen);
        CHECK_FALSE(child.valid()); // NOLINT(bugprone-use-after-move): that is the question
    }(ran));
    CHECK(ran);
}

TEST_CASE("a task that is never awaited does not run and frees its arguments") {
    bool ran = false;
    auto kept = std::make_shared<int>(1);
    {
        task<> unstarted = [](bool& seen, std::shared_ptr<int>) -> task<> {
            seen = true;
            co_return;
        }(ran, kept);
        CHECK(unstarted.valid());
        CHECK(kept.use_count() == 2);
    }
    CHECK(kept.use_count() == 1);
    CHECK_FALSE(ran);
}

TEST_CASE("assigning over a task that was not started destroys it") {
    auto kept = std::make_shared<int>(1);
    auto holds = [](std::shared_ptr<int>) -> task<> { co_return; };
    task<> one = holds(kept);
    CHECK(kept.use_count() == 2);
    one = task<>();
    CHECK(kept.use_count() == 1);
    CHECK_FALSE(one.valid());
}

TEST_CASE("a task gives a move-only value") {
    const auto value = run_on_new([]() -> task<std::unique_ptr<int>> {
        auto inner = co_await boxed(42);
        CHECK(*inner == 42);
        co_return inner;
    }());
    REQUIRE(value != nullptr);
    CHECK(*value == 42);
}

TEST_CASE("a task gives a reference to the very object") {
    int a = 1;
    int b = 2;
    run_on_new([](int& left, int& right) -> task<> {
        int& first = co_await pick(left, right, true);
        int& second = co_await pick(left, right, false);
        CHECK(&first == &left);
        CHECK(&second == &right);
        second = 9;
    }(a, b));
    CHECK(b == 9);
}

TEST_CASE("a task gives a value that cannot be default-constructed") {
    CHECK(run_on_new(without_default()).value == 5);
}

TEST_CASE("a task of a task gives the task") {
    const int value = run_on_new([]() -> task<int> {
        auto outer = []() -> task<task<int>> { co_return only_a_number<3>(); };
        task<int> inner = co_await outer();
        co_return co_await std::move(inner);
    }());
    CHECK(value == 3);
}

TEST_CASE("an exception arrives where the task is awaited") {
    CHECK(run_on_new(catches(false)) == 7);
    CHECK(run_on_new(catches(true)) == 7);
}

TEST_CASE("an exception of the root arrives at run") {
    nowait::runtime runs = nowait_test::make_runtime();
    CHECK_THROWS_AS(runs.run(throws(false)), std::runtime_error);
    CHECK_THROWS_AS(runs.run(throws(true)), std::runtime_error);
    CHECK(runs.run(catches(true)).value() == 7); // and the runtime goes on
}

TEST_CASE("templates with nothing but a number can be tasks") {
    CHECK(run_on_new(only_a_number<20>()) == 20);
}

TEST_CASE("the child's frame and parameters die before its awaiter goes on") {
    run_on_new([]() -> task<> {
        auto kept = std::make_shared<int>(1);
        auto child = [](std::shared_ptr<int> mine, int suspensions) -> task<long> {
            for (int i = 0; i < suspensions; ++i)
                co_await nowait::yield();
            co_return mine.use_count();
        };
        for (int suspensions : {0, 1, 3}) {
            const long inside = co_await child(kept, suspensions);
            CHECK(inside == 2);
            CHECK(kept.use_count() == 1);
        }
    }());
}

TEST_CASE("a writer passed by value is closed when the child has ended") {
    run_on_new([]() -> task<> {
        nowait::pipe_pair pipe = nowait::make_pipe().value();
        auto child = [](nowait::pipe_writer mine) -> task<> {
            const auto wrote = co_await mine.write("x");
            CHECK(wrote.value() == 1);
        };
        co_await child(std::move(pipe.writer));
        std::array<std::byte, 8> buffer{};
        const auto first = co_await pipe.reader.read(buffer);
        CHECK(first.value() == 1);
        const auto second = co_await pipe.reader.read(buffer);
        CHECK(second.value() == 0); // end of the stream: no writer is left
    }());
}

TEST_CASE("a child that throws frees its frame before the exception is seen") {
    run_on_new([]() -> task<> {
        auto kept = std::make_shared<int>(1);
        auto child = [](std::shared_ptr<int>) -> task<> {
            co_await nowait::yield();
            throw std::logic_error("late");
        };
        long seen = 0;
        try {
            co_await child(kept);
        } catch (const std::logic_error&) {
            seen = kept.use_count();
        }
        CHECK(seen == 1);
    }());
}

TEST_CASE("a named description can be awaited again if it can be copied") {
    run_on_new([]() -> task<> {
        auto pause = nowait::sleep_for(std::chrono::nanoseconds(1));
        CHECK((co_await pause).has_value());
        CHECK((co_await pause).has_value());
    }());
}
