/* Shared by data sets with pictures: spec, options, and decoding of the region that the transform
 * chain needs. */
#include "dataset/dataset.h"

#include <string.h>

/* height and width of the spec while the pictures' sizes are unknown */
#define GUESS        16384

/* Upper bound of file bytes per pixel: 16-bit RGBA that does not compress; files have at most this
 * and some metadata. */
#define PIXEL_BYTES  8
#define BESIDE_BYTES (64ull << 20)

const char *const mr_picture_colors[] = {"rgb", "gray", "rgba", NULL};
const char *const mr_picture_alphas[] = {"drop", "black", "white", NULL};

void mr_picture_declare(struct mr_dataset *ds, int f, const struct mr_picture_opts *opts)
{
    static const int channels[] = {
        [MR_PICTURE_RGB] = 3, [MR_PICTURE_GRAY] = 1, [MR_PICTURE_RGBA] = 4};
    struct mr_spec *spec = &ds->field[f];
    ds->picture = f;
    ds->picture_bounded = opts->max_height > 0 && opts->max_width > 0;
    ds->image = (struct mr_image_opts){.channels = channels[opts->color],
                                       .alpha = opts->alpha,
                                       .ignore_orientation = opts->ignore_orientation,
                                       .exact = opts->exact,
                                       .max_pixels = opts->max_pixels};
    uint64_t pixels = opts->max_pixels ? opts->max_pixels : MR_IMAGE_PIXELS;
    if (ds->files) /* a single picture in memory has no file table */
        mr_files_limit_whole(ds->files,
                             MR_MIN(pixels, MR_WHOLE_LIMIT) * PIXEL_BYTES + BESIDE_BYTES);
    spec->dtype = MR_U8;
    spec->rank = 3;
    spec->var_dims = 1 << 0 | 1 << 1;
    spec->dim[0] = opts->max_height ? opts->max_height : GUESS;
    spec->dim[1] = opts->max_width ? opts->max_width : GUESS;
    spec->dim[2] = (uint64_t)ds->image.channels;
}

int mr_sample_decode(const struct mr_dataset *ds, const char *name, const struct mr_bytes *in,
                     struct mr_sample *out)
{
    int f = ds->picture;
    struct mr_picture *p = &out->picture;
    if (out->stored) {
        *out->stored = *in;
        return 0;
    }
    int rc = mr_image_decode(out->decoder, &ds->image, name, in->data, in->n, out->choose,
                             out->choose_user, p);
    if (rc < 0)
        return rc;
    const struct mr_spec *spec = &ds->field[f];
    if (!out->choose && (p->height > spec->dim[0] || p->width > spec->dim[1]))
        return mr_error_set(MR_ELIMIT,
                            "%s: %u x %u pixels (height x width): expected at most %llu x %llu: "
                            "raise max-height and "
                            "max-width, or begin the transforms with a crop or resize",
                            name, p->height, p->width, (unsigned long long)spec->dim[0],
                            (unsigned long long)spec->dim[1]);
    out->field[f].data = p->data;
    out->field[f].dim[0] = p->height;
    out->field[f].dim[1] = p->width;
    return 0;
}
