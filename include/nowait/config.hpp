// Version, export macro and inline namespace. Everything else in the library includes this first.
#pragma once

#define NOWAIT_VERSION_MAJOR 0
#define NOWAIT_VERSION_MINOR 1
#define NOWAIT_VERSION_PATCH 0

// The library is built with hidden visibility; what users may link against is marked. Static and shared builds see the
// same attribute, so a public type never changes with the way it is linked.
#define NOWAIT_API __attribute__((visibility("default")))

// Counters can be compiled out to measure what they cost (bench/). The layout of every type stays the same; only the
// increments vanish. The inline namespace differs, so that mixing the two fails to link instead of miscounting.
#ifndef NOWAIT_COUNTERS
#define NOWAIT_COUNTERS 1
#endif

#if NOWAIT_COUNTERS
#define NOWAIT_ABI v0
#else
#define NOWAIT_ABI v0_uncounted
#endif

#define NOWAIT_BEGIN_NAMESPACE \
    namespace nowait {         \
    inline namespace NOWAIT_ABI {
#define NOWAIT_END_NAMESPACE \
    }                        \
    }
