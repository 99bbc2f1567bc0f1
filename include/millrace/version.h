/*
 * The version of millrace.
 *
 * The macros are the version of these headers, when a program is compiled. mr_version() is the
 * version of the library that the program runs with. From version 1 on only a major version breaks
 * programs; before it a minor version may.
 *
 *     #if MR_VERSION_MAJOR < 1
 *     #error "needs millrace 1.0"
 *     #endif
 *     printf("compiled with %d.%d, running %s\n",
 *            MR_VERSION_MAJOR, MR_VERSION_MINOR, mr_version());
 *
 * Threads: mr_version() may be called from any thread, also in a forked child.
 */
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

/* The version of the library as text: "0.1.0". Constant; never NULL. */
MR_API const char *mr_version(void);

#ifdef __cplusplus
}
#endif
#endif
