/* The indexes of a table's shards that are in use, and the latest others within a limit. */
#include "dataset/tar/table.h"

#include <errno.h>
#include <string.h>

#define N_BUCKETS   4096u
#define AGAIN_NS    5000000000ull /* a shard that failed is tried again after so long */
#define MISSES      3u            /* shards without an index beside: then none is looked for */
#define FIRST_KNOWN 64u
#define N_THREADS   16u /* that read indexes of remote shards, which are mostly waited for */
#define N_WANTED    64u
#define LOOK_NS     50000000u /* between two looks for an interrupt */

/* A shard whose index is here, is being read, or could not be. */
struct shard {
    struct mr_tar_held_shard public; /* first */
    uint64_t number, bytes;          /* bytes: of memory */
    uint32_t users;
    enum { LOADING, READY, FAILED } state;
    bool gone; /* in no list: the last user frees it */
    uint64_t failed_ns;
    struct mr_error_kept error;
    uint32_t *sample_of; /* until the fields are known */
    struct shard *next;  /* of its bucket */
    struct shard *newer, *older;
};

/* A shard that has been used: its file, and the sum of its index, which must stay the same: a
 * sample is located and decoded by two loads of the index if it was dropped between them. */
struct known {
    uint64_t number; /* + 1; 0: none */
    uint64_t sum;    /* 0: not loaded yet */
    int file;
};

struct mr_tar_held {
    struct mr_dataset *ds;
    struct mr_tar_opts opts; /* without its texts */
    struct mr_tar_table *table;
    char *folder;
    uint64_t limit;
    _Atomic uint32_t misses; /* remote shards without an index beside, in a row */

    pthread_mutex_t lock; /* guards the rest; taken alone */
    pthread_cond_t changed;
    uint64_t bytes;
    struct shard *bucket[N_BUCKETS];
    struct shard *newest, *oldest; /* of all that are not LOADING */
    struct known *known;           /* a hash table */
    uint64_t n_known, known_room;

    /* What is wanted soon. */
    bool remote;
    _Atomic bool stop;
    uint64_t wanted[N_WANTED], wanted_shard[N_WANTED]; /* samples; their shards, if known */
    uint32_t n_wanted, n_threads, n_idle;
    pthread_t thread[N_THREADS];
    pthread_cond_t more;
};

/* ---- files ---- */

static struct known *known_at(struct known *table, uint64_t room, uint64_t number)
{
    uint64_t at = mr_mix64(number) & (room - 1);
    while (table[at].number != 0 && table[at].number != number + 1)
        at = (at + 1) & (room - 1);
    return &table[at];
}

static int grow_known(struct mr_tar_held *h)
{
    uint64_t room = h->known_room ? 2 * h->known_room : FIRST_KNOWN;
    if (4 * (h->n_known + 1) <= 3 * h->known_room)
        return 0;
    struct known *grown = calloc(room, sizeof *grown);
    if (!grown)
        return mr_error_nomem("shards in use", room * sizeof *grown);
    for (uint64_t i = 0; i < h->known_room; i++)
        if (h->known[i].number)
            *known_at(grown, room, h->known[i].number - 1) = h->known[i];
    free(h->known);
    h->known = grown;
    h->known_room = room;
    return 0;
}

/* A shard's id in the table of files. Its entry there stays when its index goes. */
static int file_of(struct mr_tar_held *h, const struct mr_tar_table_entry *e)
{
    char *name = NULL;
    pthread_mutex_lock(&h->lock);
    int rc = grow_known(h);
    struct known *k = rc < 0 ? NULL : known_at(h->known, h->known_room, e->number);
    int file = k && k->number ? k->file : rc;
    bool found = k && k->number;
    pthread_mutex_unlock(&h->lock);
    if (rc < 0 || found)
        return file;
    if (asprintf(&name, "%s%s", h->folder, e->name) < 0)
        return mr_error_nomem("name of a shard", sizeof e->name);
    file = mr_files_add_known(h->ds->files, name, e->bytes);
    free(name);
    if (file < 0)
        return file;
    pthread_mutex_lock(&h->lock);
    rc = grow_known(h);
    if (rc == 0) {
        *known_at(h->known, h->known_room, e->number) =
            (struct known){.number = e->number + 1, .file = file};
        h->n_known++;
    }
    pthread_mutex_unlock(&h->lock);
    return rc < 0 ? rc : file;
}

/* ---- reading an index ---- */

/* Stores without the right to list answer 403 for an object that is not there. */
static bool is_absent(int rc)
{
    return rc == -ENOENT || rc == -EACCES;
}

static void note_miss(struct mr_tar_held *h, const char *name, const char *why)
{
    if (atomic_fetch_add(&h->misses, 1) == 0)
        mr_log(MR_LOG_WARNING,
               "%s: no index beside it (.idx) that fits (%s): its headers are read instead, which "
               "takes a pass over the archive",
               name, why);
}

/* The index beside a remote archive: URL.idx. Returns 1, 0: none there fits, or an error. */
static int read_beside(struct mr_tar_held *h, const struct mr_tar_table_entry *e,
                       struct mr_tar_shard *s)
{
    char *name = NULL;
    void *data = NULL;
    uint64_t bytes = 0;
    bool wanted = h->opts.index == MR_TAR_INDEX_AUTO || h->opts.index == MR_TAR_INDEX_BESIDE;
    if (!wanted || atomic_load(&h->misses) >= MISSES)
        return 0;
    if (asprintf(&name, "%s%s.idx", h->folder, e->name) < 0)
        return mr_error_nomem("name of an index", sizeof e->name);
    int rc = mr_store_read_whole(name, &data, &bytes);
    if (rc < 0) {
        if (is_absent(rc)) {
            note_miss(h, s->name, mr_last_error());
            rc = 0;
        }
        goto end;
    }
    if (!mr_tar_index_parse(data, bytes, e->bytes, &s->index)) {
        note_miss(h, s->name, "damaged, or of an archive of another size");
    } else if (!mr_tar_shard_still_there(h->ds->files, s)) {
        mr_tar_index_free(&s->index);
        note_miss(h, s->name, "of another archive");
    } else {
        atomic_store(&h->misses, 0);
        rc = 1;
    }
end:
    free(data);
    free(name);
    return rc;
}

static int read_index(struct mr_tar_held *h, const struct mr_tar_table_entry *e, struct shard *s)
{
    struct mr_tar_shard one = {.name = s->public.name, .file = s->public.file};
    one.inflated.fd = -1;
    one.local = !mr_store_is_remote(one.name);
    int rc = one.local ? 0 : read_beside(h, e, &one);
    if (rc == 0)
        rc = mr_tar_shard_load(h->ds, &h->opts, &one);
    s->public.index = one.index;
    return MR_MIN(rc, 0);
}

static uint64_t memory_of(const struct mr_tar_held *h, const struct shard *s)
{
    if (s->state == FAILED) /* nothing else of it is kept, and its table may be wrong */
        return sizeof *s;
    return sizeof *s + mr_tar_index_bytes(&s->public.index) +
           s->public.samples * ((uint64_t)h->ds->n_fields + 1) * sizeof(uint32_t);
}

/* The samples of the shard. Members by field are for later if fields are not known. */
static int group(struct mr_tar_held *h, const struct mr_tar_table_entry *e, struct shard *s)
{
    struct mr_tar_samples samples = {0};
    int rc = mr_tar_group(s->public.name, 0, &s->public.index, &samples, &s->sample_of);
    uint64_t n = samples.n;
    s->public.first_member = samples.first;
    samples.first = NULL;
    mr_tar_samples_free(&samples);
    if (rc < 0)
        return rc;
    if (n != e->samples)
        return mr_error_set(MR_EFORMAT,
                            "%s: %llu samples, its table says %u: write the table again",
                            s->public.name, (unsigned long long)n, e->samples);
    return h->ds->n_fields > 0 ? mr_tar_held_fill(h, &s->public) : 0;
}

int mr_tar_held_fill(struct mr_tar_held *h, const struct mr_tar_held_shard *shard)
{
    struct shard *s = (struct shard *)shard;
    uint64_t cells = s->public.samples * (uint64_t)h->ds->n_fields;
    s->public.member = malloc(cells * sizeof(uint32_t));
    if (!s->public.member)
        return mr_error_nomem(s->public.name, cells * sizeof(uint32_t));
    memset(s->public.member, 0xff, cells * sizeof(uint32_t)); /* MR_TAR_NONE */
    mr_tar_assign(h->ds, &s->public.index, s->sample_of, s->public.member);
    free(s->sample_of);
    s->sample_of = NULL;
    return 0;
}

const uint32_t *mr_tar_held_samples(const struct mr_tar_held_shard *shard)
{
    return ((const struct shard *)shard)->sample_of;
}

static void empty(struct shard *s)
{
    mr_tar_index_free(&s->public.index);
    free(s->public.first_member);
    free(s->public.member);
    free(s->sample_of);
    s->public.first_member = s->public.member = s->sample_of = NULL;
}

static int check_same(struct mr_tar_held *h, const struct shard *s)
{
    pthread_mutex_lock(&h->lock);
    struct known *k = known_at(h->known, h->known_room, s->number);
    bool same = k->sum == 0 || k->sum == s->public.index.sum;
    if (k->sum == 0)
        k->sum = s->public.index.sum;
    pthread_mutex_unlock(&h->lock);
    return same
               ? 0
               : mr_error_set(MR_EFORMAT, "%s: replaced while it was in use: write its table again",
                              s->public.name);
}

static int load(struct mr_tar_held *h, const struct mr_tar_table_entry *e, struct shard *s)
{
    s->public.first = e->first;
    s->public.bytes = e->bytes;
    s->public.samples = e->samples;
    s->public.file = file_of(h, e);
    if (s->public.file < 0)
        return s->public.file;
    s->public.name = mr_files_name(h->ds->files, s->public.file);
    int rc = read_index(h, e, s);
    if (rc < 0)
        return rc;
    rc = check_same(h, s);
    return rc < 0 ? rc : group(h, e, s);
}

/* ---- the list, from the newest to the oldest; with the lock held ---- */

static void unlink_shard(struct mr_tar_held *h, struct shard *s)
{
    *(s->newer ? &s->newer->older : &h->newest) = s->older;
    *(s->older ? &s->older->newer : &h->oldest) = s->newer;
    s->newer = s->older = NULL;
}

static void link_newest(struct mr_tar_held *h, struct shard *s)
{
    s->older = h->newest;
    s->newer = NULL;
    *(h->newest ? &h->newest->newer : &h->oldest) = s;
    h->newest = s;
}

static void unhash(struct mr_tar_held *h, const struct shard *s)
{
    struct shard **at = &h->bucket[s->number % N_BUCKETS];
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
}

static void drop(struct mr_tar_held *h, struct shard *s)
{
    unhash(h, s);
    unlink_shard(h, s);
    h->bytes -= s->bytes;
    empty(s);
    free(s);
}

static void make_room(struct mr_tar_held *h)
{
    for (struct shard *s = h->oldest, *newer; s && h->bytes > h->limit; s = newer) {
        newer = s->newer;
        if (s->users == 0)
            drop(h, s);
    }
}

static struct shard *find(struct mr_tar_held *h, uint64_t number)
{
    struct shard *s = h->bucket[number % N_BUCKETS];
    while (s && s->number != number)
        s = s->next;
    return s;
}

static struct shard *add(struct mr_tar_held *h, uint64_t number)
{
    struct shard *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->number = number;
    s->next = h->bucket[number % N_BUCKETS];
    h->bucket[number % N_BUCKETS] = s;
    return s;
}

/* ---- in use ---- */

/* Says after the error which shard it is, and what names it. */
static void add_table(const struct mr_tar_held *h, const struct mr_tar_table_entry *e, int rc)
{
    char text[MR_ERROR_BYTES];
    snprintf(text, sizeof text, "%s", mr_last_error());
    if (rc != MR_ECANCELLED)
        mr_error_set(rc, "%s (shard %llu of %s)", text, (unsigned long long)e->number,
                     mr_tar_table_name(h->table));
}

/* Reads the index of a LOADING shard, for all that wait for it. [lock, released meanwhile] If this
 * thread was interrupted, that is no error of the shard: another thread tries again. */
static void load_locked(struct mr_tar_held *h, const struct mr_tar_table_entry *e, struct shard *s)
{
    pthread_mutex_unlock(&h->lock);
    int rc = load(h, e, s);
    if (rc < 0) {
        add_table(h, e, rc);
        mr_error_keep(rc, &s->error);
        empty(s);
    }
    pthread_mutex_lock(&h->lock);
    s->state = rc < 0 ? FAILED : READY;
    s->failed_ns = mr_time_ns();
    s->gone = rc == MR_ECANCELLED;
    if (s->gone) {
        unhash(h, s);
    } else {
        s->bytes = memory_of(h, s);
        h->bytes += s->bytes;
        link_newest(h, s);
    }
    pthread_cond_broadcast(&h->changed);
}

static bool is_stale(const struct shard *s)
{
    return s->state == FAILED && s->users == 0 && mr_time_ns() - s->failed_ns > AGAIN_NS;
}

/* Waits while another thread reads the index. */
static int wait_locked(struct mr_tar_held *h, const struct shard *s)
{
    while (s->state == LOADING) {
        int rc = mr_interrupt_check("index of a shard");
        if (rc < 0)
            return rc;
        mr_cond_wait_until(&h->changed, &h->lock, mr_time_ns() + LOOK_NS);
    }
    return 0;
}

static void leave_locked(struct shard *s)
{
    s->users--;
    if (s->gone && s->users == 0)
        free(s);
}

/* Returns 0, an error, or 1: the thread that read the index was interrupted, this one was not. */
static int take_locked(struct mr_tar_held *h, const struct mr_tar_table_entry *e,
                       struct shard **out)
{
    struct shard *s = find(h, e->number);
    if (s && is_stale(s)) {
        drop(h, s);
        s = NULL;
    }
    bool mine = !s;
    if (mine)
        s = add(h, e->number);
    if (!s)
        return mr_error_nomem("index of a shard", sizeof *s);
    s->users++; /* from here on it stays */
    if (mine)
        load_locked(h, e, s);
    int rc = wait_locked(h, s);
    if (rc == 0 && s->state == FAILED)
        rc = s->gone && !mine ? 1 : mr_error_put(&s->error);
    if (s->state != LOADING && !s->gone && s != h->newest) {
        unlink_shard(h, s);
        link_newest(h, s);
    }
    if (rc == 0)
        *out = s;
    else
        leave_locked(s);
    if (mine)
        make_room(h);
    return rc;
}

int mr_tar_held_acquire(struct mr_tar_held *h, uint64_t sample,
                        const struct mr_tar_held_shard **out)
{
    struct mr_tar_table_entry e;
    struct shard *s = NULL;
    int rc = mr_tar_table_find(h->table, sample, &e);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&h->lock);
    while ((rc = take_locked(h, &e, &s)) > 0) {
    }
    pthread_mutex_unlock(&h->lock);
    if (rc == 0)
        *out = &s->public;
    return rc;
}

const char *mr_tar_held_name(struct mr_tar_held *h, uint64_t sample)
{
    struct mr_tar_table_entry e;
    if (mr_tar_table_peek(h->table, sample) == UINT64_MAX)
        return NULL; /* it could not be read: that again would take as long, and fail as well */
    int file = mr_tar_table_find(h->table, sample, &e);
    file = file < 0 ? file : file_of(h, &e);
    return file < 0 ? NULL : mr_files_name(h->ds->files, file);
}

void mr_tar_held_release(struct mr_tar_held *h, const struct mr_tar_held_shard *shard)
{
    struct shard *s = (struct shard *)shard;
    pthread_mutex_lock(&h->lock);
    leave_locked(s);
    pthread_mutex_unlock(&h->lock);
}

/* ---- in use soon ---- */

static void *read_wanted(void *arg)
{
    struct mr_tar_held *h = arg;
    const struct mr_tar_held_shard *shard;
    mr_interruptible_by(&h->stop);
    pthread_mutex_lock(&h->lock);
    while (!h->stop) {
        if (h->n_wanted == 0) {
            h->n_idle++;
            pthread_cond_wait(&h->more, &h->lock);
            h->n_idle--;
            continue;
        }
        uint64_t sample = h->wanted[0];
        h->n_wanted--;
        memmove(h->wanted, h->wanted + 1, h->n_wanted * sizeof h->wanted[0]);
        memmove(h->wanted_shard, h->wanted_shard + 1, h->n_wanted * sizeof h->wanted_shard[0]);
        pthread_mutex_unlock(&h->lock);
        if (mr_tar_held_acquire(h, sample, &shard) == 0) /* an error is kept, for who needs it */
            mr_tar_held_release(h, shard);
        pthread_mutex_lock(&h->lock);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

static void want_locked(struct mr_tar_held *h, uint64_t sample, uint64_t number)
{
    for (uint32_t k = 0; k < h->n_wanted; k++)
        if (h->wanted_shard[k] == number && (number != UINT64_MAX || h->wanted[k] == sample))
            return;
    if (h->n_wanted == N_WANTED || (number != UINT64_MAX && find(h, number)))
        return;
    h->wanted[h->n_wanted] = sample;
    h->wanted_shard[h->n_wanted++] = number;
    if (h->n_idle > 0)
        pthread_cond_signal(&h->more);
    else if (h->n_threads < N_THREADS &&
             mr_thread_start(&h->thread[h->n_threads], "mr-index", read_wanted, h) == 0)
        h->n_threads++;
}

void mr_tar_held_expect(struct mr_tar_held *h, uint64_t sample)
{
    if (!h->remote)
        return;
    uint64_t number = mr_tar_table_peek(h->table, sample);
    pthread_mutex_lock(&h->lock);
    want_locked(h, sample, number);
    pthread_mutex_unlock(&h->lock);
}

/* ---- opening ---- */

int mr_tar_held_create(struct mr_dataset *ds, const struct mr_tar_opts *o,
                       struct mr_tar_table *table, const char *folder, struct mr_tar_held **out)
{
    struct mr_tar_held *h = calloc(1, sizeof *h);
    if (!h)
        return mr_error_nomem("shards in use", sizeof *h);
    h->ds = ds;
    h->opts = *o;
    h->opts.path = h->opts.fields = h->opts.base = NULL;
    h->table = table;
    h->limit = o->memory_bytes;
    pthread_mutex_init(&h->lock, NULL);
    mr_cond_init(&h->changed); /* cannot fail with its attributes */
    pthread_cond_init(&h->more, NULL);
    h->remote = mr_store_is_remote(folder);
    h->folder = strdup(folder);
    if (!h->folder) {
        mr_tar_held_destroy(h);
        return mr_error_nomem(folder, strlen(folder));
    }
    mr_files_add_concurrently(ds->files);
    *out = h;
    return 0;
}

uint64_t mr_tar_held_limit(const struct mr_tar_held *h)
{
    return h->limit;
}

void mr_tar_held_destroy(struct mr_tar_held *h)
{
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    pthread_cond_broadcast(&h->more);
    pthread_mutex_unlock(&h->lock);
    for (uint32_t k = 0; k < h->n_threads; k++)
        pthread_join(h->thread[k], NULL);
    while (h->newest)       /* drop() puts the next one in its place */
        drop(h, h->newest); /* NOLINT(clang-analyzer-unix.Malloc) */
    free(h->known);
    free(h->folder);
    pthread_cond_destroy(&h->changed);
    pthread_cond_destroy(&h->more);
    pthread_mutex_destroy(&h->lock);
    free(h);
}
