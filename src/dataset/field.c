/* One field of a sample, without what only the others need. */
#include "dataset/dataset.h"

#include <millrace/system.h>
#include <string.h>

/* Reads the field from its own extent, if its bytes are stored in final form. Returns 1, 0 if they
 * are not, or an error. */
static int from_extent(const struct mr_dataset *ds, uint64_t index, int f, struct mr_sample *sample,
                       void **owned)
{
    struct mr_extent extent[MR_MAX_EXTENTS];
    struct mr_bytes bytes;
    if (!ds->ops->locate)
        return 0;
    int n = ds->ops->locate(ds, index, extent);
    for (int e = 0; e < n; e++) {
        if (extent[e].field != f || extent[e].bytes == MR_WHOLE)
            continue;
        int rc = mr_extent_fetch(ds, &extent[e], &bytes, owned);
        if (rc < 0)
            return rc;
        sample->field[f].data = bytes.data ? bytes.data : sample->field[f].data;
        return 1;
    }
    return MR_MIN(n, 0);
}

/* The others' rows are thrown away. A picture needs none: it is in the decoder. */
static int from_sample(const struct mr_dataset *ds, uint64_t index, int f, struct mr_sample *sample,
                       void *owned[MR_MAX_EXTENTS])
{
    void *row[MR_MAX_FIELDS] = {NULL};
    int rc = 0;
    for (int g = 0; g < ds->n_fields && rc == 0; g++) {
        uint64_t bytes = 0;
        if (g == f || g == ds->picture)
            continue;
        rc = mr_spec_bytes(&ds->field[g], &bytes);
        row[g] = rc == 0 ? malloc(MR_MAX(bytes, 1)) : NULL;
        if (rc == 0 && !row[g])
            rc = mr_error_nomem(ds->ops->name, bytes);
        sample->field[g].data = sample->field[g].room = row[g];
    }
    if (rc == 0)
        rc = mr_sample_read(ds, index, sample, owned);
    for (int g = 0; g < ds->n_fields; g++)
        free(row[g]);
    return rc;
}

static void copy_out(const struct mr_spec *spec, const void *from, const uint64_t *from_dim,
                     void *row, uint64_t *dim)
{
    uint64_t bytes = mr_dtype_size(spec->dtype);
    for (int d = 0; d < spec->rank; d++)
        bytes *= from_dim[d];
    if (from && from != row && bytes > 0)
        memcpy(row, from, bytes);
    if (dim)
        memcpy(dim, from_dim, MR_MAX_RANK * sizeof *dim);
}

static int read_field(const struct mr_dataset *ds, uint64_t index, int field,
                      struct mr_sample *sample, void *owned[MR_MAX_EXTENTS])
{
    int rc = mr_interrupt_check(ds->text);
    if (rc < 0)
        return rc;
    if (field == ds->picture || ds->wants_decoder)
        rc = mr_decoder_create(&sample->decoder);
    if (rc < 0)
        return rc;
    rc = ds->ops->get_field ? ds->ops->get_field(ds, index, field, sample, owned) : 0;
    if (rc == 0)
        rc = from_extent(ds, index, field, sample, owned);
    if (rc != 0)
        return rc;
    if (mr_dataset_decodes(ds) && !sample->decoder)
        rc = mr_decoder_create(&sample->decoder);
    return rc < 0 ? rc : from_sample(ds, index, field, sample, owned);
}

int mr_dataset_read_field(const struct mr_dataset *ds, uint64_t index, int field, void *row,
                          uint64_t dim[MR_MAX_RANK])
{
    struct mr_sample sample;
    void *owned[MR_MAX_EXTENTS] = {NULL}, *rows[MR_MAX_FIELDS] = {NULL};
    if (!ds)
        return mr_error_null("mr_dataset_read_field", "a data set");
    if (field < 0 || field >= ds->n_fields || !row)
        return mr_error_set(MR_EMISUSE, "%s: field %d: expected 0..%d, and a row", ds->text, field,
                            ds->n_fields - 1);
    if (index >= ds->n)
        return mr_error_set(MR_EMISUSE, "%s: sample %llu: expected 0..%llu", ds->text,
                            (unsigned long long)index, (unsigned long long)ds->n - 1);
    rows[field] = row;
    mr_sample_init(ds, rows, &sample);
    mr_interruptible(1);
    int rc = read_field(ds, index, field, &sample, owned);
    mr_interruptible(0);
    if (rc >= 0)
        copy_out(&ds->field[field], sample.field[field].data, sample.field[field].dim, row, dim);
    for (int e = 0; e < MR_MAX_EXTENTS; e++)
        free(owned[e]);
    mr_decoder_destroy(sample.decoder);
    return MR_MIN(rc, 0);
}
