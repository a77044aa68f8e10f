// An urgent message overtakes: five ordinary jobs are queued before it, and it is done first.
#include <nowait/nowait.hpp>

#include <cstdio>
#include <string>

using nowait::task;
using queue = nowait::mqueue_channel<std::string>;

task<> produce(queue jobs) {
    for (int i = 1; i <= 5; ++i) {
        std::string job = "ordinary job " + std::to_string(i);
        const auto sent = co_await jobs.send(job, 1);
        if (!sent)
            co_return;
    }
    std::string urgent = "URGENT job";
    (void)co_await jobs.send(urgent, 9);
    jobs.close(); // what is queued is still received
}

task<> consume(queue jobs) {
    for (;;) {
        const auto job = co_await jobs.receive();
        if (!job)
            co_return; // closed, and empty
        std::printf("priority %u: %s\n", job->priority, job->value.c_str());
    }
}

task<> hello(queue jobs) {
    co_await produce(jobs);
    co_await consume(jobs);
}

int main() {
    const auto jobs = queue::create({.capacity = 16});
    return jobs && nowait::run(hello(*jobs)) ? 0 : 1;
}
