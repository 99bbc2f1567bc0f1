/* What the engine calls: loops over a loader's backends, which know nothing of each other. */
#include "loader/engine.h"

#include <stdlib.h>

static int plan_one(struct mr_loader *ld, const struct mr_row_backend *ops)
{
    struct mr_backends *all = &ld->backends;
    struct mr_backend *b = &all->all[all->n_all++];
    *b = (struct mr_backend){.ops = ops, .ld = ld, .number = all->n_all - 1};
    b->state = calloc(1, MR_MAX(ops->state_size, 1));
    if (!b->state)
        return mr_error_nomem(ops->name, ops->state_size);
    int rc = ops->plan(b);
    bool needed = all->n_used == 0 || all->used[all->n_used - 1]->ops->takes;
    if (rc <= 0 || !needed)
        return MR_MIN(rc, 0);
    b->used = true;
    all->used[all->n_used++] = b;
    all->reads |= ops->reads;
    all->writes_device |= ops->writes_device;
    all->deep |= ops->deep;
    return 0;
}

int mr_backends_plan(struct mr_loader *ld)
{
    int rc = 0;
    for (int i = 0; i < MR_MAX_BACKENDS && mr_row_backends[i] && rc == 0; i++)
        rc = plan_one(ld, mr_row_backends[i]);
    return rc;
}

void mr_backends_lay_out(struct mr_loader *ld, uint64_t *at)
{
    for (int i = 0; i < ld->backends.n_used; i++)
        if (ld->backends.used[i]->ops->lay_out)
            ld->backends.used[i]->ops->lay_out(ld->backends.used[i], at);
}

void mr_backends_bytes(const struct mr_loader *ld, uint64_t n_slots, uint64_t *device,
                       uint64_t *host)
{
    *device = *host = 0;
    for (int i = 0; i < ld->backends.n_used; i++)
        if (ld->backends.used[i]->ops->bytes)
            ld->backends.used[i]->ops->bytes(ld->backends.used[i], n_slots, device, host);
}

int mr_backends_slot_open(struct mr_loader *ld, struct mr_slot *slot)
{
    for (int i = 0; i < ld->backends.n_used; i++) {
        struct mr_backend *b = ld->backends.used[i];
        if (!b->ops->slot_open)
            continue;
        void *own = slot->own[b->number] = calloc(1, b->ops->slot_size);
        if (!own)
            return mr_error_nomem("batch slot", b->ops->slot_size);
        int rc = b->ops->slot_open(b, slot, own);
        if (rc < 0)
            return rc;
    }
    return 0;
}

void mr_backends_slot_close(struct mr_loader *ld, struct mr_slot *slot)
{
    for (int i = 0; i < ld->backends.n_all; i++) {
        if (!slot->own[i])
            continue;
        ld->backends.all[i].ops->slot_close(&ld->backends.all[i], slot->own[i]);
        free(slot->own[i]);
        slot->own[i] = NULL;
    }
}

int mr_backends_open(struct mr_loader *ld)
{
    int rc = 0;
    for (struct mr_slot *slot = mr_ring_all(&ld->ring); slot && rc == 0; slot = slot->next_all)
        rc = mr_backends_slot_open(ld, slot);
    for (int i = 0; i < ld->backends.n_used && rc == 0; i++)
        if (ld->backends.used[i]->ops->open)
            rc = ld->backends.used[i]->ops->open(ld->backends.used[i]);
    return rc;
}

bool mr_backends_late(const struct mr_loader *ld, const struct mr_slot *slot, uint64_t t)
{
    const struct mr_backends *all = &ld->backends;
    for (int i = 0; i < all->n_used; i++)
        if (all->used[i]->ops->late && all->used[i]->ops->late(all->used[i], slot, t))
            return true;
    return false;
}

void mr_backends_complete(struct mr_worker *w, struct mr_slot *slot, uint64_t t)
{
    const struct mr_backends *all = &w->ld->backends;
    for (int i = 0; i < all->n_used; i++)
        if (all->used[i]->ops->complete)
            all->used[i]->ops->complete(all->used[i], w, slot, t);
}

void mr_backends_move(struct mr_loader *ld, struct mr_slot *slot, uint64_t to, uint64_t from)
{
    slot->maker[to] = slot->maker[from];
    for (int i = 0; i < ld->backends.n_used; i++)
        if (ld->backends.used[i]->ops->move)
            ld->backends.used[i]->ops->move(ld->backends.used[i], slot, to, from);
}

/* The last one ships host halves: what the others enqueue works on these. */
int mr_backends_enqueue(struct mr_loader *ld, struct mr_slot *slot, struct mr_stream *stream,
                        uint64_t *copied)
{
    int rc = 0;
    for (int i = ld->backends.n_used - 1; i >= 0 && rc == 0; i--)
        if (ld->backends.used[i]->ops->enqueue)
            rc = ld->backends.used[i]->ops->enqueue(ld->backends.used[i], slot, stream, copied);
    return rc;
}

void mr_backends_stats(const struct mr_loader *ld, struct mr_loader_stats *out)
{
    for (int i = 0; i < ld->backends.n_all; i++)
        if (ld->backends.all[i].ops->stats)
            ld->backends.all[i].ops->stats(&ld->backends.all[i], out);
}

void mr_backends_close(struct mr_loader *ld)
{
    for (int i = 0; i < ld->backends.n_all; i++)
        if (ld->backends.all[i].ops->stop && ld->backends.all[i].state)
            ld->backends.all[i].ops->stop(&ld->backends.all[i]);
    for (struct mr_slot *slot = mr_ring_all(&ld->ring); slot; slot = slot->next_all)
        mr_backends_slot_close(ld, slot);
    for (int i = 0; i < ld->backends.n_all; i++) {
        struct mr_backend *b = &ld->backends.all[i];
        if (b->ops->close && b->state)
            b->ops->close(b);
        free(b->state);
    }
}

bool mr_backend_reads(const struct mr_loader *ld, int maker, const struct mr_extent *at)
{
    return ld->backends.used[maker]->ops->writes_device && at->field >= 0 &&
           ld->layout.field[at->field].direct;
}

bool mr_backend_made(const struct mr_backend *b, const struct mr_slot *slot, uint64_t row)
{
    return b->ld->backends.used[slot->maker[row]] == b;
}
