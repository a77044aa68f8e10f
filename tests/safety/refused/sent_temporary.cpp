// refused: deleted
#include <nowait/nowait.hpp>

#include <string>

#ifndef GOOD
nowait::task<> bad_send(nowait::channel<std::string> to) {
    auto sent = co_await to.send(std::string("a message")); // unsent, it would be lost
    (void)sent;
}
#else
nowait::task<> good_send(nowait::channel<std::string> to) {
    std::string message = "a message";
    auto sent = co_await to.send(message); // moved from if, and only if, it was sent
    (void)sent;
}

nowait::task<> good_send_owned(nowait::channel<std::string> to) {
    auto sent = co_await to.send_owned("a message");
    if (!sent)
        std::string back = std::move(sent.error().value);
}
#endif
