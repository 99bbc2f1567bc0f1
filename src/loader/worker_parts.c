/* What a worker holds: made before its thread begins, freed after it has ended. */
#include "loader/engine.h"

#include <stdlib.h>

/* The largest row that is transformed before it is put in its place, or mixed. */
static uint64_t row_buffer_bytes(const struct mr_loader *ld)
{
    uint64_t largest = MR_CACHE_LINE;
    for (int f = 0; f < ld->layout.n_fields; f++) {
        const struct mr_field *fp = &ld->layout.field[f];
        bool aside = (fp->varies || fp->collated) && !fp->identity;
        if (aside || (ld->chain && ld->chain->mix))
            largest = MR_MAX(largest, fp->row_bytes);
    }
    return mr_round_up(largest, MR_CACHE_LINE);
}

uint64_t mr_worker_bytes(const struct mr_loader *ld)
{
    uint64_t sum = row_buffer_bytes(ld) + mr_round_up(ld->layout.scratch_bytes + 1, MR_CACHE_LINE) +
                   ld->sizes.run_rows * sizeof(uint64_t) + mr_get_bytes(ld) + mr_found_bytes(ld);
    for (int f = 0; f < ld->layout.n_decoded; f++)
        sum +=
            f == ld->ds->picture ? 0 : mr_round_up(ld->layout.decoded[f].bytes + 1, MR_CACHE_LINE);
    return sum;
}

int mr_worker_init(struct mr_worker *w, struct mr_loader *ld, uint32_t id)
{
    w->ld = ld;
    w->id = id;
    mr_permit_init(&w->permit, &ld->share);
    mr_ahead_init(w);
    w->order = calloc(ld->sizes.run_rows, sizeof *w->order);
    int rc = w->order ? mr_runs_create(w)
                      : mr_error_nomem("worker", ld->sizes.run_rows * sizeof *w->order);
    if (rc < 0)
        return rc;
    rc = mr_found_create(w);
    if (rc >= 0)
        rc = mr_merge_create(w);
    if (rc < 0)
        return rc;
    for (int f = 0; f < ld->layout.n_decoded; f++) {
        uint64_t bytes = ld->layout.decoded[f].bytes;
        if (f == ld->ds->picture) /* is in the decoder */
            continue;
        if (!(w->decoded[f] = aligned_alloc(MR_CACHE_LINE, mr_round_up(bytes + 1, MR_CACHE_LINE))))
            return mr_error_nomem("worker", bytes);
    }
    w->row_buffer = aligned_alloc(MR_CACHE_LINE, row_buffer_bytes(ld));
    w->scratch =
        aligned_alloc(MR_CACHE_LINE, mr_round_up(ld->layout.scratch_bytes + 1, MR_CACHE_LINE));
    if (!w->row_buffer || !w->scratch)
        return mr_error_nomem("worker", mr_worker_bytes(ld));
    rc = mr_get_create(w);
    if (rc < 0)
        return rc;
    rc = mr_dataset_decodes(ld->ds) ? mr_decoder_create(&w->decoder) : 0;
    if (rc < 0 || !ld->storage)
        return rc;
    rc = mr_reader_open(ld->storage, &w->reader);
    if (rc < 0 || ld->sizes.n_whole == 0)
        return rc;
    uint64_t n = ld->sizes.runs_per_worker * ld->sizes.run_rows * ld->sizes.n_whole;
    return mr_reader_reserve(w->reader, (uint32_t)n, ld->sizes.whole_bytes / ld->sizes.n_whole);
}

void mr_worker_free(struct mr_worker *w)
{
    for (uint32_t i = 0; i < w->n_runs; i++)
        mr_run_end(w, mr_nth_run(w, i));
    if (w->reader)
        mr_reader_close(w->reader);
    mr_runs_free(w);
    mr_permit_destroy(&w->permit);
    mr_get_free(w);
    mr_found_free(w);
    free(w->merged);
    free(w->order);
    free(w->row_buffer);
    free(w->scratch);
    mr_decoder_destroy(w->decoder);
    for (int f = 0; f < MR_MAX_FIELDS; f++)
        free(w->decoded[f]);
}
