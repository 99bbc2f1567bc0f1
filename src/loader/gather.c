/* The rows of a run, field by field. */
#include "loader/gather.h"

#include "loader/engine.h"

#include <string.h>

static bool can_gather(const struct mr_layout *layout, int f)
{
    const struct mr_field *fp = &layout->field[f];
    return fp->source == f && fp->identity && !fp->device_part && !fp->direct &&
           (mr_field_in_row(fp) || (fp->varies && fp->collated));
}

bool mr_gather_plan(const struct mr_loader *ld)
{
    const struct mr_layout *layout = &ld->layout;
    if (!ld->ds->ops->gather || ld->chain || ld->ds->picture >= 0 || layout->by_user ||
        layout->items || ld->plan.finds)
        return false;
    if (ld->backends.n_used != 1 || ld->backends.used[0]->ops != &mr_row_host)
        return false;
    for (int f = 0; f < layout->n_fields; f++)
        if (!can_gather(layout, f))
            return false;
    return true;
}

static void make_field(const struct mr_loader *ld, const struct mr_slot *slot, int f,
                       const struct mr_run *run, const uint64_t index[])
{
    const struct mr_field *fp = &ld->layout.field[f];
    if (!fp->varies) {
        ld->ds->ops->gather(ld->ds, f, run->n, index, mr_field_row(fp, slot, run->row0),
                            fp->row_bytes);
        return;
    }
    uint64_t(*dim)[MR_MAX_RANK] = (uint64_t(*)[MR_MAX_RANK])mr_slot_dims(slot, run->row0, f);
    for (uint32_t i = 0; i < run->n; i++)
        memcpy(dim[i], fp->out.dim, (size_t)fp->out.rank * sizeof **dim);
    ld->ds->ops->find(ld->ds, f, run->n, index, mr_slot_kept(slot, run->row0, f), dim);
}

uint32_t mr_gather_run(struct mr_worker *w, struct mr_run *run, bool timed)
{
    const struct mr_loader *ld = w->ld;
    struct mr_slot *slot = mr_ring_slot(&ld->ring, run->t);
    if (run->error.code < 0)
        return 0;
    uint64_t begin = timed ? mr_time_ns() : 0;
    mr_watch_note(&w->watch, run->t, run->row0, MR_TASK_DECODE);
    for (uint32_t i = 0; i < run->n; i++) {
        w->order[i] = slot->indices[run->row0 + i] = run->sample[i].index;
        slot->positions[run->row0 + i] = run->sample[i].position;
        mr_slot_set_maker(slot, run->row0 + i, 0);
        run->sample[i].done = true;
    }
    for (int f = 0; f < ld->layout.n_fields; f++)
        make_field(ld, slot, f, run, w->order);
    if (timed)
        mr_count(&w->timed_decode_ns, mr_time_ns() - begin);
    return run->n;
}
