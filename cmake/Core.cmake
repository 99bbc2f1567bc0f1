# -DMILLRACE_CORE=ON: libmillrace alone, for arrays and callbacks, on the C library alone: no zlib, cJSON, liburing, curl,
# picture library or CUDA driver. Public functions of what is left out are all there and answer with MR_EUNSUPPORTED or
# MR_ENODEVICE: each room that lacks something says so in its absent.c, which no other build has. docs/platforms.md tells users.
set(MILLRACE_CORE_WITHOUT # beginnings of paths below src/
  codec/gzip.c codec/zstd.c # zlib, libzstd
  codec/jpeg codec/png codec/webp # libjpeg-turbo, libspng, libwebp
  codec/video # libav, in a module
  dataset/arrays/npz # libzip
  dataset/arrays/safetensors dataset/tar/ loader/state_read.c # cJSON
  dataset/records/ # zlib and decoders of pictures
  dataset/pictures/csv dataset/pictures/folder dataset/pictures/list # nothing decodes pictures
  dataset/pictures/photos dataset/pictures/tree
  dataset/video/
  device/cuda/ # NVIDIA's driver, which needs glibc
  storage/uring.c # liburing
  storage/http/ storage/s3/ storage/cache/ # libcurl, expat, xxhash
)
find_package(Threads REQUIRED)
set(MILLRACE_LIBRARIES Threads::Threads m ${CMAKE_DL_LIBS})
set(MILLRACE_CUDA_KERNELS OFF)
foreach(library ZLIB URING HTTP ZSTD ZIP JPEG PNG WEBP)
  set(MILLRACE_HAVE_${library} 0)
  target_compile_definitions(millrace_flags INTERFACE MILLRACE_HAVE_${library}=0)
endforeach()

# mr_core_sources(VARIABLE): takes what the core leaves out off a list of sources.
function(mr_core_sources variable)
  list(JOIN MILLRACE_CORE_WITHOUT "|" without)
  list(FILTER ${variable} EXCLUDE REGEX "^${CMAKE_SOURCE_DIR}/src/(${without})")
  set(${variable} ${${variable}} PARENT_SCOPE)
endfunction()
message(STATUS "millrace ${PROJECT_VERSION}: the core: arrays and callbacks, the C library alone")
