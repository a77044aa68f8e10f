// Compares what two translation units think of the library's types, and has a task of each work on the other's objects.
#include "layout.hpp"

#include <nowait/nowait.hpp>

#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace {

bool same() {
    bool equal = true;
    int i = 0;
    for (; own_types[i].name != nullptr; ++i) {
        const type_layout& ours = own_types[i];
        const type_layout& theirs = other_types[i];
        if (theirs.name == nullptr)
            return false;
        if (std::strcmp(ours.name, theirs.name) != 0 || ours.size != theirs.size ||
            ours.alignment != theirs.alignment) {
            std::fprintf(stderr, "%s: %lu bytes here, %lu there\n", ours.name, ours.size, theirs.size);
            equal = false;
        }
    }
    return equal && i > 30;
}

using speaker = nowait::task<int> (*)(nowait::channel<std::string>, nowait::pipe_writer);

nowait::task<bool> listen(speaker speaks) {
    auto pipe = nowait::make_pipe();
    auto words = nowait::channel<std::string>::create(2);
    if (!pipe || !words)
        co_return false;
    auto speaking = nowait::spawn(speaks(*words, std::move(pipe->writer)));
    for (const char* each : {"hello, ", "no", "wait"}) {
        std::string word = each;
        auto sent = co_await words->send(word);
        if (!sent)
            co_return false;
    }
    words->close();
    std::string text(13, '\0');
    auto room = std::as_writable_bytes(std::span(text));
    auto got = co_await nowait::read_exactly(pipe->reader, room);
    auto spoken = co_await speaking.join();
    co_return got.ok() && text == "hello, nowait" && spoken && *spoken == 3;
}

} // namespace

int main() {
    if (!same()) {
        std::fprintf(stderr, "consumer: the layouts differ\n");
        return 1;
    }
    for (const speaker each : {own_speaks, other_speaks}) {
        auto heard = nowait::run(listen(each));
        if (!heard || !*heard)
            return 1;
    }
    std::printf("consumer: 13 bytes: hello, nowait\n");
}
