/* The disk cache's own: shared by its parts. */
#ifndef MR_DISK_CACHE_H
#define MR_DISK_CACHE_H

#include "storage/http.h"

struct mr_disk_cache {
    char *dir;
    int fd; /* of dir */
    uint64_t limit;
    _Atomic uint64_t *used;    /* bytes of all files, shared by all processes: mapped from the file "used" */
    _Atomic uint64_t retry_ns; /* after a failed write: when to try again */
    _Atomic uint32_t next_tmp;
    pthread_mutex_t lock; /* guards busy; taken alone */
    pthread_cond_t ended;
    struct mr_disk_busy *busy; /* chunks that are being fetched */
};

/* Counts bytes as used; when that is over the limit, makes room. false: there is none. */
bool mr_disk_cache_reserve(struct mr_disk_cache *cache, uint64_t bytes);
/* Counts what is there and removes what nobody will finish. 0 or the error. */
int mr_disk_cache_survey(struct mr_disk_cache *cache);

#endif
