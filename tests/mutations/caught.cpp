// The suite against itself: every fault of mutations.cmake is caught within 2,000 seeds.
#include "../simulation/mutants.hpp"
#include "mutations.hpp"

#include <string>

namespace nowait_test {

namespace {

std::string_view present;

struct fault_scope {
    explicit fault_scope(std::string_view fault) noexcept { break_with(fault); }
    ~fault_scope() { break_with({}); }
    fault_scope(const fault_scope&) = delete;
    fault_scope& operator=(const fault_scope&) = delete;
};

void is_caught_with(std::string_view fault) {
    const fault_scope scope(fault);
    mutants::is_caught({});
}

} // namespace

bool broken(std::string_view fault) noexcept {
    return fault == present;
}
void break_with(std::string_view fault) noexcept {
    present = fault;
}

TEST_CASE("the copies without a fault pass") {
    const mutants::outcome found = mutants::hunt({});
    INFO(found.failure);
    CHECK(found.seed == 0);
}

TEST_CASE("a descriptor whose wait queue loses the baton is caught") {
    is_caught_with("baton");
}

TEST_CASE("a descriptor that forgets to wake is caught") {
    is_caught_with("wake");
}

TEST_CASE("a descriptor at which newcomers pass those who wait is caught") {
    is_caught_with("barging");
}

TEST_CASE("a cancel that drops what its own attempt has brought is caught") {
    is_caught_with("cancel");
}

TEST_CASE("a cancel that does not wait until the driver has let go of the buffer is caught") {
    is_caught_with("buffer");
}

TEST_CASE("a close that leaves its poll armed is caught") {
    is_caught_with("poll");
}

TEST_CASE("a nursery that can be left while a task runs is caught") {
    is_caught_with("nursery");
}

TEST_CASE("a counter of first attempts that misses some is caught") {
    is_caught_with("inline counter");
}

TEST_CASE("a counter of waits that misses some is caught") {
    is_caught_with("armed counter");
}

TEST_CASE("a counter of vain attempts that counts what was none is caught") {
    is_caught_with("miss counter");
}

TEST_CASE("a counter of jobs that misses some is caught") {
    is_caught_with("punt counter");
}

} // namespace nowait_test
