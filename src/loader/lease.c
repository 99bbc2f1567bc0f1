/* Leases: their beginning and end, while the loader is open, being closed and closed. */
#include "loader/engine.h"

#include <stdlib.h>

int mr_leases_create(struct mr_loader *ld)
{
    struct mr_leases *all = calloc(1, sizeof *all);
    if (!all)
        return mr_error_nomem("loader", sizeof *all);
    pthread_mutex_init(&all->lock, NULL);
    all->ld = ld;
    all->info = ld->device_info;
    mr_process_note(&all->process);
    ld->ring.leases = all;
    return 0;
}

static void destroy(struct mr_leases *all)
{
    pthread_mutex_destroy(&all->lock);
    mr_device_close(all->own_device);
    free(all);
}

void mr_leases_detach(struct mr_loader *ld)
{
    if (!ld->ring.leases)
        return;
    pthread_mutex_lock(&ld->ring.leases->lock);
    ld->ring.leases->ld = NULL;
    pthread_mutex_unlock(&ld->ring.leases->lock);
}

static bool is_leased(const struct mr_slot *slot)
{
    return (atomic_load(&slot->hold) & ~(MR_HELD | MR_DETACHED)) != 0;
}

void mr_leases_close(struct mr_loader *ld)
{
    struct mr_leases *all = ld->ring.leases;
    if (!all)
        return;
    pthread_mutex_lock(&all->lock);
    for (struct mr_slot *slot = mr_ring_all(&ld->ring), *next; slot; slot = next) {
        next = slot->next_all;
        if (!is_leased(slot))
            mr_slot_destroy(slot);
    }
    all->orphaned = true;
    bool last = all->n == 0;
    if (!last) {
        all->own_device = ld->own_device;
        ld->own_device = NULL;
    }
    pthread_mutex_unlock(&all->lock);
    if (last)
        destroy(all);
}

int mr_lease_begin(const struct mr_batch *batch, struct mr_stream *stream, bool host,
                   struct mr_lease *out)
{
    struct mr_slot *slot = batch->slot;
    if (!slot || atomic_load(&slot->ready_for) != batch->number ||
        !(atomic_load(&slot->hold) & MR_HELD))
        return mr_error_set(MR_EMISUSE, "this batch is not held: it was released before");
    struct mr_leases *all = slot->leases;
    int rc = mr_process_check(&all->process, "this loader");
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&all->lock);
    atomic_fetch_add(&slot->hold, 1);
    all->n++;
    if (host && slot->device)
        atomic_store(&slot->host_read, true);
    if (all->ld && slot->n_ends == 0)
        slot->release_recorded = false;
    pthread_mutex_unlock(&all->lock);
    *out = (struct mr_lease){.all = all, .slot = slot, .stream = stream};
    return 0;
}

/* [lock] */
static void end_closed(struct mr_leases *all, struct mr_lease *lease)
{
    if (lease->stream)
        mr_stream_synchronize(lease->stream);
    atomic_fetch_sub(&lease->slot->hold, 1);
    if (all->orphaned && !is_leased(lease->slot))
        mr_slot_destroy(lease->slot);
}

/* [lock] */
static void end_open(struct mr_loader *ld, struct mr_lease *lease)
{
    struct mr_slot *slot = lease->slot;
    if (mr_ship_release_part(ld, slot, lease->stream) < 0)
        mr_stream_synchronize(lease->stream);
    uint32_t hold = atomic_fetch_sub(&slot->hold, 1) - 1;
    if ((hold & ~MR_DETACHED) == 0)
        mr_hold_end(ld, slot);
}

static void end(struct mr_lease *lease)
{
    struct mr_leases *all = lease->all;
    pthread_mutex_lock(&all->lock);
    if (all->ld)
        end_open(all->ld, lease);
    else
        end_closed(all, lease);
    bool last = --all->n == 0 && all->orphaned;
    pthread_mutex_unlock(&all->lock);
    if (last)
        destroy(all);
}

bool mr_lease_end(struct mr_lease *lease, struct mr_deferred *later)
{
    if (!mr_process_is(&lease->all->process))
        return true;
    struct mr_stream *stream = lease->stream;
    struct mr_device *any = stream && mr_stream_is_any(stream) ? stream->dev : NULL;
    if (any && !mr_any_enter(any, later))
        return false;
    end(lease);
    if (any)
        mr_any_leave(any);
    return true;
}

int mr_lease_release(struct mr_loader *ld, struct mr_slot *slot, struct mr_stream *stream)
{
    struct mr_leases *all = slot->leases;
    pthread_mutex_lock(&all->lock);
    int rc = mr_ship_release_part(ld, slot, stream);
    uint32_t hold = atomic_fetch_and(&slot->hold, ~MR_HELD) & ~MR_HELD;
    if ((hold & ~MR_DETACHED) == 0)
        mr_hold_end(ld, slot);
    pthread_mutex_unlock(&all->lock);
    return rc;
}
