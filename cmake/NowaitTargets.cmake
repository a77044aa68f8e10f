# The functions with which this project describes its targets.

# Warnings for our own code. clang counts -Wsign-conversion under -Wconversion and g++ does not: both follow g++.
add_library(nowait_warnings INTERFACE)
target_compile_options(nowait_warnings INTERFACE
    -Wall -Wextra -Wpedantic -Wconversion -Wshadow
    -Wnon-virtual-dtor -Woverloaded-virtual -Wundef -Wextra-semi -Wunused-result
    $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>
    $<$<BOOL:${NOWAIT_WERROR}>:-Werror>)

# What a library target needs from others and gives to them.
function(nowait_library_usage target)
    target_compile_features(${target} PUBLIC cxx_std_20)
    target_include_directories(${target} PUBLIC
        $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_link_libraries(${target} PUBLIC tl::expected PRIVATE PkgConfig::LIBURING Threads::Threads)
endfunction()

# Compiles the library's sources once, fit for the shared and the static library alike. Without semantic interposition
# a call inside the library costs the same in both.
function(nowait_add_objects target)
    add_library(${target} OBJECT EXCLUDE_FROM_ALL ${ARGN})
    nowait_library_usage(${target})
    target_link_libraries(${target} PRIVATE nowait_warnings)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
    target_compile_options(${target} PRIVATE -fno-semantic-interposition)
    set_target_properties(${target} PROPERTIES
        CXX_EXTENSIONS OFF
        CXX_VISIBILITY_PRESET hidden
        VISIBILITY_INLINES_HIDDEN ON
        POSITION_INDEPENDENT_CODE ON)
endfunction()

# <name>_static and <name>_shared from one list of sources.
function(nowait_add_library name)
    nowait_add_objects(${name}_objects ${ARGN})
    foreach(kind STATIC SHARED)
        string(TOLOWER ${kind} lower)
        set(target ${name}_${lower})
        add_library(${target} ${kind} $<TARGET_OBJECTS:${name}_objects>)
        add_library(${name}::${lower} ALIAS ${target})
        nowait_library_usage(${target})
        set_target_properties(${target} PROPERTIES
            LINKER_LANGUAGE CXX
            OUTPUT_NAME ${name}
            EXPORT_NAME ${lower}
            VERSION ${PROJECT_VERSION}
            # Before 1.0 a minor version may change the ABI, and the soname says so.
            SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    endforeach()
endfunction()

# An executable of ours: examples, tests and benchmarks. Linked statically, as the numbers and the sanitizers want it.
# Tests and benchmarks may include the library's private headers ("runtime/...") and liburing itself.
function(nowait_add_executable name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "INTERNALS" "" "SOURCES")
    add_executable(${name} ${arg_SOURCES})
    target_link_libraries(${name} PRIVATE nowait::static nowait_warnings Threads::Threads)
    set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF)
    if(arg_INTERNALS)
        target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
        target_link_libraries(${name} PRIVATE PkgConfig::LIBURING)
        target_compile_definitions(${name} PRIVATE NOWAIT_EXAMPLES_DIR="${PROJECT_BINARY_DIR}/examples")
    endif()
endfunction()

# The programs of one directory: every .cpp beside its CMakeLists.txt is a program of that name, every folder with .cpp
# files is one program made of all of them. `support` is for what they share. A newcomer adds a program by adding a
# file, hence the globs; the library itself is listed by hand.
function(nowait_find_programs result)
    set(programs)
    file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
    foreach(file IN LISTS files)
        cmake_path(GET file STEM name)
        list(APPEND programs ${name})
        set(${result}_${name} ${file} PARENT_SCOPE)
    endforeach()
    file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*/*.cpp)
    foreach(file IN LISTS files)
        cmake_path(GET file PARENT_PATH folder)
        cmake_path(GET folder FILENAME name)
        if(name STREQUAL "support")
            continue()
        endif()
        list(APPEND programs ${name})
        list(APPEND sources_${name} ${file})
        set(${result}_${name} ${sources_${name}} PARENT_SCOPE)
    endforeach()
    list(REMOVE_DUPLICATES programs)
    set(${result} ${programs} PARENT_SCOPE)
endfunction()

# nowait::<name>: what a program links to use nowait/asio.hpp with the stand-alone Asio (boost 0) or Boost.Asio (boost 1). Which
# Asio it is, and where, is the program's own business: the compiler finds it, or the program says so.
function(nowait_add_asio_adaptor name boost)
    add_library(nowait_adaptor_${name} INTERFACE)
    add_library(nowait::${name} ALIAS nowait_adaptor_${name})
    target_link_libraries(nowait_adaptor_${name} INTERFACE nowait::nowait Threads::Threads)
    target_compile_definitions(nowait_adaptor_${name} INTERFACE NOWAIT_ASIO_BOOST=${boost})
    # A target that links both is told so: each of its source files can only be for one.
    set_property(TARGET nowait_adaptor_${name} PROPERTY INTERFACE_NOWAIT_ASIO ${name})
    set_property(TARGET nowait_adaptor_${name} APPEND PROPERTY COMPATIBLE_INTERFACE_STRING NOWAIT_ASIO)
    if(NOT boost)
        target_compile_definitions(nowait_adaptor_${name} INTERFACE ASIO_STANDALONE)
    endif()
endfunction()

# nowait_asio: the stand-alone Asio, which tests, some examples and benchmarks need and the library does not.
function(nowait_find_asio)
    if(TARGET nowait_asio)
        return()
    endif()
    find_path(NOWAIT_ASIO_INCLUDE_DIR asio.hpp)
    if(NOT NOWAIT_ASIO_INCLUDE_DIR)
        message(FATAL_ERROR "tests, examples and benchmarks need the stand-alone Asio (Debian: libasio-dev); without it set "
            "NOWAIT_BUILD_TESTS=OFF, NOWAIT_BUILD_EXAMPLES=OFF and NOWAIT_BUILD_BENCH=OFF")
    endif()
    add_library(nowait_asio INTERFACE)
    target_include_directories(nowait_asio SYSTEM INTERFACE ${NOWAIT_ASIO_INCLUDE_DIR})
    target_compile_definitions(nowait_asio INTERFACE
        NOWAIT_ASIO_BOOST=0
        ASIO_STANDALONE
        ASIO_NO_DEPRECATED
        # Asio 1.22 does not see that clang has C++20 coroutines with libstdc++ too.
        $<$<CXX_COMPILER_ID:Clang>:ASIO_HAS_CO_AWAIT=1>
        $<$<CXX_COMPILER_ID:Clang>:ASIO_HAS_STD_COROUTINE=1>)
endfunction()

# nowait_boost_asio: Boost.Asio for a part of the tests, if there is one that the adaptor knows. NOWAIT_BOOST_INCLUDE_DIR says
# where; Boost's headers are all that is needed.
function(nowait_find_boost_asio)
    find_path(NOWAIT_BOOST_INCLUDE_DIR boost/asio.hpp)
    if(NOT NOWAIT_BOOST_INCLUDE_DIR)
        message(STATUS "no Boost.Asio: its tests are left out")
        return()
    endif()
    file(STRINGS ${NOWAIT_BOOST_INCLUDE_DIR}/boost/version.hpp line REGEX "^#define BOOST_VERSION [0-9]+$")
    string(REGEX MATCH "[0-9]+" version "${line}")
    if(version LESS 107800)
        message(STATUS "Boost ${version} is too old for the adaptor's tests with Boost.Asio (1.78): they are left out")
        return()
    endif()
    add_library(nowait_boost_asio INTERFACE)
    target_include_directories(nowait_boost_asio SYSTEM INTERFACE ${NOWAIT_BOOST_INCLUDE_DIR})
    target_compile_definitions(nowait_boost_asio INTERFACE
        NOWAIT_ASIO_BOOST=1
        BOOST_ASIO_NO_DEPRECATED
        $<$<CXX_COMPILER_ID:Clang>:BOOST_ASIO_HAS_CO_AWAIT=1>
        $<$<CXX_COMPILER_ID:Clang>:BOOST_ASIO_HAS_STD_COROUTINE=1>)
endfunction()
