// What a queue with priorities gives out.
#pragma once

#include <nowait/config.hpp>

NOWAIT_BEGIN_NAMESPACE

/// A message as it is received from a queue with priorities.
template <class T>
struct message {
    T value;
    unsigned priority = 0;
};

NOWAIT_END_NAMESPACE
