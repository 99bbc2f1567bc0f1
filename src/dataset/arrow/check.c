/* Checks of Arrow arrays, and where their values are. */
#include "dataset/arrow/arrow.h"

#include <string.h>

/* Where an array is, for errors. */
struct place {
    const char *name, *column;
    uint64_t row; /* of the chunk's first */
};

static int malformed(const struct place *at, const char *what, int64_t found)
{
    return mr_error_set(MR_EFORMAT, "%s: column '%s', rows from %llu: %s: found %lld", at->name,
                        at->column, (unsigned long long)at->row, what, (long long)found);
}

static int shape_check(const struct place *at, const struct ArrowArray *a, int64_t buffers,
                       int64_t children)
{
    if (a->length < 0)
        return malformed(at, "expected a length of 0 or more", a->length);
    if (a->offset < 0)
        return malformed(at, "expected an offset of 0 or more", a->offset);
    if (a->length > INT64_MAX / 16 - a->offset)
        return malformed(at, "length and offset exceed an address space; length", a->length);
    if (a->null_count < -1 || a->null_count > a->length)
        return malformed(at, "expected a null count of -1 to the length", a->null_count);
    if (a->n_buffers != buffers || !a->buffers)
        return malformed(at, "another number of buffers than the type has", a->n_buffers);
    if (a->n_children != children || (children > 0 && !a->children))
        return malformed(at, "another number of children than the type has", a->n_children);
    return 0;
}

/* Refuses nulls among n elements that begin at `first`. each: elements of a row. */
static int null_check(const struct place *at, const struct ArrowArray *a, uint64_t first,
                      uint64_t n, uint64_t each)
{
    const uint8_t *valid = a->buffers[0];
    if (a->null_count == 0)
        return 0;
    if (!valid && a->null_count > 0)
        return malformed(at, "nulls without a validity buffer", a->null_count);
    for (uint64_t i = 0; valid && i < n; i++) {
        uint64_t bit = first + i;
        if (!(valid[bit / 8] >> (bit % 8) & 1))
            return mr_error_set(MR_EFORMAT,
                                "%s: column '%s', row %llu: null: expected a value; fill or drop "
                                "nulls first",
                                at->name, at->column, (unsigned long long)(at->row + i / each));
    }
    return 0;
}

int mr_arrow_chunk_check(const char *name, const struct ArrowArray *chunk, int columns,
                         uint64_t row)
{
    struct place at = {name, "(the table)", row};
    if (!chunk->release)
        return mr_error_set(MR_EMISUSE, "%s: rows from %llu: the chunk is released", name,
                            (unsigned long long)at.row);
    int rc = shape_check(&at, chunk, 1, columns);
    if (rc < 0)
        return rc;
    return null_check(&at, chunk, (uint64_t)chunk->offset, (uint64_t)chunk->length, 1);
}

int64_t mr_arrow_offset(const struct mr_arrow_part *p, enum mr_arrow_layout layout, uint64_t i)
{
    int32_t narrow;
    int64_t wide;
    if (layout == MR_ARROW_TEXT64) {
        memcpy(&wide, (const uint8_t *)p->offsets + i * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, (const uint8_t *)p->offsets + i * sizeof narrow, sizeof narrow);
    return narrow;
}

static int texts_check(const struct place *at, const struct ArrowArray *a, uint64_t n,
                       const struct mr_arrow_type *type, struct mr_spec *spec,
                       struct mr_arrow_part *p)
{
    p->offsets = a->buffers[1];
    p->values = a->buffers[2];
    if (n == 0)
        return 0;
    if (!p->offsets)
        return malformed(at, "no buffer of offsets; length", a->length);
    int64_t begin = mr_arrow_offset(p, type->layout, p->first), end;
    if (begin < 0)
        return malformed(at, "expected text offsets of 0 or more", begin);
    for (uint64_t i = 1; i <= n; i++, begin = end) {
        end = mr_arrow_offset(p, type->layout, p->first + i);
        if (end < begin)
            return malformed(at, "a text offset below the one before it", end);
        if (end > begin && !p->values)
            return malformed(at, "texts without a buffer of bytes; offset", end);
        spec->dim[0] = MR_MAX(spec->dim[0], (uint64_t)(end - begin));
    }
    return 0;
}

/* Enters an array at one level: checks its struct, and n elements of it from p->first on. each: of
 * them are a row. Then p->first counts from the begin of its buffers. */
static int enter(const struct place *at, const struct ArrowArray *a, uint64_t n, uint64_t each,
                 int64_t buffers, int64_t children, struct mr_arrow_part *p)
{
    int rc = shape_check(at, a, buffers, children);
    if (rc < 0)
        return rc;
    if (p->first > (uint64_t)a->length || n > (uint64_t)a->length - p->first)
        return malformed(at, "fewer elements than its parent needs; length", a->length);
    p->first += (uint64_t)a->offset;
    return null_check(at, a, p->first, n, each);
}

/* From n elements of an array to the `size` elements that each of them has. */
static int widen(const struct place *at, const struct ArrowArray *a, uint64_t size, uint64_t *n,
                 struct mr_arrow_part *p)
{
    uint64_t end;
    if (!mr_mul(p->first, size, &p->first) || !mr_mul(*n, size, n) || !mr_add(p->first, *n, &end) ||
        end > INT64_MAX / 16)
        return malformed(at, "more elements than fit an address space; length", a->length);
    return 0;
}

static int leaf_check(const struct place *at, const struct ArrowArray *a, uint64_t n, uint64_t each,
                      const struct mr_arrow_type *type, struct mr_spec *spec,
                      struct mr_arrow_part *p)
{
    bool text = type->layout == MR_ARROW_TEXT32 || type->layout == MR_ARROW_TEXT64;
    int rc = enter(at, a, n, each, text ? 3 : 2, 0, p);
    if (rc < 0)
        return rc;
    if (text)
        return texts_check(at, a, n, type, spec, p);
    p->values = a->buffers[1];
    if (n > 0 && !p->values)
        return malformed(at, "no buffer of values; length", a->length);
    return widen(at, a, type->leaf, &n, p);
}

int mr_arrow_part_read(const char *name, const struct ArrowArray *chunk, int column, uint64_t row,
                       const struct mr_arrow_type *type, struct mr_spec *spec,
                       struct mr_arrow_part *out)
{
    struct place at = {name, spec->name, row};
    const struct ArrowArray *a = chunk->children[column];
    struct mr_arrow_part p = {.first = (uint64_t)chunk->offset};
    uint64_t n = (uint64_t)chunk->length, each = 1;
    for (int d = 0; d <= type->depth; d++) {
        if (!a)
            return malformed(&at, "expected an array at each level; level", d);
        if (!a->release)
            return mr_error_set(MR_EMISUSE, "%s: column '%s', rows from %llu: released", name,
                                spec->name, (unsigned long long)row);
        if (a->dictionary)
            return malformed(&at, "a dictionary that the schema lacks; level", d);
        if (d == type->depth)
            break;
        int rc = enter(&at, a, n, each, 1, 1, &p);
        if (rc == 0)
            rc = widen(&at, a, spec->dim[d], &n, &p);
        if (rc < 0)
            return rc;
        each *= spec->dim[d];
        a = a->children[0];
    }
    int rc = leaf_check(&at, a, n, each, type, spec, &p);
    if (rc < 0)
        return rc;
    *out = p;
    return 0;
}
