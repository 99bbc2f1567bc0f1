# Compiler flags of everything we build, as one interface target.
add_library(millrace_flags INTERFACE)
target_compile_definitions(millrace_flags INTERFACE _GNU_SOURCE)
# No contraction: the same float result on every machine is a promise (transform.h).
target_compile_options(millrace_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wpointer-arith
    -Wno-missing-field-initializers -fno-common -ffp-contract=off -fno-math-errno>)
# Hardening of release builds; scripts/dist.sh and wheel.sh have scripts/hardening.sh check it. Not fortified: the recorder,
# which defines the functions that fortified calls replace, and builds with tests, whose fault injection goes by name; -U is
# for compilers that fortify by themselves. Level 2, not Ubuntu's 3: the cost of 3 was not measured.
if(NOT MILLRACE_SANITIZE AND NOT MILLRACE_FUZZ)
  target_link_options(millrace_flags INTERFACE "$<$<CONFIG:Release>:-Wl,-z,relro,-z,now,-z,noexecstack>")
  set(hardening -fstack-protector-strong -fstack-clash-protection -U_FORTIFY_SOURCE)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND hardening -fcf-protection=full)
  endif()
  set(release_c $<COMPILE_LANGUAGE:C>,$<CONFIG:Release>)
  target_compile_options(millrace_flags INTERFACE "$<$<AND:${release_c}>:${hardening}>")
  if(NOT MILLRACE_TESTS)
    set(recorder $<STREQUAL:$<TARGET_PROPERTY:NAME>,millrace-record>)
    target_compile_options(millrace_flags INTERFACE
      "$<$<AND:${release_c},$<NOT:${recorder}>>:-D_FORTIFY_SOURCE=2>")
  endif()
endif()
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
