/* From a slot's rows to the batch: bad rows left out, collated fields put into the slot. */
#include "loader/collate.h"

#include "loader/engine.h"

#include <string.h>

/* Row `from` becomes row `to`. */
static void move_row(struct mr_loader *ld, struct mr_slot *slot, uint64_t to, uint64_t from)
{
    const struct mr_layout *layout = &ld->layout;
    for (int f = 0; f < layout->n_fields; f++) {
        const struct mr_field *fp = &layout->field[f];
        unsigned char *flip = slot->host + fp->flip_offset;
        if (fp->device_part && fp->device_part->flip)
            flip[to] = flip[from];
        if (slot->dims)
            memcpy(mr_slot_dims(slot, to, f), mr_slot_dims(slot, from, f),
                   MR_MAX_RANK * sizeof(uint64_t));
        if (fp->collated)
            *mr_slot_kept(slot, to, f) = *mr_slot_kept(slot, from, f);
    }
    slot->indices[to] = slot->indices[from];
    slot->positions[to] = slot->positions[from];
    if (slot->items)
        slot->items[to] = slot->items[from];
    mr_backends_move(ld, slot, to, from);
}

/* Closes the gaps that skipped samples leave. Returns how many rows stay. */
static uint64_t drop_bad_rows(struct mr_loader *ld, struct mr_slot *slot)
{
    uint64_t kept = 0;
    for (const struct mr_bad *bad = slot->bad; bad; bad = bad->next)
        slot->positions[bad->row] = UINT64_MAX;
    for (uint64_t row = 0; row < slot->info.rows; row++) {
        if (slot->positions[row] == UINT64_MAX)
            continue;
        if (kept != row)
            move_row(ld, slot, kept, row);
        kept++;
    }
    return kept;
}

/* mixup, cutmix: over the rows that are delivered. Fields with a device part wait for the device,
 * which needs the rows' partners. */
static void mix(struct mr_loader *ld, struct mr_slot *slot, unsigned char *row_buffer)
{
    const int mixed[] = {ld->chain->mix->on, ld->chain->mix_label};
    struct mr_mix_at at = {ld->opts.seed, slot->info.epoch, slot->info.index};
    mr_mix_choose(ld->chain, &at, slot->size, &slot->mixture);
    for (size_t k = 0; k < MR_COUNT(mixed); k++) {
        const struct mr_field *fp = &ld->layout.field[mixed[k]];
        if (!fp->device_part)
            mr_mix_rows(ld->chain, &slot->mixture, mixed[k], slot->host + fp->offset, fp->row_bytes,
                        row_buffer);
    }
    if (ld->layout.mixes)
        mr_mix_partners(&slot->mixture, (uint32_t *)(slot->host + ld->layout.partner_offset));
}

static int may_keep(void *loader, uint64_t bytes)
{
    return mr_grown_add(loader, 0, 0, bytes);
}

static uint64_t row_bytes(const struct mr_spec *spec, const uint64_t *dim)
{
    uint64_t bytes = mr_dtype_size(spec->dtype);
    for (int d = 0; d < spec->rank; d++)
        bytes *= dim[d];
    return bytes;
}

int mr_collate_keep(struct mr_loader *ld, struct mr_slot *slot, uint64_t row, int f,
                    const void *data, const uint64_t *dim)
{
    uint64_t bytes = row_bytes(&ld->layout.field[f].out, dim);
    unsigned char *to;
    int rc = mr_rows_take(&slot->rows, bytes, may_keep, ld, &to);
    if (rc < 0)
        return rc;
    if (bytes > 0)
        memcpy(to, data, bytes);
    *mr_slot_kept(slot, row, f) = to;
    return 0;
}

/* Rows whose bytes follow each other are copied at once. Only rows that a batch takes apart need an
 * alignment of their own. */
int mr_collate_keep_rows(struct mr_loader *ld, struct mr_slot *slot, uint64_t row, uint32_t n,
                         int f)
{
    const struct mr_field *fp = &ld->layout.field[f];
    const unsigned char **kept = mr_slot_kept(slot, row, f);
    uint64_t each = fp->collate == MR_COLLATE_RAGGED ? 1 : MR_ROWS_ALIGNMENT, all = 0;
    unsigned char *to;
    for (uint32_t i = 0; i < n; i++)
        all += mr_round_up(row_bytes(&fp->out, mr_slot_dims(slot, row + i, f)), each);
    int rc = mr_rows_take(&slot->rows, all, may_keep, ld, &to);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < n;) {
        const unsigned char *from = kept[i];
        uint64_t bytes, run = 0;
        do {
            bytes = row_bytes(&fp->out, mr_slot_dims(slot, row + i, f));
            kept[i++] = to + run;
            run += bytes;
        } while (i < n && kept[i] == from + run && bytes % each == 0);
        if (run > 0)
            memcpy(to, from, run);
        to += mr_round_up(run, each);
    }
    return 0;
}

/* Halves of `need` bytes or more, at once as large as those of other slots had to be. */
static int grow(struct mr_loader *ld, struct mr_slot *slot, uint64_t need)
{
    uint64_t largest = atomic_load_explicit(&ld->grown.largest, memory_order_relaxed);
    uint64_t bytes = MR_MAX(need, MR_MIN(need + need / 4, ld->layout.bound_bytes));
    bytes = mr_round_up(MR_MAX(bytes, largest), 256);
    uint64_t more = bytes - slot->capacity;
    int rc = mr_grown_add(ld, more, slot->device ? more : 0, 0);
    if (rc < 0 && bytes > need) {
        bytes = need;
        more = bytes - slot->capacity;
        rc = mr_grown_add(ld, more, slot->device ? more : 0, 0);
    }
    if (rc < 0)
        return rc;
    rc = mr_slot_grow(slot, &ld->layout, bytes);
    if (rc < 0) {
        mr_grown_sub(ld, more, slot->device ? more : 0, 0);
        return rc;
    }
    while (largest < bytes && !atomic_compare_exchange_weak(&ld->grown.largest, &largest, bytes))
        ;
    return 0;
}

/* Collated and added fields behind all others, one after the other. */
static int place_collated(struct mr_loader *ld, struct mr_slot *slot)
{
    const struct mr_layout *layout = &ld->layout;
    uint64_t at = layout->fixed_bytes;
    for (int f = 0; f < layout->n_fields + layout->n_added; f++) {
        bool added = f >= layout->n_fields;
        if (!added && !layout->field[f].collated)
            continue;
        int rc = added ? mr_added_measure(ld, slot, f - layout->n_fields)
                       : mr_collated_measure(ld, slot, f);
        if (rc < 0)
            return rc;
        slot->place[f] = at = mr_round_up(at, 256);
        if (!mr_add(at, slot->bytes[f], &at) || at > 1ull << 62)
            return mr_error_set(MR_ELIMIT, "a batch is more than 2^62 bytes");
    }
    slot->end = at;
    return at > slot->capacity ? grow(ld, slot, at) : 0;
}

static int collate_fields(struct mr_loader *ld, struct mr_slot *slot)
{
    for (int f = 0; f < ld->layout.n_fields; f++) {
        const struct mr_field *fp = &ld->layout.field[f];
        if (fp->collated)
            continue;
        mr_batch_spec(slot, f, &fp->out, fp->out.dim);
        slot->bytes[f] = slot->size * fp->out_bytes;
    }
    int rc = ld->layout.packs ? mr_pack_plan(ld, slot) : 0;
    if (rc < 0 || !ld->layout.collates)
        return rc;
    rc = place_collated(ld, slot);
    if (rc < 0)
        return rc;
    for (int f = 0; f < ld->layout.n_fields; f++)
        if (ld->layout.field[f].collated)
            mr_collated_write(ld, slot, f);
    for (int k = 0; k < ld->layout.n_added; k++)
        mr_added_write(ld, slot, k);
    return 0;
}

int mr_collate(struct mr_worker *w, struct mr_slot *slot)
{
    struct mr_loader *ld = w->ld;
    slot->size = slot->info.rows;
    mr_pack_begin(ld, slot);
    /* Replaced samples have good rows; under FAIL the batch is not delivered. */
    if (slot->bad && ld->opts.bad != MR_BAD_REPLACE)
        slot->size = drop_bad_rows(ld, slot);
    if (ld->chain && ld->chain->mix)
        mix(ld, slot, w->row_buffer);
    for (int f = 0; f < ld->layout.n_fields; f++)
        for (uint64_t row = 0; ld->layout.field[f].varies && row < slot->size; row++)
            slot->lengths[f][row] = mr_slot_dims(slot, row, f)[0];
    int rc = ld->layout.by_user ? mr_user_collate(w, slot) : collate_fields(ld, slot);
    if (ld->layout.collates)
        mr_rows_clear(&slot->rows);
    return rc;
}
