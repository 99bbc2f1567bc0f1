# What we link. Anything optional turns itself on when found.
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(CJSON REQUIRED IMPORTED_TARGET libcjson)
set(MILLRACE_LIBRARIES Threads::Threads ZLIB::ZLIB PkgConfig::CJSON m ${CMAKE_DL_LIBS})

set(MILLRACE_HAVE_URING 0)
if(NOT MILLRACE_URING STREQUAL "OFF")
  pkg_check_modules(URING IMPORTED_TARGET liburing)
  if(URING_FOUND)
    set(MILLRACE_HAVE_URING 1)
    list(APPEND MILLRACE_LIBRARIES PkgConfig::URING)
  elseif(MILLRACE_URING STREQUAL "ON")
    message(FATAL_ERROR "MILLRACE_URING=ON: liburing was not found; install liburing-dev or use -DMILLRACE_URING=OFF")
  endif()
endif()
target_compile_definitions(millrace_flags INTERFACE MILLRACE_HAVE_URING=${MILLRACE_HAVE_URING})

set(MILLRACE_HAVE_VIDEO 0)
if(NOT MILLRACE_VIDEO STREQUAL "OFF")
  pkg_check_modules(LIBAV IMPORTED_TARGET libavformat libavcodec libswscale libavutil)
  if(LIBAV_FOUND)
    set(MILLRACE_HAVE_VIDEO 1)
  elseif(MILLRACE_VIDEO STREQUAL "ON")
    message(FATAL_ERROR "MILLRACE_VIDEO=ON: libav was not found; install libavformat-dev, libavcodec-dev and libswscale-dev")
  endif()
endif()

# The program alone: batch digests; gzip output.
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
set(MILLRACE_CLI_LIBRARIES PkgConfig::XXHASH ZLIB::ZLIB)

message(STATUS "millrace ${PROJECT_VERSION}: reads by io_uring: ${MILLRACE_HAVE_URING}; video: ${MILLRACE_HAVE_VIDEO}; sanitizers: ${MILLRACE_SANITIZE}")
