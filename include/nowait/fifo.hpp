// Streams by path: FIFOs, and paths of which nobody knows what they are.
//
// A path that somebody else chose may be a FIFO, and an ordinary open(2) of a FIFO waits, perhaps for ever. So everything here
// is opened with O_NONBLOCK first and looked at then. docs/fifo.md says what that means for each kind of file.
#pragma once

#include <nowait/config.hpp>
#include <nowait/pipe.hpp>
#include <nowait/result.hpp>
#include <nowait/task.hpp>

#include <string>

NOWAIT_BEGIN_NAMESPACE

/// Makes a FIFO. `mode`: permissions, less the umask. Errors: file_exists; no_such_file_or_directory, permission_denied, ...: as
/// mkfifo(3); invalid_argument: a null character in `path`.
NOWAIT_API result<void> make_fifo(const std::string& path, unsigned mode = 0600);

struct open_options {
    /// Refuse what is not a FIFO (with invalid_argument).
    bool only_fifo = false;
    /// Of a FIFO that is read: the stream never ends. It is opened for writing, too, so that there is always a writer: what a
    /// daemon wants that takes one client's lines after the other's.
    bool endless = false;
    /// For writing: make a regular file if nothing is there, with these permissions (less the umask).
    bool create = false;
    unsigned mode = 0644;
    /// For writing, of regular files: cut to nothing first.
    bool truncate = false;
    /// For writing, of regular files: every write goes to the end.
    bool append = false;
};

/// Opens a path for reading, whatever it is. Never waits for a peer: a FIFO is open at once, and its reads wait until somebody has
/// opened it for writing. A read gives 0 only when the last writer has gone, never because none has come yet; when a new
/// writer comes after that, reads go on with its bytes.
///
/// The description is this object's own: non-blocking, close-on-exec, never the controlling terminal.
/// Returns: the end. Errors: is_a_directory; no_such_file_or_directory, permission_denied, too_many_files_open, ...: as open(2);
/// no_such_device_or_address: a UNIX socket; invalid_argument: not what `options` ask for, or a null character in
/// `path`. Any thread.
[[nodiscard]] NOWAIT_API result<pipe_reader> open_reader(const std::string& path, open_options options = {});

/// Opens a path for writing, if that can be done at once.
/// Returns and errors: as open_reader; no_such_device_or_address: a FIFO that nobody has opened for reading.
[[nodiscard]] NOWAIT_API result<pipe_writer> try_open_writer(const std::string& path,
                                                             open_options options = {});

/// Opens a path for writing, and waits if it is a FIFO until somebody has opened it for reading.
///
/// The kernel tells only a thread that waits in open(2) that a reader has come: so each wait takes one worker of the unbounded
/// account of the runtime's pool (`punted` of operation_kind::blocking counts them), and all of them together at most half of
/// these. Those that wait in the queue try by themselves, after 10 ms first and later once a second, so that each is opened when
/// its peer comes. A stop ends the wait: then nothing was opened, and nothing will be.
/// Returns: the end. Errors: as try_open_writer, but no_such_device_or_address only of what is no FIFO; operation_canceled;
/// and those of blocking(interruptible, ...). Borrows: nothing. Resumes: on the awaiter's runtime.
[[nodiscard]] NOWAIT_API task<result<pipe_writer>> open_writer(std::string path, open_options options = {});

NOWAIT_END_NAMESPACE
