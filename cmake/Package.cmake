# Debian packages by CPack, one a component: each library, the video module, the program, and what only compiling needs.
# scripts/deb.sh configures this with Debian's folders, and sets MILLRACE_DEB_MAINTAINER.
set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # CPack puts it before each package's own
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/PackageMan.cmake)
set(CPACK_PACKAGE_CONTACT "${MILLRACE_DEB_MAINTAINER}")
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
  WORLD_READ WORLD_EXECUTE)
# What programs and libraries need, by dpkg-shlibdeps; among ours the exact version, because MILLRACE_1_PRIVATE binds them.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY "=")

# mr_deb(COMPONENT PACKAGE SECTION SUMMARY TEXT ours that it needs...)
function(mr_deb component package section summary text)
  string(TOUPPER ${component} upper)
  list(TRANSFORM ARGN APPEND " (= ${PROJECT_VERSION}-1)" OUTPUT_VARIABLE needs)
  list(JOIN needs ", " needs)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${needs}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${summary}\n${text}" PARENT_SCOPE)
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} PARENT_SCOPE)
  # Written by scripts/deb.sh.
  install(FILES ${PROJECT_BINARY_DIR}/deb/copyright ${PROJECT_BINARY_DIR}/deb/changelog.Debian.gz
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component})
endfunction()

set(soname ${PROJECT_VERSION_MAJOR})
set(CPACK_COMPONENTS_ALL "")
mr_deb(millrace libmillrace${soname} libs "engine that loads training data"
  "Reads, decodes, augments and batches training data, and copies batches to\n a GPU. Needs no GPU and no CUDA library.")
mr_deb(millrace-profile libmillrace-profile${soname} libs "reports of recordings of CUDA programs"
  "Reads recordings of CUDA programs: tables, advice, timelines." libmillrace${soname})
mr_deb(millrace-train libmillrace-train${soname} libs "small nets, optimizers and a trainer"
  "Trains small nets on batches of libmillrace, on CPUs or NVIDIA GPUs, by one\n process or by ranks."
  libmillrace${soname})
mr_deb(program millrace utils "keeps a GPU fed with training data, and profiles it"
  "Feeds, profiles and measures: shows where the time goes when a GPU waits for\n its data."
  libmillrace${soname} libmillrace-profile${soname} libmillrace-train${soname})
mr_deb(development libmillrace-dev libdevel "headers, static libraries and reference of millrace"
  "For programs that use libmillrace, libmillrace-profile or libmillrace-train."
  libmillrace${soname} libmillrace-profile${soname} libmillrace-train${soname})
file(WRITE ${PROJECT_BINARY_DIR}/deb/triggers "activate-noawait ldconfig\n")
foreach(library MILLRACE MILLRACE-PROFILE MILLRACE-TRAIN)
  set(CPACK_DEBIAN_${library}_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/deb/triggers)
endforeach()
set(CPACK_DEBIAN_MILLRACE_PACKAGE_RECOMMENDS "libcurl4")
set(CPACK_DEBIAN_MILLRACE-TRAIN_PACKAGE_RECOMMENDS "libopenblas0-pthread | libblas3")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_RECOMMENDS "pkg-config | pkgconf")
if(TARGET millrace-video)
  mr_deb(video millrace-video libs "video for millrace" "The module with which libmillrace reads video files."
    libmillrace${soname})
  set(CPACK_DEBIAN_MILLRACE_PACKAGE_SUGGESTS "millrace-video")
endif()
include(CPack)
