/* Copies of rows that a copy engine reads. */
#ifndef MR_BASE_COPY_H
#define MR_BASE_COPY_H

#include "base/base.h"

#include <string.h>

/* memcpy that leaves the target out of the caches, if it is long enough for that to pay. Other
 * threads see the bytes after mr_copy_fence(). */
void mr_copy_past_caches(void *to, const void *from, uint64_t n);
void mr_copy_fence(void);

static inline void mr_copy_row(bool past_caches, void *to, const void *from, uint64_t n)
{
    if (past_caches)
        mr_copy_past_caches(to, from, n);
    else
        memcpy(to, from, n);
}

#endif
