// Interrupt: the first one asks for an orderly end, a second one acts at once. Hang-up: read the configuration again.
//
//     build/release/examples/hello_signals              then press ^C, or send it SIGHUP or SIGTERM
//     build/release/examples/hello_signals --by-itself  sends itself both
#include <nowait/nowait.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>

using namespace std::chrono_literals;

/// The work: goes on until it is asked to stop, then puts its things in order.
static nowait::task<int> work() {
    int done = 0;
    while (true) {
        const auto slept = co_await nowait::sleep_for(10ms);
        if (!slept)
            break; // operation_canceled: somebody has requested a stop
        ++done;
    }
    std::printf("%d rounds of work, and everything put in order\n", done);
    co_return done;
}

static nowait::task<int> serve(bool by_itself) {
    auto taken = nowait::signals::create({SIGINT, SIGTERM, SIGHUP});
    if (!taken) {
        std::fprintf(stderr, "signals: %s\n", taken.error().message().c_str());
        co_return 1;
    }
    nowait::spawn(work()).detach();
    if (by_itself) {
        std::raise(SIGHUP);
        std::raise(SIGINT);
    }
    while (true) {
        const auto got = co_await taken->next();
        if (!got)
            break;
        if (got->number != SIGHUP) {
            std::printf("asked to end by signal %d\n", got->number);
            break;
        }
        std::printf("configuration read again\n");
    }
    (void)taken->close();                    // from here on a second ^C does what ^C does
    nowait::current_remote().request_stop(); // run() returns when everybody has ended
    co_return 0;
}

int main(int argc, char** argv) {
    const bool by_itself = argc > 1 && std::strcmp(argv[1], "--by-itself") == 0;
    return nowait::run(serve(by_itself)).value_or(1);
}
