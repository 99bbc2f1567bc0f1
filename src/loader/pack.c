/* Packing: where samples go in a batch, and walking over it. */
#include "loader/pack.h"

#include "loader/engine.h"

#define MAX_LENGTH INT32_MAX /* positions are i32 */

bool mr_pack_takes(const struct mr_loader *ld, int f)
{
    const struct mr_field *fp = &ld->layout.field[f];
    return fp->varies && fp->collate == MR_COLLATE_PACK;
}

static int first_packed(const struct mr_loader *ld)
{
    int f = 0;
    while (f < ld->layout.n_fields && !mr_pack_takes(ld, f))
        f++;
    return f;
}

int mr_pack_check(const struct mr_loader *ld)
{
    if (ld->opts.collate != MR_COLLATE_PACK)
        return ld->opts.pack_length == 0
                   ? 0
                   : mr_error_set(MR_EOPTION, "pack_length %llu: expected collate pack",
                                  (unsigned long long)ld->opts.pack_length);
    if (ld->opts.pack_length == 0 || ld->opts.pack_length > MAX_LENGTH)
        return mr_error_set(MR_EOPTION,
                            "pack_length %llu: collate pack needs the length of a row, 1 to %d",
                            (unsigned long long)ld->opts.pack_length, MAX_LENGTH);
    if (first_packed(ld) < ld->layout.n_fields)
        return 0;
    return mr_error_set(MR_ESHAPE, "collate pack: no field of %s varies in its first dimension",
                        ld->ds->text);
}

/* A sample's length, the same in all packed fields. */
static int find_length(const struct mr_loader *ld, const struct mr_slot *slot, uint64_t row,
                       uint64_t *out)
{
    int first = first_packed(ld);
    *out = slot->lengths[first][row];
    for (int f = first + 1; f < ld->layout.n_fields; f++)
        if (mr_pack_takes(ld, f) && slot->lengths[f][row] != *out)
            return mr_error_set(MR_ESHAPE,
                                "sample %llu: %.*s has %llu elements, %.*s %llu: collate pack "
                                "wants the same number",
                                (unsigned long long)slot->indices[row], MR_NAME_BYTES,
                                ld->layout.field[first].out.name, (unsigned long long)*out,
                                MR_NAME_BYTES, ld->layout.field[f].out.name,
                                (unsigned long long)slot->lengths[f][row]);
    return 0;
}

/* Where the batch sampler wants a sample. */
static int plan_item(const struct mr_loader *ld, struct mr_slot *slot, uint64_t row,
                     uint64_t length, struct mr_part *end)
{
    const struct mr_batch_item *item = &slot->items[row];
    if (item->row < end->row || item->from > length || item->count > length - item->from)
        return mr_error_set(MR_EOPTION,
                            "sample %llu has %llu elements; the batch sampler puts %u of them, "
                            "from %u on, into row %u, behind row %u: expected a part of the "
                            "sample, and rows in order",
                            (unsigned long long)item->index, (unsigned long long)length,
                            item->count, item->from, item->row, end->row);
    if (item->row > end->row)
        *end = (struct mr_part){.row = item->row};
    end->from = item->from;
    end->count = item->count > 0 ? item->count : (uint32_t)(length - item->from);
    if (end->count > ld->opts.pack_length - end->at)
        return mr_error_set(MR_EOPTION,
                            "the batch sampler puts %u elements of sample %llu into row %u, which "
                            "has %u: pack_length is %llu",
                            end->count, (unsigned long long)item->index, end->row, end->at,
                            (unsigned long long)ld->opts.pack_length);
    slot->packing.part[row] = *end;
    end->at += end->count;
    return 0;
}

/* Does the batch sampler place samples, or choose them alone? */
static bool has_places(const struct mr_slot *slot)
{
    bool places = false;
    for (uint64_t row = 0; slot->items && row < slot->size && !places; row++)
        places = slot->items[row].row || slot->items[row].from || slot->items[row].count;
    return places;
}

static int plan_part(const struct mr_loader *ld, struct mr_slot *slot, uint64_t row, bool places,
                     struct mr_part *end)
{
    uint64_t length, most = ld->opts.pack_length;
    int rc = find_length(ld, slot, row, &length);
    if (rc < 0)
        return rc;
    if (places)
        return plan_item(ld, slot, row, length, end);
    if (length > most)
        return mr_error_set(MR_ESHAPE,
                            "sample %llu has %llu elements: pack_length is %llu: make that larger, "
                            "or samples shorter",
                            (unsigned long long)slot->indices[row], (unsigned long long)length,
                            (unsigned long long)most);
    if (end->at + length > most)
        *end = (struct mr_part){.row = end->row + 1};
    end->count = (uint32_t)length;
    slot->packing.part[row] = *end;
    end->at += end->count;
    return 0;
}

void mr_pack_begin(const struct mr_loader *ld, struct mr_slot *slot)
{
    slot->packing.n_rows = 0;
    for (uint64_t row = 0; ld->layout.packs && slot->items && row < slot->info.rows; row++)
        slot->packing.n_rows = MR_MAX(slot->packing.n_rows, slot->items[row].row + 1ull);
}

int mr_pack_plan(struct mr_loader *ld, struct mr_slot *slot)
{
    struct mr_packing *packing = &slot->packing;
    struct mr_part end = {0};
    bool places = has_places(slot);
    for (uint64_t row = 0; row < slot->size; row++) {
        int rc = plan_part(ld, slot, row, places, &end);
        if (rc < 0)
            return rc;
    }
    if (slot->size > 0)
        packing->n_rows = MR_MAX(packing->n_rows, end.row + 1ull);
    packing->n_sequences = 0;
    if (packing->n_rows * ld->opts.pack_length > INT32_MAX)
        return mr_error_set(MR_ELIMIT,
                            "a packed batch of %llu x %llu elements: cu_seqlens are i32: make "
                            "batch_size smaller",
                            (unsigned long long)packing->n_rows,
                            (unsigned long long)ld->opts.pack_length);
    for (int f = 0; f < ld->layout.n_fields; f++)
        for (uint64_t row = 0; mr_pack_takes(ld, f) && row < slot->size; row++)
            slot->lengths[f][row] = packing->part[row].count;
    struct mr_pack_walk walk;
    struct mr_pack_step step;
    mr_pack_walk_begin(ld, slot, &walk);
    while (mr_pack_walk_next(&walk, &step))
        packing->n_sequences++;
    return 0;
}

void mr_pack_walk_begin(const struct mr_loader *ld, const struct mr_slot *slot,
                        struct mr_pack_walk *walk)
{
    *walk = (struct mr_pack_walk){.slot = slot, .length = ld->opts.pack_length};
}

bool mr_pack_walk_next(struct mr_pack_walk *walk, struct mr_pack_step *out)
{
    const struct mr_packing *packing = &walk->slot->packing;
    bool over = walk->next == walk->slot->size;
    const struct mr_part *part = over ? NULL : &packing->part[walk->next];
    uint64_t begin = over ? packing->n_rows * walk->length : part->row * walk->length + part->at;
    if (walk->cell < begin) { /* padding up to the sample, or to the end of the row */
        uint64_t row_end = mr_round_up(walk->cell + 1, walk->length);
        *out = (struct mr_pack_step){
            .cell = walk->cell, .n = MR_MIN(begin, row_end) - walk->cell, .row = UINT64_MAX};
        walk->cell += out->n;
        return true;
    }
    if (over)
        return false;
    walk->segment = walk->next > 0 && walk->row == part->row ? walk->segment + 1 : 1;
    walk->row = part->row;
    *out = (struct mr_pack_step){.cell = begin,
                                 .n = part->count,
                                 .row = walk->next++,
                                 .from = part->from,
                                 .segment = walk->segment};
    walk->cell = begin + part->count;
    return true;
}
