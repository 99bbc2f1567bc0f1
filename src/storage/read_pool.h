/*
 * Threads that do the reads which would block their reader, and the way back of done reads.
 *
 * A store that has no asynchronous interface (pread, the disk cache of remote files) starts a read
 * by giving it to a pool, which all readers of the storage share. The pool is elastic: it begins
 * without threads, and starts one whenever more reads are pending than it has threads, up to 64 or
 * the number of reads in flight. So data that is in memory costs no thread at all, a local disk
 * gets a few, and a slow network file system as many as the queue is deep. Threads stay until the
 * storage is closed; idle ones sleep in the queue.
 *
 * When not even the first thread can be started, mr_read_pool_start() does the read at once, on the
 * caller's thread: slow, but not an error.
 *
 * A done read goes to its reader's struct mr_finished, from whatever thread did it (a thread of a
 * pool, an I/O thread of the HTTP client), and the reader reaps it from there.
 */
#ifndef MR_READ_POOL_H
#define MR_READ_POOL_H

#include "storage/private.h"

#define MR_POOL_THREADS 64

/* Done reads of one reader. Zeroed, then opened. */
struct mr_finished {
    pthread_mutex_t lock; /* guards reads; taken alone */
    pthread_cond_t some;
    struct mr_read_list reads;
};

int mr_finished_open(struct mr_finished *done); /* 0 or the error */
void mr_finished_close(struct mr_finished *done);
/* Any thread. The read is its reader's again, and may be gone, when this returns. */
void mr_finished_put(struct mr_finished *done, struct mr_read *read);
/* As the reap hook of a store. */
uint32_t mr_finished_reap(struct mr_finished *done, struct mr_read **out, uint32_t cap,
                          uint64_t until_ns);

struct mr_read_pool {
    void (*run)(void *user, struct mr_read *read); /* does a read; blocks */
    void (*end)(struct mr_read *read);             /* gives it back, on a thread of the pool */
    void *user;
    const char *name;         /* of the threads */
    struct mr_queue *queue;   /* of struct mr_read; room for all in flight */
    _Atomic uint32_t pending; /* reads in the queue or in run() */
    pthread_mutex_t lock;     /* guards what follows; taken alone */
    uint32_t n_threads, max_threads;
    pthread_t thread[MR_POOL_THREADS];
};

/* run, end, user and name are set. depth: reads in flight at most. 0 or the error; then it must not
 * be closed. */
int mr_read_pool_open(struct mr_read_pool *pool, uint32_t depth);
void mr_read_pool_close(struct mr_read_pool *pool); /* nothing is pending */
/* false: end() will be called. true: run() was done on this thread, and end() is not called. */
bool mr_read_pool_start(struct mr_read_pool *pool, struct mr_read *read);

#endif
