// Queues and processes for the rows of the kernel's queue.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include <fcntl.h>
#include <mqueue.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace bench::queues {

inline constexpr long posix_message_bytes = 128;
inline constexpr std::size_t posix_payload = 16;

// A queue without a name: unlinked as soon as it is open. Children inherit the descriptor.
class unnamed_queue {
public:
    unnamed_queue() {
        const std::string name = "/nowait_bench_" + std::to_string(::getpid());
        mq_attr limits{};
        limits.mq_maxmsg = 8;
        limits.mq_msgsize = posix_message_bytes;
        queue_ = ::mq_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600, &limits);
        if (queue_ < 0) {
            std::perror("mq_open");
            std::exit(1);
        }
        ::mq_unlink(name.c_str());
    }
    unnamed_queue(const unnamed_queue&) = delete;
    unnamed_queue& operator=(const unnamed_queue&) = delete;
    ~unnamed_queue() { ::mq_close(queue_); }
    [[nodiscard]] mqd_t number() const noexcept { return queue_; }

private:
    mqd_t queue_;
};

// Two queues and a process that answers each message of the first by one in the second, until an empty one comes.
class answering_process {
public:
    template <class Answer>
    explicit answering_process(Answer answer) {
        std::fflush(nullptr);
        child_ = ::fork();
        if (child_ < 0) {
            std::perror("fork");
            std::exit(1);
        }
        if (child_ == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            answer(there.number(), back.number());
            ::_exit(0);
        }
    }
    answering_process(const answering_process&) = delete;
    answering_process& operator=(const answering_process&) = delete;
    ~answering_process() {
        (void)::mq_send(there.number(), "", 0, 0);
        while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
        }
    }

    unnamed_queue there;
    unnamed_queue back;

private:
    pid_t child_;
};

// The plain one: a thread blocked in mq_receive.
inline void answer_blocked(mqd_t in, mqd_t out) {
    char room[posix_message_bytes];
    for (;;) {
        const ssize_t n = ::mq_receive(in, room, sizeof room, nullptr);
        if (n <= 0 || ::mq_send(out, room, static_cast<std::size_t>(n), 0) != 0) {
            return;
        }
    }
}

inline void required(bool holds, const char* what) {
    if (!holds) {
        std::perror(what);
        std::exit(1);
    }
}

} // namespace bench::queues
