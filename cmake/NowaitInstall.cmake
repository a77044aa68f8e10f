# What `cmake --install` puts where: headers, both libraries, the CMake package and the pkg-config file.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/nowait)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/nowait DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.hpp")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Two export sets: who uses only the shared library needs no liburing headers.
foreach(kind static shared)
    install(TARGETS nowait_${kind} EXPORT nowait-${kind}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(EXPORT nowait-${kind} NAMESPACE nowait:: FILE nowait-${kind}.cmake DESTINATION ${package_dir})
endforeach()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/nowait-config.cmake.in
    ${PROJECT_BINARY_DIR}/nowait-config.cmake
    INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/nowait-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/nowait-config.cmake ${PROJECT_BINARY_DIR}/nowait-config-version.cmake
    DESTINATION ${package_dir})

# The .pc file names its prefix relative to itself, so that an installed tree may be moved.
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR} OR IS_ABSOLUTE ${CMAKE_INSTALL_INCLUDEDIR})
    set(NOWAIT_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
    set(NOWAIT_PC_LIBDIR ${CMAKE_INSTALL_FULL_LIBDIR})
    set(NOWAIT_PC_INCLUDEDIR ${CMAKE_INSTALL_FULL_INCLUDEDIR})
else()
    file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
    string(REGEX REPLACE "/$" "" up "${up}")
    set(NOWAIT_PC_PREFIX "\${pcfiledir}/${up}")
    set(NOWAIT_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
    set(NOWAIT_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/nowait.pc.in ${PROJECT_BINARY_DIR}/nowait.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/nowait.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
