#include "server.hpp"

#include "job.hpp"

#include <array>
#include <csignal>
#include <cstdio>
#include <utility>
#include <vector>

namespace priority_worker {

using nowait::mqueue_access;
using nowait::owned_posix_mqueue;
using nowait::pipe_writer;
using nowait::result;
using nowait::subject;
using nowait::task;

namespace {

constexpr std::size_t longest_job = 512;

/// What the workers share. All of them run on one loop: no locks.
struct shop {
    const settings& wanted;
    owned_posix_mqueue queue;
    pipe_writer results;
    nowait::inplace_stop_source closing; ///< no new jobs from here on; what was taken is done
    std::size_t done = 0;
    int status = 0;
};

/// One of the workers: as many jobs as there are workers are in the pool at a time, and the next one is always the most urgent
/// there is. So it is taken out of the queue only when somebody is free for it.
task<> work(shop& in) {
    std::array<std::byte, longest_job> room;
    for (;;) {
        auto job = co_await nowait::with_stop(in.queue.receive(room), in.closing.get_token());
        if (!job) {
            if (job.error() != std::errc::operation_canceled)
                in.status = complain(in.wanted.queue, job.error(), subject::posix_queue);
            co_return;
        }
        const std::string text(reinterpret_cast<const char*>(job->value.data()), job->value.size());
        auto run = [&text] { return perform(text); };
        auto outcome = co_await nowait::blocking(run);
        std::string line = "priority " + std::to_string(job->priority) + ": " + text + " = ";
        line += outcome ? *outcome : outcome.error().message();
        line += '\n';
        auto written =
            co_await in.results.write(line); // up to 4096 bytes are never mixed with another worker's
        if (!written) {
            in.status = complain(in.wanted.results, written.error(), subject::pipe);
            in.closing.request_stop();
            co_return;
        }
        if (++in.done == in.wanted.count)
            in.closing.request_stop();
    }
}

task<> close_on_signal(const nowait::signals& quit, nowait::inplace_stop_source& closing) {
    auto got = co_await quit.next();
    if (got)
        closing.request_stop();
}

/// With a queue and somebody who reads the results.
task<> run_workers(shop& in) {
    std::vector<nowait::join_handle<void>> workers;
    for (std::size_t i = 0; i < in.wanted.workers; ++i)
        workers.push_back(nowait::spawn(work(in)));
    for (auto& one : workers)
        (void)co_await one.join();
    // What nobody has done is left for the next start; an empty queue is not worth keeping.
    const auto left = in.queue.attributes();
    if (left && left->messages != 0)
        in.queue.release();
}

} // namespace

nowait::posix_mqueue_options queue_options(mqueue_access access) {
    nowait::posix_mqueue_options options;
    options.how = nowait::mqueue_open::create_or_open;
    options.access = access;
    options.capacity = 8;
    options.message_bytes = longest_job;
    return options;
}

int complain(const std::string& what, std::error_code error, subject about) {
    std::fprintf(stderr, "priority_worker: %s: %s\n", what.c_str(), nowait::explain(error, about).c_str());
    return 1;
}

task<int> serve(settings wanted) {
    auto quit = nowait::signals::create({SIGINT, SIGTERM});
    if (!quit && quit.error() == std::errc::operation_not_permitted)
        quit = nowait::signals::create(
            {SIGTERM}); // in the background of a script SIGINT is ignored, and stays so
    if (!quit)
        co_return complain("signals", quit.error(), subject::general);
    auto options = queue_options(mqueue_access::receive);
    options.dedicated_receiver = wanted.dedicated;
    auto queue = owned_posix_mqueue::open(wanted.queue, options);
    if (!queue)
        co_return complain(wanted.queue, queue.error(), subject::posix_queue);
    const auto made = nowait::make_fifo(wanted.results);
    if (!made && made.error() != std::errc::file_exists)
        co_return complain(wanted.results, made.error(), subject::pipe);

    shop open{wanted, std::move(*queue), {}, {}, 0, 0};
    auto watch = nowait::spawn(close_on_signal(*quit, open.closing));
    // Somebody has to read the results before there are any. Until then the jobs stay where others can see them.
    auto opening = nowait::open_writer(wanted.results, {.only_fifo = true});
    auto results = co_await nowait::with_stop(std::move(opening), open.closing.get_token());
    if (results) {
        open.results = std::move(*results);
        co_await run_workers(open);
    } else {
        open.queue.release();
        if (results.error() != std::errc::operation_canceled)
            open.status = complain(wanted.results, results.error(), subject::pipe);
    }
    (void)quit->close();
    (void)co_await watch.join();
    co_return open.status;
}

} // namespace priority_worker
