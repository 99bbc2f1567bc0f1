/*
 * How files are read: which store, and whether what was read stays in memory.
 */
#ifndef MILLRACE_STORAGE_H
#define MILLRACE_STORAGE_H

#include <millrace/error.h>

#ifdef __cplusplus
extern "C" {
#endif

enum mr_storage_kind {
    MR_STORAGE_AUTO, /* io_uring where the kernel gives it, else pread */
    MR_STORAGE_URING,
    MR_STORAGE_PREAD,
};

enum mr_cache_kind {
    MR_CACHE_NONE,
    MR_CACHE_HOST,   /* files are kept in memory once read, and read from there */
    MR_CACHE_DEVICE, /* a loader alone: samples as decoded lie in device memory, and batches are gathered there */
};

/* NULL when reads can go through io_uring here; else why not, in a few words. Any thread. */
MR_API const char *mr_uring_why_not(void);

#ifdef __cplusplus
}
#endif
#endif
