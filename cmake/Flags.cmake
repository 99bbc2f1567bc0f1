# Compiler flags of everything we build, as one interface target.
add_library(millrace_flags INTERFACE)
target_compile_definitions(millrace_flags INTERFACE _GNU_SOURCE)
# No contraction: the same float result on every machine is a promise (transform.h).
target_compile_options(millrace_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wpointer-arith
    -Wno-missing-field-initializers -fno-common -ffp-contract=off -fno-math-errno>)
if(MILLRACE_WERROR)
  target_compile_options(millrace_flags INTERFACE -Werror)
endif()
if(MILLRACE_SANITIZE)
  target_compile_options(millrace_flags INTERFACE -fsanitize=${MILLRACE_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(millrace_flags INTERFACE -fsanitize=${MILLRACE_SANITIZE})
endif()
if(MILLRACE_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "MILLRACE_FUZZ=ON: libFuzzer comes with clang; use the preset fuzz")
  endif()
  target_compile_options(millrace_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
