// What the present build is watched by, where a test has to know.
#pragma once

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NOWAIT_TEST_TSAN 1
#endif
#if __has_feature(address_sanitizer)
#define NOWAIT_TEST_ASAN 1
#endif
#endif

namespace nowait_test {

/// Delays signals and merges those of one number; starts no thread in a child of a process that had several.
#if defined(NOWAIT_TEST_TSAN) || defined(__SANITIZE_THREAD__)
inline constexpr bool thread_sanitizer = true;
#else
inline constexpr bool thread_sanitizer = false;
#endif
/// Needs more address space than any limit leaves.
#if defined(NOWAIT_TEST_ASAN) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool address_sanitizer = true;
#else
inline constexpr bool address_sanitizer = false;
#endif

} // namespace nowait_test
