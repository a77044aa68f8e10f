// refused: no matching|no match|no viable
#include <nowait/nowait.hpp>

nowait::task<int> answer() {
    co_return 42;
}

#ifndef GOOD
nowait::task<int> bad_twice() {
    auto once = answer();
    const int a = co_await once; // a task is started once, and then it is gone
    const int b = co_await once;
    co_return a + b;
}
#else
nowait::task<int> good_once() {
    const int a = co_await answer();
    const int b = co_await answer();
    co_return a + b;
}
#endif
