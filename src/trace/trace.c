/*
 * Records spans and counters: one ring of records per thread, without a lock on the writer's side.
 * Under `millrace profile` every record is also passed to the profiler's recorder, whether or not a
 * trace is running.
 *
 * A writer sets `writing`, then reads `on`; mr_trace_stop() clears `on`, then waits until no
 * `writing` is set. All four are sequentially consistent, so either the writer sees that the trace
 * is off, or stop sees the writer. After the wait, stop has exclusive access to the threads' data
 * (records, next, n).
 */
#include "trace/trace.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define DEFAULT_SPANS 65536

struct track {
    struct track *next; /* in all_tracks */
    char name[32];      /* guarded by `lock` */
    int32_t tid;
    bool ended; /* guarded by `lock`: the thread has exited, but its records are still needed */
    atomic_bool writing;
    struct mr_trace_record *records; /* NULL until the thread records something in this trace */
    uint32_t capacity, next_record;
    uint64_t n_written, n_lost;
};

static atomic_bool on;
/* guards the three below; no other lock is taken inside */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct track *all_tracks;
static uint32_t ring_capacity;
static bool running; /* from start to the end of stop; `on` is cleared earlier */

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* its destructor detects threads that exit */
static bool key_made;
static _Thread_local struct track *own_track;

/* The caller holds the lock. */
static void remove_track(struct track *track)
{
    struct track **at = &all_tracks;
    while (*at != track)
        at = &(*at)->next;
    *at = track->next;
    free(track->records);
    free(track);
}

static void end_thread(void *arg)
{
    struct track *track = arg;
    pthread_mutex_lock(&lock);
    own_track = NULL;
    if (running && track->records)
        track->ended = true;
    else
        remove_track(track);
    pthread_mutex_unlock(&lock);
}

/* A trace is its process's. In a forked child none runs; the lock, and the tracks of threads that
 * are not there, are as the fork found them. */
static void in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    atomic_store(&on, false);
    running = false;
    all_tracks = own_track;
    if (!own_track)
        return;
    own_track->next = NULL;
    own_track->tid = gettid();
    free(own_track->records);
    own_track->records = NULL;
    own_track->n_written = own_track->n_lost = 0;
    atomic_store(&own_track->writing, false);
}

static void make_key(void)
{
    pthread_atfork(NULL, NULL, in_child);
    key_made = pthread_key_create(&key, end_thread) == 0;
}

/* The calling thread's track; NULL if out of memory. */
static struct track *get_track(void)
{
    if (own_track)
        return own_track;
    pthread_once(&key_once, make_key);
    struct track *track = key_made ? calloc(1, sizeof *track) : NULL;
    if (!track)
        return NULL;
    if (pthread_setspecific(key, track)) {
        free(track);
        return NULL;
    }
    track->tid = gettid();
    prctl(PR_GET_NAME, track->name);
    pthread_mutex_lock(&lock);
    track->next = all_tracks;
    all_tracks = track;
    pthread_mutex_unlock(&lock);
    own_track = track;
    return track;
}

/* Called once per thread and trace, with `writing` set. */
static bool make_ring(struct track *track)
{
    pthread_mutex_lock(&lock);
    uint32_t capacity = ring_capacity;
    struct mr_trace_record *records = calloc(capacity, sizeof *records);
    /* end_thread() reads it only in this thread; stop waits for `writing` */
    track->records = records;
    track->capacity = capacity;
    track->next_record = 0;
    track->n_written = 0;
    pthread_mutex_unlock(&lock);
    return records != NULL;
}

static void put(struct track *track, const struct mr_trace_record *record)
{
    if (!track->records && !make_ring(track)) {
        track->n_lost++;
        return;
    }
    track->records[track->next_record] = *record;
    track->next_record = track->next_record + 1 == track->capacity ? 0 : track->next_record + 1;
    track->n_written++;
}

static void record(const struct mr_trace_record *what)
{
    struct track *track = get_track();
    if (!track)
        return;
    atomic_store(&track->writing, true);
    if (atomic_load(&on))
        put(track, what);
    atomic_store_explicit(&track->writing, false, memory_order_release);
}

static bool running_now(void)
{
    return atomic_load_explicit(&on, memory_order_relaxed);
}

int mr_trace_on(void)
{
    return running_now() || mr_trace_recorder();
}

void mr_trace_thread(const char *name)
{
    if (!name)
        return;
    const struct mr_recorder *recorder = mr_trace_recorder();
    if (recorder)
        recorder->thread(name);
    struct track *track = get_track();
    if (!track)
        return;
    pthread_mutex_lock(&lock);
    snprintf(track->name, sizeof track->name, "%s", name);
    pthread_mutex_unlock(&lock);
}

void mr_trace_span(const char *name, uint64_t start_ns, uint64_t end_ns, const char *arg_name,
                   uint64_t arg)
{
    if (!name)
        return;
    const struct mr_recorder *recorder = mr_trace_recorder();
    if (recorder)
        recorder->span(NULL, name, start_ns, end_ns, arg_name, arg);
    if (!running_now())
        return;
    record(&(struct mr_trace_record){.name = name,
                                     .arg_name = arg_name,
                                     .start_ns = start_ns,
                                     .end_ns = end_ns,
                                     .arg = arg,
                                     .kind = MR_TRACE_SPAN});
}

void mr_trace_span_on(const char *track, const char *name, uint64_t start_ns, uint64_t end_ns,
                      const char *arg_name, uint64_t arg)
{
    if (!track || !name)
        return;
    const struct mr_recorder *recorder = mr_trace_recorder();
    if (recorder)
        recorder->span(track, name, start_ns, end_ns, arg_name, arg);
    mr_trace_span_here(track, name, start_ns, end_ns, arg_name, arg);
}

void mr_trace_span_here(const char *track, const char *name, uint64_t start_ns, uint64_t end_ns,
                        const char *arg_name, uint64_t arg)
{
    if (!running_now())
        return;
    record(&(struct mr_trace_record){.name = name,
                                     .track = track,
                                     .arg_name = arg_name,
                                     .start_ns = start_ns,
                                     .end_ns = end_ns,
                                     .arg = arg,
                                     .kind = MR_TRACE_SPAN_ON});
}

void mr_trace_counter(const char *name, uint64_t time_ns, int64_t value)
{
    if (!name)
        return;
    const struct mr_recorder *recorder = mr_trace_recorder();
    if (recorder)
        recorder->counter(name, time_ns, value);
    if (!running_now())
        return;
    record(&(struct mr_trace_record){.name = name,
                                     .start_ns = time_ns,
                                     .end_ns = time_ns,
                                     .arg = (uint64_t)value,
                                     .kind = MR_TRACE_COUNTER});
}

int mr_trace_start(uint32_t spans_per_thread)
{
    pthread_once(&key_once, make_key);
    pthread_mutex_lock(&lock);
    bool was_running = running;
    if (!was_running) {
        running = true;
        ring_capacity = spans_per_thread ? spans_per_thread : DEFAULT_SPANS;
        atomic_store(&on, true);
    }
    pthread_mutex_unlock(&lock);
    return was_running
               ? mr_error_set(MR_EMISUSE, "mr_trace_start: a trace runs already; stop it first")
               : 0;
}

/* The caller holds the lock. It is released while waiting: a thread in make_ring() has set
 * `writing` and needs it. */
static void wait_for_writers(void)
{
    for (struct track *t = all_tracks; t;) {
        if (!atomic_load(&t->writing)) {
            t = t->next;
            continue;
        }
        pthread_mutex_unlock(&lock);
        sched_yield();
        pthread_mutex_lock(&lock);
        t = all_tracks; /* the list may have changed */
    }
}

/* The ring's records, oldest first. The caller holds the lock. */
static void view(const struct track *track, struct mr_trace_thread *out)
{
    memcpy(out->name, track->name, sizeof out->name);
    out->tid = track->tid;
    bool full = track->n_written > track->capacity;
    out->run[0] = full ? track->records + track->next_record : track->records;
    out->n[0] = full ? track->capacity - track->next_record : track->n_written;
    out->run[1] = track->records;
    out->n[1] = full ? track->next_record : 0;
}

/* The caller holds the lock. path: NULL to only count. */
static int write_tracks(const char *path, uint64_t *out_lost)
{
    uint64_t n = 0, lost = 0;
    for (struct track *t = all_tracks; t; t = t->next) {
        n += t->records != NULL;
        lost += t->n_lost + (t->n_written > t->capacity ? t->n_written - t->capacity : 0);
    }
    *out_lost = lost;
    if (!path)
        return 0;
    struct mr_trace_thread *threads = calloc(n + 1, sizeof *threads);
    if (!threads)
        return mr_error_nomem("trace: threads", (n + 1) * sizeof *threads);
    uint64_t i = 0;
    for (struct track *t = all_tracks; t; t = t->next) {
        if (t->records)
            view(t, &threads[i++]);
    }
    int rc = mr_trace_write_perfetto(path, threads, n);
    free(threads);
    return rc;
}

/* The caller holds the lock. */
static void clear_tracks(void)
{
    for (struct track *t = all_tracks, *next; t; t = next) {
        next = t->next;
        if (t->ended) {
            remove_track(t);
            continue;
        }
        free(t->records);
        t->records = NULL;
        t->capacity = 0;
        t->n_written = t->n_lost = 0;
    }
}

int mr_trace_stop(const char *path, uint64_t *out_lost)
{
    uint64_t lost = 0;
    pthread_mutex_lock(&lock);
    if (!atomic_load(&on)) {
        pthread_mutex_unlock(&lock);
        return mr_error_set(MR_EMISUSE, "mr_trace_stop: no trace runs");
    }
    atomic_store(&on, false);
    wait_for_writers();
    int rc = write_tracks(path, &lost);
    clear_tracks();
    running = false;
    pthread_mutex_unlock(&lock);
    if (rc >= 0 && out_lost)
        *out_lost = lost;
    return rc;
}
