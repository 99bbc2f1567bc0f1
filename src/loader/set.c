/* Workers and batches ahead, as the program sets them. */
#include "loader/engine.h"
#include "loader/hold.h"
#include "loader/knobs.h"

static int check(const struct mr_loader *ld, const struct mr_loader_knobs *k)
{
    if (k->workers > ld->workers.n && !ld->posts) /* its threads are as many as help */
        return mr_error_set(MR_EOPTION,
                            "mr_loader_set: %u workers: expected 1..%u, as the loader was opened "
                            "with: set max_workers",
                            k->workers, ld->workers.n);
    if (k->prefetch > ld->ring.n_slots)
        return mr_error_set(MR_EOPTION,
                            "mr_loader_set: prefetch %u: expected 1..%u, as the loader was opened "
                            "with: set max_prefetch",
                            k->prefetch, ld->ring.n_slots);
    if (k->prefetch && !ld->opts.in_order)
        return mr_error_set(MR_EUNSUPPORTED,
                            "mr_loader_set: prefetch cannot change with in_order = 0");
    if (k->workers && ld->ds->unordered)
        return mr_error_set(MR_EUNSUPPORTED,
                            "mr_loader_set: %s: each worker reads a part of it, so their number "
                            "cannot change",
                            ld->ds->text);
    return 0;
}

static int set(struct mr_loader *ld, const struct mr_loader_knobs *k)
{
    int rc = check(ld, k);
    if (rc < 0)
        return rc;
    mr_consumers_lock(ld);
    ld->knobs.grows = ld->knobs.grows && !k->prefetch;
    mr_knobs_set(ld, k->workers ? MR_MIN(k->workers, ld->workers.n) : mr_knobs_workers(ld),
                 k->prefetch ? k->prefetch : atomic_load(&ld->ring.ahead));
    mr_hold_add_slots(ld);
    mr_consumers_unlock(ld);
    return 0;
}

int mr_loader_set(struct mr_loader *ld, const struct mr_loader_knobs *knobs)
{
    struct mr_loader_knobs k = {.size = sizeof k};
    if (!ld || !knobs)
        return mr_error_null("mr_loader_set", "a loader and what to set");
    if (knobs->size != sizeof k)
        return mr_info_check_least("loader_knobs", knobs, sizeof k, sizeof k);
    k = *knobs;
    int rc = mr_gate_enter(ld, "mr_loader_set");
    if (rc < 0)
        return rc;
    rc = set(ld, &k);
    mr_gate_leave(ld);
    return rc;
}
