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
                                 sizeof *get->dim + sizeof *get->rc);
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
    return 0;
}

void mr_get_free(struct mr_worker *w)
{
    free(w->get.context);
    free(w->get.row);
    free(w->get.dim);
    free(w->get.rc);
    free(w->get.memory);
}

static void prepare(struct mr_worker *w, const struct mr_row *row, uint32_t i, uint64_t index,
                    uint64_t position)
{
    const struct mr_loader *ld = w->ld;
    struct mr_get *get = &w->get;
    unsigned char *own = get->memory + i * row_bytes(ld);
    get->context[i] = (struct mr_sample_context){.size = sizeof *get->context,
                                                 .index = index,
                                                 .epoch = row->epoch,
                                                 .seed = ld->opts.seed,
                                                 .position = position,
                                                 .worker = w->id,
                                                 .worker_state = w->state};
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
    int rc = ds->ops->get_run(ds, get->n, get->context, (void *const(*)[MR_MAX_FIELDS])get->row,
                              get->dim, get->rc);
    get->failed.code = 0;
    if (rc < 0)
        mr_error_keep(rc, &get->failed);
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
