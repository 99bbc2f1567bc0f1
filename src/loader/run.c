/* A claimed run of samples: its order, where its bytes are, and the reads that bring them. */
#include "loader/engine.h"
#include "loader/gather.h"

#include <errno.h>
#include <string.h>

#define EXPECT_ROWS 64u /* samples announced to the data set before they are located */

static void free_buffer(struct mr_run *run)
{
    if (run->own_buffer)
        free(run->buffer);
    run->own_buffer = false;
    run->buffer = NULL;
    run->buffer_bytes = 0;
}

static int grow_buffer(struct mr_run *run, uint64_t bytes)
{
    void *buffer;
    if (bytes <= run->buffer_bytes)
        return 0;
    free_buffer(run);
    if (posix_memalign(&buffer, 4096, bytes) != 0)
        return mr_error_nomem("read buffer", bytes);
    run->buffer = buffer;
    run->buffer_bytes = bytes;
    run->own_buffer = true;
    return 0;
}

/* Each run's buffer is made for the most that a run of such samples needs, now: whether its reads
 * go straight into their rows depends on time. */
static int create_buffers(struct mr_worker *w)
{
    const struct mr_loader *ld = w->ld;
    uint64_t each, all, sample = ld->sizes.sample_bytes - ld->sizes.whole_bytes;
    void *buffers;
    if (!ld->storage || sample == 0)
        return 0;
    if (!mr_mul(ld->sizes.run_rows, sample, &each) ||
        !mr_mul(each, ld->sizes.runs_per_worker, &all))
        return mr_error_nomem("read buffers", UINT64_MAX);
    if (posix_memalign(&buffers, 4096, all) != 0)
        return mr_error_nomem("read buffers", all);
    w->run_buffers = buffers;
    for (uint64_t r = 0; r < ld->sizes.runs_per_worker; r++) {
        w->run[r].buffer = w->run_buffers + r * each;
        w->run[r].buffer_bytes = each;
    }
    return 0;
}

uint64_t mr_run_row_bytes(const struct mr_loader *ld)
{
    uint64_t reads = ld->sizes.depth ? (uint64_t)MR_MAX(ld->sizes.sample_reads, 1) : 0;
    uint64_t extents = (uint64_t)mr_extents_most(ld->ds) * sizeof(struct mr_run_extent);
    return sizeof(struct mr_run_sample) + extents + reads * (sizeof(struct mr_read) + sizeof(bool));
}

int mr_runs_create(struct mr_worker *w)
{
    const struct mr_loader *ld = w->ld;
    uint64_t rows = ld->sizes.runs_per_worker * ld->sizes.run_rows,
             most = (uint64_t)mr_extents_most(ld->ds), reads = ld->sizes.run_rows * most;
    w->run = calloc(ld->sizes.runs_per_worker, sizeof *w->run);
    w->in_flight = calloc(ld->sizes.runs_per_worker, sizeof(struct mr_run *));
    w->spare = calloc(ld->sizes.runs_per_worker, sizeof(struct mr_run *));
    w->run_samples = calloc(rows, sizeof *w->run_samples);
    w->run_extents = calloc(rows * most, sizeof *w->run_extents);
    w->run_reads = ld->storage ? calloc(rows * most, sizeof *w->run_reads) : NULL;
    w->run_landed = ld->storage ? calloc(rows * most, sizeof *w->run_landed) : NULL;
    if (!w->run || !w->in_flight || !w->spare || !w->run_samples || !w->run_extents ||
        (ld->storage && (!w->run_reads || !w->run_landed)))
        return mr_error_nomem("runs of samples", rows * sizeof *w->run_samples);
    for (uint64_t i = 0; i < rows; i++)
        w->run_samples[i].extent = w->run_extents + i * most;
    for (uint64_t r = 0; r < ld->sizes.runs_per_worker; r++) {
        w->spare[ld->sizes.runs_per_worker - 1 - r] = &w->run[r];
        w->run[r].sample = w->run_samples + r * ld->sizes.run_rows;
        w->run[r].read = ld->storage ? w->run_reads + r * reads : NULL;
        w->run[r].landed = ld->storage ? w->run_landed + r * reads : NULL;
    }
    w->n_spare = (uint32_t)ld->sizes.runs_per_worker;
    return create_buffers(w);
}

void mr_run_end(struct mr_worker *w, struct mr_run *run)
{
    if (w->ld->source)
        mr_source_release(w->ld, run);
    for (uint32_t r = 0; r < run->n_reads; r++) {
        struct mr_read *read = &run->read[r];
        if (!run->landed[r]) /* the reader's */
            continue;
        free(read->error);
        read->error = NULL;
        w->held_bytes -= read->bytes == MR_WHOLE ? MR_MIN(read->done, w->held_bytes) : 0;
        mr_reader_recycle(w->reader, read);
    }
}

void mr_runs_free(struct mr_worker *w)
{
    for (uint64_t r = 0; w->run && r < w->ld->sizes.runs_per_worker; r++)
        free_buffer(&w->run[r]);
    free(w->run);
    free(w->in_flight);
    free(w->spare);
    free(w->run_samples);
    free(w->run_extents);
    free(w->run_reads);
    free(w->run_landed);
    free(w->run_buffers);
}

/* Global order -> data set indices. Positions of one rank are `world` apart, so only one process
 * maps them in one call. */
static int map_order(struct mr_worker *w, struct mr_run *run)
{
    struct mr_loader *ld = w->ld;
    const struct mr_shard *shard = run->info.shard;
    uint64_t q = run->info.row0 + run->row0;
    uint64_t at = mr_shard_global(shard, q);
    bool whole = shard->world == 1 && at + run->n <= shard->length;
    int rc = whole ? mr_sampler_map(ld->sampler, run->info.epoch, at, run->n, w->order) : 0;
    for (uint32_t i = 0; i < run->n && rc == 0; i++) {
        at = mr_shard_global(shard, q + i);
        if (!whole)
            rc = mr_sampler_map(ld->sampler, run->info.epoch, at % shard->length, 1, &w->order[i]);
        run->sample[i].position = at;
        run->sample[i].index = w->order[i];
        run->sample[i].done = false;
    }
    return rc;
}

/* The row that this extent goes straight into, as the only copy out of the kernel; NULL: it does
 * not. */
static unsigned char *straight(const struct mr_loader *ld, const struct mr_extent *at, uint64_t t,
                               uint32_t row)
{
    int f = at->field >= 0 ? ld->layout.decoded[at->field].row_of : -1;
    if (f < 0 || ld->caching || ld->layout.varies)
        return NULL;
    return mr_field_row(&ld->layout.field[f], mr_ring_slot(&ld->ring, t), row);
}

/* Does the extent go on where the last read of this run ends, in the file and in memory? */
static bool joins(const struct mr_read *last, const struct mr_extent *at, const unsigned char *to)
{
    return last->file == at->file && last->bytes != MR_WHOLE && at->bytes != MR_WHOLE &&
           last->offset + last->bytes == at->offset && last->bytes > 0 &&
           (!to || (unsigned char *)last->buf + last->bytes == to);
}

/* The read that this extent makes longer, among the last `most` (a sample's extents may be in
 * several files), or NULL. */
static struct mr_read *read_before(struct mr_run *run, uint32_t most, const struct mr_extent *at,
                                   const unsigned char *to)
{
    for (uint32_t back = 1; back <= most && back <= run->n_reads; back++) {
        struct mr_read *last = &run->read[run->n_reads - back];
        if ((to != NULL) == (last->buf != NULL) && joins(last, at, to))
            return last;
    }
    return NULL;
}

/* The read for extent e of sample i: one made longer, or a new one. Reads that are parts of ranges
 * are not made longer: a range has them all. */
static void plan_read(struct mr_worker *w, struct mr_run *run, uint32_t i, int e, bool open)
{
    struct mr_loader *ld = w->ld;
    struct mr_run_sample *s = &run->sample[i];
    const struct mr_extent *at = &s->extent[e].at;
    unsigned char *to = open ? straight(ld, at, run->t, run->row0 + i) : NULL;
    uint32_t most = w->merged ? 0 : (uint32_t)mr_extents_most(ld->ds);
    struct mr_read *read = read_before(run, most, at, to);
    s->extent[e].skip = read ? read->bytes : 0;
    if (read) {
        read->bytes += at->bytes;
    } else {
        run->landed[run->n_reads] = false;
        read = &run->read[run->n_reads++];
        *read = (struct mr_read){
            .file = at->file, .offset = at->offset, .bytes = at->bytes, .buf = to, .user = run};
        mr_merge_read(w, run, i, read);
    }
    s->extent[e].read = read;
}

/* Where a sample's bytes are, and views of those that are in memory. Sets this thread's error text.
 */
static int locate(const struct mr_loader *ld, struct mr_run_sample *s, uint64_t epoch)
{
    struct mr_extent at[MR_MAX_EXTENTS];
    s->n_extents = 0;
    int n = ld->ds->ops->locate(ld->ds, s->index, at), rc = 0;
    if (n > mr_extents_most(ld->ds)) /* there is no room for more */
        return mr_error_set(MR_ELIMIT, "sample %llu: %d byte ranges: expected at most %d",
                            (unsigned long long)s->index, n, mr_extents_most(ld->ds));
    if (n > 0)
        s->maker = (uint8_t)mr_backends_choose(ld, 0, epoch, s->index, at, n);
    for (int e = 0; e < n && rc >= 0; e++) {
        struct mr_bytes view;
        rc = mr_extent_view(ld->ds, &at[e], &view);
        s->extent[e].at = at[e];
        s->extent[e].at.bytes = view.n;
        s->extent[e].view = view.data;
        s->extent[e].read = NULL;
        s->extent[e].on_device = false;
        s->failed_extent = e;
        s->n_extents = e + 1;
    }
    return n < 0 ? n : MR_MIN(rc, 0);
}

static void locate_sample(struct mr_worker *w, struct mr_run *run, uint32_t i, bool open)
{
    struct mr_loader *ld = w->ld;
    struct mr_run_sample *s = &run->sample[i];
    s->n_extents = s->status = 0;
    if (!ld->ds->ops->locate || !ld->backends.reads) {
        s->maker = (uint8_t)mr_backends_choose(ld, 0, run->info.epoch, s->index, NULL, 0);
        return;
    }
    s->status = locate(ld, s, run->info.epoch);
    for (int e = 0; e < s->n_extents && s->status == 0; e++)
        if (!s->extent[e].view && !mr_backend_reads(ld, s->maker, &s->extent[e].at))
            plan_read(w, run, i, e, open);
}

void mr_run_locate(struct mr_worker *w, struct mr_run *run, uint32_t i)
{
    if (run->error.code == 0)
        locate_sample(w, run, i, true);
}

int mr_run_error(const struct mr_worker *w, const struct mr_run *run, uint32_t i)
{
    const struct mr_run_sample *s = &run->sample[i];
    if (run->error.code < 0)
        return mr_error_put(&run->error);
    if (s->item)
        return mr_source_error(s);
    struct mr_run_extent extents[MR_MAX_EXTENTS];
    struct mr_run_sample again = {.index = s->index, .extent = extents};
    int rc = locate(w->ld, &again,
                    run->info.epoch); /* for the text: that of the first time is lost by now */
    if (rc < 0)
        return rc;
    return mr_error_set(s->status, "sample %llu: cannot be located: %s",
                        (unsigned long long)s->index, mr_strerror(s->status));
}

/* Whole files come in the reader's own memory. */
static bool needs_place(const struct mr_read *read)
{
    return !read->buf && read->bytes != MR_WHOLE;
}

/* Gives each read that does not go straight into a row its place in the run's buffer, which grows
 * when samples are larger than the first. */
static int place_reads(struct mr_run *run)
{
    uint64_t need = 0;
    for (uint32_t r = 0; r < run->n_reads; r++)
        need += needs_place(&run->read[r]) ? mr_round_up(run->read[r].bytes, MR_CACHE_LINE) : 0;
    int rc = grow_buffer(run, need);
    if (rc < 0)
        return rc;
    uint64_t at = 0;
    for (uint32_t r = 0; r < run->n_reads; r++)
        if (needs_place(&run->read[r])) {
            run->read[r].buf = run->buffer + at;
            at += mr_round_up(run->read[r].bytes, MR_CACHE_LINE);
        }
    return 0;
}

/* A run's samples, for a data set that looks for them first. */
static void expect_run(const struct mr_loader *ld, uint64_t number)
{
    struct mr_plan_batch info;
    mr_plan_get(&ld->plan, number / ld->sizes.runs_per_batch, &info);
    uint64_t row = number % ld->sizes.runs_per_batch * ld->sizes.run_rows, index;
    uint64_t end = MR_MIN(row + ld->sizes.run_rows, info.rows);
    for (; row < end; row++) {
        uint64_t at = mr_shard_position(info.shard, info.row0 + row);
        if (mr_sampler_map(ld->sampler, info.epoch, at, 1, &index) == 0)
            ld->ds->ops->expect(ld->ds, index);
    }
}

/* This run and the next ones, each once. */
static void expect_ahead(struct mr_loader *ld, uint64_t number)
{
    if (!ld->ds->ops->expect || ld->plan.finds || ld->plan.starts)
        return;
    uint64_t ahead = 1 + EXPECT_ROWS / ld->sizes.run_rows, done = atomic_load(&ld->expected);
    for (;;) {
        uint64_t next = MR_MAX(done, number);
        if (next >= number + ahead || next / ld->sizes.runs_per_batch >= ld->plan.total)
            return;
        if (!atomic_compare_exchange_weak(&ld->expected, &done, next + 1))
            continue;
        expect_run(ld, next);
        done = atomic_load(&ld->expected);
    }
}

void mr_run_fill(struct mr_worker *w, struct mr_run *run, uint64_t number, bool open)
{
    struct mr_loader *ld = w->ld;
    run->t = number / ld->sizes.runs_per_batch;
    run->info = (struct mr_plan_batch){.rows = ld->plan.batch_size}; /* if it is to be found */
    if (!ld->plan.finds)
        mr_plan_get(&ld->plan, run->t, &run->info);
    uint64_t row0 = number % ld->sizes.runs_per_batch * ld->sizes.run_rows;
    run->row0 = (uint32_t)row0;
    run->n =
        row0 < run->info.rows ? (uint32_t)MR_MIN(ld->sizes.run_rows, run->info.rows - row0) : 0;
    run->n_left = run->n; /* the span: who finds fewer rows lowers n alone */
    run->n_done = run->n_reads = run->n_landed = run->n_submitted = 0;
    run->error.code = 0;
    run->posted = false;
    mr_watch_since(&w->watch, w->lap_ns);
    mr_watch_note(&w->watch, run->t, run->row0, MR_TASK_LOCATE);
    int rc = w->entered.code < 0 ? mr_error_put(&w->entered) : 0;
    if (ld->plan.finds && rc < 0)
        run->n = 0;
    else if (rc == 0)
        rc = ld->plan.finds ? mr_run_find(w, run) : map_order(w, run);
    if (rc == 0) {
        expect_ahead(ld, number);
        bool locates = !ld->gathers || mr_gather_waits(ld);
        for (uint32_t i = 0; i < run->n && locates; i++)
            locate_sample(w, run, i, open);
        rc = place_reads(run);
    }
    if (rc < 0) { /* no order, no buffer: this batch cannot be made whatever the policy */
        run->n_reads = 0;
        for (uint32_t i = 0; i < run->n; i++) {
            run->sample[i].n_extents = 0;
            run->sample[i].status = rc;
            run->sample[i].done = false;
        }
        mr_error_keep(rc, &run->error);
    }
}
