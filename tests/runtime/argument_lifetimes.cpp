// Every constructor has its destructor, whatever the compiler does with temporaries: g++ 12 has been wrong in several ways.
#include "runs.hpp"

#include <nowait/sleep.hpp>
#include <nowait/timeout.hpp>
#include <nowait/when_all.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using nowait::task;
using nowait_test::run_on_new;

namespace {

int alive = 0;
int made = 0;

/// Counts itself, and owns memory: a destruction too many is also a double free.
struct counted {
    counted() : memory(new int(3)) { birth(); }
    counted(const counted& other) : memory(new int(*other.memory)) { birth(); }
    counted(counted&& other) noexcept : memory(std::exchange(other.memory, nullptr)) { birth(); }
    counted& operator=(const counted&) = delete;
    ~counted() {
        delete memory;
        --alive;
    }
    static void birth() {
        ++alive;
        ++made;
    }
    int* memory;
};

struct message {
    std::string text;
    std::vector<int> numbers;
    counted tail;
    int priority;
};

task<int> takes(counted one, bool suspends) {
    if (suspends)
        co_await nowait::yield();
    co_return *one.memory;
}

task<std::size_t> takes_message(message what) {
    co_await nowait::yield();
    co_return what.text.size() + what.numbers.size();
}

void balanced(task<> (*body)()) {
    alive = made = 0;
    run_on_new(body());
    CHECK(made > 0);
    CHECK(alive == 0);
}

} // namespace

TEST_CASE("arguments built first and moved in are destroyed once") {
    balanced([]() -> task<> {
        for (bool suspends : {false, true}) {
            counted argument;
            const int seen = co_await takes(std::move(argument), suspends);
            CHECK(seen == 3);
        }
        message what{std::string(40, 'x'), {1, 2, 3}, {}, 3};
        const std::size_t size = co_await takes_message(std::move(what));
        CHECK(size == 43);
    });
}

TEST_CASE("temporaries of class type as arguments are destroyed once") {
    balanced([]() -> task<> {
        const int seen = co_await takes(counted(), true);
        CHECK(seen == 3);
    });
}

TEST_CASE("arguments of a task given to a composed operation are destroyed once") {
    balanced([]() -> task<> {
        counted first;
        counted second;
        task<int> one = takes(std::move(first), true);
        task<int> two = takes(std::move(second), false);
        const auto both = co_await nowait::when_all(std::move(one), std::move(two));
        CHECK(std::get<0>(both) + std::get<1>(both) == 6);
        counted third;
        const auto bounded =
            co_await nowait::with_timeout(takes(std::move(third), true), std::chrono::hours(1));
        CHECK(bounded.value() == 3);
    });
}

TEST_CASE("a callable with captures that is spawned is destroyed once, after its task") {
    alive = made = 0;
    nowait::runtime runs = nowait_test::make_runtime();
    counted captured;
    std::string text(40, 'x');
    {
        auto handle = runs.spawn([c = std::move(captured), text]() -> task<std::size_t> {
            co_await nowait::yield();
            co_return text.size() + static_cast<std::size_t>(*c.memory);
        });
        const auto size = runs.run([](nowait::join_handle<std::size_t>& h) -> task<std::size_t> {
            const auto joined = co_await h.join();
            co_return joined.value();
        }(handle));
        CHECK(size.value() == 43);
        CHECK(alive == 1); // only the moved-from original: the callable went with its task
    }
    CHECK(alive == 1);
}

TEST_CASE("destroying unstarted descriptions destroys their tasks' arguments once") {
    alive = made = 0;
    {
        counted one;
        counted two;
        auto bounded = nowait::with_timeout(takes(std::move(one), true), std::chrono::seconds(1));
        std::vector<task<int>> several;
        several.push_back(takes(std::move(two), true));
        auto all = nowait::when_all(std::move(several));
        auto nested = nowait::when_all(std::move(bounded), std::move(all));
        CHECK(alive >= 2);
    }
    CHECK(alive == 0);
}

TEST_CASE("awaiters know their own address") {
    // A library that returned its awaiters by reference would be resumed with another object's `this` on g++ 12.
    run_on_new([]() -> task<> {
        auto outer = []() -> task<int> {
            auto inner = []() -> task<int> {
                co_await nowait::sleep_for(std::chrono::microseconds(1));
                co_return 11;
            };
            const int value = co_await inner();
            co_await nowait::yield();
            co_return value + 1;
        };
        const int value = co_await outer();
        CHECK(value == 12);
    }());
}

TEST_CASE("a named move-only description is awaited by moving it") {
    run_on_new([]() -> task<> {
        auto bounded = nowait::with_timeout(takes(counted(), true), std::chrono::hours(1));
        static_assert(!std::is_copy_constructible_v<decltype(bounded)>);
        const auto value = co_await std::move(bounded);
        CHECK(value.value() == 3);
    }());
}
