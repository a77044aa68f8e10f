// Buffer sequences of many parts, against what Asio's own pipes do with them.
#include "asio_support.hpp"
#include "catch.hpp"

#if NOWAIT_ASIO_BOOST
#include <boost/asio/readable_pipe.hpp>
#include <boost/asio/writable_pipe.hpp>
#else
#include <asio/readable_pipe.hpp>
#include <asio/writable_pipe.hpp>
#endif

#include <algorithm>
#include <vector>

namespace {

constexpr std::size_t parts = 100;
constexpr std::size_t part_size = 3;

/// `parts` pieces of a text, with holes of no size between them.
template <class Buffer, class Text>
std::vector<Buffer> cut(Text& text) {
    std::vector<Buffer> pieces;
    for (std::size_t i = 0; i < parts; ++i) {
        pieces.push_back(net::buffer(text.data() + i * part_size, part_size));
        if (i % 7 == 0)
            pieces.emplace_back();
    }
    return pieces;
}

std::string numbered() {
    std::string text(parts * part_size, ' ');
    for (std::size_t i = 0; i < text.size(); ++i)
        text[i] = static_cast<char>('!' + i % 90);
    return text;
}

} // namespace

TEMPLATE_TEST_CASE("sequences of a hundred buffers are moved in part, and rightly", "", tests::kernel_pipe,
                   tests::memory_pipe) {
    tests::own_world world;
    TestType pipe(world.executor());
    const std::string text = numbered();
    const auto pieces = cut<net::const_buffer>(text);
    std::size_t put = 0;
    pipe.out.async_write_some(pieces, [&](error_code error, std::size_t n) {
        CHECK(!error);
        put = n;
    });
    world.run();
    // Asio's own pipe, with the same pieces. (It counts parts of no size, too.)
    net::io_context context;
    net::readable_pipe in(context);
    net::writable_pipe out(context);
    net::connect_pipe(in, out);
    const std::size_t asio_put = out.write_some(pieces);
    CHECK(put >= asio_put);
    CHECK(put == 64 * part_size);

    std::string got(text.size(), '\0');
    const auto room = cut<net::mutable_buffer>(got);
    std::size_t read = 0;
    pipe.in.async_read_some(room, [&](error_code error, std::size_t n) {
        CHECK(!error);
        read = n;
    });
    world.run();
    CHECK(read == put);
    CHECK(got.substr(0, read) == text.substr(0, read));
    CHECK(got.find_first_not_of('\0', read) == std::string::npos);
}

TEMPLATE_TEST_CASE("a read that waits with many buffers fills them in order", "", tests::kernel_pipe,
                   tests::memory_pipe) {
    tests::own_world world;
    TestType pipe(world.executor());
    std::string got(parts * part_size, '\0');
    const auto room = cut<net::mutable_buffer>(got);
    std::size_t read = 0;
    pipe.in.async_read_some(room, [&](error_code, std::size_t n) { read = n; });
    net::post(world.executor(), [&] {
        pipe.out.async_write_some(net::buffer("fourteen bytes", 14), [](error_code, std::size_t) {});
    });
    world.run();
    CHECK(read == 14);
    CHECK(got.substr(0, 14) == "fourteen bytes");
}

TEMPLATE_TEST_CASE("Asio's algorithms move all of a long sequence through a small pipe", "",
                   tests::kernel_pipe, tests::memory_pipe) {
    tests::host_world world;
    TestType pipe(world.executor());
    std::string text(parts * 5000, ' ');
    for (std::size_t i = 0; i < text.size(); ++i)
        text[i] = static_cast<char>('!' + i % 89);
    std::string got(text.size(), '\0');
    std::vector<net::const_buffer> pieces;
    std::vector<net::mutable_buffer> room;
    for (std::size_t i = 0; i < parts; ++i) {
        pieces.push_back(net::buffer(text.data() + i * 5000, 5000));
        room.push_back(net::buffer(got.data() + i * 5000, 5000));
    }
    std::size_t written = 0;
    std::size_t read = 0;
    net::async_write(pipe.out, pieces, [&](error_code error, std::size_t n) {
        CHECK(!error);
        written = n;
    });
    net::async_read(pipe.in, room, [&](error_code error, std::size_t n) {
        CHECK(!error);
        read = n;
    });
    world.run();
    CHECK(written == text.size());
    CHECK(read == text.size());
    CHECK(got == text);
}

TEST_CASE("a part that is null is an error, and nothing has moved") {
    tests::own_world world;
    tests::kernel_pipe pipe(world.executor());
    const std::array<net::const_buffer, 2> bad{net::const_buffer(nullptr, 4), net::buffer("rest", 4)};
    error_code outcome;
    std::size_t moved = 1;
    pipe.out.async_write_some(bad, [&](error_code error, std::size_t n) {
        outcome = error;
        moved = n;
    });
    world.run();
    CHECK(outcome == net::error::fault);
    CHECK(moved == 0);
    // Nothing but empty parts: nothing asked for, nothing done.
    const std::vector<net::const_buffer> empty(100);
    pipe.out.async_write_some(empty, [&](error_code error, std::size_t n) {
        outcome = error;
        moved = n;
    });
    world.run();
    CHECK(!outcome);
    CHECK(moved == 0);
}
