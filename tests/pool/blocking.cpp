// blocking(): values, exceptions, stops and keys, on real threads.
#include "catch.hpp"

#include <nowait/nowait.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

using namespace std::chrono_literals;
using nowait::blocking;
using nowait::result;
using nowait::task;

namespace {

task<int> answer_elsewhere(std::thread::id* where) {
    auto work = [where] {
        *where = std::this_thread::get_id();
        return 42;
    };
    auto got = co_await blocking(work);
    co_return got.value();
}

} // namespace

TEST_CASE("the value of blocking work comes back from another thread") {
    std::thread::id where;
    REQUIRE(nowait::run(answer_elsewhere(&where)).value() == 42);
    REQUIRE(where != std::thread::id());
    REQUIRE(where != std::this_thread::get_id());
}
