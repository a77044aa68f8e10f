// Two Asios in one program, in different libraries, with one nowait between them.
#include <nowait/nowait.hpp>

#include <cstdio>
#include <string>

std::string with_standalone(nowait::channel<std::string> from);
std::string with_boost(nowait::channel<std::string> from);

int main() {
    auto words = nowait::channel<std::string>::create(4);
    if (!words)
        return 1;
    for (const char* each : {"hello", ", ", "now", "ait"}) {
        std::string word = each;
        if (!words->try_send(word))
            return 1;
    }
    std::string all = with_standalone(*words);
    all += with_boost(*words);
    std::printf("consumer: %zu bytes: %s\n", all.size(), all.c_str());
}
