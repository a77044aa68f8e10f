// Handlers that a program without exceptions compiles, too.
//
//     NOWAIT_TRY {
//         buffer.resize(more);
//     }
//     NOWAIT_CATCH(std::bad_alloc) { // or NOWAIT_CATCH_ALL
//         failure_ = std::current_exception();
//     }
//
// With -fno-exceptions the handler is left out: what would have come to it (memory that is refused: nothing else can throw
// there) ends the program with std::terminate. No layout depends on it, and the library itself has exceptions. But of a
// template that is compiled both ways the linker takes one, so a program compiles all of its own files the same way.
#pragma once

#include <nowait/config.hpp>

#if defined(__cpp_exceptions)
#define NOWAIT_TRY try
#define NOWAIT_CATCH_ALL catch (...)
#define NOWAIT_CATCH(Type) catch (const Type&)
#else
#define NOWAIT_TRY if constexpr (true)
#define NOWAIT_CATCH_ALL else
#define NOWAIT_CATCH(Type) else
#endif
