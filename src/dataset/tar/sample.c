/* Samples of tar archives: locates their fields in the shards and makes them from members. */
#include "dataset/tar/state.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int lacks(const struct mr_dataset *ds, const struct mr_tar_one *one, int f)
{
    const struct mr_tar_state *st = ds->state;
    const char *name = one->index->names + one->index->member[one->first].name;
    char want[200] = "";
    size_t at = 0;
    for (int i = 0; i < st->field[f].n_ext && at < sizeof want; i++)
        at += (size_t)snprintf(want + at, sizeof want - at, "%s.%s", i ? ", " : "",
                               st->field[f].ext[i]);
    return mr_error_set(MR_EFORMAT,
                        "%s: sample '%.*s' has no member for the field '%s': expected %.*s with %s",
                        one->archive, (int)(mr_tar_extension(name) - 1 - name), name,
                        ds->field[f].name, (int)(mr_tar_extension(name) - 1 - name), name, want);
}

/* ---- integers ---- */

int mr_tar_label(const struct mr_tar_one *one, const struct mr_tar_member *m, int64_t *out)
{
    char name[MR_TAR_WHO_BYTES];
    uint32_t n = 0;
    const char *p = (const char *)mr_tar_small(one->index, m, &n), *text = p;
    if (!p)
        return mr_error_set(MR_EFORMAT, "%s: %llu bytes: expected one integer",
                            mr_tar_who(one, m, name), (unsigned long long)m->bytes);
    const char *end = p + n;
    while (p < end && isspace((unsigned char)*p))
        p++;
    bool minus = p < end && *p == '-';
    p += minus || (p < end && *p == '+');
    uint64_t x = 0, most = (uint64_t)INT64_MAX + minus;
    bool digits = p < end && isdigit((unsigned char)*p), fits = true;
    for (; p < end && isdigit((unsigned char)*p); p++)
        fits = fits && mr_mul(x, 10, &x) && mr_add(x, (uint64_t)(*p - '0'), &x) && x <= most;
    while (p < end && (isspace((unsigned char)*p) || *p == 0))
        p++;
    if (!digits || !fits || p < end)
        return mr_error_set(MR_EFORMAT, "%s: '%.*s': expected one integer of 64 bits",
                            mr_tar_who(one, m, name), (int)strnlen(text, n), text);
    *out = (int64_t)(minus ? 0 - x : x);
    return 0;
}

/* ---- arrays ---- */

int mr_tar_array_parse(const char *name, const struct mr_tar_index *index,
                       const struct mr_tar_member *m, struct mr_tar_array *out)
{
    uint32_t n = 0;
    uint64_t at = 0, bytes = 0;
    const unsigned char *text = mr_tar_small(index, m, &n);
    if (!text)
        return mr_error_set(MR_EFORMAT,
                            "%s: no npy array, or one with a header of more than %u bytes", name,
                            MR_TAR_NPY_BYTES);
    int rc = mr_npy_preamble(name, text, n, &at, &bytes);
    if (rc < 0)
        return rc;
    if (at + bytes > n)
        return mr_error_set(MR_ETRUNCATED,
                            "%s: truncated: its header ends at byte %llu, it has %llu", name,
                            (unsigned long long)(at + bytes), (unsigned long long)m->bytes);
    rc = mr_npy_parse(name, (const char *)text + at, bytes, &out->head);
    if (rc < 0)
        return rc;
    out->text = text;
    out->text_bytes = (uint32_t)(at + bytes);
    out->bytes = out->head.item_bytes;
    bool fits = out->head.rank + (out->head.length > 0) <= MR_MAX_RANK;
    for (int d = 0; d < out->head.rank; d++)
        fits = fits && out->head.dim[d] > 0 && mr_mul(out->bytes, out->head.dim[d], &out->bytes);
    if (!fits || out->bytes > m->bytes - out->text_bytes)
        return mr_error_set(MR_EFORMAT,
                            "%s: an array of %d dimensions that does not fit its %llu bytes, is "
                            "empty, or has more than %d "
                            "dimensions",
                            name, out->head.rank, (unsigned long long)m->bytes, MR_MAX_RANK);
    return 0;
}

/* Gets the layout of this sample's array: mostly the same as the first sample's, header
 * included. */
static int array_of(const struct mr_dataset *ds, const struct mr_tar_one *one, int f,
                    const struct mr_tar_member *m, struct mr_tar_array *own,
                    const struct mr_tar_array **out)
{
    const struct mr_tar_state *st = ds->state;
    const struct mr_tar_array *first = &st->array[f];
    char name[MR_TAR_WHO_BYTES];
    uint32_t n = 0;
    const unsigned char *text = mr_tar_small(one->index, m, &n);
    *out = first;
    if (text && n >= first->text_bytes && m->bytes - first->text_bytes >= first->bytes &&
        memcmp(text, first->text, first->text_bytes) == 0)
        return 0;
    int rc = mr_tar_array_parse(mr_tar_who(one, m, name), one->index, m, own);
    if (rc < 0)
        return rc;
    *out = own;
    const struct mr_npy_head *a = &own->head, *b = &first->head;
    if (a->dtype == b->dtype && a->length == b->length && a->rank == b->rank &&
        memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) == 0)
        return 0;
    char want[128];
    return mr_error_set(MR_EFORMAT,
                        "%s: an array of another dtype or shape than the first sample's, %s", name,
                        mr_spec_format(&ds->field[f], want, sizeof want));
}

static bool as_it_is(const struct mr_npy_head *h)
{
    return !h->swap && !(h->fortran && h->rank > 1);
}

/* Converts Fortran order to C order, one element at a time: such members are rare. */
static void turn(const struct mr_tar_array *a, const unsigned char *from, unsigned char *to)
{
    const struct mr_npy_head *h = &a->head;
    uint64_t index[MR_MAX_RANK + 1] = {0}, size = h->item_bytes, n = a->bytes / size;
    for (uint64_t i = 0; i < n;
         i++) { /* i: index in Fortran order, whose first dimension varies fastest */
        uint64_t at = 0;
        for (int d = 0; d < h->rank; d++)
            at = at * h->dim[d] + index[d];
        memcpy(to + at * size, from + i * size, size);
        for (int d = 0; d < h->rank && ++index[d] == h->dim[d]; d++)
            index[d] = 0;
    }
}

/* ---- locate and decode ---- */

/* The source of field f's bytes; FROM_MEMORY: the index contains them. */
enum origin { FROM_FILE, FROM_MEMORY };

struct part {
    enum origin origin;
    bool as_is; /* the extent is the field in its final form */
    uint64_t offset, bytes;
    const struct mr_tar_array *array;
    struct mr_tar_array own;
};

static int part_of(const struct mr_dataset *ds, const struct mr_tar_one *one, int f,
                   const struct mr_tar_member *m, struct part *p)
{
    const struct mr_tar_state *st = ds->state;
    char name[MR_TAR_WHO_BYTES];
    int rc;
    p->origin = FROM_FILE;
    p->as_is = false;
    p->offset = m->offset;
    p->bytes = m->bytes;
    switch (st->field[f].kind) {
    case MR_TAR_PICTURE:
        if (m->bytes > 0)
            return 0;
        return mr_error_set(MR_EFORMAT, "%s: no bytes: expected a picture",
                            mr_tar_who(one, m, name));
    case MR_TAR_LABEL:
        p->origin = FROM_MEMORY;
        return 0;
    case MR_TAR_NPY:
        rc = array_of(ds, one, f, m, &p->own, &p->array);
        if (rc < 0)
            return rc;
        p->offset += p->array->text_bytes;
        p->bytes = p->array->bytes;
        p->as_is = as_it_is(&p->array->head);
        return 0;
    default:
        p->as_is = ds->field[f].var_dims == 0;
        /* a table's indexes come and go, so no view of them outlives decode() */
        p->origin = m->small == MR_TAR_NONE || st->table ? FROM_FILE : FROM_MEMORY;
        /* cannot happen with indexes that we wrote, but files may be forged */
        if (p->as_is && m->bytes != ds->field[f].dim[0])
            return mr_error_set(MR_EFORMAT, "%s: another size than the rest",
                                mr_tar_who(one, m, name));
        return 0;
    }
}

int mr_tar_locate(const struct mr_dataset *ds, uint64_t index, struct mr_extent out[MR_MAX_EXTENTS])
{
    const struct mr_tar_one one = mr_tar_one_of(ds, index);
    return mr_tar_locate_one(ds, &one, out);
}

int mr_tar_locate_one(const struct mr_dataset *ds, const struct mr_tar_one *one,
                      struct mr_extent out[MR_MAX_EXTENTS])
{
    const struct mr_tar_state *st = ds->state;
    int n = 0;
    bool decode = false, ask = false;
    for (int f = 0; f < ds->n_fields; f++) {
        const struct mr_tar_member *m = mr_tar_one_member(one, f);
        struct part p = {0};
        if (!m || part_of(ds, one, f, m, &p) < 0) {
            /* decode() reports the error; the bad-sample report names the sample's first member */
            /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): each sample has one */
            uint64_t at = one->index->member[one->first].offset - MR_TAR_BLOCK;
            out[0] = (struct mr_extent){
                .file = one->file, .field = -1, .offset = at, .bytes = MR_TAR_BLOCK};
            return 1;
        }
        if (p.origin == FROM_MEMORY) {
            ask = true;
            continue;
        }
        decode = decode || !p.as_is;
        out[n++] = (struct mr_extent){
            .file = one->file, .field = p.as_is ? f : -1, .offset = p.offset, .bytes = p.bytes};
    }
    /* some extent must trigger decode(); extents can't exceed fields, as this field has none */
    if (ask && !decode)
        out[n++] = (struct mr_extent){.file = st->nothing, .field = -1, .bytes = 1};
    return n;
}

static void make_array(const struct mr_tar_array *a, const void *in, uint64_t elements,
                       unsigned char *room)
{
    const struct mr_npy_head *h = &a->head;
    if (h->fortran && h->rank > 1)
        turn(a, in, room);
    if (h->swap)
        mr_swap_copy(room, h->fortran && h->rank > 1 ? room : in, elements, h->swap);
}

/* in: the field's extent, or NULL if it has none. */
static int make_field(const struct mr_dataset *ds, const struct mr_tar_one *one, int f,
                      const struct mr_tar_member *m, const struct part *p,
                      const struct mr_bytes *in, struct mr_sample *out)
{
    const struct mr_tar_state *st = ds->state;
    char name[MR_TAR_WHO_BYTES];
    uint32_t kept;
    switch (st->field[f].kind) {
    case MR_TAR_PICTURE:
        return mr_sample_decode(ds, mr_tar_who(one, m, name), in, out);
    case MR_TAR_LABEL: {
        int64_t label = 0;
        int rc = mr_tar_label(one, m, &label);
        if (rc < 0)
            return rc;
        memcpy(out->field[f].room, &label, sizeof label);
        out->field[f].data = out->field[f].room;
        return 0;
    }
    case MR_TAR_NPY:
        if (p->as_is || !p->array) {
            out->field[f].data = in->data ? in->data : out->field[f].data;
            return 0;
        }
        make_array(p->array, in->data, p->array->bytes / MR_MAX(p->array->head.swap, 1),
                   out->field[f].room);
        out->field[f].data = out->field[f].room;
        return 0;
    default:
        if (ds->field[f].var_dims)
            out->field[f].dim[0] = m->bytes;
        if (p->origin == FROM_MEMORY)
            out->field[f].data = mr_tar_small(one->index, m, &kept);
        else if (in->data)
            out->field[f].data = in->data;
        return 0;
    }
}

/* base: where the members' bytes are, at their offsets; NULL: in has the extents of locate(). */
static int decode_one(const struct mr_dataset *ds, const struct mr_tar_one *one,
                      const unsigned char *base, const struct mr_bytes in[], struct mr_sample *out)
{
    struct part p[MR_MAX_FIELDS];
    /* as in locate(): a bad sample has different extents */
    for (int f = 0; f < ds->n_fields; f++) {
        const struct mr_tar_member *m = mr_tar_one_member(one, f);
        p[f] = (struct part){0};
        int rc = m ? part_of(ds, one, f, m, &p[f]) : lacks(ds, one, f);
        if (rc < 0)
            return rc;
    }
    int e = 0;
    for (int f = 0; f < ds->n_fields; f++) {
        const struct mr_bytes here = {base ? base + p[f].offset : NULL, p[f].bytes};
        const struct mr_bytes *bytes = p[f].origin != FROM_FILE ? NULL : base ? &here : &in[e++];
        const struct mr_tar_member *m = mr_tar_one_member(one, f);
        char name[MR_TAR_WHO_BYTES];
        if (!m)
            return lacks(ds, one, f);
        if (bytes && bytes->data &&
            bytes->n != p[f].bytes) /* what follows would read beyond them */
            return mr_error_set(MR_EFORMAT, "%s: %llu bytes were read, its index now says %llu",
                                mr_tar_who(one, m, name), (unsigned long long)bytes->n,
                                (unsigned long long)p[f].bytes);
        int rc = make_field(ds, one, f, m, &p[f], bytes, out);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int mr_tar_decode(const struct mr_dataset *ds, uint64_t index, const struct mr_bytes in[],
                  struct mr_sample *out)
{
    const struct mr_tar_one one = mr_tar_one_of(ds, index);
    return decode_one(ds, &one, NULL, in, out);
}

int mr_tar_decode_one(const struct mr_dataset *ds, const struct mr_tar_one *one,
                      const struct mr_bytes in[], struct mr_sample *out)
{
    return decode_one(ds, one, NULL, in, out);
}

int mr_tar_decode_memory(const struct mr_dataset *ds, const struct mr_tar_one *one,
                         const unsigned char *base, struct mr_sample *out)
{
    return decode_one(ds, one, base, NULL, out);
}

int mr_tar_get_field(const struct mr_dataset *ds, uint64_t index, int f, struct mr_sample *out,
                     void **owned)
{
    const struct mr_tar_one one = mr_tar_one_of(ds, index);
    return mr_tar_get_field_one(ds, &one, f, out, owned);
}

int mr_tar_get_field_one(const struct mr_dataset *ds, const struct mr_tar_one *one, int f,
                         struct mr_sample *out, void **owned)
{
    const struct mr_tar_member *m = mr_tar_one_member(one, f);
    struct part p = {0};
    struct mr_bytes in = {NULL, 0};
    if (!m)
        return lacks(ds, one, f);
    int rc = part_of(ds, one, f, m, &p);
    if (rc < 0)
        return rc;
    struct mr_extent at = {.file = one->file, .field = -1, .offset = p.offset, .bytes = p.bytes};
    if (p.origin == FROM_FILE)
        rc = mr_extent_fetch(ds, &at, &in, owned);
    if (rc < 0)
        return rc;
    rc = make_field(ds, one, f, m, &p, &in, out);
    return rc < 0 ? rc : 1;
}
