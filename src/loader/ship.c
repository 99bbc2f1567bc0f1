/* Shipping: streams and events, the shipper and its list, and what it enqueues for a batch. */
#include "loader/engine.h"

#include <stdio.h>

static int create_streams(struct mr_loader *ld)
{
    for (uint32_t i = 0; i < ld->opts.streams; i++) {
        char name[24] = "copy";
        if (i > 0)
            snprintf(name, sizeof name, "copy %u", i + 1);
        int rc = mr_stream_create(ld->device, name, &ld->ship.stream[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* A slot's events: two without timing, then those of its clocks. */
#define SLOT_EVENTS 10
static void list_events(struct mr_slot *slot, struct mr_event **out[SLOT_EVENTS])
{
    int n = 0;
    out[n++] = &slot->copied;
    out[n++] = &slot->released;
    for (int i = 0; i < 2; i++) {
        out[n++] = &slot->clock[i].copy_start;
        out[n++] = &slot->clock[i].copy_end;
        out[n++] = &slot->clock[i].use_start;
        out[n++] = &slot->clock[i].use_end;
    }
}

int mr_ship_slot(struct mr_loader *ld, struct mr_slot *slot)
{
    struct mr_event **all[SLOT_EVENTS];
    list_events(slot, all);
    for (int i = 0; i < SLOT_EVENTS; i++) {
        int rc = mr_event_create(ld->device, i >= 2, all[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int mr_ship_create(struct mr_loader *ld)
{
    int rc = create_streams(ld);
    if (rc < 0)
        return rc;
    for (struct mr_slot *slot = mr_ring_all(&ld->ring); slot; slot = slot->next_all) {
        rc = mr_ship_slot(ld, slot);
        if (rc < 0)
            return rc;
    }
    return mr_times_init(ld);
}

void mr_ship_wait(struct mr_loader *ld)
{
    for (struct mr_slot *slot = mr_ring_all(&ld->ring); slot; slot = slot->next_all) {
        if (slot->copy_recorded)
            mr_event_synchronize(slot->copied);
        if (slot->release_recorded)
            mr_event_synchronize(slot->released); /* the consumer's work may still read it */
    }
}

void mr_ship_slot_end(struct mr_slot *slot)
{
    struct mr_event **all[SLOT_EVENTS];
    list_events(slot, all);
    for (int k = 0; k < SLOT_EVENTS; k++)
        if (*all[k])
            mr_event_destroy(*all[k]);
}

void mr_ship_destroy(struct mr_loader *ld)
{
    for (struct mr_slot *slot = mr_ring_all(&ld->ring); slot; slot = slot->next_all)
        mr_ship_slot_end(slot);
    for (int i = 0; i < MR_MAX_STREAMS; i++)
        if (ld->ship.stream[i])
            mr_stream_destroy(ld->ship.stream[i]);
    mr_times_free(ld);
    pthread_mutex_destroy(&ld->ship.lock);
}

/* What turns the slot into the batch, behind the consumer's last work on the slot. */
static int enqueue_batch(struct mr_loader *ld, struct mr_slot *slot, struct mr_stream *stream,
                         uint64_t *copied)
{
    int rc = slot->release_recorded ? mr_stream_wait(stream, slot->released) : 0;
    if (rc < 0)
        return rc;
    if (slot->clocked)
        rc = mr_event_record(slot->clocked->copy_start, stream);
    if (rc < 0)
        return rc;
    rc = mr_backends_enqueue(ld, slot, stream, copied);
    if (rc < 0)
        return rc;
    rc = mr_device_chain_launch(ld, slot, stream);
    if (rc < 0)
        return rc;
    if (slot->clocked)
        rc = mr_event_record(slot->clocked->copy_end, stream);
    return rc < 0 ? rc : mr_event_record(slot->copied, stream);
}

/* [ship.lock] */
static int enqueue(struct mr_loader *ld, struct mr_slot *slot, uint64_t t)
{
    struct mr_stream *stream = ld->ship.stream[slot->id % ld->opts.streams];
    uint64_t copied = 0;
    slot->clocked = mr_times_choose(ld, slot, t);
    int rc = enqueue_batch(ld, slot, stream, &copied);
    if (rc < 0) {
        slot->clocked = NULL;
        return rc;
    }
    slot->copy_recorded = true;
    if (slot->clocked)
        slot->clocked->copy_recorded = true;
    mr_count(&ld->ship.copied_bytes, copied);
    return 0;
}

static void ship_one(struct mr_loader *ld, struct mr_slot *slot, uint64_t t)
{
    pthread_mutex_lock(&ld->ship.lock);
    int rc = enqueue(ld, slot, t);
    pthread_mutex_unlock(&ld->ship.lock);
    if (rc == 0 && ld->opts.blocking)
        rc = mr_event_synchronize(slot->copied);
    if (rc < 0)
        mr_bad_add(ld, slot, 0, NULL, rc, true);
    mr_ring_ready(&ld->ring, slot, t);
}

/* The oldest of the slots left with the shipper: there is one. */
static struct mr_slot *next_to_ship(struct mr_loader *ld)
{
    if (!ld->ship.to_ship) {
        struct mr_slot *newest = atomic_exchange(&ld->ship.full, NULL);
        while (newest) {
            struct mr_slot *older = newest->next_full;
            newest->next_full = ld->ship.to_ship;
            ld->ship.to_ship = newest;
            newest = older;
        }
    }
    struct mr_slot *slot = ld->ship.to_ship;
    ld->ship.to_ship = slot->next_full;
    return slot;
}

/*
 * A slot is put on the list before it is counted, so as many as are counted can be had. The shipper
 * counts one down after each; the count's reaching 0 ends its turn, and who raises it from 0 takes
 * the next.
 */
void mr_ship(struct mr_loader *ld, struct mr_slot *slot, uint64_t t)
{
    if (ld->opts.blocking) {
        ship_one(ld, slot, t);
        return;
    }
    slot->full_for = t;
    slot->next_full = atomic_load(&ld->ship.full);
    while (!atomic_compare_exchange_weak(&ld->ship.full, &slot->next_full, slot))
        ;
    if (atomic_fetch_add(&ld->ship.n_full, 1) > 0)
        return;
    do {
        slot = next_to_ship(ld);
        ship_one(ld, slot, slot->full_for);
    } while (atomic_fetch_sub(&ld->ship.n_full, 1) > 1);
}

int mr_ship_hand_out(struct mr_loader *ld, struct mr_slot *slot, struct mr_stream *stream)
{
    if (!ld->ships)
        return 0;
    if (!stream)
        return mr_event_synchronize(slot->copied);
    int passed =
        mr_event_query(slot->copied); /* mostly: then the device does not wait between two steps */
    int rc = passed == 0 ? mr_stream_wait(stream, slot->copied) : MR_MIN(passed, 0);
    if (rc < 0)
        return rc;
    if (slot->clocked) {
        rc = mr_stream_capturing(stream); /* a captured event has no time */
        if (rc != 0)
            return MR_MIN(rc, 0);
        rc = mr_event_record(slot->clocked->use_start, stream);
        slot->clocked->start_recorded = rc == 0;
    }
    return rc;
}

/* The consumer's work on the slot ends here in its stream. Who does not name the stream may have
 * used the host half. */
static int record_end(struct mr_slot *slot, struct mr_stream *stream)
{
    if (mr_stream_is_any(stream)) {
        atomic_store(&slot->host_read, true);
    } else if (slot->clocked && slot->clocked->start_recorded) {
        int rc = mr_event_record(slot->clocked->use_end, stream);
        slot->clocked->end_recorded = rc == 0;
        if (rc < 0)
            return rc;
    }
    return mr_event_record(slot->released, stream);
}

int mr_ship_release(struct mr_loader *ld, struct mr_slot *slot, struct mr_stream *stream)
{
    slot->release_recorded = false;
    if (ld->device_info.unified || !stream)
        return 0;
    int rc = record_end(slot, stream);
    slot->release_recorded = rc == 0;
    return rc;
}

/* `released` moves to the later end, behind the earlier ones. */
int mr_ship_release_part(struct mr_loader *ld, struct mr_slot *slot, struct mr_stream *stream)
{
    if (ld->device_info.unified || !stream)
        return 0;
    bool behind = slot->n_ends > 0 && !mr_stream_is_any(stream);
    int rc = behind ? mr_stream_wait(stream, slot->released) : 0;
    if (rc < 0)
        return rc;
    rc = record_end(slot, stream);
    if (rc < 0)
        return rc;
    slot->release_recorded = true;
    slot->n_ends++;
    return 0;
}
