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

int mr_pack_check(struct mr_loader *ld)
{
    uint64_t length = ld->opts.pack_length, of_sampler = ld->sampler->row_length;
    if (of_sampler > 0 && ld->opts.collate != MR_COLLATE_PACK && !ld->layout.by_user)
        return mr_error_set(MR_EOPTION, "the sampler packs rows: expected collate pack");
    if (ld->opts.collate != MR_COLLATE_PACK)
        return length == 0 ? 0
                           : mr_error_set(MR_EOPTION, "pack_length %llu: expected collate pack",
                                          (unsigned long long)length);
    ld->layout.packs = true;
    ld->layout.pack_length = length ? length : of_sampler;
    if (ld->layout.pack_length < MR_MAX(of_sampler, 1) || ld->layout.pack_length > MAX_LENGTH)
        return mr_error_set(
            MR_EOPTION, "pack_length %llu: expected the length of a row, %llu to %d",
            (unsigned long long)length, (unsigned long long)MR_MAX(of_sampler, 1), MAX_LENGTH);
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

/* The part of a sample that the sampler asks for. */
static int find_part(const struct mr_slot *slot, uint64_t row, uint64_t length,
                     struct mr_part *part)
{
    const struct mr_batch_item *item = slot->items ? &slot->items[row] : NULL;
    uint64_t from = item ? item->from : 0, count = item ? item->count : 0;
    if (from > length || count > length - from)
        return mr_error_set(MR_ESHAPE,
                            "sample %llu has %llu elements, the sampler wants %llu from %llu on",
                            (unsigned long long)slot->indices[row], (unsigned long long)length,
                            (unsigned long long)count, (unsigned long long)from);
    count = count ? count : length - from;
    part->from = (uint32_t)from;
    part->count = (uint32_t)MR_MIN(count, UINT32_MAX);
    return 0;
}

/* end: where the sample before ends. If the sampler gives rows, they ascend. */
static int plan_part(const struct mr_loader *ld, struct mr_slot *slot, uint64_t row,
                     struct mr_part *end)
{
    uint64_t length, most = ld->layout.pack_length;
    struct mr_part part = *end;
    bool given = slot->packing.n_rows > 1;
    int rc = find_length(ld, slot, row, &length);
    if (rc < 0)
        return rc;
    rc = find_part(slot, row, length, &part);
    if (rc < 0)
        return rc;
    if (given)
        part.row = slot->items[row].row;
    else if (part.at > 0 && part.at + (uint64_t)part.count > most)
        part.row++;
    if (part.row < end->row)
        return mr_error_set(MR_ESHAPE, "sample %llu: the sampler puts it in row %u, behind row %u",
                            (unsigned long long)slot->indices[row], part.row, end->row);
    part.at = part.row > end->row ? 0 : end->at;
    if (part.at + (uint64_t)part.count > most)
        return mr_error_set(MR_ESHAPE,
                            "sample %llu: %u elements from %u of a row on: pack_length is %llu: "
                            "make that larger, or samples shorter",
                            (unsigned long long)slot->indices[row], part.count, part.at,
                            (unsigned long long)most);
    slot->packing.part[row] = *end = part;
    end->at += part.count;
    return 0;
}

void mr_pack_begin(const struct mr_loader *ld, struct mr_slot *slot)
{
    slot->packing.n_rows = 0;
    for (uint64_t row = 0; ld->layout.packs && slot->items && row < slot->info.rows; row++)
        slot->packing.n_rows = MR_MAX(slot->packing.n_rows, slot->items[row].row + 1ull);
}

/* The lengths of parts, not of samples; and how many sequences there are. */
static void count(const struct mr_loader *ld, struct mr_slot *slot)
{
    struct mr_packing *packing = &slot->packing;
    struct mr_pack_walk walk;
    struct mr_pack_step step;
    for (int f = 0; f < ld->layout.n_fields; f++)
        for (uint64_t row = 0; mr_pack_takes(ld, f) && row < slot->size; row++)
            slot->lengths[f][row] = packing->part[row].count;
    packing->n_sequences = 0;
    mr_pack_walk_begin(ld, slot, &walk);
    while (mr_pack_walk_next(&walk, &step))
        packing->n_sequences++;
}

int mr_pack_plan(struct mr_loader *ld, struct mr_slot *slot)
{
    struct mr_packing *packing = &slot->packing;
    struct mr_part end = {0};
    for (uint64_t row = 0; row < slot->size; row++) {
        int rc = plan_part(ld, slot, row, &end);
        if (rc < 0)
            return rc;
    }
    if (slot->size > 0)
        packing->n_rows = MR_MAX(packing->n_rows, end.row + 1ull);
    if (packing->n_rows * ld->layout.pack_length > INT32_MAX)
        return mr_error_set(MR_ELIMIT,
                            "a packed batch of %llu x %llu elements: cu_seqlens are i32: make "
                            "batch_size smaller",
                            (unsigned long long)packing->n_rows,
                            (unsigned long long)ld->layout.pack_length);
    count(ld, slot);
    return 0;
}

void mr_pack_walk_begin(const struct mr_loader *ld, const struct mr_slot *slot,
                        struct mr_pack_walk *walk)
{
    *walk = (struct mr_pack_walk){.slot = slot, .length = ld->layout.pack_length};
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
