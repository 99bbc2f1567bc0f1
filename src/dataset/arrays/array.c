/* Arrays in the caller's memory. */
#include "dataset/dataset.h"

#include <stdio.h>
#include <string.h>

#define HASHED_BYTES 4096 /* bytes at each end of an array */

struct state {
    struct mr_records field[MR_MAX_FIELDS];
};

static int add_field(struct mr_dataset *ds, const struct mr_array_opts *opts, int f)
{
    struct mr_records *r = &((struct state *)ds->state)->field[f];
    const struct mr_spec *spec = &opts->field[f];
    const char *data = opts->data[f];
    uint64_t total;
    if (spec->var_dims)
        return mr_error_set(
            MR_EMISUSE, "array: field '%s': variable dimensions: expected fixed ones", spec->name);
    if (!data)
        return mr_error_set(MR_EMISUSE, "array: field '%s': no data", spec->name);
    int rc = mr_spec_bytes(spec, &r->bytes);
    if (rc < 0)
        return rc;
    if (!mr_mul(r->bytes, ds->n, &total) || total > INT64_MAX)
        return mr_error_set(
            MR_ELIMIT, "array: field '%s': %llu tensors of %llu bytes do not fit an address space",
            spec->name, (unsigned long long)ds->n, (unsigned long long)r->bytes);
    r->stride = r->bytes;
    r->file = mr_files_add_memory(ds->files, spec->name, (void *)data, total, false);
    if (r->file < 0)
        return r->file;
    uint64_t part = MR_MIN(total, HASHED_BYTES);
    ds->fingerprint = mr_hash(ds->fingerprint, data, part);
    ds->fingerprint = mr_hash(ds->fingerprint, data + (total - part), part);
    return 0;
}

static int open_array(struct mr_dataset *ds, const void *options)
{
    const struct mr_array_opts *opts = options;
    ds->n = opts->n;
    ds->n_fields = opts->n_fields;
    ds->records = ((const struct state *)ds->state)->field;
    memcpy(ds->field, opts->field, sizeof ds->field);
    int rc = mr_dataset_check(ds, "array");
    for (int f = 0; rc >= 0 && f < opts->n_fields; f++)
        rc = add_field(ds, opts, f);
    if (rc < 0)
        return rc;
    char first[96];
    snprintf(ds->text, sizeof ds->text, "array: %llu sample%s of %s%s", (unsigned long long)ds->n,
             ds->n == 1 ? "" : "s", mr_spec_format(&ds->field[0], first, sizeof first),
             ds->n_fields > 1 ? " and more" : "");
    return 0;
}

static int locate(const struct mr_dataset *ds, uint64_t index, struct mr_extent out[MR_MAX_EXTENTS])
{
    return mr_records_locate(((const struct state *)ds->state)->field, ds->n_fields, index, out);
}

const struct mr_dataset_ops mr_dataset_array = {
    .name = "array",
    .summary = "arrays in memory",
    .opts_size = sizeof(struct mr_array_opts),
    .state_size = sizeof(struct state),
    .open = open_array,
    .locate = locate,
};

void mr_array_opts_fill(struct mr_array_opts *opts, size_t size)
{
    mr_dataset_opts_fill(&mr_dataset_array, opts, size);
}

int mr_dataset_open_array(const struct mr_array_opts *opts, struct mr_dataset **out)
{
    return mr_dataset_make(&mr_dataset_array, opts, out);
}
