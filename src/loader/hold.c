/* Held batches: other slots in place of theirs, and releasing them. */
#include "loader/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Who has the descriptor may wait without a call of ours. */
void mr_hold_note_opened(struct mr_loader *ld)
{
    uint32_t n = atomic_load_explicit(&ld->hold.n_opened, memory_order_relaxed) + 1;
    bool waits = atomic_load(&ld->hold.waits) || mr_ring_is_polled(&ld->ring);
    bool wake = waits || n * 4 >= atomic_load_explicit(&ld->ring.ahead, memory_order_relaxed);
    atomic_store_explicit(&ld->hold.n_opened, wake ? 0 : n, memory_order_relaxed);
    if (wake)
        mr_ring_wake_workers(&ld->ring);
}

/* Who opens a slot and does not see `waits` has opened it before workers are woken here. */
void mr_hold_wait_begin(struct mr_loader *ld)
{
    atomic_store_explicit(&ld->hold.n_opened, 0, memory_order_relaxed);
    atomic_store(&ld->hold.waits, true);
    mr_ring_wake_workers(&ld->ring);
}

void mr_hold_wait_end(struct mr_loader *ld)
{
    atomic_store_explicit(&ld->hold.waits, false, memory_order_relaxed);
}

static void open_again(struct mr_loader *ld, struct mr_slot *slot, uint64_t t)
{
    if (!ld->device_info.unified)
        atomic_store_explicit(&slot->host_busy, true, memory_order_release);
    mr_open_batch(ld, slot, t);
    mr_hold_note_opened(ld);
}

/* A free slot that is not opened. The next call of mr_loader_next() may need it. */
static void keep(struct mr_loader *ld, struct mr_slot *slot)
{
    slot->next_released = atomic_load_explicit(&ld->hold.released, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&ld->hold.released, &slot->next_released, slot,
                                                  memory_order_release, memory_order_relaxed))
        ;
    mr_ring_signal(&ld->ring);
}

/* For whichever batch is next. */
static bool open_next(struct mr_loader *ld, struct mr_slot *slot)
{
    if (!ld->device_info.unified)
        atomic_store_explicit(&slot->host_busy, true, memory_order_release);
    bool opens = mr_open_next(ld, slot);
    if (opens)
        mr_hold_note_opened(ld);
    return opens;
}

void mr_hold_reopen(struct mr_loader *ld, struct mr_slot *slot)
{
    uint64_t t = atomic_load_explicit(&slot->ready_for, memory_order_relaxed);
    if (ld->opts.in_order)
        open_again(ld, slot, t + ld->ring.n_slots);
    else if (!open_next(ld, slot))
        keep(ld, slot);
}

void mr_hold_end(struct mr_loader *ld, struct mr_slot *slot)
{
    if (!(atomic_load_explicit(&slot->hold, memory_order_relaxed) & MR_DETACHED)) {
        mr_hold_reopen(ld, slot);
        return;
    }
    atomic_store_explicit(&slot->hold, 0, memory_order_relaxed);
    keep(ld, slot);
}

static int release(struct mr_loader *ld, struct mr_batch *batch, struct mr_stream *stream)
{
    struct mr_slot *slot = batch->slot;
    bool known = slot && atomic_load(&slot->ready_for) == batch->number;
    uint32_t hold = known ? atomic_load(&slot->hold) : 0;
    if ((hold & MR_HELD) && ((hold & ~(MR_HELD | MR_DETACHED)) || slot->n_ends > 0)) {
        batch->slot = NULL;
        return mr_lease_release(ld, slot, stream);
    }
    if (!(hold & MR_HELD) || !(atomic_fetch_and(&slot->hold, ~MR_HELD) & MR_HELD))
        return mr_error_set(MR_EMISUSE, "this batch is not held: it was released before");
    batch->slot = NULL;
    int rc = mr_ship_release(ld, slot, stream);
    mr_hold_end(ld, slot);
    return rc;
}

/* A batch that is released while a capture forbids to record where. */
struct parked {
    struct mr_lease lease;
    struct mr_deferred later;
};

static void end_parked(struct mr_deferred *later)
{
    struct parked *p = (struct parked *)((char *)later - offsetof(struct parked, later));
    if (mr_lease_end(&p->lease, later))
        free(p);
}

/* Any stream may use the batch. A lease holds it until that can be recorded: at once, but for
 * captures. */
static int release_any(struct mr_loader *ld, struct mr_batch *batch, struct mr_stream *any)
{
    struct parked *p = malloc(sizeof *p);
    if (!p)
        return mr_error_nomem("released batch", sizeof *p);
    p->later.run = end_parked;
    int rc = mr_lease_begin(batch, any, true, &p->lease);
    if (rc < 0) {
        free(p);
        return rc;
    }
    rc = release(ld, batch, NULL);
    end_parked(&p->later);
    return rc;
}

int mr_hold_release(struct mr_loader *ld, struct mr_batch *batch, struct mr_stream *stream)
{
    bool any = stream && mr_stream_is_any(stream) && !ld->device_info.unified;
    return any ? release_any(ld, batch, stream) : release(ld, batch, stream);
}

/* The slot that was released first: its last use by the device is the likeliest to have passed. */
static struct mr_slot *take_spare(struct mr_loader *ld)
{
    struct mr_hold *hold = &ld->hold;
    struct mr_slot *latest = NULL;
    if (!hold->spare)
        latest = atomic_exchange_explicit(&hold->released, NULL, memory_order_acquire);
    while (latest) {
        struct mr_slot *older = latest->next_released;
        latest->next_released = hold->spare;
        hold->spare = latest;
        latest = older;
    }
    struct mr_slot *slot = hold->spare;
    if (slot)
        hold->spare = slot->next_released;
    return slot;
}

/* What is counted already. */
static int make_counted(struct mr_loader *ld, struct mr_slot **out)
{
    struct mr_slot_memory *memory;
    struct mr_slot *slot;
    bool unified = ld->device_info.unified;
    int rc = mr_slot_memory_create(ld->device, ld->ring.shared, ld->ring.host_kind, &ld->layout, 1,
                                   ld->ships, false, &memory);
    if (rc < 0)
        return rc;
    rc = mr_slot_create(memory, 0, 1, &ld->layout, ld->opts.batch_size, &slot);
    if (rc < 0) {
        mr_slot_memory_destroy(memory);
        return rc;
    }
    rc = unified ? 0 : mr_ship_slot(ld, slot);
    if (rc < 0)
        goto fail;
    rc = mr_backends_slot_open(ld, slot);
    if (rc < 0)
        goto fail;
    mr_ring_add(&ld->ring, slot);
    *out = slot;
    return 0;
fail:
    mr_backends_slot_close(ld, slot);
    mr_ship_slot_end(slot);
    mr_slot_destroy(slot);
    return rc;
}

static int make_slot(struct mr_loader *ld, struct mr_slot **out)
{
    int rc = mr_sizes_check_slot(ld);
    if (rc < 0)
        return rc;
    rc = make_counted(ld, out);
    if (rc < 0)
        mr_sizes_drop_slot(ld);
    return rc;
}

/* false: it was released meanwhile, and whoever did that opens it. */
static bool detach(struct mr_slot *slot)
{
    uint32_t hold = atomic_load(&slot->hold);
    while (hold & ~MR_DETACHED)
        if (atomic_compare_exchange_weak(&slot->hold, &hold, hold | MR_DETACHED))
            return true;
    return false;
}

/* Takes the slots of held batches from `from` on and before `end` out of the ring. A place that no
 * later batch needs is not vacant, but its slot may serve in another one. */
static void vacate(struct mr_loader *ld, uint64_t from, uint64_t end)
{
    struct mr_hold *hold = &ld->hold;
    uint64_t n = ld->ring.n_slots;
    for (uint64_t t = from; t < end; t++) {
        struct mr_slot *slot = mr_ring_slot(&ld->ring, t);
        if (hold->vacant[t % n] || !mr_slot_holds(slot, t) || !detach(slot))
            continue;
        if (t + n >= mr_ring_total(&ld->ring))
            continue;
        hold->vacant[t % n] = true;
        hold->n_vacant++;
    }
}

/* While places are vacant, the batch's own is one more: see rearrange(). */
void mr_hold_begin(struct mr_loader *ld, struct mr_slot *slot)
{
    uint64_t t = atomic_load_explicit(&slot->ready_for, memory_order_relaxed);
    slot->n_ends = 0;
    atomic_store_explicit(&slot->host_read, false, memory_order_relaxed);
    atomic_store_explicit(&slot->hold, MR_HELD, memory_order_release);
    if (ld->hold.n_vacant > 0)
        vacate(ld, t, t + 1);
}

/* Puts a slot in the vacant place of batch t. */
static void put(struct mr_loader *ld, struct mr_slot *slot, uint64_t t)
{
    atomic_store(&ld->ring.slot[t % ld->ring.n_slots], slot);
    ld->hold.vacant[t % ld->ring.n_slots] = false;
    ld->hold.n_vacant--;
    open_again(ld, slot, t);
}

/* Fills vacant places of batches that may be prepared, that of batch t first. If no slot can be
 * made, one for a later batch is not tried again: t's own is. */
static int fill(struct mr_loader *ld, uint64_t t)
{
    struct mr_hold *hold = &ld->hold;
    uint64_t n = ld->ring.n_slots;
    uint64_t end =
        MR_MIN(t + MR_MIN(n, atomic_load(&ld->ring.ahead) + 1ull), mr_ring_total(&ld->ring));
    bool may_make = !hold->no_memory;
    hold->no_memory = false;
    for (uint64_t i = t; i < end && hold->n_vacant > 0; i++) {
        if (!hold->vacant[i % n])
            continue;
        struct mr_slot *slot = take_spare(ld);
        int rc = slot ? 0 : may_make || i == t ? make_slot(ld, &slot) : MR_ELIMIT;
        hold->no_memory = rc < 0;
        if (rc < 0)
            return rc;
        put(ld, slot, i);
    }
    return 0;
}

static uint64_t count_held(const struct mr_loader *ld)
{
    uint64_t n = 0;
    for (const struct mr_slot *slot = mr_ring_all(&ld->ring); slot; slot = slot->next_all)
        n += (atomic_load(&slot->hold) & ~MR_DETACHED) != 0;
    return n;
}

static int refuse(const struct mr_loader *ld, int rc)
{
    char why[512];
    if (rc != MR_ELIMIT && rc != MR_EDEVICEMEM && rc != -ENOMEM)
        return rc;
    snprintf(why, sizeof why, "%s", mr_last_error());
    return mr_error_set(MR_ELIMIT,
                        "the program holds %llu batches, and there is no memory for another one: "
                        "release some and call again, or hold fewer: %s",
                        (unsigned long long)count_held(ld), why);
}

/* Without memory all held slots leave the ring, also those of young batches: whichever the program
 * releases then serves the batch that is needed first. */
static int rearrange(struct mr_loader *ld, uint64_t old, uint64_t t)
{
    struct mr_hold *hold = &ld->hold;
    uint64_t n = ld->ring.n_slots;
    vacate(ld, t > n ? t - n : 0, old);
    int rc = fill(ld, t);
    if (rc == 0)
        return 0;
    vacate(ld, old, t);
    /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): n_slots is 1 or more */
    struct mr_slot *slot = hold->vacant[t % n] ? take_spare(ld) : NULL;
    if (slot)
        put(ld, slot, t);
    return hold->vacant[t % n] ? refuse(ld, rc) : 0;
}

/* in_order = 0: other slots take part instead of those that are held. */
static int activate(struct mr_loader *ld)
{
    struct mr_hold *hold = &ld->hold;
    uint32_t least = ld->ring.n_slots - ld->ring.n_slots / 2;
    while (mr_open_wants(ld, least)) {
        struct mr_slot *slot = take_spare(ld);
        bool none = mr_open_wants(ld, 1);
        int rc = slot ? 0 : none || !hold->no_memory ? make_slot(ld, &slot) : MR_ELIMIT;
        hold->no_memory = rc < 0;
        if (rc < 0)
            return none && mr_open_wants(ld, 1) ? refuse(ld, rc) : 0;
        if (!open_next(ld, slot))
            keep(ld, slot);
    }
    return 0;
}

int mr_hold_make_room(struct mr_loader *ld, uint64_t t)
{
    if (!ld->opts.in_order)
        return activate(ld);
    uint64_t young = ld->ring.n_slots / 2, old = t > young ? t - young : 0;
    if (ld->hold.n_vacant == 0 &&
        (old == 0 || !mr_slot_holds(mr_ring_slot(&ld->ring, old - 1), old - 1)))
        return 0;
    return rearrange(ld, old, t);
}

void mr_hold_add_slots(struct mr_loader *ld)
{
    uint64_t t = ld->handout.next_batch;
    if (ld->opts.in_order && ld->hold.n_vacant > 0 && t < mr_ring_total(&ld->ring))
        (void)fill(ld, t); /* without memory there are as many as before */
}

int mr_hold_create(struct mr_loader *ld)
{
    ld->hold.vacant = calloc(ld->ring.n_slots, sizeof *ld->hold.vacant);
    if (!ld->hold.vacant)
        return mr_error_nomem("batch slots", ld->ring.n_slots);
    for (uint32_t i = ld->ring.n_first; i < ld->ring.n_slots; i++)
        ld->hold.vacant[i] = true;
    ld->hold.n_vacant = ld->ring.n_slots - ld->ring.n_first;
    return 0;
}

void mr_hold_destroy(struct mr_loader *ld)
{
    free(ld->hold.vacant);
}
