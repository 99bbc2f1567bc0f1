/* The rows of a run, field by field. */
#include "loader/gather.h"

#include "base/copy.h"
#include "loader/engine.h"

#include <string.h>

#define BLOCK 32 /* records whose places are looked up together */
#define AHEAD 2  /* records: while one is copied, the first lines of a later one are fetched */
#define LINES 16

static bool can_gather(const struct mr_layout *layout, int f)
{
    const struct mr_field *fp = &layout->field[f];
    return fp->source == f && fp->identity && !fp->device_part && !fp->direct &&
           (mr_field_in_row(fp) || (fp->varies && fp->collated));
}

/* From records in memory, of which only the field's own chain makes rows of one size. */
static bool has_records(const struct mr_loader *ld, int f)
{
    const struct mr_field *fp = &ld->layout.field[f];
    const struct mr_records *r = fp->source >= 0 ? &ld->ds->records[fp->source] : NULL;
    return r && !r->swap && mr_files_in_memory(ld->ds->files, r->file) && !fp->device_part &&
           !fp->direct && !fp->varies && !fp->collated;
}

/* What a chain does to fields together, or keeps for the batch, is done sample by sample. */
static bool is_simple(const struct mr_transform *chain)
{
    return !chain || (!mr_transform_begins(chain) && !chain->mix && chain->pointed < 0);
}

bool mr_gather_waits(const struct mr_loader *ld)
{
    const struct mr_layout *layout = &ld->layout;
    bool waits = false;
    for (int f = 0; f < layout->n_fields && ld->ds->records && !waits; f++)
        waits = !mr_files_is_whole(ld->ds->files, ld->ds->records[layout->field[f].source].file);
    return waits;
}

bool mr_gather_plan(const struct mr_loader *ld)
{
    const struct mr_layout *layout = &ld->layout;
    bool records = ld->ds->records && is_simple(ld->chain) && !ld->sandbox;
    if ((!records && (!ld->ds->ops->gather || ld->chain)) || ld->ds->picture >= 0 ||
        layout->by_user || layout->items || ld->plan.finds)
        return false;
    if (ld->backends.n_used != 1 || ld->backends.used[0]->ops != &mr_row_host)
        return false;
    for (int f = 0; f < layout->n_fields; f++)
        if (records ? !has_records(ld, f) : !can_gather(layout, f))
            return false;
    return true;
}

/* Where rows of varying length are. What does not stay until close is copied, up to the bound. */
static int find_field(const struct mr_worker *w, struct mr_slot *slot, int f, uint32_t row,
                      uint32_t n, const uint64_t index[])
{
    struct mr_loader *ld = w->ld;
    const struct mr_field *fp = &ld->layout.field[f];
    const unsigned char **data = mr_slot_kept(slot, row, f);
    uint64_t(*dim)[MR_MAX_RANK] = (uint64_t(*)[MR_MAX_RANK])mr_slot_dims(slot, row, f);
    for (uint32_t i = 0; i < n; i++)
        memcpy(dim[i], fp->out.dim, (size_t)fp->out.rank * sizeof **dim);
    ld->ds->ops->find(ld->ds, w->state, f, n, index, data, dim);
    for (uint32_t i = 0; i < n && !ld->ds->lasting; i++)
        if (dim[i][0] > fp->out.dim[0])
            return MR_ELIMIT;
    return ld->ds->lasting ? 0 : mr_collate_keep_rows(ld, slot, row, n, f);
}

static void prefetch(const void *record, uint64_t bytes)
{
    for (uint64_t at = 0; at < MR_MIN(bytes, LINES * MR_CACHE_LINE); at += MR_CACHE_LINE)
        __builtin_prefetch((const char *)record + at, 0, 2);
}

/* A row of field f from a record. */
static int make_row(const struct mr_worker *w, int f, struct mr_at *at, const void *record,
                    unsigned char *to)
{
    const struct mr_loader *ld = w->ld;
    const struct mr_field *fp = &ld->layout.field[f];
    uint64_t dim[MR_MAX_RANK];
    if (!fp->identity)
        return mr_transform_apply_at(ld->chain, f, at, record, ld->ds->field[fp->source].dim, to,
                                     dim, w->scratch);
    mr_copy_row(ld->past_caches, to, record, fp->row_bytes);
    return 0;
}

/* Rows of field f from records, at most BLOCK of them. */
static int make_block(const struct mr_worker *w, struct mr_slot *slot, struct mr_at *at, int f,
                      uint32_t row, uint32_t n, const uint64_t index[])
{
    const struct mr_dataset *ds = w->ld->ds;
    const struct mr_field *fp = &w->ld->layout.field[f];
    const struct mr_records *r = &ds->records[fp->source];
    const void *record[BLOCK];
    int rc = 0;
    if (!mr_records_view(ds, r, n, index, record))
        return MR_EFORMAT;
    for (uint32_t i = 0; i < n && rc >= 0; i++) {
        if (i + AHEAD < n)
            prefetch(record[i + AHEAD], r->bytes);
        at->index = index[i];
        rc = make_row(w, f, at, record[i], mr_field_row(fp, slot, row + i));
    }
    return rc;
}

/* Rows of all fields from records. */
static int make_records(const struct mr_worker *w, struct mr_slot *slot, struct mr_at *at,
                        uint32_t row, uint32_t n, const uint64_t index[])
{
    for (int f = 0; f < w->ld->layout.n_fields; f++)
        for (uint32_t i = 0; i < n; i += BLOCK) {
            int rc = make_block(w, slot, at, f, row + i, MR_MIN(BLOCK, n - i), index + i);
            if (rc < 0)
                return rc;
        }
    return 0;
}

/* Rows [row, row + n) of all fields. */
static int make_rows(const struct mr_worker *w, struct mr_slot *slot, struct mr_at *at,
                     uint32_t row, uint32_t n, const uint64_t index[])
{
    const struct mr_loader *ld = w->ld;
    if (ld->ds->records)
        return make_records(w, slot, at, row, n, index);
    for (int f = 0; f < ld->layout.n_fields; f++) {
        const struct mr_field *fp = &ld->layout.field[f];
        if (!fp->varies) {
            ld->ds->ops->gather(ld->ds, w->state, f, n, index, mr_field_row(fp, slot, row),
                                fp->row_bytes);
            continue;
        }
        int rc = find_field(w, slot, f, row, n, index);
        if (rc < 0)
            return rc;
    }
    return 0;
}

uint32_t mr_gather_run(struct mr_worker *w, struct mr_run *run, bool timed)
{
    const struct mr_dataset *ds = w->ld->ds;
    struct mr_slot *slot = mr_ring_slot(&w->ld->ring, run->t);
    struct mr_at at = {.seed = w->ld->opts.seed, .epoch = run->info.epoch, .dim = ds->field[0].dim};
    uint32_t made = 0;
    if (run->error.code < 0)
        return 0;
    uint64_t begin = timed ? mr_time_ns() : 0;
    for (uint32_t i = 0; i < run->n; i++)
        w->order[i] = run->sample[i].index;
    while (made < run->n) {
        const uint64_t *index = w->order + made;
        mr_watch_note(&w->watch, run->t, run->row0 + made, MR_TASK_DECODE);
        uint32_t n = run->n - made;
        if (ds->ops->hold)
            n = ds->ops->hold(ds, w->state, n, index);
        if (n == 0 || make_rows(w, slot, &at, run->row0 + made, n, index) < 0)
            break;
        for (uint32_t i = made; i < made + n; i++) {
            slot->indices[run->row0 + i] = run->sample[i].index;
            slot->positions[run->row0 + i] = run->sample[i].position;
            mr_slot_set_maker(slot, run->row0 + i, 0);
            run->sample[i].done = true;
        }
        made += n;
    }
    if (timed) /* records are copied, or a chain reads them where they are: nothing is decoded */
        mr_count(ds->records ? &w->timed_transform_ns : &w->timed_decode_ns, mr_time_ns() - begin);
    return made;
}
