// Jobs arrive in a POSIX queue from other processes, the urgent first, are run in the worker pool, and results go to a FIFO.
//
//     priority_worker serve /jobs results &             makes both; begins when somebody reads the results
//     cat results &
//     priority_worker submit /jobs 1 primes 50000000
//     priority_worker submit /jobs 9 reverse urgent      overtakes what waits
//
// The queue outlives a server that is killed, with the jobs in it: the next one goes on with them. Those that were being done are
// lost.
#include "server.hpp"

#include <charconv>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

using namespace priority_worker;

namespace {

int usage(std::FILE* to, int status) {
    std::fputs(
        "usage: priority_worker serve QUEUE RESULTS [--workers N] [--count N] [--dedicated]\n"
        "       priority_worker submit QUEUE PRIORITY WORD...\n"
        "       priority_worker remove QUEUE\n"
        "\n"
        "QUEUE is a name like /jobs, RESULTS the path of a FIFO, PRIORITY 0 to 32767, the highest first.\n"
        "Jobs: primes N, reverse TEXT.\n"
        "  --workers N    so many jobs at a time (2)\n"
        "  --count N      end after so many jobs\n"
        "  --dedicated    wait for jobs in mq_receive, as other consumers of the same queue do\n",
        to);
    return status;
}

template <class Number>
bool parse(std::string_view text, Number& into) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
    return error == std::errc() && end == text.data() + text.size();
}

nowait::task<int> submit(std::string name, unsigned priority, std::string job) {
    const auto queue = nowait::posix_mqueue::open(name, queue_options(nowait::mqueue_access::send));
    if (!queue)
        co_return complain(name, queue.error(), nowait::subject::posix_queue);
    auto sent = co_await queue->send(job, priority); // waits while the queue is full
    if (!sent)
        co_return complain(name, sent.error(), nowait::subject::posix_queue);
    co_return 0;
}

int run(nowait::task<int> what) {
    const auto status = nowait::run(std::move(what));
    return status ? *status : complain("runtime", status.error(), nowait::subject::runtime);
}

int submit_words(std::span<char*> words) {
    unsigned priority = 0;
    if (words.size() < 3 || !parse(words[1], priority))
        return usage(stderr, 2);
    std::string job = words[2];
    for (const char* word : words.subspan(3))
        job.append(" ").append(word);
    return run(submit(words[0], priority, std::move(job)));
}

int serve_words(std::span<char*> words) {
    settings wanted;
    if (words.size() < 2)
        return usage(stderr, 2);
    wanted.queue = words[0];
    wanted.results = words[1];
    for (std::size_t i = 2; i < words.size(); ++i) {
        const std::string_view option = words[i];
        if (option == "--dedicated")
            wanted.dedicated = true;
        else if (option == "--workers" && i + 1 < words.size() && parse(words[i + 1], wanted.workers) &&
                 wanted.workers != 0)
            ++i;
        else if (option == "--count" && i + 1 < words.size() && parse(words[i + 1], wanted.count))
            ++i;
        else
            return usage(stderr, 2);
    }
    return run(serve(std::move(wanted)));
}

} // namespace

int main(int argc, char** argv) {
    const std::span<char*> words(argv, static_cast<std::size_t>(argc));
    const std::string_view command = argc > 1 ? words[1] : "";
    if (command == "serve")
        return serve_words(words.subspan(2));
    if (command == "submit")
        return submit_words(words.subspan(2));
    if (command == "remove" && argc == 3) {
        const auto gone = nowait::posix_mqueue::unlink(words[2]);
        return gone ? 0 : complain(words[2], gone.error(), nowait::subject::posix_queue);
    }
    if (command == "--help" || command == "-h")
        return usage(stdout, 0);
    return usage(stderr, 2);
}
