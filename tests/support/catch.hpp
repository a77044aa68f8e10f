// Catch2, whichever of its two header layouts is installed: version 2 has one header, version 3 has many.
#pragma once

// Version 2 wraps each assertion in a try block unless told not to; the test cases have one anyway, and compile faster.
#define CATCH_CONFIG_FAST_COMPILE

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
