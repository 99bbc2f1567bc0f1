/*
 * Shipping: the copy of a full slot to the device, and the events that order it against the consumer's work without a host
 * that waits. The worker that completes a batch enqueues its copy itself.
 */
#include "loader/loader.h"

#include <stdio.h>
#include <string.h>

int mr_ship_init(struct mr_loader *ld)
{
    ld->times = calloc(MR_TIMES, sizeof *ld->times);
    if (!ld->times)
        return mr_error_nomem("copy times", MR_TIMES * sizeof *ld->times);
    int rc = 0;
    for (uint32_t i = 0; i < ld->opts.streams && rc == 0; i++) {
        char name[24] = "copy";
        if (i > 0)
            snprintf(name, sizeof name, "copy %u", i + 1);
        rc = mr_stream_create(ld->device, name, &ld->copy_stream[i]);
    }
    if (rc == 0)
        rc = mr_event_create(ld->device, 1, &ld->base);
    return rc == 0 ? mr_event_record(ld->base, ld->copy_stream[0]) : rc;
}

void mr_ship_free(struct mr_loader *ld)
{
    for (int i = 0; i < MR_MAX_STREAMS; i++)
        if (ld->copy_stream[i])
            mr_stream_destroy(ld->copy_stream[i]);
    if (ld->base)
        mr_event_destroy(ld->base);
    free(ld->times);
}

int mr_slot_events_create(struct mr_loader *ld, struct mr_slot_events *ev)
{
    struct mr_event **all[] = {&ev->copy_start, &ev->copied, &ev->handed, &ev->released};
    for (size_t i = 0; i < MR_COUNT(all); i++) {
        int rc = mr_event_create(ld->device, 1, all[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

void mr_slot_events_destroy(struct mr_slot_events *ev)
{
    if (ev->copy_recorded)
        mr_event_synchronize(ev->copied);
    if (ev->release_recorded)
        mr_event_synchronize(ev->released); /* the consumer's work may still read the device half */
    struct mr_event *all[] = {ev->copy_start, ev->copied, ev->handed, ev->released};
    for (size_t i = 0; i < MR_COUNT(all); i++)
        if (all[i])
            mr_event_destroy(all[i]);
}

/* Keeps the times of the batch that used these events, if they are all passed. [ship_lock] */
static void keep_times(struct mr_loader *ld, struct mr_slot_events *ev)
{
    struct mr_times t = {0};
    if (!ev->copy_recorded || mr_event_query(ev->copied) != 1)
        return;
    bool used = ev->handed_recorded && ev->release_recorded;
    if (used && mr_event_query(ev->released) != 1)
        return;
    int rc = mr_event_elapsed(ld->base, ev->copy_start, &t.copy_start);
    if (rc == 0)
        rc = mr_event_elapsed(ld->base, ev->copied, &t.copy_end);
    if (rc == 0 && used)
        rc = mr_event_elapsed(ld->base, ev->handed, &t.use_start);
    if (rc == 0 && used)
        rc = mr_event_elapsed(ld->base, ev->released, &t.use_end);
    if (rc == 0) {
        ld->times[ld->n_times++ % MR_TIMES] = t;
        mr_count(&ld->copy_ns, (uint64_t)MR_MAX(t.copy_end - t.copy_start, 0));
    }
    ev->copy_recorded = ev->handed_recorded = false;
}

/* Bytes of the slot that hold something: fields lie smallest first, so that the last one's unused end is not copied. */
static uint64_t used_bytes(const struct mr_loader *ld, const struct mr_slot *slot)
{
    uint64_t used = 0;
    if (ld->resident)
        return ld->index_offset + slot->size * sizeof(uint64_t);
    for (int f = 0; f < ld->n_fields; f++)
        used = MR_MAX(used,
                      ld->field[f].offset + (ld->field[f].tail ? slot->size * ld->field[f].row_bytes : slot->bytes[f]));
    return used;
}

int mr_ship(struct mr_loader *ld, struct mr_slot *slot, uint64_t t)
{
    enum mr_memory kind = ld->opts.pageable ? MR_PAGEABLE : MR_PINNED;
    struct mr_slot_events *ev = mr_slot_events(ld, slot, t), *before = mr_slot_events(ld, slot, t + ld->n_slots);
    struct mr_stream *stream = ld->copy_stream[t % ld->n_slots % ld->opts.streams];
    uint64_t bytes = used_bytes(ld, slot);
    int rc = 0;
    pthread_mutex_lock(&ld->ship_lock);
    keep_times(ld, ev);
    ev->release_recorded = false;
    if (before->release_recorded)
        rc = mr_stream_wait(stream, before->released);
    if (rc == 0)
        rc = mr_event_record(ev->copy_start, stream);
    if (rc == 0 && bytes > 0)
        rc = mr_copy_async(stream, slot->device, MR_DEVICE, slot->host, kind, bytes);
    if (rc == 0)
        rc = mr_resident_gather(ld, slot, stream);
    if (rc == 0)
        rc = mr_tails_launch(ld, slot, stream);
    if (rc == 0)
        rc = mr_event_record(ev->copied, stream);
    ev->copy_recorded = rc == 0;
    mr_count(&ld->copied_bytes, rc == 0 ? bytes : 0);
    pthread_mutex_unlock(&ld->ship_lock);
    return rc == 0 && ld->opts.blocking ? mr_event_synchronize(ev->copied) : rc;
}

int mr_ship_hand_out(struct mr_loader *ld, struct mr_slot *slot, uint64_t t, struct mr_stream *stream)
{
    struct mr_slot_events *ev = mr_slot_events(ld, slot, t);
    if (ld->device_info.unified)
        return 0;
    if (!stream)
        return mr_event_synchronize(ev->copied);
    int rc = mr_stream_wait(stream, ev->copied);
    if (rc == 0)
        rc = mr_event_record(ev->handed, stream);
    ev->handed_recorded = rc == 0;
    return rc;
}

int mr_ship_release(struct mr_loader *ld, struct mr_slot *slot, uint64_t t, struct mr_stream *stream)
{
    struct mr_slot_events *ev = mr_slot_events(ld, slot, t);
    if (ld->device_info.unified || !stream)
        return 0;
    int rc = mr_event_record(ev->released, stream);
    ev->release_recorded = rc == 0;
    return rc;
}

struct interval {
    int64_t start, end;
};

static int by_start(const void *a, const void *b)
{
    int64_t x = ((const struct interval *)a)->start, y = ((const struct interval *)b)->start;
    return (x > y) - (x < y);
}

/* Sorts intervals and joins those that touch. Returns how many are left; *total: their length together. */
static uint64_t unite(struct interval *v, uint64_t n, uint64_t *total)
{
    uint64_t kept = 0;
    qsort(v, n, sizeof *v, by_start);
    for (uint64_t i = 0; i < n; i++) {
        if (kept > 0 && v[i].start <= v[kept - 1].end)
            v[kept - 1].end = MR_MAX(v[kept - 1].end, v[i].end);
        else
            v[kept++] = v[i];
    }
    *total = 0;
    for (uint64_t i = 0; i < kept; i++)
        *total += (uint64_t)(v[i].end - v[i].start);
    return kept;
}

static uint64_t common(const struct interval *a, uint64_t n_a, const struct interval *b, uint64_t n_b)
{
    uint64_t sum = 0;
    for (uint64_t i = 0, k = 0; i < n_a && k < n_b;) {
        int64_t start = MR_MAX(a[i].start, b[k].start), end = MR_MIN(a[i].end, b[k].end);
        sum += end > start ? (uint64_t)(end - start) : 0;
        if (a[i].end < b[k].end)
            i++;
        else
            k++;
    }
    return sum;
}

void mr_ship_overlap(struct mr_loader *ld, struct mr_loader_stats *out)
{
    struct interval *copy = ld->times ? calloc(2 * MR_TIMES, sizeof *copy) : NULL;
    if (!copy)
        return; /* a device without copies, or no memory: no figures */
    struct interval *use = copy + MR_TIMES;
    pthread_mutex_lock(&ld->ship_lock);
    for (uint32_t i = 0; i < ld->n_slots; i++)
        for (int set = 0; set < 2; set++)
            if (ld->slot[i].events[set].release_recorded)
                keep_times(ld, &ld->slot[i].events[set]);
    uint64_t n = MR_MIN(ld->n_times, MR_TIMES), n_use = 0;
    for (uint64_t i = 0; i < n; i++) {
        const struct mr_times *t = &ld->times[i];
        copy[i] = (struct interval){t->copy_start, t->copy_end};
        if (t->use_end > t->use_start)
            use[n_use++] = (struct interval){t->use_start, t->use_end};
    }
    pthread_mutex_unlock(&ld->ship_lock);
    out->timed_batches = n;
    uint64_t n_copy = unite(copy, n, &out->timed_copy_ns);
    n_use = unite(use, n_use, &out->timed_use_ns);
    out->timed_both_ns = common(copy, n_copy, use, n_use);
    free(copy);
}
