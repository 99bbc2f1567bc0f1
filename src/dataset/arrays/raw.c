/* Fixed-size records, one after the other in one file. */
#include "dataset/dataset.h"

#include <stdio.h>
#include <string.h>

struct state {
    struct mr_records records;
};

static int check(const struct mr_raw_opts *o)
{
    if (!o->path || !o->path[0])
        return mr_error_set(MR_EOPTION, "raw: no path: expected raw:FILE,shape=3x32x32,dtype=u8");
    if (o->shape.rank == 0)
        return mr_error_set(MR_EOPTION,
                            "%s: raw: no shape: expected shape=3x32x32, say, or shape=1", o->path);
    if (mr_dtype_size(o->dtype) == 0)
        return mr_error_set(MR_EOPTION, "%s: raw: dtype: %d is not a dtype", o->path, o->dtype);
    return mr_shape_check(&o->shape, o->path);
}

static int count(struct mr_dataset *ds, const struct mr_raw_opts *o, uint64_t size)
{
    struct mr_records *r = &((struct state *)ds->state)->records;
    if (size < o->skip_bytes)
        return mr_error_set(MR_ETRUNCATED, "%s: truncated: skip=%llu bytes, file has %llu", o->path,
                            (unsigned long long)o->skip_bytes, (unsigned long long)size);
    uint64_t body = size - o->skip_bytes, n = body / r->stride, rest = body % r->stride;
    if (rest)
        return mr_error_set(
            MR_ETRUNCATED,
            "%s: %llu records of %llu bytes and %llu bytes left over: file has %llu bytes, of "
            "which %llu are skipped",
            o->path, (unsigned long long)n, (unsigned long long)r->stride, (unsigned long long)rest,
            (unsigned long long)size, (unsigned long long)o->skip_bytes);
    if (n == 0)
        return mr_error_set(
            MR_ETRUNCATED,
            "%s: no records: expected at least one of %llu bytes, file has %llu bytes", o->path,
            (unsigned long long)r->stride, (unsigned long long)size);
    ds->n = n;
    return 0;
}

static int open_raw(struct mr_dataset *ds, const void *options)
{
    const struct mr_raw_opts *o = options;
    struct mr_records *r = &((struct state *)ds->state)->records;
    int rc = check(o);
    if (rc < 0)
        return rc;
    struct mr_spec *spec = &ds->field[0];
    spec->dtype = o->dtype;
    spec->rank = o->shape.rank;
    memcpy(spec->dim, o->shape.dim, sizeof spec->dim);
    mr_field_name(spec);
    ds->n_fields = 1;
    ds->n = 1; /* a placeholder, since the check requires n > 0; the file's size decides */
    rc = mr_dataset_check(ds, o->path);
    if (rc < 0)
        return rc;
    rc = mr_spec_bytes(spec, &r->bytes);
    if (rc < 0)
        return rc;
    if (o->record_bytes && o->record_bytes < r->bytes)
        return mr_error_set(
            MR_EOPTION, "%s: raw: record=%llu: expected at least the %llu bytes of its tensor",
            o->path, (unsigned long long)o->record_bytes, (unsigned long long)r->bytes);
    r->stride = o->record_bytes ? o->record_bytes : r->bytes;
    r->offset = o->skip_bytes;
    r->file = mr_files_add_path(ds->files, o->path);
    if (r->file < 0)
        return r->file;
    uint64_t layout[] = {mr_files_bytes(ds->files, r->file), r->offset, r->stride};
    ds->fingerprint = mr_hash(ds->fingerprint, layout, sizeof layout);
    char text[96];
    snprintf(ds->text, sizeof ds->text, "raw: %.50s, records of %s", mr_base_name(o->path),
             mr_spec_format(spec, text, sizeof text));
    return count(ds, o, layout[0]);
}

static int locate(const struct mr_dataset *ds, uint64_t index, struct mr_extent out[MR_MAX_EXTENTS])
{
    return mr_records_locate(&((const struct state *)ds->state)->records, 1, index, out);
}

#define AT(member) offsetof(struct mr_raw_opts, member)
static const struct mr_option options_table[] = {
    {"path", 0, MR_OPT_STRING, AT(path), .meta = "FILE", .help = "The file"},
    {"shape", 0, MR_OPT_SHAPE, AT(shape), .help = "Shape of a sample; required"},
    {"dtype", 0, MR_OPT_DTYPE, AT(dtype), .initial = "u8",
     .help = "Element type, in this machine's byte order"},
    {"skip", 0, MR_OPT_BYTES, AT(skip_bytes), .help = "Bytes before the first record"},
    {"record", 0, MR_OPT_BYTES, AT(record_bytes),
     .help = "Bytes from one record to the next; 0: the size of the tensor"},
    {NULL},
};

static const char *const positional[] = {"path", NULL};

const struct mr_dataset_ops mr_dataset_raw = {
    .name = "raw",
    .isolates = true,
    .summary = "records of fixed size in one file",
    .options = options_table,
    .positional = positional,
    .opts_size = sizeof(struct mr_raw_opts),
    .state_size = sizeof(struct state),
    .open = open_raw,
    .locate = locate,
};

void mr_raw_opts_fill(struct mr_raw_opts *opts, size_t size)
{
    mr_dataset_opts_fill(&mr_dataset_raw, opts, size);
}

int mr_dataset_open_raw(const struct mr_raw_opts *opts, struct mr_dataset **out)
{
    return mr_dataset_make(&mr_dataset_raw, opts, out);
}
