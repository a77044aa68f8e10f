// Message channels through the interleavings of their users: each operation on a thread and a loop of its own.
#include "channel_support.hpp"
#include "interleaved_operations.hpp"

#include <nowait/broadcast.hpp>
#include <nowait/oneshot.hpp>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace nowait_test::channels {
namespace {

using channel_tests::code_of;
using channel_tests::number_of;
using channel_tests::parcel;
using channel_tests::wrap;

using queue = nowait::basic_mqueue_channel<parcel, stepping_sync, nowait::tree_index, nowait::strict_order>;
using fifo = nowait::basic_channel<parcel, stepping_sync>;
using news = nowait::basic_broadcast<std::string, stepping_sync>;
using news_reader = nowait::basic_broadcast_reader<std::string, stepping_sync>;

template <class C>
using receive_call = lone_operation<decltype(std::declval<const C&>().receive())>;
template <class C>
using send_call = lone_operation<decltype(std::declval<const C&>().send(std::declval<parcel&>()))>;

template <class C>
C make_channel(std::uint64_t capacity) {
    typename C::options wanted;
    wanted.capacity = capacity;
    auto made = C::create(wanted);
    if (!made)
        throw std::system_error(made.error(), "channel");
    return std::move(*made);
}

template <class C>
bool try_send(const C& to, int number) {
    parcel p = wrap(number);
    return to.try_send(p).has_value();
}

constexpr std::size_t runs_max = 1000; // of those that are too many to walk them all

void check_all(explorer::findings found) {
    CHECK(found.complete);
    CHECK(found.deadlocks == 0);
}
void check_many(explorer::findings found) {
    CHECK(found.deadlocks == 0);
    CHECK(found.runs > 1);
}

/// How often the two outcomes of a race were seen: a test in which one of them never happens shows nothing.
struct outcomes {
    int done = 0;
    int stopped = 0;
    void count(bool was_done) { ++(was_done ? done : stopped); }
    void check_both() const {
        CHECK(done != 0);
        CHECK(stopped != 0);
    }
};

} // namespace

TEMPLATE_TEST_CASE("channel: every interleaving of a receive that may be stopped, and a send",
                   "[interleavings]", queue, fifo) {
    for (const bool stop : {false, true}) {
        outcomes seen;
        explorer walk;
        check_all(walk.explore([&] {
            struct world {
                TestType c = make_channel<TestType>(1);
                receive_call<TestType> receive{c.receive()};
            };
            auto w = std::make_shared<world>();
            return explorer::scenario{
                {[w, stop] { w->receive.run(stop); }, inside([w] { (void)try_send(w->c, 7); })},
                [w, stop, &seen] {
                    REQUIRE_FALSE(w->receive.lost);
                    const bool got = w->receive.result->has_value();
                    seen.count(got);
                    REQUIRE(number_of(*w->receive.result) == (got ? 7 : -ECANCELED));
                    REQUIRE((got || stop));
                    REQUIRE(w->c.size() == (got ? 0u : 1u));
                    REQUIRE(w->c.waiting_receivers() == 0);
                    REQUIRE(w->c.sound());
                }};
        }));
        if (stop)
            seen.check_both(); // also those that were chosen first and stopped then: they deliver
    }
}

TEMPLATE_TEST_CASE("channel: every interleaving of a send that may be stopped, and a receive that makes room",
                   "[interleavings]", queue, fifo) {
    for (const bool stop : {false, true}) {
        outcomes seen;
        explorer walk;
        check_all(walk.explore([&] {
            struct world {
                TestType c = make_channel<TestType>(1);
                parcel second = wrap(2);
                send_call<TestType> send{c.send(second)};
                int first = 0;
            };
            auto w = std::make_shared<world>();
            REQUIRE(try_send(w->c, 1));
            return explorer::scenario{
                {[w, stop] { w->send.run(stop); }, inside([w] { w->first = number_of(w->c.try_receive()); })},
                [w, stop, &seen] {
                    REQUIRE_FALSE(w->send.lost);
                    const bool sent = w->send.result->has_value();
                    seen.count(sent);
                    REQUIRE((sent || stop));
                    REQUIRE(w->first == 1);
                    REQUIRE((w->second == nullptr) == sent);
                    REQUIRE(w->c.size() == (sent ? 1u : 0u));
                    REQUIRE(w->c.waiting_senders() == 0);
                    REQUIRE(w->c.sound());
                }};
        }));
        if (stop)
            seen.check_both();
    }
}

TEMPLATE_TEST_CASE("channel: every interleaving of a receive, and a close or an abort after the last send",
                   "[interleavings]", queue, fifo) {
    for (const bool abort : {false, true}) {
        explorer walk;
        outcomes seen;
        check_all(walk.explore([&] {
            struct world {
                TestType c = make_channel<TestType>(2);
                receive_call<TestType> receive{c.receive()};
                bool sent = false;
            };
            auto w = std::make_shared<world>();
            return explorer::scenario{{[w] { w->receive.run(); }, inside([w, abort] {
                                           w->sent = try_send(w->c, 7);
                                           abort ? w->c.abort() : w->c.close();
                                       })},
                                      [w, abort, &seen] {
                                          REQUIRE_FALSE(w->receive.lost);
                                          REQUIRE(w->sent);
                                          const bool got = w->receive.result->has_value();
                                          seen.count(got);
                                          REQUIRE(number_of(*w->receive.result) == (got ? 7 : -EPIPE));
                                          REQUIRE((got || abort)); // a close lets it drain
                                          REQUIRE(w->c.size() == 0);
                                          REQUIRE(w->c.sound());
                                      }};
        }));
        if (abort)
            seen.check_both();
    }
}

TEMPLATE_TEST_CASE("channel: every interleaving of a waiting send, and a close or an abort",
                   "[interleavings]", queue, fifo) {
    for (const bool abort : {false, true}) {
        explorer walk;
        check_all(walk.explore([&] {
            struct world {
                TestType c = make_channel<TestType>(1);
                parcel second = wrap(2);
                send_call<TestType> send{c.send(second)};
            };
            auto w = std::make_shared<world>();
            REQUIRE(try_send(w->c, 1));
            return explorer::scenario{
                {[w] { w->send.run(); }, inside([w, abort] { abort ? w->c.abort() : w->c.close(); })},
                [w, abort] {
                    REQUIRE_FALSE(w->send.lost);
                    REQUIRE(code_of(*w->send.result) == EPIPE);
                    REQUIRE(*w->second == 2);
                    REQUIRE(w->c.size() == (abort ? 0u : 1u));
                    REQUIRE(w->c.sound());
                }};
        }));
    }
}

TEST_CASE("channel: every interleaving of a close, an abort and a receive: the message dies once",
          "[interleavings]") {
    struct counted {
        explicit counted(int& in) : alive(&in) { ++*alive; }
        counted(counted&& other) noexcept : alive(other.alive) { ++*alive; }
        counted& operator=(counted&&) = delete;
        ~counted() { --*alive; }
        int* alive;
    };
    using counting =
        nowait::basic_mqueue_channel<counted, stepping_sync, nowait::tree_index, nowait::strict_order>;
    explorer walk;
    outcomes received;
    check_all(walk.explore([&] {
        struct world {
            int alive = 0;
            counting c = make_channel<counting>(4);
            bool got = false;
        };
        auto w = std::make_shared<world>();
        {
            counted one(w->alive);
            REQUIRE(w->c.try_send(one));
        }
        return explorer::scenario{{inside([w] { w->c.close(); }), inside([w] { w->c.abort(); }),
                                   inside([w] { w->got = w->c.try_receive().has_value(); })},
                                  [w, &received] {
                                      received.count(w->got);
                                      REQUIRE(w->alive == 0);
                                      REQUIRE(w->c.closed());
                                      REQUIRE(w->c.size() == 0);
                                      REQUIRE(w->c.sound());
                                  }};
    }));
    received.check_both();
}

TEMPLATE_TEST_CASE("channel: every interleaving of a receive and the end of the last handle",
                   "[interleavings]", queue, fifo) {
    explorer walk;
    check_all(walk.explore([] {
        struct world {
            std::optional<TestType> c = make_channel<TestType>(1);
            std::optional<receive_call<TestType>> receive;
        };
        auto w = std::make_shared<world>();
        w->receive.emplace(w->c->receive());
        return explorer::scenario{
            {[w] { w->receive->run(); }, inside([w] {
                 w->receive->until_it_waits(); // until then the handle keeps the channel
                 w->c.reset();
             })},
            [w] {
                REQUIRE_FALSE(w->receive->lost);
                REQUIRE(number_of(*w->receive->result) == -EPIPE);
            }};
    }));
}

TEMPLATE_TEST_CASE("channel: interleavings: two receivers are served in the order of their coming",
                   "[interleavings]", queue, fifo) {
    explorer walk;
    check_many(walk.explore(
        [] {
            struct world {
                TestType c = make_channel<TestType>(2);
                receive_call<TestType> first{c.receive()}, second{c.receive()};
                bool sent = false;
            };
            auto w = std::make_shared<world>();
            return explorer::scenario{{[w] { w->first.run(); },
                                       [w] {
                                           w->first.until_it_waits();
                                           w->second.run();
                                       },
                                       inside([w] {
                                           w->first.until_it_waits();
                                           w->sent = try_send(w->c, 1) && try_send(w->c, 2);
                                       })},
                                      [w] {
                                          REQUIRE((w->sent && !w->first.lost && !w->second.lost));
                                          REQUIRE(number_of(*w->first.result) == 1);
                                          REQUIRE(number_of(*w->second.result) == 2);
                                          REQUIRE(w->c.sound());
                                      }};
        },
        runs_max));
}

TEMPLATE_TEST_CASE("channel: interleavings: two senders are let in in the order of their coming",
                   "[interleavings]", queue, fifo) {
    explorer walk;
    check_many(walk.explore(
        [] {
            struct world {
                TestType c = make_channel<TestType>(1);
                parcel one = wrap(1), two = wrap(2);
                send_call<TestType> first{c.send(one)}, second{c.send(two)};
                int got[3] = {};
            };
            auto w = std::make_shared<world>();
            REQUIRE(try_send(w->c, 0));
            return explorer::scenario{
                {[w] { w->first.run(); },
                 [w] {
                     w->first.until_it_waits();
                     w->second.run();
                 },
                 inside([w] {
                     w->second.until_it_waits();
                     for (int& each : w->got)
                         each = number_of(w->c.try_receive());
                 })},
                [w] {
                    REQUIRE((!w->first.lost && !w->second.lost));
                    REQUIRE((w->first.result->has_value() && w->second.result->has_value()));
                    REQUIRE(w->got[0] == 0);
                    REQUIRE(w->got[1] == 1);
                    REQUIRE(w->got[2] == 2);
                    REQUIRE(w->c.sound());
                }};
        },
        runs_max));
}

TEST_CASE("mqueue_channel: interleavings: the more urgent of two waiting receivers is served first",
          "[interleavings]") {
    explorer walk;
    check_many(walk.explore(
        [] {
            struct world {
                queue c = make_channel<queue>(2);
                receive_call<queue> patient{c.receive()}, urgent{c.receive().with_urgency(5)};
                bool sent = false;
            };
            auto w = std::make_shared<world>();
            return explorer::scenario{{[w] { w->patient.run(); },
                                       [w] {
                                           w->patient.until_it_waits();
                                           w->urgent.run();
                                       },
                                       inside([w] {
                                           w->urgent.until_it_waits();
                                           w->sent = try_send(w->c, 1) && try_send(w->c, 2);
                                       })},
                                      [w] {
                                          REQUIRE((w->sent && !w->patient.lost && !w->urgent.lost));
                                          REQUIRE(number_of(*w->urgent.result) == 1);
                                          REQUIRE(number_of(*w->patient.result) == 2);
                                      }};
        },
        runs_max));
}

TEST_CASE("mqueue_channel: interleavings: the more urgent of two waiting senders is let in first",
          "[interleavings]") {
    explorer walk;
    check_many(walk.explore(
        [] {
            struct world {
                queue c = make_channel<queue>(1);
                parcel slow = wrap(1), fast = wrap(2);
                send_call<queue> patient{c.send(slow)}, urgent{c.send(fast).with_urgency(5)};
                int got[3] = {};
            };
            auto w = std::make_shared<world>();
            REQUIRE(try_send(w->c, 0));
            return explorer::scenario{{[w] { w->patient.run(); },
                                       [w] {
                                           w->patient.until_it_waits();
                                           w->urgent.run();
                                       },
                                       inside([w] {
                                           w->urgent.until_it_waits();
                                           for (int& each : w->got)
                                               each = number_of(w->c.try_receive());
                                       })},
                                      [w] {
                                          REQUIRE((!w->patient.lost && !w->urgent.lost));
                                          REQUIRE(w->got[0] == 0);
                                          REQUIRE(w->got[1] == 2);
                                          REQUIRE(w->got[2] == 1);
                                      }};
        },
        runs_max));
}

TEMPLATE_TEST_CASE("channel: interleavings: a receive that is stopped delivers or has taken nothing, and the "
                   "next one is served",
                   "[interleavings]", queue, fifo) {
    explorer walk;
    outcomes seen;
    check_many(walk.explore(
        [&] {
            struct world {
                TestType c = make_channel<TestType>(2);
                receive_call<TestType> first{c.receive()}, second{c.receive()};
                bool sent = false;
            };
            auto w = std::make_shared<world>();
            return explorer::scenario{{[w] { w->first.run(true); }, [w] { w->second.run(); },
                                       inside([w] { w->sent = try_send(w->c, 1) && try_send(w->c, 2); })},
                                      [w, &seen] {
                                          REQUIRE((w->sent && !w->first.lost && !w->second.lost));
                                          const bool got = w->first.result->has_value();
                                          seen.count(got);
                                          REQUIRE(w->second.result->has_value());
                                          const int sum = (got ? number_of(*w->first.result) : 0) +
                                                          number_of(*w->second.result);
                                          REQUIRE(sum == (got ? 3 : 1));
                                          REQUIRE(w->c.size() == (got ? 0u : 1u));
                                          REQUIRE(w->c.sound());
                                      }};
        },
        runs_max));
    seen.check_both();
}

TEMPLATE_TEST_CASE("channel: interleavings: a send that is stopped has delivered or keeps its message, and "
                   "the next one is let in",
                   "[interleavings]", queue, fifo) {
    explorer walk;
    outcomes seen;
    check_many(walk.explore(
        [&] {
            struct world {
                TestType c = make_channel<TestType>(1);
                parcel one = wrap(1), two = wrap(2);
                send_call<TestType> first{c.send(one)}, second{c.send(two)};
                int got[2] = {};
            };
            auto w = std::make_shared<world>();
            REQUIRE(try_send(w->c, 0));
            return explorer::scenario{{[w] { w->first.run(true); },
                                       [w] {
                                           w->first.until_it_waits();
                                           w->second.run();
                                       },
                                       inside([w] {
                                           w->second.until_it_waits();
                                           for (int& each : w->got)
                                               each = number_of(w->c.try_receive());
                                       })},
                                      [w, &seen] {
                                          REQUIRE((!w->first.lost && !w->second.lost));
                                          const bool sent = w->first.result->has_value();
                                          seen.count(sent);
                                          REQUIRE((w->one == nullptr) == sent);
                                          REQUIRE(w->second.result->has_value());
                                          REQUIRE(w->got[0] == 0);
                                          REQUIRE(w->got[1] == (sent ? 1 : 2));
                                          REQUIRE(w->c.size() == (sent ? 1u : 0u));
                                          REQUIRE(w->c.sound());
                                      }};
        },
        runs_max));
    seen.check_both();
}

TEST_CASE("rendezvous: interleavings of a send and a receive, each of which may be stopped",
          "[interleavings]") {
    for (const bool stop_send : {false, true}) {
        for (const bool stop_receive : {false, true}) {
            explorer walk;
            check_many(walk.explore(
                [=] {
                    struct world {
                        fifo c = make_channel<fifo>(0);
                        parcel value = wrap(7);
                        send_call<fifo> send{c.send(value)};
                        receive_call<fifo> receive{c.receive()};
                    };
                    auto w = std::make_shared<world>();
                    // One that is stopped and found nobody leaves the other waiting: closing ends it.
                    const auto run = [w](auto& call, bool stop) {
                        call.run(stop);
                        if (stop && !call.result->has_value()) {
                            stepping_sync::inside = true;
                            w->c.close();
                            stepping_sync::inside = false;
                        }
                    };
                    return explorer::scenario{
                        {[=] { run(w->send, stop_send); }, [=] { run(w->receive, stop_receive); }}, [=] {
                            REQUIRE((!w->send.lost && !w->receive.lost));
                            const bool sent = w->send.result->has_value();
                            REQUIRE(sent == w->receive.result->has_value());
                            REQUIRE((w->value == nullptr) == sent);
                            REQUIRE((sent || stop_send || stop_receive));
                            if (sent)
                                REQUIRE(number_of(*w->receive.result) == 7);
                            REQUIRE(w->c.sound());
                        }};
                },
                runs_max));
        }
    }
}

TEST_CASE("mqueue_channel: every interleaving of a wait for notice that may be stopped, and a send",
          "[interleavings]") {
    using notice_call = lone_operation<decltype(std::declval<const queue&>().notified())>;
    for (const bool stop : {false, true}) {
        outcomes seen;
        explorer walk;
        check_all(walk.explore([&] {
            struct world {
                queue c = make_channel<queue>(2);
                notice_call notice{c.notified()};
            };
            auto w = std::make_shared<world>();
            return explorer::scenario{{[w, stop] { w->notice.run(stop); }, inside([w] {
                                           w->notice.until_it_waits();
                                           (void)try_send(w->c, 1);
                                       })},
                                      [w, &seen] {
                                          REQUIRE_FALSE(w->notice.lost);
                                          seen.count(w->notice.result->has_value());
                                          REQUIRE(w->c.size() == 1);
                                          REQUIRE(w->c.sound());
                                      }};
        }));
        if (stop)
            seen.check_both();
        else
            CHECK(seen.stopped == 0);
    }
}

TEMPLATE_TEST_CASE("channel: every interleaving of a receive, and a close and the end of a reservation",
                   "[interleavings]", queue, fifo) {
    for (const bool used : {false, true}) {
        explorer walk;
        check_all(walk.explore([&] {
            struct world {
                TestType c = make_channel<TestType>(1);
                std::optional<typename TestType::reservation> place;
                receive_call<TestType> receive{c.receive()};
            };
            auto w = std::make_shared<world>();
            auto reserved = w->c.try_reserve();
            REQUIRE(reserved);
            w->place.emplace(std::move(*reserved));
            return explorer::scenario{{[w] { w->receive.run(); }, inside([w, used] {
                                           w->c.close();
                                           if (used)
                                               (void)w->place->send(wrap(7));
                                           w->place.reset();
                                       })},
                                      [w, used] {
                                          REQUIRE_FALSE(w->receive.lost);
                                          REQUIRE(number_of(*w->receive.result) == (used ? 7 : -EPIPE));
                                          REQUIRE(w->c.sound());
                                      }};
        }));
    }
}

TEMPLATE_TEST_CASE(
    "channel: every interleaving of a reserve that may be stopped, and a place that is given back",
    "[interleavings]", queue, fifo) {
    using reserve_call = lone_operation<decltype(std::declval<const TestType&>().reserve())>;
    for (const bool stop : {false, true}) {
        outcomes seen;
        explorer walk;
        check_all(walk.explore([&] {
            struct world {
                TestType c = make_channel<TestType>(1);
                std::optional<typename TestType::reservation> place;
                reserve_call reserve{c.reserve()};
            };
            auto w = std::make_shared<world>();
            auto reserved = w->c.try_reserve();
            REQUIRE(reserved);
            w->place.emplace(std::move(*reserved));
            return explorer::scenario{
                {[w, stop] { w->reserve.run(stop); }, inside([w] { w->place.reset(); })}, [w, stop, &seen] {
                    REQUIRE_FALSE(w->reserve.lost);
                    const bool got = w->reserve.result->has_value();
                    seen.count(got);
                    REQUIRE((got || stop));
                    REQUIRE(w->c.reserved() == (got ? 1u : 0u));
                    REQUIRE(w->c.waiting_senders() == 0);
                    REQUIRE(w->c.sound());
                }};
        }));
        if (stop)
            seen.check_both();
    }
}

TEST_CASE("oneshot: every interleaving of a receive that may be stopped, and the value", "[interleavings]") {
    for (const bool stop : {false, true}) {
        outcomes seen;
        explorer walk;
        check_all(walk.explore([&] {
            auto made = nowait::detail::make_oneshot_over<parcel, stepping_sync>();
            if (!made)
                throw std::system_error(made.error(), "oneshot");
            struct world {
                nowait::basic_oneshot_sender<parcel, stepping_sync> sender;
                nowait::basic_oneshot_receiver<parcel, stepping_sync> receiver;
                lone_operation<decltype(receiver.receive())> receive{receiver.receive()};
                bool sent = false;
            };
            auto w = std::make_shared<world>(std::move(made->first), std::move(made->second));
            return explorer::scenario{{[w, stop] { w->receive.run(stop); },
                                       inside([w] { w->sent = w->sender.send(wrap(7)).has_value(); })},
                                      [w, stop, &seen] {
                                          REQUIRE((w->sent && !w->receive.lost));
                                          const bool got = w->receive.result->has_value();
                                          seen.count(got);
                                          REQUIRE((got || stop));
                                          REQUIRE(number_of(*w->receive.result) == (got ? 7 : -ECANCELED));
                                          REQUIRE(number_of(w->receiver.try_receive()) ==
                                                  (got ? -EPIPE : 7)); // still to be had
                                      }};
        }));
        if (stop)
            seen.check_both();
    }
}

TEST_CASE("oneshot: every interleaving of a receive and a sender that goes without giving",
          "[interleavings]") {
    explorer walk;
    check_all(walk.explore([] {
        auto made = nowait::detail::make_oneshot_over<parcel, stepping_sync>();
        if (!made)
            throw std::system_error(made.error(), "oneshot");
        struct world {
            std::optional<nowait::basic_oneshot_sender<parcel, stepping_sync>> sender;
            nowait::basic_oneshot_receiver<parcel, stepping_sync> receiver;
            lone_operation<decltype(receiver.receive())> receive{receiver.receive()};
        };
        auto w = std::make_shared<world>(std::move(made->first), std::move(made->second));
        return explorer::scenario{{[w] { w->receive.run(); }, inside([w] { w->sender.reset(); })}, [w] {
                                      REQUIRE_FALSE(w->receive.lost);
                                      REQUIRE(number_of(*w->receive.result) == -EPIPE);
                                  }};
    }));
}

TEST_CASE("broadcast: interleavings of two readers, one of them stopped, a message and a close",
          "[interleavings]") {
    using read_call = lone_operation<decltype(std::declval<news_reader&>().receive())>;
    outcomes seen;
    explorer walk;
    check_many(walk.explore(
        [&] {
            struct world {
                news all;
                news_reader a, b;
                read_call first{a.receive()}, second{b.receive()};
                bool sent = false;
            };
            auto all = news::create(2);
            if (!all)
                throw std::system_error(all.error(), "broadcast");
            auto w = std::make_shared<world>(*all, *all->subscribe(), *all->subscribe());
            return explorer::scenario{{[w] { w->first.run(true); }, [w] { w->second.run(); }, inside([w] {
                                           w->sent = w->all.send("news").has_value();
                                           w->all.close();
                                       })},
                                      [w, &seen] {
                                          REQUIRE((w->sent && !w->first.lost && !w->second.lost));
                                          REQUIRE(w->second.result->has_value());
                                          REQUIRE((*w->second.result)->value == "news");
                                          const bool got = w->first.result->has_value();
                                          seen.count(got);
                                          const auto next = w->a.try_receive(); // nothing was skipped
                                          REQUIRE(code_of(next) == (got ? EPIPE : 0));
                                          REQUIRE(code_of(w->b.try_receive()) == EPIPE);
                                      }};
        },
        runs_max));
    seen.check_both();
}

} // namespace nowait_test::channels
