/*
 * MR_PRIVATE marks what libmillrace-profile and libmillrace-train use of libmillrace although no public
 * header declares it. It is exported under the version node MILLRACE_PRIVATE (cmake/Exports.cmake),
 * which promises nothing: the three libraries of one release belong together.
 */
#ifndef MR_BASE_PRIVATE_H
#define MR_BASE_PRIVATE_H

/* Defined as nothing where a program compiles a file of ours for itself. */
#ifndef MR_PRIVATE
#define MR_PRIVATE __attribute__((visibility("default")))
#endif

#endif
