/* Storage and readers: selects the store for each kind of file, and does what all stores have in
 * common. */
#include "storage/private.h"
#include "storage/ranges.h"

/* Best first. */
static const struct mr_storage_ops *const stores[] = {
#if MILLRACE_HAVE_URING
    &mr_storage_uring,
#endif
    &mr_storage_pread,
    &mr_storage_null,
#if MILLRACE_HAVE_HTTP
    &mr_storage_remote,
#endif
};

#define N_STORES MR_COUNT(stores)
#define FALLBACK MR_N_QUEUES /* a reader's queue for reads that another store refuses */
#define SLICE_NS 200000      /* wait in one queue while reads in another may finish */

struct mr_storage {
    struct mr_files *files;
    int kind;
    bool direct;
    _Atomic(const char *) refused_direct;
    uint32_t reader_depth;
    struct mr_ranges *ranges; /* NULL: none are kept */
    void *shared[N_STORES];
    bool usable[N_STORES];
    _Atomic(const char *) name; /* of the store that reads path files */
};

struct mr_reader {
    struct mr_storage *st;
    struct mr_read_queue queue[MR_N_QUEUES + 1];
    struct mr_blocks blocks;
    struct mr_read_list ready; /* already done when submitted; reap returns them */
    /* Written by the reader's thread; read by any for statistics. */
    _Atomic uint32_t in_flight;
    _Atomic uint64_t reads, bytes, in_flight_sum, in_flight_n;
};

#if !MILLRACE_HAVE_URING
const char *mr_uring_why_not(void)
{
    return "built without liburing";
}
#endif

/* ---- storage ---- */

static bool asked_for(const struct mr_storage_ops *ops, int kind)
{
    return kind == MR_STORAGE_AUTO || ops->kind == MR_STORAGE_AUTO || ops->kind == kind;
}

/* pread takes the reads that another store refuses, whatever kind was requested. */
static bool serves_refused(const struct mr_storage_ops *ops)
{
    return ops == &mr_storage_pread;
}

static int store_open(struct mr_storage *st, size_t i, uint32_t depth)
{
    const struct mr_storage_ops *ops = stores[i];
    if (!asked_for(ops, st->kind) && !serves_refused(ops))
        return 0;
    const char *why = ops->why_not ? ops->why_not() : NULL;
    if (why && st->kind != MR_STORAGE_AUTO)
        return mr_error_set(MR_EUNSUPPORTED, "storage %s cannot be used here: %s", ops->name, why);
    if (why) {
        mr_log(MR_LOG_INFO, "storage %s cannot be used here: %s", ops->name, why);
        return 0;
    }
    st->shared[i] = calloc(1, MR_MAX(ops->shared_size, 1u));
    if (!st->shared[i])
        return mr_error_nomem(ops->name, ops->shared_size);
    int rc = ops->open ? ops->open(st->shared[i], st->files, depth) : 0;
    if (rc) {
        free(st->shared[i]);
        st->shared[i] = NULL;
        return rc;
    }
    st->usable[i] = true;
    if (ops->serves == MR_FILE_PATH && asked_for(ops, st->kind) && !atomic_load(&st->name))
        atomic_store(&st->name, ops->name);
    return 0;
}

int mr_storage_open(struct mr_files *files, int kind, uint32_t depth, uint32_t n_readers,
                    struct mr_storage **out)
{
    struct mr_storage *st = calloc(1, sizeof *st);
    if (!st)
        return mr_error_nomem("storage", sizeof *st);
    n_readers = MR_MAX(n_readers, 1u);
    st->files = files;
    st->direct = kind & MR_STORAGE_DIRECT;
    st->kind = kind &= ~MR_STORAGE_DIRECT;
    if (st->direct)
        mr_direct_open(files, &st->refused_direct);
    st->reader_depth = MR_MAX(depth / n_readers, 1u);
    for (size_t i = 0; i < N_STORES; i++) {
        int rc = store_open(st, i, st->reader_depth * n_readers);
        if (rc) {
            mr_storage_close(st);
            return rc;
        }
    }
    struct mr_files_kinds kinds;
    mr_files_count(files, &kinds);
    if (kinds.n_path == 0 && kinds.n_remote > 0)
        atomic_store(&st->name, "http");
    if (!atomic_load(&st->name)) {
        mr_storage_close(st);
        const char *why = kind == MR_STORAGE_URING ? mr_uring_why_not() : "no such kind";
        return mr_error_set(MR_EUNSUPPORTED, "storage kind %d cannot be used here: %s", kind,
                            why ? why : "no store");
    }
    *out = st;
    return 0;
}

void mr_storage_close(struct mr_storage *st)
{
    if (!st)
        return;
    for (size_t i = 0; i < N_STORES; i++) {
        if (st->usable[i] && stores[i]->close)
            stores[i]->close(st->shared[i]);
        free(st->shared[i]);
    }
    mr_ranges_destroy(st->ranges);
    free(st);
}

int mr_storage_keep_ranges(struct mr_storage *st, uint64_t limit)
{
    st->ranges = mr_ranges_create(limit);
    return st->ranges ? 0 : mr_error_nomem("ranges of files", limit);
}

const char *mr_storage_name(const struct mr_storage *st)
{
    return atomic_load(&st->name);
}

const char *mr_storage_refused(const struct mr_storage *st)
{
    return atomic_load(&st->refused_direct);
}

/* ---- opening and closing a reader ---- */

static int queue_try(struct mr_reader *r, struct mr_read_queue *queue, size_t i)
{
    const struct mr_storage_ops *ops = stores[i];
    queue->state = calloc(1, MR_MAX(ops->queue_size, 1u));
    if (!queue->state)
        return mr_error_nomem(ops->name, ops->queue_size);
    queue->files = r->st->files;
    queue->shared = r->st->shared[i];
    queue->blocks = &r->blocks;
    queue->ranges = r->st->ranges;
    queue->refused_direct = &r->st->refused_direct;
    queue->depth = r->st->reader_depth;
    int rc = ops->queue_open(queue);
    if (rc) {
        free(queue->state);
        queue->state = NULL;
        return rc;
    }
    queue->ops = ops;
    return 0;
}

/* Opens a queue at the first store that works; under "auto", tries the next one after a failure. */
static int queue_open(struct mr_reader *r, enum mr_file_kind kind)
{
    int rc = 0;
    for (size_t i = 0; i < N_STORES; i++) {
        if (stores[i]->serves != kind || !r->st->usable[i] || !asked_for(stores[i], r->st->kind))
            continue;
        if (rc)
            mr_log(MR_LOG_WARNING, "%s; reading by %s", mr_last_error(), stores[i]->name);
        rc = queue_try(r, &r->queue[kind], i);
        if (rc < 0)
            continue;
        if (kind == MR_FILE_PATH)
            atomic_store(&r->st->name, stores[i]->name);
        return 0;
    }
    return rc ? rc
              : mr_error_set(MR_EUNSUPPORTED, "storage: no store reads files of kind %d",
                             (int)kind);
}

int mr_reader_open(struct mr_storage *st, struct mr_reader **out)
{
    struct mr_files_kinds kinds;
    mr_files_count(st->files, &kinds);
    const uint32_t n[MR_N_QUEUES] = {[MR_FILE_PATH] = kinds.n_path,
                                     [MR_FILE_NULL] = kinds.n_null,
                                     [MR_FILE_REMOTE] = kinds.n_remote};
    struct mr_reader *r = calloc(1, sizeof *r);
    if (!r)
        return mr_error_nomem("reader", sizeof *r);
    r->st = st;
    mr_blocks_init(&r->blocks);
    for (int kind = 0; kind < MR_N_QUEUES; kind++) {
        int rc = n[kind] ? queue_open(r, kind) : 0;
        if (rc) {
            mr_reader_close(r);
            return rc;
        }
    }
    *out = r;
    return 0;
}

void mr_reader_close(struct mr_reader *r)
{
    if (!r)
        return;
    for (struct mr_read_queue *queue = r->queue; queue < r->queue + MR_N_QUEUES + 1; queue++)
        if (queue->ops && queue->ops->cancel)
            queue->ops->cancel(queue);
    struct mr_read *out[64];
    while (mr_reader_in_flight(r)) {
        uint32_t n = mr_reader_reap(r, out, MR_COUNT(out), UINT64_MAX);
        for (uint32_t i = 0; i < n; i++) {
            free(out[i]->error);
            out[i]->error = NULL;
            mr_reader_recycle(r, out[i]);
        }
    }
    for (struct mr_read_queue *queue = r->queue; queue < r->queue + MR_N_QUEUES + 1; queue++) {
        if (queue->ops)
            queue->ops->queue_close(queue);
        free(queue->state);
    }
    mr_blocks_free(&r->blocks);
    free(r);
}

/* ---- reading ---- */

static void add(_Atomic uint64_t *counter, uint64_t n) /* one writer: no locked instruction */
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static void set_in_flight(struct mr_reader *r, uint32_t n)
{
    atomic_store_explicit(&r->in_flight, n, memory_order_relaxed);
}

uint32_t mr_reader_in_flight(const struct mr_reader *r)
{
    return atomic_load_explicit(&r->in_flight, memory_order_relaxed);
}

uint32_t mr_reader_space(const struct mr_reader *r)
{
    return r->st->reader_depth - MR_MIN(mr_reader_in_flight(r), r->st->reader_depth);
}

void mr_reader_recycle(struct mr_reader *r, struct mr_read *read)
{
    if (read->block && !read->block->kept)
        mr_blocks_give(&r->blocks, read->block);
    read->block = NULL;
}

int mr_reader_reserve(struct mr_reader *r, uint32_t n, uint64_t bytes)
{
    return r->st->direct ? 0
                         : mr_blocks_reserve(&r->blocks, n,
                                             bytes); /* blocks of the reserve are not aligned */
}

/* The store has finished the read. */
static void finish(struct mr_reader *r, struct mr_read *read)
{
    struct mr_file *f = r->st->files->file[read->file];
    read->view = read->buf;
    if (read->block) {
        read->view = read->block->data + (read->offset - read->at);
        mr_read_keep(r->st->files, f, read);
    }
    read->done = MR_MIN(read->done, read->need);
    add(&r->reads, 1);
    add(&r->bytes, f->kind == MR_FILE_NULL ? 0 : read->done);
    if (read->chunks)
        mr_cache_finish(atomic_load_explicit(&f->cache, memory_order_acquire), read);
    if (read->status && !read->error)
        mr_read_fail(read, mr_file_read_error(f, read->status, read->need, read->at, read->done));
}

static void clear(struct mr_read *read)
{
    read->view = NULL;
    read->status = 0;
    read->error = NULL;
    read->block = NULL;
    read->fd = -1;
    read->done = read->chunks = 0;
    read->at = read->offset;
    read->want = read->need = read->bytes;
    read->direct = read->shared = false;
    read->to = read->buf;
}

/* Like prepare(), for a whole file. */
static bool prepare_whole(struct mr_reader *r, struct mr_read *read)
{
    struct mr_file *f = r->st->files->file[read->file];
    uint64_t bytes;
    int rc = mr_files_view_whole(r->st->files, read->file, &bytes, &read->view);
    if (rc < 0) {
        mr_read_fail(read, rc);
        return false;
    }
    if (rc > 0) {
        read->done = bytes;
        return false;
    }
    if (r->st->direct)
        mr_direct_prepare(read, f, &r->blocks);
    return bytes == MR_WHOLE || mr_read_sized(read, f, bytes) == 0;
}

/* Sets what to read. false: the read is done, because its bytes are in memory or the request is
 * wrong. */
static bool prepare(struct mr_reader *r, struct mr_read *read)
{
    struct mr_file *f = r->st->files->file[read->file];
    struct mr_file_cache *cache = atomic_load_explicit(&f->cache, memory_order_acquire);
    if (read->bytes == MR_WHOLE)
        return prepare_whole(r, read);
    int rc = mr_files_view(r->st->files, read->file, read->offset, read->bytes, &read->view);
    if (rc < 0)
        mr_read_fail(read, rc);
    if (rc)
        return false;
    if (cache && mr_cache_claim(f, cache, read))
        return false;
    read->need = read->want;
    return !r->st->direct || mr_direct_prepare(read, f, &r->blocks);
}

/* Starts a read in a queue. true: already done. */
static bool start_in(struct mr_reader *r, struct mr_read_queue *queue, struct mr_read *read)
{
    struct mr_file *f = r->st->files->file[read->file];
    read->queue = queue;
    /* io_uring hands reads of tmpfs to threads of the kernel, which takes longer than the copy. */
    bool done = f->in_memory && !read->direct;
    if (done)
        read->status = mr_read_pread(read, f);
    else
        done = queue->ops->start(queue, f, read);
    if (done)
        finish(r, read);
    queue->in_flight += !done;
    return done;
}

static int open_fallback(struct mr_reader *r)
{
    for (size_t i = 0; i < N_STORES; i++)
        if (serves_refused(stores[i]) && r->st->usable[i]) {
            mr_log(MR_LOG_WARNING, "reading by %s from now on", stores[i]->name);
            atomic_store(&r->st->name, stores[i]->name);
            return queue_try(r, &r->queue[FALLBACK], i);
        }
    return mr_error_set(MR_EUNSUPPORTED, "storage: no store takes the reads that another refuses");
}

/* true: done already. */
static bool start(struct mr_reader *r, struct mr_read *read)
{
    struct mr_file *f = r->st->files->file[read->file];
    clear(read);
    /* Kinds without a queue can be viewed. */
    struct mr_read_queue *queue = read->queue =
        f->kind < MR_N_QUEUES ? &r->queue[f->kind] : r->queue;
    if (!prepare(r, read))
        return true;
    if (!queue->ops) {
        mr_read_fail(
            read, mr_error_set(MR_EMISUSE, "%s: was added after the reader was opened", f->name));
        return true;
    }
    return start_in(r, queue->refuses && r->queue[FALLBACK].ops ? &r->queue[FALLBACK] : queue,
                    read);
}

void mr_reader_submit(struct mr_reader *r, struct mr_read **reads, uint32_t n)
{
    uint64_t now = mr_time_ns();
    for (uint32_t i = 0; i < n; i++) {
        struct mr_read *read = reads[i];
        read->submit_ns = now;
        if (start(r, read))
            mr_read_append(&r->ready, read);
    }
    for (struct mr_read_queue *queue = r->queue; queue < r->queue + MR_N_QUEUES + 1; queue++)
        if (queue->in_flight && queue->ops->flush)
            queue->ops->flush(queue);
    set_in_flight(r, mr_reader_in_flight(r) + n);
    add(&r->in_flight_sum, mr_reader_in_flight(r));
    add(&r->in_flight_n, 1);
}

/* Starts again, in the fallback queue, what a queue refuses. Reads that are done at once go to
 * r->ready. */
static void take_refused(struct mr_reader *r, struct mr_read_queue *queue)
{
    struct mr_read_queue *to = &r->queue[FALLBACK];
    struct mr_read *refused[64];
    uint32_t n;
    while ((n = queue->ops->refused(queue, refused, MR_COUNT(refused))) > 0) {
        queue->in_flight -= n;
        queue->refuses = true;
        int rc = to->ops ? 0 : open_fallback(r);
        for (uint32_t i = 0; i < n; i++) {
            if (rc < 0) {
                mr_read_fail(refused[i], rc);
                finish(r, refused[i]);
            }
            if (rc < 0 || start_in(r, to, refused[i]))
                mr_read_append(&r->ready, refused[i]);
        }
    }
}

static uint32_t queue_reap(struct mr_reader *r, struct mr_read_queue *queue, struct mr_read **out,
                           uint32_t cap, uint64_t until_ns)
{
    uint32_t n = queue->in_flight && cap ? queue->ops->reap(queue, out, cap, until_ns) : 0;
    for (uint32_t i = 0; i < n; i++)
        finish(r, out[i]);
    queue->in_flight -= n;
    if (queue->in_flight && queue->ops->refused)
        take_refused(r, queue);
    return n;
}

static uint32_t poll_queues(struct mr_reader *r, struct mr_read **out, uint32_t cap)
{
    uint32_t n = 0;
    for (struct mr_read_queue *queue = r->queue; queue < r->queue + MR_N_QUEUES + 1; queue++)
        n += queue_reap(r, queue, out + n, cap - n, 0);
    return n;
}

/* Waits in a queue that cannot predict when reads end, at most until the earliest predicted end of
 * the others. */
static uint32_t wait_once(struct mr_reader *r, struct mr_read **out, uint32_t cap,
                          uint64_t deadline_ns)
{
    struct mr_read_queue *in = NULL;
    for (struct mr_read_queue *queue = r->queue; queue < r->queue + MR_N_QUEUES + 1; queue++) {
        if (!queue->in_flight)
            continue;
        if (queue->ops->next_ns)
            deadline_ns = MR_MIN(deadline_ns, queue->ops->next_ns(queue));
        else if (in && !in->ops->next_ns)
            deadline_ns = MR_MIN(deadline_ns, mr_time_ns() + SLICE_NS);
        if (!in || !queue->ops->next_ns)
            in = queue;
    }
    return in ? queue_reap(r, in, out, cap, deadline_ns) : 0;
}

uint32_t mr_reader_reap(struct mr_reader *r, struct mr_read **out, uint32_t cap, uint64_t wait_ns)
{
    uint32_t n = mr_read_take(&r->ready, out, cap);
    n += poll_queues(r, out + n, cap - n);
    if (!n && cap && wait_ns) {
        uint64_t now = mr_time_ns(), deadline;
        if (!mr_add(now, wait_ns, &deadline))
            deadline = UINT64_MAX;
        while (!n && now < deadline && mr_reader_in_flight(r)) {
            n = wait_once(r, out, cap, deadline);
            n += poll_queues(r, out + n, cap - n);
            n += mr_read_take(&r->ready, out + n, cap - n);
            now = mr_time_ns();
        }
    }
    set_in_flight(r, mr_reader_in_flight(r) - n);
    return n;
}

void mr_reader_count(const struct mr_reader *r, struct mr_reader_stats *out)
{
    out->reads = atomic_load_explicit(&r->reads, memory_order_relaxed);
    out->bytes = atomic_load_explicit(&r->bytes, memory_order_relaxed);
    out->in_flight_sum = atomic_load_explicit(&r->in_flight_sum, memory_order_relaxed);
    out->in_flight_n = atomic_load_explicit(&r->in_flight_n, memory_order_relaxed);
}
