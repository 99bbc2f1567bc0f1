/*
 * API calls joined to what they made: (process, correlation), without an index, which exports don't
 * have. Workers gather calls in blocks and hand them over under a lock; a hash table of 4 bytes a
 * slot finds them.
 */
#include "report/report.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>

#define BLOCK 1024

struct found {
    struct mr_call call;
    uint64_t global_tid;
};

struct worker {
    struct mr_calls *calls;
    pthread_mutex_t *lock; /* guards calls */
    const struct mr_keymap *wanted;
    uint32_t classes;
    struct mr_keymap names; /* of StringIds -> class */
    uint8_t *class_of;
    uint64_t class_capacity;
    uint32_t n;
    struct found block[BLOCK];
};

/* In a table without names calls are others. */
static int ask_class(struct sqlite3 *db, int64_t name, uint8_t *out)
{
    struct sqlite3_stmt *find = NULL;
    const char *text = NULL;
    int code = sqlite3_prepare_v2(db, "SELECT value FROM StringIds WHERE id = ?1", -1, &find, NULL);
    if (code == SQLITE_OK) {
        sqlite3_bind_int64(find, 1, name);
        code = sqlite3_step(find);
        text = code == SQLITE_ROW ? (const char *)sqlite3_column_text(find, 0) : NULL;
        code = code == SQLITE_ROW && (text || sqlite3_errcode(db) != SQLITE_NOMEM) ? SQLITE_DONE
                                                                                   : code;
    }
    *out = text ? (uint8_t)mr_call_class_of(text) : (uint8_t)MR_CALL_OTHER;
    int rc = code == SQLITE_DONE || code == SQLITE_ERROR
                 ? 0
                 : mr_recording_error(db, "names of calls", "cannot be read");
    sqlite3_finalize(find);
    return rc;
}

/* Asks the worker's own connection. */
static int class_of(struct worker *w, struct sqlite3_stmt *stmt, int64_t name, uint32_t *out)
{
    uint32_t before = w->names.n, i = mr_keymap_put(&w->names, (struct mr_key){(uint64_t)name, 0});
    if (i == MR_NONE)
        return -ENOMEM;
    if (i < before) {
        *out = w->class_of[i];
        return 0;
    }
    if (mr_grow("names of calls", &w->class_of, &w->class_capacity, i + 1ull, 1) < 0)
        return -ENOMEM;
    int rc = ask_class(sqlite3_db_handle(stmt), name, &w->class_of[i]);
    *out = w->class_of[i];
    return rc;
}

static int keep_call(struct mr_calls *c, const struct mr_call *call)
{
    if (mr_grow("API calls", &c->calls, &c->capacity, c->n + 1, sizeof *c->calls) < 0)
        return -ENOMEM;
    c->calls[c->n++] = *call;
    return 0;
}

static int keep_sync(struct mr_calls *c, const struct mr_call *call)
{
    if (mr_grow("API calls", &c->syncs, &c->syncs_capacity, c->n_syncs + 1, sizeof *c->syncs) < 0)
        return -ENOMEM;
    struct mr_sync *sync = &c->syncs[c->n_syncs++];
    sync->start = call->start;
    sync->end = call->end;
    sync->thread = call->thread;
    atomic_init(&sync->last_launch, 0);
    return 0;
}

static int hand_over(struct worker *w)
{
    int rc = 0;
    pthread_mutex_lock(w->lock);
    for (uint32_t i = 0; i < w->n && rc == 0; i++) {
        struct mr_call *call = &w->block[i].call;
        call->thread =
            mr_keymap_put(&w->calls->threads, (struct mr_key){w->block[i].global_tid, 0});
        if (call->thread == MR_NONE)
            rc = -ENOMEM;
        else
            rc = call->sync ? keep_sync(w->calls, call) : keep_call(w->calls, call);
    }
    pthread_mutex_unlock(w->lock);
    w->n = 0;
    return rc;
}

static int add(struct worker *w, struct found found)
{
    w->block[w->n++] = found;
    return w->n == BLOCK ? hand_over(w) : 0;
}

/* start, end, globalTid, correlationId, nameId, eventClass */
static int add_row(void *state, struct sqlite3_stmt *stmt)
{
    struct worker *w = state;
    struct found found = {.global_tid = (uint64_t)sqlite3_column_int64(stmt, 2)};
    struct mr_call *call = &found.call;
    call->start = (uint64_t)sqlite3_column_int64(stmt, 0);
    call->end = MR_MAX(call->start, (uint64_t)sqlite3_column_int64(stmt, 1));
    call->correlation = (uint32_t)sqlite3_column_int64(stmt, 3);
    call->name = (uint32_t)sqlite3_column_int64(stmt, 4);
    call->driver = sqlite3_column_int64(stmt, 5) == 1;
    uint32_t class;
    int rc = class_of(w, stmt, call->name, &class);
    if (rc < 0)
        return rc;
    if (w->wanted && class == MR_CALL_SYNC) {
        call->sync = true;
        rc = add(w, found);
        call->sync = false;
    }
    bool take = w->wanted ? mr_keymap_get(w->wanted, (struct mr_key){found.global_tid >> 24,
                                                                     call->correlation}) != MR_NONE
                          : w->classes >> class & 1;
    return rc || !take ? rc : add(w, found);
}

static uint64_t process_of(const struct mr_calls *c, const struct mr_call *call)
{
    return c->threads.keys[call->thread].a >> 24;
}

static uint64_t bucket_of(const struct mr_calls *c, uint64_t process, uint32_t correlation)
{
    /* neighbours in correlation lie in one cache line, and are asked for one after the other */
    uint64_t mask = c->n_buckets - 1;
    uint64_t b = (mr_mix64(process << 32 ^ correlation >> 4) << 4 | (correlation & 15)) & mask;
    while (c->buckets[b]) {
        const struct mr_call *call = &c->calls[c->buckets[b] - 1];
        if (call->correlation == correlation && process_of(c, call) == process)
            break;
        b = (b + 1) & mask;
    }
    return b;
}

static int index_calls(struct mr_calls *c)
{
    if (c->n > UINT32_MAX / 4)
        return mr_error_set(MR_EUNSUPPORTED,
                            "more than a billion API calls: give a window with --from and --to");
    for (c->n_buckets = 64; c->n_buckets < 2 * c->n;)
        c->n_buckets *= 2;
    c->buckets = calloc(c->n_buckets, sizeof *c->buckets);
    if (!c->buckets)
        return mr_error_nomem("API calls", c->n_buckets * sizeof *c->buckets);
    for (uint64_t i = 0; i < c->n; i++) {
        uint64_t b = bucket_of(c, process_of(c, &c->calls[i]), c->calls[i].correlation);
        if (c->buckets[b] == 0 || (c->calls[c->buckets[b] - 1].driver && !c->calls[i].driver))
            c->buckets[b] = (uint32_t)i + 1;
    }
    return 0;
}

static int by_thread(const void *a, const void *b)
{
    const struct mr_sync *x = a, *y = b;
    if (x->thread != y->thread)
        return x->thread < y->thread ? -1 : 1;
    return x->start < y->start ? -1 : x->start > y->start;
}

static int scan(struct mr_calls *calls, struct mr_recording *recording, uint32_t classes,
                const struct mr_keymap *wanted, int (*row)(void *state, struct sqlite3_stmt *stmt))
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct worker *workers = calloc(MR_SCAN_THREADS, sizeof *workers);
    void *states[MR_SCAN_THREADS];
    if (!workers)
        return mr_error_nomem("API calls", MR_SCAN_THREADS * sizeof *workers);
    for (uint32_t i = 0; i < MR_SCAN_THREADS; i++) {
        workers[i].calls = calls;
        workers[i].lock = &lock;
        workers[i].classes = classes;
        workers[i].wanted = wanted;
        states[i] = &workers[i];
    }
    char sql[256];
    snprintf(sql, sizeof sql,
             "SELECT start, end, globalTid, correlationId, nameId, %s FROM " MR_TABLE_RUNTIME
             " WHERE",
             mr_sql_column(recording, MR_TABLE_RUNTIME, "eventClass", "0"));
    int rc = mr_scan(recording, MR_TABLE_RUNTIME, sql, row, states);
    for (uint32_t i = 0; i < MR_SCAN_THREADS; i++) {
        rc = rc ? rc : hand_over(&workers[i]);
        mr_keymap_free(&workers[i].names);
        free(workers[i].class_of);
    }
    free(workers);
    return rc;
}

int mr_calls_load(struct mr_calls *calls, struct mr_recording *recording, uint32_t classes,
                  const struct mr_keymap *wanted)
{
    *calls = (struct mr_calls){0};
    int rc = 0;
    if (mr_recording_has(recording, MR_TABLE_RUNTIME, "correlationId"))
        rc = scan(calls, recording, classes, wanted, add_row);
    rc = rc ? rc : index_calls(calls);
    if (rc)
        mr_calls_free(calls);
    else if (calls->n_syncs)
        qsort(calls->syncs, calls->n_syncs, sizeof *calls->syncs, by_thread);
    return rc;
}

const struct mr_call *mr_calls_find(const struct mr_calls *c, uint64_t process,
                                    uint32_t correlation)
{
    uint32_t i = c->buckets[bucket_of(c, process, correlation)];
    return i ? &c->calls[i - 1] : NULL;
}

uint64_t mr_calls_thread(const struct mr_calls *c, const struct mr_call *call)
{
    return c->threads.keys[call->thread].a;
}

struct mr_sync *mr_calls_next_sync(const struct mr_calls *c, uint32_t thread, uint64_t start)
{
    uint64_t low = 0, high = c->n_syncs;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const struct mr_sync *sync = &c->syncs[middle];
        if (sync->thread < thread || (sync->thread == thread && sync->start < start))
            low = middle + 1;
        else
            high = middle;
    }
    return low < c->n_syncs && c->syncs[low].thread == thread ? &c->syncs[low] : NULL;
}

static int mark_row(void *state, struct sqlite3_stmt *stmt)
{
    struct worker *w = state;
    uint32_t class;
    int rc = class_of(w, stmt, sqlite3_column_int64(stmt, 4), &class);
    if (rc < 0)
        return rc;
    if (class != MR_CALL_LAUNCH && class != MR_CALL_GRAPH_LAUNCH)
        return 0;
    uint64_t start = (uint64_t)sqlite3_column_int64(stmt, 0);
    uint32_t thread = mr_keymap_get(&w->calls->threads,
                                    (struct mr_key){(uint64_t)sqlite3_column_int64(stmt, 2), 0});
    struct mr_sync *sync = thread == MR_NONE ? NULL : mr_calls_next_sync(w->calls, thread, start);
    uint64_t last = sync ? atomic_load(&sync->last_launch) : 0;
    while (sync && last < start && !atomic_compare_exchange_weak(&sync->last_launch, &last, start))
        continue;
    return 0;
}

int mr_calls_mark_launches(struct mr_calls *calls, struct mr_recording *recording)
{
    return scan(calls, recording, 0, NULL, mark_row);
}

void mr_calls_free(struct mr_calls *c)
{
    free(c->calls);
    free(c->buckets);
    free(c->syncs);
    mr_keymap_free(&c->threads);
    *c = (struct mr_calls){0};
}
