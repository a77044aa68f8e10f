// One number, several handles: one block per runtime.
#include "pipes_support.hpp"

namespace pipes {
namespace {

task<> two_readers(const nowait::pipe_reader& a, const nowait::pipe_reader& b, int write_fd) {
    std::array<char, 1> a_room{};
    std::array<char, 1> b_room{};
    outcome a_out;
    outcome b_out;
    (void)nowait::spawn(read_into(a, room_in(a_room), a_out));
    co_await settle(3);
    (void)nowait::spawn(read_into(b, room_in(b_room), b_out));
    co_await settle();
    CHECK(::write(write_fd, "12", 2) == 2);
    while (!a_out.done || !b_out.done)
        co_await nowait::yield();
    CHECK(a_room[0] == '1'); // they stood in one queue
    CHECK(b_room[0] == '2');
}

task<> asked_inside(int read_fd, int write_fd) {
    auto a = nowait::pipe_reader::borrow(read_fd).value();
    auto b = nowait::pipe_reader::borrow(read_fd).value();
    co_await two_readers(a, b, write_fd);
    auto c = nowait::pipe_reader::borrow(read_fd).value();
    CHECK(a.block() == c.block());
    co_await two_readers(b, c, write_fd);
}

} // namespace

TEST_CASE("readers that borrow one number queue up, asked for inside or before") {
    const auto before = open_descriptors();
    {
        auto p = make_raw_pipe();
        auto a = nowait::pipe_reader::borrow(p.read.get()).value();
        auto b = nowait::pipe_reader::borrow(p.read.get()).value();
        // On one runtime after the other: whichever is used first stands for both.
        REQUIRE(nowait::run(two_readers(a, b, p.write.get())));
        REQUIRE(nowait::run(two_readers(b, a, p.write.get())));
        REQUIRE(nowait::run(asked_inside(p.read.get(), p.write.get())));
        REQUIRE(nowait::run(two_readers(b, a, p.write.get())));
        CHECK(a.is_open());
        CHECK(b.is_open());
        CHECK(b.close().has_value());
        CHECK_FALSE(b.is_open()); // the same object underneath
        CHECK_FALSE(a.is_open());
        CHECK(status_flags(p.read.get()) == O_RDONLY); // and the number is not ours to close
    }
    CHECK(open_descriptors() == before);
}

namespace {

task<> wrong_direction_of_a_known_number(int read_fd, int write_fd) {
    auto reader = nowait::pipe_reader::borrow(read_fd).value();
    auto writer = nowait::pipe_writer::borrow(write_fd).value();
    std::array<char, 8> room{};
    (void)co_await writer.write("x");
    (void)co_await reader.read(room_in(room));
    CHECK(error_of(nowait::pipe_writer::borrow(read_fd)) == EBADF);
    CHECK(error_of(nowait::pipe_reader::borrow(write_fd)) == EBADF);
    CHECK(error_of(nowait::pipe_writer::adopt(read_fd)) == EBADF);
}

} // namespace

TEST_CASE("a number borrowed for one direction is not lent for the other") {
    auto p = make_raw_pipe();
    REQUIRE(nowait::run(wrong_direction_of_a_known_number(p.read.get(), p.write.get())));
}

namespace {

task<> borrowed_from_ourselves() {
    auto p = make_pipe();
    std::array<char, 1> own_room{};
    std::array<char, 1> room{};
    outcome own;
    outcome other;
    (void)nowait::spawn(read_into(p.reader, room_in(own_room), own));
    co_await settle(3);
    auto again = nowait::pipe_reader::borrow(p.reader.native_handle()).value();
    (void)nowait::spawn(read_into(again, room_in(room), other));
    co_await settle();
    (void)co_await p.writer.write("12");
    while (!own.done || !other.done)
        co_await nowait::yield();
    CHECK(own_room[0] == '1');
    CHECK(room[0] == '2');
}

task<> closed_and_borrowed_again(int read_fd, int write_fd) {
    for (int i = 0; i < 50; ++i) {
        auto reader = nowait::pipe_reader::borrow(read_fd).value();
        std::array<char, 8> room{};
        outcome out;
        (void)nowait::spawn(read_into(reader, room_in(room), out));
        co_await settle(i);
        if (i % 2 == 0)
            (void)reader.close();
        else
            reader = {};
        auto next = nowait::pipe_reader::borrow(read_fd).value();
        CHECK(::write(write_fd, "y", 1) == 1);
        auto n = co_await next.read(room_in(room));
        CHECK(n.value_or(0) == 1);
        co_await settle(2);
        CHECK(out.done);
    }
}

} // namespace

TEST_CASE("a borrower of an end that is ours queues up with it") {
    REQUIRE(nowait::run(borrowed_from_ourselves()));
}
TEST_CASE("a borrowed number may be closed under a wait and borrowed again at once") {
    auto p = make_raw_pipe();
    REQUIRE(nowait::run(closed_and_borrowed_again(p.read.get(), p.write.get())));
    CHECK(status_flags(p.read.get()) == O_RDONLY);
}

} // namespace pipes
