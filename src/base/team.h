/* Threads that wait for short jobs, cut into tasks. */
#ifndef MR_BASE_TEAM_H
#define MR_BASE_TEAM_H

#include "base/base.h"

struct mr_team;

/* n_threads: with the caller's, which is none of ours; below 2 it works alone. name: of the threads, a number follows.
 * looks: how often an idle thread looks for the next job, for some ns each, before it sleeps: MR_TEAM_LOOKS where jobs follow one another,
 * 0 where others need the processors meanwhile. Returns 0, -ENOMEM, or -errno of a thread that does not start. */
#define MR_TEAM_LOOKS 4000u
MR_PRIVATE int mr_team_create(uint32_t n_threads, const char *name, uint32_t looks, struct mr_team **out);
/* NULL is allowed, here and below: the caller alone. */
MR_PRIVATE void mr_team_destroy(struct mr_team *team);

/* Calls fn(user, i, who) once for each i of 0..n-1, on the caller (who 0) and the others (1, 2, ...), and returns when all are
 * done. One run at a time. */
MR_PRIVATE void mr_team_run(struct mr_team *team, void (*fn)(void *user, uint64_t i, uint32_t who), void *user,
                            uint64_t n);

#endif
