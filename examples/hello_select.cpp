// Whatever comes first, in a loop that loses nothing: words until their channel is closed, and numbers between them.
//
//     hello_select
#include <nowait/nowait.hpp>

#include <chrono>
#include <cstdio>
#include <string>

using namespace std::chrono_literals;

namespace {

using words = nowait::channel<std::string>;
using numbers = nowait::channel<int>;

nowait::task<> talks(words to) {
    for (const char* each : {"one", "two", "three"}) {
        std::string word = each;
        (void)co_await to.send(word);
        (void)co_await nowait::sleep_for(3ms);
    }
    to.close();
}

/// Goes on until it is stopped.
nowait::task<> counts(numbers to) {
    nowait::interval every(2ms);
    for (int i = 1; co_await every.tick(); ++i) {
        auto sent = co_await to.send(i);
        if (!sent)
            co_return;
    }
}

/// Returns how many words there were.
nowait::task<int> listens(words said, numbers counted) {
    int heard = 0;
    for (;;) {
        // The attempts begin at another part each time, so neither side starves. The part that does not win is untouched, or
        // has finished in the same moment: each is looked at, and no message is lost.
        auto first = co_await nowait::when_any(said.receive(), counted.receive());
        if (auto& word = first.get<0>()) {
            std::printf("heard %s\n", word->c_str());
            ++heard;
        } else if (word.error() == std::errc::broken_pipe) { // closed, and nothing is left
            co_return heard;
        }
        if (auto& number = first.get<1>())
            std::printf("heard %d\n", *number);
    }
}

nowait::task<int> hello() {
    words said = words::create(4).value();
    numbers counted = numbers::create(4).value();
    nowait::task_scope scope;
    scope.spawn(talks(said));
    scope.spawn(counts(counted));
    const int heard = co_await listens(said, counted);
    scope.request_stop();
    auto ended = co_await scope.join(); // now nobody is left
    co_return ended&& heard == 3 ? 0 : 1;
}

} // namespace

int main() {
    auto ran = nowait::run(hello());
    return ran ? *ran : 1;
}
