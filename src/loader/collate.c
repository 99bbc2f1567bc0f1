/* From a slot's rows to the batch: bad rows left out, varying fields padded to the longest or
 * packed end to end. */
#include "loader/engine.h"
#include "transform/transform.h"

#include <math.h>
#include <string.h>

static uint64_t elements(const uint64_t *dim, int rank)
{
    uint64_t n = 1;
    for (int d = 0; d < rank; d++)
        n *= dim[d];
    return n;
}

static void fill_elements(void *out, uint64_t n, size_t element, const void *fill)
{
    static const unsigned char zero[16];
    if (memcmp(fill, zero, element) == 0) {
        memset(out, 0, n * element);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        memcpy((unsigned char *)out + i * element, fill, element);
}

void mr_place(const struct mr_spec *spec, const void *in, const uint64_t *dim, void *out,
              const uint64_t *to, const void *fill)
{
    size_t element = mr_dtype_size(spec->dtype);
    int outer =
        spec->rank; /* dimensions [0, outer) are walked; those after them are copied as one piece */
    while (outer > 0 && dim[outer - 1] == to[outer - 1])
        outer--;
    if (outer == 0) {
        memcpy(out, in, elements(dim, spec->rank) * element);
        return;
    }
    outer--; /* dimension `outer` is shorter than in `to`, but still one piece */
    fill_elements(out, elements(to, spec->rank), element, fill);
    uint64_t piece = elements(dim + outer, spec->rank - outer) * element;
    uint64_t stride = elements(to + outer, spec->rank - outer) * element;
    uint64_t n = elements(dim, outer);
    for (uint64_t i = 0; i < n && piece > 0; i++) {
        uint64_t at = 0, rest = i, scale = 1;
        for (int d = outer - 1; d >= 0; d--) {
            at += rest % dim[d] * scale;
            rest /= dim[d];
            scale *= to[d];
        }
        memcpy((unsigned char *)out + at * stride, (const unsigned char *)in + i * piece, piece);
    }
}

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
            memcpy(mr_slot_dims(layout, slot, to, f), mr_slot_dims(layout, slot, from, f),
                   MR_MAX_RANK * sizeof(uint64_t));
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

/* The batch's spec of a field: rows in front, then `dim`. */
static void batch_spec(struct mr_slot *slot, int f, const struct mr_spec *sample, uint64_t rows,
                       const uint64_t *dim)
{
    struct mr_spec *spec = &slot->spec[f];
    *spec = *sample;
    spec->rank = sample->rank + 1;
    spec->var_dims = 0;
    spec->dim[0] = rows;
    memcpy(spec->dim + 1, dim, (size_t)sample->rank * sizeof *dim);
}

static void pad_to_longest(struct mr_loader *ld, struct mr_slot *slot, int f,
                           unsigned char *row_buffer)
{
    const struct mr_field *fp = &ld->layout.field[f];
    uint64_t longest[MR_MAX_RANK] = {0};
    for (uint64_t row = 0; row < slot->size; row++)
        for (int d = 0; d < fp->out.rank; d++)
            longest[d] = MR_MAX(longest[d], mr_slot_dims(&ld->layout, slot, row, f)[d]);
    size_t element = mr_dtype_size(fp->out.dtype);
    uint64_t bytes = elements(longest, fp->out.rank) * element;
    unsigned char fill[16], *base = slot->host + fp->offset;
    mr_fill_element(fp->out.dtype, ld->opts.pad_value, fill);
    /* Row r moves to r * bytes <= r * row_bytes, never into a row that has yet to move: going up is
     * safe. */
    for (uint64_t row = 0; row < slot->size; row++) {
        const uint64_t *dim = mr_slot_dims(&ld->layout, slot, row, f);
        memcpy(row_buffer, base + row * fp->row_bytes, elements(dim, fp->out.rank) * element);
        mr_place(&fp->out, row_buffer, dim, base + row * bytes, longest, fill);
    }
    batch_spec(slot, f, &fp->out, slot->size, longest);
    slot->bytes[f] = slot->size * bytes;
}

/* Values end to end: only the first dimension varies (checked at open). */
static void pack(struct mr_loader *ld, struct mr_slot *slot, int f)
{
    const struct mr_field *fp = &ld->layout.field[f];
    uint64_t item = elements(fp->out.dim + 1, fp->out.rank - 1) * mr_dtype_size(fp->out.dtype),
             total = 0;
    unsigned char *base = slot->host + fp->offset;
    for (uint64_t row = 0; row < slot->size; row++) {
        slot->offsets[f][row] = total;
        memmove(base + total * item, base + row * fp->row_bytes, slot->lengths[f][row] * item);
        total += slot->lengths[f][row];
    }
    slot->offsets[f][slot->size] = total;
    struct mr_spec *spec = &slot->spec[f];
    *spec = fp->out;
    spec->var_dims = 0;
    spec->dim[0] = total;
    slot->bytes[f] = total * item;
}

static void collate_varying(struct mr_loader *ld, struct mr_slot *slot, int f,
                            unsigned char *row_buffer)
{
    const struct mr_field *fp = &ld->layout.field[f];
    for (uint64_t row = 0; row < slot->size; row++)
        slot->lengths[f][row] = mr_slot_dims(&ld->layout, slot, row, f)[0];
    if (ld->opts.collate == MR_COLLATE_PAD) {
        pad_to_longest(ld, slot, f, row_buffer);
    } else if (ld->opts.collate == MR_COLLATE_RAGGED) {
        pack(ld, slot, f);
    } else {
        batch_spec(slot, f, &fp->out, slot->size, fp->out.dim);
        slot->bytes[f] = slot->size * fp->row_bytes;
    }
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

void mr_collate(struct mr_loader *ld, struct mr_slot *slot, unsigned char *row_buffer)
{
    slot->size = slot->info.rows;
    /* Replaced samples have good rows; under FAIL the batch is not delivered. */
    if (slot->bad && ld->opts.bad != MR_BAD_REPLACE)
        slot->size = drop_bad_rows(ld, slot);
    if (ld->chain && ld->chain->mix)
        mix(ld, slot, row_buffer);
    for (int f = 0; f < ld->layout.n_fields; f++) {
        const struct mr_field *fp = &ld->layout.field[f];
        if (fp->varies) {
            collate_varying(ld, slot, f, row_buffer);
        } else {
            batch_spec(slot, f, &fp->out, slot->size, fp->out.dim);
            slot->bytes[f] = slot->size * fp->out_bytes;
        }
    }
}

void mr_fill_element(enum mr_dtype dtype, double value, unsigned char out[16])
{
    memset(out, 0, 16);
    mr_element_from_double(dtype, value, out);
}
