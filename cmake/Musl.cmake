# Toolchain: musl by Debian's musl-tools. musl-gcc leaves /usr/include out, and with it the kernel's headers, which are linked
# to a folder here.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${CMAKE_HOST_SYSTEM_PROCESSOR})
set(CMAKE_C_COMPILER musl-gcc)
execute_process(COMMAND gcc -print-multiarch OUTPUT_VARIABLE musl_triplet OUTPUT_STRIP_TRAILING_WHITESPACE)
set(musl_kernel ${CMAKE_BINARY_DIR}/kernel-headers)
file(MAKE_DIRECTORY ${musl_kernel})
foreach(folder linux asm-generic ${musl_triplet}/asm)
  get_filename_component(name ${folder} NAME)
  file(CREATE_LINK /usr/include/${folder} ${musl_kernel}/${name} SYMBOLIC)
endforeach()
set(CMAKE_C_FLAGS_INIT "-idirafter ${musl_kernel}")
