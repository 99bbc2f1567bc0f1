/* Arrow tables in memory as data sets. */
#include "dataset/arrow/arrow.h"

#include <stdio.h>
#include <string.h>

#define HASHED_ROWS 16 /* at each end */

struct state {
    char *name;
    struct mr_arrow_type type[MR_MAX_FIELDS];
    uint64_t n_chunks;
    uint64_t *end;              /* of each chunk: the row after its last */
    struct mr_arrow_part *part; /* n_chunks x n_fields */
    struct ArrowArray *chunk;   /* moved here, like schema, once the set is open */
    struct ArrowSchema schema;
};

static void bits_read(const uint8_t *bits, uint64_t first, uint64_t n, uint8_t *out)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] = bits[(first + i) / 8] >> ((first + i) % 8) & 1;
}

/* Copies row i of a part. [out] length: of a text. */
static void value_read(const struct mr_arrow_type *type, const struct mr_arrow_part *p, uint64_t i,
                       void *out, uint64_t *length)
{
    uint64_t first = p->first + i * type->count;
    if (type->layout == MR_ARROW_BITS) {
        bits_read(p->values, first, type->count, out);
        return;
    }
    if (type->layout == MR_ARROW_PLAIN) {
        memcpy(out, p->values + first * type->width, type->count * type->width);
        return;
    }
    int64_t begin = mr_arrow_offset(p, type->layout, first);
    *length = (uint64_t)(mr_arrow_offset(p, type->layout, first + 1) - begin);
    if (*length > 0)
        memcpy(out, p->values + begin, *length);
}

/* The chunk of a row: the first that ends behind it. */
static uint64_t chunk_of(const struct state *st, uint64_t row)
{
    uint64_t low = 0, high = st->n_chunks - 1;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (st->end[middle] > row)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static int get(const struct mr_dataset *ds, uint64_t index, struct mr_sample *out)
{
    const struct state *st = ds->state;
    uint64_t c = chunk_of(st, index), i = index - (c > 0 ? st->end[c - 1] : 0);
    const struct mr_arrow_part *part = &st->part[c * (uint64_t)ds->n_fields];
    for (int f = 0; f < ds->n_fields; f++)
        value_read(&st->type[f], &part[f], i, out->field[f].room, &out->field[f].dim[0]);
    return 0;
}

static int hash_field(struct mr_dataset *ds, int f)
{
    const struct state *st = ds->state;
    uint64_t bytes;
    int rc = mr_spec_bytes(&ds->field[f], &bytes);
    if (rc < 0)
        return rc;
    void *value = malloc(MR_MAX(bytes, 1));
    if (!value)
        return mr_error_nomem(st->name, bytes);
    for (uint64_t row = 0; row < ds->n; row++) {
        if (row == HASHED_ROWS && ds->n > 2 * HASHED_ROWS)
            row = ds->n - HASHED_ROWS;
        uint64_t c = chunk_of(st, row), length = bytes;
        value_read(&st->type[f], &st->part[c * (uint64_t)ds->n_fields + (uint64_t)f],
                   row - (c > 0 ? st->end[c - 1] : 0), value, &length);
        ds->fingerprint = mr_hash(ds->fingerprint, &length, sizeof length);
        ds->fingerprint = mr_hash(ds->fingerprint, value, length);
    }
    free(value);
    return 0;
}

static int read_schema(struct mr_dataset *ds, const struct ArrowSchema *schema)
{
    struct state *st = ds->state;
    if (!schema || !schema->release)
        return mr_error_set(MR_EMISUSE, "%s: the schema is NULL or released", st->name);
    if (!schema->format || strcmp(schema->format, "+s") != 0)
        return mr_error_set(MR_EUNSUPPORTED,
                            "%s: Arrow format \"%.20s\": expected a table, a struct \"+s\"",
                            st->name, schema->format ? schema->format : "");
    if (schema->n_children < 1 || schema->n_children > MR_MAX_FIELDS || !schema->children)
        return mr_error_set(MR_ELIMIT, "%s: %lld columns: expected 1 to %d", st->name,
                            (long long)schema->n_children, MR_MAX_FIELDS);
    ds->n_fields = (int)schema->n_children;
    for (int f = 0; f < ds->n_fields; f++) {
        int rc = mr_arrow_type_read(st->name, schema->children[f], &st->type[f], &ds->field[f]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int read_chunk(struct mr_dataset *ds, const struct ArrowArray *chunk, uint64_t c)
{
    struct state *st = ds->state;
    int rc = mr_arrow_chunk_check(st->name, chunk, ds->n_fields, ds->n);
    if (rc < 0)
        return rc;
    for (int f = 0; f < ds->n_fields; f++) {
        rc = mr_arrow_part_read(st->name, chunk, f, ds->n, &st->type[f], &ds->field[f],
                                &st->part[c * (uint64_t)ds->n_fields + (uint64_t)f]);
        if (rc < 0)
            return rc;
    }
    if (!mr_add(ds->n, (uint64_t)chunk->length, &ds->n) || ds->n > INT64_MAX)
        return mr_error_set(MR_ELIMIT, "%s: more rows than an address space holds", st->name);
    st->end[c] = ds->n;
    return 0;
}

static int make_chunks(struct mr_dataset *ds, const struct mr_arrow_opts *o)
{
    struct state *st = ds->state;
    if (o->n_chunks == 0 || !o->chunk)
        return mr_error_set(MR_EMISUSE, "%s: no chunks: expected 1 or more", st->name);
    if (o->n_chunks > UINT32_MAX)
        return mr_error_set(MR_ELIMIT, "%s: %llu chunks: expected at most %u", st->name,
                            (unsigned long long)o->n_chunks, UINT32_MAX);
    st->n_chunks = o->n_chunks;
    st->end = calloc(o->n_chunks, sizeof *st->end);
    st->part = calloc(o->n_chunks * (uint64_t)ds->n_fields, sizeof *st->part);
    st->chunk = calloc(o->n_chunks, sizeof *st->chunk);
    if (!st->end || !st->part || !st->chunk)
        return mr_error_nomem(st->name, o->n_chunks * sizeof *st->chunk);
    return 0;
}

static int open_arrow(struct mr_dataset *ds, const void *options)
{
    const struct mr_arrow_opts *o = options;
    struct state *st = ds->state;
    const char *name = o->name && o->name[0] ? o->name : "arrow";
    int rc;
    st->name = strdup(name);
    if (!st->name)
        return mr_error_nomem(name, strlen(name) + 1);
    if ((rc = read_schema(ds, o->schema)) < 0)
        return rc;
    if ((rc = make_chunks(ds, o)) < 0)
        return rc;
    for (uint64_t c = 0; c < o->n_chunks; c++) {
        if ((rc = read_chunk(ds, &o->chunk[c], c)) < 0)
            return rc;
    }
    if (ds->n == 0)
        return mr_error_set(MR_EFORMAT, "%s: the table has no rows: expected at least 1", name);
    if ((rc = mr_dataset_check(ds, name)) < 0)
        return rc;
    ds->fingerprint = mr_hash(ds->fingerprint, name, strlen(name) + 1);
    for (int f = 0; f < ds->n_fields; f++) {
        if ((rc = hash_field(ds, f)) < 0)
            return rc;
    }
    snprintf(ds->text, sizeof ds->text, "arrow: %.60s: %llu rows, %d columns", name,
             (unsigned long long)ds->n, ds->n_fields);
    return 0;
}

static void close_arrow(struct mr_dataset *ds)
{
    struct state *st = ds->state;
    if (st->schema.release) { /* all of them were moved */
        for (uint64_t c = 0; c < st->n_chunks; c++)
            st->chunk[c].release(&st->chunk[c]);
        st->schema.release(&st->schema);
    }
    free(st->chunk);
    free(st->part);
    free(st->end);
    free(st->name);
}

const struct mr_dataset_ops mr_dataset_arrow = {
    .name = "arrow",
    .summary = "an Arrow table in memory",
    .opts_size = sizeof(struct mr_arrow_opts),
    .state_size = sizeof(struct state),
    .open = open_arrow,
    .close = close_arrow,
    .get = get,
};

void mr_arrow_opts_fill(struct mr_arrow_opts *opts, size_t size)
{
    mr_dataset_opts_fill(&mr_dataset_arrow, opts, size);
}

int mr_dataset_open_arrow(const struct mr_arrow_opts *opts, struct mr_dataset **out)
{
    int rc = mr_dataset_make(&mr_dataset_arrow, opts, out);
    if (rc < 0)
        return rc;
    struct state *st = (*out)->state;
    st->schema = *opts->schema;
    opts->schema->release = NULL;
    for (uint64_t c = 0; c < st->n_chunks; c++) {
        st->chunk[c] = opts->chunk[c];
        opts->chunk[c].release = NULL;
    }
    return 0;
}
