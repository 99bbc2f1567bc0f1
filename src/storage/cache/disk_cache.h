/* The disk cache's own: shared by its parts. */
#ifndef MR_STORAGE_CACHE_DISK_CACHE_H
#define MR_STORAGE_CACHE_DISK_CACHE_H

#include "storage/http/http.h"

#define MR_DISK_HEAD 1024u /* no file has more bytes besides those of its chunk */

struct mr_disk_cache {
    char *dir;
    int fd; /* of dir */
    uint64_t limit;
    _Atomic uint64_t
        *used; /* bytes of all files, shared by all processes: mapped from the file "used" */
    _Atomic uint64_t retry_ns; /* after a failed write: next try; 0: none failed; 1: over */
    _Atomic uint32_t next_tmp;
    pthread_mutex_t lock; /* guards fetches; taken alone */
    pthread_cond_t ended;
    struct mr_disk_fetch *fetches; /* chunks that are being fetched */
    int64_t opened_ns;             /* wall clock, as files have it */
    _Atomic bool outgrown;         /* room was made by removing what was used since then */
};

/*
 * The file "lock" is held shared by whoever adds or removes a file and counts it, and alone by who counts all of them: so what is
 * counted is what is there, whichever process comes or goes. Who dies gives it back; what it had counted for nothing the next
 * survey sets right.
 */
/* The lock, shared: a descriptor, to be closed. -1: it cannot be had in a time that is worth waiting. */
int mr_disk_cache_lock(struct mr_disk_cache *cache);
/* Counts bytes as used; when that is over the limit, makes room. Returns the held lock, -ENOSPC:
 * there is no room, or another negative errno. */
int mr_disk_cache_reserve(struct mr_disk_cache *cache, uint64_t bytes);
/* A write failed: for a while nothing is stored. It is no error of the reader's. */
void mr_disk_cache_failed(struct mr_disk_cache *cache, int errnum);
/* Counts what is there and removes what nobody will finish. 0 or the error. */
int mr_disk_cache_survey(struct mr_disk_cache *cache);

#endif
