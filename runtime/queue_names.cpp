// A queue's name is an entry of the mqueue file system, which many systems mount on /dev/mqueue, and many do not mount at all.
#include "queue_names.hpp"

#include <cerrno>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include <dirent.h>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

namespace {

/// Undoes the octal escapes (space, tab, newline, backslash) of a path in mountinfo.
std::string unescaped(const std::string& text) {
    std::string path;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\\' && i + 3 < text.size()) {
            path += static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8));
            i += 3;
        } else {
            path += text[i];
        }
    }
    return path;
}

/// Where the newest mount of an mqueue file system is; empty if there is none.
std::string mount_point() {
    // "36 35 0:19 / /dev/mqueue rw,nosuid - mqueue mqueue rw": the fifth word is the place, the one behind " - " the type.
    std::ifstream mounts("/proc/self/mountinfo");
    std::string found;
    for (std::string line; std::getline(mounts, line);) {
        const std::size_t separator = line.find(" - ");
        if (separator == std::string::npos || line.compare(separator + 3, 7, "mqueue ") != 0)
            continue;
        std::istringstream words(line);
        std::string place;
        for (int i = 0; i < 5; ++i)
            words >> place;
        found = unescaped(place);
    }
    return found;
}

} // namespace

int for_each_queue_name(void (*each)(void*, const char*), void* context) {
    const std::string where = mount_point();
    if (where.empty())
        return -EOPNOTSUPP;
    const auto close = [](DIR* open) { ::closedir(open); };
    const std::unique_ptr<DIR, decltype(close)> directory(::opendir(where.c_str()), close);
    if (directory == nullptr)
        return -errno;
    errno = 0;
    while (const dirent* entry = ::readdir(directory.get())) {
        const std::string name = entry->d_name;
        if (name != "." && name != "..")
            each(context, ("/" + name).c_str());
        errno = 0;
    }
    return -errno;
}

} // namespace detail
NOWAIT_END_NAMESPACE
