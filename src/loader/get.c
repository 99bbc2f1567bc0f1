/* Samples of data sets that make them themselves, several in one call where they can. */
#include "loader/get.h"

#include "loader/engine.h"

#include <string.h>

static uint64_t row_bytes(const struct mr_loader *ld)
{
    uint64_t sum = 0;
    for (int f = 0; f < ld->layout.n_decoded; f++)
        if (ld->layout.decoded[f].row_of < 0) /* others are made in their rows */
            sum += mr_round_up(ld->layout.decoded[f].bytes + 1, MR_CACHE_LINE);
    return sum;
}

uint64_t mr_get_bytes(const struct mr_loader *ld)
{
    const struct mr_get *get = NULL;
    if (!ld->ds->ops->get_run)
        return 0;
    return ld->sizes.run_rows * (row_bytes(ld) + sizeof *get->context + sizeof *get->row +
                                 sizeof *get->dim + sizeof *get->rc) +
           (ld->posts ? mr_posted_bytes(ld) : 0);
}

int mr_get_create(struct mr_worker *w)
{
    const struct mr_loader *ld = w->ld;
    struct mr_get *get = &w->get;
    uint64_t n = ld->sizes.run_rows;
    if (!ld->ds->ops->get_run)
        return 0;
    get->context = calloc(n, sizeof *get->context);
    get->row = calloc(n, sizeof *get->row);
    get->dim = calloc(n, sizeof *get->dim);
    get->rc = calloc(n, sizeof *get->rc);
    get->memory = aligned_alloc(MR_CACHE_LINE, MR_MAX(n * row_bytes(ld), MR_CACHE_LINE));
    if (!get->context || !get->row || !get->dim || !get->rc || !get->memory)
        return mr_error_nomem("worker", mr_get_bytes(ld));
    return ld->posts ? mr_posted_create(w) : 0;
}

void mr_get_free(struct mr_worker *w)
{
    free(w->get.context);
    free(w->get.row);
    free(w->get.dim);
    free(w->get.rc);
    free(w->get.memory);
    mr_posted_free(w);
}

struct mr_sample_context mr_get_context(const struct mr_worker *w, uint64_t epoch, uint64_t index,
                                        uint64_t position)
{
    return (struct mr_sample_context){.size = sizeof(struct mr_sample_context),
                                      .index = index,
                                      .epoch = epoch,
                                      .seed = w->ld->opts.seed,
                                      .position = position,
                                      .worker = w->id,
                                      .worker_state = w->state};
}

static void prepare(struct mr_worker *w, const struct mr_row *row, uint32_t i, uint64_t index,
                    uint64_t position)
{
    const struct mr_loader *ld = w->ld;
    struct mr_get *get = &w->get;
    unsigned char *own = get->memory + i * row_bytes(ld);
    get->context[i] = mr_get_context(w, row->epoch, index, position);
    for (int f = 0; f < ld->layout.n_decoded; f++) {
        const struct mr_decoded_field *df = &ld->layout.decoded[f];
        if (df->row_of >= 0) {
            get->row[i][f] = mr_field_row(&ld->layout.field[df->row_of], row->slot, row->at + i);
            continue;
        }
        get->row[i][f] = own;
        own += mr_round_up(df->bytes + 1, MR_CACHE_LINE);
    }
}

/* All samples from this one to the end of its run. */
static void make_run(struct mr_worker *w, const struct mr_row *row, const struct mr_run_sample *s)
{
    struct mr_get *get = &w->get;
    const struct mr_dataset *ds = w->ld->ds;
    get->s = s;
    get->t = row->t;
    get->at = row->at;
    get->n = get->n_made = row->n_next + 1;
    for (uint32_t i = 0; i < get->n; i++)
        prepare(w, row, i, s[i].index, s[i].position);
    /* Dimensions that are the fields' own would be most of what is written here. */
    uint64_t(*dim)[MR_MAX_FIELDS][MR_MAX_RANK] =
        w->ld->gets_runs && ds->makers > 0 ? NULL : get->dim;
    int rc = ds->ops->get_run(ds, get->n, get->context, (void *const(*)[MR_MAX_FIELDS])get->row,
                              dim, get->rc);
    get->failed.code = 0;
    if (rc < 0)
        mr_error_keep(rc, &get->failed);
}

bool mr_get_plan(const struct mr_loader *ld)
{
    const struct mr_layout *layout = &ld->layout;
    if (!ld->ds->ops->get_run || ld->ds->ops->locate || ld->ds->picture >= 0 || ld->chain ||
        ld->sandbox || ld->source || ld->plan.finds || ld->skips_pictures)
        return false;
    if (layout->by_user || layout->items || layout->flips || layout->varies || layout->collates ||
        layout->n_fields != layout->n_decoded)
        return false;
    if (ld->backends.n_used != 1 || ld->backends.used[0]->ops != &mr_row_host)
        return false;
    for (int f = 0; f < layout->n_fields; f++) {
        const struct mr_field *fp = &layout->field[f];
        if (fp->source != f || layout->decoded[f].row_of != f || !mr_field_in_row(fp) ||
            fp->device_part || fp->direct)
            return false;
    }
    return true;
}

uint32_t mr_get_run(struct mr_worker *w, struct mr_run *run, bool timed)
{
    const struct mr_get *get = &w->get;
    struct mr_slot *slot = mr_ring_slot(&w->ld->ring, run->t);
    struct mr_row row = {
        .slot = slot, .t = run->t, .epoch = run->info.epoch, .at = run->row0, .n_next = run->n - 1};
    bool measure = timed && w->measure;
    struct mr_blocked begin;
    uint32_t made = 0;
    if (run->error.code < 0 || run->n == 0)
        return 0;
    mr_watch_note(&w->watch, run->t, run->row0, MR_TASK_DECODE);
    if (measure)
        mr_blocked_begin(&begin);
    uint64_t start = timed ? mr_time_ns() : 0;
    if (run->posted)
        mr_posted_finish(w, run);
    else
        make_run(w, &row, run->sample);
    if (timed) {
        uint64_t took = mr_time_ns() - start;
        mr_count(&w->timed_decode_ns, took);
        if (measure && get->failed.code == 0)
            mr_blocked_end(&begin, took, run->n, &w->blocked);
    }
    for (uint32_t i = 0; i < run->n && get->failed.code == 0; i++) {
        struct mr_run_sample *s = &run->sample[i];
        if (get->rc[i] < 0)
            continue;
        slot->indices[run->row0 + i] = s->index;
        slot->positions[run->row0 + i] = s->position;
        mr_slot_set_maker(slot, run->row0 + i, 0);
        s->done = true;
        made++;
    }
    return made;
}

/* A row's place in its batch is made once by its run; what replaces it comes with another s. */
static bool has(const struct mr_get *get, const struct mr_row *row, const struct mr_run_sample *s)
{
    uint32_t i = row->at - get->at;
    return get->n > 0 && row->t == get->t && i < get->n && s == get->s + i;
}

int mr_get_sample(struct mr_worker *w, const struct mr_row *row, struct mr_run_sample *s,
                  struct mr_sample *out)
{
    const struct mr_dataset *ds = w->ld->ds;
    struct mr_get *get = &w->get;
    get->n_made = 1;
    if (!ds->ops->get_run)
        return ds->ops->get(ds, s->index, out);
    if (!has(get, row, s)) {
        if (row->n_next == 0)
            return ds->ops->get(ds, s->index, out);
        make_run(w, row, s);
    }
    uint32_t i = row->at - get->at;
    if (get->failed.code < 0)
        return mr_error_put(&get->failed);
    if (get->rc[i] < 0)
        return ds->ops->get(ds, s->index, out);
    for (int f = 0; f < ds->n_fields; f++) {
        out->field[f].data = get->row[i][f];
        memcpy(out->field[f].dim, get->dim[i][f], sizeof out->field[f].dim);
    }
    return 0;
}
