/* A thread pool for short jobs that consist of many tasks. */
#ifndef MR_BASE_THREAD_POOL_H
#define MR_BASE_THREAD_POOL_H

#include "base/base.h"

struct mr_thread_pool;

/*
 * Creates a pool. n: number of threads, including the caller's, which the pool does not own; below
 * 2 the caller works alone and out is NULL. name: of the threads; a number is appended. looks: how
 * often an idle thread checks for the next job, a few ns each, before it sleeps:
 * MR_THREAD_POOL_LOOKS if jobs follow each other closely, 0 if others need the processors. Returns
 * 0, -ENOMEM, or -errno if a thread does not start.
 */
#define MR_THREAD_POOL_LOOKS 4000u
MR_PRIVATE int mr_thread_pool_create(uint32_t n, const char *name, uint32_t looks,
                                     struct mr_thread_pool **out);
/* NULL is allowed. */
MR_PRIVATE void mr_thread_pool_destroy(struct mr_thread_pool *pool);

/*
 * Calls fn(user, i, who) once for each i of 0..n-1, on the caller (who 0) and the other threads
 * (1, 2, ...), and returns when all calls are done. One run at a time.
 */
MR_PRIVATE void mr_thread_pool_run(struct mr_thread_pool *pool, /* NULL: the caller works alone */
                                   void (*fn)(void *user, uint64_t i, uint32_t who), void *user,
                                   uint64_t n);

#endif
