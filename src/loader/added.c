/* Added fields: masks, cumulative lengths, positions and segments. */
#include "loader/added.h"

#include "loader/engine.h"

#include <stdio.h>
#include <string.h>

/* ---- which ---- */

static int find_field(const struct mr_loader *ld, const char *name, size_t n)
{
    for (int f = 0; f < ld->layout.n_fields; f++) {
        const char *have = ld->layout.field[f].out.name;
        if (strnlen(have, MR_NAME_BYTES) == n && memcmp(have, name, n) == 0)
            return f;
    }
    return -1;
}

/* Texts are not meant: they have lengths without being sequences. */
static int first_varying(const struct mr_loader *ld)
{
    for (int f = 0; f < ld->layout.n_fields; f++)
        if (ld->layout.field[f].varies && ld->layout.field[f].out.kind == MR_KIND_TENSOR)
            return f;
    return -1;
}

static int add(struct mr_loader *ld, enum mr_added_kind kind, int field, const char *name)
{
    struct mr_layout *layout = &ld->layout;
    size_t n = strlen(name);
    if (n >= MR_NAME_BYTES)
        return mr_error_set(MR_EOPTION, "an added field's name, %s, is longer than %d bytes", name,
                            MR_NAME_BYTES - 1);
    if (find_field(ld, name, n) >= 0)
        return mr_error_set(MR_EOPTION, "samples have a field %s, which collation would add", name);
    for (int k = 0; k < layout->n_added; k++)
        if (strcmp(layout->added[k].spec.name, name) == 0)
            return mr_error_set(MR_EOPTION, "%s would be added twice", name);
    if (layout->n_fields + layout->n_added == MR_MAX_FIELDS)
        return mr_error_set(MR_EOPTION, "%s would be field %d of a batch: expected at most %d",
                            name, MR_MAX_FIELDS + 1, MR_MAX_FIELDS);
    struct mr_added *added = &layout->added[layout->n_added++];
    *added = (struct mr_added){.kind = kind, .field = field};
    added->spec.dtype = kind == MR_ADDED_MASK ? MR_BOOL : MR_I32;
    memcpy(added->spec.name, name, n + 1);
    layout->collates = true;
    if (kind == MR_ADDED_CU_SEQLENS)
        return 0;
    bool packed = ld->opts.collate == MR_COLLATE_PACK;
    added->spec.rank = 1;
    added->spec.dim[0] = packed ? ld->layout.pack_length : layout->field[field].out.dim[0];
    added->spec.var_dims = !packed && ld->opts.collate != MR_COLLATE_FIXED;
    return 0;
}

/* The field that an option names, of n bytes; "auto": the first one that varies. */
static int named_field(const struct mr_loader *ld, const char *option, const char *name, size_t n)
{
    int f = find_field(ld, name, n);
    if (f < 0 && n == 4 && memcmp(name, "auto", 4) == 0)
        f = first_varying(ld);
    if (f >= 0 && ld->layout.field[f].out.var_dims & 1)
        return f;
    return mr_error_set(MR_EOPTION,
                        "%s: \"%.*s\": expected a field whose first dimension varies (auto: the "
                        "first one)",
                        option, (int)MR_MIN(n, 80), name);
}

/* "ids,labels", also in parentheses. */
static int add_masks(struct mr_loader *ld, const char *text)
{
    size_t n = strlen(text);
    if (n >= 2 && text[0] == '(' && text[n - 1] == ')') {
        text++;
        n -= 2;
    }
    for (const char *end = text + n;; text++) {
        char name[2 * MR_NAME_BYTES];
        const char *comma = memchr(text, ',', (size_t)(end - text));
        const char *stop = comma ? comma : end;
        int f = named_field(ld, "mask", text, (size_t)(stop - text));
        if (f < 0)
            return f;
        if (ld->layout.field[f].collate == MR_COLLATE_RAGGED)
            return mr_error_set(MR_EOPTION, "mask: %.*s is ragged: it has no padding to mask",
                                MR_NAME_BYTES, ld->layout.field[f].out.name);
        snprintf(name, sizeof name, "%.*s_mask", MR_NAME_BYTES, ld->layout.field[f].out.name);
        int rc = add(ld, MR_ADDED_MASK, f, name);
        text = stop;
        if (rc < 0 || !comma)
            return rc;
    }
}

/* What packed rows need. */
static int add_packed(struct mr_loader *ld)
{
    int f = first_varying(ld), rc = add(ld, MR_ADDED_POSITIONS, f, "position_ids");
    if (rc < 0)
        return rc;
    rc = add(ld, MR_ADDED_SEGMENTS, f, "segment_ids");
    return rc < 0 ? rc : add(ld, MR_ADDED_CU_SEQLENS, f, "cu_seqlens");
}

int mr_added_plan(struct mr_loader *ld)
{
    const char *mask = ld->opts.mask, *cu_seqlens = ld->opts.cu_seqlens;
    bool packed = ld->opts.collate == MR_COLLATE_PACK;
    ld->opts.mask = ld->opts.cu_seqlens = NULL; /* borrowed for this call only */
    int rc = packed ? add_packed(ld) : 0;
    if (rc < 0)
        return rc;
    rc = mask ? add_masks(ld, mask) : 0;
    if (rc < 0 || !cu_seqlens || packed)
        return rc;
    int f = named_field(ld, "cu_seqlens", cu_seqlens, strlen(cu_seqlens));
    return f < 0 ? f : add(ld, MR_ADDED_CU_SEQLENS, f, "cu_seqlens");
}

/* ---- in a batch ---- */

/* The elements of field f in a batch, all samples together, as i32. */
static int check_total(const struct mr_loader *ld, const struct mr_slot *slot, int f)
{
    uint64_t total = 0;
    for (uint64_t row = 0; row < slot->size; row++)
        total += slot->lengths[f][row];
    if (total <= INT32_MAX)
        return 0;
    return mr_error_set(MR_ELIMIT,
                        "cu_seqlens: the samples of a batch have %llu elements of %.*s: i32 ends "
                        "at %d: make batch_size smaller",
                        (unsigned long long)total, MR_NAME_BYTES, ld->layout.field[f].out.name,
                        INT32_MAX);
}

int mr_added_measure(struct mr_loader *ld, struct mr_slot *slot, int k)
{
    const struct mr_added *added = &ld->layout.added[k];
    int out = mr_layout_first_added(&ld->layout) + k;
    struct mr_spec *spec = &slot->spec[out];
    bool packed = ld->opts.collate == MR_COLLATE_PACK;
    *spec = added->spec;
    spec->var_dims = 0;
    if (added->kind == MR_ADDED_CU_SEQLENS) {
        int rc = packed ? 0 : check_total(ld, slot, added->field);
        if (rc < 0)
            return rc;
        spec->rank = 1;
        spec->dim[0] = (packed ? slot->packing.n_sequences : slot->size) + 1;
    } else { /* the first two dimensions of the field */
        spec->rank = 2;
        memcpy(spec->dim, slot->spec[added->field].dim, 2 * sizeof *spec->dim);
    }
    return mr_spec_bytes(spec, &slot->bytes[out]);
}

static void write_mask(const struct mr_slot *slot, int f, uint64_t length, unsigned char *out)
{
    for (uint64_t row = 0; row < slot->size; row++, out += length) {
        uint64_t n = slot->lengths[f][row];
        memset(out, 1, n);
        memset(out + n, 0, length - n);
    }
}

static void write_sums(const struct mr_slot *slot, int f, int32_t *out)
{
    uint64_t sum = 0;
    for (uint64_t row = 0; row < slot->size; row++) {
        out[row] = (int32_t)sum;
        sum += slot->lengths[f][row];
    }
    out[slot->size] = (int32_t)sum;
}

static void write_packed(const struct mr_loader *ld, const struct mr_slot *slot,
                         enum mr_added_kind kind, void *out)
{
    int32_t *number = out;
    uint64_t i = 0;
    struct mr_pack_walk walk;
    struct mr_pack_step step;
    mr_pack_walk_begin(ld, slot, &walk);
    while (mr_pack_walk_next(&walk, &step)) {
        bool data = step.row != UINT64_MAX;
        if (kind == MR_ADDED_CU_SEQLENS)
            number[i++] = (int32_t)step.cell;
        if (kind == MR_ADDED_MASK)
            memset((unsigned char *)out + step.cell, data, step.n);
        for (uint64_t c = 0; kind == MR_ADDED_SEGMENTS && c < step.n; c++)
            number[step.cell + c] = (int32_t)step.segment;
        for (uint64_t c = 0; kind == MR_ADDED_POSITIONS && c < step.n; c++)
            number[step.cell + c] = data ? (int32_t)(step.from + c) : 0;
    }
    if (kind == MR_ADDED_CU_SEQLENS)
        number[i] = (int32_t)walk.cell;
}

void mr_added_write(struct mr_loader *ld, struct mr_slot *slot, int k)
{
    const struct mr_added *added = &ld->layout.added[k];
    unsigned char *out = slot->host + slot->place[mr_layout_first_added(&ld->layout) + k];
    if (ld->opts.collate == MR_COLLATE_PACK)
        write_packed(ld, slot, added->kind, out);
    else if (added->kind == MR_ADDED_MASK)
        write_mask(slot, added->field, slot->spec[added->field].dim[1], out);
    else
        write_sums(slot, added->field, (int32_t *)(void *)out);
}
