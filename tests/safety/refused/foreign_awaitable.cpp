// refused: no matching|no match|no viable
#include <nowait/nowait.hpp>

#include <coroutine>

#ifndef GOOD
nowait::task<> bad_foreign() {
    co_await std::suspend_always(); // nobody would resume it, or somebody on a thread of their choice
}
#else
nowait::task<> good_yield() {
    co_await nowait::yield();
}
#endif
