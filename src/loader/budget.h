/*
 * What several loaders share: permits of workers, and a memory ceiling (millrace/budget.h).
 *
 * A worker takes a permit before it works and returns it before it sleeps. There are as many as the
 * budget has workers. Whoever finds none free joins a queue, and a permit that is returned goes to
 * the first in the queue directly, so nobody is overtaken. A worker with a permit never waits for
 * one without, so each permit comes back: no deadlock. The budget's lock is taken alone.
 *
 * A loader without a budget has a share whose budget is NULL: all of these do nothing then.
 */
#ifndef MR_LOADER_BUDGET_H
#define MR_LOADER_BUDGET_H

#include "base/base.h"
#include <millrace/budget.h>
#include <semaphore.h>

/* A loader's part. */
struct mr_budget_share {
    struct mr_budget *budget; /* NULL: none */
    struct mr_budget_share *next;
    const char *name;      /* of its data set, for texts */
    uint64_t bytes, grown; /* reserved; and what was added since */
    bool stopped;          /* its workers take no permits any more */
};

/* A worker's permit, or its place in the queue. */
struct mr_permit {
    struct mr_budget_share *share;
    struct mr_permit *next; /* in the queue */
    sem_t bell;             /* posted when it is granted, or the loader stops */
    bool has;
    uint64_t since_ns;
};

/* Joins a budget, or none (NULL). Returns 0, MR_EMISUSE. name: as long as the share. */
int mr_budget_join(struct mr_budget *budget, struct mr_budget_share *share, const char *name);
void mr_budget_leave(struct mr_budget_share *share);
/* How many workers can work at once, of `own`. */
uint32_t mr_budget_workers(const struct mr_budget_share *share, uint32_t own);

/* Makes the share this large, if the ceiling has space for it. */
bool mr_budget_reserve(struct mr_budget_share *share, uint64_t bytes);
/* Adds to it, and takes back: what slots have grown by. */
bool mr_budget_grow(struct mr_budget_share *share, uint64_t bytes);
void mr_budget_shrink(struct mr_budget_share *share, uint64_t bytes);
/* What the share was made, if the budget has a ceiling; else 0. */
uint64_t mr_budget_reserved(const struct mr_budget_share *share);
/* The error of a share that would need so many bytes: the sum by loader. parts: what the loader
 * needs them for. */
int mr_budget_over(struct mr_budget_share *share, uint64_t bytes, const char *parts);

void mr_permit_init(struct mr_permit *permit, struct mr_budget_share *share);
void mr_permit_destroy(struct mr_permit *permit);
/* Waits for a permit. false: the loader stops. */
bool mr_permit_take(struct mr_permit *permit);
/* Returns it; nothing if there is none. */
void mr_permit_return(struct mr_permit *permit);
/* Has the worker had it for long, and do others wait? */
bool mr_permit_is_due(const struct mr_permit *permit, uint64_t now_ns);
/* Workers of this loader stop waiting for permits. */
void mr_budget_stop(struct mr_budget_share *share);

#endif
