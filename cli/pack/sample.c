/* A sample to be packed: its fields as they are stored, which the format makes members of. */
#include "pack/pack.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool pack_is_label(const struct mr_spec *spec)
{
    return spec->rank == 0 && strcmp(spec->name, "label") == 0 && spec->dtype >= MR_U8 &&
           spec->dtype <= MR_I64;
}

int pack_check_fields(const struct mr_dataset *ds, const struct pack_options *o)
{
    bool remade = o->resize > 0 || o->quality > 0;
    int code = o->format->check(ds);
    for (int f = 0; f < mr_dataset_fields(ds) && code == CLI_OK; f++)
        if (o->resize > 0 && strcmp(mr_dataset_field(ds, f)->name, "points") == 0)
            code = cli_fail("--resize: the field 'points' holds pixel positions, which would no "
                            "longer fit the pictures");
    if (code == CLI_OK && remade && mr_dataset_picture(ds) < 0)
        code = cli_fail("--resize and --quality: the data set has no compressed pictures");
    if (code == CLI_OK && remade && pack_jpeg_why_not())
        code = cli_fail("--resize and --quality: %s", pack_jpeg_why_not());
    return code;
}

void pack_sample_free(struct pack_sample *s)
{
    for (int i = 0; i < s->n; i++)
        free(s->member[i].data);
    s->n = 0;
}

/* The bytes say what a picture is, as names may be wrong. [out] ext: "jpg". */
static int make_picture(const struct mr_dataset *ds, const struct pack_options *o, uint64_t index,
                        struct mr_stored *stored, struct pack_member *m)
{
    const char *file = mr_dataset_file(ds, index), *name = file ? file : mr_dataset_text(ds);
    const unsigned char *b = stored->data;
    uint64_t n = stored->bytes;
    const char *ext = n >= 3 && memcmp(b, "\xff\xd8\xff", 3) == 0        ? "jpg"
                      : n >= 8 && memcmp(b, "\x89PNG\r\n\x1a\n", 8) == 0 ? "png"
                      : n >= 12 && memcmp(b, "RIFF", 4) == 0 && memcmp(b + 8, "WEBP", 4) == 0
                          ? "webp"
                          : NULL;
    if (!ext)
        return mr_error_set(MR_EFORMAT,
                            "%s: %" PRIu64 " bytes that are not a picture: expected "
                            "JPEG, PNG or WebP",
                            name, n);
    *m = (struct pack_member){.data = stored->data, .bytes = n};
    snprintf(m->ext, sizeof m->ext, "%s", ext);
    int rc = o->resize > 0 || o->quality > 0 ? pack_jpeg(o, name, m) : 0;
    stored->data = m->data;
    stored->bytes = m->bytes;
    return rc;
}

void pack_sample_make(const struct mr_dataset *ds, const struct pack_options *o, uint64_t index,
                      struct pack_sample *out)
{
    struct mr_stored stored[MR_MAX_FIELDS] = {{0}};
    struct pack_member picture = {0};
    int f = mr_dataset_picture(ds);
    out->n = 0;
    out->text[0] = 0;
    out->rc = mr_dataset_read_stored(ds, index, stored);
    if (out->rc >= 0 && f >= 0)
        out->rc = make_picture(ds, o, index, &stored[f], &picture);
    if (out->rc >= 0)
        out->rc = o->format->make(ds, picture.ext, stored, out);
    if (out->rc < 0)
        snprintf(out->text, sizeof out->text, "%s", mr_last_error());
    mr_stored_free(stored);
}
