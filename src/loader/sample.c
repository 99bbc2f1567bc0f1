/*
 * One sample: made into its row by a backend; and what happens when it cannot be. The rules for bad
 * samples are here once, for all backends.
 */
#include "loader/engine.h"
#include "loader/sandbox.h"

#include <errno.h>

/* Which rows the device mirrors: from the numbers that the host's op draws. */
static void draw_flips(struct mr_loader *ld, const struct mr_row *row, uint64_t index)
{
    for (int f = 0; f < ld->layout.n_fields; f++) {
        const struct mr_field *fp = &ld->layout.field[f];
        if (fp->device_part && fp->device_part->flip)
            row->slot->host[fp->flip_offset + row->at] =
                mr_device_part_flips(fp->device_part, ld->opts.seed, row->epoch, index);
    }
}

/* Makes a sample whose bytes have been had into its row: by the backend that took it, or one behind
 * that if it declines. Notes which. */
static int make(struct mr_worker *w, const struct mr_row *row, struct mr_run_sample *s)
{
    struct mr_loader *ld = w->ld;
    for (int i = s->maker; i < ld->backends.n_used; i++) {
        int rc = ld->backends.used[i]->ops->make(ld->backends.used[i], w, row, s);
        if (rc < 0)
            return rc;
        if (rc == 0)
            continue;
        mr_slot_set_maker(row->slot, row->at, (uint8_t)i);
        if (ld->layout.flips)
            draw_flips(ld, row, s->index);
        return 0;
    }
    return mr_error_set(MR_EMISUSE, "sample %llu: no row backend makes it",
                        (unsigned long long)s->index);
}

/* Reads a sample on this thread into memory of its own: the rare way, for replacements.
 * owned: zeroed; the caller frees what it holds afterwards. */
static int fetch_now(struct mr_loader *ld, struct mr_run_sample *s, void *owned[MR_MAX_EXTENTS])
{
    s->n_extents = 0;
    if (!ld->ds->ops->locate)
        return 0;
    struct mr_extent at[MR_MAX_EXTENTS];
    int n = ld->ds->ops->locate(ld->ds, s->index, at);
    if (n < 0)
        return n;
    for (int e = 0; e < n; e++) {
        struct mr_bytes bytes;
        s->extent[e].at = at[e];
        s->failed_extent = e;
        s->n_extents = e + 1;
        int rc = mr_extent_fetch(ld->ds, &at[e], &bytes, &owned[e]);
        if (rc < 0)
            return rc;
        s->extent[e].at.bytes = bytes.n;
        s->extent[e].view = bytes.data;
    }
    return 0;
}

/* Fetches a sample and makes it, by a backend from number `first` on. */
static int make_now(struct mr_worker *w, const struct mr_row *row, struct mr_run_sample *s,
                    int first)
{
    void *owned[MR_MAX_EXTENTS] = {NULL};
    int rc = fetch_now(w->ld, s, owned);
    if (rc < 0)
        goto end;
    s->maker = (uint8_t)mr_backends_choose(w->ld, first, row->epoch, s->index, NULL, 0);
    rc = make(w, row, s);
end:
    for (int e = 0; e < MR_MAX_EXTENTS; e++)
        free(owned[e]);
    return rc;
}

/* Says nothing about the sample: another try would find it good. */
static bool machine_lacks(const struct mr_loader *ld, int rc)
{
    bool refused = rc == MR_ELIMIT && atomic_load(&ld->grown.refused); /* by max_memory */
    if (ld->ds->on_device && (rc == MR_EDEVICE || rc == MR_EDEVICEMEM))
        return true;
    return rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE || rc == MR_SANDBOX_GONE || refused;
}

/*
 * Puts the sample of the next position that decodes in place of a bad one: positions p + 1, p + 2,
 * ... of the same epoch's order, wrapping round. A function of p alone, so every run chooses the
 * same.
 */
#define MAX_REPLACE_TRIES 1000
static int replace(struct mr_worker *w, const struct mr_row *row, uint64_t position, int first)
{
    struct mr_loader *ld = w->ld;
    uint64_t length = ld->plan.length, p = position % length;
    uint64_t tries = MR_MIN(length - 1, MAX_REPLACE_TRIES);
    struct mr_row alone = *row; /* without the samples behind the bad one */
    struct mr_run_extent extents[MR_MAX_EXTENTS] = {{{0}}};
    alone.n_next = 0;
    for (uint64_t k = 1; k <= tries; k++) {
        struct mr_run_sample s = {.position = position, .extent = extents};
        if (atomic_load_explicit(&ld->ring.stop, memory_order_relaxed))
            break;
        int rc = mr_sampler_map(ld->sampler, row->epoch, (p + k) % length, 1, &s.index);
        if (rc == 0)
            rc = make_now(w, &alone, &s, first);
        if (machine_lacks(ld, rc))
            return rc;
        if (rc == 0) {
            row->slot->indices[row->at] = s.index;
            return 0;
        }
    }
    return mr_error_set(
        MR_EBADSAMPLES,
        "no sample decodes at the %llu positions after position %llu: nothing can replace it",
        (unsigned long long)tries, (unsigned long long)p);
}

/* Notes a sample that could not be made, and puts another in its place if the policy says so, by a
 * backend from number `first` on. */
static void give_up(struct mr_worker *w, const struct mr_row *row, const struct mr_run_sample *s,
                    int rc, bool fatal, int first)
{
    struct mr_loader *ld = w->ld;
    fatal |= machine_lacks(ld, rc);
    mr_bad_add(ld, row->slot, row->at, s, rc, fatal);
    if (ld->opts.bad != MR_BAD_REPLACE || fatal)
        return;
    rc = replace(w, row, s->position, first);
    if (rc < 0)
        mr_bad_add(ld, row->slot, row->at, s, rc, true);
}

void mr_sample_make(struct mr_worker *w, struct mr_run *run, uint32_t i, bool timed)
{
    struct mr_loader *ld = w->ld;
    struct mr_run_sample *s = &run->sample[i];
    struct mr_row row = {.slot = mr_ring_slot(&ld->ring, run->t),
                         .t = run->t,
                         .epoch = run->info.epoch,
                         .at = run->row0 + i,
                         .n_next = run->n - i - 1,
                         .timed = timed};
    row.slot->indices[row.at] = s->index;
    row.slot->positions[row.at] = s->position;
    if (row.slot->items)
        row.slot->items[row.at] = (struct mr_batch_item){s->index, s->row, s->from, s->count};
    mr_slot_set_maker(row.slot, row.at, (uint8_t)(ld->backends.n_used - 1));
    int rc = s->status < 0 ? mr_run_error(w, run, i) : make(w, &row, s);
    if (rc < 0) {
        bool device = rc == MR_EDEVICE && ld->backends.writes_device;
        bool fatal = run->error.code < 0 || (s->item && s->item->fatal);
        give_up(w, &row, s, rc, device || fatal, 0);
    }
}

void mr_sample_make_again(struct mr_worker *w, struct mr_slot *slot, uint64_t t, uint32_t at)
{
    struct mr_row row = {.slot = slot, .t = t, .epoch = slot->info.epoch, .at = at};
    struct mr_run_extent extents[MR_MAX_EXTENTS] = {{{0}}};
    struct mr_run_sample s = {
        .index = slot->indices[at], .position = slot->positions[at], .extent = extents};
    int last = w->ld->backends.n_used - 1;
    int rc = make_now(w, &row, &s, last);
    if (rc < 0)
        give_up(w, &row, &s, rc, false, last);
}
