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

static int alive_check(const struct place *at, const struct ArrowArray *a, int level)
{
    if (!a)
        return malformed(at, "expected an array at each level; level", level);
    if (!a->release)
        return mr_error_set(MR_EMISUSE, "%s: column '%s', rows from %llu: released", at->name,
                            at->column, (unsigned long long)at->row);
    return 0;
}

static int chunk_check(const struct place *at, const struct ArrowArray *chunk, int64_t columns)
{
    if (!chunk->release)
        return mr_error_set(MR_EMISUSE, "%s: rows from %llu: the chunk is released", at->name,
                            (unsigned long long)at->row);
    int rc = shape_check(at, chunk, 1, columns);
    if (rc < 0)
        return rc;
    return null_check(at, chunk, (uint64_t)chunk->offset, (uint64_t)chunk->length, 1);
}

static void widen_range(struct mr_arrow_range *range, uint64_t n)
{
    range->least = MR_MIN(range->least, n);
    range->most = MR_MAX(range->most, n);
}

/* Checks the offsets of n texts or lists from p->first on. [out] end: of the last one. */
static int runs_check(const struct place *at, const struct ArrowArray *a, uint64_t n,
                      enum mr_arrow_layout layout, struct mr_arrow_range *range,
                      struct mr_arrow_part *p, int64_t *end)
{
    *end = 0;
    if (n == 0)
        return 0;
    if (!p->offsets)
        return malformed(at, "no buffer of offsets; length", a->length);
    int64_t begin = mr_arrow_offset(p, layout, p->first);
    if (begin < 0)
        return malformed(at, "expected offsets of 0 or more", begin);
    for (uint64_t i = 1; i <= n; i++, begin = *end) {
        *end = mr_arrow_offset(p, layout, p->first + i);
        if (*end < begin)
            return malformed(at, "an offset below the one before it", *end);
        widen_range(range, (uint64_t)(*end - begin));
    }
    return 0;
}

static int texts_check(const struct place *at, const struct ArrowArray *a, uint64_t n,
                       const struct mr_arrow_type *type, struct mr_arrow_range *range,
                       struct mr_arrow_part *p)
{
    int64_t end;
    p->offsets = a->buffers[1];
    p->values = a->buffers[2];
    int rc = runs_check(at, a, n, type->layout, range, p, &end);
    if (rc < 0)
        return rc;
    if (end > 0 && !p->values)
        return malformed(at, "texts without a buffer of bytes; offset", end);
    return 0;
}

/* Views of texts: short ones are in the view, others in a buffer whose size is known. */
static int views_check(const struct place *at, const struct ArrowArray *a, uint64_t n,
                       struct mr_arrow_range *range, struct mr_arrow_part *p)
{
    int64_t pieces = a->n_buffers - 3, size = 0;
    const int64_t *sizes = a->buffers[a->n_buffers - 1];
    p->values = a->buffers[1];
    p->pieces = a->buffers + 2;
    if (n > 0 && !p->values)
        return malformed(at, "no buffer of views; length", a->length);
    for (uint64_t i = 0; i < n; i++) {
        int32_t view[4];
        memcpy(view, p->values + (p->first + i) * sizeof view, sizeof view);
        if (view[0] < 0)
            return malformed(at, "expected a view's length of 0 or more", view[0]);
        widen_range(range, (uint64_t)view[0]);
        if (view[0] <= 12)
            continue;
        if (view[2] < 0 || view[2] >= pieces || !sizes || !p->pieces[view[2]])
            return malformed(at, "a view of a buffer that is not there; number", view[2]);
        memcpy(&size, sizes + view[2], sizeof size);
        if (view[3] < 0 || view[3] > size || view[0] > size - view[3])
            return malformed(at, "a view beyond its buffer; offset", view[3]);
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
                      const struct mr_arrow_type *type, struct mr_arrow_range *range,
                      struct mr_arrow_part *p)
{
    bool views = type->layout == MR_ARROW_VIEW;
    bool texts = type->layout == MR_ARROW_RUN32 || type->layout == MR_ARROW_RUN64;
    if (views && a->n_buffers < 3)
        return malformed(at, "expected 3 buffers or more: found", a->n_buffers);
    int rc = enter(at, a, n, each, views ? a->n_buffers : texts ? 3 : 2, 0, p);
    if (rc < 0)
        return rc;
    if (views)
        return views_check(at, a, n, range, p);
    if (texts)
        return texts_check(at, a, n, type, range, p);
    p->values = a->buffers[1];
    if (n > 0 && !p->values)
        return malformed(at, "no buffer of values; length", a->length);
    return widen(at, a, type->leaf, &n, p);
}

/* Lists of numbers. */
static int list_check(const struct place *at, const struct ArrowArray *a, uint64_t n,
                      const struct mr_arrow_type *type, struct mr_arrow_range *range,
                      struct mr_arrow_part *p)
{
    int64_t end;
    int rc = enter(at, a, n, 1, 2, 1, p);
    if (rc < 0)
        return rc;
    p->offsets = a->buffers[1];
    rc = runs_check(at, a, n, type->layout, range, p, &end);
    if (rc < 0)
        return rc;
    const struct ArrowArray *items = a->children[0];
    if ((rc = alive_check(at, items, 1)) < 0)
        return rc;
    if ((rc = shape_check(at, items, 2, 0)) < 0)
        return rc;
    if (items->dictionary)
        return malformed(at, "a dictionary that the schema lacks; level", 1);
    if (end > items->length)
        return malformed(at, "lists end beyond their values: found", end);
    if (end == 0)
        return 0;
    if (!items->buffers[1])
        return malformed(at, "no buffer of values; length", items->length);
    uint64_t begin = (uint64_t)mr_arrow_offset(p, type->layout, p->first);
    p->values = (const uint8_t *)items->buffers[1] + (uint64_t)items->offset * type->width;
    /* "each" is all of them: which row has the null is not looked for */
    return null_check(at, items, (uint64_t)items->offset + begin, (uint64_t)end - begin,
                      (uint64_t)end);
}

/* A dictionary: its values, and that each row's index is one of them. */
static int dictionary_check(const struct place *at, const struct ArrowArray *a, uint64_t n,
                            const struct mr_arrow_type *type, struct mr_arrow_range *range,
                            struct mr_arrow_part *p)
{
    int rc = enter(at, a, n, 1, 2, 0, p);
    if (rc < 0)
        return rc;
    p->keys = a->buffers[1];
    p->first_key = p->first;
    p->first = 0;
    if (n > 0 && !p->keys)
        return malformed(at, "no buffer of indices; length", a->length);
    const struct ArrowArray *values = a->dictionary;
    if ((rc = alive_check(at, values, 1)) < 0)
        return rc;
    if (values->dictionary || values->length < 0)
        return malformed(at, "a dictionary of a dictionary, or of a negative length",
                         values->length);
    rc = leaf_check(at, values, (uint64_t)values->length, MR_MAX((uint64_t)values->length, 1), type,
                    range, p);
    if (rc < 0)
        return rc;
    for (uint64_t i = 0; i < n; i++) {
        int64_t key = mr_arrow_key(p->keys, type->key, p->first_key + i);
        if (key < 0 || key >= values->length)
            return malformed(at, "an index beyond its dictionary", key);
    }
    return 0;
}

/* The array of a member of a struct column. */
static int member_check(const struct place *at, const struct ArrowArray **a, uint64_t n,
                        const struct mr_arrow_type *type, struct mr_arrow_part *p)
{
    int rc = alive_check(at, *a, 0);
    if (rc < 0)
        return rc;
    rc = enter(at, *a, n, 1, 1, type->n_members, p);
    if (rc < 0)
        return rc;
    *a = (*a)->children[type->member];
    return 0;
}

static int part_read(const struct place *at, const struct ArrowArray *chunk,
                     const struct mr_arrow_type *type, const struct mr_spec *spec,
                     struct mr_arrow_range *range, struct mr_arrow_part *out)
{
    const struct ArrowArray *a = chunk->children[type->column];
    struct mr_arrow_part p = {.first = (uint64_t)chunk->offset};
    uint64_t n = (uint64_t)chunk->length, each = 1;
    int rc = type->member >= 0 ? member_check(at, &a, n, type, &p) : 0;
    if (rc < 0)
        return rc;
    for (int d = 0; d <= type->depth; d++) {
        if ((rc = alive_check(at, a, d)) < 0)
            return rc;
        if (a->dictionary && !type->key)
            return malformed(at, "a dictionary that the schema lacks; level", d);
        if (d == type->depth)
            break;
        if ((rc = enter(at, a, n, each, 1, 1, &p)) < 0)
            return rc;
        if ((rc = widen(at, a, spec->dim[d], &n, &p)) < 0)
            return rc;
        each *= spec->dim[d];
        a = a->children[0];
    }
    rc = type->key    ? dictionary_check(at, a, n, type, range, &p)
         : type->list ? list_check(at, a, n, type, range, &p)
                      : leaf_check(at, a, n, each, type, range, &p);
    if (rc < 0)
        return rc;
    *out = p;
    return 0;
}

int mr_arrow_chunk_read(const struct mr_arrow_fields *fields, const struct mr_spec field[],
                        const struct ArrowArray *chunk, uint64_t row, struct mr_arrow_range range[],
                        struct mr_arrow_part part[])
{
    struct place at = {fields->name, "(the table)", row};
    int rc = chunk_check(&at, chunk, fields->n_columns);
    for (int f = 0; rc == 0 && f < fields->n; f++) {
        at.column = field[f].name;
        rc = part_read(&at, chunk, &fields->type[f], &field[f], &range[f], &part[f]);
    }
    return rc;
}
