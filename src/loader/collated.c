/* A collated field: how large it is in a batch, and its rows in their places. */
#include "loader/collate.h"

#include "loader/engine.h"

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
    if (memcmp(fill, zero, element) == 0 || n == 0) {
        memset(out, 0, n * element);
        return;
    }
    memcpy(out, fill, element);
    for (uint64_t have = 1; have < n; have *= 2) /* what is there, once more behind it */
        memcpy((unsigned char *)out + have * element, out, MR_MIN(have, n - have) * element);
}

void mr_place(const struct mr_spec *spec, const void *in, const uint64_t *dim, void *out,
              const uint64_t *to, const void *fill)
{
    size_t element = mr_dtype_size(spec->dtype);
    int outer =
        spec->rank; /* dimensions [0, outer) are walked; those after them are copied as one piece */
    while (outer > 0 && dim[outer - 1] == to[outer - 1])
        outer--;
    uint64_t have = elements(dim, spec->rank);
    if (outer == 0) {
        if (have > 0) /* a row without elements may have no memory */
            memcpy(out, in, have * element);
        return;
    }
    outer--; /* dimension `outer` is shorter than in `to`, but still one piece */
    if (outer == 0) {
        uint64_t all = elements(to, spec->rank);
        if (have > 0)
            memcpy(out, in, have * element);
        fill_elements((unsigned char *)out + have * element, all - have, element, fill);
        return;
    }
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

void mr_fill_element(enum mr_dtype dtype, double value, unsigned char out[16])
{
    memset(out, 0, 16);
    mr_element_from_double(dtype, value, out);
}

void mr_batch_spec(struct mr_slot *slot, int f, const struct mr_spec *sample, const uint64_t *dim)
{
    struct mr_spec *spec = &slot->spec[f];
    *spec = *sample;
    spec->rank = sample->rank + 1;
    spec->var_dims = 0;
    spec->dim[0] = slot->size;
    memcpy(spec->dim + 1, dim, (size_t)sample->rank * sizeof *dim);
}

/* Of the rows, by each dimension; those that vary are rounded up to pad_to_multiple_of. */
static void find_longest(const struct mr_loader *ld, const struct mr_slot *slot, int f,
                         uint64_t longest[MR_MAX_RANK])
{
    const struct mr_spec *spec = &ld->layout.field[f].out;
    memset(longest, 0, MR_MAX_RANK * sizeof *longest);
    for (uint64_t row = 0; row < slot->size; row++)
        for (int d = 0; d < spec->rank; d++)
            longest[d] = MR_MAX(longest[d], mr_slot_dims(slot, row, f)[d]);
    for (int d = 0; d < spec->rank; d++)
        if (spec->var_dims >> d & 1)
            longest[d] = mr_round_up(longest[d], ld->opts.pad_to_multiple_of);
}

/* Values end to end: only the first dimension varies (checked at open). */
static void measure_ragged(const struct mr_loader *ld, struct mr_slot *slot, int f)
{
    struct mr_spec *spec = &slot->spec[f];
    uint64_t total = 0;
    for (uint64_t row = 0; row < slot->size; row++) {
        slot->offsets[f][row] = total;
        total += slot->lengths[f][row];
    }
    slot->offsets[f][slot->size] = total;
    *spec = ld->layout.field[f].out;
    spec->var_dims = 0;
    spec->dim[0] = total;
}

static void measure_packed(const struct mr_loader *ld, struct mr_slot *slot, int f)
{
    uint64_t dim[MR_MAX_RANK];
    memcpy(dim, ld->layout.field[f].out.dim, sizeof dim);
    dim[0] = ld->layout.pack_length;
    mr_batch_spec(slot, f, &ld->layout.field[f].out, dim);
    slot->spec[f].dim[0] = slot->packing.n_rows;
}

static void write_packed(const struct mr_loader *ld, struct mr_slot *slot, int f)
{
    const struct mr_field *fp = &ld->layout.field[f];
    unsigned char *base = slot->host + slot->place[f];
    size_t element = mr_dtype_size(fp->out.dtype);
    uint64_t each = elements(fp->out.dim + 1, fp->out.rank - 1);
    struct mr_pack_walk walk;
    struct mr_pack_step step;
    mr_pack_walk_begin(ld, slot, &walk);
    while (mr_pack_walk_next(&walk, &step)) {
        unsigned char *to = base + step.cell * each * element;
        if (step.row == UINT64_MAX)
            fill_elements(to, step.n * each, element, fp->fill);
        else
            memcpy(to, *mr_slot_kept(slot, step.row, f) + step.from * each * element,
                   step.n * each * element);
    }
}

int mr_collated_measure(struct mr_loader *ld, struct mr_slot *slot, int f)
{
    uint64_t longest[MR_MAX_RANK];
    if (ld->layout.field[f].collate == MR_COLLATE_RAGGED) {
        measure_ragged(ld, slot, f);
    } else if (ld->layout.field[f].collate == MR_COLLATE_PACK) {
        measure_packed(ld, slot, f);
    } else {
        find_longest(ld, slot, f, longest);
        mr_batch_spec(slot, f, &ld->layout.field[f].out, longest);
    }
    return mr_spec_bytes(&slot->spec[f], &slot->bytes[f]);
}

/* Rows end to end; those that are so already are copied at once. */
static void write_ragged(struct mr_slot *slot, int f)
{
    unsigned char *to = slot->host + slot->place[f];
    uint64_t element = slot->bytes[f] / MR_MAX(slot->spec[f].dim[0], 1); /* of one length */
    for (uint64_t row = 0; row < slot->size;) {
        const unsigned char *from = *mr_slot_kept(slot, row, f);
        uint64_t run = 0;
        do
            run += slot->lengths[f][row++] * element;
        while (row < slot->size && *mr_slot_kept(slot, row, f) == from + run);
        if (run > 0)
            memcpy(to, from, run);
        to += run;
    }
}

void mr_collated_write(struct mr_loader *ld, struct mr_slot *slot, int f)
{
    const struct mr_field *fp = &ld->layout.field[f];
    unsigned char *base = slot->host + slot->place[f];
    uint64_t each = slot->size > 0 ? slot->bytes[f] / slot->size : 0;
    if (fp->collate == MR_COLLATE_PACK) {
        write_packed(ld, slot, f);
        return;
    }
    if (fp->collate == MR_COLLATE_RAGGED) {
        write_ragged(slot, f);
        return;
    }
    for (uint64_t row = 0; row < slot->size; row++, base += each)
        mr_place(&fp->out, *mr_slot_kept(slot, row, f), mr_slot_dims(slot, row, f), base,
                 slot->spec[f].dim + 1, fp->fill);
}
