// What every object says to use after close, after a move, and to a cancel with nothing to cancel.
#include "asio_support.hpp"
#include "catch.hpp"

#include <type_traits>

using tests::every_object;

namespace {

template <class World, class Objects>
constexpr bool is_stream(const tests::fixture<World, Objects>&) {
    return std::is_same_v<Objects, tests::kernel_pipe> || std::is_same_v<Objects, tests::memory_pipe>;
}

template <class Reader, class Writer>
auto& receiver(tests::stream_pair<Reader, Writer>& pair) {
    return pair.in;
}
template <class Channel>
auto& receiver(tests::channel_pair<Channel>& pair) {
    return pair.channel;
}
template <class Reader, class Writer>
auto& sender(tests::stream_pair<Reader, Writer>& pair) {
    return pair.out;
}
template <class Channel>
auto& sender(tests::channel_pair<Channel>& pair) {
    return pair.channel;
}

} // namespace

TEMPLATE_LIST_TEST_CASE("used after close, and closed again", "", every_object) {
    TestType f;
    auto& objects = f.objects;
    error_code sent;
    error_code received;
    auto& in = receiver(objects);
    auto& out = sender(objects);
    in.close();
    in.close();
    out.close();
    in.cancel();
    out.cancel();
    CHECK_FALSE(in.is_open());
    CHECK_FALSE(out.is_open());
    objects.send([&](error_code error, auto...) { sent = error; });
    objects.receive([&](error_code error, auto&&) { received = error; });
    CHECK(!sent);
    CHECK(!received);
    f.world.run();
    const error_code closed = is_stream(f) ? error_code(net::error::bad_descriptor) : objects.ended();
    CHECK(sent == closed);
    CHECK(received == closed);
}

TEMPLATE_LIST_TEST_CASE("used after a move, and moved back", "", every_object) {
    TestType f;
    auto& objects = f.objects;
    auto& in = receiver(objects);
    error_code received;
    int called = 0;
    const auto note = [&](error_code error, auto&&...) {
        received = error;
        ++called;
    };
    auto taken = std::move(in);
    CHECK_FALSE(in.is_open());
    CHECK(taken.is_open());
    in.cancel();
    objects.receive(note);
    f.world.run();
    CHECK(received == net::error::bad_descriptor);
    in.close();
    objects.receive(note);
    f.world.run();
    CHECK(received == net::error::bad_descriptor);
    in = std::move(taken);
    CHECK(in.is_open());
    objects.send([](error_code, auto...) {});
    objects.receive(note);
    f.world.run();
    CHECK(called == 3);
    CHECK(!received);
}

TEMPLATE_LIST_TEST_CASE("a cancel with nothing pending is for nobody", "", every_object) {
    TestType f;
    auto& objects = f.objects;
    bool right = false;
    objects.cancel();
    objects.send([](error_code, auto...) {});
    objects.cancel();
    f.world.run();
    objects.cancel();
    objects.receive([&](error_code error, auto got) { right = !error && objects.right(got); });
    f.world.run();
    CHECK(right);
}

TEMPLATE_LIST_TEST_CASE("two receives at once are served in turn, and two sends", "", every_object) {
    TestType f;
    auto& objects = f.objects;
    std::string order;
    objects.receive([&](error_code error, auto&&) { order += error ? '!' : 'a'; });
    objects.receive([&](error_code error, auto&&) { order += error ? '!' : 'b'; });
    net::post(f.world.executor(), [&] {
        objects.send([&](error_code error, auto...) { CHECK(!error); });
        objects.send([&](error_code error, auto...) { CHECK(!error); });
    });
    f.world.run();
    CHECK(order == "ab");
}
