/* Loaders and their batches, with counts of who uses them. No function here needs the GIL. */
#include "lease.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct core_engine *all;
static int ending;
static pid_t here;  /* this process, without a system call for each batch */
static int watched; /* forks change it */

/* A child has none of its parent's loaders, and perhaps a copy of a lock that was held. */
static void begin_child(void)
{
    here = getpid();
    pthread_mutex_init(&all_lock, NULL);
    all = NULL;
}

static void watch_forks(void)
{
    here = getpid();
    watched = pthread_atfork(NULL, NULL, begin_child) == 0;
}

static int is_forked(const struct core_engine *engine)
{
    return engine->pid != (watched ? here : getpid());
}

/* Returns 0 if no more may be opened. */
static int enlist(struct core_engine *engine)
{
    pthread_mutex_lock(&all_lock);
    int open = !ending;
    if (open) {
        engine->next = all;
        if (all)
            all->before = engine;
        all = engine;
    }
    pthread_mutex_unlock(&all_lock);
    return open;
}

static void destroy(struct core_engine *engine)
{
    core_device_put(engine->device);
    pthread_cond_destroy(&engine->idle);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
}

struct core_engine *core_engine_create(struct mr_loader *loader, struct core_device *device)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    struct core_engine *engine = calloc(1, sizeof *engine);
    if (!engine) {
        mr_loader_close(loader);
        core_device_put(device);
        return NULL;
    }
    atomic_init(&engine->refs, 1);
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->idle, NULL);
    engine->pid = getpid();
    engine->loader = loader;
    engine->device = device;
    if (enlist(engine))
        return engine;
    mr_loader_close(loader);
    destroy(engine);
    return NULL;
}

void core_engine_put(struct core_engine *engine)
{
    if (!engine || atomic_fetch_sub(&engine->refs, 1) != 1 || is_forked(engine))
        return;
    core_engine_close(engine);
    destroy(engine);
}

/* Behind the stream that used it or, if that is being captured, behind all streams. */
static int release(struct core_lease *lease)
{
    struct core_engine *engine = lease->engine;
    int rc = mr_loader_release(engine->loader, &lease->batch, lease->used);
    if (rc < 0 && lease->used)
        rc = mr_loader_release(engine->loader, &lease->batch,
                               mr_stream_any(core_device_of(engine->device)));
    return rc;
}

static void free_late(struct core_engine *engine)
{
    while (engine->late) {
        struct core_lease *lease = engine->late;
        engine->late = lease->next;
        free(lease);
    }
}

static void release_late(struct core_engine *engine)
{
    struct core_lease *late = engine->late;
    engine->late = NULL;
    while (late) {
        struct core_lease *lease = late;
        late = lease->next;
        if (release(lease) == 0) {
            free(lease);
            continue;
        }
        lease->next = engine->late; /* on one of its own threads still */
        engine->late = lease;
    }
}

struct mr_loader *core_engine_enter(struct core_engine *engine)
{
    if (is_forked(engine)) /* it says so itself */
        return engine->closing ? NULL : engine->loader;
    pthread_mutex_lock(&engine->lock);
    struct mr_loader *loader = engine->closing ? NULL : engine->loader;
    engine->calls += loader != NULL;
    if (loader && engine->late)
        release_late(engine);
    pthread_mutex_unlock(&engine->lock);
    return loader;
}

void core_engine_leave(struct core_engine *engine)
{
    if (is_forked(engine))
        return;
    pthread_mutex_lock(&engine->lock);
    if (--engine->calls == 0)
        pthread_cond_broadcast(&engine->idle);
    pthread_mutex_unlock(&engine->lock);
}

static void unlist(struct core_engine *engine)
{
    pthread_mutex_lock(&all_lock);
    if (engine->before)
        engine->before->next = engine->next;
    else
        all = engine->next;
    if (engine->next)
        engine->next->before = engine->before;
    pthread_mutex_unlock(&all_lock);
}

/* Each batch that is out gets a tensor that keeps its memory. Without memory for one it is lost:
 * its lease keeps nothing, so nothing may be read from it any more. */
static void keep_all(struct core_engine *engine)
{
    for (struct core_lease *lease = engine->leases; lease; lease = lease->next)
        if (mr_batch_to_dlpack(&lease->batch, 0, MR_DLPACK_DATA, lease->used, &lease->keeper) < 0)
            lease->keeper = NULL;
}

void core_engine_close(struct core_engine *engine)
{
    if (is_forked(engine)) {
        engine->closing = 1;
        return;
    }
    pthread_mutex_lock(&engine->lock);
    int mine = !engine->closing;
    engine->closing = 1;
    if (mine && engine->calls > 0)
        mr_loader_cancel(engine->loader);
    if (mine && engine->calls > 0 && engine->server)
        mr_server_cancel(engine->server);
    while (engine->calls > 0 || (!mine && engine->loader))
        pthread_cond_wait(&engine->idle, &engine->lock);
    struct mr_loader *loader = mine ? engine->loader : NULL;
    if (loader)
        mr_server_close(engine->server);
    if (loader)
        keep_all(engine);
    pthread_mutex_unlock(&engine->lock);
    if (!loader)
        return;
    unlist(engine);
    mr_loader_close(loader);
    free_late(engine);
    pthread_mutex_lock(&engine->lock);
    engine->loader = NULL;
    pthread_cond_broadcast(&engine->idle);
    pthread_mutex_unlock(&engine->lock);
}

void core_engine_wait(struct core_engine *engine, uint64_t timeout_ns)
{
    struct timespec end;
    if (is_forked(engine))
        return;
    clock_gettime(CLOCK_REALTIME, &end);
    uint64_t ns = (uint64_t)end.tv_nsec + timeout_ns % 1000000000;
    end.tv_sec += (time_t)(timeout_ns / 1000000000 + ns / 1000000000);
    end.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&engine->lock);
    while (engine->loader && pthread_cond_timedwait(&engine->idle, &engine->lock, &end) == 0)
        ;
    pthread_mutex_unlock(&engine->lock);
}

/* The thread of the last user closes the engine. */
static int share_living(struct core_engine *engine)
{
    unsigned refs = atomic_load(&engine->refs);
    while (refs > 0)
        if (atomic_compare_exchange_weak(&engine->refs, &refs, refs + 1))
            return 1;
    return 0;
}

void core_engine_close_all(void)
{
    for (;;) {
        pthread_mutex_lock(&all_lock);
        ending = 1;
        struct core_engine *engine = all;
        while (engine && !share_living(engine))
            engine = engine->next;
        pthread_mutex_unlock(&all_lock);
        if (!engine)
            return;
        core_engine_close(engine);
        core_engine_put(engine);
    }
}

/* ---- leases ---- */

/* Page-locked memory may be copied from in any stream, behind the host's back. */
static struct mr_stream *first_use(struct core_engine *engine, const struct mr_batch *batch,
                                   struct mr_stream *arrived)
{
    int locked = core_device_ordinal(engine->device) >= 0 && batch->n_fields > 0 &&
                 batch->field[0].data == batch->field[0].host;
    return arrived || !locked ? arrived : mr_stream_any(core_device_of(engine->device));
}

/* Bytes of a batch up to its last field; those behind it, most of the struct, are not set. */
static size_t used_part(const struct mr_batch *batch)
{
    return offsetof(struct mr_batch, field) + (size_t)batch->n_fields * sizeof batch->field[0];
}

struct core_lease *core_lease_create(struct core_engine *engine, const struct mr_batch *batch,
                                     struct mr_stream *arrived)
{
    struct core_lease *lease = malloc(sizeof *lease);
    if (!lease) {
        struct mr_batch back = *batch;
        mr_loader_release(engine->loader, &back, arrived);
        return NULL;
    }
    memset(lease, 0, offsetof(struct core_lease, batch));
    memcpy(&lease->batch, batch, used_part(batch));
    atomic_init(&lease->refs, 1);
    atomic_fetch_add(&engine->refs, 1);
    lease->engine = engine;
    lease->device = engine->device;
    lease->lock = &engine->lock;
    lease->arrived = arrived;
    lease->used = first_use(engine, batch, arrived);
    pthread_mutex_lock(&engine->lock);
    lease->next = engine->leases;
    if (engine->leases)
        engine->leases->before = lease;
    engine->leases = lease;
    pthread_mutex_unlock(&engine->lock);
    return lease;
}

struct core_lease *core_lease_alloc(uint64_t bytes)
{
    struct core_lease *lease = calloc(1, sizeof *lease);
    if (lease)
        lease->own = aligned_alloc(64, (bytes + 64) & ~(uint64_t)63);
    if (!lease || !lease->own) {
        free(lease);
        return NULL;
    }
    atomic_init(&lease->refs, 1);
    return lease;
}

struct core_lease *core_lease_borrow(void (*end)(void *user), void *user)
{
    struct core_lease *lease = calloc(1, sizeof *lease);
    if (!lease)
        return NULL;
    atomic_init(&lease->refs, 1);
    lease->end = end;
    lease->user = user;
    return lease;
}

struct core_lease *core_lease_share(struct core_lease *lease)
{
    atomic_fetch_add(&lease->refs, 1);
    return lease;
}

static void take_off(struct core_lease *lease)
{
    struct core_engine *engine = lease->engine;
    if (lease->before)
        lease->before->next = lease->next;
    else
        engine->leases = lease->next;
    if (lease->next)
        lease->next->before = lease->before;
}

static void end_keepers(struct core_lease *lease)
{
    if (lease->lacks_second)
        mr_stream_synchronize(mr_stream_any(core_device_of(lease->engine->device)));
    if (lease->second)
        lease->second->deleter(lease->second);
    if (lease->keeper)
        lease->keeper->deleter(lease->keeper);
}

/* Returns whether the lease can be freed: not if its batch has to be released later. */
static int give_back(struct core_lease *lease)
{
    struct core_engine *engine = lease->engine;
    if (is_forked(engine)) /* the parent gives its own copy back */
        return 1;
    pthread_mutex_lock(&engine->lock);
    take_off(lease);
    int is_late = !engine->closing && release(lease) < 0 && core_source_thread;
    if (is_late) {
        lease->next = engine->late;
        engine->late = lease;
    }
    pthread_mutex_unlock(&engine->lock);
    end_keepers(lease);
    core_engine_put(engine);
    return !is_late;
}

void core_lease_put(struct core_lease *lease)
{
    if (!lease || atomic_fetch_sub(&lease->refs, 1) != 1)
        return;
    if (lease->engine && !give_back(lease))
        return;
    if (lease->end)
        lease->end(lease->user);
    free(lease->own);
    free(lease);
}

void core_lease_use(struct core_lease *lease, struct mr_stream *stream)
{
    if (!lease->device)
        return;
    pthread_mutex_lock(lease->lock);
    struct mr_stream *before = lease->used, *any = mr_stream_any(core_device_of(lease->device));
    if (!before)
        lease->used = stream;
    else if (before != stream)
        lease->used = any;
    if (lease->keeper && lease->used != before && !lease->second)
        lease->lacks_second =
            mr_batch_to_dlpack(&lease->batch, 0, MR_DLPACK_DATA, any, &lease->second) < 0;
    pthread_mutex_unlock(lease->lock);
}
