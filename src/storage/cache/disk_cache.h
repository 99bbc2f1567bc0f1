/* The disk cache's own: shared by its parts. */
#ifndef MR_STORAGE_CACHE_DISK_CACHE_H
#define MR_STORAGE_CACHE_DISK_CACHE_H

#include "storage/http/http.h"

#define MR_DISK_BUFFERS 16    /* of chunks, kept for the next ones */
#define MR_DISK_HEAD    1024u /* no file has more bytes besides those of its chunk */

struct mr_disk_cache {
    char *dir;
    int fd; /* of dir */
    uint64_t limit;
    /* bytes of all files: mapped from the file "used", shared by all processes */
    _Atomic uint64_t *used;
    _Atomic uint64_t retry_ns; /* after a failed write: next try; 0: none failed; 1: over */
    _Atomic uint32_t next_tmp;
    pthread_mutex_t lock; /* guards fetches; taken alone */
    pthread_cond_t ended;
    struct mr_disk_fetch *fetches;           /* chunks that are being fetched */
    _Atomic(void *) buffer[MR_DISK_BUFFERS]; /* that are free, for a chunk each */
    int64_t opened_ns;                       /* wall clock, as files have it */
    _Atomic bool outgrown;                   /* files that were used since then have been evicted */
    /* Of this process, and of late: see disk_cache_worth.c. */
    _Atomic uint64_t stored_bytes, hit_bytes, n_hits, age_sum, n_stored;
    _Atomic uint64_t *stored; /* when a chunk was stored: by its key, 2^stored_bits of them */
    unsigned stored_bits;
};

/*
 * A process that adds or removes a file, and counts it, holds a shared lock on the file "lock"; a
 * process that counts all files holds it exclusively. So the count is consistent whichever
 * processes come and go. A process that dies releases the lock; if its count was wrong, the next
 * survey corrects it.
 */
/* Takes the lock, shared. Returns a descriptor to be closed, or -1 if the lock is not free in
 * time. */
int mr_disk_cache_lock(struct mr_disk_cache *cache);
/* Counts bytes as used, and evicts files if that exceeds the limit. Returns the held lock, -ENOSPC
 * (not enough can be evicted), or another negative errno. */
int mr_disk_cache_reserve(struct mr_disk_cache *cache, uint64_t bytes);
/* Notes that a write failed: for a while nothing is stored. Readers get no error. */
void mr_disk_cache_failed(struct mr_disk_cache *cache, int errnum);
/* Whether whole chunks are worth their fetch. disk_cache_worth.c. */
int mr_disk_worth_open(struct mr_disk_cache *cache);
void mr_disk_worth_stored(struct mr_disk_cache *cache, const struct mr_disk_key *key,
                          uint64_t bytes);
void mr_disk_worth_hit(struct mr_disk_cache *cache, const struct mr_disk_key *key, uint64_t bytes);
bool mr_disk_worth_it(struct mr_disk_cache *cache);
/* Counts all files and removes abandoned temporary ones. 0 or the error. */
int mr_disk_cache_survey(struct mr_disk_cache *cache);

#endif
