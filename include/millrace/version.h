/* The version: of these headers at compile time, of the library at run time. */
#ifndef MILLRACE_VERSION_H
#define MILLRACE_VERSION_H

#include <millrace/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* CMakeLists.txt reads the three numbers from here. */
#define MR_VERSION_MAJOR 0
#define MR_VERSION_MINOR 1
#define MR_VERSION_PATCH 0

/* "0.1.0" */
MR_API const char *mr_version(void);

#ifdef __cplusplus
}
#endif
#endif
