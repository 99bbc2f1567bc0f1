/* Samples in their stored form, and pictures decoded one at a time: for copying data sets. */
#include "dataset/dataset.h"

#include <errno.h>
#include <string.h>

int mr_dataset_picture(const struct mr_dataset *ds)
{
    if (!ds)
        return -1;
    return ds->picture;
}

const char *mr_dataset_file(const struct mr_dataset *ds, uint64_t index)
{
    if (!ds)
        return NULL;
    struct mr_extent extent[MR_MAX_EXTENTS];
    if (index >= ds->n)
        return NULL;
    if (ds->ops->locate && ds->ops->locate(ds, index, extent) > 0)
        return mr_files_name(ds->files, extent[0].file);
    return ds->ops->file ? ds->ops->file(ds, index) : NULL;
}

const char *mr_dataset_source(const struct mr_dataset *ds, uint64_t k)
{
    if (!ds)
        return NULL;
    return ds->files && k < (uint64_t)mr_files_length(ds->files) ? mr_files_name(ds->files, (int)k)
                                                                 : NULL;
}

void mr_stored_free(struct mr_stored stored[MR_MAX_FIELDS])
{
    if (!stored)
        return;
    for (int f = 0; f < MR_MAX_FIELDS; f++) {
        free(stored[f].data);
        stored[f] = (struct mr_stored){0};
    }
}

/* Allocates buffers for the fields that are not pictures. */
static int make_rooms(const struct mr_dataset *ds, struct mr_stored out[], void *room[])
{
    for (int f = 0; f < ds->n_fields; f++) {
        uint64_t bytes = 0;
        int rc = f == ds->picture ? 0 : mr_spec_bytes(&ds->field[f], &bytes);
        if (rc < 0)
            return rc;
        out[f].data = f == ds->picture ? NULL : malloc(MR_MAX(bytes, 1));
        if (f != ds->picture && !out[f].data)
            return mr_error_nomem(ds->ops->name, bytes);
        room[f] = out[f].data;
    }
    return 0;
}

static int keep_field(const struct mr_dataset *ds, int f, const struct mr_sample *sample,
                      struct mr_stored *out)
{
    if (f == ds->picture) {
        out->bytes = sample->stored->n;
        out->data = malloc(MR_MAX(out->bytes, 1));
        if (!out->data)
            return mr_error_nomem(ds->ops->name, out->bytes);
        memcpy(out->data, sample->stored->data, out->bytes);
        return 0;
    }
    memcpy(out->dim, sample->field[f].dim, sizeof out->dim);
    out->bytes = mr_dtype_size(ds->field[f].dtype);
    for (int d = 0; d < ds->field[f].rank; d++)
        out->bytes *= out->dim[d];
    if (sample->field[f].data && sample->field[f].data != out->data && out->data && out->bytes > 0)
        memcpy(out->data, sample->field[f].data, out->bytes);
    return 0;
}

int mr_dataset_read_stored(const struct mr_dataset *ds, uint64_t index,
                           struct mr_stored out[MR_MAX_FIELDS])
{
    if (!ds || !out)
        return mr_error_null("mr_dataset_read_stored", "a data set and a place for the fields");
    struct mr_stored made[MR_MAX_FIELDS] = {{0}};
    void *room[MR_MAX_FIELDS] = {NULL}, *owned[MR_MAX_EXTENTS] = {NULL};
    struct mr_bytes picture = {NULL, 0};
    struct mr_sample sample;
    int rc = make_rooms(ds, made, room);
    if (rc < 0)
        goto free_made;
    mr_sample_init(ds, room, &sample);
    sample.stored = &picture;
    rc = ds->wants_decoder ? mr_decoder_create(&sample.decoder) : 0;
    if (rc < 0)
        goto free_made;
    rc = mr_sample_read(ds, index, &sample, owned);
    for (int f = 0; f < ds->n_fields && rc >= 0; f++)
        rc = keep_field(ds, f, &sample, &made[f]);
    mr_decoder_destroy(sample.decoder);
    for (int e = 0; e < MR_MAX_EXTENTS; e++)
        free(owned[e]);
    if (rc < 0)
        goto free_made;
    memcpy(out, made, sizeof made);
    return 0;
free_made:
    mr_stored_free(made);
    return rc;
}

/* Chooses the whole picture, scaled so that its shorter side has *user pixels. */
static int choose_all(void *user, uint32_t width, uint32_t height, struct mr_window *out)
{
    const uint64_t *shorter = user;
    uint64_t side = MR_MIN(width, height);
    double scale = *shorter < side ? (double)*shorter / (double)side : 1;
    *out = (struct mr_window){.w = width, .h = height, .clip_w = width, .clip_h = height};
    out->out_w = (uint32_t)(width * scale + 0.5);
    out->out_h = (uint32_t)(height * scale + 0.5);
    return 0;
}

int mr_picture_decode(const char *name, const void *bytes, uint64_t n,
                      const struct mr_picture_opts *opts, uint64_t shorter, void **pixels,
                      uint32_t *height, uint32_t *width)
{
    if (!name || !bytes || !opts || !pixels || !height || !width)
        return mr_error_null("mr_picture_decode", "a picture, options and places for the result");
    struct mr_dataset set = {0}; /* only carries the options */
    struct mr_decoder *decoder = NULL;
    struct mr_picture p;
    unsigned char *out;
    uint64_t row;
    if ((unsigned)opts->color > MR_PICTURE_RGBA || (unsigned)opts->alpha > MR_PICTURE_WHITE)
        return mr_error_set(
            MR_EOPTION,
            "%s: color %d, alpha %d: expected one of enum mr_picture_color and mr_picture_alpha",
            name, opts->color, opts->alpha);
    mr_picture_declare(&set, 0, opts);
    int rc = mr_decoder_create(&decoder);
    if (rc < 0)
        return rc;
    rc = mr_image_decode(decoder, &set.image, name, bytes, n, shorter ? choose_all : NULL, &shorter,
                         &p);
    if (rc < 0)
        goto destroy;
    row = (uint64_t)p.width * p.channels;
    out = malloc(row * p.height + 1);
    if (!out) {
        rc = mr_error_nomem(name, row * p.height);
        goto destroy;
    }
    for (uint32_t y = 0; y < p.height; y++)
        memcpy(out + y * row, p.data + y * p.stride, row);
    *pixels = out;
    *height = p.height;
    *width = p.width;
destroy:
    mr_decoder_destroy(decoder);
    return rc;
}
