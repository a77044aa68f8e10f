// Two translation units of one program that may disagree about language level, optimisation and macros. What they compare are
// plain words; what they share are the library's types.
#pragma once

#include <nowait/channel.hpp>
#include <nowait/pipe.hpp>
#include <nowait/task.hpp>

#include <string>

struct type_layout {
    const char* name;
    unsigned long size;
    unsigned long alignment;
};
extern "C" const type_layout own_types[]; // ends with a null name
extern "C" const type_layout other_types[];

/// Writes what comes through the channel, until that is closed.
nowait::task<int> own_speaks(nowait::channel<std::string> from, nowait::pipe_writer to);
nowait::task<int> other_speaks(nowait::channel<std::string> from, nowait::pipe_writer to);
