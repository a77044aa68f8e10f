// A runtime, two tasks beside each other, a sleep, a join.
//
//     build/release/examples/hello_runtime
#include <nowait/nowait.hpp>

#include <chrono>
#include <cstdio>

using namespace std::chrono_literals;

static nowait::task<int> boil(const char* what, std::chrono::milliseconds span, int degrees) {
    std::printf("%s: on the stove\n", what);
    const auto slept = co_await nowait::sleep_for(span);
    if (!slept)
        co_return 0; // asked to stop
    std::printf("%s: ready\n", what);
    co_return degrees;
}

static nowait::task<int> breakfast() {
    auto tea = nowait::spawn(boil("tea", 20ms, 80)); // runs beside this task from here on
    const int egg = co_await boil("egg", 10ms, 100); // and this one runs now
    const nowait::result<int> tea_degrees = co_await tea.join();
    co_return egg + tea_degrees.value_or(0);
}

int main() {
    auto runtime = nowait::runtime::create();
    if (!runtime) {
        std::fprintf(stderr, "no runtime: %s\n", runtime.error().message().c_str());
        return 1;
    }
    const auto degrees = runtime->run(breakfast()); // returns when every task has ended
    std::printf("%d degrees in all, waited for by %s\n", degrees.value_or(0), runtime->driver().data());
    return degrees ? 0 : 1;
}
