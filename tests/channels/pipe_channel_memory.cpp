// Memory that runs out, at every place where a channel asks for some.
#include "pipe_channel_support.hpp"

#include <nowait/detail/page_pool.hpp>

namespace nowait_test::channels {
namespace {

using nowait::detail::page_pool;

/// Grants so many allocations on this thread, then none.
class scarcity {
public:
    explicit scarcity(int granted) noexcept : left_(granted) {
        page_pool::of_this_thread().set_gate(
            [](void* self) noexcept { return static_cast<scarcity*>(self)->left_-- > 0; }, this);
    }
    ~scarcity() { page_pool::of_this_thread().set_gate(nullptr, nullptr); }
    scarcity(const scarcity&) = delete;
    scarcity& operator=(const scarcity&) = delete;

private:
    int left_;
};

} // namespace

TEMPLATE_TEST_CASE("no memory: whatever is made is made whole or not at all", "[pipe_channel]", BOTH_KINDS) {
    for (int granted = 0; granted < 2; ++granted) {
        const scarcity no_more(granted);
        CHECK(error_of(TestType::create()) == ENOMEM);
    }
    auto channel = make<TestType>();
    const scarcity none(0);
    CHECK(error_of(channel.reader.duplicate()) == ENOMEM);
    CHECK(error_of(channel.writer.duplicate()) == ENOMEM);
    CHECK(error_of(channel.writer.set_capacity(2 * default_capacity)) == ENOMEM);
    CHECK(channel.writer.capacity() == default_capacity);
    channel.writer = {};
    std::string buffer(1, '?');
    auto end = channel.reader.try_read(room(buffer));
    CHECK((end && *end == 0)); // the failed duplicate was not counted
}

TEMPLATE_TEST_CASE("no memory: a write fails and writes nothing, or is short, the next one succeeds",
                   "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        {
            const scarcity none(0);
            auto small = co_await channel.writer.write("x");
            CHECK(error_of(small) == ENOMEM);
            auto large = co_await channel.writer.write(std::string_view(pattern(20'000)));
            CHECK(error_of(large) == ENOMEM);
            auto reserved = co_await channel.writer.reserve(100);
            CHECK(error_of(reserved) == ENOMEM);
            CHECK(error_of(channel.writer.try_write("x")) == ENOMEM);
        }
        CHECK(channel.reader.available() == 0u);
        const std::string data = pattern(20'000);
        {
            const scarcity three(3);
            auto part = co_await channel.writer.write(data);
            REQUIRE(part);
            CHECK(*part > 0);
            CHECK(*part < data.size());
            CHECK(channel.reader.available() == *part);
        }
        auto rest = co_await channel.writer.write("x");
        CHECK(rest);
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("no memory: bytes that fit into waiting buffers need none", "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>();
        outcome first, second;
        auto a = nowait::spawn(read_once(channel.reader, 10, first));
        auto b = nowait::spawn(read_once(channel.reader, 10, second));
        co_await settle();
        {
            const scarcity none(0);
            auto whole = co_await channel.writer.write("0123456789");
            CHECK((whole && *whole == 10));
            // More than the second reader wants: whole or not at all.
            auto too_much = co_await channel.writer.write("0123456789A");
            CHECK(error_of(too_much) == ENOMEM);
        }
        co_await settle();
        CHECK(first.text == "0123456789");
        CHECK_FALSE(second.done);
        CHECK(channel.writer.try_write("end"));
        co_await settle();
        CHECK(second.text == "end");
    };
    run_on_new(body());
}

TEMPLATE_TEST_CASE("no memory for a writer that waits: it ends with the error, the next is asked",
                   "[pipe_channel]", BOTH_KINDS) {
    auto body = []() -> task<> {
        auto channel = make<TestType>({.capacity = page});
        fill(channel);
        outcome first, second;
        const std::string block = pattern(page);
        auto a = nowait::spawn(write_once(channel.writer, block, first));
        auto b = nowait::spawn(write_once(channel.writer, "second", second));
        co_await settle();
        {
            // Room without a page: the ring grows, nothing is read.
            const scarcity slots_only(1);
            CHECK(channel.reader.set_capacity(4 * page) == 4 * page);
        }
        co_await settle();
        CHECK((first.done && first.error == ENOMEM));
        CHECK((second.done && second.error == ENOMEM));
        CHECK(channel.reader.available() == page);
        CHECK(channel.writer.try_write("again"));
        CHECK(channel.reader.available() == page + 5);
    };
    run_on_new(body());
}

} // namespace nowait_test::channels
