/*
 * MR_PRIVATE marks functions that libmillrace-profile and libmillrace-train use although no public
 * header declares them. They are exported under the version node MILLRACE_1_PRIVATE
 * (cmake/Exports.cmake), without any stability promise: the three libraries of a release belong
 * together.
 */
#ifndef MR_BASE_PRIVATE_H
#define MR_BASE_PRIVATE_H

/* Defined as empty where a program compiles one of our files itself. */
#ifndef MR_PRIVATE
#define MR_PRIVATE __attribute__((visibility("default")))
#endif

#endif
