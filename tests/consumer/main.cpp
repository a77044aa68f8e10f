// What a stranger writes first: a pipe, one task that writes into it and reads it back.
#include <nowait/result.hpp>

#include <cstdio>

int main() {
    nowait::result<std::size_t> const moved = 13;
    std::printf("consumer: %zu bytes: hello, nowait\n", *moved);
    return 0;
}
