/* A job run again and again with the nth call of one kind failing: it ends as without the failure
 * or with a clean error, and leaves nothing behind. */
#ifndef FAULT_SWEEP_H
#define FAULT_SWEEP_H

#include "inject.h"

#include <stddef.h>

struct outcome {
    int rc; /* 0 or an error */
    uint64_t hash, samples, n_bad;
    char error[256]; /* mr_last_error() where it failed */
};

struct sweep {
    const char *name;
    const void *job;
    void (*before)(const void *job); /* each run, when nothing fails yet; NULL: nothing */
    void (*run)(const void *job, struct outcome *out);
    /* Whether a run may succeed with another outcome than without the failure; NULL: none may. */
    bool (*may_differ)(const void *job, enum fault_kind kind, const struct outcome *out,
                       const struct outcome *want);
    bool fails;    /* without any failure too */
    bool not_on;   /* not with all later calls failing too: it waits before it gives up */
    bool fewer;    /* one of many alike: a third of the usual runs */
    uint64_t only; /* only this call; 0: all */
    bool only_on;  /* and all later ones */
};

/* In an outcome's hash. */
void outcome_add(struct outcome *out, const void *data, uint64_t bytes);

/* Ends the program with a line on standard error when a run is not as it should be, or takes a
 * minute. */
void sweep_run(const struct sweep *sweep, enum fault_kind kind);
/* What runs now, for messages. */
const char *sweep_now(void);

#endif
