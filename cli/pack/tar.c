/* Tar shards (ustar), a sample's fields as members: pictures as they are stored, labels as text,
 * bytes as they are, the rest as npy. */
#include "pack/pack.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 512u

static const char *const npy_types[MR_N_DTYPES] = {
    [MR_BOOL] = "|b1", [MR_U8] = "|u1",  [MR_I8] = "|i1",  [MR_U16] = "<u2",   [MR_I16] = "<i2",
    [MR_U32] = "<u4",  [MR_I32] = "<i4", [MR_U64] = "<u8", [MR_I64] = "<i8",   [MR_F16] = "<f2",
    [MR_F32] = "<f4",  [MR_F64] = "<f8", [MR_C64] = "<c8", [MR_C128] = "<c16",
};

/* ---- members ---- */

static int check(const struct mr_dataset *ds)
{
    for (int f = 0; f < mr_dataset_fields(ds); f++) {
        const struct mr_spec *spec = mr_dataset_field(ds, f);
        if (strpbrk(spec->name, "/") || spec->name[0] == '.')
            return cli_fail("field '%s': the name cannot be an extension", spec->name);
        if (f != mr_dataset_picture(ds) && !npy_types[spec->dtype])
            return cli_fail("field '%s': .npy files have no type %s", spec->name,
                            mr_dtype_name(spec->dtype));
    }
    return CLI_OK;
}

static bool is_bytes(const struct mr_spec *spec)
{
    return spec->dtype == MR_U8 && spec->rank == 1 && spec->var_dims;
}

static int no_memory(uint64_t bytes)
{
    return mr_error_set(-12, "out of memory (%llu bytes)", (unsigned long long)bytes);
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

static int make_member(const struct mr_spec *spec, struct mr_stored *stored, const char *picture,
                       struct pack_member *m)
{
    if (pack_is_label(spec))
        return make_label(spec, stored, m);
    if (!picture && !is_bytes(spec))
        return make_npy(spec, stored, m);
    snprintf(m->ext, sizeof m->ext, "%.32s", picture ? picture : spec->name);
    m->data = stored->data;
    m->bytes = stored->bytes;
    stored->data = NULL;
    return 0;
}

static int make(const struct mr_dataset *ds, const char *picture, struct mr_stored stored[],
                struct pack_sample *out)
{
    for (int f = 0; f < mr_dataset_fields(ds); f++) {
        struct pack_member *m = &out->member[out->n];
        const char *ext = f == mr_dataset_picture(ds) ? picture : NULL;
        *m = (struct pack_member){0};
        int rc = make_member(mr_dataset_field(ds, f), &stored[f], ext, m);
        out->n += m->data != NULL;
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- archives ---- */

static bool pad(struct pack_shard *s)
{
    static const char zeros[BLOCK];
    size_t n = (BLOCK - s->bytes % BLOCK) % BLOCK;
    return pack_put(s, zeros, n);
}

static void put_size(char *to, uint64_t bytes)
{
    if (bytes < 1ull << 33) {
        snprintf(to, 12, "%011llo", (unsigned long long)bytes);
        return;
    }
    to[0] = (char)0x80; /* base 256 */
    for (int i = 0; i < 8; i++)
        to[11 - i] = (char)(bytes >> 8 * i);
}

/* No times, no owners: the same samples make the same archives. */
static bool put_header(struct pack_shard *s, const char *key, const struct pack_member *m)
{
    char h[BLOCK] = "";
    unsigned sum = 0;
    snprintf(h, 100, "%s.%s", key, m->ext);
    memcpy(h + 100, "0000644", 8);
    memcpy(h + 108, "0000000", 8);
    memcpy(h + 116, "0000000", 8);
    put_size(h + 124, m->bytes);
    memcpy(h + 136, "00000000000", 12);
    memset(h + 148, ' ', 8);
    h[156] = '0';
    memcpy(h + 257, "ustar", 6);
    h[263] = h[264] = '0';
    for (size_t i = 0; i < BLOCK; i++)
        sum += (unsigned char)h[i];
    snprintf(h + 148, 8, "%06o", sum & 0777777);
    h[155] = ' ';
    return pack_put(s, h, BLOCK);
}

static uint64_t sample_bytes(const struct pack_sample *s)
{
    uint64_t bytes = 0;
    for (int i = 0; i < s->n; i++)
        bytes += BLOCK + (s->member[i].bytes + BLOCK - 1) / BLOCK * BLOCK;
    return bytes;
}

static bool add(struct pack_shard *s, const char *key, const struct pack_sample *sample)
{
    for (int i = 0; i < sample->n; i++) {
        const struct pack_member *m = &sample->member[i];
        if (!put_header(s, key, m) || !pack_put(s, m->data, m->bytes) || !pad(s))
            return false;
    }
    return true;
}

static bool end(struct pack_shard *s)
{
    static const char zeros[2 * BLOCK];
    return pack_put(s, zeros, sizeof zeros);
}

static int open_again(const char *path, struct mr_dataset **out)
{
    struct mr_tar_opts opts;
    mr_tar_opts_init(&opts);
    opts.path = path;
    opts.index = MR_TAR_INDEX_BESIDE;
    return mr_dataset_open_tar(&opts, out);
}

const struct pack_format pack_tar = {
    .name = "tar",
    .end = ".tar",
    .all = "",
    .end_bytes = 2 * BLOCK,
    .check = check,
    .make = make,
    .bytes = sample_bytes,
    .add = add,
    .finish = end,
    .open = open_again,
};
