// What a queue does: order, lengths, priorities, names, limits, and every kind of bad input.
#include "queue_support.hpp"

#include <climits>

namespace queues {
namespace {

task<> order_of_messages(const posix_mqueue& queue) {
    struct {
        const char* text;
        unsigned priority;
    } const messages[] = {{"a", 1}, {"b", 5}, {"c", 1}, {"d", 0}, {"e", 5}, {"f", 32767}};
    for (const auto& each : messages) {
        auto done = co_await queue.send(each.text, each.priority);
        CHECK(done);
    }
    const auto before = queue.attributes();
    CHECK((before && before->messages == 6));
    buffer room;
    std::string order;
    for (int i = 0; i < 6; ++i) {
        auto got = co_await queue.receive(room);
        order += shown(got) + " ";
    }
    CHECK(order == "32767:f 5:b 5:e 1:a 1:c 0:d ");
    const auto after = queue.attributes();
    CHECK((after && after->messages == 0 && after->capacity == 8 && after->message_bytes == message_bytes));
}

task<> lengths(const posix_mqueue& queue) {
    const std::string longest(message_bytes, 'x');
    for (const std::string& text : {std::string(), std::string("1"), longest}) {
        auto done = co_await queue.send(text);
        CHECK(done);
        buffer room;
        auto got = co_await queue.receive(room);
        CHECK(shown(got) == "0:" + text);
        if (got)
            CHECK(got->value.data() == room.data());
    }
    auto done = co_await queue.send(longest, 3);
    CHECK(done);
    auto owned = co_await queue.receive();
    CHECK(shown(owned) == "3:" + longest);
    done = co_await queue.send(std::string_view());
    CHECK(done);
    owned = co_await queue.receive();
    CHECK(shown(owned) == "0:");
}

task<> bad_priorities(const posix_mqueue& queue) {
    auto done = co_await queue.send("x", 32768u);
    CHECK(error_of(done) == EINVAL);
    done = co_await queue.send("x", -1);
    CHECK(error_of(done) == EINVAL);
    done = co_await queue.send("x", std::int64_t{1} << 32);
    CHECK(error_of(done) == EINVAL);
    CHECK(error_of(queue.try_send("x", 32768u)) == EINVAL);
    const auto now = queue.attributes();
    CHECK((now && now->messages == 0));
    done = co_await queue.send("x", 32767u);
    CHECK(done);
}

task<> wrong_sizes(const posix_mqueue& queue) {
    const std::string too_long(message_bytes + 1, 'x');
    buffer room;
    const std::span<std::byte> too_small = std::span(room).first(message_bytes - 1);
    for (int round = 0; round < 3;
         ++round) { // unbound, with the predictor expecting success, and after misses
        auto done = co_await queue.send(too_long);
        CHECK(error_of(done) == EMSGSIZE);
        auto got = co_await queue.receive(too_small); // empty, and it says so all the same
        CHECK(shown(got) == "error " + std::to_string(EMSGSIZE));
        done = co_await queue.send("short");
        CHECK(done);
        got = co_await queue.receive(too_small);
        CHECK(shown(got) == "error " + std::to_string(EMSGSIZE));
        got = queue.try_receive(too_small);
        CHECK(shown(got) == "error " + std::to_string(EMSGSIZE));
        CHECK(error_of(queue.try_send(too_long)) == EMSGSIZE);
        got = co_await queue.receive(room);
        CHECK(shown(got) == "0:short");
        for (int i = 0; i < 3; ++i) {
            got = co_await nowait::with_timeout(queue.receive(room), 0s);
            CHECK(shown(got) == "error " + std::to_string(ETIMEDOUT));
        }
    }
}

task<> wrong_size_behind_a_waiter(const posix_mqueue& queue) {
    received first;
    auto waiting = nowait::spawn(receive_into(queue, first));
    co_await settle(3);
    buffer room;
    auto got = co_await queue.receive(std::span(room).first(5)); // does not wait for its turn to say so
    CHECK(shown(got) == "error " + std::to_string(EMSGSIZE));
    auto done = co_await queue.send("x");
    CHECK(done);
    (void)co_await waiting.join();
    CHECK(first.what == "0:x");
}

task<> wrong_directions(const owned_posix_mqueue& queue) {
    const posix_mqueue receiver = reopen(queue, mqueue_access::receive);
    const posix_mqueue sender = reopen(queue, mqueue_access::send);
    auto done = co_await receiver.send("x");
    CHECK(error_of(done) == EBADF);
    buffer room;
    auto got = co_await sender.receive(room);
    CHECK(shown(got) == "error " + std::to_string(EBADF));
    done = co_await sender.send("y", 2);
    CHECK(done);
    got = co_await receiver.receive(room);
    CHECK(shown(got) == "2:y");
}

task<> null_pointers(const posix_mqueue& queue) {
    auto done = co_await queue.send(std::span<const std::byte>(static_cast<const std::byte*>(nullptr), 5));
    CHECK(error_of(done) == EFAULT);
    const auto now = queue.attributes();
    CHECK((now && now->messages == 0));
    // The kernel copies after it has taken the message out: it is not asked, or the mistake would cost one.
    const auto no_buffer = std::span<std::byte>(static_cast<std::byte*>(nullptr), message_bytes);
    auto got = co_await queue.receive(no_buffer);
    CHECK(shown(got) == "error " + std::to_string(EFAULT));
    done = co_await queue.send("kept");
    CHECK(done);
    got = co_await queue.receive(no_buffer);
    CHECK(shown(got) == "error " + std::to_string(EFAULT));
    CHECK(error_of(queue.try_receive(no_buffer)) == EFAULT);
    const auto after = queue.attributes();
    CHECK((after && after->messages == 1));
}

task<> nothing_works(const posix_mqueue& queue) {
    buffer room;
    auto got = co_await queue.receive(room);
    CHECK(shown(got) == "error " + std::to_string(EBADF));
    auto owned = co_await queue.receive();
    CHECK(shown(owned) == "error " + std::to_string(EBADF));
    auto done = co_await queue.send("x");
    CHECK(error_of(done) == EBADF);
    done = co_await queue.readable();
    CHECK(error_of(done) == EBADF);
    CHECK(error_of(queue.try_send("x")) == EBADF);
    CHECK(error_of(queue.try_receive(room)) == EBADF);
    CHECK(error_of(queue.attributes()) == EBADF);
    CHECK(error_of(queue.notify()) == EBADF);
    CHECK(!queue.is_open());
    CHECK(queue.native_handle() == -1);
}

task<> closed_and_moved_from(posix_mqueue queue) {
    posix_mqueue moved = std::move(queue);
    co_await nothing_works(queue); // NOLINT: that it is empty is what is tested
    CHECK(moved.is_open());
    CHECK(moved.close());
    CHECK(error_of(moved.close()) == EBADF);
    co_await nothing_works(moved);
    const posix_mqueue never;
    co_await nothing_works(never);
}

} // namespace

TEST_CASE("the highest priority first, the oldest first among equals, and each is received once") {
    const auto queue = make_queue();
    run_on_new(order_of_messages(queue));
}

TEST_CASE("messages of every length arrive exactly, the empty one too") {
    const auto queue = make_queue();
    run_on_new(lengths(queue));
}

TEST_CASE("priorities outside 0 to 32767 are refused and nothing is queued") {
    const auto queue = make_queue();
    run_on_new(bad_priorities(queue));
}

TEST_CASE("a message too long and a buffer too small are refused before anything moves") {
    const auto queue = make_queue();
    run_on_new(wrong_sizes(queue));
}

TEST_CASE("a buffer too small does not wait in line to be refused") {
    const auto queue = make_queue();
    run_on_new(wrong_size_behind_a_waiter(queue));
}

TEST_CASE("a queue works in the direction it was opened for") {
    const auto queue = make_queue();
    run_on_new(wrong_directions(queue));
}

TEST_CASE("a null pointer is an error value") {
    const auto queue = make_queue();
    run_on_new(null_pointers(queue));
}

TEST_CASE("closed and moved-from queues answer with an error") {
    const auto queue = make_queue();
    run_on_new(closed_and_moved_from(reopen(queue)));
}

TEST_CASE("names: no slash, two slashes, nothing behind it, a zero in it, too long") {
    const std::string longest = "/" + std::string(255, 'n');
    posix_mqueue_options options = small(1);
    for (const std::string_view name :
         {std::string_view(""), std::string_view("jobs"), std::string_view("/"), std::string_view("/a/b"),
          std::string_view("//"), std::string_view("/a\0b", 4)}) {
        CAPTURE(std::string(name));
        CHECK(error_of(posix_mqueue::open(name, options)) == EINVAL);
        CHECK(error_of(owned_posix_mqueue::open(name, options)) == EINVAL);
        CHECK(error_of(posix_mqueue::unlink(name)) == EINVAL);
    }
    CHECK(error_of(posix_mqueue::open(longest + "n", options)) == ENAMETOOLONG);
    CHECK(error_of(posix_mqueue::unlink(longest + "n")) == ENAMETOOLONG);
    options.how = mqueue_open::replace; // the longest name cannot be one of its own
    {
        const auto queue = owned_posix_mqueue::open(longest, options);
        CHECK(error_of(queue) == 0);
    }
    CHECK(error_of(posix_mqueue::unlink(longest)) == ENOENT);
}

TEST_CASE("the ways to open: existing, create, create_or_open, replace") {
    const std::string name = fresh_name();
    posix_mqueue_options options = small(2);
    options.how = mqueue_open::existing;
    CHECK(error_of(posix_mqueue::open(name, options)) == ENOENT);
    CHECK(error_of(posix_mqueue::unlink(name)) == ENOENT);

    options.how = mqueue_open::create;
    const auto first = posix_mqueue::open(name, options);
    REQUIRE(first);
    CHECK(error_of(posix_mqueue::open(name, options)) == EEXIST);
    REQUIRE(first->try_send("kept"));

    options.how = mqueue_open::create_or_open;
    options.capacity = 5; // says nothing about a queue that is there
    const auto second = posix_mqueue::open(name, options);
    REQUIRE(second);
    auto seen = second->attributes();
    REQUIRE(seen);
    CHECK(seen->capacity == 2);
    CHECK(seen->messages == 1);

    options.how = mqueue_open::replace;
    const auto third = posix_mqueue::open(name, options);
    REQUIRE(third);
    seen = third->attributes();
    REQUIRE(seen);
    CHECK(seen->capacity == 5);
    CHECK(seen->messages == 0);
    buffer room;
    CHECK(shown(first->try_receive(room)) == "0:kept"); // who has the old one open keeps it
    CHECK(posix_mqueue::unlink(name));
    CHECK(error_of(posix_mqueue::unlink(name)) == ENOENT);
    CHECK(third->try_send("still there"));
}

TEST_CASE("limits: each on its own, and what is not given is the system's default") {
    const auto with = [](std::size_t capacity, std::size_t bytes) {
        posix_mqueue_options options = small();
        options.capacity = capacity;
        options.message_bytes = bytes;
        return error_of(owned_posix_mqueue::open(fresh_name(), options));
    };
    CHECK(with(1, 1) == 0);
    CHECK(with(std::size_t{1} << 33, 1) == EINVAL);
    CHECK(with(1, std::size_t{1} << 33) == EINVAL);
    CHECK(with(std::size_t{1} << 33, std::size_t{1} << 33) == EINVAL);
    CHECK(with(SIZE_MAX, 16) == EINVAL);
    CHECK(with(16, SIZE_MAX) == EINVAL);

    posix_mqueue_options options = small();
    options.capacity = 0;
    options.message_bytes = 16;
    const auto queue = owned_posix_mqueue::open(fresh_name(), options);
    REQUIRE(queue);
    CHECK(queue->attributes()->message_bytes == 16);
    CHECK(queue->attributes()->capacity >= 1);
}

TEST_CASE("the owner takes the name away at its end, a plain opener does not") {
    const std::string name = fresh_name();
    {
        const auto owner = owned_posix_mqueue::open(name, small());
        REQUIRE(owner);
        CHECK(owner->name() == name);
        {
            const posix_mqueue opener = reopen(*owner);
            CHECK(opener.is_open());
        }
        CHECK(posix_mqueue::open(name)); // still there
    }
    CHECK(error_of(posix_mqueue::open(name)) == ENOENT);

    {
        const auto maker = posix_mqueue::open(name, small());
        REQUIRE(maker);
    }
    CHECK(posix_mqueue::open(name)); // it outlives who made it
    CHECK(posix_mqueue::unlink(name));
}

TEST_CASE("the owner can be moved, unlinked early and released") {
    const std::string name = fresh_name();
    {
        auto owner = owned_posix_mqueue::open(name, small());
        REQUIRE(owner);
        owned_posix_mqueue moved = std::move(*owner);
        CHECK(posix_mqueue::open(name));
        owned_posix_mqueue assigned;
        assigned = std::move(moved);
        CHECK(posix_mqueue::open(name));
        CHECK(assigned.unlink());
        CHECK(error_of(posix_mqueue::open(name)) == ENOENT);
        CHECK(error_of(assigned.unlink()) == ENOENT);
        CHECK(assigned.try_send("the queue itself is still there"));

        auto other = owned_posix_mqueue::open(name, small());
        REQUIRE(other);
        assigned = std::move(*other);
        assigned.release();
    }
    CHECK(posix_mqueue::open(name));
    CHECK(posix_mqueue::unlink(name));
}

TEST_CASE("the owner leaves a queue alone that has taken its name") {
    const std::string name = fresh_name();
    auto first = owned_posix_mqueue::open(name, small());
    REQUIRE(first);
    posix_mqueue_options again = small();
    again.how = mqueue_open::replace;
    auto second = owned_posix_mqueue::open(name, again);
    REQUIRE(second);
    CHECK(error_of(first->unlink()) == ENOENT);
    CHECK(posix_mqueue::open(name));
    first = result<owned_posix_mqueue>();
    CHECK(posix_mqueue::open(name));
}

TEST_CASE("adopt takes a descriptor over, borrow does not, and both want a queue") {
    const auto queue = make_queue();
    CHECK(error_of(posix_mqueue::adopt(-1)) == EBADF);
    CHECK(error_of(posix_mqueue::borrow(1'000'000)) == EBADF);
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    CHECK(error_of(posix_mqueue::borrow(ends[0])) == EBADF);
    CHECK(error_of(posix_mqueue::adopt(ends[1])) == EBADF);
    CHECK(::fcntl(ends[1], F_GETFD) >= 0); // not taken: not closed
    ::close(ends[0]);
    ::close(ends[1]);

    const mqd_t number = ::mq_open(queue.name().c_str(), O_RDWR);
    REQUIRE(number >= 0);
    {
        const auto borrowed = posix_mqueue::borrow(number);
        REQUIRE(borrowed);
        CHECK(borrowed->try_send("x", 4));
        CHECK(borrowed->native_handle() == number);
    }
    CHECK(::fcntl(number, F_GETFD) >= 0);
    {
        const auto adopted = posix_mqueue::adopt(number);
        REQUIRE(adopted);
        buffer room;
        CHECK(shown(adopted->try_receive(room)) == "4:x");
    }
    CHECK(::fcntl(number, F_GETFD) == -1);
}

TEST_CASE("try forms do not wait") {
    const auto queue = make_queue(2);
    buffer room;
    CHECK(error_of(queue.try_receive(room)) == EAGAIN);
    CHECK(queue.try_send("a", 1));
    CHECK(queue.try_send("b", 2));
    CHECK(error_of(queue.try_send("c", 3)) == EAGAIN);
    CHECK(shown(queue.try_receive(room)) == "2:b");
    CHECK(shown(queue.try_receive(room)) == "1:a");
    CHECK(error_of(queue.try_receive(room)) == EAGAIN);
}

TEST_CASE("descriptors of queues are close-on-exec") {
    const auto queue = make_queue();
    CHECK((::fcntl(queue.native_handle(), F_GETFD) & FD_CLOEXEC) != 0);
}

} // namespace queues
