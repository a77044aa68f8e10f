// A shared channel through the interleavings of its users.
#include "channels/pipe_channel_core.hpp"
#include "interleaved_operations.hpp"
#include "pipe_channel_support.hpp"

#include <memory>
#include <optional>
#include <utility>

namespace nowait_test::channels {
namespace {

using channel = nowait::basic_pipe_channel<stepping_sync>;

channel make_channel(std::size_t capacity = default_capacity) {
    auto made = channel::create({.capacity = capacity});
    if (!made)
        throw std::system_error(made.error(), "channel");
    return std::move(*made);
}

struct channel_pair {
    channel from = make_channel();
    channel to = make_channel();
};

/// A splice takes its locks in the order of their addresses. Here that is always the same one, or a schedule would mean
/// something else in each run.
channel_pair make_channels() {
    channel_pair made;
    if (made.to.reader.readable().end->channel < made.from.reader.readable().end->channel)
        std::swap(made.from, made.to);
    return made;
}

using read_call = lone_operation<decltype(std::declval<channel>().reader.read(std::span<std::byte>()))>;
using write_call = lone_operation<decltype(std::declval<channel>().writer.write(std::string_view()))>;
using splice_call = lone_operation<decltype(nowait::splice(std::declval<channel>().reader,
                                                           std::declval<channel>().writer, 1))>;

constexpr std::size_t runs_max = 1000; // of those that are too many to walk them all

void check(explorer::findings found) {
    CHECK(found.deadlocks == 0);
    CHECK(found.strays == 0);
    CHECK(found.runs > 1);
}

} // namespace

TEST_CASE("every interleaving of a read that may be stopped, and a write", "[pipe_channel][interleavings]") {
    for (const bool stop : {false, true}) {
        explorer walk;
        const auto found = walk.explore([stop] {
            struct world {
                channel c = make_channel();
                std::string buffer = "????";
                read_call read{c.reader.read(room(buffer))};
            };
            auto w = std::make_shared<world>();
            return explorer::scenario{
                {[w, stop] { w->read.run(stop); }, inside([w] { (void)w->c.writer.try_write("data"); })},
                [w, stop] {
                    REQUIRE_FALSE(w->read.lost);
                    const bool got = w->read.result->has_value();
                    REQUIRE((got || stop));
                    REQUIRE(w->buffer == (got ? "data" : "????"));
                    REQUIRE(w->c.reader.available() == (got ? 0u : 4u));
                }};
        });
        CHECK(found.complete);
        CHECK(found.deadlocks == 0);
        CHECK(found.strays == 0);
    }
}

TEST_CASE("every interleaving of a read and the death of both ends", "[pipe_channel][interleavings]") {
    explorer walk;
    const auto found = walk.explore([] {
        struct world {
            std::optional<channel> c = make_channel();
            nowait::basic_pipe_channel_reader<stepping_sync> other = *c->reader.duplicate();
            std::string buffer = "????";
            read_call read{other.read(room(buffer))};
        };
        auto w = std::make_shared<world>();
        return explorer::scenario{{[w] { w->read.run(false); }, inside([w] { w->c.reset(); })}, [w] {
                                      REQUIRE_FALSE(w->read.lost);
                                      REQUIRE((w->read.result->has_value() && **w->read.result == 0));
                                  }};
    });
    CHECK(found.complete);
    CHECK(found.deadlocks == 0);
}

TEST_CASE("every interleaving of a splice that may be stopped, and a write",
          "[pipe_channel][interleavings]") {
    for (const bool stop : {false, true}) {
        explorer walk;
        const auto found = walk.explore([stop] {
            struct world : channel_pair {
                world() : channel_pair(make_channels()) {}
                splice_call splice{nowait::splice(from.reader, to.writer, 4)};
            };
            auto w = std::make_shared<world>();
            return explorer::scenario{
                {[w, stop] { w->splice.run(stop); }, inside([w] { (void)w->from.writer.try_write("data"); })},
                [w, stop] {
                    REQUIRE_FALSE(w->splice.lost);
                    const bool moved = w->splice.result->has_value();
                    REQUIRE((moved || stop));
                    REQUIRE(w->to.reader.available() == (moved ? 4u : 0u));
                    REQUIRE(w->from.reader.available() == (moved ? 0u : 4u));
                }};
        });
        CHECK(found.complete);
        CHECK(found.deadlocks == 0);
        CHECK(found.strays == 0);
    }
}

TEST_CASE("interleavings: two reads, one write for each", "[pipe_channel][interleavings]") {
    explorer walk;
    check(walk.explore(
        [] {
            struct world {
                channel c = make_channel();
                std::string one = "????", two = "????";
                read_call first{c.reader.read(room(one))}, second{c.reader.read(room(two))};
                bool wrote = true;
            };
            auto w = std::make_shared<world>();
            return explorer::scenario{
                {[w] { w->first.run(false); }, [w] { w->second.run(false); }, inside([w] {
                     w->wrote = w->c.writer.try_write("aaaa").has_value();
                     w->wrote = w->c.writer.try_write("bbbb").has_value() && w->wrote;
                 })},
                [w] {
                    REQUIRE((w->wrote && !w->first.lost && !w->second.lost));
                    const bool either =
                        (w->one == "aaaa" && w->two == "bbbb") || (w->one == "bbbb" && w->two == "aaaa");
                    REQUIRE(either);
                    REQUIRE(w->c.reader.available() == 0u);
                }};
        },
        runs_max));
}

TEST_CASE("interleavings: a read that is stopped delivers or has taken nothing, and passes on",
          "[pipe_channel][interleavings]") {
    explorer walk;
    std::size_t delivered = 0, stopped = 0;
    check(walk.explore(
        [&] {
            struct world {
                channel c = make_channel();
                std::string one = "????", two = "????";
                read_call first{c.reader.read(room(one))}, second{c.reader.read(room(two))};
            };
            auto w = std::make_shared<world>();
            return explorer::scenario{{[w] { w->second.run(false); }, inside([w] {
                                           (void)w->c.writer.try_write("aaaa");
                                           (void)w->c.writer.try_write("bbbb");
                                       }),
                                       [w] { w->first.run(true); }},
                                      [w, &delivered, &stopped] {
                                          REQUIRE((!w->first.lost && !w->second.lost));
                                          REQUIRE((w->second.result->has_value() && **w->second.result == 4));
                                          const bool got = w->first.result->has_value();
                                          ++(got ? delivered : stopped);
                                          REQUIRE(w->c.reader.available() == (got ? 0u : 4u));
                                          if (!got)
                                              REQUIRE(w->one == "????");
                                      }};
        },
        runs_max));
    CHECK(delivered != 0);
    CHECK(stopped != 0);
}

TEST_CASE("interleavings: a write that waits, a read, a resize and a stop", "[pipe_channel][interleavings]") {
    explorer walk;
    check(walk.explore(
        [] {
            struct world {
                channel c = make_channel(page);
                std::string buffer = std::string(page, '?');
                std::optional<write_call> first, second;
                bool read = false;
            };
            auto w = std::make_shared<world>();
            (void)w->c.writer.try_write(std::string_view(w->buffer));
            w->first.emplace(w->c.writer.write("first"));
            w->second.emplace(w->c.writer.write("second"));
            return explorer::scenario{
                {[w] { w->first->run(true); }, [w] { w->second->run(false); },
                 inside([w] { w->read = w->c.reader.try_read(room(w->buffer)).has_value(); }),
                 inside([w] { (void)w->c.reader.set_capacity(2 * page); })},
                [w] {
                    REQUIRE((w->read && !w->first->lost && !w->second->lost));
                    REQUIRE(w->second->result->has_value());
                    const bool wrote = w->first->result->has_value();
                    REQUIRE(w->c.reader.available() == (wrote ? 11u : 6u));
                }};
        },
        runs_max));
}

TEST_CASE("interleavings: ends that close and die under a read", "[pipe_channel][interleavings]") {
    explorer walk;
    check(walk.explore(
        [] {
            struct world {
                channel c = make_channel();
                nowait::basic_pipe_channel_reader<stepping_sync> other = *c.reader.duplicate();
                std::string one = "????", two = "????";
                std::optional<read_call> first, second;
            };
            auto w = std::make_shared<world>();
            w->first.emplace(w->c.reader.read(room(w->one)));
            w->second.emplace(w->other.read(room(w->two)));
            return explorer::scenario{
                {[w] { w->first->run(false); }, [w] { w->second->run(false); },
                 inside([w] { (void)w->c.reader.close(); }), inside([w] { w->c.writer = {}; })},
                [w] {
                    REQUIRE((!w->first->lost && !w->second->lost));
                    const auto& closed = *w->first->result;
                    const bool ended = closed ? *closed == 0
                                              : closed.error() == std::errc::operation_canceled ||
                                                    closed.error() == std::errc::bad_file_descriptor;
                    REQUIRE(ended);
                    REQUIRE((w->second->result->has_value() && **w->second->result == 0));
                }};
        },
        runs_max));
}

TEST_CASE("interleavings: a splice that is stopped, with a reader behind it",
          "[pipe_channel][interleavings]") {
    explorer walk;
    for (const bool stop : {false, true})
        check(walk.explore(
            [stop] {
                struct world : channel_pair {
                    world() : channel_pair(make_channels()) {}
                    std::string buffer = "????";
                    std::optional<splice_call> splice;
                    std::optional<read_call> reader;
                };
                auto w = std::make_shared<world>();
                w->splice.emplace(nowait::splice(w->from.reader, w->to.writer, 4));
                w->reader.emplace(w->from.reader.read(room(w->buffer)));
                return explorer::scenario{
                    {[w, stop] { w->splice->run(stop); }, [w] { w->reader->run(false); }, inside([w] {
                         (void)w->from.writer.try_write("aaaa");
                         (void)w->from.writer.try_write("bbbb");
                     })},
                    [w, stop] {
                        REQUIRE((!w->splice->lost && !w->reader->lost));
                        const bool moved = w->splice->result->has_value();
                        REQUIRE((moved || stop));
                        REQUIRE((w->reader->result->has_value() && **w->reader->result == 4));
                        REQUIRE(w->to.reader.available() == (moved ? 4u : 0u));
                        REQUIRE(w->from.reader.available() == (moved ? 0u : 4u));
                    }};
            },
            runs_max));
}

} // namespace nowait_test::channels
