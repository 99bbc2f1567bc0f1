/*
 * A cuFile that is not there: a libcufile.so.0 that reads with pread into the fake driver's memory.
 * It fails when asked, and notes misuse.
 */
#ifndef FAKE_CUFILE_H
#define FAKE_CUFILE_H

#include <stdbool.h>
#include <stdint.h>

struct fake_cufile_report {
    uint64_t reads, bytes;              /* done, since it was loaded */
    uint64_t drivers, handles, buffers; /* open now */
    uint64_t misuse;                    /* times */
    uint64_t most_bytes;                /* of one read */
    const char *first_misuse;           /* "" when none */
};

/* Tests get these by dlsym. fail: of the calls named `call` from now on, the at-th (1: the next; 0:
 * none) and the `more` after it return the error `code` of cuFile's; below 0: -errno, for reads. */
typedef void fake_cufile_report_fn(struct fake_cufile_report *out);
typedef void fake_cufile_fail_fn(const char *call, uint64_t at, uint64_t more, int code);
/* A read brings at most so many bytes; 0: all. nvfs: the version of nvidia-fs; 0: it is not
 * loaded. */
typedef void fake_cufile_set_fn(uint64_t most, unsigned nvfs);

#endif
