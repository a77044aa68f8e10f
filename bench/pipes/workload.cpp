#include "workload.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace bench::pipes {

pipe_set::pipe_set(std::size_t count, int flags) {
    ends_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        int ends[2];
        if (::pipe2(ends, flags | O_CLOEXEC) != 0) {
            give_up("pipe2", -errno);
        }
        ends_.push_back({ends[0], ends[1]});
    }
}

pipe_set::~pipe_set() {
    for (std::size_t i = 0; i < ends_.size(); ++i) {
        close_reader(i);
        close_writer(i);
    }
}

void pipe_set::close_reader(std::size_t i) noexcept {
    if (const int descriptor = std::exchange(ends_[i].reader, -1); descriptor >= 0) {
        ::close(descriptor);
    }
}

void pipe_set::close_writer(std::size_t i) noexcept {
    if (const int descriptor = std::exchange(ends_[i].writer, -1); descriptor >= 0) {
        ::close(descriptor);
    }
}

void give_up(const char* what, long result) {
    if (result == -1) {
        std::fprintf(stderr, "%s failed: %s\n", what, std::strerror(errno));
    } else if (result < 0) {
        std::fprintf(stderr, "%s failed: %s\n", what, std::strerror(static_cast<int>(-result)));
    } else {
        std::fprintf(stderr, "%s gave %ld\n", what, result);
    }
    std::exit(EXIT_FAILURE);
}

} // namespace bench::pipes
