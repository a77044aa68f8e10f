// Work that blocks, beside a loop that does not: a name is looked up in the worker pool, and a read there is stopped.
//
//     build/release/examples/hello_blocking [HOST]
#include <nowait/nowait.hpp>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <string>

#include <arpa/inet.h>
#include <netdb.h>
#include <unistd.h>

using namespace std::chrono_literals;

// getaddrinfo waits for a resolver and has no other form. On a worker it may.
static nowait::result<std::string> look_up(const std::string& host) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(host.c_str(), nullptr, &wanted, &found) != 0)
        return nowait::fail(std::errc::host_unreachable);
    char text[INET6_ADDRSTRLEN] = {};
    const void* address =
        found->ai_family == AF_INET
            ? static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(found->ai_addr)->sin_addr)
            : &reinterpret_cast<sockaddr_in6*>(found->ai_addr)->sin6_addr;
    ::inet_ntop(found->ai_family, address, text, sizeof text);
    ::freeaddrinfo(found);
    return std::string(text);
}

static nowait::task<bool> show(std::string host) {
    auto resolve = [&host] { return look_up(host); }; // named: GCC 12 destroys temporary closures twice
    const auto address = co_await nowait::blocking(resolve);
    std::printf("%s: %s\n", host.c_str(), address ? address->c_str() : address.error().message().c_str());

    // Nobody writes to this pipe. The time-out interrupts the system call.
    int ends[2];
    if (::pipe(ends) != 0)
        co_return false;
    auto wait_for_a_byte = [&ends]() -> nowait::result<char> {
        char byte = 0;
        if (::read(ends[0], &byte, 1) < 0)
            return nowait::fail_errno(errno);
        return byte;
    };
    auto bounded = nowait::with_timeout(nowait::blocking(nowait::interruptible, wait_for_a_byte), 10ms);
    const auto byte = co_await std::move(bounded);
    std::printf("the read: %s\n", byte ? "a byte" : byte.error().message().c_str());
    ::close(ends[0]);
    ::close(ends[1]);
    co_return !byte && byte.error() == std::errc::timed_out;
}

int main(int argc, char** argv) {
    return nowait::run(show(argc > 1 ? argv[1] : "localhost")).value_or(false) ? 0 : 1;
}
