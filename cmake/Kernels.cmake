# Kernels for NVIDIA GPUs: compiled by nvcc where there is one, into one image that the library holds. No CUDA library is
# linked. Without them the host does that work.
set(MILLRACE_CUDA_KERNELS AUTO CACHE STRING "Transforms on NVIDIA GPUs (wants nvcc): AUTO, ON or OFF")
set(MILLRACE_KEPT_KERNELS "$ENV{MILLRACE_KEPT_KERNELS}" CACHE PATH "Folder where builds share what nvcc made (cmake/Fatbin.cmake)")
set(MILLRACE_HAVE_CUDA_KERNELS 0)
if(NOT MILLRACE_CUDA_KERNELS STREQUAL "OFF")
  find_program(MILLRACE_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
  if(MILLRACE_NVCC)
    set(MILLRACE_HAVE_CUDA_KERNELS 1)
  elseif(MILLRACE_CUDA_KERNELS STREQUAL "ON")
    message(FATAL_ERROR "MILLRACE_CUDA_KERNELS=ON: nvcc was not found; set -DMILLRACE_NVCC=.../nvcc or use OFF")
  endif()
endif()
target_compile_definitions(millrace_flags INTERFACE MILLRACE_HAVE_CUDA_KERNELS=${MILLRACE_HAVE_CUDA_KERNELS})
set(MILLRACE_KERNELS_C "")
if(MILLRACE_HAVE_CUDA_KERNELS)
  # Machine code for Turing, Ampere and Hopper; the PTX serves what comes between and after.
  foreach(kernels batch optim sum nn)
    set(kernels_source ${CMAKE_SOURCE_DIR}/src/kernels/${kernels}/${kernels}.cu)
    set(kernels_fmad -fmad=false) # bit-equal to the host's
    if(kernels STREQUAL nn)
      set(kernels_fmad -fmad=true)
    endif()
    set(kernels_image ${PROJECT_BINARY_DIR}/kernels/${kernels}.fatbin)
    set(kernels_c ${PROJECT_BINARY_DIR}/kernels/cuda_${kernels}_image.c)
    file(GLOB kernels_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/*.h
      ${CMAKE_SOURCE_DIR}/src/kernels/${kernels}/*.h ${CMAKE_SOURCE_DIR}/src/kernels/${kernels}/*.cuh)
    list(APPEND kernels_headers ${CMAKE_SOURCE_DIR}/src/base/host_device.h ${CMAKE_SOURCE_DIR}/src/base/philox.h)
    set(kernels_arguments -fatbin -O3 ${kernels_fmad} -I${CMAKE_SOURCE_DIR}/include -I${CMAKE_SOURCE_DIR}/src
      -gencode arch=compute_75,code=[sm_75,compute_75] -gencode arch=compute_80,code=sm_80
      -gencode arch=compute_90,code=sm_90 ${kernels_source})
    file(GLOB kernels_inputs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/include/millrace/*.h ${CMAKE_SOURCE_DIR}/src/base/*.h)
    list(APPEND kernels_inputs ${kernels_source} ${kernels_headers})
    list(JOIN kernels_arguments "|" kernels_arguments)
    list(JOIN kernels_inputs "|" kernels_inputs)
    add_custom_command(OUTPUT ${kernels_image}
      COMMAND ${CMAKE_COMMAND} -DNVCC=${MILLRACE_NVCC} -DARGUMENTS=${kernels_arguments} -DINPUTS=${kernels_inputs}
        -DOUT=${kernels_image} -DKEPT=${MILLRACE_KEPT_KERNELS} -P ${CMAKE_SOURCE_DIR}/cmake/Fatbin.cmake
      DEPENDS ${kernels_source} ${kernels_headers} ${CMAKE_SOURCE_DIR}/cmake/Fatbin.cmake
      COMMENT "Compiling the CUDA kernels: ${kernels}"
      VERBATIM)
    # The image as it is: as an array in C it takes CMake and gcc seconds.
    set(kernels_name mr_cuda_${kernels}_image)
    file(CONFIGURE OUTPUT ${kernels_c} @ONLY CONTENT [[
__asm__(".pushsection .rodata\n"
        ".balign 16\n"
        ".global @kernels_name@\n"
        ".hidden @kernels_name@\n"
        ".type @kernels_name@, %object\n"
        "@kernels_name@:\n"
        ".incbin \"@kernels_image@\"\n"
        ".size @kernels_name@, . - @kernels_name@\n"
        ".popsection\n");
]])
    set_source_files_properties(${kernels_c} PROPERTIES OBJECT_DEPENDS ${kernels_image})
    list(APPEND MILLRACE_KERNELS_C ${kernels_c})
  endforeach()
endif()
message(STATUS "millrace ${PROJECT_VERSION}: transforms on NVIDIA GPUs: ${MILLRACE_HAVE_CUDA_KERNELS} (nvcc: ${MILLRACE_NVCC})")
