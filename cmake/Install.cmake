# Installation: program, shared and static library, headers, pkg-config file, find_package(millrace), man pages.
# All of it may be moved as a whole: the program finds the library, and both .pc and .cmake files their prefix, from where
# they lie.
include(CMakePackageConfigHelpers)

file(RELATIVE_PATH lib_from_bin ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
# DT_RPATH, not DT_RUNPATH: it also holds for what the libraries in the relocatable folder need themselves.
set_target_properties(millrace PROPERTIES INSTALL_RPATH "$ORIGIN")
target_link_options(millrace PRIVATE -Wl,--disable-new-dtags)
install(TARGETS millrace EXPORT millrace_shared COMPONENT library)
install(TARGETS millrace_static EXPORT millrace_static COMPONENT library)
if(TARGET millrace-video)
  install(TARGETS millrace-video LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/millrace COMPONENT video)
endif()
if(TARGET millrace-record)
  install(TARGETS millrace-record LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/millrace COMPONENT program)
endif()
install(DIRECTORY include/millrace TYPE INCLUDE COMPONENT library FILES_MATCHING PATTERN "*.h")

set(cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/millrace)
install(EXPORT millrace_shared NAMESPACE millrace:: FILE millraceShared.cmake DESTINATION ${cmake_dir} COMPONENT library)
install(EXPORT millrace_static NAMESPACE millrace:: FILE millraceStatic.cmake DESTINATION ${cmake_dir} COMPONENT library)
configure_package_config_file(cmake/millraceConfig.cmake.in ${PROJECT_BINARY_DIR}/millraceConfig.cmake
  INSTALL_DESTINATION ${cmake_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/millraceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/millraceConfig.cmake ${PROJECT_BINARY_DIR}/millraceConfigVersion.cmake
  DESTINATION ${cmake_dir} COMPONENT library)

file(RELATIVE_PATH prefix_from_pc ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" prefix_from_pc "${prefix_from_pc}")
set(pc_requires "zlib libcjson sqlite3")
if(MILLRACE_HAVE_URING)
  string(APPEND pc_requires " liburing")
endif()
if(MILLRACE_HAVE_ZSTD)
  string(APPEND pc_requires " libzstd")
endif()
if(MILLRACE_HAVE_ZIP)
  string(APPEND pc_requires " libzip")
endif()
list(TRANSFORM MILLRACE_PICTURE_MODULES REPLACE ".*=" "" OUTPUT_VARIABLE pc_pictures)
list(JOIN pc_pictures " " pc_pictures)
string(APPEND pc_requires " ${pc_pictures}")
if(MILLRACE_HAVE_HTTP)
  string(APPEND pc_requires " expat")
endif()
configure_file(cmake/millrace.pc.in ${PROJECT_BINARY_DIR}/millrace.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/millrace.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT library)

if(TARGET millrace_cli)
  set_target_properties(millrace_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_from_bin}")
  target_link_options(millrace_cli PRIVATE -Wl,--disable-new-dtags)
  install(TARGETS millrace_cli COMPONENT program)

  # The pages come from the option tables that parse the options, so the program writes them.
  set(man_stamp ${PROJECT_BINARY_DIR}/man/stamp)
  add_custom_command(OUTPUT ${man_stamp}
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${PROJECT_BINARY_DIR}/man
    COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/man
    COMMAND millrace_cli man ${PROJECT_BINARY_DIR}/man
    COMMAND ${CMAKE_COMMAND} -E touch ${man_stamp}
    DEPENDS millrace_cli
    COMMENT "Writing the man pages")
  add_custom_target(man ALL DEPENDS ${man_stamp})
  install(DIRECTORY ${PROJECT_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program
    FILES_MATCHING PATTERN "*.1")
endif()
