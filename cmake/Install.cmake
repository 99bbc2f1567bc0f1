# Installation: program, shared and static libraries, headers, pkg-config files, find_package(millrace), man pages.
# All of it may be moved as a whole: the program finds the library, and both .pc and .cmake files their prefix, from where
# they lie.
include(CMakePackageConfigHelpers)

file(RELATIVE_PATH lib_from_bin ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
# DT_RPATH, not DT_RUNPATH: it also holds for what the libraries in the relocatable folder need themselves.
set(cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/millrace)
foreach(target millrace millrace_static millrace-profile millrace_profile_static millrace-train millrace_train_static)
  if(NOT TARGET ${target}) # of the core build
    continue()
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL SHARED_LIBRARY)
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN")
    target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  endif()
  # A component a library, and one for what only compiling needs: each becomes a Debian package (Package.cmake).
  install(TARGETS ${target} EXPORT ${target} LIBRARY COMPONENT ${target} NAMELINK_COMPONENT development
    ARCHIVE COMPONENT development)
  # One file a target: each is loaded only where what it needs is found.
  install(EXPORT ${target} NAMESPACE millrace:: FILE ${target}Target.cmake DESTINATION ${cmake_dir} COMPONENT development)
endforeach()
if(TARGET millrace-video)
  install(TARGETS millrace-video LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/millrace COMPONENT video)
endif()
if(TARGET millrace-record)
  install(TARGETS millrace-record LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/millrace COMPONENT program)
  install(FILES ${record_python} DESTINATION ${CMAKE_INSTALL_LIBDIR}/millrace/record-python COMPONENT program)
endif()
install(DIRECTORY include/millrace TYPE INCLUDE COMPONENT development FILES_MATCHING PATTERN "*.h")

configure_package_config_file(cmake/millraceConfig.cmake.in ${PROJECT_BINARY_DIR}/millraceConfig.cmake
  INSTALL_DESTINATION ${cmake_dir} NO_SET_AND_CHECK_MACRO)
set(compatibility SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatibility SameMinorVersion)
endif()
write_basic_package_version_file(${PROJECT_BINARY_DIR}/millraceConfigVersion.cmake COMPATIBILITY ${compatibility})
install(FILES ${PROJECT_BINARY_DIR}/millraceConfig.cmake ${PROJECT_BINARY_DIR}/millraceConfigVersion.cmake
  DESTINATION ${cmake_dir} COMPONENT development)

file(RELATIVE_PATH prefix_from_pc ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" prefix_from_pc "${prefix_from_pc}")
# What static libraries need is written out under Libs.private. Under Requires.private it would be asked for even by
# `pkg-config --cflags`, on machines that have no development files of it.
set(pc_private "")
if(NOT MILLRACE_CORE)
  list(APPEND pc_private ${CJSON_LDFLAGS} -lz)
endif()
foreach(package URING ZSTD ZIP HTTP JPEG PNG WEBP)
  set(pc_name ${package})
  if(package STREQUAL ZIP)
    set(pc_name LIBZIP)
  elseif(package STREQUAL HTTP)
    set(pc_name EXPAT)
  endif()
  if(MILLRACE_HAVE_${package})
    list(APPEND pc_private ${${pc_name}_LDFLAGS})
  endif()
endforeach()
# mr_pkg_config(NAME DESCRIPTION REQUIRES PRIVATE)
function(mr_pkg_config pc_name pc_description pc_requires pc_private)
  list(JOIN pc_private " " pc_private)
  configure_file(cmake/library.pc.in ${PROJECT_BINARY_DIR}/${pc_name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${pc_name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endfunction()
mr_pkg_config(millrace "${PROJECT_DESCRIPTION}" "" "${pc_private};-pthread;-ldl;-lm")
if(NOT MILLRACE_CORE)
  mr_pkg_config(millrace-profile "Recordings of CUDA programs: reports, advice, timelines" "millrace = ${PROJECT_VERSION}"
    "${SQLITE_LDFLAGS};${PNG_LDFLAGS};-lz;-pthread;-lm")
  mr_pkg_config(millrace-train "Small nets, optimizers and the trainer of millrace" "millrace = ${PROJECT_VERSION}"
    "${CJSON_LDFLAGS};-pthread;-lm")
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)

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
