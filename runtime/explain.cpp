#include <nowait/explain.hpp>

#include <cerrno>
#include <fstream>
#include <string>

#include <sys/resource.h>

NOWAIT_BEGIN_NAMESPACE

namespace {

/// "/proc/sys/fs/pipe-max-size is 1048576", or only the path where it cannot be read.
std::string setting(const char* path) {
    std::ifstream file(path);
    std::string value;
    if (!std::getline(file, value) || value.empty())
        return std::string(path);
    for (char& c : value)
        c = c == '\t' ? ' ' : c;
    return std::string(path) + " is " + value;
}

std::string amount(rlim_t value) {
    return value == RLIM_INFINITY ? std::string("unlimited") : std::to_string(value);
}

struct limit_values {
    std::string soft = "unknown";
    std::string hard = "unknown";
};

limit_values limits_of(__rlimit_resource which) {
    rlimit value{};
    if (::getrlimit(which, &value) != 0)
        return {};
    return {amount(value.rlim_cur), amount(value.rlim_max)};
}

std::string too_many_descriptors() {
    const limit_values limit = limits_of(RLIMIT_NOFILE);
    return "this process may have " + limit.soft + " descriptors (RLIMIT_NOFILE, `ulimit -n`; hard limit " +
           limit.hard + ")";
}

std::string too_many_in_system(subject about) {
    // The kernel says ENFILE both when its file table is full and when a user's pipes hold too much memory.
    std::string text = "the system's files (" + setting("/proc/sys/fs/file-max") + ")";
    if (about == subject::pipe || about == subject::pipe_capacity || about == subject::general)
        text += " or the pages of this user's pipes (" + setting("/proc/sys/fs/pipe-user-pages-hard") +
                ", 0 is no limit) are used up";
    else
        text += " are used up";
    return text;
}

std::string no_permission(subject about) {
    switch (about) {
    case subject::pipe_capacity:
        return "without CAP_SYS_RESOURCE a pipe may hold at most what /proc allows (" +
               setting("/proc/sys/fs/pipe-max-size") +
               " bytes), and a user's pipes together so many pages (" +
               setting("/proc/sys/fs/pipe-user-pages-soft") + ", 0 is no limit)";
    case subject::runtime:
        return "io_uring is refused: " + setting("/proc/sys/kernel/io_uring_disabled") +
               " (0 allows it to everybody, 1 to privileged processes and the group in io_uring_group, 2 to "
               "nobody), or "
               "a seccomp filter forbids it, as container engines do by default";
    case subject::splice:
        return "an end is borrowed, and splicing makes the kernel forget, for everybody who shares it, that "
               "it can be "
               "read without waiting: pass allow_splice::yes if that may be";
    case subject::use:
    case subject::pipe:
        return "the object belongs to another runtime, or is used on another thread than its runtime's, or "
               "in a child "
               "after fork";
    case subject::work:
    case subject::posix_queue:
    case subject::general:
        break;
    }
    return {};
}

std::string no_memory(subject about) {
    if (about != subject::runtime)
        return "the kernel or this process (RLIMIT_AS, `ulimit -v`, is " + limits_of(RLIMIT_AS).soft +
               "; cgroup memory.max) has no memory left";
    return "the ring does not fit into the memory that may be locked (RLIMIT_MEMLOCK, `ulimit -l`, is " +
           limits_of(RLIMIT_MEMLOCK).soft + " bytes, hard limit " + limits_of(RLIMIT_MEMLOCK).hard +
           "); fewer ring_entries need less";
}

std::string invalid(subject about) {
    switch (about) {
    case subject::pipe_capacity:
        return "a pipe's capacity is between 1 byte and 2 GiB";
    case subject::splice:
        return "one end must be a pipe, both must not be the same one, and a file must not be open for "
               "appending";
    case subject::runtime:
        return "an option is out of range (budget from 1, ring_entries up to 32768), NOWAIT_DRIVER names no "
               "driver, or "
               "this kernel does not know the ring's flags";
    default:
        return {};
    }
}

std::string mqueue_setting(const char* name) {
    return setting((std::string("/proc/sys/fs/mqueue/") + name).c_str());
}

/// What the codes mean where they come from a POSIX queue; empty: what they mean everywhere.
std::string of_posix_queue(int code) {
    switch (code) {
    case EMFILE: {
        const limit_values bytes = limits_of(RLIMIT_MSGQUEUE);
        return "the queues of this user may take " + bytes.soft +
               " bytes together (RLIMIT_MSGQUEUE, `ulimit -q`; hard limit " + bytes.hard +
               "), and each takes capacity x (message_bytes + about 100) from its creation until it is "
               "unlinked and closed; or " +
               too_many_descriptors();
    }
    case EINVAL:
        return "a name is a slash and characters without another one; a queue may have a capacity of 1 up "
               "to " +
               mqueue_setting("msg_max") + ", messages of 1 up to " + mqueue_setting("msgsize_max") +
               " bytes (more for CAP_SYS_RESOURCE); priorities are 0 to 32767";
    case ENOSPC:
        return "there are as many queues as the system allows (" + mqueue_setting("queues_max") +
               "); what is left over can be listed and unlinked";
    case EMSGSIZE:
        return "the message is longer than the queue's message_bytes, or the buffer to receive into is "
               "shorter "
               "than that, "
               "however short the message is";
    case ENAMETOOLONG:
        return "a name has at most 255 characters after its slash";
    case ENOENT:
        return "there is no queue of this name, or it is another queue's by now";
    case EEXIST:
        return "there is a queue of this name, and it was to be a new one";
    case EACCES:
        return "the queue belongs to somebody else, and its permissions do not allow this";
    case EBUSY:
        return "somebody is registered for the queue's notification, and there is one for each queue";
    case EIDRM:
        return "this process has closed a descriptor of the queue, which takes its notification away";
    case ENOSYS:
        return "this kernel has no POSIX message queues (CONFIG_POSIX_MQUEUE), or a seccomp filter hides "
               "them";
    case EOPNOTSUPP:
        return "no mqueue file system is mounted to show the names (`mount -t mqueue none /dev/mqueue`)";
    case EBADF:
        return "the queue was closed or moved from, or is not open in this direction, or the descriptor is "
               "none "
               "of a queue";
    case EAGAIN:
        return "the queue is full, or empty, or others wait before this";
    case EPERM:
        return "the queue belongs to another runtime, or is used on another thread than its runtime's, or in "
               "a "
               "child "
               "after fork";
    default:
        return {};
    }
}

std::string of_work(int code) {
    switch (code) {
    case EAGAIN:
        return "the system has no further thread for this user or process (RLIMIT_NPROC, `ulimit -u`, is " +
               limits_of(RLIMIT_NPROC).soft + "; " + setting("/proc/sys/kernel/threads-max") +
               "; cgroup pids.max), and the account has no worker that could do it later";
    case EDEADLK:
        return "work that a worker has submitted would wait for that worker: all workers of the account do, "
               "or "
               "the key is its own";
    case EBUSY:
        return "the pool's signal has another disposition than the default one, so somebody else uses it: "
               "choose "
               "another (worker_pool_options::signal)";
    case ECANCELED:
        return "a stop was requested before the work began, or while abandonable work ran, or the pool is "
               "shut "
               "down";
    case EPERM:
        return "the pool belongs to the process that has forked this one: make a new one, or use the common "
               "one";
    case EINVAL:
        return "a maximum is 0 or above 32768, the idle time negative, the name longer than seven "
               "characters, or "
               "the signal none of the real-time ones";
    default:
        return {};
    }
}

std::string reason(int code, subject about) {
    if (about == subject::work) {
        if (std::string why = of_work(code); !why.empty())
            return why;
    }
    if (about == subject::posix_queue) {
        if (std::string why = of_posix_queue(code); !why.empty())
            return why;
    }
    switch (code) {
    case EMFILE:
        return too_many_descriptors();
    case ENFILE:
        return too_many_in_system(about);
    case EPERM:
        return no_permission(about);
    case EACCES:
        return about == subject::runtime ? no_permission(about) : std::string();
    case ENOMEM:
        return no_memory(about);
    case EINVAL:
        return invalid(about);
    case ENOSYS:
        return about == subject::runtime
                   ? "this kernel has no io_uring (it came with Linux 5.1), or a seccomp "
                     "filter hides it"
                   : "this kernel does not have the call";
    case EBUSY:
        return about == subject::pipe_capacity ? "more bytes are queued in the pipe than the new capacity "
                                                 "could hold: read them first, or ask for "
                                                 "more"
                                               : "another operation of the same kind waits on this object";
    case EPIPE:
        return "every reader has closed its end: nobody will ever read this, and what was written before may "
               "not have "
               "been read either";
    case EBADF:
        return "the object was closed or moved from, or the descriptor is not open in this direction, or is "
               "no pipe "
               "where one is needed";
    case ECANCELED:
        return "a stop was requested, or the object was closed while the operation waited; it moved nothing";
    case ETIMEDOUT:
        return "the time given has passed; the operation moved nothing";
    case EMSGSIZE:
        return "a line or record is longer than the limit it was read with";
    case EFAULT:
        return "the buffer is not memory of this process: a null pointer with a size?";
    case ENXIO:
        return about == subject::pipe || about == subject::general
                   ? "nobody has opened this FIFO for reading (or the path is a socket, or a device that is "
                     "not there)"
                   : "";
    case EISDIR:
        return "a directory cannot be read as a stream";
    case ENOTRECOVERABLE:
        return "the process was forked and this is the child, or the root task was left unfinished";
    default:
        return {};
    }
}

} // namespace

std::string explain(std::error_code error, subject about) {
    std::string text = error.message();
    // Codes of other categories are not errno values: a number of theirs would be explained as something else.
    if (!error || (error.category() != std::generic_category() && error.category() != std::system_category()))
        return text;
    const std::string why = reason(error.value(), about);
    if (!why.empty())
        text.append(": ").append(why);
    return text;
}

NOWAIT_END_NAMESPACE
