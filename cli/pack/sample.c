/* A sample's fields as members: pictures as they are stored, labels as text, bytes as they are, the
 * rest as npy. */
#include "pack/pack.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const npy_types[MR_N_DTYPES] = {
    [MR_BOOL] = "|b1", [MR_U8] = "|u1",  [MR_I8] = "|i1",  [MR_U16] = "<u2",   [MR_I16] = "<i2",
    [MR_U32] = "<u4",  [MR_I32] = "<i4", [MR_U64] = "<u8", [MR_I64] = "<i8",   [MR_F16] = "<f2",
    [MR_F32] = "<f4",  [MR_F64] = "<f8", [MR_C64] = "<c8", [MR_C128] = "<c16",
};

/* A whole number, named label. */
static bool is_label(const struct mr_spec *spec)
{
    return spec->rank == 0 && strcmp(spec->name, "label") == 0 && spec->dtype >= MR_U8 &&
           spec->dtype <= MR_I64 && npy_types[spec->dtype] && strpbrk(npy_types[spec->dtype], "iu");
}

static bool is_bytes(const struct mr_spec *spec)
{
    return spec->dtype == MR_U8 && spec->rank == 1 && spec->var_dims;
}

int pack_check_fields(const struct mr_dataset *ds, const struct pack_options *o)
{
    for (int f = 0; f < mr_dataset_fields(ds); f++) {
        const struct mr_spec *spec = mr_dataset_field(ds, f);
        if (strpbrk(spec->name, "/") || spec->name[0] == '.')
            return cli_fail("field '%s': the name cannot be an extension", spec->name);
        if (f != mr_dataset_picture(ds) && !npy_types[spec->dtype])
            return cli_fail("field '%s': .npy files have no type %s", spec->name,
                            mr_dtype_name(spec->dtype));
        if (o->resize > 0 && strcmp(spec->name, "points") == 0)
            return cli_fail("--resize: the field 'points' holds pixel positions, which would no "
                            "longer fit the pictures");
    }
    if ((o->resize > 0 || o->quality > 0) && mr_dataset_picture(ds) < 0)
        return cli_fail("--resize and --quality: the data set has no compressed pictures");
    if ((o->resize > 0 || o->quality > 0) && pack_jpeg_why_not())
        return cli_fail("--resize and --quality: %s", pack_jpeg_why_not());
    return CLI_OK;
}

void pack_sample_free(struct pack_sample *s)
{
    for (int i = 0; i < s->n; i++)
        free(s->member[i].data);
    s->n = 0;
}

static int no_memory(uint64_t bytes)
{
    return mr_error_set(-12, "out of memory (%llu bytes)", (unsigned long long)bytes);
}

/* The bytes say what a picture is, as names may be wrong. */
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
    snprintf(m->ext, sizeof m->ext, "%s", ext);
    m->data = stored->data;
    m->bytes = n;
    stored->data = NULL;
    return o->resize > 0 || o->quality > 0 ? pack_jpeg(o, name, m) : 0;
}

static int make_label(const struct mr_spec *spec, const struct mr_stored *stored,
                      struct pack_member *m)
{
    uint64_t value = 0;
    bool is_signed = strchr(npy_types[spec->dtype], 'i') != NULL;
    memcpy(&value, stored->data,
           stored->bytes); /* little-endian, as all machines that this runs on */
    unsigned shift = 64 - 8 * (unsigned)stored->bytes;
    int64_t number = (int64_t)(value << shift) >> shift;
    char text[32];
    int n = is_signed ? snprintf(text, sizeof text, "%" PRId64, number)
                      : snprintf(text, sizeof text, "%" PRIu64, value);
    snprintf(m->ext, sizeof m->ext, "cls");
    m->data = strdup(text);
    m->bytes = (uint64_t)n;
    return m->data ? 0 : no_memory(sizeof text);
}

static int make_npy(const struct mr_spec *spec, const struct mr_stored *stored,
                    struct pack_member *m)
{
    char head[512], shape[256] = "";
    size_t at = 0;
    for (int d = 0; d < spec->rank; d++)
        at += (size_t)snprintf(shape + at, sizeof shape - at, "%" PRIu64 "%s", stored->dim[d],
                               d + 1 < spec->rank || spec->rank == 1 ? ", " : "");
    int n = snprintf(head, sizeof head, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                     npy_types[spec->dtype], shape);
    size_t total = ((size_t)n + 10 + 1 + 63) / 64 * 64;
    char *out = malloc(total + stored->bytes);
    if (!out)
        return no_memory(total + stored->bytes);
    memset(out, ' ', total);
    /* NOLINTNEXTLINE(bugprone-not-null-terminated-result): bytes, no text */
    memcpy(out, "\x93NUMPY\1\0", 8);
    out[8] = (char)((total - 10) & 255);
    out[9] = (char)((total - 10) >> 8);
    memcpy(out + 10, head, (size_t)n);
    out[total - 1] = '\n';
    memcpy(out + total, stored->data, stored->bytes);
    snprintf(m->ext, sizeof m->ext, "%.32s.npy", spec->name);
    m->data = out;
    m->bytes = total + stored->bytes;
    return 0;
}

static int make_member(const struct mr_dataset *ds, const struct pack_options *o, uint64_t index,
                       int f, struct mr_stored *stored, struct pack_member *m)
{
    const struct mr_spec *spec = mr_dataset_field(ds, f);
    if (f == mr_dataset_picture(ds))
        return make_picture(ds, o, index, stored, m);
    if (is_label(spec))
        return make_label(spec, stored, m);
    if (!is_bytes(spec))
        return make_npy(spec, stored, m);
    snprintf(m->ext, sizeof m->ext, "%.32s", spec->name);
    m->data = stored->data;
    m->bytes = stored->bytes;
    stored->data = NULL;
    return 0;
}

void pack_sample_make(const struct mr_dataset *ds, const struct pack_options *o, uint64_t index,
                      struct pack_sample *out)
{
    struct mr_stored stored[MR_MAX_FIELDS] = {{0}};
    out->n = 0;
    out->text[0] = 0;
    out->rc = mr_dataset_read_stored(ds, index, stored);
    for (int f = 0; f < mr_dataset_fields(ds) && out->rc >= 0; f++) {
        struct pack_member *m = &out->member[out->n];
        *m = (struct pack_member){0};
        out->rc = make_member(ds, o, index, f, &stored[f], m);
        out->n += m->data != NULL;
    }
    if (out->rc < 0)
        snprintf(out->text, sizeof out->text, "%s", mr_last_error());
    mr_stored_free(stored);
}
