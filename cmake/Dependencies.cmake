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

# Remote data: libcurl's headers alone, for the library itself is opened when the first URL is (it brings thirty others along);
# expat reads lists of S3 objects; xxhash (its header alone) guards the disk cache.
set(MILLRACE_HAVE_HTTP 0)
if(NOT MILLRACE_HTTP STREQUAL "OFF")
  pkg_check_modules(CURL libcurl>=7.75)
  pkg_check_modules(EXPAT IMPORTED_TARGET expat)
  if(CURL_FOUND AND EXPAT_FOUND)
    set(MILLRACE_HAVE_HTTP 1)
    list(APPEND MILLRACE_LIBRARIES PkgConfig::EXPAT)
  elseif(MILLRACE_HTTP STREQUAL "ON")
    message(FATAL_ERROR "MILLRACE_HTTP=ON: libcurl (>= 7.75) and expat were not found; install libcurl4-openssl-dev and "
      "libexpat1-dev or use -DMILLRACE_HTTP=OFF")
  endif()
endif()
target_compile_definitions(millrace_flags INTERFACE MILLRACE_HAVE_HTTP=${MILLRACE_HAVE_HTTP})

# The program alone: batch digests; gzip output.
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
set(MILLRACE_CLI_LIBRARIES PkgConfig::XXHASH ZLIB::ZLIB)

message(STATUS "millrace ${PROJECT_VERSION}: reads by io_uring: ${MILLRACE_HAVE_URING}; http and s3: ${MILLRACE_HAVE_HTTP}; sanitizers: ${MILLRACE_SANITIZE}")
