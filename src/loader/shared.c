/* Slots in memory that other processes map. */
#include "loader/shared.h"

#include "loader/engine.h"

#include <errno.h>

int mr_loader_share(struct mr_loader *ld)
{
    ld->ring.shared = ld->ds->shared;
    if (ld->ring.shared || !ld->opts.shared)
        return 0;
    int rc = mr_shared_memory_create("shared slots", 0, NULL, &ld->own_shared);
    ld->ring.shared = ld->own_shared;
    return rc;
}

int mr_loader_shared(const struct mr_loader *ld, struct mr_shared_memory **out)
{
    int rc = mr_process_check(&ld->gate.process, "this loader");
    if (rc < 0)
        return rc;
    if (!ld->opts.shared)
        return mr_error_set(MR_EMISUSE, "the loader's batches are not in shared memory: open it "
                                        "with mr_loader_opts.shared = 1");
    if (ld->ships)
        return mr_error_set(MR_EMISUSE,
                            "the loader's batches are on device \"%s\": open it with device "
                            "\"cpu\", or with mr_loader_opts.on_host = 1",
                            ld->device_info.name);
    *out = ld->ring.shared;
    return 0;
}

int mr_batch_find(const struct mr_batch *batch, struct mr_batch_place *out)
{
    const struct mr_slot *slot = batch->slot;
    const struct mr_slot_memory *m = slot->memory;
    if (!m->shared)
        return mr_error_set(-ENOMEM, "no shared memory for slot %u: the log says why", slot->id);
    uint64_t in = (uint64_t)(slot->host - m->block.data);
    *out = (struct mr_batch_place){.slot = slot->id,
                                   .offset = m->block.offset + in,
                                   .bytes = MR_MIN(slot->capacity, m->block.bytes - in),
                                   .host = slot->host};
    return 0;
}

void mr_batch_keep(void *slot)
{
    ((struct mr_slot *)slot)->memory->kept = true;
}

bool mr_loader_is_over(struct mr_loader *ld)
{
    mr_consumers_lock(ld);
    bool over = ld->handout.ended < 0 || ld->handout.next_batch >= mr_ring_total(&ld->ring);
    mr_consumers_unlock(ld);
    return over;
}
