/* Arrow tables in memory as data sets. */
#include "dataset/arrow/arrow.h"

#include <stdio.h>
#include <string.h>

#define HASHED_ROWS 16 /* at each end */

struct state {
    struct mr_arrow_fields fields;
    uint64_t n_chunks;
    uint64_t *end;              /* of each chunk: the row after its last */
    struct mr_arrow_part *part; /* n_chunks x n_fields */
    uint64_t *row;              /* of each sample; NULL: its number */
    struct ArrowArray *chunk;   /* moved here, like schema, once the set is open */
    struct ArrowSchema schema;
};

/* The parts of the chunk that a sample is in. [out] i: its row in there; row: in the table. */
static const struct mr_arrow_part *find(const struct state *st, uint64_t index, uint64_t *i,
                                        uint64_t *row)
{
    *row = st->row ? st->row[index] : index;
    uint64_t c = mr_arrow_chunk_of(st->end, st->n_chunks, *row);
    *i = *row - mr_arrow_begin_of(st->end, c);
    return &st->part[c * (uint64_t)st->fields.n];
}

static int get(const struct mr_dataset *ds, uint64_t index, struct mr_sample *out)
{
    const struct state *st = ds->state;
    uint64_t i, row;
    const struct mr_arrow_part *part = find(st, index, &i, &row);
    return mr_arrow_sample(ds, &st->fields, part, i, row, false, out);
}

#define AHEAD 8u /* rows: their addresses are needed before their bytes */

static void prefetch(const struct state *st, const struct mr_arrow_type *type, int f,
                     uint64_t index)
{
    uint64_t i, row;
    const struct mr_arrow_part *part = find(st, index, &i, &row);
    mr_arrow_prefetch(type, &part[f], i);
}

static void gather(const struct mr_dataset *ds, void *unused, int f, uint32_t n,
                   const uint64_t index[], unsigned char *to, uint64_t stride)
{
    const struct state *st = ds->state;
    const struct mr_arrow_type *type = &st->fields.type[f];
    uint64_t i, row;
    (void)unused;
    for (uint32_t k = 0; k < n; k++) {
        if (k + AHEAD < n)
            prefetch(st, type, f, index[k + AHEAD]);
        const struct mr_arrow_part *part = find(st, index[k], &i, &row);
        mr_arrow_copy(type, &part[f], i, to + k * stride);
    }
}

static void find_rows(const struct mr_dataset *ds, void *unused, int f, uint32_t n,
                      const uint64_t index[], const unsigned char *data[],
                      uint64_t (*dim)[MR_MAX_RANK])
{
    const struct state *st = ds->state;
    const struct mr_arrow_type *type = &st->fields.type[f];
    uint64_t i, row;
    (void)unused;
    for (uint32_t k = 0; k < n; k++) {
        if (k + AHEAD < n)
            prefetch(st, type, f, index[k + AHEAD]);
        const struct mr_arrow_part *part = find(st, index[k], &i, &row);
        struct mr_bytes value = mr_arrow_value(type, &part[f], i);
        __builtin_prefetch(value.data); /* for the copy into the batch */
        data[k] = value.data;
        dim[k][0] = value.n / type->width;
    }
}

static uint64_t hash_field(const struct mr_dataset *ds, int f, uint64_t hash)
{
    const struct state *st = ds->state;
    for (uint64_t index = 0, i, row; index < ds->n; index++) {
        if (index == HASHED_ROWS && ds->n > 2 * HASHED_ROWS)
            index = ds->n - HASHED_ROWS;
        const struct mr_arrow_part *part = find(st, index, &i, &row);
        hash = mr_arrow_hash(hash, &st->fields.type[f], &part[f], i);
    }
    return hash;
}

static int make_chunks(struct mr_dataset *ds, const struct mr_arrow_opts *o)
{
    struct state *st = ds->state;
    const char *name = st->fields.name;
    if (o->n_chunks == 0 || !o->chunk)
        return mr_error_set(MR_EMISUSE, "%s: no chunks: expected 1 or more", name);
    if (o->n_chunks > UINT32_MAX)
        return mr_error_set(MR_ELIMIT, "%s: %llu chunks: expected at most %u", name,
                            (unsigned long long)o->n_chunks, UINT32_MAX);
    st->n_chunks = o->n_chunks;
    st->end = calloc(o->n_chunks, sizeof *st->end);
    st->part = calloc(o->n_chunks * (uint64_t)ds->n_fields, sizeof *st->part);
    st->chunk = calloc(o->n_chunks, sizeof *st->chunk);
    if (!st->end || !st->part || !st->chunk)
        return mr_error_nomem(name, o->n_chunks * sizeof *st->chunk);
    return 0;
}

static int read_chunks(struct mr_dataset *ds, const struct mr_arrow_opts *o)
{
    struct state *st = ds->state;
    for (uint64_t c = 0; c < o->n_chunks; c++) {
        int rc = mr_arrow_chunk_read(&st->fields, ds->field, &o->chunk[c], ds->n, st->fields.range,
                                     &st->part[c * (uint64_t)ds->n_fields]);
        if (rc < 0)
            return rc;
        if (!mr_add(ds->n, (uint64_t)o->chunk[c].length, &ds->n) || ds->n > INT64_MAX)
            return mr_error_set(MR_ELIMIT, "%s: more rows than an address space holds",
                                st->fields.name);
        st->end[c] = ds->n;
    }
    if (ds->n == 0)
        return mr_error_set(MR_EFORMAT, "%s: the table has no rows: expected at least 1",
                            st->fields.name);
    return 0;
}

/* Sizes of texts and lists, now that all rows are known. */
static int set_sizes(struct mr_dataset *ds)
{
    const struct state *st = ds->state;
    for (int f = 0; f < ds->n_fields; f++) {
        const struct mr_arrow_type *type = &st->fields.type[f];
        const struct mr_arrow_range *range = &st->fields.range[f];
        if (ds->field[f].var_dims == 0 || type->picture)
            continue;
        ds->field[f].dim[0] = MR_MAX(range->most, 1);
        if (!type->list)
            continue;
        if (range->most == 0)
            return mr_error_set(MR_EFORMAT, "%s: column '%s': all lists are empty", st->fields.name,
                                ds->field[f].name);
        if (range->least == range->most)
            ds->field[f].var_dims = 0;
    }
    return 0;
}

static int choose_rows(struct mr_dataset *ds, const struct mr_arrow_opts *o)
{
    struct state *st = ds->state;
    if (!o->row)
        return 0;
    if (o->n_rows == 0 || o->n_rows > INT64_MAX / sizeof *st->row)
        return mr_error_set(MR_EMISUSE, "%s: %llu rows are chosen: expected 1 or more",
                            st->fields.name, (unsigned long long)o->n_rows);
    st->row = malloc(o->n_rows * sizeof *st->row);
    if (!st->row)
        return mr_error_nomem(st->fields.name, o->n_rows * sizeof *st->row);
    for (uint64_t i = 0; i < o->n_rows; i++) {
        if (o->row[i] >= ds->n)
            return mr_error_set(MR_EMISUSE, "%s: row[%llu]: %llu: the table has %llu rows",
                                st->fields.name, (unsigned long long)i,
                                (unsigned long long)o->row[i], (unsigned long long)ds->n);
        st->row[i] = o->row[i];
    }
    ds->n = o->n_rows;
    return 0;
}

static int open_arrow(struct mr_dataset *ds, const void *options)
{
    const struct mr_arrow_opts *o = options;
    struct state *st = ds->state;
    int rc;
    if ((rc = mr_arrow_fields_open(ds, o, &st->fields)) < 0)
        return rc;
    if ((rc = make_chunks(ds, o)) < 0)
        return rc;
    if ((rc = read_chunks(ds, o)) < 0)
        return rc;
    if ((rc = set_sizes(ds)) < 0)
        return rc;
    if ((rc = choose_rows(ds, o)) < 0)
        return rc;
    ds->lasting = true;
    const char *name = st->fields.name;
    if ((rc = mr_dataset_check(ds, name)) < 0)
        return rc;
    ds->fingerprint = mr_hash(ds->fingerprint, name, strlen(name) + 1);
    for (int f = 0; f < ds->n_fields; f++)
        ds->fingerprint = hash_field(ds, f, ds->fingerprint);
    snprintf(ds->text, sizeof ds->text, "arrow: %.60s: %llu rows, %d columns", name,
             (unsigned long long)ds->n, ds->n_fields);
    return 0;
}

static uint64_t memory(const struct mr_dataset *ds, uint32_t workers)
{
    const struct state *st = ds->state;
    uint64_t each = sizeof *st->end + sizeof *st->chunk + (uint64_t)st->fields.n * sizeof *st->part;
    (void)workers;
    return st->n_chunks * each + (st->row ? ds->n * sizeof *st->row : 0);
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
    free(st->row);
    free(st->part);
    free(st->end);
    mr_arrow_fields_close(&st->fields);
}

const struct mr_dataset_ops mr_dataset_arrow = {
    .name = "arrow",
    .summary = "an Arrow table in memory",
    .opts_size = sizeof(struct mr_arrow_opts),
    .state_size = sizeof(struct state),
    .open = open_arrow,
    .close = close_arrow,
    .get = get,
    .gather = gather,
    .find = find_rows,
    .memory = memory,
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
