#include "kernel_limits.hpp"

#include <fstream>

namespace bench::queues {
namespace {

constexpr const char* depth_file = "/proc/sys/fs/mqueue/msg_max";
constexpr std::size_t kernel_bytes_per_message = 128; // more than what it charges beside the payload

bool write_depth(const std::string& text) {
    std::ofstream file(depth_file);
    file << text << std::flush;
    return static_cast<bool>(file);
}

} // namespace

raised_queue_limits::raised_queue_limits(std::size_t messages, std::size_t message_bytes) {
    std::size_t depth = 0;
    std::ifstream(depth_file) >> depth;
    if (depth < messages && write_depth(std::to_string(messages))) {
        depth_before_ = std::to_string(depth);
    }
    const rlim_t wanted = messages * (message_bytes + kernel_bytes_per_message);
    if (::getrlimit(RLIMIT_MSGQUEUE, &bytes_before_) == 0 && bytes_before_.rlim_cur < wanted) {
        rlimit more{wanted, bytes_before_.rlim_max < wanted ? wanted : bytes_before_.rlim_max};
        bytes_raised_ = ::setrlimit(RLIMIT_MSGQUEUE, &more) == 0;
    }
}

raised_queue_limits::~raised_queue_limits() {
    if (bytes_raised_) {
        (void)::setrlimit(RLIMIT_MSGQUEUE, &bytes_before_);
    }
    if (!depth_before_.empty()) {
        (void)write_depth(depth_before_);
    }
}

} // namespace bench::queues
