# The reference of the C interface, made from the public headers: man pages of section 3, and HTML.
set(MILLRACE_REFERENCE AUTO CACHE STRING "Man pages and HTML of the C interface, by Python 3: AUTO, ON or OFF")
set(MILLRACE_HAVE_REFERENCE 0)
if(NOT MILLRACE_REFERENCE STREQUAL "OFF")
  find_program(MILLRACE_PYTHON3 python3)
  if(MILLRACE_PYTHON3)
    set(MILLRACE_HAVE_REFERENCE 1)
  elseif(MILLRACE_REFERENCE STREQUAL "ON")
    message(FATAL_ERROR "MILLRACE_REFERENCE=ON: python3 was not found; install it or use -DMILLRACE_REFERENCE=OFF")
  endif()
endif()
message(STATUS "millrace ${PROJECT_VERSION}: reference pages: ${MILLRACE_HAVE_REFERENCE}")
if(MILLRACE_HAVE_REFERENCE)
  set(reference ${PROJECT_BINARY_DIR}/reference)
  file(GLOB reference_inputs CONFIGURE_DEPENDS include/millrace/*.h scripts/reference/*.py)
  list(JOIN profile_headers "," profile_list)
  list(JOIN train_headers "," train_list)
  set(MILLRACE_REFERENCE_ARGUMENTS ${PROJECT_VERSION} millrace-profile=${profile_list} millrace-train=${train_list})
  add_custom_command(OUTPUT ${reference}/stamp
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${reference}
    COMMAND ${MILLRACE_PYTHON3} ${CMAKE_SOURCE_DIR}/scripts/reference ${CMAKE_SOURCE_DIR}/include ${reference}
      ${MILLRACE_REFERENCE_ARGUMENTS}
    COMMAND ${CMAKE_COMMAND} -E touch ${reference}/stamp
    DEPENDS ${reference_inputs}
    COMMENT "Writing the reference"
    VERBATIM)
  add_custom_target(reference ALL DEPENDS ${reference}/stamp)
  install(DIRECTORY ${reference}/man3 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT development)
  install(DIRECTORY ${reference}/html DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)
endif()

# Guides and examples, in the folders that they have here, so that their links work.
install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)
