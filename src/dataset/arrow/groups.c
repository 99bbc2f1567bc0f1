/*
 * Arrow tables whose groups of rows are loaded when they are needed.
 *
 * Loaded groups are in a list. Each counts its users: a worker uses the group of its latest sample
 * until it comes to another one, so that a run of neighbours takes no lock. A group that is needed
 * is loaded by the thread that comes first, without the lock; others wait for it. Then the groups
 * that were not used for the longest time go, until `keep` of them are left.
 */
#include "dataset/arrow/arrow.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum stage { LOADING, READY, FAILED };

struct group {
    struct group *next;
    uint64_t number, users, used; /* used: the state's clock */
    enum stage stage;
    struct ArrowArray chunk;
    struct mr_arrow_part part[MR_MAX_FIELDS];
    struct mr_error_kept error; /* FAILED */
};

struct state {
    struct mr_arrow_fields fields;
    struct mr_arrow_groups from; /* rows: not used */
    uint64_t *end;               /* of each group: the row after its last */
    struct ArrowSchema schema;   /* moved here once the set is open */
    bool opened;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a group is no longer LOADING */
    /* Under the lock. It is taken for each shuffled row, so nothing is searched under it. */
    struct group *group; /* the list of those that are loaded */
    struct group **at;   /* by number; NULL: not in the list */
    uint64_t n_idle;     /* groups without users */
    uint64_t clock;
};

/* What a worker keeps. */
struct held {
    struct group *group;
};

struct opts {
    size_t size; /* as the core wants it */
    const struct mr_arrow_opts *table;
    const struct mr_arrow_groups *groups;
};

/* ---- the list; its functions are called with the lock, but for free_groups() ---- */

/* The group to free next, among those not in use. With `failed`: one that could not be loaded, so
 * that a later read tries again. Else, if there are too many, the one used longest ago. NULL: none.
 */
static struct group **next_old(struct state *st, bool failed)
{
    struct group **oldest = NULL;
    if (!failed && st->n_idle <= st->from.keep)
        return NULL;
    for (struct group **at = &st->group; *at; at = &(*at)->next) {
        if ((*at)->users > 0)
            continue;
        if (failed && (*at)->stage == FAILED)
            return at;
        if (!oldest || (*at)->used < (*oldest)->used)
            oldest = at;
    }
    return st->n_idle > st->from.keep ? oldest : NULL;
}

/* Takes the groups out of the list that are too many. Returns them as a list. */
static struct group *take_old(struct state *st, bool failed)
{
    struct group *out = NULL;
    for (struct group **at; (at = next_old(st, failed));) {
        struct group *g = *at;
        *at = g->next;
        st->at[g->number] = NULL;
        st->n_idle--;
        g->next = out;
        out = g;
    }
    return out;
}

static void free_groups(struct group *g)
{
    while (g) {
        struct group *next = g->next;
        if (g->chunk.release)
            g->chunk.release(&g->chunk);
        free(g);
        g = next;
    }
}

/* ---- loading ---- */

static int load(const struct mr_dataset *ds, struct group *g)
{
    const struct state *st = ds->state;
    uint64_t errors = mr_error_count(), begin = mr_arrow_begin_of(st->end, g->number);
    struct mr_arrow_range range[MR_MAX_FIELDS] = {{0, 0}};
    int rc = st->from.load(st->from.user, g->number, &g->chunk);
    if (rc != 0) {
        g->chunk.release = NULL;
        return mr_callback_error(st->fields.name, "load", rc, 0, errors);
    }
    rc = mr_arrow_chunk_read(&st->fields, ds->field, &g->chunk, begin, range, g->part);
    if (rc < 0)
        return rc;
    if ((uint64_t)g->chunk.length != st->end[g->number] - begin)
        return mr_error_set(MR_EFORMAT, "%s: group %llu: %lld rows: expected %llu", st->fields.name,
                            (unsigned long long)g->number, (long long)g->chunk.length,
                            (unsigned long long)(st->end[g->number] - begin));
    return 0;
}

/* Loads a group that is in the list, and lets those that wait for it go on. */
static void load_for_all(const struct mr_dataset *ds, struct state *st, struct group *g)
{
    int rc = load(ds, g);
    if (rc < 0)
        mr_error_keep(rc, &g->error);
    pthread_mutex_lock(&st->lock);
    g->stage = rc < 0 ? FAILED : READY;
    pthread_cond_broadcast(&st->changed);
    struct group *old = take_old(st, true);
    pthread_mutex_unlock(&st->lock);
    free_groups(old);
}

/* Gets a group, to be given back by give(). Returns 0, -ENOMEM, or why it can't be loaded. */
static int take(const struct mr_dataset *ds, uint64_t number, struct group **out)
{
    struct state *st = ds->state;
    pthread_mutex_lock(&st->lock);
    struct group *g = st->at[number];
    bool mine = !g;
    if (mine) {
        g = calloc(1, sizeof *g);
        if (!g) {
            pthread_mutex_unlock(&st->lock);
            return mr_error_nomem(st->fields.name, sizeof *g);
        }
        g->number = number;
        g->next = st->group;
        st->group = st->at[number] = g;
    } else if (g->users == 0) {
        st->n_idle--;
    }
    g->users++;
    g->used = ++st->clock;
    while (!mine && g->stage == LOADING)
        pthread_cond_wait(&st->changed, &st->lock);
    pthread_mutex_unlock(&st->lock);
    if (mine)
        load_for_all(ds, st, g);
    *out = g;
    return 0;
}

static void give(struct state *st, struct group *g)
{
    if (!g)
        return;
    pthread_mutex_lock(&st->lock);
    st->n_idle += --g->users == 0;
    struct group *old = take_old(st, false);
    pthread_mutex_unlock(&st->lock);
    free_groups(old);
}

/* ---- the ops ---- */

static int enter(const struct mr_dataset *ds, uint32_t worker, void **out)
{
    const struct state *st = ds->state;
    (void)worker;
    *out = calloc(1, sizeof(struct held));
    return *out ? 0 : mr_error_nomem(st->fields.name, sizeof(struct held));
}

static void leave(const struct mr_dataset *ds, uint32_t worker, void *worker_state)
{
    struct held *held = worker_state;
    (void)worker;
    give(ds->state, held->group);
    free(held);
}

/* A worker turns to a group. Returns 0, -ENOMEM, or why it can't be loaded. */
static int use(const struct mr_dataset *ds, struct held *held, uint64_t number)
{
    if (held->group && held->group->number == number)
        return 0;
    give(ds->state, held->group);
    held->group = NULL;
    return take(ds, number, &held->group);
}

static int get(const struct mr_dataset *ds, uint64_t index, struct mr_sample *out)
{
    struct state *st = ds->state;
    struct held *held = out->worker_state;
    uint64_t number = mr_arrow_chunk_of(st->end, st->from.n_groups, index);
    int rc = use(ds, held, number);
    if (rc < 0)
        return rc;
    struct group *g = held->group;
    if (g->stage == FAILED)
        return mr_error_put(&g->error);
    /* without a worker, the group is given back before the sample is used */
    return mr_arrow_sample(ds, &st->fields, g->part, index - mr_arrow_begin_of(st->end, number),
                           index, out->worker == MR_NO_WORKER, out);
}

/* The group of the first sample, and as many of the others as are in it, too. */
static uint32_t hold(const struct mr_dataset *ds, void *worker_state, uint32_t n,
                     const uint64_t index[])
{
    struct state *st = ds->state;
    struct held *held = worker_state;
    uint64_t number = mr_arrow_chunk_of(st->end, st->from.n_groups, index[0]);
    if (use(ds, held, number) < 0 || held->group->stage == FAILED)
        return 0;
    uint64_t begin = mr_arrow_begin_of(st->end, number), end = st->end[number];
    uint32_t k = 1;
    while (k < n && index[k] >= begin && index[k] < end)
        k++;
    return k;
}

static void gather(const struct mr_dataset *ds, void *worker_state, int f, uint32_t n,
                   const uint64_t index[], unsigned char *to, uint64_t stride)
{
    const struct state *st = ds->state;
    const struct group *g = ((const struct held *)worker_state)->group;
    uint64_t begin = mr_arrow_begin_of(st->end, g->number);
    for (uint32_t k = 0; k < n; k++)
        mr_arrow_copy(&st->fields.type[f], &g->part[f], index[k] - begin, to + k * stride);
}

static void find_rows(const struct mr_dataset *ds, void *worker_state, int f, uint32_t n,
                      const uint64_t index[], const unsigned char *data[],
                      uint64_t (*dim)[MR_MAX_RANK])
{
    const struct state *st = ds->state;
    const struct group *g = ((const struct held *)worker_state)->group;
    uint64_t begin = mr_arrow_begin_of(st->end, g->number);
    for (uint32_t k = 0; k < n; k++) {
        struct mr_bytes value = mr_arrow_value(&st->fields.type[f], &g->part[f], index[k] - begin);
        data[k] = value.data;
        dim[k][0] = value.n / st->fields.type[f].width;
    }
}

/* ---- opening ---- */

static int take_rows(struct mr_dataset *ds, const uint64_t *rows)
{
    struct state *st = ds->state;
    const char *name = st->fields.name;
    uint64_t n = st->from.n_groups;
    if (n == 0 || n > UINT32_MAX || !rows || !st->from.load)
        return mr_error_set(MR_EMISUSE,
                            "%s: %llu groups: expected 1 to %u, their rows and a load function",
                            name, (unsigned long long)n, UINT32_MAX);
    st->end = calloc(n, sizeof *st->end);
    st->at = calloc(n, sizeof(void *));
    if (!st->end || !st->at)
        return mr_error_nomem(name, n * (sizeof *st->end + sizeof(void *)));
    for (uint64_t k = 0; k < n; k++) {
        if (!mr_add(ds->n, rows[k], &ds->n) || ds->n > INT64_MAX)
            return mr_error_set(MR_ELIMIT, "%s: more rows than an address space holds", name);
        st->end[k] = ds->n;
    }
    if (ds->n == 0)
        return mr_error_set(MR_EFORMAT, "%s: the groups have no rows: expected at least 1", name);
    ds->fingerprint = mr_hash(ds->fingerprint, st->end, n * sizeof *st->end);
    return 0;
}

static int set_sizes(struct mr_dataset *ds)
{
    const struct state *st = ds->state;
    for (int f = 0; f < ds->n_fields; f++) {
        const struct mr_arrow_type *type = &st->fields.type[f];
        if (type->list)
            return mr_error_set(MR_EUNSUPPORTED,
                                "%s: column '%s': lists of varying length in groups: expected "
                                "fixed-size lists, or a table in memory",
                                st->fields.name, ds->field[f].name);
        if (ds->field[f].var_dims && !type->picture)
            ds->field[f].dim[0] = MR_MAX(st->from.text_bytes, 1);
    }
    return 0;
}

static int open_groups(struct mr_dataset *ds, const void *options)
{
    const struct opts *o = options;
    struct state *st = ds->state;
    struct mr_arrow_opts table;
    pthread_mutex_init(&st->lock, NULL);
    pthread_cond_init(&st->changed, NULL);
    mr_arrow_opts_init(&table);
    mr_arrow_groups_init(&st->from);
    int rc;
    if ((rc = mr_opts_take("arrow_opts", o->table, &table, sizeof table)) < 0)
        return rc;
    if ((rc = mr_opts_take("arrow_groups", o->groups, &st->from, sizeof st->from)) < 0)
        return rc;
    if ((rc = mr_arrow_fields_open(ds, &table, &st->fields)) < 0)
        return rc;
    const char *name = st->fields.name;
    if (table.chunk || table.n_chunks || table.row)
        return mr_error_set(MR_EMISUSE, "%s: groups: expected no chunks and no rows", name);
    if ((rc = take_rows(ds, st->from.rows)) < 0)
        return rc;
    if ((rc = set_sizes(ds)) < 0)
        return rc;
    st->from.keep = MR_MAX(st->from.keep, 1);
    ds->fingerprint = mr_hash(ds->fingerprint, name, strlen(name) + 1);
    ds->fingerprint = mr_hash(ds->fingerprint, &st->from.version, sizeof st->from.version);
    snprintf(ds->text, sizeof ds->text, "arrow: %.60s: %llu rows in %llu groups, %d columns", name,
             (unsigned long long)ds->n, (unsigned long long)st->from.n_groups, ds->n_fields);
    return 0;
}

/* Each worker uses a group besides those that are kept. */
static uint64_t memory(const struct mr_dataset *ds, uint32_t workers)
{
    const struct state *st = ds->state;
    uint64_t n, bytes;
    if (!mr_add(st->from.keep, workers, &n))
        n = UINT64_MAX;
    n = MR_MIN(n, st->from.n_groups);
    return mr_mul(n, st->from.group_bytes, &bytes) ? bytes : UINT64_MAX / 2;
}

static void close_groups(struct mr_dataset *ds)
{
    struct state *st = ds->state;
    free_groups(st->group);
    if (st->schema.release)
        st->schema.release(&st->schema);
    if (st->opened && st->from.close)
        st->from.close(st->from.user);
    free(st->end);
    free((void *)st->at);
    mr_arrow_fields_close(&st->fields);
    pthread_cond_destroy(&st->changed);
    pthread_mutex_destroy(&st->lock);
}

static const struct mr_dataset_ops groups_ops = {
    .name = "arrow",
    .summary = "groups of rows of an Arrow table",
    .opts_size = sizeof(struct opts),
    .state_size = sizeof(struct state),
    .open = open_groups,
    .close = close_groups,
    .enter = enter,
    .leave = leave,
    .get = get,
    .gather = gather,
    .find = find_rows,
    .hold = hold,
    .memory = memory,
};

void mr_arrow_groups_fill(struct mr_arrow_groups *groups, size_t size)
{
    struct mr_arrow_groups full = {.keep = 4, .text_bytes = 1 << 20};
    mr_opts_copy(groups, size, &full, sizeof full);
}

int mr_dataset_open_arrow_groups(const struct mr_arrow_opts *opts,
                                 const struct mr_arrow_groups *groups, struct mr_dataset **out)
{
    struct opts o = {sizeof o, opts, groups};
    if (!opts || !groups || !out)
        return mr_error_null("mr_dataset_open_arrow_groups",
                             "options, groups and a place for the result");
    int rc = mr_dataset_make(&groups_ops, &o, out);
    if (rc < 0)
        return rc;
    struct state *st = (*out)->state;
    st->opened = true;
    st->schema = *opts->schema;
    opts->schema->release = NULL;
    return 0;
}
